#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Specwire, llama.cpp and OpenVINO GenAI side by side in one run: the same
model file, prompts, thread counts and output lengths, requests interleaved,
each engine without and with its own speculation; then many sequences at once,
Specwire and llama.cpp. See docs/performance.md."""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import signal
import sys
import time

from compare import batch, engines, figures, machine, prompts, table

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHERS = {"llama.cpp": "llama_cpp_worker.py",
          "openvino": "openvino_worker.py"}

DONE, FAILED, USAGE = 0, 1, 2

# Pools that spin for a while after a request have gone to sleep by then.
SETTLE_S = 0.03


def whole(text, least=0):
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number of at least {least}")
    return int(text)


def positive(text):
    return whole(text, 1)


def thread_counts(text):
    counts = [positive(part) for part in text.split(",")]
    if len(set(counts)) != len(counts):
        raise argparse.ArgumentTypeError("names a count twice")
    return counts


def engine_names(text):
    names = text.split(",")
    for name in names:
        if name not in ("specwire", *OTHERS):
            raise argparse.ArgumentTypeError(
                f"{name!r} is none of specwire, {', '.join(OTHERS)}")
    return ["specwire", *(name for name in OTHERS if name in names)]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true",
        help="6 prompts, 32 tokens, 1 repeat: under two minutes")
    add("--json", action="store_true", help="one JSON object instead of tables")
    add("--threads", type=thread_counts, default=[1, 2], metavar="N[,N]",
        help="threads of each engine (default 1,2)")
    add("--prompts", type=positive, metavar="N", help="default 18")
    add("--max_tokens", type=positive, metavar="N",
        help="tokens of each answer (default 128)")
    add("--repeats", type=positive, metavar="N", help="default 3")
    add("--engines", type=engine_names, default=["specwire", *OTHERS],
        metavar="NAME[,NAME]",
        help="specwire, llama.cpp, openvino; specwire always runs")
    add("--dataset", type=pathlib.Path, metavar="FILE.jsonl",
        default=ROOT / "bench/data/prompts.jsonl",
        help="questions in Spec-Bench's format")
    add("--model", type=pathlib.Path, metavar="FILE.gguf",
        default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    add("--bin", type=pathlib.Path, metavar="DIR",
        default=ROOT / "build/release/bin", help="Specwire's programs")
    add("--up_flags", type=shlex.split, default=[], metavar="'FLAGS'",
        help="more flags for specwire up, such as --up_flags='--drafter ngram'")
    add("--llama_draft_tokens", type=positive, default=2, metavar="N",
        help="of llama.cpp's prompt lookup; its authors advise 2 on CPUs "
             "(default 2)")
    add("--llama_flash_attention", action="store_true",
        help="llama.cpp with flash attention; the binding's default is without")
    add("--batch", type=whole, default=16, metavar="N",
        help="sequences at once of Specwire and llama.cpp, with the greatest "
             "of --threads; 0 leaves it out (default 16)")
    add("--raw", type=pathlib.Path, metavar="FILE.json",
        help="write every single request, too")
    flags = parser.parse_args(arguments)
    for name, quick, full in [("prompts", 6, 18), ("max_tokens", 32, 128),
                              ("repeats", 1, 3)]:
        if getattr(flags, name) is None:
            setattr(flags, name, quick if flags.quick else full)
    if flags.max_tokens < 2:
        parser.error("--max_tokens must be at least 2: a rate needs two tokens")
    return flags


def say(text):
    print(f"compare_engines.py: {text}", file=sys.stderr, flush=True)


def bench_python():
    """The interpreter of bench's own environment."""
    venv = pathlib.Path(os.environ.get("SPECWIRE_BENCH_VENV",
                                       ROOT / ".bench-venv"))
    python = venv / "bin/python"
    if not python.exists():
        raise engines.EngineError(
            f"no environment at {venv}: run bench/setup.sh, or name one in "
            f"SPECWIRE_BENCH_VENV")
    return str(python)


def start_all(flags, stack):
    """Engines of all thread counts."""
    others = [name for name in flags.engines if name in OTHERS]
    python = bench_python() if others else None
    started = []
    for name in flags.engines:
        for threads in flags.threads:
            say(f"starting {name} with {threads} thread(s)")
            if name == "specwire":
                engine = engines.Specwire(flags.bin, flags.model, threads,
                                          flags.up_flags)
            else:
                own = [] if name != "llama.cpp" else [
                    "--draft_tokens", flags.llama_draft_tokens,
                    "--flash_attention", int(flags.llama_flash_attention)]
                engine = engines.WorkerEngine(name, python, OTHERS[name],
                                              flags.model, threads, own)
            stack.callback(engine.close)
            started.append(engine)
    return started


