# SPDX-License-Identifier: Apache-2.0
"""Hostile peers: each is refused or bounded, at every role, and meanwhile the
cluster serves others. Everything is attacked over TLS; what needs a certificate
to come that far has one, as a peer that was broken into would."""

import contextlib
import hashlib
import os
import pathlib
import re
import resource
import socket
import subprocess
import threading
import time
import unittest

from certificates import Authority, client_context
from http2 import Http2Call, message
from process_cluster import (BIN, FAILED, TINY_MODEL, USAGE, Client, Cluster,
                             Program, one_line, wait_until)

COORDINATOR, NODE, OPERATOR = (
    "specwire-coordinator", "specwire-node", "specwire-operator")
KEY = "canary-key-5f0c7e"
PROMPT = "the canary sings of"
ROLES = ["coordinator", "verifier-0", "draft-0"]
# A method of each role that takes a stream of messages.
STREAMS = {
    "coordinator": "/specwire.v1.ClusterService/Join",
    "verifier-0": "/specwire.v1.VerifierService/Decode",
    "draft-0": "/specwire.v1.DraftService/Draft",
}
# The first message of such a stream, and one of the many behind it.
OPEN = {
    # registration {name: "tiny", role: draft, address: "127.0.0.1:1",
    # incarnation_id: "1"}; load {}
    "coordinator": (b"\x0a\x18\x0a\x04tiny\x10\x01\x1a\x0b127.0.0.1:1\x22\x011",
                    b"\x12\x00"),
    # open {tokens: [5, 6], prompt_length: 2, sampling {seed: 1}, max_tokens: 9,
    # decode_until: 2}; tune {}
    "verifier-0": (b"\x0a\x0e\x0a\x02\x05\x06\x10\x02\x1a\x02\x40\x01\x20\x09"
                   b"\x70\x02", b"\x1a\x00"),
    # open {tokens: [5, 6], prompt_length: 2, sampling {seed: 1}, run_length: 4,
    # window: 8}; tune {}
    "draft-0": (b"\x0a\x0e\x0a\x02\x05\x06\x10\x02\x1a\x02\x40\x01\x30\x04"
                b"\x38\x08", b"\x22\x00"),
}
MIB = 1 << 20


def sha256(key):
    return hashlib.sha256(key.encode()).hexdigest()


def resident_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) * 1024


def forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid):
    """The most memory since forget_peak."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * 1024


def num_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class SecureCluster(Cluster):
    """A cluster with TLS and keys; its calls are an operator's."""

    def __init__(self, *coordinator_flags, node_flags=()):
        self.authority = Authority()
        self.keys = self.authority.folder / "keys"
        self.keys.write_text(f"# users\n{sha256(KEY)} canary\n")
        self.key_file = self.authority.folder / "key"
        self.key_file.write_text(KEY + "\n")
        self.identities = {name: self.authority.issue(name, name) for name in
                           (COORDINATOR, NODE, OPERATOR, "anna")}
        super().__init__(*self.identities[COORDINATOR].flags(), "--api_keys",
                         self.keys, *coordinator_flags)
        self.addresses = {}
        node_flags = [*self.identities[NODE].flags(), *node_flags]
        try:
            self.start_coordinator()
            self.start_verifier("verifier-0", TINY_MODEL, *node_flags)
            self.start_draft_node("draft-0", "ngram", *node_flags)
            for name in ROLES:
                self.addresses[name] = self.programs[name].line(
                    r"^listening on (\S+)").group(1)
            self.wait_serving("verifier-0", "draft-0")
        except BaseException:
            self.close()
            raise

    def arguments(self, command, *arguments):
        return [*super().arguments(command),
                *map(str, self.identities[OPERATOR].flags()),
                "--api_key_file", str(self.key_file), *map(str, arguments)]

    def close(self):
        super().close()
        self.authority.close()

    def tls(self, name):
        """How a peer with this certificate connects; None: without one."""
        return client_context(self.authority.ca,
                              name and self.identities[name])

    def insider(self, role):
        return self.tls(NODE if role == "coordinator" else COORDINATOR)

    def user(self, *flags, key=KEY, ca=None):
        """A completion as a user without a certificate asks for it."""
        environment = dict(os.environ)
        environment.pop("SPECWIRE_API_KEY", None)
        if key is not None:
            environment["SPECWIRE_API_KEY"] = key
        return subprocess.run(
            [*Client(self.address).arguments("generate"), "--tls_ca",
             str(ca or self.authority.ca), "--temperature", "0",
             "--max_tokens", "12", *map(str, flags), PROMPT],
            capture_output=True, timeout=60, stdin=subprocess.DEVNULL,
            env=environment)


