# SPDX-License-Identifier: Apache-2.0
"""Nodes and coordinators that are lost, late or absent."""

import os
import signal
import subprocess
import time
import unittest

from process_cluster import (Client, Cluster, DONE, FAILED, LongModelTest,
                             PATIENCE_S, one_line, read_health, wait_until)

PROMPT = ("--prompt_ids", ",".join(["119,261,40,41,265,291"] * 6))
# Long enough that a process can be killed while it runs.
MAX_TOKENS = 6000


class LossTest(LongModelTest):

    def start(self, cluster, *flags):
        """A long request, once its first text has arrived."""
        call = cluster.start("generate", "--temperature", 0, "--ignore_eos",
                             "--max_tokens", MAX_TOKENS, "--marks", "none",
                             *flags, *PROMPT)
        first = call.stdout.read(64)
        self.assertNotEqual(first, b"", call.poll())
        return call, first

    def finish(self, call, first):
        """(exit code, whole text, messages)."""
        try:
            rest, messages = call.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            call.kill()
            raise
        return call.returncode, first + rest, messages.decode()

    def expected(self, cluster):
        done = subprocess.run(
            cluster.arguments("generate", "--temperature", 0, "--ignore_eos",
                              "--max_tokens", MAX_TOKENS, "--marks", "none",
                              "--no_speculation", *PROMPT),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return done.stdout

    def test_a_draft_node_killed_in_mid_stream_leaves_the_text_as_it_is(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            draft = cluster.start_draft_node("draft-0", "oracle",
                                             "--draft_model", self.model)
            cluster.wait_serving("verifier-0", "draft-0")
            expected = self.expected(cluster)
            for how in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(how=how):
                    call, first = self.start(cluster)
                    self.assertIsNone(call.poll())
                    os.kill(draft.pid, how)
                    code, text, messages = self.finish(call, first)
                    self.assertEqual(code, DONE, messages)
                    self.assertEqual(text, expected)
                    draft.kill()
                    # Without any, and again with a new one of the same name.
                    wait_until(lambda: cluster.serving() == ["verifier-0"],
                               "the draft node to leave")
                    self.assertEqual(
                        self.finish(*self.start(cluster))[:2],
                        (DONE, expected))
                    draft = cluster.start_draft_node(
                        "draft-0", "oracle", "--draft_model", self.model)
                    cluster.wait_serving("verifier-0", "draft-0")

    def test_the_verifier_drafts_on_when_the_last_draft_node_is_killed(self):
        with Cluster(local_drafter="suffix") as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            draft = cluster.start_draft_node("draft-0", "oracle",
                                             "--draft_model", self.model)
            cluster.wait_serving("verifier-0", "draft-0")
            expected = self.expected(cluster)
            call, first = self.start(cluster)
            self.assertIsNone(call.poll())
            draft.kill()
            code, text, messages = self.finish(call, first)
            self.assertEqual(code, DONE, messages)
            self.assertEqual(text, expected)
            figures = {pair["draft_node"]: pair["speculative_decoding"]
                       for pair in cluster.json("stats")["pairs"]}
            # Whether the draft node had part before depends on who was faster.
            self.assertGreater(figures["local"]["num_draft_tokens"], 0,
                               figures)

    def test_without_a_draft_node_text_is_plain(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            for patience in ("0", "5000", "-1"):
                result = cluster.generate("--max_tokens", 20, "--ignore_eos",
                                          "--patience_us", patience, *PROMPT)
                self.assertEqual(len(result["token_ids"]), 20)
                stats = result["speculative_decoding"]
                self.assertEqual(stats["num_draft_tokens"], 0)
                self.assertEqual(stats["num_passes"], 20)

    def test_without_a_verifier_requests_are_refused_with_a_reason(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_draft_node()
            cluster.wait_serving()
            for _ in range(2):
                done = cluster.run("generate", "--temperature", 0, "x")
                self.assertEqual(done.returncode, FAILED)
                self.assertEqual(done.stdout, "")
                self.assertTrue(one_line(done.stderr), done.stderr)
                self.assertIn("verifier", done.stderr)
            self.assertEqual(cluster.run("tokenize", "x").returncode, FAILED)
            status, health = read_health(cluster.http)
            self.assertIn(status, (200, 503), health)
            # It serves as soon as one comes, though it came last.
            cluster.start_verifier()
            cluster.wait_serving("verifier-0", "draft-0")
            self.assertEqual(read_health(cluster.http)[0], 200)
            cluster.generate("--max_tokens", 5, *PROMPT)

    def test_the_only_verifier_lost_in_mid_stream_ends_the_request(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            verifier = cluster.start_verifier("verifier-0", self.model)
            cluster.start_draft_node()
            cluster.wait_serving("verifier-0", "draft-0")
            call, first = self.start(cluster)
            verifier.kill()
            code, _, messages = self.finish(call, first)
            self.assertEqual(code, FAILED, messages)
            self.assertTrue(one_line(messages), messages)
            cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0", "draft-0")
            cluster.generate("--max_tokens", 5, *PROMPT)

    def test_a_verifier_lost_in_mid_stream_is_replaced_by_another(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.start_verifier("verifier-1", self.model)
            cluster.start_draft_node()
            cluster.wait_serving("verifier-0", "verifier-1", "draft-0")
            expected = self.expected(cluster)

            def busy_verifiers():
                return [node["name"] for node in cluster.nodes()
                        if node["role"] == "verifier" and
                        node["num_sequences"] > 0]

            # A node tells its load at intervals: let it tell that the call above
            # has ended.
            wait_until(lambda: not busy_verifiers(), "the verifiers to be idle")
            call, first = self.start(cluster)
            busy = wait_until(busy_verifiers, "a verifier to be busy")
            self.assertEqual(len(busy), 1)
            cluster.programs[busy[0]].kill()
            code, text, messages = self.finish(call, first)
            self.assertEqual(code, DONE, messages)
            self.assertEqual(text, expected)

    def test_nodes_start_in_any_order(self):
        with Cluster() as cluster:
            cluster.start_draft_node()
            cluster.start_verifier()
            # Both have nobody to join yet.
            time.sleep(0.5)
            cluster.start_coordinator()
            cluster.wait_serving("verifier-0", "draft-0")
            cluster.generate("--max_tokens", 5, *PROMPT)

    def test_nodes_rejoin_a_coordinator_that_was_restarted(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.start_draft_node()
            cluster.wait_serving("verifier-0", "draft-0")
            before = cluster.generate("--max_tokens", 20, *PROMPT)
            for end in ("terminate", "kill"):
                with self.subTest(end=end):
                    getattr(cluster.programs["coordinator"], end)()
                    self.assertEqual(cluster.run("nodes").returncode, 3)
                    cluster.start_coordinator()
                    cluster.wait_serving("verifier-0", "draft-0")
                    after = cluster.generate("--max_tokens", 20, *PROMPT)
                    self.assertEqual(after["token_ids"], before["token_ids"])
                    self.assertEqual(after["model_digest"],
                                     before["model_digest"])

    def test_a_coordinator_lost_in_mid_stream_ends_the_call(self):
        with Cluster() as cluster:
            coordinator = cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0")
            call, first = self.start(cluster)
            coordinator.kill()
            code, _, messages = self.finish(call, first)
            self.assertEqual(code, FAILED, messages)
            self.assertTrue(one_line(messages), messages)
            # The verifier frees what the request held.
            wait_until(lambda: self.kv_usage(cluster, "verifier-0") == 0,
                       "the KV cache to be free")

    def kv_usage(self, cluster, name):
        return sum(value for series, value in cluster.metrics(name).items()
                   if series.startswith("specwire_kv_cache_usage_ratio"))

    def test_the_second_address_is_taken_if_the_first_is_dead(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            client = Client(f"127.0.0.1:1,{cluster.address}")
            client.generate("--max_tokens", 5, *PROMPT)

    def test_an_interrupt_cancels_the_call(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.start_draft_node()
            cluster.wait_serving("verifier-0", "draft-0")
            call, first = self.start(cluster)
            call.send_signal(signal.SIGINT)
            code, _, messages = self.finish(call, first)
            self.assertEqual(code, 130, messages)
            self.assertEqual(messages, "specwire: cancelled\n")
            wait_until(lambda: self.kv_usage(cluster, "verifier-0") == 0,
                       "the KV cache to be free", 5)

    def test_a_closed_output_cancels_the_call(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0")
            call, _ = self.start(cluster)
            call.stdout.close()
            messages = call.stderr.read().decode()
            call.stderr.close()
            self.assertEqual(call.wait(PATIENCE_S), FAILED, messages)
            self.assertIn("standard output", messages)
            wait_until(lambda: self.kv_usage(cluster, "verifier-0") == 0,
                       "the KV cache to be free", 5)


if __name__ == "__main__":
    unittest.main()
