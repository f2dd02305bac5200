# SPDX-License-Identifier: Apache-2.0
"""Specwire's programs as real processes, for tests in Python.

Environment, set by ctest: SPECWIRE_TEST_BIN (folder of the programs),
SPECWIRE_TEST_TINY_MODEL, SPECWIRE_TEST_MODEL, SPECWIRE_TEST_DATA,
SPECWIRE_TEST_SOURCE (the project's root). SPECWIRE_TEST_PATIENCE_S, by hand:
seconds after which a call counts as hung.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

BIN = pathlib.Path(os.environ["SPECWIRE_TEST_BIN"])
TINY_MODEL = os.environ["SPECWIRE_TEST_TINY_MODEL"]
MODEL = os.environ["SPECWIRE_TEST_MODEL"]
DATA = pathlib.Path(os.environ["SPECWIRE_TEST_DATA"])
SOURCE = pathlib.Path(os.environ["SPECWIRE_TEST_SOURCE"])
FULL = os.environ.get("SPECWIRE_TEST_FULL") == "1"

# Nothing that is not broken takes this long, on a machine that is not stopped.
PATIENCE_S = int(os.environ.get("SPECWIRE_TEST_PATIENCE_S", "60"))

DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what, timeout_s=PATIENCE_S):
    """Returns the first true value of condition()."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting for {what} after {timeout_s} s")
        time.sleep(0.02)


def alive(pid):
    """True if the process runs (a zombie does not)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def make_tiny_model(output, *flags):
    subprocess.run(
        ["python3", SOURCE / "tests/testing/make_tiny_model.py",
         "--output", output, *flags], check=True, timeout=PATIENCE_S)


class LongModelTest(unittest.TestCase):
    """Tests with a tiny model of a long context, `model`, in `folder`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "long.gguf")
        make_tiny_model(cls.model, "--context_length", "8192")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()


class Program:
    """A program that runs with its output in files."""

    def __init__(self, name, *arguments, **options):
        self.name = name
        self._out = tempfile.NamedTemporaryFile(prefix="specwire-")
        self._err = tempfile.NamedTemporaryFile(prefix="specwire-")
        self.process = subprocess.Popen(
            [BIN / name, *map(str, arguments)], stdin=subprocess.DEVNULL,
            stdout=self._out, stderr=self._err, **options)
        self.pid = self.process.pid

    def out(self):
        return pathlib.Path(self._out.name).read_text(errors="replace")

    def err(self):
        return pathlib.Path(self._err.name).read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait(self, timeout_s=PATIENCE_S):
        """Returns the exit code."""
        return self.process.wait(timeout=timeout_s)

    def line(self, pattern):
        """Waits for a line on standard output; returns its match."""
        def look():
            found = re.search(pattern, self.out(), re.MULTILINE)
            if found is None and not self.running():
                raise AssertionError(
                    f"{self.name} ended with {self.process.returncode}:\n"
                    f"{self.err()}")
            return found
        return wait_until(look, f"{pattern!r} from {self.name}")

    def terminate(self, timeout_s=PATIENCE_S):
        """SIGTERM; returns the exit code."""
        if self.running():
            self.process.terminate()
        return self.wait(timeout_s)

    def kill(self):
        """SIGKILL."""
        if self.running():
            self.process.kill()
        self.process.wait()


