# SPDX-License-Identifier: Apache-2.0
"""Speculation changes when tokens arrive, never which."""

import unittest

from process_cluster import UpCluster

PROMPTS = [
    # A text that repeats itself, for the n-gram drafter.
    ("--prompt_ids", ",".join(["119,261,40,41,265,291"] * 6)),
    ("--prompt_ids", "5"),
    ("--chat", "the and the of you for the and the of you"),
]
MAX_TOKENS = 56
PATIENCES = ["0", "5000", "-1"]
RUN_LENGTHS = [1, 2, 4, 8]


def plain(cluster, prompt, max_tokens=MAX_TOKENS):
    result = cluster.generate("--ignore_eos", "--max_tokens", max_tokens,
                              "--no_speculation", *prompt)
    stats = result["speculative_decoding"]
    assert stats["num_draft_tokens"] == 0, stats
    assert stats["num_passes"] == max_tokens, stats
    return result["token_ids"]


class EqualityTest(unittest.TestCase):

    def check_figures(self, result):
        stats = result["speculative_decoding"]
        histogram = stats["acceptance_histogram"]
        self.assertEqual(sum(histogram), stats["num_spec_steps"])
        self.assertEqual(sum(j * n for j, n in enumerate(histogram)),
                         stats["num_accepted_draft_tokens"])
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

    def check_drafter(self, drafter):
        """Returns the number of accepted draft tokens."""
        accepted = 0
        with UpCluster("--drafter", drafter) as cluster:
            for prompt in PROMPTS:
                expected = plain(cluster, prompt)
                self.assertEqual(len(expected), MAX_TOKENS)
                for run_length in RUN_LENGTHS:
                    for patience in PATIENCES:
                        with self.subTest(drafter=drafter, prompt=prompt,
                                          run_length=run_length,
                                          patience=patience):
                            result = cluster.generate(
                                "--ignore_eos", "--max_tokens", MAX_TOKENS,
                                "--max_draft_tokens", run_length, "--window",
                                max(8, run_length), "--patience_us", patience,
                                *prompt)
                            self.assertEqual(result["token_ids"], expected)
                            self.check_figures(result)
                            stats = result["speculative_decoding"]
                            accepted += stats["num_accepted_draft_tokens"]
        return accepted

    def test_ngram(self):
        self.assertGreater(self.check_drafter("ngram"), 0)

    def test_oracle(self):
        self.assertGreater(self.check_drafter("oracle"), 500)

    def test_none(self):
        self.assertEqual(self.check_drafter("none"), 0)


class LockStepTest(unittest.TestCase):
    """With a perfect drafter that works no further ahead than one run, every
    pass but the last emits run length + 1 tokens."""

    def test_counts_passes(self):
        with UpCluster("--drafter", "oracle") as cluster:
            for run_length in RUN_LENGTHS:
                for max_tokens in [1, run_length + 1, 59]:
                    with self.subTest(run_length=run_length,
                                      max_tokens=max_tokens):
                        self.check(cluster, run_length, max_tokens)

    def check(self, cluster, run_length, max_tokens):
        prompt = PROMPTS[0]
        result = cluster.generate(
            "--ignore_eos", "--max_tokens", max_tokens, "--patience_us", -1,
            "--max_draft_tokens", run_length, "--window", run_length, *prompt)
        self.assertEqual(result["token_ids"],
                         plain(cluster, prompt, max_tokens))
        stats = result["speculative_decoding"]
        full, rest = divmod(max_tokens, run_length + 1)
        self.assertEqual(stats["num_passes"], full + (rest > 0), stats)
        # Nothing is rejected; of the last run the limit may cut a part.
        self.assertEqual(stats["num_accepted_draft_tokens"],
                         stats["num_draft_tokens"], stats)
        expected = ["draft"] * run_length + ["target"]
        self.assertEqual(result["origins"][:full * (run_length + 1)],
                         expected * full)
        if full > 0:
            # The last pass stands apart: it may be as long by chance.
            self.assertIn(stats["acceptance_histogram"][run_length],
                          (full, full + 1), stats)


if __name__ == "__main__":
    unittest.main()
