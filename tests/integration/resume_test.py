# SPDX-License-Identifier: Apache-2.0
"""Coordinators that are killed in mid-stream: the text goes on at another."""

import json
import os
import random
import signal
import subprocess
import time
import unittest

from process_cluster import (Client, Cluster, DONE, FAILED, LongModelTest,
                             PATIENCE_S, make_tiny_model, one_line, read_metrics,
                             wait_until)

PROMPT = ("--prompt_ids", ",".join(["119,261,40,41,265,291"] * 6))
# Long enough that a process can be killed while it runs.
MAX_TOKENS = 2000
NUM_MOMENTS = 20


class Pair:
    """Two coordinators that share a verifier and a draft node."""

    def __init__(self, model, drafter=("ngram",)):
        self.clusters = [Cluster("--grace", 0), Cluster("--grace", 0)]
        first, second = self.clusters
        first.coordinators = f"{first.address},{second.address}"
        self.model = model
        self.drafter = drafter

    def __enter__(self):
        try:
            for cluster in self.clusters:
                cluster.start_coordinator()
            first = self.clusters[0]
            first.start_verifier("verifier-0", self.model)
            first.start_draft_node("draft-0", *self.drafter)
            self.wait_serving()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.clusters[0].close()
        finally:
            self.clusters[1].close()

    def wait_serving(self):
        for cluster in self.clusters:
            cluster.wait_serving("verifier-0", "draft-0")

    def client(self, first):
        """Calls the coordinator with this number first."""
        return Client(f"{self.clusters[first].address},"
                      f"{self.clusters[1 - first].address}")

    def kill(self, number):
        self.clusters[number].programs["coordinator"].kill()


def arguments(*flags):
    return ("--ignore_eos", "--max_tokens", MAX_TOKENS, *flags, *PROMPT)


def finish(call):
    """(exit code, output, messages)."""
    try:
        out, messages = call.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        call.kill()
        raise
    return call.returncode, out, messages.decode()


