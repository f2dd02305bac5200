# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/compare_engines.py that compute: prompts, statistics,
tables, machine facts; and the protocol with an engine's process."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import unittest

BENCH = pathlib.Path(os.environ["SPECWIRE_TEST_SOURCE"]) / "bench"
sys.path.insert(0, str(BENCH))

import compare_engines  # noqa: E402
from compare import (batch, engines, figures, machine, prompts,  # noqa: E402
                     table)


def sample(engine="specwire", mode="plain", question=1, repeat=0,
           tokens=(1, 2, 3), first_s=1.0, generation_s=1.0, **fields):
    fields = {"threads": 1, "group": "qa", "passes": len(tokens),
              "cpu_s": 0.5} | fields
    return figures.Sample(
        engine=engine, mode=mode, question_id=question, repeat=repeat,
        token_ids=tuple(tokens), time_to_first_token_s=first_s,
        generation_s=generation_s, **fields)


class PromptsTest(unittest.TestCase):

    def line(self, number, category):
        return json.dumps({"question_id": number, "category": category,
                           "turns": [f"text {number}", "second turn"]})

    def test_takes_first_turns_and_folds_chat_topics_into_one_group(self):
        found = prompts.parse([self.line(1, "coding"), "",
                               self.line(2, "humanities"),
                               self.line(3, "rag")])
        self.assertEqual([p.group for p in found], ["chat", "chat", "rag"])
        self.assertEqual(found[2].text, "text 3")

    def test_bad_lines_are_named(self):
        good = self.line(1, "qa")
        for bad in ("{", "[]", '{"turns": []}', "3",
                    '{"question_id": 1, "category": "qa", "turns": [7]}',
                    '{"question_id": 1, "category": "qa", "turns": [""]}',
                    '{"question_id": 1, "category": "qa"}'):
            with self.assertRaisesRegex(ValueError, "line 2 "):
                prompts.parse([good, bad])

    def test_picks_from_the_groups_in_turns(self):
        everything = prompts.parse(
            [self.line(n, c) for n, c in
             enumerate(["qa", "qa", "qa", "rag", "math"], 1)])
        self.assertEqual(
            [p.question_id for p in prompts.pick(everything, 4)], [1, 4, 5, 2])
        self.assertEqual(len(prompts.pick(everything, 5)), 5)
        with self.assertRaisesRegex(ValueError, "there are 5"):
            prompts.pick(everything, 6)

    def test_the_committed_prompts_give_each_group_its_share(self):
        with open(BENCH / "data/prompts.jsonl", encoding="utf-8") as lines:
            everything = prompts.parse(lines)
        self.assertEqual(len({p.question_id for p in everything}), 24)
        for count, share in ((6, 1), (18, 3), (24, 4)):
            groups = [p.group for p in prompts.pick(everything, count)]
            self.assertEqual({g: groups.count(g) for g in groups},
                             dict.fromkeys(
                                 ("chat", "translation", "summarization",
                                  "qa", "math_reasoning", "rag"), share))


