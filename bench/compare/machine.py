# SPDX-License-Identifier: Apache-2.0
"""What a table must say about the machine, and what else ran on it."""

import os
import pathlib
import platform
import re
import subprocess

_TICKS = os.sysconf("SC_CLK_TCK")

# What the engines' kernels can make use of.
ISA_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "i8mm", "sve")


def parse_cpuinfo(text):
    """(model name, [flags of note]) of /proc/cpuinfo."""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    present = set(flags.group(1).split()) if flags else set()
    return (name.group(1).strip() if name else platform.machine(),
            [flag for flag in ISA_FLAGS if flag in present])


def parse_stat(text):
    """CPU seconds of a /proc/PID/stat; its name may hold anything."""
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def parse_system_stat(text):
    """(busy seconds, seconds taken by the hypervisor) of /proc/stat, summed
    over the processors."""
    fields = [int(f) for f in text.splitlines()[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = fields
    return ((user + nice + system + irq + softirq) / _TICKS, steal / _TICKS)


def cpu_seconds(pids):
    """CPU time so far of these processes; one that ended counts as 0."""
    total = 0.0
    for pid in pids:
        try:
            total += parse_stat(pathlib.Path(f"/proc/{pid}/stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


def system_seconds():
    return parse_system_stat(pathlib.Path("/proc/stat").read_text())


def children(pid):
    """Pids of a process's children."""
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def _l3():
    for index in range(8):
        folder = pathlib.Path(
            f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if (folder / "level").read_text().strip() == "3":
                return (folder / "size").read_text().strip()
        except OSError:
            break
    return "unknown"


def _quota():
    """Processors that the control group allows, or None."""
    try:
        quota, period = pathlib.Path(
            "/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def describe():
    name, isa = parse_cpuinfo(pathlib.Path("/proc/cpuinfo").read_text())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "model": name,
        "processors": os.cpu_count(),
        "usable_processors": len(os.sched_getaffinity(0)),
        "cgroup_processors": _quota(),
        "isa": isa,
        "l3": _l3(),
        "memory_gib": pages / 2**30,
        "kernel": platform.release(),
    }


def commit(source):
    """The checkout's commit, with + behind it if files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", source, *arguments], text=True,
                              capture_output=True, check=True).stdout.strip()
    try:
        dirty = git("--no-optional-locks", "status", "--porcelain",
                    "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def build_settings(build_folder):
    """How the programs were compiled, from CMake's cache."""
    try:
        cache = (build_folder / "CMakeCache.txt").read_text()
    except OSError:
        return {}
    settings = {}
    for key in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS",
                "CMAKE_CXX_FLAGS_RELEASE"):
        found = re.search(rf"^{key}:\w+=(.+)$", cache, re.MULTILINE)
        if found:
            settings[key] = found.group(1)
    return settings
