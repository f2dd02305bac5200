# SPDX-License-Identifier: Apache-2.0
"""What linters cannot know about deploy/: that its files agree with the
programs and with each other."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import lint_tools
from deploy_files import (BIN, DEPLOY, PROGRAMS, SOURCE, VARIABLE, Help, Unit,
                          compose_launches, end_limit_s, load_manifests,
                          units, workload_launch)

yaml = lint_tools.import_yaml()
needs_yaml = unittest.skipIf(yaml is None, "PyYAML cannot be installed")
OPERATIONS = (SOURCE / "docs/operations.md").read_text()


class ProgramsTest(unittest.TestCase):
    """Everything that starts a program."""

    @classmethod
    def setUpClass(cls):
        cls.help = {program: Help(program) for program in PROGRAMS}
        cls.launches = [unit.launch() for unit in units()]
        if yaml is not None:
            cls.launches += compose_launches(
                yaml.safe_load((DEPLOY / "compose.yaml").read_text()))
            cls.launches += [workload_launch(one)
                             for one in load_manifests(yaml)
                             if one["kind"] in ("Deployment", "StatefulSet")]

    def test_each_way_starts_each_role(self):
        ways = 1 if yaml is None else 3
        self.assertEqual(sorted(launch.program for launch in self.launches),
                         sorted(PROGRAMS * ways))

    def test_flags_exist(self):
        for launch in self.launches:
            with self.subTest(launch.where):
                known = self.help[launch.program]
                self.assertEqual(set(launch.flags) - known.flags, set())
                self.assertEqual(
                    set(launch.environment) - known.variables, set())
                twice = {"SPECWIRE_" + flag.upper() for flag in launch.flags}
                self.assertEqual(twice & set(launch.environment), set())

    def test_programs_take_the_flags(self):
        """As far as the certificates, which are not there."""
        for launch in self.launches:
            with self.subTest(launch.where):
                words = [BIN / launch.program]
                for flag in sorted(self.help[launch.program].flags):
                    value = launch.value(flag)
                    if value is None:
                        continue
                    value = VARIABLE.sub("127.0.0.1", value)
                    words.append(f"--{flag}={value}")
                result = subprocess.run(
                    words, stdin=subprocess.DEVNULL, text=True, timeout=60,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertNotEqual(result.returncode, 0)
                self.assertRegex(result.stderr, r"--tls_ca: .* cannot be read")

    def test_all_use_tls(self):
        for launch in self.launches:
            with self.subTest(launch.where):
                for flag in ("tls_cert", "tls_key", "tls_ca"):
                    self.assertTrue(launch.value(flag))
                self.assertIsNone(launch.value("allow_insecure"))
                if launch.program == "coordinator":
                    self.assertTrue(launch.value("api_keys"))

    def test_drains_have_time(self):
        for launch in self.launches:
            with self.subTest(launch.where):
                grace = launch.value("grace")
                if "grace" in self.help[launch.program].flags:
                    self.assertIsNotNone(grace, "not said next to the limit")
                needed = (launch.before_signal_s + float(grace or 0) +
                          end_limit_s(launch.program))
                self.assertGreater(launch.stop_s, needed)

    def test_addresses_agree(self):
        for launch in self.launches:
            with self.subTest(launch.where):
                listen = launch.port("listen")
                self.assertTrue(launch.value("listen").startswith("0.0.0.0:"))
                if launch.program == "coordinator":
                    self.assertTrue(launch.port("http"))
                    continue
                self.assertEqual(launch.port("advertise"), listen)
                self.assertNotIn("0.0.0.0", launch.value("advertise"))
                self.assertTrue(launch.port("metrics"))
                self.assertTrue(launch.value("name"))
                self.assertRegex(launch.value("coordinator"), r"^dns:///")
        for program in PROGRAMS:
            ports = {launch.port("listen") for launch in self.launches
                     if launch.program == program}
            self.assertEqual(len(ports), 1, program)
        [port] = {launch.port("listen") for launch in self.launches
                  if launch.program == "coordinator"}
        self.assertEqual({launch.port("coordinator")
                          for launch in self.launches
                          if launch.program != "coordinator"}, {port})


class GuideTest(unittest.TestCase):
    """What docs/operations.md names."""

    def test_metrics_exist(self):
        names = set(re.findall(r'"(specwire_\w+)"', (
            SOURCE / "common/metrics/names.h").read_text()))
        told = set(re.findall(r"specwire_[a-z]\w+", OPERATIONS))
        told = {re.sub(r"_bucket$", "", name) for name in told}
        self.assertGreater(len(told), 5)
        self.assertEqual(told - names, set())

    def test_flags_of_specwire_exist(self):
        known = set()
        for command in PROGRAMS:
            known |= Help(command).flags
        for command in ("nodes", "generate", "drain"):
            known |= Help("specwire", command).flags
        told = set()
        for line in re.findall(
                r"(?:^    (?:[AB]\$ )?|`)"
                r"((?:specwire (?:nodes|generate|drain)|coordinator|"
                r"verifier_node|draft_node) --?[^`\n]*)", OPERATIONS, re.M):
            told |= set(re.findall(r"--(\w+)", line))
        self.assertGreater(len(told), 10)
        self.assertEqual(told - known, set())

    def test_files_exist(self):
        told = set(re.findall(r"(?:deploy|tests)/[\w./-]+\w", OPERATIONS))
        told = {path for path in told if not path.startswith("deploy/tls")}
        self.assertGreater(len(told), 5)
        self.assertEqual([path for path in told
                          if not (SOURCE / path).exists()], [])


class SystemdUnitsTest(unittest.TestCase):

    def test_units_read_credentials_that_they_load(self):
        for unit in units():
            with self.subTest(unit.name):
                loaded = {entry.partition(":")[0]
                          for entry in unit.values["LoadCredential"]}
                used = re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)",
                                  unit.one("ExecStart"))
                self.assertEqual(loaded, set(used))
                self.assertEqual(len(used), 3)

    def test_units_run_as_a_user_that_exists(self):
        users = re.findall(r"^u (\S+)", (
            DEPLOY / "systemd/specwire.sysusers.conf").read_text(), re.M)
        for unit in units():
            with self.subTest(unit.name):
                self.assertEqual([unit.one("User")], users)
                self.assertEqual(unit.one("Restart"), "on-failure")
                self.assertEqual(unit.one("KillSignal"), "SIGTERM")

    def test_units_allow_the_connections(self):
        for unit in units():
            with self.subTest(unit.name):
                launch = unit.launch()
                connections = int(launch.value("max_connections") or Help(
                    launch.program).default("max_connections"))
                self.assertGreater(int(unit.one("LimitNOFILE")),
                                   2 * connections)

    def test_parser_joins_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.service")
            path.write_text("[Service]\n# A=b\nA=c \\\n  d\nB=1\nB=2\n")
            unit = Unit(path)
        self.assertEqual(unit.one("A").split(), ["c", "d"])
        self.assertRaises(ValueError, unit.one, "B")


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")

    def test_stage_brings_programs_and_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([DEPLOY / "stage.sh", folder, BIN], check=True,
                           timeout=120)
            for program in (*PROGRAMS, "specwire"):
                result = subprocess.run(
                    ["ldd", pathlib.Path(folder, "bin", program)], check=True,
                    env={"LD_LIBRARY_PATH": f"{folder}/lib"}, text=True,
                    stdout=subprocess.PIPE, timeout=60)
                elsewhere = [
                    path for path in re.findall(r"=> (/\S+)", result.stdout)
                    if not re.match(rf"(/usr)?/lib|{re.escape(folder)}/", path)]
                self.assertEqual(elsewhere, [], program)

    def test_image_has_the_packages(self):
        """Of every library that a program names and stage.sh does not bring."""
        if subprocess.run(["sh", "-c", "command -v dpkg-query readelf"],
                          stdout=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no dpkg-query or readelf here")
        final = self.text.rpartition("\nFROM ")[2]
        installed = set(re.search(r"--no-install-recommends(.*?)&&", final,
                                  re.S).group(1).split())
        for program in (*PROGRAMS, "specwire"):
            named = set(re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(
                ["readelf", "-d", BIN / program], check=True, text=True,
                stdout=subprocess.PIPE, timeout=60).stdout))
            resolved = dict(re.findall(
                r"(\S+) => ((?:/usr)?/lib/\S+)", subprocess.run(
                    ["ldd", BIN / program], check=True, text=True,
                    stdout=subprocess.PIPE, timeout=60).stdout))
            # Not those of a build with sanitizers, which nobody deploys.
            named = {name for name in named if not re.match(
                r"lib\w*san\.", name)}
            for library in sorted(named & set(resolved)):
                with self.subTest(program=program, library=library):
                    owner = subprocess.run(
                        ["dpkg-query", "-S", f"*/{library}"], text=True,
                        stdout=subprocess.PIPE, timeout=60).stdout
                    owners = {line.partition(":")[0]
                              for line in owner.splitlines()}
                    # Part of every Debian, or needed by all that is.
                    owners -= {"libc6-dev"}
                    self.assertTrue(
                        owners & (installed | {"libc6", "libgcc-s1"}), owners)

    @unittest.skipIf(yaml is None, "PyYAML cannot be installed")
    def test_image_fits_those_who_use_it(self):
        launches = compose_launches(
            yaml.safe_load((DEPLOY / "compose.yaml").read_text()))
        workloads = [one for one in load_manifests(yaml)
                     if one["kind"] in ("Deployment", "StatefulSet")]
        launches += map(workload_launch, workloads)
        [version] = re.findall(r"project\(\w+ VERSION (\S+)",
                               (SOURCE / "CMakeLists.txt").read_text())
        self.assertEqual({launch.image for launch in launches},
                         {f"specwire:{version}"})
        self.assertIn(f"-t specwire:{version} ", self.text)
        [user] = re.findall(r"^USER (\d+):\d+$", self.text, re.M)
        self.assertEqual(
            {one["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
             for one in workloads}, {int(user)})
        [probed] = re.findall(r"http://127.0.0.1:(\d+)/health", self.text)
        self.assertEqual({launch.port("http") or launch.port("metrics")
                          for launch in launches}, {int(probed)})
        exposed = set(re.search(r"^EXPOSE (.*)$", self.text, re.M)
                      .group(1).split())
        self.assertEqual(exposed, {probed} | {str(launch.port("listen"))
                                              for launch in launches})


@needs_yaml
class ComposeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.services = yaml.safe_load(
            (DEPLOY / "compose.yaml").read_text())["services"]
        cls.launches = {launch.program: launch for launch in compose_launches(
            {"services": cls.services})}

    def test_files_are_mounted(self):
        for name, service in self.services.items():
            mounts = {entry.split(":")[1]: entry for entry in
                      service["volumes"]}
            command = " ".join(service["command"])
            for path in re.findall(r"--(?:tls_\w+|api_keys|model)=(\S+)",
                                   command):
                with self.subTest(name, path=path):
                    folder = str(pathlib.PurePath(path).parent)
                    self.assertIn(folder, mounts)
                    self.assertTrue(mounts[folder].endswith(":ro"))

    def test_nodes_find_the_coordinator(self):
        coordinator = self.services["coordinator"]
        for name in ("verifier", "draft"):
            launch = self.launches[f"{name}_node"]
            target = re.fullmatch(r"dns:///(\w+):\d+",
                                  launch.value("coordinator")).group(1)
            self.assertIn(target, self.services)
            shared = set(self.services[name]["networks"]) & set(
                coordinator["networks"])
            self.assertTrue(shared)
            # It must be possible to have several of them.
            self.assertNotIn("ports", self.services[name])
            self.assertNotIn("container_name", self.services[name])

    def test_nothing_is_privileged(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertTrue(service["read_only"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertIn("no-new-privileges:true",
                              service["security_opt"])
                self.assertIn("memory",
                              service["deploy"]["resources"]["limits"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
