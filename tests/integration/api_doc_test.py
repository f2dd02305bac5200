# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/api.md do what stands beside them."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
import unittest

from process_cluster import BIN, PATIENCE_S, SOURCE, UpCluster

DOCUMENT = (SOURCE / "docs/api.md").read_text()
# A command, and what it prints: an object with at least these fields, or the
# beginnings of lines.
EXAMPLE = re.compile(r"```sh\n(.*?)```\n```(json|text)\n(.*?)```", re.DOTALL)


def missing(documented, actual, path="answer"):
    """What of a documented value the actual one lacks."""
    if isinstance(documented, dict):
        if not isinstance(actual, dict):
            return [f"{path} is no object"]
        found = []
        for name, value in documented.items():
            if name not in actual:
                found.append(f"{path}.{name}")
            else:
                found += missing(value, actual[name], f"{path}.{name}")
        return found
    if isinstance(documented, list):
        if not isinstance(actual, list):
            return [f"{path} is no list"]
        if documented and not actual:
            return [f"{path} is empty"]
        return missing(documented[0], actual[0],
                       f"{path}[0]") if documented else []
    if isinstance(documented, str):
        return [] if isinstance(actual, str) else [f"{path} is no text"]
    return []


class ApiDocTest(unittest.TestCase):

    def test_every_example_prints_what_is_shown(self):
        examples = EXAMPLE.findall(DOCUMENT)
        self.assertEqual(len(examples), DOCUMENT.count("```sh\n"))
        self.assertGreater(len(examples), 18)
        with tempfile.NamedTemporaryFile("w", prefix="specwire-") as file:
            file.write(hashlib.sha256(b"operator").hexdigest() + "\n")
            file.flush()
            with UpCluster("--drafter", "ngram", "--inspect",
                           "--operator_keys", file.name) as cluster:
                for command, kind, shown in examples:
                    with self.subTest(command=command):
                        self.check(cluster, command, kind, shown)

    def check(self, cluster, command, kind, shown):
        command = command.replace("127.0.0.1:8080", cluster.http).replace(
            "127.0.0.1:7070", cluster.address).replace(
            "curl ", "curl --fail-with-body ")
        done = subprocess.run(
            ["bash", "-ec", command], capture_output=True, text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "OPERATOR_KEY": "operator",
                 "PATH": f"{BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        if kind == "json":
            self.assertEqual(
                missing(json.loads(shown), json.loads(done.stdout)), [],
                done.stdout)
            return
        lines = done.stdout.splitlines()
        for start in shown.splitlines():
            self.assertTrue(any(line.startswith(start) for line in lines),
                            f"no line begins with {start!r}:\n{done.stdout}")

    def test_every_method_has_an_example(self):
        for name in ("generation", "cluster", "inspect"):
            proto = SOURCE / f"proto/specwire/v1/{name}.proto"
            if not proto.exists():
                continue
            for method, argument in re.findall(r"rpc (\w+)\((stream )?",
                                               proto.read_text()):
                if argument:
                    self.assertIn(f"`{method}`", DOCUMENT)
                    continue
                self.assertIn(f"/api/{method} ", DOCUMENT)

    def test_nodes_methods_are_named(self):
        for name in ("verifier", "draft"):
            text = (SOURCE / f"proto/specwire/v1/{name}.proto").read_text()
            for method in re.findall(r"rpc (\w+)\(", text):
                self.assertIn(f"`{method}`", DOCUMENT)


if __name__ == "__main__":
    unittest.main()