class Client:
    """Calls of the command line against one coordinator."""

    def __init__(self, address):
        self.address = address

    def arguments(self, command, *arguments):
        return [str(BIN / "specwire"), command, "--coordinator", self.address,
                *map(str, arguments)]

    def run(self, command, *arguments, **options):
        options.setdefault("timeout", PATIENCE_S)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(self.arguments(command, *arguments),
                              capture_output=True, text=True, **options)

    def start(self, command, *arguments, stdin=subprocess.DEVNULL):
        """A call that runs; its streams are unbuffered, so that a part can be
        read before communicate()."""
        return subprocess.Popen(self.arguments(command, *arguments), bufsize=0,
                                stdin=stdin, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def json(self, command, *arguments, **options):
        done = self.run(command, "--json", *arguments, **options)
        if done.returncode != 0:
            raise AssertionError(
                f"{command} {arguments} ended with {done.returncode}: "
                f"{done.stderr}")
        return json.loads(done.stdout)

    def generate(self, *arguments, **options):
        """A greedy completion as JSON."""
        return self.json("generate", "--temperature", "0", *arguments,
                         **options)

    def nodes(self):
        return self.json("nodes")

    def serving(self):
        """Names of the nodes that serve; none without a coordinator."""
        done = self.run("nodes", "--json")
        if done.returncode != 0:
            return []
        return sorted(node["name"] for node in json.loads(done.stdout)
                      if node["state"] == "serving")


class Cluster(Client):
    """A cluster whose processes are started one by one. Nobody drafts but its
    draft nodes, unless its verifiers are given a local drafter."""

    def __init__(self, *coordinator_flags, local_drafter="none"):
        self.port = free_port()
        self.local_drafter = local_drafter
        super().__init__(f"127.0.0.1:{self.port}")
        self.http = f"127.0.0.1:{free_port()}"
        # Where its nodes join.
        self.coordinators = self.address
        self._coordinator_flags = coordinator_flags
        self.programs = {}
        # HOST:PORT of the metrics by name.
        self.metrics_addresses = {"coordinator": self.http}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start_coordinator(self):
        program = Program("coordinator", "--listen", self.address, "--http",
                          self.http, *self._coordinator_flags)
        self.programs["coordinator"] = program
        program.line(r"^listening on ")
        return program

    def _start_node(self, program, name, *flags):
        # One that is started again keeps its address.
        self.metrics_addresses.setdefault(name, f"127.0.0.1:{free_port()}")
        self.programs[name] = Program(
            program, "--name", name, "--coordinator", self.coordinators,
            "--listen", "127.0.0.1:0", "--metrics",
            self.metrics_addresses[name], "--threads", 1, *flags)
        return self.programs[name]

    def start_verifier(self, name="verifier-0", model=TINY_MODEL, *flags):
        return self._start_node("verifier_node", name, "--model", model,
                                "--local_drafter", self.local_drafter, *flags)

    def start_draft_node(self, name="draft-0", drafter="ngram", *flags):
        return self._start_node("draft_node", name, "--drafter", drafter,
                                *flags)

    def wait_serving(self, *names):
        try:
            wait_until(lambda: self.serving() == sorted(names),
                       f"only {sorted(names)} to serve")
        except AssertionError as error:
            # What they are instead, and what they have said last.
            nodes = self.run("nodes", "--json")
            logs = "".join(f"\n{name}: {program.err()[-1000:]}"
                           for name, program in self.programs.items())
            raise AssertionError(
                f"{error}\n{nodes.stdout}{nodes.stderr}{logs}") from None

    def metrics(self, name):
        return read_metrics(self.metrics_addresses[name])

    def close(self):
        """Ends all; an error if one had ended by itself or ends badly."""
        codes = {}
        for name, program in self.programs.items():
            if program.running():
                program.process.terminate()
                codes[name] = program
        try:
            bad = {name: program.wait(20) for name, program in codes.items()}
        finally:
            for program in self.programs.values():
                program.kill()
        bad = {name: code for name, code in bad.items() if code != 0}
        if bad:
            raise AssertionError(f"ended badly at SIGTERM: {bad}\n" + "\n".join(
                self.programs[name].err() for name in bad))


class UpCluster(Client):
    """A cluster of `specwire up`."""

    def __init__(self, *flags, model=TINY_MODEL, **options):
        self.program = Program("specwire", "up", "--listen", "127.0.0.1:0",
                               "--http", "127.0.0.1:0", "--model", model,
                               *flags, **options)
        try:
            self.program.line(r"^READY$")
            super().__init__(
                self.program.line(r"^coordinator (\S+)$").group(1))
            self.http = self.program.line(r"^http http://(\S+)$").group(1)
        except BaseException:
            self.program.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def children(self):
        """Pids of the coordinator and the nodes."""
        text = pathlib.Path(
            f"/proc/{self.program.pid}/task/{self.program.pid}/children"
        ).read_text()
        return [int(pid) for pid in text.split()]

    def close(self):
        pids = self.children() if self.program.running() else []
        try:
            code = self.program.terminate(30)
        finally:
            self.program.kill()
        left = [pid for pid in pids if alive(pid)]
        if code != 0 or left:
            raise AssertionError(
                f"up ended with {code}, left {left}:\n{self.program.err()}")


def read_metrics(address):
    """{series with labels: value} of a /metrics page."""
    with urllib.request.urlopen(f"http://{address}/metrics",
                                timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    series = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            series[name] = float(value)
    return series


def read_health(address):
    """(status code, JSON) of /health."""
    try:
        with urllib.request.urlopen(f"http://{address}/health",
                                    timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def one_line(text):
    """True if the text is one line."""
    return text.count("\n") == 1 and text.endswith("\n")