class FiguresTest(unittest.TestCase):

    def test_rates_are_total_tokens_by_total_time(self):
        samples = [sample(tokens=range(11), first_s=1.0, generation_s=1.0),
                   sample(tokens=range(11), first_s=1.0, generation_s=4.0)]
        self.assertAlmostEqual(figures.decode_rate(samples), 20 / 5)
        self.assertAlmostEqual(figures.end_to_end_rate(samples), 22 / 7)
        self.assertEqual(figures.decode_rate([sample(generation_s=0.0)]), 0)

    def test_spread_and_paired_ratios(self):
        self.assertEqual(figures.spread([3.0, 1.0, 2.0]),
                         {"median": 2.0, "min": 1.0, "max": 3.0})
        self.assertIsNone(figures.spread([]))
        self.assertEqual(figures.ratios([2.0, 9.0, 1.0], [1.0, 3.0, 0.0]),
                         [2.0, 3.0])

    def test_repeats_are_kept_apart(self):
        samples = [sample(repeat=r, question=q, tokens=range(3),
                          generation_s=1.0 + r)
                   for r in (1, 0) for q in (1, 2)]
        self.assertEqual(figures.by_repeat(samples, figures.decode_rate),
                         [2.0, 1.0])

    def test_a_text_counts_as_equal_only_if_it_is_so_in_every_repeat(self):
        plain = [sample(question=q, repeat=r) for q in (1, 2, 3, 4)
                 for r in (0, 1)]
        speculative = [sample(question=q, repeat=r) for q in (1, 2, 3)
                       for r in (0, 1)]
        speculative[2] = sample(question=2, repeat=0, tokens=(1, 2, 4))
        plain[5] = sample(question=3, repeat=1, tokens=(1, 2))
        self.assertEqual(figures.questions_equal(plain, speculative), [1])
        self.assertEqual(figures.num_repeatable(plain), 3)
        self.assertEqual(figures.num_repeatable(speculative), 2)

    def test_repeat_rate(self):
        self.assertEqual(figures.repeat_rate(range(100)), 0)
        self.assertEqual(figures.repeat_rate((1, 2, 3)), 0)
        # Runs: 5555 five times.
        self.assertAlmostEqual(figures.repeat_rate([5] * 8), 4 / 5)

    def entries(self):
        """Specwire: 10 and 20 token/s; the other one: 5 and 4."""
        def speed(engine, mode, rate, **fields):
            return [sample(engine=engine, mode=mode, repeat=r, question=q,
                           group=g, tokens=range(11), generation_s=10 / rate,
                           **fields)
                    for r in range(3) for q, g in ((1, "qa"), (2, "rag"))]
        samples = (speed("specwire", "plain", 10) +
                   speed("specwire", "speculative", 20, passes=5) +
                   speed("llama.cpp", "plain", 5) +
                   speed("llama.cpp", "speculative", 4))
        samples[-1] = sample(engine="llama.cpp", mode="speculative", repeat=2,
                             question=2, group="rag", tokens=range(10),
                             generation_s=10 / 4)
        return [figures.engine_entry(samples, name, 1, 11) |
                {"idle_cpu_share": 0.0, "details": {"lookup": "some"}}
                for name in ("specwire", "llama.cpp")]

    def test_an_entry_has_the_fields_that_scripts_rely_on(self):
        ours, other = self.entries()
        for key, value in {"engine": "specwire", "threads": 1,
                           "prompts": 2, "prompts_equal": 2}.items():
            self.assertEqual(ours[key], value)
        self.assertAlmostEqual(ours["plain_tokens_per_second"], 10)
        self.assertAlmostEqual(ours["speculative_tokens_per_second"], 20)
        self.assertAlmostEqual(ours["speedup"]["median"], 2)
        self.assertAlmostEqual(ours["specwire_over_it"]["plain"]["max"], 1)
        self.assertAlmostEqual(ours["speculative"]["tokens_per_pass"], 11 / 5)
        self.assertEqual(ours["requests_cut_short"], 0)
        self.assertEqual(other["prompts_equal"], 1)
        self.assertEqual(other["requests_cut_short"], 1)
        over = other["specwire_over_it"]
        self.assertAlmostEqual(over["plain"]["median"], 2)
        self.assertAlmostEqual(over["speculative"]["median"], 5)
        self.assertAlmostEqual(over["best"]["median"], 4)
        self.assertEqual(
            {g: f["prompts_equal"] for g, f in other["groups"].items()},
            {"qa": 1, "rag": 0})
        self.assertAlmostEqual(
            other["groups"]["qa"]["speedup"]["median"], 0.8)

    def document(self):
        return {
            "engines": self.entries(),
            "machine": machine.describe() | {
                "read_bandwidth_gb_per_second": {"1": 20.0},
                "foreign_load": 0.0, "steal": 0.0},
            "versions": {"specwire": "abc"},
            "settings": {"model": "m.gguf", "prompts": 2, "max_tokens": 11,
                         "repeats": 3}}

    def test_the_report_shows_the_figures(self):
        text = table.report(self.document())
        self.assertIn("| specwire | 1 | 10.0 | 20.0 | 2.00 |  |  | 2 of 2 |",
                      text)
        self.assertIn("| llama.cpp | 1 | 5.0 | 4.0 (3.8-4.0) | "
                      "0.80 (0.76-0.80) | 2.00 | 5.00 (5.00-5.26) | 1 of 2 |",
                      text)
        self.assertIn("20.0 GB/s with 1 thread(s)", text)
        self.assertIn("note: llama.cpp with 1 thread(s): 1 of 12 requests",
                      text)
        for block in text.split("\n\n"):
            if block.startswith("| "):
                columns = {line.count("|") for line in block.splitlines()}
                self.assertEqual(len(columns), 1, block)

    def test_the_report_warns_of_what_disturbs(self):
        document = self.document()
        self.assertNotIn("other programs", table.report(document))
        document["machine"]["foreign_load"] = 0.5
        document["engines"][0]["idle_cpu_share"] = 0.4
        document["settings"]["repeats"] = 1
        text = table.report(document)
        self.assertIn("other programs used 50 %", text)
        self.assertIn("specwire with 1 thread(s) used 40 %", text)
        self.assertIn("fewer than 3 repeats", text)


