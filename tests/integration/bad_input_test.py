# SPDX-License-Identifier: Apache-2.0
"""Requests that are refused: each with its message and exit code, and the
servers go on serving."""

import os
import pty
import signal
import subprocess
import unittest

from process_cluster import (BIN, FAILED, UpCluster, one_line,
                             read_health)

CONTEXT = 256

# Flags of `generate --temperature 0`, and what the message must name.
REFUSED = [
    (("",), ["empty"]),
    (("--prompt_ids", ""), ["token_ids"]),
    (("--prompt_ids", "1,320"), ["320"]),
    (("--prompt_ids", "-1"), ["-1"]),
    (("--prompt_ids", "2147483647"), ["2147483647"]),
    (("--prompt_ids", ",".join(["5"] * CONTEXT)), ["256"]),
    (("--prompt_ids", ",".join(["5"] * 5000)), ["5000", "256"]),
    (("a " * 40000,), ["256"]),
    (("--max_tokens", "0", "the"), ["max_tokens"]),
    (("--max_tokens", "-5", "the"), ["max_tokens"]),
    (("--max_tokens", "257", "the"), ["max_tokens", "256"]),
    (("--max_tokens", "2147483647", "the"), ["max_tokens"]),
    (("--max_tokens", "2", "--prompt_ids", ",".join(["5"] * 255)),
     ["max_tokens"]),
    (("--model", "no-such-model", "the"), ["no-such-model", "tiny"]),
    (("--drafter", "no-such-drafter", "the"), ["no-such-drafter", "suffix"]),
    (("--max_draft_tokens", "0", "the"), ["max_draft_tokens"]),
    (("--max_draft_tokens", "33", "the"), ["max_draft_tokens", "32"]),
    (("--window", "257", "the"), ["window", "256"]),
    (("--max_draft_tokens", "8", "--window", "4", "the"), ["window"]),
    (("--patience_us", "-2", "the"), ["patience_us"]),
    # Out of range.
    (("--logprobs", "21", "the"), ["logprobs", "0 to 20"]),
    (("--logprobs", "-1", "the"), ["logprobs", "0 to 20"]),
    (("--prompt_logprobs", "21", "the"), ["prompt_logprobs", "0 to 20"]),
    (("--stop", "", "the"), ["stop", "1 to 256"]),
    (("--stop", "x" * 257, "the"), ["stop", "1 to 256"]),
    (("--stop", "x") * 17 + ("the",), ["stop", "16"]),
    (("--n", "17", "the"), ["n: ", "1 to 16"]),
    (("--n", "0", "the"), ["n: "]),
    (("--temperature", "-1", "the"), ["temperature"]),
    (("--temperature", "nan", "the"), ["temperature"]),
    (("--top_k", "-2", "the"), ["top_k", "-2"]),
    (("--top_p", "0", "the"), ["top_p"]),
    (("--top_p", "1.5", "the"), ["top_p"]),
    (("--min_p", "-0.5", "the"), ["min_p"]),
    (("--repetition_penalty", "0", "the"), ["repetition_penalty"]),
    (("--frequency_penalty", "2.5", "the"), ["frequency_penalty"]),
    (("--presence_penalty", "nan", "the"), ["presence_penalty"]),
    (("--logit_bias", "5=101", "the"), ["logit_bias", "100"]),
    (("--logit_bias", "320=1", "the"), ["logit_bias", "320"]),
    (("--logit_bias", "5=1", "--logit_bias", "5=2", "the"), ["logit_bias"]),
    (("--min_tokens", "-1", "the"), ["min_tokens"]),
    (("--min_tokens", "4", "--max_tokens", "3", "the"), ["min_tokens"]),
    (("--min_tokens", "300", "the"), ["min_tokens"]),
    (("--stop_token_ids", "320", "the"), ["stop_token_ids"]),
    (("--stop_token_ids", "-1", "the"), ["stop_token_ids"]),
]


class BadInputTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = UpCluster()
        cls.good = cls.cluster.generate("--max_tokens", 10, "the")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def check_serves(self):
        again = self.cluster.generate("--max_tokens", 10, "the")
        self.assertEqual(again["token_ids"], self.good["token_ids"])
        self.assertEqual(self.cluster.serving(), ["draft-0", "verifier-0"])
        self.assertEqual(len(self.cluster.children()), 3)

    def test_refusals(self):
        for flags, names in REFUSED:
            temperature = (() if "--temperature" in flags
                           else ("--temperature", "0"))
            for json in ((), ("--json",)):
                with self.subTest(flags=[flag[:60] for flag in flags],
                                  json=json):
                    done = self.cluster.run("generate", *temperature, *json,
                                            *flags)
                    self.assertEqual(done.returncode, FAILED, done.stderr)
                    self.assertEqual(done.stdout, "")
                    self.assertTrue(one_line(done.stderr), done.stderr)
                    for name in names:
                        self.assertIn(name, done.stderr)
        self.check_serves()

    def test_absent_temperature_is_1(self):
        flags = ("--seed", 7, "--max_tokens", 20, "--ignore_eos", "the")
        absent = self.cluster.json("generate", *flags)
        given = self.cluster.json("generate", "--temperature", 1, *flags)
        greedy = self.cluster.generate(*flags)
        self.assertEqual(absent["token_ids"], given["token_ids"])
        self.assertNotEqual(absent["token_ids"], greedy["token_ids"])

    def test_limits_themselves_are_taken(self):
        for flags, tokens in [
            (("--max_tokens", "1", "the"), 1),
            (("--ignore_eos", "--max_tokens", "1", "--prompt_ids",
              ",".join(["5"] * (CONTEXT - 1))), 1),
            (("--ignore_eos", "--prompt_ids",
              ",".join(["5"] * (CONTEXT - 3))), 3),
            (("--ignore_eos", "--max_tokens", str(CONTEXT - 1),
              "--prompt_ids", "5"), CONTEXT - 1),
            (("--ignore_eos", "--max_tokens", "40", "--max_draft_tokens",
              "32", "--window", "256", "--prompt_ids", "319"), 40),
        ]:
            with self.subTest(flags=flags):
                result = self.cluster.generate(*flags)
                self.assertEqual(len(result["token_ids"]), tokens)
                self.assertEqual(result["finish_reason"], "length")
        self.check_serves()

    def test_neutral_values_are_taken(self):
        result = self.cluster.generate(
            "--max_tokens", 10, "--top_k", -1, "--top_p", 1, "--min_p", 0,
            "--repetition_penalty", 1, "--frequency_penalty", 0,
            "--presence_penalty", 0, "--min_tokens", 0, "--n", 1, "--seed", -7,
            "--rule", "coupled", "--model", "tiny", "--drafter", "suffix",
            "the")
        self.assertEqual(result["token_ids"], self.good["token_ids"])
        self.assertEqual(result["seed"], -7)
        plain = self.cluster.generate("--max_tokens", 10, "--drafter", "none",
                                      "the")
        self.assertEqual(plain["token_ids"], self.good["token_ids"])

    def test_stop_tokens_end_with_stop(self):
        ids = self.good["token_ids"]
        result = self.cluster.generate("--max_tokens", 10, "--ignore_eos",
                                       "--stop_token_ids", ids[4], "the")
        cut = ids.index(ids[4]) + 1
        self.assertEqual(result["token_ids"], ids[:cut])
        self.assertEqual(result["finish_reason"], "stop")
        self.assertEqual(result["matched"], {"stop_token_id": ids[4]})

    def test_stop_texts_end_with_stop(self):
        text = self.good["text"]
        stop = text[len(text) // 2:][:3]
        cut = text.index(stop)
        flags = ("--max_tokens", 10, "--ignore_eos", "--stop",
                 "never in this text", "--stop", stop, "the")
        result = self.cluster.generate(*flags)
        self.assertEqual(result["text"], text[:cut])
        self.assertEqual(result["finish_reason"], "stop")
        self.assertEqual(result["matched"], {"stop_text": stop})
        ids = result["token_ids"]
        self.assertEqual(ids, self.good["token_ids"][:len(ids)])
        self.assertEqual(result["usage"]["completion_tokens"], len(ids))
        kept = self.cluster.generate("--include_stop_str_in_output", *flags)
        self.assertEqual(kept["text"], text[:cut] + stop)
        self.assertEqual(kept["token_ids"], ids)

    def test_several_completions(self):
        flags = ("--temperature", 1, "--seed", 7, "--max_tokens", 20,
                 "--ignore_eos", "the")
        alone = self.cluster.json("generate", *flags)
        several = self.cluster.json("generate", "--n", 3, *flags)
        choices = several["choices"]
        self.assertEqual(len(choices), 3)
        self.assertNotIn("token_ids", several)
        self.assertEqual(choices[0]["token_ids"], alone["token_ids"])
        self.assertEqual(len({tuple(c["token_ids"]) for c in choices}), 3)
        self.assertEqual(several["usage"]["completion_tokens"], 60)
        for choice in choices:
            self.assertEqual(choice["finish_reason"], "length")
            self.assertEqual(choice["usage"]["completion_tokens"], 20)
            self.assertEqual(len(choice["origins"]), 20)
        done = self.cluster.run("generate", "--n", 3, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        for i, choice in enumerate(choices):
            self.assertIn(f"--- choice {i}\n{choice['text']}\n", done.stdout)

    def test_json_has_the_agreed_shape(self):
        for key, kind in {
            "token_ids": list, "prompt_token_ids": list, "text": str,
            "finish_reason": str, "seed": int, "model_digest": str,
            "usage": dict, "speculative_decoding": dict, "timings": dict,
        }.items():
            self.assertIsInstance(self.good[key], kind, key)
        self.assertEqual(set(self.good["usage"]) >=
                         {"prompt_tokens", "completion_tokens"}, True)
        self.assertLessEqual(
            {"mean_acceptance_length", "draft_acceptance_rate",
             "num_spec_steps", "num_draft_tokens",
             "num_accepted_draft_tokens", "acceptance_histogram", "rule"},
            set(self.good["speculative_decoding"]))
        self.assertLessEqual({"time_to_first_token_ms", "tokens_per_second"},
                             set(self.good["timings"]))
        self.assertRegex(self.good["model_digest"], "^[0-9a-f]{64}$")
        self.assertEqual(self.good["speculative_decoding"]["rule"], "coupled")
        self.assertEqual(self.good["prompt_token_ids"],
                         self.cluster.json("tokenize", "the")["token_ids"])

    def test_chat_keeps_its_history(self):
        done = self.cluster.run("chat", "--temperature", 0, "--max_tokens", 5,
                                "--ignore_eos", stdin=None,
                                input="the\n\nand\n/exit\nnever sent\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes = [int(line.split()[0]) for line in done.stderr.splitlines()
                 if "prompt tokens" in line]
        self.assertEqual(len(sizes), 2, done.stderr)
        # The first turn's prompt, its answer and the second message.
        self.assertGreater(sizes[1], sizes[0] + 5)

    def test_chat_does_what_its_commands_say(self):
        done = self.cluster.run(
            "chat", "--temperature", 0, "--max_tokens", 5, "--ignore_eos",
            stdin=None, input="/help\nthe\n/new\n/halp me\nthe\n//help\n/quit\nx")
        self.assertEqual(done.returncode, 0, done.stderr)
        for told in ("/new", "/quit", "/halp is no command"):
            self.assertIn(told, done.stderr)
        sizes = [int(line.split()[0]) for line in done.stderr.splitlines()
                 if "prompt tokens" in line]
        self.assertEqual(len(sizes), 3, done.stderr)
        self.assertEqual(sizes[1], sizes[0])
        done = self.cluster.run("chat", stdin=None, input="/halp\n/quit\n")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_chat_on_a_terminal_outlives_one_interrupt(self):
        keys, terminal = pty.openpty()
        self.addCleanup(os.close, keys)
        chat = self.cluster.start("chat", "--temperature", 0, "--max_tokens",
                                  5, "--ignore_eos", stdin=terminal)
        os.close(terminal)
        self.addCleanup(chat.communicate)
        self.addCleanup(chat.kill)
        told = ""

        def wait_for(text):
            nonlocal told
            while text not in told:
                piece = os.read(chat.stderr.fileno(), 4096).decode()
                self.assertTrue(piece, f"{text!r} not in {told!r}")
                told += piece
            told = told[told.index(text) + len(text):]

        wait_for("\n> ")
        for _ in range(2):
            chat.send_signal(signal.SIGINT)
            wait_for("press Ctrl-C again or /quit to leave\n> ")
            os.write(keys, b"the\n")
            wait_for("prompt tokens")
            wait_for("\n> ")
        chat.send_signal(signal.SIGINT)
        wait_for("to leave\n> ")
        chat.send_signal(signal.SIGINT)
        self.assertEqual(chat.wait(60), 0)

    def test_log_probabilities_are_shown_as_text_too(self):
        arguments = ("generate", "--temperature", 0, "--max_tokens", 4,
                     "--ignore_eos", "--logprobs", 2, "--prompt_logprobs", 0,
                     "the and")
        told = self.cluster.json(*arguments, "--json")
        done = self.cluster.run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        before, completion = done.stdout.split(
            "log-probabilities of the completion\n")
        prompt = before.split("log-probabilities of the prompt\n")[1]
        rows = [line.split() for line in completion.splitlines()[1:]]
        self.assertEqual([int(row[1]) for row in rows], told["token_ids"])
        for row, entry in zip(rows, told["logprobs"]):
            self.assertAlmostEqual(float(row[2]), entry["logprob"], 3)
            self.assertIn(f"{entry['top'][1][0]} ", " ".join(row))
        self.assertEqual(len(prompt.splitlines()) - 1,
                         len(told["prompt_token_ids"]))

    def test_text_does_not_steer_the_terminal_and_is_unchanged_elsewhere(self):
        steering = "\x1b]0;mine\x07\x1b[2J\x9b31m\u202e"
        arguments = [BIN / "specwire", "generate", "--coordinator",
                     self.cluster.address, "--temperature", "0",
                     "--max_tokens", "1", "--echo", "--marks", "none",
                     f"a{steering}\tb"]
        piped = subprocess.run(arguments, capture_output=True, timeout=60,
                               stdin=subprocess.DEVNULL)
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertTrue(piped.stdout.startswith(f"a{steering}\tb".encode()),
                        piped.stdout)
        main, terminal = pty.openpty()
        try:
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL,
                                  stdout=terminal, stderr=subprocess.PIPE,
                                  timeout=60)
            shown = os.read(main, 65536).decode()
        finally:
            os.close(terminal)
            os.close(main)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\\x1b]0;mine\\x07\\x1b[2J\\u009b31m\\u202e", shown)
        for character in steering:
            if not character.isprintable():
                self.assertNotIn(character, shown)

    def test_errors_of_a_server_do_not_steer_the_terminal(self):
        done = self.cluster.run("generate", "--model", "\x1b[2J\x9b\u202e",
                                "the")
        self.assertEqual(done.returncode, FAILED)
        self.assertTrue(one_line(done.stderr), done.stderr)
        self.assertTrue(done.stderr.strip().isprintable(), done.stderr)

    def test_score_shows_candidates_where_asked(self):
        done = self.cluster.run("score", "--top", 2, "the and the")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("candidates: ", done.stdout)
        done = self.cluster.run("score", "the and the")
        self.assertNotIn("candidates", done.stdout)

    def test_tokenize(self):
        ids = self.cluster.json("tokenize", "the and")["token_ids"]
        done = self.cluster.run("tokenize", "the and")
        self.assertEqual(done.stdout.split(), [str(i) for i in ids])
        self.assertEqual(self.cluster.json("tokenize", "")["token_ids"], [])
        special = self.cluster.json("tokenize", "<|im_start|>")["token_ids"]
        self.assertEqual(special, [1])
        plain = self.cluster.json("tokenize", "--plain",
                                  "<|im_start|>")["token_ids"]
        self.assertGreater(len(plain), 1)
        unknown = self.cluster.run("tokenize", "--model", "bogus", "x")
        self.assertEqual(unknown.returncode, FAILED)
        self.assertIn("bogus", unknown.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        for arguments in (["nodes"], ["nodes", "--json"], ["stats"],
                          ["tokenize", "x"]):
            with self.subTest(arguments=arguments), open(
                    "/dev/full", "w") as full:
                done = subprocess.run(
                    [BIN / "specwire", *arguments, "--coordinator",
                     self.cluster.address], stdout=full,
                    stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, FAILED, done.stderr)

    def test_health(self):
        self.assertEqual(read_health(self.cluster.http)[0], 200)


if __name__ == "__main__":
    unittest.main()
