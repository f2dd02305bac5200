# SPDX-License-Identifier: Apache-2.0
"""The command line without a cluster: usage, messages, exit codes."""

import json
import os
import subprocess
import tempfile
import unittest

from process_cluster import (BIN, DATA, FAILED, TINY_MODEL, UNREACHABLE, USAGE,
                             free_port, make_tiny_model, one_line)

QUESTIONS = DATA / "questions.jsonl"


def run(*arguments, environment=None, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([BIN / "specwire", *arguments], capture_output=True,
                          timeout=60, env={**os.environ, **(environment or {})},
                          **options)


class UsageTest(unittest.TestCase):

    def check_refused(self, *arguments, names="", code=USAGE, **options):
        done = run(*arguments, **options)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, code, message)
        self.assertEqual(done.stdout, b"")
        self.assertTrue(one_line(message), message)
        self.assertTrue(message.startswith("specwire: "), message)
        self.assertIn(names, message)

    def test_bad_usage_ends_with_2_and_names_what_is_wrong(self):
        for arguments, names in [
            ((), "subcommand"),
            (("bogus",), "bogus"),
            (("generate",), "PROMPT"),
            (("generate", "--prompt_ids", "1", "text"), "--prompt_ids"),
            (("generate", "--prompt_ids", "1,x"), "--prompt_ids"),
            (("generate", "--prompt_ids", "1", "--chat"), "--chat"),
            (("generate", "--max_tokens", "many", "x"), "--max_tokens"),
            (("generate", "--max_tokens", "99999999999", "x"),
             "--max_tokens"),
            (("generate", "--temperature", "warm", "x"), "--temperature"),
            (("generate", "--seed", "99999999999999999999", "x"),
             "--seed: 99999999999999999999 is no whole number from "
             "-9223372036854775808 to 9223372036854775807"),
            (("generate", "--patience_us", "-99999999999999999999", "x"),
             "--patience_us"),
            (("generate", "--rule", "fair", "x"), "--rule"),
            (("generate", "--marks", "loud", "x"), "--marks"),
            (("generate", "--logit_bias", "7", "x"), "--logit_bias"),
            (("generate", "--bogus", "x"), "--bogus"),
            (("generate", "one", "two"), "two"),
            (("generate", "--coordinator", "nonsense", "x"),
             "--coordinator"),
            (("generate", "--coordinator", "127.0.0.1:99999", "x"),
             "--coordinator"),
            (("generate", "@/nonexistent/file"), "/nonexistent/file"),
            (("bench",), "--dataset"),
            (("bench", "--dataset", "/nonexistent.jsonl"),
             "/nonexistent.jsonl"),
            (("bench", "--dataset", os.devnull), "no question"),
            (("bench", "--dataset", QUESTIONS, "--modes", "fast"), "fast"),
            (("bench", "--dataset", QUESTIONS, "--rate", "nan"), "--rate"),
            (("bench", "--dataset", QUESTIONS, "--rate", "1",
              "--concurrency", "2"), "--concurrency"),
            (("bench", "--dataset", QUESTIONS, "--num", "0"), "--num"),
            (("bench", "--dataset", QUESTIONS, "--num", "many"), "--num"),
            (("bench", "--dataset", QUESTIONS, "--goodput", "ttft:5"),
             "--goodput"),
            (("bench", "--dataset", QUESTIONS, "--raw", "/nonexistent/raw"),
             "/nonexistent/raw"),
            (("bench", "--dataset", QUESTIONS, "--coordinator", "nonsense"),
             "--coordinator"),
            (("bench", "--dataset", QUESTIONS, "more"), "more"),
            (("bench", "--dataset", QUESTIONS, "--modes", "plain", "--drafter",
              "ngram"), "--drafter"),
            (("bench", "--dataset", QUESTIONS, "--threads", "1"), "--sweep"),
            (("bench", "--dataset", QUESTIONS, "--svg", "x.svg"), "--sweep"),
            (("bench", "--dataset", QUESTIONS, "--sweep", "--drafter",
              "ngram"), "--drafter"),
            (("bench", "--dataset", QUESTIONS, "--sweep", "--sweep_drafters",
              "nobody"), "--sweep_drafters"),
            (("bench", "--dataset", QUESTIONS, "--sweep",
              "--sweep_run_lengths", "0"), "--sweep_run_lengths"),
            (("bench", "--dataset", QUESTIONS, "--sweep", "--svg",
              "/nonexistent/plot.svg"), "/nonexistent/plot.svg"),
            (("bench", "--dataset", QUESTIONS, "--sweep", "--sweep_drafters",
              "synthetic", "--engine", "synthetic"), "--allow_synthetic"),
            (("tokenize",), "TEXT"),
            (("nodes", "--coordinator", ""), "--coordinator"),
            (("inspect",), "MODEL"),
            (("inspect", "a", "b", "c"), "c"),
            (("inspect", TINY_MODEL, "--max_model_len", "0"),
             "--max_model_len"),
            (("inspect", TINY_MODEL, "--max_model_len", "257"),
             "--max_model_len: 257 is above the model's context length 256"),
            (("up", "--engine", "magic"), "--engine"),
            (("up", "--drafter", "bogus"), "bogus"),
            (("up", "--verifiers", "0"), "--verifiers"),
            (("up", "--threads", "0"), "--threads"),
            (("up", "--threads", "257"), "--threads"),
            (("up", "--listen", "nonsense", "--model", "m"), "--listen"),
        ]:
            with self.subTest(arguments=arguments):
                self.check_refused(*arguments, names=names)

    def test_a_refused_value_is_shown_in_part_and_not_obeyed(self):
        value = "\x1b]0;mine\x07" + "x" * 100_000
        for program, arguments in [
            ("specwire", ("up", "--drafter", value)),
            ("specwire", ("generate", "--coordinator", value, "text")),
            ("specwire", ("generate", "--logit_bias", value, "text")),
            ("specwire", ("generate", "--prompt_ids", value)),
            ("specwire", (value,)),
            ("draft_node", ("--drafter", value)),
            ("draft_node", ("--drafter", "ngram", "--coordinator", value)),
            ("verifier_node", ("--engine", value)),
            ("coordinator", ("--log_level", value)),
            ("coordinator", (value,)),
        ]:
            with self.subTest(program=program, flags=arguments[:-1]):
                done = subprocess.run(
                    [BIN / program, *arguments], capture_output=True,
                    stdin=subprocess.DEVNULL, timeout=60)
                message = done.stderr.decode()
                self.assertEqual(done.returncode, USAGE, message[:2000])
                self.assertTrue(one_line(message), message[:2000])
                self.assertTrue(message.strip().isprintable(), message[:2000])
                self.assertLess(len(message), 2500)

    def test_text_that_is_not_utf8_is_bad_usage(self):
        self.check_refused("generate", b"\xff", names="UTF-8")
        self.check_refused("tokenize", "-", names="UTF-8", stdin=None,
                           input=b"a\xff")

    def test_a_text_beyond_the_limit_is_bad_usage(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"a" * (4 * 1024 * 1024 + 1))
            file.flush()
            self.check_refused("tokenize", "@" + file.name, names="4 MiB")

    def test_no_coordinator_ends_with_3_and_says_what_to_do(self):
        address = f"127.0.0.1:{free_port()}"
        other = f"127.0.0.1:{free_port()}"
        for arguments in [
            ("generate", "--temperature", "0", "x"),
            ("generate", "--json", "x"),
            ("generate", "--top_k", "-1", "--patience_us", "-1", "nodes"),
            ("chat",),
            ("tokenize", "x"),
            ("nodes",),
            ("nodes", "--json"),
            ("stats",),
            ("stats", "--json"),
            ("bench", "--dataset", QUESTIONS),
        ]:
            with self.subTest(arguments=arguments):
                self.check_refused(
                    arguments[0], "--coordinator", f"{address},{other}",
                    *arguments[1:], code=UNREACHABLE, names=other)
        self.check_refused("nodes", names="specwire up", code=UNREACHABLE,
                           environment={"SPECWIRE_COORDINATOR": address})

    def test_a_config_file_with_an_unknown_name_is_bad_usage(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("[generate]\nmax_tokns = 3\n")
            file.flush()
            self.check_refused("--config", file.name, "generate", "x",
                               names="max_tokns")

    def test_closed_standard_input_is_an_empty_one(self):
        done = subprocess.run(
            ["sh", "-c", 'exec "$0" generate --coordinator 127.0.0.1:1 - <&-',
             BIN / "specwire"], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, UNREACHABLE, done.stderr)

    def test_flags_come_before_files_and_files_before_variables(self):
        ports = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(f'[nodes]\ncoordinator = "{ports[1]}"\n')
            file.flush()
            environment = {"SPECWIRE_COORDINATOR": ports[2]}
            self.check_refused("nodes", "--config", file.name,
                               "--coordinator", ports[0], names=ports[0],
                               code=UNREACHABLE, environment=environment)
            self.check_refused("nodes", "--config", file.name, names=ports[1],
                               code=UNREACHABLE, environment=environment)
            self.check_refused("nodes", names=ports[2], code=UNREACHABLE,
                               environment=environment)

    def test_inspect_ends_with_what_it_found(self):
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "other.gguf")
            make_tiny_model(other, "--layers", "2", "--permute_vocab")
            done = run("inspect", TINY_MODEL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"KV cache of 256\n", done.stdout)
            done = run("inspect", TINY_MODEL, "--json", "--max_model_len",
                       "100")
            self.assertEqual(done.returncode, 0, done.stderr)
            model = json.loads(done.stdout)
            self.assertEqual(model["vocab_size"], 320)
            self.assertEqual(
                [cache["max_model_len"]
                 for cache in model["memory"][0]["kv_cache"]], [100])
            done = run("inspect", TINY_MODEL, TINY_MODEL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"can draft for", done.stdout)
            # The smaller one is to draft, whichever is named first.
            for pair in ((TINY_MODEL, other), (other, TINY_MODEL)):
                done = run("inspect", *pair)
                self.assertEqual(done.returncode, FAILED, done.stderr)
                self.assertTrue(one_line(done.stdout.decode()))
                self.assertTrue(done.stdout.decode().startswith(
                    f"{other} cannot draft for {TINY_MODEL}: "), done.stdout)
            done = run("inspect", "--json", TINY_MODEL, other)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            pair = json.loads(done.stdout)
            self.assertEqual((pair["draft_model"], pair["target"],
                              pair["fits"]), (other, TINY_MODEL, False))
            self.assertIn("token 3", pair["reason"])
            missing = os.path.join(folder, "missing.gguf")
            for arguments in ((missing,), (TINY_MODEL, missing),
                              (folder,), (os.devnull,)):
                self.check_refused("inspect", *arguments, code=FAILED,
                                   names=arguments[-1])

    def test_help_and_version_end_with_0(self):
        for arguments in [("--help",), ("--version",), ("generate", "--help"),
                          ("up", "--help"), ("stats", "--help"),
                          ("bench", "--help"), ("inspect", "--help")]:
            done = run(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertNotEqual(done.stdout, b"")

    def test_every_program_tells_its_version(self):
        version = run("--version").stdout.decode().split()[1]
        for program in ("coordinator", "verifier_node", "draft_node"):
            done = subprocess.run([BIN / program, "--version"],
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.decode(), f"{program} {version}\n")


if __name__ == "__main__":
    unittest.main()