class ResumeTest(LongModelTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other_model = os.path.join(cls.folder.name, "other.gguf")
        make_tiny_model(cls.other_model, "--context_length", "8192", "--seed",
                        "2")

    def check_identity(self, stats):
        self.assertEqual(
            stats["num_drafted_tokens"],
            stats["num_draft_tokens"] + stats["num_overlapped_tokens"] +
            stats["num_stale_tokens"] + stats["num_trimmed_tokens"] +
            stats["num_unused_tokens"])

    def test_killed_at_any_moment_the_same_ids_none_lost_none_twice(self):
        seed = random.randrange(1 << 30)
        moments = random.Random(seed)
        greedy = ("--temperature", "0", "--seed", "7")
        sampled = ("--temperature", "0.8", "--top_p", "0.95", "--seed", "7")
        with Pair(self.model) as pair, self.subTest(seed=seed):
            expected = {}
            for flags in (greedy, sampled):
                start = time.monotonic()
                expected[flags] = pair.client(0).json("generate",
                                                      *arguments(*flags))
                duration = time.monotonic() - start
                self.assertEqual(expected[flags]["resumes"], 0)
                expected[flags]["usage"].pop("cached_prompt_tokens")
                self.assertEqual(len(expected[flags]["token_ids"]), MAX_TOKENS)
            num_resumes = 0
            for i in range(NUM_MOMENTS):
                number = i % 2
                flags = sampled if i % 4 < 2 else greedy
                call = pair.client(number).start("generate", "--json",
                                                 *arguments(*flags))
                time.sleep(moments.uniform(0.05, 0.95) * duration)
                pair.kill(number)
                code, out, messages = finish(call)
                self.assertEqual(code, DONE, messages)
                result = json.loads(out)
                # How much a cache held is another matter.
                result["usage"].pop("cached_prompt_tokens")
                for field in ("token_ids", "text", "finish_reason", "seed",
                              "prompt_token_ids", "model_digest", "usage"):
                    self.assertEqual(result[field], expected[flags][field],
                                     (i, field))
                self.assertEqual(len(result["origins"]), MAX_TOKENS)
                self.check_identity(result["speculative_decoding"])
                num_resumes += result["resumes"]
                pair.clusters[number].start_coordinator()
                pair.wait_serving()
            # Nearly all of the moments lie within the streams.
            self.assertGreater(num_resumes, NUM_MOMENTS // 2)

    def test_streamed_text_goes_on_byte_by_byte(self):
        with Pair(self.model, ("oracle", "--draft_model", self.model)) as pair:
            flags = arguments("--temperature", "1", "--seed", "3", "--marks",
                              "none")
            code, expected, messages = finish(
                pair.client(1).start("generate", *flags))
            self.assertEqual(code, DONE, messages)
            call = pair.client(0).start("generate", *flags)
            first = call.stdout.read(64)
            pair.kill(0)
            code, rest, messages = finish(call)
            self.assertEqual(code, DONE, messages)
            self.assertEqual(first + rest, expected)
            self.assertIn("resumed 1 times", messages)

    def test_an_unseeded_text_goes_on_with_its_own_seed(self):
        with Pair(self.model) as pair:
            call = pair.client(0).start("generate", "--json",
                                        *arguments("--temperature", "1"))
            wait_until(lambda: self.generated(pair.clusters[0]) > 10,
                       "the first tokens")
            pair.kill(0)
            code, out, messages = finish(call)
            self.assertEqual(code, DONE, messages)
            result = json.loads(out)
            self.assertEqual(result["resumes"], 1)
            again = pair.client(1).json(
                "generate", *arguments("--temperature", "1", "--seed",
                                       result["seed"]))
            self.assertEqual(result["token_ids"], again["token_ids"])
            self.assertEqual(result["text"], again["text"])

    def generated(self, cluster):
        return sum(value for series, value in
                   read_metrics(cluster.http).items()
                   if series.startswith("specwire_generation_tokens_total"))

    def test_a_coordinator_that_shuts_down_hands_on_too(self):
        with Pair(self.model) as pair:
            expected = pair.client(1).json("generate",
                                           *arguments("--temperature", "0"))
            call = pair.client(0).start("generate", "--json",
                                        *arguments("--temperature", "0"))
            wait_until(lambda: self.generated(pair.clusters[0]) > 10,
                       "the first tokens")
            pair.clusters[0].programs["coordinator"].terminate()
            code, out, messages = finish(call)
            self.assertEqual(code, DONE, messages)
            result = json.loads(out)
            self.assertEqual(result["resumes"], 1)
            self.assertEqual(result["token_ids"], expected["token_ids"])

    def test_the_same_address_goes_on_when_it_is_back(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0")
            flags = arguments("--temperature", "0")
            expected = cluster.json("generate", *flags)
            call = cluster.start("generate", "--json", *flags)
            wait_until(lambda: self.generated(cluster) > MAX_TOKENS + 10,
                       "the first tokens")
            cluster.programs["coordinator"].kill()
            cluster.start_coordinator()
            code, out, messages = finish(call)
            self.assertEqual(code, DONE, messages)
            result = json.loads(out)
            self.assertEqual(result["resumes"], 1)
            self.assertEqual(result["token_ids"], expected["token_ids"])
            self.assertEqual(result["text"], expected["text"])

    def test_another_model_does_not_go_on(self):
        with Cluster() as first, Cluster() as second:
            for cluster, model in ((first, self.model),
                                   (second, self.other_model)):
                cluster.start_coordinator()
                cluster.start_verifier("verifier-0", model,
                                       "--served_model_name", "same")
                cluster.wait_serving("verifier-0")
            client = Client(f"{first.address},{second.address}")
            call = client.start("generate", "--json",
                                *arguments("--temperature", "0"))
            wait_until(lambda: self.generated(first) > 10, "the first tokens")
            first.programs["coordinator"].kill()
            code, out, messages = finish(call)
            self.assertEqual((code, out), (FAILED, b""), messages)
            self.assertTrue(one_line(messages), messages)
            self.assertIn("digest", messages)

    def test_with_no_coordinator_left_the_call_fails_in_time(self):
        with Pair(self.model) as pair:
            for how, expected in ((None, FAILED), (signal.SIGINT, 130)):
                call = pair.client(0).start("generate", "--json",
                                            *arguments("--temperature", "0"))
                wait_until(lambda: self.generated(pair.clusters[0]) > 10,
                           "the first tokens")
                start = time.monotonic()
                pair.kill(0)
                pair.kill(1)
                if how is not None:
                    time.sleep(0.5)
                    call.send_signal(how)
                code, out, messages = finish(call)
                self.assertEqual(code, expected, messages)
                self.assertEqual(out, b"")
                self.assertTrue(one_line(messages), messages)
                self.assertLess(time.monotonic() - start,
                                30 if how is None else 8)
                for cluster in pair.clusters:
                    cluster.start_coordinator()
                pair.wait_serving()

    def test_stats_tell_what_replies_and_metrics_tell(self):
        with Pair(self.model) as pair:
            client = pair.client(0)
            fields = ("num_spec_steps", "num_draft_tokens",
                      "num_accepted_draft_tokens", "num_drafted_tokens",
                      "num_overlapped_tokens", "num_stale_tokens",
                      "num_trimmed_tokens", "num_unused_tokens", "num_passes")
            sums = dict.fromkeys(fields, 0)
            for i in range(4):
                result = client.generate("--ignore_eos", "--max_tokens", 50,
                                         "--window", 16, "--patience_us",
                                         20000, *PROMPT)
                for field in fields:
                    sums[field] += result["speculative_decoding"][field]
            self.assertEqual(
                client.run("generate", "--max_tokens", 0, "x").returncode,
                FAILED)
            stats = client.json("stats")
            total = stats["speculative_decoding"]
            self.assertEqual({field: total[field] for field in fields}, sums)
            self.check_identity(total)
            self.assertEqual(stats["requests"], {"length": 4})
            self.assertEqual(stats["failures"], {"INVALID_ARGUMENT": 1})
            self.assertEqual(stats["usage"], {"prompt_tokens": 4 * 36,
                                              "completion_tokens": 200})
            pair_stats, = stats["pairs"]
            self.assertEqual(pair_stats["draft_node"], "draft-0")
            self.assertEqual(pair_stats["verifier_node"], "verifier-0")
            self.check_identity(pair_stats["speculative_decoding"])
            self.assertEqual(
                pair_stats["speculative_decoding"]["num_drafted_tokens"],
                total["num_drafted_tokens"])
            metrics = read_metrics(pair.clusters[0].http)
            drafts = sum(
                value for series, value in metrics.items() if
                series.startswith("specwire_spec_decode_num_draft_tokens_total"))
            self.assertEqual(drafts, total["num_draft_tokens"])
            # The other coordinator has counted nothing of it.
            other = pair.client(1).json("stats")
            self.assertEqual(other["requests"], {})
            text = client.run("stats").stdout
            self.assertIn("4 length; failed: 1 INVALID_ARGUMENT", text)
            self.assertIn("draft-0", text)


if __name__ == "__main__":
    unittest.main()
