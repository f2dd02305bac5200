# SPDX-License-Identifier: Apache-2.0
"""Nodes that are drained, and nodes that hang: what runs on them goes on
elsewhere, with the same ids."""

import os
import signal
import threading
import time
import unittest

from process_cluster import (Cluster, DONE, FAILED, LongModelTest, PATIENCE_S,
                             USAGE, one_line, read_health, read_metrics,
                             wait_until)

PROMPT = ("--prompt_ids", ",".join(["119,261,40,41,265,291"] * 6))
# Long enough that it runs for a while.
MAX_TOKENS = 6000
LONG = ("--ignore_eos", "--max_tokens", MAX_TOKENS, *PROMPT)


class Call(threading.Thread):
    """A long greedy request."""

    def __init__(self, cluster, *flags):
        super().__init__(daemon=True)
        self.arguments = ("--temperature", 0, *LONG, *flags)
        self.cluster = cluster
        self.result = None
        self.start()

    def run(self):
        self.result = self.cluster.json("generate", *self.arguments)

    def ids(self):
        self.join(PATIENCE_S)
        return self.result and self.result["token_ids"]


def state(cluster, name):
    """(state, reason) of the node that had the name last."""
    nodes = [node for node in cluster.nodes() if node["name"] == name]
    return (nodes[-1]["state"], nodes[-1]["reason"]) if nodes else (None, "")


def busy(cluster, role):
    return [node["name"] for node in cluster.nodes()
            if node["role"] == role and node["state"] == "serving" and
            node["num_sequences"] > 0]


def migrations(cluster):
    return sum(value for series, value in read_metrics(cluster.http).items()
               if series.startswith("specwire_request_migrations_total"))


