# SPDX-License-Identifier: Apache-2.0
"""Commands in README.md and docs/ are such as can be typed: the programs know
their flags, and the files that they name are in the repository, or made by the
command before."""

import functools
import re
import shlex
import subprocess
import unittest

from process_cluster import BIN, SOURCE

DOCUMENTS = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md",
             *sorted((SOURCE / "docs").glob("*.md")),
             *sorted((SOURCE / "examples").glob("*/README.md"))]
PROGRAMS = ("specwire", "coordinator", "verifier_node", "draft_node")
# Of these folders every file is in the repository.
FOLDERS = ("bench/", "scripts/", "tools/", "draft_node/", "docs/", "tests/")


@functools.cache
def flags_of(*command):
    """The flags that --help lists; None if there is no such command."""
    done = subprocess.run([BIN / command[0], *command[1:], "--help"],
                          capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    return set(re.findall(r"--[a-z][a-z0-9_]*", done.stdout))


def code_blocks(text):
    """Indented and fenced blocks of code, as lists of lines."""
    block, fenced = [], False
    for line in text.replace("\\\n", " ").splitlines() + ["end"]:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            block.append(line.strip())
        elif line.strip() and block:
            yield block
            block = []


def commands(block):
    for line in block:
        line = re.sub(r"^([A-Z]?\$) ", "", line)
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            # What a program prints.
            continue
        command = []
        for word in words + ["&&"]:
            if word in ("&&", "|", "&", ";"):
                while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                    command = command[1:]
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def program_of(word):
    name = word.removeprefix("build/release/bin/")
    return name if name in PROGRAMS else None


class CommandsTest(unittest.TestCase):

    def check_flags(self, words):
        program = program_of(words[0])
        known = flags_of(program)
        self.assertIsNotNone(known, program)
        if program == "specwire" and len(words) > 1:
            command = next((word for word in words[1:]
                            if not word.startswith("-")), None)
            # A word in capitals stands for any.
            if command and command.islower():
                of_command = flags_of(program, command)
                self.assertIsNotNone(of_command, f"no command {command}")
                known = known | of_command
        for word in words[1:]:
            flag = re.match(r"--[a-z][a-z0-9_]*", word)
            if flag:
                self.assertIn(flag[0], known, words)

    def check_files(self, words, made):
        for word in words:
            if word.startswith("@") and not word[1:].isupper():
                self.assertTrue((SOURCE / word[1:]).is_file() or
                                word[1:] in made, f"{word} is nowhere")
            elif word.startswith(FOLDERS):
                self.assertTrue((SOURCE / word).exists(), f"{word} is nowhere")

    def test_blocks_of_code(self):
        seen = 0
        for document in DOCUMENTS:
            for block in code_blocks(document.read_text()):
                made = set()
                for words in commands(block):
                    if program_of(words[0]) is None and \
                            not words[0].startswith(FOLDERS):
                        if ">" in words:
                            made.update(words[words.index(">") + 1:])
                        continue
                    seen += 1
                    with self.subTest(document=document.name,
                                      command=" ".join(words)):
                        self.check_files(words, made)
                        if program_of(words[0]):
                            self.check_flags(words)
        self.assertGreater(seen, 50)

    def test_commands_in_the_text(self):
        seen = 0
        for document in DOCUMENTS:
            text = re.sub(r"^( {4}[^\n]*|```.*?^```)$", "", document.read_text(),
                          flags=re.MULTILINE | re.DOTALL)
            for span in re.findall(r"`([^`]+)`", text):
                words = span.split()
                if not words or program_of(words[0]) is None or \
                        "--" not in span:
                    continue
                seen += 1
                with self.subTest(document=document.name, command=span):
                    self.check_flags(words)
        self.assertGreater(seen, 20)


if __name__ == "__main__":
    unittest.main()
