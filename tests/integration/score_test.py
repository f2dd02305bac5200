# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities and scores through the command line, with the tiny model."""

import json
import math
import signal
import tempfile
import time
import unittest

from process_cluster import (Cluster, DONE, FAILED, PATIENCE_S, UNREACHABLE,
                             USAGE, make_tiny_model, one_line, wait_until)

TEXT = "the cat sat on the mat and the dog sat on the log, again and again"


class ScoreTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.start_coordinator()
        cls.cluster.start_verifier()
        cls.cluster.start_draft_node()
        cls.cluster.wait_serving("verifier-0", "draft-0")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def score(self, *arguments):
        result = self.cluster.json("score", *arguments)
        scored = [x for x in result["logprobs"] if x is not None]
        self.assertEqual(len(result["logprobs"]), len(result["token_ids"]))
        self.assertEqual(result["num_scored_tokens"], len(scored))
        self.assertAlmostEqual(result["perplexity"],
                               math.exp(-sum(scored) / len(scored)), 6)
        self.assertIsNone(result["logprobs"][0])
        return result

    def test_whole_text(self):
        result = self.score(TEXT)
        self.assertEqual(result["logprobs"].count(None), 1)
        self.assertNotIn("top", result)
        ids = ",".join(map(str, result["token_ids"]))
        self.assertEqual(self.score("--token_ids", ids), result)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(TEXT)
            file.flush()
            self.assertEqual(self.score("@" + file.name), result)
        top = self.score("--top", 2, TEXT)
        self.assertEqual(top["logprobs"], result["logprobs"])
        self.assertIsNone(top["top"][0])
        for candidates in top["top"][1:]:
            self.assertEqual(len(candidates), 2)
            self.assertGreaterEqual(candidates[0][1], candidates[1][1])

    def test_windows(self):
        whole = self.score(TEXT)
        length = len(whole["token_ids"])
        self.assertGreater(length, 12)
        self.assertEqual(self.score("--window", length, TEXT), whole)
        sliding = self.score("--window", 8, "--stride", 4, TEXT)
        self.assertEqual(sliding["num_scored_tokens"], length - 1)
        self.assertEqual(sliding, self.score("--window", 8, TEXT))
        # The first window is the text's beginning, later ones have lost it.
        self.assertEqual(sliding["logprobs"][:8], whole["logprobs"][:8])
        self.assertNotEqual(sliding["logprobs"][8:], whole["logprobs"][8:])
        apart = self.score("--window", 8, "--stride", 8, TEXT)
        self.assertEqual(
            [i for i, x in enumerate(apart["logprobs"]) if x is None],
            list(range(0, length, 8)))

    def test_text_for_people(self):
        done = self.cluster.run("score", TEXT)
        self.assertEqual(done.returncode, DONE, done.stderr)
        lines = done.stdout.splitlines()
        result = self.score(TEXT)
        self.assertEqual(len(lines), len(result["token_ids"]) + 2)
        self.assertRegex(lines[1], r'^ +0 +\d+ +- +- +"t"$')
        for i, logprob in enumerate(result["logprobs"][1:], start=1):
            words = lines[i + 1].split()
            self.assertEqual(int(words[0]), i)
            self.assertEqual(int(words[1]), result["token_ids"][i])
            self.assertAlmostEqual(float(words[2]), math.exp(logprob), 5)
            self.assertAlmostEqual(float(words[3]), -logprob / math.log(2), 1)
        self.assertEqual(
            lines[-1],
            f"perplexity {result['perplexity']:.4f} over "
            f"{result['num_scored_tokens']} scored tokens")

    def test_generate_tells_what_score_tells(self):
        flags = ("--logprobs", 3, "--prompt_logprobs", 3, "--temperature", 1,
                 "--seed", 5, "--max_tokens", 30, "--ignore_eos", TEXT)
        # With patience that is named: else drafts may be left out.
        fast = self.cluster.json("generate", "--patience_us", 20000, *flags)
        plain = self.cluster.json("generate", "--no_speculation", *flags)
        self.assertGreater(fast["speculative_decoding"]["num_drafted_tokens"],
                           0)
        for key in ("token_ids", "logprobs", "prompt_logprobs"):
            self.assertEqual(fast[key], plain[key], key)
        self.assertEqual([x["token_id"] for x in fast["logprobs"]],
                         fast["token_ids"])
        self.assertEqual(len(fast["prompt_logprobs"]),
                         len(fast["prompt_token_ids"]))
        self.assertIsNone(fast["prompt_logprobs"][0])
        ids = fast["prompt_token_ids"] + fast["token_ids"]
        score = self.score("--top", 3, "--token_ids", ",".join(map(str, ids)))
        told = fast["prompt_logprobs"] + fast["logprobs"]
        self.assertEqual([x and x["logprob"] for x in told],
                         score["logprobs"])
        self.assertEqual([x and x["top"] for x in told], score["top"])

    def test_echo(self):
        flags = ("--temperature", 0, "--max_tokens", 5, TEXT)
        plain = self.cluster.json("generate", *flags)
        echoed = self.cluster.json("generate", "--echo", *flags)
        self.assertEqual(echoed["text"], TEXT + plain["text"])
        self.assertEqual(echoed["token_ids"], plain["token_ids"])
        done = self.cluster.run("generate", "--echo", *flags)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(done.stdout.rstrip("\n"),
                         echoed["text"].rstrip("\n"))

    def test_bad_input(self):
        for arguments, code, words in (
                (("a",), FAILED, ["input", "1 tokens"]),
                (("",), FAILED, ["input", "0 tokens"]),
                (("--token_ids", "5,999999"), FAILED, ["input.token_ids[1]"]),
                (("--window", 100000, TEXT), FAILED, ["window", "context"]),
                (("--stride", 3, TEXT), FAILED, ["stride", "window"]),
                (("--window", 8, "--stride", 9, TEXT), FAILED, ["stride"]),
                (("--json", "--top", 21, TEXT), FAILED, ["top", "20"]),
                ((TEXT * 500,), FAILED, ["window", "context"]),
                ((), USAGE, ["TEXT"]),
                (("--token_ids", "1,2", "text"), USAGE, ["TEXT"]),
                (("@/no/such/file",), USAGE, ["/no/such/file"])):
            with self.subTest(arguments=str(arguments)[:80]):
                done = self.cluster.run("score", *arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertTrue(one_line(done.stderr), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)


class ScoreLossTest(unittest.TestCase):
    """Scores that take long enough to be hit in the middle."""

    LONG = ("--json", "--window", 300, "--stride", 4, "--token_ids",
            ",".join(str(5 + i * 37 % 250) for i in range(500)))

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = f"{cls.folder.name}/slow.gguf"
        make_tiny_model(cls.model, "--layers", "12", "--context_length", "512")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.cluster = Cluster("--grace", 0)
        self.addCleanup(self.cluster.close)
        self.cluster.start_coordinator()

    def start_verifier(self, name):
        self.cluster.start_verifier(name, self.model)

    def rows(self, name):
        """Rows of prompts and scores that the verifier has computed."""
        return self.metric(name, "specwire_engine_rows_total",
                           'stage="prefill"')

    def metric(self, verifier, name, label=""):
        return sum(value for series, value in
                   self.cluster.metrics(verifier).items()
                   if series.startswith(name + "{") and label in series)

    def start(self, *verifiers):
        """A score that has begun, and the verifier that works for it."""
        before = {name: self.rows(name) for name in verifiers}
        call = self.cluster.start("score", *self.LONG)
        self.addCleanup(call.wait)
        self.addCleanup(call.kill)
        busy = wait_until(
            lambda: [name for name in verifiers
                     if self.rows(name) > before[name] + 1000],
            "a score that runs")
        self.assertIsNone(call.poll())
        return call, busy[0]

    def test_a_lost_verifier_is_replaced(self):
        self.start_verifier("first")
        self.cluster.wait_serving("first")
        expected = self.cluster.run("score", *self.LONG)
        self.assertEqual(expected.returncode, DONE, expected.stderr)
        self.start_verifier("second")
        self.cluster.wait_serving("first", "second")
        call, busy = self.start("first", "second")
        self.cluster.programs[busy].kill()
        out, err = call.communicate(timeout=PATIENCE_S)
        self.assertEqual(call.returncode, DONE, err)
        self.assertEqual(json.loads(out), json.loads(expected.stdout))

    def test_an_interrupt_frees_all(self):
        self.start_verifier("verifier-0")
        self.cluster.wait_serving("verifier-0")
        call, _ = self.start("verifier-0")
        call.send_signal(signal.SIGINT)
        out, err = call.communicate(timeout=PATIENCE_S)
        self.assertEqual(call.returncode, 130, err)
        self.assertEqual(out, b"")
        def idle():
            rows = self.rows("verifier-0")
            time.sleep(0.3)
            return rows == self.rows("verifier-0")
        wait_until(idle, "an idle verifier")
        self.assertEqual(
            self.metric("verifier-0", "specwire_kv_cache_usage_ratio"), 0)
        self.assertEqual(
            self.cluster.run("score", "a text").returncode, DONE)

    def test_a_coordinator_that_stops_ends_it(self):
        self.start_verifier("verifier-0")
        self.cluster.wait_serving("verifier-0")
        call, _ = self.start("verifier-0")
        self.assertEqual(
            self.cluster.programs["coordinator"].terminate(20), 0)
        _, err = call.communicate(timeout=PATIENCE_S)
        self.assertIn(call.returncode, (FAILED, UNREACHABLE), err)
        self.assertTrue(one_line(err.decode()), err)


if __name__ == "__main__":
    unittest.main()
