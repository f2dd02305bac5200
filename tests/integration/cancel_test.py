# SPDX-License-Identifier: Apache-2.0
"""Cancelled requests give back all that they held."""

import concurrent.futures
import os
import random
import signal
import tempfile
import time
import unittest

from process_cluster import (Cluster, DONE, FULL, PATIENCE_S, make_tiny_model,
                             wait_until)

REQUESTS = 1000 if FULL else 200
AT_ONCE = 8
INTERRUPTED = 130
GAUGES = ("specwire_kv_cache_usage_ratio", "specwire_num_requests_running",
          "specwire_num_requests_waiting")


def gauges(cluster, name):
    return {series: value for series, value in cluster.metrics(name).items()
            if series.startswith(GAUGES)}


class CancelTest(unittest.TestCase):

    def one(self, cluster, number, seed):
        """One request; every second one is interrupted, at any moment from its
        start to its end."""
        chance = random.Random(seed * 1000 + number)
        prompt = ",".join(str(chance.randrange(3, 320))
                          for _ in range(chance.randrange(1, 200)))
        call = cluster.start(
            "generate", "--json", "--temperature", 0, "--ignore_eos",
            "--max_tokens", chance.randrange(200, 900), "--max_draft_tokens",
            chance.choice([1, 4, 8]), "--patience_us",
            chance.choice([0, 5000, -1]), "--window", 16, "--prompt_ids",
            prompt)
        try:
            if number % 2 == 0:
                time.sleep(chance.uniform(0.0, 0.6))
                call.send_signal(signal.SIGINT)
            _, messages = call.communicate(timeout=PATIENCE_S)
        finally:
            call.kill()
        return call.returncode, messages.decode()

    def test_every_gauge_returns_to_its_start(self):
        seed = int(os.environ.get("SPECWIRE_SEED", "1"))
        with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
            model = os.path.join(folder, "long.gguf")
            make_tiny_model(model, "--context_length", "2048")
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", model)
            cluster.start_draft_node("draft-0", "oracle", "--draft_model",
                                     model)
            names = ["verifier-0", "draft-0"]
            cluster.wait_serving(*names)
            before = {name: gauges(cluster, name) for name in names}
            for name in names:
                self.assertTrue(
                    any("kv_cache" in series for series in before[name]),
                    before)
                self.assertEqual(set(before[name].values()), {0.0}, before)
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                ends = list(pool.map(
                    lambda number: self.one(cluster, number, seed),
                    range(REQUESTS)))
            codes = [code for code, _ in ends]
            self.assertTrue(set(codes) <= {DONE, INTERRUPTED,
                                           -signal.SIGINT},
                            [end for end in ends
                             if end[0] not in (DONE, INTERRUPTED)][:5])
            # None was cut off that was not meant to be; many were.
            self.assertEqual(codes[1::2], [DONE] * (REQUESTS // 2))
            self.assertGreater(len(codes) - codes.count(DONE), REQUESTS // 10)
            for name in names:
                wait_until(lambda n=name: gauges(cluster, n) == before[n],
                           f"the gauges of {name} to return to {before[name]}",
                           10)
            for node in cluster.nodes():
                self.assertEqual(node["state"], "serving")
            self.assertEqual(
                {series: value for series, value in
                 cluster.metrics("coordinator").items()
                 if series.startswith("specwire_num_requests_running")
                 and value != 0}, {})
            cluster.generate("--max_tokens", 5, "the")


if __name__ == "__main__":
    unittest.main()