def request(engine, mode, prompt, prompt_ids, repeat, max_tokens):
    time.sleep(SETTLE_S)
    before = machine.cpu_seconds(engine.pids)
    answer = engine.run(mode, prompt_ids, max_tokens)
    cpu_s = machine.cpu_seconds(engine.pids) - before
    return figures.Sample(
        engine=engine.name, threads=engine.threads, mode=mode,
        question_id=prompt.question_id, group=prompt.group, repeat=repeat,
        token_ids=tuple(answer["token_ids"]),
        time_to_first_token_s=answer["time_to_first_token_s"],
        generation_s=answer["generation_s"], passes=answer["passes"],
        cpu_s=cpu_s)


def measure(running, asked, flags):
    """All samples, and what the meter saw. Prompt by prompt every engine, mode
    and thread count takes its turn; the order is reversed in every second
    round, so that nobody always follows the same neighbour."""
    ids = {p.question_id: running[0].chat_ids(p.text) for p in asked}
    turns = [(engine, mode) for engine in running for mode in figures.MODES]
    for engine, mode in turns:  # Warm-up; not counted.
        request(engine, mode, asked[0], ids[asked[0].question_id], 0,
                min(16, flags.max_tokens))
    samples, meter, number = [], engines.Meter(running), 0
    for repeat in range(flags.repeats):
        for prompt in asked:
            for engine, mode in turns if number % 2 == 0 else turns[::-1]:
                sample = request(engine, mode, prompt, ids[prompt.question_id],
                                 repeat, flags.max_tokens)
                meter.measured(engine, sample.cpu_s)
                samples.append(sample)
            number += 1
            say(f"{number} of {flags.repeats * len(asked)} rounds")
    return samples, meter.finish()


def measure_batch(running, everything, samples, flags):
    """The entries of many sequences at once; questions come again if there are
    too few. The clusters of all engines stay up, and idle."""
    threads = max(flags.threads)
    cluster = next(e for e in running
                   if (e.name, e.threads) == ("specwire", threads))
    asked = prompts.pick(everything, min(flags.batch, len(everything)))
    asked = [asked[i % len(asked)] for i in range(flags.batch)]
    with contextlib.ExitStack() as stack:
        runners = [batch.Specwire(cluster, str(flags.bin / "specwire"), asked)]
        if "llama.cpp" in flags.engines:
            ids = [cluster.chat_ids(prompt.text) for prompt in asked]
            runners.append(batch.LlamaCpp(
                bench_python(), flags.model, threads,
                flags.llama_flash_attention, ids, flags.max_tokens))
        for runner in runners:
            stack.callback(runner.close)
        found = batch.measure(runners, flags.max_tokens, flags.repeats)
    return batch.entries(found, batch.ids_alone(samples, asked, threads),
                         threads)


def document(running, samples, seen, flags, facts):
    idle, foreign, steal = seen
    facts |= {"foreign_load": foreign, "steal": steal}
    versions = {"specwire": machine.commit(ROOT)}
    entries = []
    for engine, share in zip(running, idle):
        versions |= engine.versions
        entry = figures.engine_entry(samples, engine.name, engine.threads,
                                     flags.max_tokens)
        entries.append(entry | {"idle_cpu_share": share,
                                "details": engine.details})
    return {
        "engines": entries,
        "machine": facts,
        "versions": versions,
        "build": machine.build_settings(flags.bin.resolve().parent),
        "settings": {
            "model": flags.model.name, "dataset": flags.dataset.name,
            "prompts": flags.prompts, "max_tokens": flags.max_tokens,
            "repeats": flags.repeats, "warm_up_requests": 2 * len(running),
            "threads": flags.threads, "up_flags": flags.up_flags,
            "rate": "tokens behind the first by time behind the first"},
    }


def run(flags):
    with flags.dataset.open(encoding="utf-8") as lines:
        everything = prompts.parse(lines)
    asked = prompts.pick(everything, flags.prompts)
    start = time.monotonic()
    facts = machine.describe() | {"read_bandwidth_gb_per_second": None}
    if len(flags.engines) > 1:
        facts["read_bandwidth_gb_per_second"] = engines.read_bandwidth(
            bench_python(), flags.threads)
    with contextlib.ExitStack() as stack:
        running = start_all(flags, stack)
        samples, seen = measure(running, asked, flags)
        batches = (measure_batch(running, everything, samples, flags)
                   if flags.batch else [])
    result = document(running, samples, seen, flags, facts)
    result["batch"] = batches
    result["seconds"] = time.monotonic() - start
    if flags.raw:
        flags.raw.write_text(json.dumps([vars(s) for s in samples]) + "\n")
    return result


def main(arguments=None):
    flags = parse(arguments)
    # So that the engines are ended when this script is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        result = run(flags)
    except (engines.EngineError, OSError, ValueError) as error:
        say(error)
        return FAILED
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result) if flags.json else table.report(result))
    code = DONE
    if any(e["prompts_equal"] != e["prompts"] for e in result["engines"]
           if e["engine"] == "specwire"):
        say("Specwire's text with speculation DIFFERS from its text without: "
            "this is a bug")
        code = FAILED
    if any(e["prompts_equal"] != e["prompts_compared"] for e in result["batch"]
           if e["engine"] == "specwire"):
        say("Specwire's text of requests run together DIFFERS from that of the "
            "same requests run alone: this is a bug")
        code = FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
