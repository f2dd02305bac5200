# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/ as what they start: one Launch for each program."""

import collections
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess

BIN = pathlib.Path(os.environ["SPECWIRE_TEST_BIN"])
SOURCE = pathlib.Path(os.environ["SPECWIRE_TEST_SOURCE"])
DEPLOY = SOURCE / "deploy"
PROGRAMS = ("coordinator", "verifier_node", "draft_node")
# What shells, systemd and kubelets put in place of variables.
VARIABLE = re.compile(r"\$\$?(?:\w+|\{\w+\}|\(\w+\))")


@dataclasses.dataclass
class Launch:
    """How a file starts a program."""
    where: str
    program: str
    flags: dict             # without "--"; text as it stands there
    environment: dict       # SPECWIRE_... variables
    stop_s: float           # from the signal to SIGKILL
    before_signal_s: float = 0
    image: str = ""

    def value(self, flag):
        return self.flags.get(
            flag, self.environment.get("SPECWIRE_" + flag.upper()))

    def port(self, flag):
        value = self.value(flag)
        return value and int(value.rpartition(":")[2])


class Help:
    """What a program's --help tells."""

    def __init__(self, program, *command):
        self.text = subprocess.run(
            [BIN / program, *command, "--help"], check=True, text=True,
            timeout=60, stdout=subprocess.PIPE).stdout
        self.flags = set(re.findall(r"^  (?:-\w,)?--(\w+)", self.text, re.M))
        self.variables = set(re.findall(r"\(Env:(\w+)\)", self.text))

    def default(self, flag):
        found = re.search(rf"^  --{flag} \w+=(\S+)", self.text, re.M)
        return found and found.group(1)


def seconds(text):
    return float(re.fullmatch(r"(\d+)s?", str(text)).group(1))


def end_limit_s(program):
    """How long a program may take to end when its grace is over."""
    source = ("coordinator/main.cc" if program == "coordinator"
              else "common/rpc/node_main.cc")
    return float(re.search(r"kEndLimit = absl::Seconds\((\d+)\)",
                           (SOURCE / source).read_text()).group(1))


def parse_command(words):
    """(program, flags) of a command line; --flag=value and --flag value."""
    program, flags, words = words[0], {}, list(words[1:])
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"{program}: {word} is no flag")
        name, equals, value = word[2:].partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in flags:
            raise ValueError(f"{program}: --{name} twice")
        flags[name] = value
    return pathlib.PurePath(program).name, flags


class Unit:
    """A systemd unit: values by key, in order."""

    def __init__(self, path):
        text = path.read_text().replace("\\\n", " ")
        self.name = path.name
        self.values = collections.defaultdict(list)
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith(("#", "[")):
                self.values[key].append(value)

    def one(self, key):
        if len(self.values[key]) != 1:
            raise ValueError(f"{self.name}: {key} is given "
                             f"{len(self.values[key])} times")
        return self.values[key][0]

    def launch(self):
        program, flags = parse_command(shlex.split(self.one("ExecStart")))
        env = DEPLOY / "systemd" / pathlib.PurePath(
            self.one("EnvironmentFile")).name
        lines = [line for line in env.read_text().splitlines()
                 if line and not line.startswith("#")]
        return Launch(self.name, program, flags,
                      dict(line.split("=", 1) for line in lines),
                      seconds(self.one("TimeoutStopSec")))


def units():
    return [Unit(path) for path in sorted(DEPLOY.glob("systemd/*.service"))]


def compose_launches(compose):
    launches = []
    for name, service in compose["services"].items():
        words = service["command"]
        if words[:2] == ["sh", "-c"]:
            words = shlex.split(words[2])
            if words.pop(0) != "exec":
                raise ValueError(f"{name}: signals would go to the shell")
        program, flags = parse_command(words)
        launches.append(Launch(f"compose {name}", program, flags,
                               dict(service.get("environment", {})),
                               seconds(service["stop_grace_period"]),
                               image=service["image"]))
    return launches


def workload_launch(workload):
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    program, flags = parse_command(container["command"] + container["args"])
    hook = container.get("lifecycle", {}).get("preStop")
    before = seconds(hook["exec"]["command"][1]) if hook else 0
    return Launch(f"{workload['kind']} {workload['metadata']['name']}",
                  program, flags,
                  {entry["name"]: entry.get("value", "")
                   for entry in container.get("env", [])
                   if entry["name"].startswith("SPECWIRE_")},
                  pod["terminationGracePeriodSeconds"], before,
                  container["image"])


def load_manifests(yaml):
    objects = []
    for path in sorted(DEPLOY.glob("kubernetes/*.yaml")):
        objects += [document for document in
                    yaml.safe_load_all(path.read_text()) if document]
    return objects
