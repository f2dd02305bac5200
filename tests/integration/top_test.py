# SPDX-License-Identifier: Apache-2.0
"""specwire top on a terminal of its own: a pty."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from process_cluster import (BIN, DONE, PATIENCE_S, UNREACHABLE, USAGE, Cluster,
                             one_line, wait_until)

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Top:
    """A `specwire top` on a pty."""

    def __init__(self, cluster, *flags, width=120, height=40):
        self.main, self.terminal = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ,
                    struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(self.terminal)
        self.output = b""
        self.process = subprocess.Popen(
            cluster.arguments("top", "--interval", "0.2", *flags),
            stdin=self.terminal, stdout=self.terminal, stderr=self.terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def read(self):
        while select.select([self.main], [], [], 0)[0]:
            self.output += os.read(self.main, 65536)
        return self.output

    def wait_for(self, text, start=0):
        """Waits until `text` is shown behind byte `start` of the output."""
        wait_until(lambda: text in self.read()[start:], f"{text!r} in top")

    def press(self, keys):
        os.write(self.main, keys)

    def end(self):
        """The exit code; what it wrote to the end is in output."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self.read()
            if time.monotonic() > deadline:
                raise AssertionError(f"top does not end: {self.output!r}")
            time.sleep(0.02)
        self.read()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)
        os.close(self.terminal)


class TopTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.start_coordinator()
        cls.cluster.start_verifier()
        cls.cluster.start_draft_node()
        cls.cluster.wait_serving("draft-0", "verifier-0")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def check_left(self, top, code=DONE):
        self.assertEqual(top.end(), code, top.output)
        self.assertTrue(top.output.startswith(ENTER), top.output[:40])
        self.assertIn(LEAVE, top.output)
        self.assertEqual(termios.tcgetattr(top.terminal), top.before)

    def test_shows_the_cluster_until_q(self):
        with Top(self.cluster) as top:
            top.wait_for(b"verifier-0")
            top.wait_for(b"draft-0")
            # Keys come at once and are not shown.
            self.assertFalse(termios.tcgetattr(top.terminal)[3] &
                             (termios.ICANON | termios.ECHO))
            top.press(b"x")
            self.cluster.generate("--max_tokens", 40, "the cat sat the cat")
            top.wait_for(b"ngram")
            top.press(b"q")
            self.check_left(top)

    def test_a_signal_or_ctrl_c_gives_the_terminal_back(self):
        for end in (lambda top: top.press(b"\x03"),
                    lambda top: top.process.send_signal(signal.SIGTERM),
                    lambda top: top.process.send_signal(signal.SIGINT)):
            with Top(self.cluster) as top:
                top.wait_for(b"verifier-0")
                end(top)
                self.check_left(top)

    def test_fits_a_narrow_terminal_and_a_new_size(self):
        with Top(self.cluster, width=20, height=6) as top:
            top.wait_for(b"more lines")
            frame = top.output[len(ENTER):].split(b"\x1b[J")[0]
            lines = frame.replace(b"\x1b[?25l", b"").replace(
                b"\x1b[H", b"").replace(b"\x1b[K", b"").replace(
                    b"\r", b"").split(b"\n")
            self.assertLessEqual(len(lines), 6)
            self.assertLessEqual(max(map(len, lines)), 20)
            start = len(top.output)
            fcntl.ioctl(top.terminal, termios.TIOCSWINSZ,
                        struct.pack("HHHH", 40, 120, 0, 0))
            top.wait_for(b"verifier-0", start)
            top.press(b"q")
            self.check_left(top)

    def test_once_and_without_a_terminal_it_is_one_frame(self):
        for flags in ((), ("--once",)):
            done = self.cluster.run("top", "--interval", "0.2", *flags)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertIn("verifier-0", done.stdout)
            self.assertIn("0.0/s generated", done.stdout)
            self.assertNotIn("\x1b", done.stdout)
        with Top(self.cluster, "--once") as top:
            self.assertEqual(top.end(), DONE)
            self.assertNotIn(b"\x1b", top.output)
            self.assertIn(b"verifier-0", top.output)

    def test_survives_a_restart_of_the_coordinator(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            with Top(cluster) as top:
                top.wait_for(b"/s generated")
                cluster.programs["coordinator"].kill()
                top.wait_for(b"no answer")
                # What was known stays.
                start = len(top.output)
                top.wait_for(b"verifier-0", start)
                cluster.start_coordinator()
                top.wait_for(b"the coordinator was restarted")
                start = len(top.output)
                top.wait_for(b"/s generated", start)
                top.press(b"q")
                self.check_left(top)

    def test_a_node_that_has_left_has_no_load(self):
        with Cluster() as cluster:
            cluster.start_coordinator()
            cluster.start_draft_node().line("^listening")
            wait_until(cluster.nodes, "the node to join")
            cluster.programs["draft-0"].terminate()
            wait_until(lambda: cluster.nodes()[0]["state"] == "gone",
                       "the node to leave")
            row = next(line for line in cluster.run("nodes").stdout.splitlines()
                       if line.startswith("draft-0"))
            self.assertEqual(row.split()[5], "-", row)
            row = next(line for line in cluster.run("top").stdout.splitlines()
                       if line.startswith("draft-0"))
            self.assertEqual(row.split()[3:7], ["-"] * 4, row)

    def test_an_error_is_one_line(self):
        done = subprocess.run(
            [BIN / "specwire", "top", "--coordinator", "127.0.0.1:1"],
            capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, UNREACHABLE)
        self.assertTrue(one_line(done.stderr), done.stderr)
        for bad in ("0", "-1", "x", "nan"):
            done = self.cluster.run("top", "--interval", bad)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn("--interval", done.stderr)


if __name__ == "__main__":
    unittest.main()
