# SPDX-License-Identifier: Apache-2.0
"""The real model: greedy ids are equal with and without speculation, and are
those of the reference."""

import json
import unittest

from process_cluster import DATA, FULL, MODEL, UpCluster

# A prompt whose first gap between the best two logits is below the tolerance
# may continue otherwise on another processor.
MIN_GAP = 1e-3
MAX_TOKENS = 64


def prompts():
    with open(DATA / "reference" / "greedy.jsonl") as file:
        return [json.loads(line) for line in file]


class RealModelTest(unittest.TestCase):

    def check(self, drafter, rows):
        accepted = 0
        with UpCluster("--drafter", drafter, model=MODEL) as cluster:
            for number, row in enumerate(rows):
                with self.subTest(drafter=drafter, number=number,
                                  question=row["question_id"]):
                    flags = ("--max_tokens", MAX_TOKENS, row["prompt"])
                    fast = cluster.generate(*flags)
                    plain = cluster.generate("--no_speculation", *flags)
                    self.assertEqual(fast["prompt_token_ids"],
                                     row["prompt_ids"])
                    self.assertEqual(fast["token_ids"], plain["token_ids"])
                    self.assertEqual(fast["text"], plain["text"])
                    self.assertEqual(fast["finish_reason"],
                                     plain["finish_reason"])
                    if row["min_top2_gap"] > MIN_GAP:
                        self.assertEqual(fast["token_ids"],
                                         row["completion_ids"])
                        self.assertEqual(fast["finish_reason"], row["finish"])
                    accepted += fast["speculative_decoding"][
                        "num_accepted_draft_tokens"]
        self.assertGreater(accepted, 0)

    def test_ngram(self):
        rows = prompts()
        self.assertGreaterEqual(len(rows), 40)
        self.check("ngram", rows)

    def test_oracle(self):
        self.check("oracle", prompts() if FULL else prompts()[::10])


if __name__ == "__main__":
    unittest.main()
