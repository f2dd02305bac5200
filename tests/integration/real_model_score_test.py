# SPDX-License-Identifier: Apache-2.0
"""Scores of the real model are those of the reference: the reference engine's
each row, the int8 engine's as a whole."""

import json
import math
import unittest

from process_cluster import DATA, FULL, MODEL, Cluster

# Hugging Face's sliding-window texts of 1,500 tokens take the slow engine long.
SLIDING_ROWS = 3 if FULL else 1
WINDOW = ("--window", 512, "--stride", 256)


def rows():
    with open(DATA / "reference" / "perplexity.jsonl") as file:
        return [json.loads(line) for line in file]


def expected(row):
    """Sum of negative log-likelihoods and number of scored tokens."""
    if "token_count" in row:
        return row["token_nll_sum"], row["token_count"]
    return row["nll_sum"], row["num_scored_tokens"]


class RealModelScoreTest(unittest.TestCase):

    def score(self, cluster, row):
        sliding = row["method"] == "sliding_window"
        result = cluster.json("score", *(WINDOW if sliding else ()),
                              row["text"], timeout=600)
        self.assertEqual(result["token_ids"], row["ids"])
        nll = -sum(x for x in result["logprobs"] if x is not None)
        self.assertAlmostEqual(math.exp(nll / result["num_scored_tokens"]),
                               result["perplexity"], 6)
        self.assertEqual(result["num_scored_tokens"], expected(row)[1])
        return nll

    def cluster(self, engine):
        cluster = Cluster()
        self.addCleanup(cluster.close)
        cluster.start_coordinator()
        cluster.start_verifier("verifier-0", MODEL, "--engine", engine)
        cluster.wait_serving("verifier-0")
        return cluster

    def test_reference_engine(self):
        cluster = self.cluster("reference")
        sliding = [r for r in rows() if r["method"] == "sliding_window"]
        single = [r for r in rows() if r["method"] == "single_window"]
        self.assertEqual((len(single), len(sliding)), (10, 3))
        for row in single + sliding[:SLIDING_ROWS]:
            nll, count = expected(row)
            perplexity = math.exp(self.score(cluster, row) / count)
            with self.subTest(text=row["text"][:40]):
                self.assertLess(
                    abs(perplexity / math.exp(nll / count) - 1), 1e-3)

    def test_int8_engine_as_a_whole(self):
        cluster = self.cluster("int8")
        got = sum(self.score(cluster, row) for row in rows())
        nll = sum(expected(row)[0] for row in rows())
        count = sum(expected(row)[1] for row in rows())
        self.assertEqual(count, 6057)
        ratio = math.exp((got - nll) / count)
        print(f"perplexity {math.exp(got / count):.4f}, "
              f"{100 * (ratio - 1):+.2f} % of the reference's")
        self.assertLess(abs(ratio - 1), 0.01)


if __name__ == "__main__":
    unittest.main()
