# SPDX-License-Identifier: Apache-2.0
"""bench/compare_engines.py from start to end, with Specwire alone and the tiny
model: no other engine is needed."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from process_cluster import BIN, SOURCE, TINY_MODEL


def compare(*flags, **environment):
    return subprocess.run(
        [sys.executable, SOURCE / "bench/compare_engines.py", "--bin", BIN,
         "--model", TINY_MODEL, "--threads", "1", *flags],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
        env=os.environ | environment)


class CompareEnginesTest(unittest.TestCase):

    def test_measures_specwire_and_writes_every_request(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as raw:
            done = compare("--engines", "specwire", "--json", "--prompts", "2",
                           "--max_tokens", "8", "--repeats", "2", "--batch",
                           "2", "--raw", raw.name)
            self.assertEqual(done.returncode, 0, done.stderr)
            samples = json.load(raw)
        document = json.loads(done.stdout)
        (entry,) = document["engines"]
        self.assertEqual(
            [entry[key] for key in ("engine", "threads", "prompts",
                                    "prompts_equal", "requests_cut_short")],
            ["specwire", 1, 2, 2, 0])
        self.assertGreater(entry["plain_tokens_per_second"], 0)
        self.assertGreater(entry["speculative_tokens_per_second"], 0)
        self.assertEqual(entry["plain"]["tokens_per_pass"], 1)
        (batch,) = document["batch"]
        self.assertEqual(
            [batch[key] for key in ("engine", "threads", "sequences",
                                    "prompts_compared", "prompts_equal")],
            ["specwire", 1, 2, 2, 2])
        self.assertGreater(batch["end_to_end_tokens_per_second"]["min"], 0)
        # 2 prompts, 2 repeats, 2 modes.
        self.assertEqual(len(samples), 8)
        self.assertEqual({len(s["token_ids"]) for s in samples}, {8})
        self.assertTrue(all(s["generation_s"] > 0 for s in samples))

    def test_without_the_other_engines_environment_it_says_what_to_do(self):
        done = compare("--quick", "--engines", "openvino", "--batch", "0",
                       SPECWIRE_BENCH_VENV="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("run bench/setup.sh", done.stderr)

    def test_bad_usage(self):
        for flags in (["--max_tokens", "1"], ["--threads", "0"],
                      ["--engines", "bogus"], ["--batch", "-1"], ["--bogus"]):
            self.assertEqual(compare(*flags).returncode, 2, flags)
        done = compare("--prompts", "999", "--engines", "specwire")
        self.assertEqual(done.returncode, 1)
        self.assertIn("999 prompts", done.stderr)


if __name__ == "__main__":
    unittest.main()
