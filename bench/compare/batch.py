# SPDX-License-Identifier: Apache-2.0
"""Many sequences at once: Specwire's continuous batching against llama.cpp's
own batch decoding. Same file, prompts, lengths, threads; in turns."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from compare import engines, figures

TIMEOUT_S = 900
# Pools that spin for a while after a run have gone to sleep by then.
SETTLE_S = 0.3


class Specwire:
    """So many plain streams at once of `specwire bench` at a running cluster.
    Prompts and first passes are part of it: a server gets requests, not
    decode phases."""

    name = "specwire"

    def __init__(self, cluster, specwire, prompts):
        self._cluster = cluster
        self._specwire = specwire
        self._prompts = prompts

    def run(self, max_tokens):
        with tempfile.TemporaryDirectory(prefix="specwire-batch-") as folder:
            dataset = pathlib.Path(folder) / "prompts.jsonl"
            raw = pathlib.Path(folder) / "raw.jsonl"
            dataset.write_text("".join(
                json.dumps({"question_id": i, "category": prompt.group,
                            "turns": [prompt.text]}) + "\n"
                for i, prompt in enumerate(self._prompts)))
            done = subprocess.run(
                [self._specwire, "bench", "--coordinator",
                 self._cluster.coordinator, "--dataset", dataset, "--raw", raw,
                 "--concurrency", str(len(self._prompts)), "--modes", "plain",
                 "--warmup", "0", "--max_tokens", str(max_tokens),
                 "--ignore_eos", "--json"], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=TIMEOUT_S)
            if done.returncode != 0:
                raise engines.EngineError(
                    f"specwire bench ended with {done.returncode}: "
                    f"{done.stderr.strip() or failures(done.stdout)}")
            records = [json.loads(line) for line in
                       raw.read_text().splitlines()]
        return streams_sample(sorted(records, key=lambda r: r["index"]))

    def close(self):
        pass


class LlamaCpp:
    """llama_cpp_batch_worker.py with the prompts' ids."""

    name = "llama.cpp"

    def __init__(self, python, model, threads, flash_attention, ids,
                 max_tokens):
        self._ids = ids
        longest = max(map(len, ids)) + max_tokens
        self._worker = engines.Worker(
            python, "llama_cpp_batch_worker.py", "--model", model,
            "--threads", threads, "--mode", "batch", "--sequences", len(ids),
            "--context", -(-longest // 256) * 256,
            "--flash_attention", int(flash_attention))

    def run(self, max_tokens):
        return self._worker.ask({"prompt_ids": self._ids,
                                 "max_tokens": max_tokens}, TIMEOUT_S)

    def close(self):
        self._worker.close()


def failures(text):
    """What a report of `specwire bench` says went wrong."""
    try:
        plain = json.loads(text)["modes"]["plain"]
    except (ValueError, KeyError):
        return "no report"
    return ", ".join(f"{code}: {failure['message']}" for code, failure
                     in plain["failures"].items()) or "no failure is told"


def streams_sample(records):
    """The figures of concurrent streams out of the raw records of `specwire
    bench`. The decode phase is the time in which all of them decode: from the
    last stream's first token to the first stream's end."""
    start = min(r["scheduled_ms"] for r in records)
    end = max(r["chunks"][-1][0] for r in records)
    all_run = max(r["chunks"][0][0] for r in records)
    one_done = min(r["chunks"][-1][0] for r in records)
    decode_tokens = sum(count for r in records for time, count in r["chunks"]
                        if all_run < time <= one_done)
    return {"token_ids": [r["token_ids"] for r in records],
            "decode_tokens": decode_tokens,
            "decode_s": max(0.0, one_done - all_run) / 1000,
            "total_s": (end - start) / 1000}


def decode_rate(sample):
    """Tokens a second while all sequences decode; None if they never did."""
    if sample["decode_s"] <= 0:
        return None
    return sample["decode_tokens"] / sample["decode_s"]


def total_rate(sample):
    """Tokens a second of everything, the prompts' passes included."""
    return sum(map(len, sample["token_ids"])) / sample["total_s"]


def measure(runners, max_tokens, repeats):
    """{name: [sample of repeat 0, ...]}; one short warm-up each."""
    for runner in runners:
        runner.run(min(8, max_tokens))
    samples = {runner.name: [] for runner in runners}
    for repeat in range(repeats):
        for runner in runners if repeat % 2 == 0 else runners[::-1]:
            time.sleep(SETTLE_S)
            samples[runner.name].append(runner.run(max_tokens))
            print(f"compare_engines.py: batch, {runner.name}, repeat "
                  f"{repeat + 1} of {repeats}", file=sys.stderr, flush=True)
    return samples


def _spread(values):
    return figures.spread(v for v in values if v is not None)


def _ratios(ours, theirs):
    return [a / b for a, b in zip(ours, theirs) if a and b]


def num_equal(samples, alone):
    """(sequences whose ids are in every repeat those of the request run alone,
    sequences of which that is known); `alone`: {index: ids}."""
    equal = sum(all(tuple(s["token_ids"][index]) == ids for s in samples)
                for index, ids in alone.items())
    return equal, len(alone)


def entries(samples, alone, threads):
    """The document's "batch"; `alone`: {engine: {index: ids}}."""
    ours = samples["specwire"]
    found = []
    for name, theirs in samples.items():
        equal, known = num_equal(theirs, alone.get(name, {}))
        found.append({
            "engine": name,
            "threads": threads,
            "sequences": len(theirs[0]["token_ids"]),
            "tokens_per_second": _spread(map(decode_rate, theirs)),
            "end_to_end_tokens_per_second": _spread(map(total_rate, theirs)),
            "specwire_over_it": {
                "decode": figures.spread(_ratios(
                    map(decode_rate, ours), map(decode_rate, theirs))),
                "end_to_end": figures.spread(_ratios(
                    map(total_rate, ours), map(total_rate, theirs)))},
            "prompts_compared": known,
            "prompts_equal": equal,
        })
    return found


def ids_alone(samples, asked, threads):
    """{engine: {index in `asked`: ids}} of single plain requests."""
    found = {}
    for sample in samples:
        if sample.mode != figures.PLAIN or sample.threads != threads:
            continue
        for index, prompt in enumerate(asked):
            if prompt.question_id == sample.question_id:
                found.setdefault(sample.engine, {})[index] = sample.token_ids
    return found