class Canary(threading.Thread):
    """A user who asks again and again, for a right answer each time."""

    def __init__(self, cluster, expected):
        super().__init__(daemon=True)
        self.cluster, self.expected = cluster, expected
        self.num_right = 0
        self.wrong = []
        self._stop_asking = threading.Event()

    def run(self):
        while not self._stop_asking.is_set():
            answer = self.cluster.user()
            if answer.returncode == 0 and answer.stdout == self.expected:
                self.num_right += 1
            else:
                self.wrong.append((answer.returncode, answer.stderr))
            time.sleep(0.01)

    def stop(self):
        self._stop_asking.set()
        self.join()


class SecurityTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # This side of the floods has descriptors too.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
        cls.cluster = SecureCluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.foreign = Authority()
        cls.addClassCleanup(cls.foreign.close)
        first = cls.cluster.user()
        assert first.returncode == 0, first.stderr
        cls.expected = first.stdout

    @contextlib.contextmanager
    def canary(self, cluster=None, expected=None):
        """Users are served before, during and after."""
        canary = Canary(cluster or self.cluster, expected or self.expected)
        canary.start()
        try:
            wait_until(lambda: canary.num_right > 0 or canary.wrong,
                       "the canary before")
            yield canary
            seen = canary.num_right
            wait_until(lambda: canary.num_right > seen or canary.wrong,
                       "the canary after")
        finally:
            canary.stop()
        self.assertEqual(canary.wrong, [])

    @contextlib.contextmanager
    def during(self, canary):
        """The canary is answered while this lasts."""
        seen = canary.num_right
        yield
        wait_until(lambda: canary.num_right > seen + 1 or canary.wrong,
                   "the canary during")

    def members(self):
        return sorted(node["name"] for node in self.cluster.nodes()
                      if node["state"] != "gone")

    def check_members(self):
        self.assertEqual(self.members(), ["draft-0", "verifier-0"])

    def refused(self, role, tls, path=None, cluster=None):
        """What a peer hears; it must not be served."""
        address = (cluster or self.cluster).addresses[role]
        try:
            with Http2Call(address, path or STREAMS[role], tls) as call:
                call.send(message(OPEN[role][0]))
                self.assertTrue(call.wait_end(), "the call goes on")
                return call.received
        except OSError as error:
            return str(error).encode()

    def test_peers_without_the_right_certificate_are_refused(self):
        foreign = self.foreign.issue("foreign", COORDINATOR, NODE, OPERATOR)
        expired = self.cluster.authority.issue(
            "expired", COORDINATOR, NODE, OPERATOR, days=-1)
        ca = self.cluster.authority.ca
        with self.canary() as canary, self.during(canary):
            for role in ROLES:
                with self.subTest(role=role):
                    self.refused(role, None)
                    self.refused(role, client_context(ca, foreign))
                    self.refused(role, client_context(ca, expired))
                    without = self.refused(role, self.cluster.tls(None))
                    user = self.refused(role, self.cluster.tls("anna"))
                    wanted = NODE if role == "coordinator" else COORDINATOR
                    self.assertIn(wanted.encode(), user)
                    if role == "coordinator":
                        self.assertIn(wanted.encode(), without)
        # None of them has joined.
        self.check_members()

    def test_a_right_peer_of_a_test_like_these_is_served(self):
        """The attacks below would not be refused for being malformed."""
        for role in ROLES[1:]:
            with self.subTest(role=role), Http2Call(
                    self.cluster.addresses[role], STREAMS[role],
                    self.cluster.insider(role)) as call:
                call.send(message(OPEN[role][0]))
                call.read(2)
                self.assertFalse(call.ended, call.received)

    def test_a_node_of_another_authority_does_not_join(self):
        identity = self.foreign.issue("node", NODE)
        node = Program("draft_node", "--coordinator", self.cluster.address,
                       "--drafter", "ngram", *identity.flags())
        try:
            wait_until(lambda: "cannot join" in node.err(), "its complaint")
            self.check_members()
        finally:
            node.kill()

    def test_a_coordinator_of_another_authority_is_not_trusted(self):
        answer = self.cluster.user(ca=self.foreign.ca)
        self.assertEqual(answer.returncode, 3, answer.stderr)

    def test_bad_keys_are_refused(self):
        with self.canary() as canary, self.during(canary):
            for key in [None, "wrong", KEY[:-1], KEY + "x", sha256(KEY)]:
                with self.subTest(key=key):
                    answer = self.cluster.user(key=key)
                    self.assertEqual(answer.returncode, FAILED)
                    self.assertIn(b"API key", answer.stderr)
                    self.assertNotIn(KEY.encode(), answer.stderr)
                    self.assertTrue(one_line(answer.stderr.decode()))
        # A certificate is no key.
        identity = self.cluster.identities["anna"]
        answer = self.cluster.user("--tls_cert", identity.cert, "--tls_key",
                                   identity.key, key=None)
        self.assertEqual(answer.returncode, FAILED, answer.stderr)

    def test_users_cannot_operate(self):
        done = subprocess.run(
            [*Client(self.cluster.address).arguments("nodes"), "--tls_ca",
             self.cluster.authority.ca, "--api_key_file",
             self.cluster.key_file], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(OPERATOR.encode(), done.stderr)

    def test_a_message_of_100_mb_is_refused(self):
        data = b"\0" + (100 * MIB).to_bytes(4, "big") + bytes(100 * MIB)
        with self.canary() as canary:
            for role in ROLES:
                pid = self.cluster.programs[role].pid
                before = resident_bytes(pid)
                forget_peak(pid)
                with self.subTest(role=role), self.during(canary), Http2Call(
                        self.cluster.addresses[role], STREAMS[role],
                        self.cluster.insider(role)) as call:
                    call.send(data)
                    self.assertTrue(call.wait_end())
                    self.assertIn(b"larger than max", call.received)
                    # gRPC 1.51 reads a message before it refuses it.
                    self.assertLess(peak_bytes(pid) - before, 250 * MIB)

    def test_100000_tiny_messages_are_bounded(self):
        with self.canary() as canary:
            for role in ROLES:
                pid = self.cluster.programs[role].pid
                before = resident_bytes(pid)
                first, tiny = OPEN[role]
                with self.subTest(role=role), self.during(canary), Http2Call(
                        self.cluster.addresses[role], STREAMS[role],
                        self.cluster.insider(role)) as call:
                    data = message(first) + message(tiny) * 100_000
                    try:
                        sent = call.send(data)
                        self.assertTrue(sent == len(data) or call.ended)
                    except OSError:
                        pass
                    self.assertLess(resident_bytes(pid) - before, 64 * MIB)
        wait_until(lambda: len(self.members()) == 2, "the false node to be gone")

    def flood(self, address, count):
        """Opens connections; some are silent, others say nonsense. Those that
        were refused at once are not among them."""
        host, _, port = address.rpartition(":")
        connections = []
        for i in range(count):
            try:
                connection = socket.create_connection((host, int(port)), 20)
                connections.append(connection)
                if i % 3 == 1:
                    connection.sendall(b"\x16\x03\x01\x02\x00\x01")
                elif i % 3 == 2:
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            except OSError:
                pass
        return connections

    def test_2000_connections_are_borne(self):
        with self.canary() as canary:
            for role in ROLES:
                pid = self.cluster.programs[role].pid
                before = num_descriptors(pid)
                with self.subTest(role=role):
                    connections = self.flood(self.cluster.addresses[role], 2000)
                    with self.during(canary):
                        pass
                    for connection in connections:
                        connection.close()
                    wait_until(lambda: num_descriptors(pid) < before + 50,
                               "the descriptors to be free again")

    def test_connections_that_say_nothing_are_closed(self):
        address = self.cluster.addresses["verifier-0"]
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 60) as connection:
            self.assertEqual(connection.recv(1), b"")

    def test_more_connections_than_allowed_are_closed(self):
        limit = 64
        with SecureCluster(node_flags=("--max_connections", limit)) as cluster:
            with self.canary(cluster) as canary:
                for role in ROLES[1:]:
                    pid = cluster.programs[role].pid
                    before = num_descriptors(pid)
                    connections = self.flood(cluster.addresses[role], 2000)
                    with self.subTest(role=role), self.during(canary):
                        self.assertLessEqual(num_descriptors(pid),
                                             before + limit)
                    for connection in connections:
                        connection.close()
                    self.assertIn("refused", cluster.programs[role].err())

    def test_a_server_survives_the_end_of_its_descriptors(self):
        low = 120

        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (low, low))
        program = Program("coordinator", "--listen", "127.0.0.1:0",
                          preexec_fn=limit)
        try:
            address = program.line(r"^listening on (\S+)").group(1)
            connections = self.flood(address, 500)
            self.assertLessEqual(num_descriptors(program.pid), low)
            self.assertTrue(program.running())
            for connection in connections:
                connection.close()
            client = Client(address)
            wait_until(lambda: client.run("nodes").returncode == 0,
                       "it to serve again")
        finally:
            self.assertEqual(program.terminate(), 0, program.err())

    def test_secrets_stay_out_of_logs_and_command_lines(self):
        with self.canary():
            self.cluster.user(key="a-wrong-canary-key")
            for pid in [p.pid for p in self.cluster.programs.values()]:
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                self.assertNotIn(KEY.encode(), line)
        for name, program in self.cluster.programs.items():
            log = program.err() + program.out()
            self.assertIn("listening on", log)
            for secret in (KEY, sha256(KEY), PROMPT, "canary", "Bearer",
                           "BEGIN"):
                self.assertNotIn(secret, log, name)

    def test_keys_are_taken_and_given_without_a_restart(self):
        with SecureCluster() as cluster:
            self.assertEqual(cluster.user(key="second").returncode, FAILED)
            scratch = cluster.authority.folder / "keys.new"
            scratch.write_text(sha256("second") + "\n")
            scratch.rename(cluster.keys)
            wait_until(lambda: cluster.user(key="second").returncode == 0,
                       "the new key to be known")
            self.assertEqual(cluster.user().returncode, FAILED)


