# SPDX-License-Identifier: Apache-2.0
"""Every process of a cluster restarted, one after another, under load: no
request fails, and every text is the one that plain decoding gives.

SPECWIRE_TEST_MINUTES, or --minutes M, says for how long (default: 40 s).
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from process_cluster import (Client, Cluster, DONE, make_tiny_model,
                             read_metrics, wait_until)

DURATION_S = 60 * float(os.environ.get("SPECWIRE_TEST_MINUTES", 40 / 60))
NUM_CLIENTS = 4
MAX_TOKENS = 1500
# Some sequences are longer than that, so that some must move.
GRACE_S = 0.3
PROMPTS = ["119,261,40,41,265,291", "40,41,119,261", "265,291,119,40,41"]
SAMPLING = [("--temperature", "0", "--seed", "7"),
            ("--temperature", "0.8", "--top_p", "0.95", "--seed", "7")]


class Request:
    """A request and the ids that it must give."""

    def __init__(self, prompt, sampling):
        self.flags = ("--ignore_eos", "--max_tokens", MAX_TOKENS,
                      "--prompt_ids", ",".join([prompt] * 4), *sampling)
        self.expected = None


class Load(threading.Thread):
    """Calls one request after the other, each coordinator first in turn."""

    def __init__(self, number, clients, requests):
        super().__init__(name=f"load-{number}", daemon=True)
        self.number = number
        self.clients = clients
        self.requests = requests
        self.stop = threading.Event()
        self.num_done = self.num_resumes = self.num_lost = self.num_doubled = 0
        self.faults = []

    def run(self):
        call = self.number
        while not self.stop.is_set():
            request = self.requests[call % len(self.requests)]
            client = self.clients[(call // 2) % len(self.clients)]
            try:
                self.call(client, request)
            except subprocess.TimeoutExpired as hung:
                self.faults.append(f"hung: {hung}")
            call += 1

    def call(self, client, request):
        done = client.run("generate", "--json", *request.flags)
        self.num_done += 1
        if done.returncode != DONE:
            self.faults.append(f"exit code {done.returncode}: {done.stderr}")
            return
        result = json.loads(done.stdout)
        self.num_resumes += result["resumes"]
        ids = result["token_ids"]
        self.num_lost += max(len(request.expected) - len(ids), 0)
        self.num_doubled += max(len(ids) - len(request.expected), 0)
        if ids != request.expected:
            self.faults.append(f"wrong ids: {request.flags}")


class RollingCluster:
    """Two of everything; any process can be started again."""

    def __init__(self, model):
        # What ends the load is not what is tested: let it end at once.
        self.sides = [Cluster("--grace", GRACE_S), Cluster("--grace", GRACE_S)]
        self.model = model
        self.nodes = self.sides[0]
        self.nodes.coordinators = ",".join(s.address for s in self.sides)
        self.starts = {
            "coordinator-0": self.sides[0].start_coordinator,
            "coordinator-1": self.sides[1].start_coordinator,
        }
        for i in range(2):
            self.starts[f"verifier-{i}"] = lambda name=f"verifier-{i}": (
                self.nodes.start_verifier(name, model, "--grace", GRACE_S))
            self.starts[f"draft-{i}"] = lambda name=f"draft-{i}": (
                self.nodes.start_draft_node(name, "oracle", "--draft_model",
                                            model))
        self.node_names = [name for name in self.starts
                           if not name.startswith("coordinator")]
        self.programs = {}

    def __enter__(self):
        try:
            for name in self.starts:
                self.start(name)
            self.wait_right()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.sides[0].close()
        finally:
            self.sides[1].close()

    def start(self, name):
        self.programs[name] = self.starts[name]()

    def clients(self):
        a, b = (side.address for side in self.sides)
        return [Client(f"{a},{b}"), Client(f"{b},{a}")]

    def wait_right(self):
        """Waits until both coordinators list all nodes as serving, once each,
        with the pids that they have now."""
        def right():
            for side in self.sides:
                done = side.run("nodes", "--json")
                if done.returncode != DONE:
                    return False
                live = [(node["name"], node["state"], node["pid"])
                        for node in json.loads(done.stdout)
                        if node["state"] != "gone"]
                if sorted(live) != sorted((name, "serving",
                                           self.programs[name].pid)
                                          for name in self.node_names):
                    return False
            return True
        wait_until(right, "both coordinators to list all nodes as serving")

    def restart(self, name):
        """Returns the exit code."""
        code = self.programs[name].terminate()
        if code != 0:
            print(f"{name} ended with {code}:\n{self.programs[name].err()}",
                  file=sys.stderr)
        self.start(name)
        self.wait_right()
        return code


class RollingRestartTest(unittest.TestCase):

    def test_every_process_restarted_under_load(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "long.gguf")
            make_tiny_model(model, "--context_length", "8192")
            with RollingCluster(model) as cluster:
                self.roll(cluster)

    def roll(self, cluster):
        requests = [Request(prompt, sampling)
                    for prompt in PROMPTS for sampling in SAMPLING]
        for request in requests:
            request.expected = cluster.clients()[0].json(
                "generate", "--no_speculation", *request.flags)["token_ids"]
            self.assertEqual(len(request.expected), MAX_TOKENS)
        loads = [Load(number, cluster.clients(), requests)
                 for number in range(NUM_CLIENTS)]
        for load in loads:
            load.start()
        restarts = dict.fromkeys(cluster.starts, 0)
        codes = []
        deadline = time.monotonic() + DURATION_S
        try:
            # At least one round, however slow the machine is.
            while time.monotonic() < deadline or not all(restarts.values()):
                name = min(restarts, key=restarts.get)
                codes.append(cluster.restart(name))
                restarts[name] += 1
        finally:
            for load in loads:
                load.stop.set()
            for load in loads:
                load.join()
        faults = [fault for load in loads for fault in load.faults]
        total = {what: sum(getattr(load, what) for load in loads)
                 for what in ("num_done", "num_resumes", "num_lost",
                              "num_doubled")}
        print(f"{sum(restarts.values())} restarts {restarts}, exit codes "
              f"{sorted(set(codes))}; {total['num_done']} requests, "
              f"{total['num_resumes']} resumed, {len(faults)} failed, "
              f"{total['num_lost']} tokens lost, {total['num_doubled']} "
              "doubled", file=sys.stderr)
        self.assertEqual(faults, [])
        self.assertEqual((total["num_lost"], total["num_doubled"]), (0, 0))
        self.assertEqual(set(codes), {0})
        self.assertGreater(total["num_done"], len(codes))
        cluster.wait_right()
        for name in ("verifier-0", "verifier-1"):
            address = cluster.nodes.metrics_addresses[name]
            wait_until(lambda: all(
                value == 0 for series, value in read_metrics(address).items()
                if series.startswith("specwire_kv_cache_usage_ratio")),
                f"the KV cache of {name} to be free")


if __name__ == "__main__":
    if "--minutes" in sys.argv:
        at = sys.argv.index("--minutes")
        DURATION_S = 60 * float(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    unittest.main()
