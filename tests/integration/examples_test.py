# SPDX-License-Identifier: Apache-2.0
"""The clients of examples/: they stream, survive the death of a coordinator in
the middle, and print acceptance."""

import fcntl
import os
import subprocess
import sys
import unittest

from process_cluster import (BIN, Cluster, LongModelTest, PATIENCE_S, SOURCE,
                             free_port)

BUILD = BIN.parent
ENVIRONMENT = BUILD / "examples-venv"
EXAMPLE = SOURCE / "examples/python"
PROMPT = "the cat sat on the mat. the cat sat"
# Long enough that a process can be killed while it runs.
MAX_TOKENS = 2000
FIGURES = (r"\d+ tokens, acceptance rate \d+\.\d % \(\d+ of \d+\), mean "
           r"accepted length \d\.\d\d, drafter (ngram|none)")


def make_environment():
    """What README.md says, once for a build; None, or why not."""
    wanted = f"{sys.executable}\n{(EXAMPLE / 'requirements.txt').read_text()}"
    done = ENVIRONMENT / "packages"
    try:
        with open(BUILD / "examples-venv.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists() or done.read_text() != wanted:
                for command in (
                        [sys.executable, "-m", "venv", "--clear", ENVIRONMENT],
                        [ENVIRONMENT / "bin/python", "-m", "pip", "install",
                         "-q", "--disable-pip-version-check", "-r",
                         EXAMPLE / "requirements.txt"]):
                    subprocess.run(command, check=True, timeout=300,
                                   capture_output=True)
                done.write_text(wanted)
            # The stubs, from today's .proto files.
            generated = ENVIRONMENT / "generated"
            generated.mkdir(exist_ok=True)
            subprocess.run(
                [ENVIRONMENT / "bin/python", "-m", "grpc_tools.protoc", "-I",
                 SOURCE / "proto", f"--python_out={generated}",
                 f"--grpc_python_out={generated}",
                 SOURCE / "proto/specwire/v1/types.proto",
                 SOURCE / "proto/specwire/v1/generation.proto"],
                check=True, timeout=120, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or b""
        lines = output.decode(errors="replace").strip().splitlines()
        return f"cannot install grpcio: {(lines or [error])[-1]}"
    return None


class ExamplesTest(LongModelTest):

    def python(self, addresses, *flags):
        """The Python example's command; its stubs are beside the build."""
        why = make_environment()
        if why is not None:
            self.skipTest(why)
        return ([ENVIRONMENT / "bin/python", EXAMPLE / "complete.py",
                 "--coordinator", addresses, "--max_tokens", str(MAX_TOKENS),
                 *flags, PROMPT],
                {**os.environ, "PYTHONPATH": str(ENVIRONMENT / "generated"),
                 "PYTHONDONTWRITEBYTECODE": "1"})

    def cpp(self, addresses):
        return ([BIN / "example_complete", addresses, PROMPT,
                 str(MAX_TOKENS)], None)

    def run_with_a_loss(self, command, environment, cluster, after):
        """Kills the coordinator once so many bytes have come, calls `after`,
        and returns what the client printed."""
        call = subprocess.Popen(command, env=environment, bufsize=0,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out = b""
            while len(out) < 200:
                part = call.stdout.read(200)
                self.assertTrue(part, call.stderr.read)
                out += part
            cluster.programs["coordinator"].kill()
            after()
            rest, errors = call.communicate(timeout=PATIENCE_S)
        finally:
            call.kill()
        self.assertEqual(call.returncode, 0, errors)
        return out + rest, errors.decode()

    def check(self, make_command):
        other = Cluster()
        with Cluster() as cluster, other:
            cluster.coordinators = f"{cluster.address},{other.address}"
            cluster.start_coordinator()
            other.start_coordinator()
            cluster.start_verifier("verifier-0", self.model)
            cluster.start_draft_node("draft-0", "ngram")
            for one in (cluster, other):
                one.wait_serving("draft-0", "verifier-0")
            command, environment = make_command(cluster.address)
            whole = subprocess.run(command, env=environment, timeout=PATIENCE_S,
                                   capture_output=True)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.assertRegex(whole.stderr.decode(), FIGURES)
            self.assertNotIn(b"resumed", whole.stderr)

            with self.subTest("another coordinator goes on"):
                command, environment = make_command(
                    f"{cluster.address},{other.address}")
                text, errors = self.run_with_a_loss(
                    command, environment, cluster, lambda: None)
                self.assertEqual(text, whole.stdout)
                self.assertRegex(errors, FIGURES + "; resumed 1 times")

            with self.subTest("the same one goes on when it is back"):
                cluster.start_coordinator()
                cluster.wait_serving("draft-0", "verifier-0")
                command, environment = make_command(cluster.address)
                text, errors = self.run_with_a_loss(
                    command, environment, cluster, cluster.start_coordinator)
                self.assertEqual(text, whole.stdout)
                self.assertIn("resumed", errors)

    def test_python(self):
        self.check(self.python)

    def test_cpp(self):
        self.check(self.cpp)

    def test_what_cannot_be_had_is_told(self):
        for make_command in (self.python, self.cpp):
            command, environment = make_command(f"127.0.0.1:{free_port()}")
            done = subprocess.run(command, env=environment, timeout=PATIENCE_S,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)
            # First that it waits, for whom, then why it ends.
            wait, *_, error = done.stderr.strip().splitlines()
            self.assertIn("waiting for a coordinator at 127.0.0.1", wait)
            self.assertNotIn("waiting", error)
            self.assertIn("does not answer", error)


if __name__ == "__main__":
    unittest.main()