class ListenTest(unittest.TestCase):
    PROGRAMS = [
        ("coordinator",),
        ("verifier_node", "--coordinator", "127.0.0.1:1", "--advertise",
         "127.0.0.1:0", "--model", TINY_MODEL),
        ("draft_node", "--coordinator", "127.0.0.1:1", "--advertise",
         "127.0.0.1:0", "--drafter", "ngram"),
    ]

    def test_others_are_let_in_with_tls_or_on_purpose_only(self):
        for name, *flags in self.PROGRAMS:
            with self.subTest(program=name):
                done = subprocess.run(
                    [BIN / name, *flags, "--listen", "0.0.0.0:0"],
                    capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, USAGE)
                self.assertTrue(one_line(done.stderr), done.stderr)
                self.assertIn("--tls_cert", done.stderr)
                self.assertIn("--allow_insecure", done.stderr)
                program = Program(name, *flags, "--listen", "0.0.0.0:0",
                                  "--allow_insecure")
                try:
                    program.line(r"^listening on ")
                finally:
                    self.assertEqual(program.terminate(), 0, program.err())

    def test_a_key_does_not_travel_in_the_clear(self):
        environment = dict(os.environ, SPECWIRE_API_KEY=KEY)
        done = subprocess.run(
            [BIN / "specwire", "generate", "--coordinator", "192.0.2.1:7070",
             "the"], capture_output=True, text=True, timeout=60,
            env=environment)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("in the clear", done.stderr)
        self.assertNotIn(KEY, done.stderr)

    def test_keys_serve_without_tls_too(self):
        authority = Authority()
        self.addCleanup(authority.close)
        keys = authority.folder / "keys"
        keys.write_text(sha256(KEY) + "\n")
        key_file = authority.folder / "key"
        key_file.write_text(KEY)
        with Cluster("--api_keys", keys) as cluster:
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            flags = ("--max_tokens", "5", "the")
            refused = cluster.run("generate", *flags)
            self.assertEqual(refused.returncode, FAILED)
            self.assertIn("API key", refused.stderr)
            served = cluster.run("generate", "--api_key_file", key_file, *flags)
            self.assertEqual(served.returncode, 0, served.stderr)


if __name__ == "__main__":
    unittest.main()
