# SPDX-License-Identifier: Apache-2.0
"""specwire bench against a running cluster: figures, equal ids, load shapes,
failures, interrupts. A sweep over clusters of its own."""

import json
import os
import signal
import tempfile
import unittest
import xml.etree.ElementTree

from process_cluster import (DATA, DONE, FAILED, Cluster, Program, UpCluster,
                             alive, make_tiny_model, read_metrics, wait_until)

QUESTIONS = DATA / "questions.jsonl"
CATEGORIES = {"chat", "translation", "summarization", "qa", "math_reasoning",
              "rag"}
# Groups take turns: 1 and 2 are chat, 5 and 8 qa.
ORDER = (1, 3, 4, 5, 6, 7, 2, 8)
INTERRUPTED = 130
# Room for the template and the prompts.
MODEL_FLAGS = ("--context_length", "4096")


def finish(call):
    out, messages = call.communicate(timeout=60)
    return call.returncode, out.decode(), messages.decode()


class BenchTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        make_tiny_model(cls.model, *MODEL_FLAGS)
        cls.cluster = UpCluster(model=cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()
        cls.folder.cleanup()

    def bench(self, *flags, code=DONE, max_tokens=12):
        call = self.cluster.start("bench", "--dataset", QUESTIONS, "--json",
                                  "--max_tokens", max_tokens, *flags)
        returned, out, messages = finish(call)
        self.assertEqual(returned, code, messages + out)
        return json.loads(out)

    def test_both_modes_are_measured_and_compared(self):
        with tempfile.NamedTemporaryFile() as raw:
            report = self.bench("--num", 20, "--concurrency", 2, "--ignore_eos",
                                "--temperature", 1, "--seed", 7, "--raw",
                                raw.name, "--warmup", 3)
            records = [json.loads(line) for line in raw]
        self.assertIs(report["ids_equal"], True)
        self.assertEqual(report["ids_compared"], 20)
        self.assertEqual(report["warmup_requests"], 3)
        self.assertEqual(set(report["modes"]), {"plain", "speculative"})
        for mode in report["modes"].values():
            self.assertEqual(mode["completed"], 20)
            self.assertEqual(mode["failed"], 0)
            self.assertEqual(mode["output_tokens"], 240)
            self.assertEqual(mode["cached_prompt_tokens"], 0)
            self.assertGreater(mode["output_tokens_per_second"], 0)
            for name in ("ttft_ms", "itl_ms", "e2e_ms"):
                self.assertLessEqual(mode[name]["p50"], mode[name]["p90"])
                self.assertLessEqual(mode[name]["p90"], mode[name]["p99"])
                self.assertEqual(mode[name]["count"], 20)
        plain = report["modes"]["plain"]
        self.assertEqual(plain["tokens_per_pass"], 1)
        self.assertEqual(plain["speculative_decoding"]["num_draft_tokens"], 0)
        speedup = report["speedup"]["output_tokens_per_second"]
        self.assertEqual(speedup["pairs"], 8)
        self.assertLess(speedup["low"], speedup["geometric_mean"])
        self.assertGreater(speedup["high"], speedup["geometric_mean"])
        self.assertEqual(set(report["categories"]), CATEGORIES)
        for category in report["categories"].values():
            self.assertGreater(category["speedup"]["end_to_end"]["ratio"], 0)
            for mode in ("plain", "speculative"):
                mode = category[mode]
                self.assertGreater(mode["output_tokens_per_second"], 0)
                self.assertGreater(mode["itl_ms"]["p50"], 0)
        self.assertEqual(report["stream_speedup"]["end_to_end"]["pairs"], 20)
        self.check_records(records)

    def check_records(self, records):
        self.assertEqual(len(records), 40)
        texts = {}
        for record in records:
            self.assertEqual(record["status"], "OK")
            self.assertEqual(sum(n for _, n in record["chunks"]), 12)
            self.assertEqual(len(record["token_ids"]), 12)
            self.assertEqual(record["question_id"], ORDER[record["index"] % 8])
            self.assertEqual(record["temperature"], 1)
            self.assertEqual(record["seed"], record["index"] + 7)
            self.assertGreater(len(record["prompt_token_ids"]), 10)
            texts.setdefault(record["index"], {})[record["mode"]] = (
                record["token_ids"])
        self.assertEqual(set(texts), set(range(20)))
        for text in texts.values():
            self.assertEqual(text["plain"], text["speculative"])
        # Requests have seeds of their own, so a question's texts differ.
        self.assertNotEqual(texts[0]["plain"], texts[8]["plain"])

    def test_the_table_names_what_was_measured(self):
        done = self.cluster.run("bench", "--dataset", QUESTIONS, "--max_tokens",
                                5, "--goodput", "e2e_ms:60000")
        self.assertEqual(done.returncode, DONE, done.stderr)
        # No terminal, no progress.
        self.assertEqual(done.stderr, "")
        for part in ("closed loop, concurrency 1", "model tiny",
                     "time to first token", "math_reasoning",
                     "8 requests compared: equal in both modes",
                     "8 pairs of blocks",
                     "goodput, plain: 8 of 8 requests"):
            self.assertIn(part, done.stdout)

    def test_an_open_loop_sends_what_it_says(self):
        report = self.bench("--rate", 50, "--num", 40, "--modes", "speculative",
                            "--burstiness", 0.5, "--max_concurrency", 30)
        self.assertEqual(list(report["modes"]), ["speculative"])
        self.assertEqual(report["modes"]["speculative"]["completed"], 40)
        self.assertIsNone(report["ids_equal"])
        self.assertIsNone(report["speedup"])
        self.assertEqual(report["settings"]["rate"], 50)

    def test_the_duration_ends_it(self):
        report = self.bench("--duration", 1, "--modes", "plain",
                            "--concurrency", 2)
        self.assertGreater(report["modes"]["plain"]["completed"], 0)
        report = self.bench("--duration", 1)
        self.assertGreaterEqual(
            report["speedup"]["output_tokens_per_second"]["pairs"], 1)
        self.assertIs(report["ids_equal"], True)

    def test_prompts_are_shared_only_if_asked_to(self):
        report = self.bench("--num", 32)
        for mode in report["modes"].values():
            self.assertEqual(mode["cached_prompt_tokens"], 0)
        # Whether a verifier has them depends on it; the ids do not.
        report = self.bench("--num", 32, "--share_prefixes")
        self.assertIs(report["ids_equal"], True)

    def test_being_late_is_no_fault_with_a_deadline(self):
        report = self.bench("--num", 4, "--deadline_ms", 1, "--ignore_eos",
                            max_tokens=1000)
        failures = {}
        for mode in report["modes"].values():
            failures |= mode["failures"]
        self.assertEqual(set(failures), {"DEADLINE_EXCEEDED"})
        self.assertTrue(failures["DEADLINE_EXCEEDED"]["overload"])

    def test_what_is_refused_is_a_fault(self):
        report = self.bench("--drafter", "nobody", code=FAILED)
        self.assertEqual(report["modes"]["plain"]["failed"], 0)
        failure = report["modes"]["speculative"]["failures"]["NOT_FOUND"]
        self.assertEqual(failure["count"], 8)
        self.assertIn("nobody", failure["message"])
        self.assertFalse(failure["overload"])
        self.assertIsNone(report["ids_equal"])

    def test_an_interrupt_prints_what_there_is(self):
        before = self.generated()
        call = self.cluster.start("bench", "--dataset", QUESTIONS, "--json",
                                  "--num", 100000, "--max_tokens", 20,
                                  "--modes", "plain")
        wait_until(lambda: self.generated() > before + 100, "some tokens")
        call.send_signal(signal.SIGINT)
        code, out, messages = finish(call)
        self.assertEqual((code, messages), (INTERRUPTED, ""))
        report = json.loads(out)
        self.assertTrue(report["interrupted"])
        self.assertGreater(report["modes"]["plain"]["completed"], 0)
        self.assertEqual(report["modes"]["plain"]["failures"], {})
        wait_until(lambda: all(node["num_sequences"] == 0
                               for node in self.cluster.nodes()),
                   "nothing to be left")

    def generated(self):
        return sum(value for series, value in
                   read_metrics(self.cluster.http).items()
                   if series.startswith("specwire_generation_tokens_total"))


class LostClusterTest(unittest.TestCase):

    def test_a_coordinator_that_dies_ends_it(self):
        with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
            model = os.path.join(folder, "tiny.gguf")
            make_tiny_model(model, *MODEL_FLAGS)
            cluster.start_coordinator()
            cluster.start_verifier("verifier-0", model)
            cluster.wait_serving("verifier-0")
            call = cluster.start("bench", "--dataset", QUESTIONS, "--json",
                                 "--num", 100000, "--max_tokens", 4,
                                 "--modes", "plain")
            wait_until(lambda: any(
                value > 50 for series, value in
                read_metrics(cluster.http).items() if
                series.startswith("specwire_generation_tokens_total")),
                "some tokens")
            cluster.programs["coordinator"].kill()
            code, out, messages = finish(call)
            self.assertEqual(code, FAILED, messages)
            report = json.loads(out)
            self.assertTrue(report["gave_up"])
            self.assertEqual(set(report["modes"]["plain"]["failures"]),
                             {"UNAVAILABLE"})
            cluster.start_coordinator()
            cluster.wait_serving("verifier-0")


class SweepTest(unittest.TestCase):
    FLAGS = ("bench", "--sweep", "--json", "--dataset", QUESTIONS, "--engine",
             "synthetic", "--allow_synthetic", "--sweep_drafters", "synthetic",
             "--synthetic_step_us", 1000, "--synthetic_acceptance", "0.9,0.5")

    def test_every_point_is_measured_and_held_against_the_model(self):
        with tempfile.NamedTemporaryFile(suffix=".svg") as svg:
            program = Program("specwire", *self.FLAGS, "--num", 2,
                              "--max_tokens", 24, "--sweep_run_lengths",
                              "auto,1,2", "--sweep_round_trips", "0.5,0",
                              "--sweep_jitter", 0.5, "--svg", svg.name)
            try:
                self.assertEqual(program.wait(), DONE, program.err())
            finally:
                program.kill()
            plot = xml.etree.ElementTree.parse(svg.name).getroot()
        report = json.loads(program.out())
        self.assertEqual([(p["round_trip"], p["run_length"])
                          for p in report["points"]],
                         [(0, "2"), (0, "1"), (0, "auto"),
                          (0.5, "2"), (0.5, "1"), (0.5, "auto")])
        (cluster,) = report["clusters"]
        self.assertGreaterEqual(cluster["plain_step_us"], 1000)
        for point in report["points"]:
            self.assertIs(point["ids_equal"], True)
            self.assertEqual((point["completed"], point["failed"]), (2, 0))
            self.assertAlmostEqual(
                point["round_trip_us"],
                # With the mean jitter.
                point["round_trip"] * 1.25 * cluster["plain_step_us"],
                places=2)
            self.assertAlmostEqual(
                point["eta"], point["speedup"]["ratio"] / point["ideal"])
            if point["run_length"] == "auto":
                self.assertAlmostEqual(
                    point["eta_net"],
                    point["speedup"]["ratio"] / point["model"])
                continue
            # Of a fixed run it is the median over requests.
            low, high = point["eta_net_interval"]
            self.assertLessEqual(low, point["eta_net"])
            self.assertLessEqual(point["eta_net"], high)
        # In lock-step what is drafted, and so what is accepted, is the same
        # however long the way.
        for near, far in zip(report["points"][:2], report["points"][3:]):
            self.assertEqual(near["survival"], far["survival"])
            self.assertEqual(near["tokens_per_pass"], far["tokens_per_pass"])
            self.assertGreater(near["tokens_per_pass"], 1.2)
            self.assertLess(far["model"], near["model"])
        names = [text.text for text in
                 plot.iter("{http://www.w3.org/2000/svg}text")]
        for name in ("synthetic", "0.5", "auto", "round trip, in plain steps"):
            self.assertIn(name, names)

    def test_an_interrupt_ends_its_clusters_too(self):
        program = Program("specwire", *self.FLAGS, "--num", 4, "--max_tokens",
                          24, "--sweep_round_trips",
                          ",".join(map(str, range(50))))
        try:
            wait_until(lambda: " 1 of 200 points" in program.err(), "a point")
            with open(f"/proc/{program.pid}/task/{program.pid}/children") as f:
                children = [int(pid) for pid in f.read().split()]
            self.assertEqual(len(children), 3)
            program.process.send_signal(signal.SIGINT)
            self.assertEqual(program.wait(), INTERRUPTED, program.err())
        finally:
            program.kill()
        report = json.loads(program.out())
        self.assertIs(report["interrupted"], True)
        self.assertGreaterEqual(len(report["points"]), 1)
        self.assertFalse(any(map(alive, children)))

    def test_a_cluster_that_does_not_start_is_told(self):
        program = Program("specwire", "bench", "--sweep", "--dataset",
                          QUESTIONS, "--model", "/nonexistent.gguf",
                          "--sweep_drafters", "ngram")
        try:
            self.assertEqual(program.wait(), FAILED, program.err())
        finally:
            program.kill()
        self.assertIn("verifier-0 exited with", program.err())
        self.assertEqual(program.out(), "")


if __name__ == "__main__":
    unittest.main()
