# SPDX-License-Identifier: Apache-2.0
"""The real model: ids are equal with and without speculation, greedy and
seeded; greedy ones of the reference engine are those of the reference."""

import json
import unittest

from process_cluster import DATA, FULL, MODEL, SOURCE, Cluster

# A prompt whose first gap between the best two logits is below the tolerance
# may continue otherwise on another processor.
MIN_GAP = 1e-3
MAX_TOKENS = 64
# Prompts that the slow reference engine completes.
REFERENCE_PROMPTS = 40 if FULL else 8
DRAFTERS = (["suffix", "hybrid", "random"] +
            (["ngram", "model", "oracle"] if FULL else []))
DRAFT_MODEL = (SOURCE / "draft_node" / "models" /
               "SmolLM2-135M-Instruct-draft.gguf")
GREEDY = ("--temperature", 0)
SEEDED = ("--temperature", 0.7, "--top_p", 0.95, "--seed", 11)


def prompts():
    with open(DATA / "reference" / "greedy.jsonl") as file:
        return [json.loads(line) for line in file]


class RealModelTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.start_coordinator()
        cls.cluster.start_verifier("verifier-0", MODEL)
        flags = {"model": ("--draft_model", MODEL, "--draft_layers", 4),
                 "hybrid": ("--draft_model", DRAFT_MODEL),
                 "oracle": ("--draft_model", MODEL)}
        for drafter in DRAFTERS:
            cls.cluster.start_draft_node(drafter, drafter,
                                         *flags.get(drafter, ()))
        cls.cluster.wait_serving("verifier-0", *DRAFTERS)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def check_figures(self, result):
        stats = result["speculative_decoding"]
        histogram = stats["acceptance_histogram"]
        self.assertEqual(sum(histogram), stats["num_spec_steps"])
        self.assertEqual(sum(j * n for j, n in enumerate(histogram)),
                         stats["num_accepted_draft_tokens"])
        self.assertLessEqual(stats["num_accepted_draft_tokens"],
                             stats["num_draft_tokens"])
        self.assertEqual(
            stats["num_drafted_tokens"],
            stats["num_draft_tokens"] + stats["num_overlapped_tokens"] +
            stats["num_stale_tokens"] + stats["num_trimmed_tokens"] +
            stats["num_unused_tokens"])
        self.assertEqual(result["origins"].count("draft"),
                         stats["num_accepted_draft_tokens"])
        self.assertEqual(len(result["origins"]), len(result["token_ids"]))
        self.assertEqual(result["usage"]["completion_tokens"],
                         len(result["token_ids"]))

    def check(self, row, sampling, drafters):
        """Returns verified and accepted draft tokens by drafter."""
        flags = ("--max_tokens", MAX_TOKENS, *sampling, row["prompt"])
        plain = self.cluster.json("generate", "--no_speculation", *flags)
        self.assertEqual(plain["prompt_token_ids"], row["prompt_ids"])
        counts = {}
        for drafter in drafters:
            fast = self.cluster.json("generate", "--drafter", drafter, *flags)
            for key in ("prompt_token_ids", "token_ids", "text",
                        "finish_reason"):
                self.assertEqual(fast[key], plain[key], (drafter, key))
            self.check_figures(fast)
            stats = fast["speculative_decoding"]
            counts[drafter] = (stats["num_draft_tokens"],
                               stats["num_accepted_draft_tokens"])
        return counts

    def test_ids_are_equal(self):
        rows = prompts()
        self.assertGreaterEqual(len(rows), 40)
        verified = dict.fromkeys(DRAFTERS, 0)
        accepted = dict.fromkeys(DRAFTERS, 0)
        for row in rows:
            for sampling in (GREEDY, SEEDED):
                with self.subTest(question=row["question_id"],
                                  sampling=sampling):
                    counts = self.check(row, sampling, DRAFTERS)
                    for drafter, (rows_verified, rows_accepted) in (
                            counts.items()):
                        verified[drafter] += rows_verified
                        accepted[drafter] += rows_accepted
        print("verified and accepted draft tokens:",
              {d: (verified[d], accepted[d]) for d in DRAFTERS})
        for drafter in DRAFTERS:
            self.assertGreater(verified[drafter], 0, drafter)
        self.assertGreater(accepted["suffix"], 0)
        self.assertGreater(accepted["hybrid"], accepted["random"])


class ReferenceEngineTest(unittest.TestCase):

    def test_greedy_ids_are_those_of_the_reference(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", MODEL, "--engine",
                                   "reference")
            cluster.wait_serving("verifier-0")
            for row in prompts()[:REFERENCE_PROMPTS]:
                result = cluster.json("generate", "--max_tokens", MAX_TOKENS,
                                      *GREEDY, row["prompt"])
                self.assertEqual(result["prompt_token_ids"],
                                 row["prompt_ids"])
                if row["min_top2_gap"] > MIN_GAP:
                    self.assertEqual(result["token_ids"],
                                     row["completion_ids"][:MAX_TOKENS],
                                     row["question_id"])


if __name__ == "__main__":
    unittest.main()
