# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/operations.md for two machines, run as they stand there,
with a folder for each machine. Only names, ports and the model differ."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from process_cluster import (BIN, PATIENCE_S, SOURCE, TINY_MODEL, Program,
                             free_port, wait_until)

TITLE = "## Two machines in five commands"


def documented_commands():
    """[(machine, words)], in order."""
    text = (SOURCE / "docs/operations.md").read_text()
    section = text.partition(TITLE)[2].partition("\n## ")[0]
    return [(machine, shlex.split(line)) for machine, line in
            re.findall(r"^    ([AB])\$ (.*)$", section, re.M)]


class TwoMachinesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="specwire-machines-")
        self.addCleanup(folder.cleanup)
        self.machines = {name: pathlib.Path(folder.name, name)
                         for name in "AB"}
        for path in self.machines.values():
            path.mkdir()
        shutil.copy(TINY_MODEL, self.machines["B"] / "model.gguf")
        self.ports = {}
        self.programs = []
        self.addCleanup(self.stop)

    def stop(self):
        for program in self.programs:
            program.process.kill()
            program.process.wait()

    def localized(self, word):
        """On loopback, at ports that are free."""
        found = re.fullmatch(r"(A|B|0\.0\.0\.0|127\.0\.0\.1):(\d+)", word)
        if not found:
            return word
        port = self.ports.setdefault(found.group(2), free_port())
        return f"127.0.0.1:{port}"

    def run_to_end(self, words, cwd):
        result = subprocess.run(
            words, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def do(self, machine, words):
        """What the command prints, if it ends by itself."""
        cwd = self.machines[machine]
        words = [self.localized(word) for word in words]
        if words[0].startswith("deploy/"):
            return self.run_to_end([SOURCE / words[0], *words[1:]], cwd)
        if words[0] == "scp":
            self.assertEqual(words[1], "-r")
            other, _, target = words[3].partition(":")
            shutil.copytree(cwd / words[2], self.machines[other] / target)
            return ""
        if words[0] == "specwire":
            return self.run_to_end([BIN / "specwire", *words[1:]], cwd)
        self.programs.append(Program(*words, cwd=cwd))
        return ""

    def test_documented_commands_make_a_cluster(self):
        commands = documented_commands()
        setup, asking = commands[:5], commands[5:]
        self.assertEqual([words[0] for _, words in setup],
                         ["deploy/make_certs.sh", "scp", "coordinator",
                          "verifier_node", "draft_node"])
        self.assertEqual([words[:2] for _, words in asking],
                         [["specwire", "nodes"], ["specwire", "generate"]])
        for machine, words in setup:
            self.do(machine, words)
        machine, nodes = asking[0]

        def all_serve():
            try:
                listed = json.loads(self.do(machine, [*nodes, "--json"]))
            except AssertionError:
                return False  # It may not listen yet.
            return sorted((node["role"], node["state"]) for node in listed) == [
                ("draft", "serving"), ("verifier", "serving")]
        wait_until(all_serve, "both nodes to serve")
        self.assertIn("serving", self.do(machine, nodes))
        machine, generate = asking[1]
        reply = json.loads(self.do(machine, [*generate, "--json"]))
        self.assertGreater(len(reply["token_ids"]), 0)
        # TLS and keys are on: neither is only in the text.
        without_key = [word for word in generate
                       if word not in ("--api_key_file", "tls/key")]
        with self.assertRaisesRegex(AssertionError, "key"):
            self.do(machine, without_key)

    def test_new_certificates_keep_authority_and_keys(self):
        folder = self.machines["A"] / "tls"
        files = {name: folder / name for name in (
            "ca/ca.crt", "key", "api_keys/keys", "node/tls.crt",
            "node/tls.key")}
        before, after = {}, {}
        for contents in (before, after):
            self.run_to_end([SOURCE / "deploy/make_certs.sh", folder], "/")
            contents.update((name, path.read_bytes())
                            for name, path in files.items())
        kept = {name for name in files if before[name] == after[name]}
        self.assertEqual(kept, {"ca/ca.crt", "key", "api_keys/keys"})
        for key in folder.glob("*/*.key"):
            self.assertEqual(key.stat().st_mode & 0o077, 0)
        self.run_to_end(["openssl", "verify", "-CAfile", files["ca/ca.crt"],
                         files["node/tls.crt"]], "/")


if __name__ == "__main__":
    unittest.main(verbosity=2)
