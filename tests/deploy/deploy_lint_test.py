# SPDX-License-Identifier: Apache-2.0
"""What public linters say about deploy/. A linter that cannot be installed
skips its own test."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import lint_tools

SOURCE = pathlib.Path(os.environ["SPECWIRE_TEST_SOURCE"])
DEPLOY = SOURCE / "deploy"
# Units may expose no more than this, of 10 (systemd-analyze security).
MAX_EXPOSURE = 2.0


def run(*command):
    return subprocess.run(
        list(map(str, command)), stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)


class SystemdTest(unittest.TestCase):

    def setUp(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze: apt-get install systemd")
        self.units = sorted(DEPLOY.glob("systemd/*.service"))
        self.assertEqual(len(self.units), 3)

    def test_units_verify(self):
        with tempfile.TemporaryDirectory() as folder:
            # The programs need not be installed where the units are checked.
            copies = []
            for unit in self.units:
                text = unit.read_text()
                copies.append(pathlib.Path(folder, unit.name))
                copies[-1].write_text(
                    text.replace("/opt/specwire/bin/", "/bin/true ", 1))
            result = run("systemd-analyze", "verify", "--man=no",
                         "--recursive-errors=no", *copies)
        complaints = [line for line in result.stdout.splitlines()
                      if "specwire" in line]
        self.assertEqual(complaints, [], result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_units_are_confined(self):
        for unit in self.units:
            with self.subTest(unit.name):
                result = run("systemd-analyze", "security", "--offline=true",
                             f"--threshold={round(MAX_EXPOSURE * 10)}",
                             "--no-pager", unit)
                self.assertEqual(result.returncode, 0, result.stdout)
                self.assertIn("Overall exposure level", result.stdout)


class PackagedLinterTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        missing = lint_tools.make_environment()
        if missing is not None:
            raise unittest.SkipTest(missing)

    def lint(self, *command):
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_yamllint(self):
        self.lint(lint_tools.tool("yamllint"), "--strict", "-c",
                  DEPLOY / ".yamllint.yaml", DEPLOY)

    def test_hadolint(self):
        self.lint(lint_tools.tool("hadolint"), "--failure-threshold", "info",
                  DEPLOY / "Dockerfile")

    def test_compose_schema(self):
        self.lint(lint_tools.tool("check-jsonschema"), "--builtin-schema",
                  "vendor.compose-spec", DEPLOY / "compose.yaml")

    def test_kubernetes_schemas(self):
        manifests = sorted(DEPLOY.glob("kubernetes/*.yaml"))
        self.assertGreater(len(manifests), 3)
        self.lint(lint_tools.tool("kubernetes-validate"), "--strict",
                  *manifests)

    def test_linters_find_mistakes(self):
        """Or their silence would mean nothing."""
        text = (DEPLOY / "kubernetes/verifier.yaml").read_text()
        with tempfile.TemporaryDirectory() as folder:
            manifest = pathlib.Path(folder, "verifier.yaml")
            manifest.write_text(text.replace("replicas:", "replica:", 1))
            compose = pathlib.Path(folder, "compose.yaml")
            compose.write_text("services: {a: {imag: specwire}}\n")
            dockerfile = pathlib.Path(folder, "Dockerfile")
            dockerfile.write_text("FROM debian\nRUN cd /tmp\n")
            for command in (
                    [lint_tools.tool("kubernetes-validate"), "--strict",
                     manifest],
                    [lint_tools.tool("check-jsonschema"), "--builtin-schema",
                     "vendor.compose-spec", compose],
                    [lint_tools.tool("hadolint"), dockerfile]):
                result = run(*command)
                self.assertNotEqual(result.returncode, 0, command)


if __name__ == "__main__":
    unittest.main(verbosity=2)
