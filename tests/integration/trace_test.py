# SPDX-License-Identifier: Apache-2.0
"""Traced requests on a model: the same tokens, outcomes that add up to the
figures, probabilities that are the target's and the drafter's own."""

import collections
import math
import unittest

from process_cluster import DONE, UpCluster

PROMPT = ("--ignore_eos", "--max_tokens", "60", "--prompt_ids",
          ",".join(["119,261,40,41,265,291"] * 4))
SAMPLED = ("--temperature", "0.8", "--top_k", "20", "--seed", "5")
GREEDY = ("--temperature", "0")


def outcomes(reply):
    counts = collections.Counter()
    for trace_pass in reply["trace"]:
        for run in trace_pass["drafts"]:
            counts.update(token["outcome"] for token in run["tokens"])
    return counts


class TraceTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = UpCluster("--drafter", "model", "--draft_layers", "1")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def check(self, reply):
        """What must hold of every traced reply, or choice of one."""
        stats = reply["speculative_decoding"]
        counts = outcomes(reply)
        self.assertEqual(counts["accepted"],
                         stats["num_accepted_draft_tokens"])
        self.assertEqual(
            counts["accepted"] + counts["rejected"] + counts["discarded"],
            stats["num_draft_tokens"])
        for name in ("overlapped", "stale", "trimmed", "unused"):
            self.assertEqual(counts[name], stats[f"num_{name}_tokens"], name)
        self.assertEqual(sum(each["num_left_out"] for each in reply["trace"]),
                         0)
        passes = [each for each in reply["trace"] if each["choices"]]
        self.assertEqual(len(passes), stats["num_passes"])
        self.assertEqual([choice["token_id"] for each in passes
                          for choice in each["choices"]], reply["token_ids"])
        end = 0
        for each in passes:
            times = each["timings"]
            self.assertTrue(0 <= times["start_us"] <= times["end_us"], times)
            self.assertGreaterEqual(times["end_us"], end)
            end = times["end_us"]
            self.assertGreater(times["verify_us"], 0)
            for choice in each["choices"]:
                self.assertTrue(0 <= choice["target"]["probability"] <= 1)
                self.assertLessEqual(choice["target"]["logprob"], 0)
            for run in each["drafts"]:
                for token in run["tokens"]:
                    compared = token["outcome"] in ("accepted", "rejected")
                    self.assertEqual(token["target"] is not None, compared)

    def test_tokens_are_the_same_and_outcomes_add_up(self):
        for flags in (GREEDY, SAMPLED):
            for more in ((), ("--no_speculation",),
                         ("--drafter", "local"),
                         ("--drafter", "model", "--max_draft_tokens", "4"),
                         ("--drafter", "model", "--rule", "ratio")):
                with self.subTest(flags=flags + more):
                    plain = self.cluster.json("generate", *flags, *more,
                                              *PROMPT)
                    self.assertNotIn("trace", plain)
                    traced = self.cluster.json("generate", "--trace", *flags,
                                               *more, *PROMPT)
                    # The ratio rule's tokens depend on what came in time.
                    if "ratio" not in more or flags == GREEDY:
                        self.assertEqual(traced["token_ids"],
                                         plain["token_ids"])
                    self.check(traced)
                    if "--no_speculation" in more:
                        self.assertFalse(outcomes(traced))

    def test_the_targets_probabilities_are_those_of_logprobs(self):
        reply = self.cluster.json("generate", "--trace", "--logprobs", "3",
                                  *GREEDY, *PROMPT)
        choices = [choice for each in reply["trace"]
                   for choice in each["choices"]]
        for choice, told in zip(choices, reply["logprobs"], strict=True):
            self.assertAlmostEqual(choice["target"]["logprob"],
                                   told["logprob"], places=5)
            # Greedy: all on the likeliest.
            self.assertEqual(choice["target"]["probability"], 1)
        reply = self.cluster.json("generate", "--trace", "--logprobs", "20",
                                  "--temperature", "1", "--seed", "3",
                                  "--top_k", "20", *PROMPT)
        choices = [choice for each in reply["trace"]
                   for choice in each["choices"]]
        for choice, told in zip(choices, reply["logprobs"], strict=True):
            # At temperature 1 the cut leaves the proportions as they are.
            left = sum(math.exp(logprob) for _, logprob in told["top"])
            self.assertAlmostEqual(choice["target"]["probability"],
                                   math.exp(told["logprob"]) / left, places=4)

    def test_tells_who_drafted_with_what_probability(self):
        reply = self.cluster.json("generate", "--trace", "--drafter", "model",
                                  "--max_draft_tokens", "4", "--patience_us",
                                  "-1", *SAMPLED, *PROMPT)
        runs = [run for each in reply["trace"] for run in each["drafts"]]
        self.assertEqual({(run["drafter"], run["node"]) for run in runs},
                         {("model", "draft-0")})
        tokens = [token for run in runs for token in run["tokens"]]
        self.assertTrue(all(0 <= token["draft_probability"] <= 1
                            for token in tokens))
        self.assertTrue(any(each["timings"]["draft_us"] > 0
                            for each in reply["trace"] if each["choices"]))
        reply = self.cluster.json("generate", "--trace", "--drafter", "local",
                                  *GREEDY, *PROMPT)
        runs = [run for each in reply["trace"] for run in each["drafts"]]
        self.assertEqual({(run["drafter"], run["node"]) for run in runs},
                         {("local", "verifier-0")})

    def test_each_choice_has_its_own(self):
        reply = self.cluster.json("generate", "--trace", "--n", "3", *SAMPLED,
                                  *PROMPT)
        for choice in reply["choices"]:
            self.check(choice)

    def test_prints_a_table(self):
        done = self.cluster.run("generate", "--trace", *GREEDY, *PROMPT)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn("POSITION", done.stdout)
        self.assertIn("pass 1 on verifier-0", done.stdout)
        self.assertRegex(done.stderr, r"seed -?\d+;")
        table = done.stdout[done.stdout.index("pass 1 on"):]
        self.assertTrue(table.isascii() and table.replace("\n", "")
                        .isprintable(), table)
        plain = self.cluster.run("generate", *GREEDY, *PROMPT)
        self.assertTrue(done.stdout.startswith(plain.stdout))
        several = self.cluster.run("generate", "--n", "2", *GREEDY, *PROMPT)
        for i in range(2):
            self.assertIn(f"choice {i}: ", several.stderr)


if __name__ == "__main__":
    unittest.main()