class DrainTest(LongModelTest):

    def plain(self, cluster):
        ids = Call(cluster, "--no_speculation").ids()
        self.assertEqual(len(ids), MAX_TOKENS)
        wait_until(lambda: not busy(cluster, "verifier"), "idle verifiers")
        return ids

    def start_pair(self, cluster, *flags):
        for name in ("verifier-0", "verifier-1"):
            cluster.start_verifier(name, self.model, *flags)
        cluster.wait_serving("verifier-0", "verifier-1")

    def test_a_sequence_that_outlasts_the_grace_moves(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_pair(cluster)
            expected = self.plain(cluster)
            call = Call(cluster)
            name, = wait_until(lambda: busy(cluster, "verifier"),
                               "a busy verifier")
            done = cluster.run("drain", name, "--grace", "0.1")
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertIn(name, done.stdout)
            self.assertEqual(cluster.programs[name].wait(), 0)
            self.assertEqual(call.ids(), expected)
            self.assertEqual(migrations(cluster), 1)
            self.assertEqual(state(cluster, name)[0], "gone")
            self.assertEqual(state(cluster, name)[1],
                             "it has drained: an operator asked for it")
            again = cluster.run("drain", name)
            self.assertEqual(again.returncode, FAILED)
            self.assertIn(f"'{name}' has left already: it has drained",
                          again.stderr)

    def test_a_sequence_that_fits_the_grace_ends_where_it_is(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            verifier = cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0")
            expected = self.plain(cluster)
            call = Call(cluster)
            wait_until(lambda: busy(cluster, "verifier"), "a busy verifier")
            verifier.process.terminate()
            wait_until(lambda: state(cluster, "verifier-0")[0] == "draining",
                       "the verifier to drain")
            self.assertIn("signal", state(cluster, "verifier-0")[1])
            self.assertIn("30s", state(cluster, "verifier-0")[1])
            # It is not asked for more.
            refused = cluster.run("generate", "--temperature", 0, *PROMPT)
            self.assertEqual(refused.returncode, FAILED)
            self.assertIn("draining", refused.stderr)
            self.assertEqual(call.ids(), expected)
            self.assertEqual(verifier.wait(), 0)

    def test_a_second_signal_hurries(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_pair(cluster, "--grace", 3600)
            expected = self.plain(cluster)
            call = Call(cluster)
            name, = wait_until(lambda: busy(cluster, "verifier"),
                               "a busy verifier")
            verifier = cluster.programs[name]
            verifier.process.terminate()
            wait_until(lambda: state(cluster, name)[0] == "draining",
                       "the verifier to drain")
            self.assertTrue(verifier.running())
            verifier.process.terminate()
            self.assertEqual(verifier.wait(20), 0)
            self.assertEqual(call.ids(), expected)
            self.assertIn("second signal", verifier.err())

    def test_sequences_of_a_draft_node_go_to_another_or_none(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            for name in ("draft-0", "draft-1"):
                cluster.start_draft_node(name, "oracle", "--draft_model",
                                         self.model)
            cluster.wait_serving("verifier-0", "draft-0", "draft-1")
            expected = self.plain(cluster)
            # Of fixed settings, so that it has a drafter all the while.
            call = Call(cluster, "--patience_us", 5000, "--max_draft_tokens", 4,
                        "--window", 8)
            for _ in range(2):
                name, = wait_until(lambda: busy(cluster, "draft"),
                                   "a busy draft node")
                self.assertEqual(cluster.programs[name].terminate(), 0)
            self.assertEqual(call.ids(), expected)
            self.assertEqual(migrations(cluster), 0)

    def test_a_coordinator_that_drains_lets_requests_end(self):
        with Cluster("--grace", 60) as cluster:
            coordinator = cluster.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.wait_serving("verifier-0")
            expected = self.plain(cluster)
            call = Call(cluster)
            wait_until(lambda: busy(cluster, "verifier"), "a busy verifier")
            coordinator.process.terminate()
            self.assertEqual(call.ids(), expected)
            self.assertEqual(call.result["resumes"], 0)
            self.assertEqual(coordinator.wait(), 0)

    def test_bad_drains_are_told_why(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            done = cluster.run("drain", "nobody")
            self.assertEqual(done.returncode, FAILED)
            self.assertTrue(one_line(done.stderr), done.stderr)
            self.assertIn("nobody", done.stderr)
            for flags in ((), ("x", "--grace", "-1"), ("x", "--grace", "nan")):
                self.assertEqual(cluster.run("drain", *flags).returncode,
                                 USAGE)


class HangTest(unittest.TestCase):
    """Of nodes without models, which hang where they are told to."""

    SYNTHETIC = ("--engine", "synthetic", "--allow_synthetic")

    def start_verifier(self, cluster, name, *flags):
        # Not through start_verifier, which gives it a model.
        return cluster._start_node(
            "verifier_node", name, *self.SYNTHETIC, "--synthetic_step_us",
            2000, *flags)

    def generate(self, cluster):
        return cluster.json("generate", "--temperature", 0, "--max_tokens",
                            400, "x")["token_ids"]

    def test_a_hung_engine_is_noticed_and_its_sequences_move(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_verifier(cluster, "sound")
            cluster.wait_serving("sound")
            expected = self.generate(cluster)
            cluster.programs["sound"].terminate()
            hung = self.start_verifier(cluster, "hung", "--synthetic_hang_after",
                                       100)
            cluster.wait_serving("hung")
            ids = []
            call = threading.Thread(
                target=lambda: ids.extend(self.generate(cluster)))
            call.start()
            wait_until(lambda: busy(cluster, "verifier"), "a busy verifier")
            self.start_verifier(cluster, "sound")
            wait_until(lambda: state(cluster, "hung")[0] == "suspect",
                       "the hung node to be suspect")
            self.assertIn("no progress", state(cluster, "hung")[1])
            def unhealthy():
                status, health = read_health(cluster.metrics_addresses["hung"])
                return status == 503 and health["status"] == "no progress"
            wait_until(unhealthy, "the hung node to say so itself")
            call.join(PATIENCE_S)
            self.assertEqual(ids, expected)
            self.assertEqual(migrations(cluster), 1)
            # A thread that hangs does not keep the process: a fatal fault.
            hung.process.terminate()
            self.assertEqual(hung.wait(), 1)
            self.assertIn("something hangs", hung.err())

    def test_a_node_that_gets_on_again_serves_again(self):
        with Cluster() as cluster:
            coordinator = cluster.start_coordinator()
            self.start_verifier(cluster, "slow", "--synthetic_hang_after", 50,
                                "--synthetic_hang_ms", 5000)
            cluster.wait_serving("slow")
            # Nobody could go on with what it has, so that waits for it.
            self.assertEqual(len(self.generate(cluster)), 400)
            self.assertIn("no progress", coordinator.err())
            cluster.wait_serving("slow")
            self.assertEqual(read_health(cluster.metrics_addresses["slow"])[0],
                             200)
            self.assertEqual(len(self.generate(cluster)), 400)

    def test_a_pass_that_takes_long_is_no_hang(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster._start_node("verifier_node", "slow", *self.SYNTHETIC,
                                "--synthetic_step_us", 4_000_000)
            cluster.wait_serving("slow")
            done = cluster.run("generate", "--temperature", 0, "--max_tokens",
                               2, "x")
            self.assertEqual(done.returncode, DONE, done.stderr)

    def test_waiting_for_a_draft_is_no_hang(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_verifier(cluster, "sound")
            cluster._start_node("draft_node", "hung", "--drafter", "synthetic",
                                "--allow_synthetic", "--synthetic_hang_after",
                                20)
            cluster.wait_serving("sound", "hung")
            # The drafter hangs; its verifier waits for it without limit.
            done = cluster.run("generate", "--temperature", 0, "--max_tokens",
                               400, "--patience_us", -1, "x")
            self.assertEqual(done.returncode, DONE, done.stderr)
            wait_until(lambda: state(cluster, "hung")[0] == "suspect",
                       "the draft node to be suspect")
            self.assertEqual(state(cluster, "sound")[0], "serving")
            self.assertEqual(migrations(cluster), 0)
            cluster.programs["hung"].kill()

    def test_a_broken_engine_ends_its_process(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_verifier(cluster, "sound")
            cluster.wait_serving("sound")
            expected = self.generate(cluster)
            cluster.programs["sound"].terminate()
            broken = self.start_verifier(cluster, "broken",
                                         "--synthetic_fail_after", 100)
            cluster.wait_serving("broken")
            # Nobody can go on with it.
            done = cluster.run("generate", "--max_tokens", 400, "x")
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertEqual(broken.wait(), 1)
            self.assertIn("the engine is broken", broken.err())
            self.start_verifier(cluster, "sound")
            wait_until(lambda: state(cluster, "broken")[0] == "gone",
                       "the broken node to be gone")
            cluster.wait_serving("sound")
            self.assertEqual(self.generate(cluster), expected)

    def test_a_coordinator_that_was_stopped_serves_at_once(self):
        with Cluster() as cluster:
            coordinator = cluster.start_coordinator()
            for name in ("first", "second"):
                self.start_verifier(cluster, name)
            cluster.wait_serving("first", "second")
            expected = self.generate(cluster)
            running = [threading.Thread(target=cluster.run, daemon=True,
                                        args=("generate", "--max_tokens", 4000,
                                              "x")) for _ in range(3)]
            for call in running:
                call.start()
            wait_until(lambda: busy(cluster, "verifier"), "busy verifiers")
            # For longer than nodes wait for an answer to a ping.
            os.kill(coordinator.pid, signal.SIGSTOP)
            time.sleep(6)
            os.kill(coordinator.pid, signal.SIGCONT)
            for _ in range(10):
                self.assertEqual(self.generate(cluster), expected)
            self.assertEqual(migrations(cluster), 0)
            cluster.wait_serving("first", "second")
            for call in running:
                call.join(PATIENCE_S)
            self.assertEqual(migrations(cluster), 0)

    def test_a_stopped_process_is_suspect_until_it_goes_on(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            self.start_verifier(cluster, "stopped")
            cluster.wait_serving("stopped")
            pid = cluster.programs["stopped"].pid
            os.kill(pid, signal.SIGSTOP)
            try:
                wait_until(lambda: state(cluster, "stopped")[0] == "suspect",
                           "the stopped node to be suspect")
            finally:
                os.kill(pid, signal.SIGCONT)
            cluster.wait_serving("stopped")

    def test_a_stall_of_the_coordinator_moves_nothing(self):
        with Cluster() as cluster:
            coordinator = cluster.start_coordinator()
            for name in ("a", "b"):
                self.start_verifier(cluster, name)
            cluster.wait_serving("a", "b")
            expected = self.generate(cluster)
            ids = []
            call = threading.Thread(
                target=lambda: ids.extend(self.generate(cluster)))
            call.start()
            wait_until(lambda: busy(cluster, "verifier"), "a busy verifier")
            # Longer than a node may be silent, shorter than a client waits for
            # a sign of life.
            os.kill(coordinator.pid, signal.SIGSTOP)
            time.sleep(3)
            os.kill(coordinator.pid, signal.SIGCONT)
            call.join(PATIENCE_S)
            self.assertEqual(ids, expected)
            self.assertEqual(migrations(cluster), 0)
            self.assertNotIn("suspect", coordinator.err())


if __name__ == "__main__":
    unittest.main()
