#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What metrics cost in processor time: the part of the instructions of each
program, counted by callgrind, that is spent on counting.

A cluster of nodes without models carries requests, so that messages are all
that costs anything; with a model the part is far smaller. Counted is whatever
is there for metrics alone: counters and histograms, working out what to add,
and reads of the clock for it. Start-up, and the
answers to /metrics, are left out.

    bench/metrics_cost.py [--bin build/release/bin] [--tokens 4000] [--json]

Needs valgrind. Exit code 1 if it is more than 1 %.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 0.01
READY_S = 300
# All that these do, with whatever they call, is for metrics.
COUNTING = re.compile(
    r"specwire::\(anonymous namespace\)::Prometheus(Counter|Gauge|Histogram)::|"
    r"^prometheus::|"
    r"::(ModelMetrics|CoordinatorMetrics|VerifierMetrics)::|"
    r"::Choice::Count(Figures|Wait)\(|"
    r"::Reply::CountEnd\(")
# Calls that are made for metrics by what has other work too.
COUNTING_CALLS = (
    (re.compile(r"::EngineThread::Compute\("), re.compile(r"Clock::Now\(")),
)


def is_counting_call(caller, callee):
    if COUNTING.search(caller):
        # Told by its own caller.
        return False
    return bool(COUNTING.search(callee)) or any(
        a.search(caller) and b.search(callee) for a, b in COUNTING_CALLS)


def read_profile(path):
    """(instructions in all, {(caller, callee): inclusive})."""
    total, edges = 0, collections.Counter()
    caller = callee = ""
    in_call = False
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("fn="):
            caller = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("calls="):
            in_call = True
        elif re.match(r"[-+*\d]", line):
            cost = int(line.split()[1])
            if in_call:
                edges[caller, callee] += cost
            else:
                total += cost
            in_call = False
    return total, edges


class Program:
    """A program under callgrind, which counts from count() on."""

    def __init__(self, folder, binary, role, *arguments):
        self.role = role
        self.profile = folder / f"{role}.callgrind"
        self.output = folder / f"{role}.out"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                ["valgrind", "--quiet", "--tool=callgrind",
                 "--instr-atstart=no", "--compress-strings=no",
                 "--compress-pos=no", f"--callgrind-out-file={self.profile}",
                 str(binary), *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT)

    def line(self, pattern):
        deadline = time.monotonic() + READY_S
        while True:
            text = self.output.read_text(errors="replace")
            found = re.search(pattern, text, re.M)
            if found:
                return found.group(1)
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"metrics_cost: {self.role} did not start:\n{text}")
            time.sleep(0.1)

    def count(self):
        subprocess.run(["callgrind_control", "--instr=on",
                        str(self.process.pid)],
                       check=True, capture_output=True, timeout=READY_S)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(READY_S)


def generate(binary, address, max_tokens):
    """Tokens generated."""
    done = subprocess.run(
        [str(binary), "generate", "--coordinator", address, "--json",
         "--temperature", "0", "--max_tokens", str(max_tokens),
         "--ignore_eos", "a b c"],
        capture_output=True, text=True, timeout=READY_S)
    if done.returncode != 0:
        sys.exit(f"metrics_cost: generate: {done.stderr}")
    return json.loads(done.stdout)["usage"]["completion_tokens"]


def measure(folder, bin_folder, num_tokens):
    """({role: (instructions, of them for metrics)}, tokens)."""
    patient = ("--max_silence", 120, "--max_stall", 120)
    coordinator = Program(
        folder, bin_folder / "coordinator", "coordinator", "--listen",
        "127.0.0.1:0", "--http", "127.0.0.1:0", "--drafter_deadline", 60,
        "--stream_deadline", 120, *patient)
    programs = [coordinator]
    try:
        address = coordinator.line(r"^listening on (\S+)$")
        node = ("--coordinator", address, "--listen", "127.0.0.1:0",
                "--allow_synthetic", "--threads", 1)
        programs.append(Program(folder, bin_folder / "verifier_node",
                                "verifier", *node, "--engine", "synthetic"))
        programs.append(Program(folder, bin_folder / "draft_node", "draft",
                                *node, "--drafter", "synthetic"))
        for program in programs[1:]:
            program.line(r"^listening on (\S+)$")
        deadline = time.monotonic() + READY_S
        while True:
            nodes = subprocess.run(
                [str(bin_folder / "specwire"), "nodes", "--json",
                 "--coordinator", address], capture_output=True, text=True,
                timeout=READY_S)
            if nodes.returncode == 0 and nodes.stdout.count('"serving"') == 2:
                break
            if time.monotonic() > deadline:
                sys.exit("metrics_cost: the nodes do not join")
            time.sleep(0.5)
        generate(bin_folder / "specwire", address, 100)
        for program in programs:
            program.count()
        tokens = 0
        while tokens < num_tokens:
            tokens += generate(bin_folder / "specwire", address, 400)
    finally:
        for program in programs:
            program.end()
    costs = {}
    for program in programs:
        total, edges = read_profile(program.profile)
        counting = sum(cost for (caller, callee), cost in edges.items()
                       if is_counting_call(caller, callee))
        costs[program.role] = (total, counting)
    return costs, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path,
                        default=pathlib.Path("build/release/bin"),
                        help="folder of the programs")
    parser.add_argument("--tokens", type=int, default=4000,
                        help="tokens to generate, at least")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    for tool in ("valgrind", "callgrind_control"):
        if shutil.which(tool) is None:
            sys.exit(f"metrics_cost: {tool} is not installed "
                     "(apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        costs, tokens = measure(pathlib.Path(folder), flags.bin, flags.tokens)
    costs["all"] = tuple(map(sum, zip(*costs.values())))
    report = {role: {"instructions_per_token": total / tokens,
                     "metrics_instructions_per_token": counting / tokens,
                     "share": counting / total}
              for role, (total, counting) in costs.items()}
    if flags.json:
        print(json.dumps({"tokens": tokens, "programs": report}))
    else:
        print(f"{tokens} tokens; instructions for each")
        print(f"{'program':12} {'all':>10} {'metrics':>10} {'share':>8}")
        for role, figures in report.items():
            print(f"{role:12} {figures['instructions_per_token']:10.0f} "
                  f"{figures['metrics_instructions_per_token']:10.0f} "
                  f"{100 * figures['share']:7.2f}%")
    return 0 if report["all"]["share"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
