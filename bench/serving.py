#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What many users at once do to each other: two loads that 'specwire bench'
alone cannot make.

  bench/serving.py long_prompt   running streams while long prompts arrive
  bench/serving.py overload      twice as much as the cluster can do

Each starts a cluster of its own ('specwire up') on free ports and ends it. Only
ratios mean something on a shared machine; run it on an idle one.
"""

import argparse
import contextlib
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
DATASET = ROOT / "tests" / "data" / "questions.jsonl"
GAUGES = ("specwire_num_requests_running", "specwire_num_requests_waiting",
          "specwire_kv_cache_usage_ratio")
TOKENS_IN_VOCABULARY = 49000


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """'specwire up' with its addresses."""

    def __init__(self, *flags):
        self.coordinator = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self._log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [BIN / "specwire", "up", "--listen", self.coordinator, "--http",
             self.http, *flags], stdout=subprocess.PIPE, stderr=self._log,
            text=True)
        for line in self.process.stdout:
            if "READY" in line:
                return
        self._log.seek(0)
        raise SystemExit(f"the cluster did not start:\n{self._log.read()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)

    def command(self, *arguments):
        return [str(BIN / "specwire"), str(arguments[0]), "--coordinator",
                self.coordinator, *map(str, arguments[1:])]

    def bench(self, *arguments):
        """The report of a 'specwire bench', and its requests if --raw is
        given."""
        done = subprocess.run(self.command("bench", "--json", *arguments),
                              stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"specwire bench ended with {done.returncode}")
        return json.loads(done.stdout)

    def pids(self):
        out = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid",
                              str(self.process.pid)], stdout=subprocess.PIPE,
                             text=True, check=True).stdout
        return {name: int(pid) for pid, name in
                (line.split() for line in out.splitlines())}

    def rss_mib(self):
        """Resident memory of each program."""
        sizes = {}
        for name, pid in self.pids().items():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            kib = re.search(r"^VmRSS:\s*(\d+)", status, re.MULTILINE).group(1)
            sizes[name] = int(kib) / 1024
        return sizes

    def gauges(self):
        text = urllib.request.urlopen(f"http://{self.http}/metrics",
                                      timeout=10).read().decode()
        found = {}
        for line in text.splitlines():
            if line.startswith(GAUGES):
                series, value = line.rsplit(" ", 1)
                found[series] = float(value)
        nodes = json.loads(subprocess.run(
            self.command("nodes", "--json"), stdout=subprocess.PIPE,
            text=True, check=True).stdout)
        for node in nodes:
            for field in ("num_sequences", "num_waiting", "kv_blocks_used"):
                found[f"{node['name']} {field}"] = float(node[field])
        return found


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def gaps(records):
    """(time of arrival, gap to the message before) of every message but the
    first of a request, in milliseconds of the run."""
    for record in records:
        chunks = record["chunks"]
        for (before, _), (now, count) in zip(chunks, chunks[1:]):
            yield now, (now - before) / count


def long_prompt(flags):
    """p99 of the time between tokens of running streams before long prompts
    come and while one is computed."""
    rng = random.Random(flags.seed)
    rows = []
    with Cluster("--threads", str(flags.threads), "--drafter", "none") as cluster, \
            tempfile.NamedTemporaryFile("r") as raw:
        def run():
            rows.append(cluster.bench(
                "--dataset", flags.dataset, "--concurrency", flags.streams,
                "--duration", flags.seconds, "--modes", "plain",
                "--max_tokens", 1024, "--ignore_eos", "--raw", raw.name))
        streams = threading.Thread(target=run)
        streams.start()
        time.sleep(flags.seconds / 2)
        spans = []
        for _ in range(flags.prompts):
            ids = ",".join(str(rng.randrange(100, TOKENS_IN_VOCABULARY))
                           for _ in range(flags.prompt_tokens))
            start = time.time()
            subprocess.run(cluster.command(
                "generate", "--prompt_ids", ids, "--max_tokens", "1",
                "--json"), stdout=subprocess.DEVNULL, check=True)
            spans.append((start, time.time()))
            time.sleep(0.2)
        streams.join()
        records = [json.loads(line) for line in raw]
    epoch = rows[0]["started_unix_s"]
    calm, during = [], []
    first = (spans[0][0] - epoch) * 1000
    for when, gap in gaps(records):
        at = epoch + when / 1000
        if when < first:
            # What the first prompts cost is not the calm before.
            if when > 1000:
                calm.append(gap)
        elif any(start <= at <= end for start, end in spans):
            during.append(gap)
    result = {
        "streams": flags.streams, "threads": flags.threads,
        "prompt_tokens": flags.prompt_tokens,
        "before_ms": {"p50": percentile(calm, .5), "p99": percentile(calm, .99),
                      "count": len(calm)},
        "during_ms": {"p50": percentile(during, .5),
                      "p99": percentile(during, .99), "count": len(during)},
        "time_to_first_token_s": statistics.median(
            end - start for start, end in spans)}
    result["p99_ratio"] = result["during_ms"]["p99"] / result["before_ms"]["p99"]
    if flags.json:
        print(json.dumps(result))
        return
    print(f"{flags.streams} streams, then {flags.prompts} prompts of "
          f"{flags.prompt_tokens} tokens, {flags.threads} threads")
    for name in ("before_ms", "during_ms"):
        one = result[name]
        print(f"  time between tokens {name[:-3]:>6}: p50 {one['p50']:6.2f} ms, "
              f"p99 {one['p99']:6.2f} ms ({one['count']} tokens)")
    print(f"  p99 during / before: {result['p99_ratio']:.2f}; first token of a "
          f"long prompt after {result['time_to_first_token_s']:.2f} s")


def overload(flags):
    """Goodput at rising rates up to a multiple of what the cluster can do."""
    # Who is late is of no use: the deadline is a limit of goodput too.
    limits = f"e2e_ms:{flags.deadline_ms},itl_ms:{flags.itl_ms}"
    common = ["--dataset", flags.dataset, "--modes", flags.mode,
              "--max_tokens", flags.max_tokens, "--ignore_eos", "--goodput",
              limits]
    table = []
    with Cluster("--threads", str(flags.threads)) as cluster:
        before = cluster.gauges()
        closed = cluster.bench(*common, "--concurrency", 64, "--num", 320)
        capacity = closed["modes"][flags.mode]["requests_per_second"]
        memory = []
        stop = threading.Event()

        def watch():
            while not stop.wait(2):
                memory.append(cluster.rss_mib())

        for share in (*flags.shares, flags.factor):
            last = share == flags.factor
            watcher = threading.Thread(target=watch)
            if last:
                watcher.start()
            report = cluster.bench(
                *common, "--rate", capacity * share, "--duration",
                flags.seconds if last else flags.step_seconds,
                "--max_concurrency", 4096, "--deadline_ms", flags.deadline_ms)
            figures = report["modes"][flags.mode]
            refused = figures["failures"].get("RESOURCE_EXHAUSTED", {})
            table.append({
                "share": share, "rate": capacity * share,
                "requests": figures["requests"],
                "completed": figures["completed"],
                "goodput_per_s": figures["goodput"]["requests_per_second"],
                "ttft_p99_ms": figures["ttft_ms"]["p99"],
                "itl_p99_ms": figures["itl_ms"]["p99"],
                "refused": refused.get("count", 0),
                "refused_p99_ms": refused.get("latency_ms", {}).get("p99"),
                "failures": {code: one["count"] for code, one in
                             figures["failures"].items()}})
            if last:
                stop.set()
                watcher.join()
        for _ in range(20):
            after = cluster.gauges()
            if after == before:
                break
            time.sleep(1)
    half = len(memory) // 2
    growth = {name: statistics.mean(one[name] for one in memory[half:]) /
              statistics.mean(one[name] for one in memory[len(memory) // 4:half])
              for name in memory[0]}
    result = {
        "capacity_per_s": capacity, "limits": limits, "steps": table,
        "goodput_ratio": table[-1]["goodput_per_s"] /
                         max(one["goodput_per_s"] for one in table),
        "memory_growth": growth, "memory_mib": memory[-1],
        "gauges_back": before == after,
        "gauges": {name: (before.get(name), value)
                   for name, value in after.items()
                   if before.get(name) != value}}
    if flags.json:
        print(json.dumps(result))
        return
    print(f"capacity {capacity:.2f} requests/s (64 at once); goodput within "
          f"{limits}")
    print("   rate/capacity  requests  completed  goodput/s  TTFT p99 ms  "
          "ITL p99 ms  refused  refused p99 ms")
    def number(value, width, digits):
        return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"

    for one in table:
        print(f"  {one['share']:14.2f} {one['requests']:9d} "
              f"{one['completed']:10d} {one['goodput_per_s']:10.2f} "
              f"{number(one['ttft_p99_ms'], 12, 0)} "
              f"{number(one['itl_p99_ms'], 11, 1)} {one['refused']:8d} "
              f"{number(one['refused_p99_ms'], 15, 1)}")
    print(f"  goodput at {flags.factor} x capacity / peak: "
          f"{result['goodput_ratio']:.2f}")
    print("  memory, second half / second quarter: " + ", ".join(
        f"{name} {value:.3f}" for name, value in growth.items()))
    print("  gauges back to their start: "
          f"{'yes' if result['gauges_back'] else result['gauges']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=str(DATASET),
                        help="questions in Spec-Bench's format")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("long_prompt", help=long_prompt.__doc__)
    one.add_argument("--streams", type=int, default=4)
    one.add_argument("--prompts", type=int, default=4)
    one.add_argument("--prompt_tokens", type=int, default=4000)
    one.add_argument("--seconds", type=float, default=40)
    one.set_defaults(run=long_prompt)
    two = commands.add_parser("overload", help=overload.__doc__)
    two.add_argument("--factor", type=float, default=2)
    two.add_argument("--shares", type=float, nargs="*", default=[.7, .9, 1.1])
    two.add_argument("--seconds", type=float, default=120)
    two.add_argument("--step_seconds", type=float, default=30)
    two.add_argument("--max_tokens", type=int, default=64)
    two.add_argument("--mode", default="plain",
                     choices=["plain", "speculative"])
    two.add_argument("--itl_ms", type=float, default=100)
    two.add_argument("--deadline_ms", type=int, default=8000)
    two.set_defaults(run=overload)
    flags = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        flags.run(flags)


if __name__ == "__main__":
    sys.exit(main())