def record(start_ms, *chunks):
    """A request as `specwire bench --raw` tells it; chunks (ms, tokens)."""
    return {"index": 0, "scheduled_ms": start_ms, "chunks": chunks,
            "token_ids": list(range(sum(n for _, n in chunks)))}


class BatchTest(unittest.TestCase):

    def test_the_decode_phase_is_while_all_streams_decode(self):
        found = batch.streams_sample([
            record(1000, (1100, 1), (1200, 2), (1400, 1), (1700, 1)),
            record(1000, (1300, 1), (1500, 3), (1600, 1))])
        # From 1300 to 1600: 1 token of the first, 4 of the second.
        self.assertEqual(found["decode_tokens"], 5)
        self.assertAlmostEqual(found["decode_s"], 0.3)
        self.assertAlmostEqual(found["total_s"], 0.7)
        self.assertAlmostEqual(batch.decode_rate(found), 5 / 0.3)
        self.assertAlmostEqual(batch.total_rate(found), 10 / 0.7)

    def test_streams_that_never_ran_together_have_no_decode_rate(self):
        found = batch.streams_sample([record(0, (10, 1), (20, 1)),
                                      record(0, (30, 1), (40, 1))])
        self.assertIsNone(batch.decode_rate(found))

    def samples(self):
        def sample_of(rate, ids=((1, 2), (3, 4))):
            return {"token_ids": [list(i) for i in ids], "decode_tokens": 2,
                    "decode_s": 2 / rate, "total_s": 8 / rate}
        return {"specwire": [sample_of(30), sample_of(40)],
                "llama.cpp": [sample_of(10), sample_of(20, ((1, 2), (3, 5)))]}

    def test_entries_compare_in_pairs(self):
        alone = {"specwire": {0: (1, 2), 1: (3, 4)},
                 "llama.cpp": {0: (1, 2), 1: (3, 4)}}
        ours, other = batch.entries(self.samples(), alone, 2)
        self.assertEqual(
            [other[key] for key in ("engine", "threads", "sequences",
                                    "prompts_compared", "prompts_equal")],
            ["llama.cpp", 2, 2, 2, 1])
        self.assertEqual(ours["prompts_equal"], 2)
        self.assertEqual(ours["tokens_per_second"]["median"], 35)
        self.assertEqual(other["specwire_over_it"]["decode"],
                         {"median": 2.5, "min": 2, "max": 3})
        self.assertEqual(other["specwire_over_it"]["end_to_end"]["median"], 2.5)
        self.assertAlmostEqual(
            ours["end_to_end_tokens_per_second"]["median"], 17.5)

    def test_what_has_no_decode_phase_has_no_ratio(self):
        samples = self.samples()
        for found in samples["specwire"]:
            found["decode_s"] = 0
        ours, other = batch.entries(samples, {}, 1)
        self.assertIsNone(ours["tokens_per_second"])
        self.assertIsNone(other["specwire_over_it"]["decode"])
        self.assertIn("| - |", table.batch_table([ours, other]))

    def test_the_table_shows_the_ratios(self):
        text = table.batch_table(batch.entries(self.samples(), {}, 2))
        self.assertIn("| llama.cpp | 2 | 2 | 15.0 (10.0-20.0) | "
                      "7.5 (5.0-10.0) | 2.50 (2.00-3.00) | "
                      "2.50 (2.00-3.00) | 0 of 0 |", text)

    def test_texts_alone_are_found_by_question(self):
        asked = [prompts.Prompt(7, "qa", "x"), prompts.Prompt(8, "qa", "y"),
                 prompts.Prompt(7, "qa", "x")]
        samples = [sample(question=7, tokens=(1, 2)),
                   sample(question=8, tokens=(5,), mode="speculative"),
                   sample(question=8, tokens=(6,), threads=2),
                   sample(engine="llama.cpp", question=9)]
        self.assertEqual(batch.ids_alone(samples, asked, 1),
                         {"specwire": {0: (1, 2), 2: (1, 2)}})

    def test_a_report_of_failures_is_told_in_one_line(self):
        text = json.dumps({"modes": {"plain": {"failures": {
            "UNAVAILABLE": {"count": 2, "message": "gone"}}}}})
        self.assertEqual(batch.failures(text), "UNAVAILABLE: gone")
        self.assertEqual(batch.failures(""), "no report")


