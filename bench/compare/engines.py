# SPDX-License-Identifier: Apache-2.0
"""Starts engines, sends them requests, ends them. Each has processes of its
own, which only wait while another one is measured."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time

from compare import figures, machine

HERE = pathlib.Path(__file__).resolve().parent

START_TIMEOUT_S = 300
REQUEST_TIMEOUT_S = 300


class EngineError(Exception):
    """One line for the user."""


def _last_lines(log, count=5):
    lines = pathlib.Path(log.name).read_text(errors="replace").splitlines()
    # What Specwire logs as information or warning seldom is the reason.
    telling = [line for line in lines
               if line and not re.match(r"\S+ [IW] ", line)]
    return " / ".join(telling[-count:]) or "no output"


class Specwire:
    """A cluster of `specwire up` and `specwire generate` for each request, as a
    user runs them. The times are the coordinator's own, from a request's
    arrival on, so that the start of the client does not count."""

    name = "specwire"

    def __init__(self, binaries, model, threads, up_flags):
        self.threads = threads
        self._num_runs = 0
        self._specwire = str(binaries / "specwire")
        self._log = tempfile.NamedTemporaryFile(prefix="specwire-up-")
        self._up = subprocess.Popen(
            [self._specwire, "up", "--listen", "127.0.0.1:0", "--http", "none",
             "--model", str(model), "--threads", str(threads), *up_flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self._log, text=True, start_new_session=True)
        try:
            self.coordinator = self._wait_ready()
            self.pids = [self._up.pid, *machine.children(self._up.pid)]
            self.versions, self.details = {}, self._details()
        except BaseException:
            self.close()
            raise

    def _wait_ready(self):
        watchdog = threading.Timer(START_TIMEOUT_S, self._up.kill)
        watchdog.start()
        coordinator = None
        try:
            for line in self._up.stdout:
                found = re.match(r"coordinator (\S+)$", line)
                coordinator = found.group(1) if found else coordinator
                if line.strip() == "READY" and coordinator:
                    return coordinator
        finally:
            watchdog.cancel()
        raise EngineError(f"specwire up ended or was not ready within "
                          f"{START_TIMEOUT_S} s: {_last_lines(self._log)}")

    def _details(self):
        log = pathlib.Path(self._log.name).read_text(errors="replace")
        said = re.search(r"^\S+ I specwire: (.*\bthread.*)$", log, re.MULTILINE)
        engine = re.search(r"\bengine (\w+)$", log, re.MULTILINE)
        details = {"up": said.group(1) if said else "says nothing of threads",
                   "prefix cache": "of no use to any request"}
        if engine:
            details["engine"] = engine.group(1)
        if os.environ.get("SPECWIRE_ISA"):
            details["SPECWIRE_ISA"] = os.environ["SPECWIRE_ISA"]
        return details

    def _generate(self, max_tokens, *flags):
        done = subprocess.run(
            [self._specwire, "generate", "--coordinator", self.coordinator,
             "--temperature", "0", "--ignore_eos", "--json", "--max_tokens",
             str(max_tokens), *flags],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=REQUEST_TIMEOUT_S)
        if done.returncode != 0:
            raise EngineError(f"specwire generate ended with "
                              f"{done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def chat_ids(self, text):
        """The prompt's ids under the model's chat template."""
        text = "@" + text if text.startswith("@") else text
        return self._generate(1, "--chat", "--", text)["prompt_token_ids"]

    def run(self, mode, prompt_ids, max_tokens):
        flags = ["--no_speculation"] if mode == figures.PLAIN else []
        # A salt of its own: what an earlier request has left in the prefix
        # cache is no use to it, as with the other engines.
        self._num_runs += 1
        reply = self._generate(
            max_tokens, *flags, "--cache_salt",
            f"{os.getpid()}/{self._num_runs}", "--prompt_ids",
            ",".join(map(str, prompt_ids)))
        self.details["model digest"] = reply["model_digest"][:12]
        speculation = reply["speculative_decoding"]
        if mode == figures.SPECULATIVE and speculation.get("drafter"):
            self.details["drafter"] = speculation["drafter"]
        timings = reply["timings"]
        return {
            "token_ids": reply["token_ids"],
            "time_to_first_token_s": timings["time_to_first_token_ms"] / 1000,
            "generation_s": timings["generation_time_ms"] / 1000,
            "passes": speculation["num_passes"]}

    def close(self):
        if self._up.poll() is None:
            self._up.terminate()
            try:
                self._up.wait(30)
            except subprocess.TimeoutExpired:
                self._up.kill()
        self._up.wait()
        self._up.stdout.close()
        self._log.close()


class Worker:
    """One of the *_worker.py programs: one engine in one mode."""

    def __init__(self, python, program, *flags):
        self._log = tempfile.NamedTemporaryFile(prefix="bench-worker-")
        self._program = program
        self._process = subprocess.Popen(
            [python, str(HERE / program), *map(str, flags)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            text=True, start_new_session=True)
        self.pid = self._process.pid
        try:
            self.ready = self._read(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def _read(self, timeout_s):
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise EngineError(f"{self._program} ended, or was silent for "
                              f"{timeout_s} s: {_last_lines(self._log)}")
        return json.loads(line)

    def ask(self, message, timeout_s=REQUEST_TIMEOUT_S):
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # Reading tells why.
        return self._read(timeout_s)

    def close(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()


class WorkerEngine:
    """An engine in two processes, one without and one with speculation."""

    def __init__(self, name, python, program, model, threads, flags=()):
        self.name = name
        self.threads = threads
        self.versions, self.details = {}, {}
        self._workers = {}
        try:
            for mode in figures.MODES:
                worker = Worker(python, program, "--model", model,
                                 "--threads", threads, "--mode", mode, *flags)
                self._workers[mode] = worker
                self.versions |= worker.ready["versions"]
                self.details |= worker.ready["details"]
        except BaseException:
            self.close()
            raise
        self.pids = [worker.pid for worker in self._workers.values()]

    def run(self, mode, prompt_ids, max_tokens):
        return self._workers[mode].ask(
            {"prompt_ids": prompt_ids, "max_tokens": max_tokens})

    def close(self):
        for worker in self._workers.values():
            worker.close()


def read_bandwidth(python, threads):
    """{threads: GB/s}"""
    done = subprocess.run([python, HERE / "read_bandwidth.py",
                           *map(str, threads)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise EngineError("read_bandwidth.py failed: " +
                          " ".join(done.stderr.split("\n")[-3:]))
    return json.loads(done.stdout)


class Meter:
    """Watches that engines sleep while others are measured, and what else runs
    on the machine."""

    def __init__(self, engines):
        self._engines = engines
        self._start_time = time.monotonic()
        self._start_cpu = [machine.cpu_seconds(e.pids) for e in engines]
        self._own = [0.0] * len(engines)
        self._own_start = sum(os.times()[:4])
        self._system_start = machine.system_seconds()

    def measured(self, engine, cpu_s):
        """`engine` used so much for a request of its own."""
        self._own[self._engines.index(engine)] += cpu_s

    def finish(self):
        """([idle share of each engine], share of other programs, share that
        the hypervisor took), in processors."""
        wall = time.monotonic() - self._start_time
        used = [machine.cpu_seconds(e.pids) - start
                for e, start in zip(self._engines, self._start_cpu)]
        busy, steal = (now - then for now, then in zip(
            machine.system_seconds(), self._system_start))
        script = sum(os.times()[:4]) - self._own_start
        idle = [max(0.0, total - own) / wall
                for total, own in zip(used, self._own)]
        return (idle, max(0.0, busy - sum(used) - script) / wall,
                steal / wall)