class MachineTest(unittest.TestCase):

    def test_cpuinfo(self):
        self.assertEqual(
            machine.parse_cpuinfo("processor : 0\nmodel name\t: Some CPU @ 2\n"
                                  "flags\t\t: fpu avx2 avx512_vnni\n"),
            ("Some CPU @ 2", ["avx2", "avx512_vnni"]))
        self.assertEqual(machine.parse_cpuinfo("")[1], [])

    def test_cpu_time_of_a_process_with_an_odd_name(self):
        ticks = os.sysconf("SC_CLK_TCK")
        stat = f"7 (a) b) S 1 {'0 ' * 9}{2 * ticks} {3 * ticks} 99 99"
        self.assertEqual(machine.parse_stat(stat), 5)

    def test_cpu_time_of_the_system_leaves_idle_out(self):
        ticks = os.sysconf("SC_CLK_TCK")
        fields = [n * ticks for n in (1, 2, 3, 100, 100, 4, 5, 6, 0, 0)]
        stat = "cpu  " + " ".join(map(str, fields)) + "\ncpu0 1\n"
        self.assertEqual(machine.parse_system_stat(stat), (15, 6))

    def test_own_process_and_one_that_is_gone(self):
        self.assertGreater(machine.cpu_seconds([os.getpid()]), 0)
        self.assertEqual(machine.cpu_seconds([2**22 + 1]), 0)


class FlagsTest(unittest.TestCase):

    def test_quick_changes_what_is_not_given(self):
        flags = compare_engines.parse(["--quick", "--repeats", "4"])
        self.assertEqual((flags.prompts, flags.max_tokens, flags.repeats),
                         (6, 32, 4))
        flags = compare_engines.parse([])
        self.assertGreaterEqual(flags.prompts, 16)
        self.assertEqual(flags.threads, [1, 2])

    def test_bad_lists_are_refused(self):
        for kind, text in ((compare_engines.thread_counts, "1,1"),
                           (compare_engines.thread_counts, "0"),
                           (compare_engines.engine_names, "specwire,bogus")):
            with self.assertRaises(argparse.ArgumentTypeError):
                kind(text)
        self.assertEqual(compare_engines.engine_names("openvino"),
                         ["specwire", "openvino"])


class WorkerTest(unittest.TestCase):
    """The protocol, with an engine that prints into its standard output."""

    PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(BENCH / "compare")!r})
import worker
def load():
    flags = worker.flags()
    os.system("echo noise from a library")
    def run(prompt_ids, max_tokens):
        print("more noise")
        if prompt_ids == [13]:
            sys.exit("unlucky prompt")
        return {{"token_ids": prompt_ids * max_tokens, "mode": flags.mode}}
    return run, {{"fake": "1"}}, {{flags.mode: flags.threads}}
worker.serve(load)
"""

    def start(self):
        program = tempfile.NamedTemporaryFile("w", suffix=".py")
        self.addCleanup(program.close)
        program.write(self.PROGRAM)
        program.flush()
        engine = engines.WorkerEngine("fake", sys.executable, program.name,
                                      "model", 3)
        self.addCleanup(engine.close)
        return engine

    def test_each_mode_answers_in_a_process_of_its_own(self):
        engine = self.start()
        self.assertEqual(len(set(engine.pids)), 2)
        self.assertEqual(engine.details, {"plain": 3, "speculative": 3})
        for mode in figures.MODES * 2:
            self.assertEqual(engine.run(mode, [7], 2),
                             {"token_ids": [7, 7], "mode": mode})

    def test_a_dead_worker_is_an_error_with_its_last_words(self):
        engine = self.start()
        with self.assertRaisesRegex(engines.EngineError, "unlucky prompt"):
            engine.run("plain", [13], 1)

    def test_a_worker_that_does_not_start_leaves_no_process(self):
        before = machine.children(os.getpid())
        with self.assertRaisesRegex(engines.EngineError, "can't open"):
            engines.WorkerEngine("fake", sys.executable, "/nonexistent.py",
                                 "model", 1)
        self.assertEqual(machine.children(os.getpid()), before)


if __name__ == "__main__":
    unittest.main()
