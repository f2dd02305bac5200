# SPDX-License-Identifier: Apache-2.0
"""specwire up: READY, its children's lives, what cannot start."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from process_cluster import (BIN, DATA, FAILED, Cluster, MODEL, PATIENCE_S, Program,
                             TINY_MODEL, UpCluster, alive, free_port,
                             make_tiny_model, one_line, read_health,
                             read_metrics, wait_until)


def command_name(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


class UpTest(unittest.TestCase):

    def test_ready_means_that_everything_serves(self):
        with UpCluster("--verifiers", 2, "--draft_nodes", 2) as cluster:
            nodes = cluster.nodes()
            self.assertEqual(
                {(node["name"], node["role"], node["state"]) for node in nodes},
                {("verifier-0", "verifier", "serving"),
                 ("verifier-1", "verifier", "serving"),
                 ("draft-0", "draft", "serving"),
                 ("draft-1", "draft", "serving")})
            children = cluster.children()
            self.assertEqual(
                sorted(map(command_name, children)),
                ["coordinator", "draft_node", "draft_node", "verifier_node",
                 "verifier_node"])
            for node in nodes:
                self.assertIn(node["pid"], children)
                self.assertEqual(node["num_sequences"], 0)
                self.assertEqual(node["reason"], "")
                self.assertRegex(node["address"], r"^127\.0\.0\.1:\d+$")
            for pid in children:
                self.assertEqual(os.getpgid(pid),
                                 os.getpgid(cluster.program.pid))
            self.assertEqual(read_health(cluster.http)[0], 200)
            self.assertTrue(any(series.startswith("specwire_nodes{")
                                for series in read_metrics(cluster.http)))
            table = cluster.run("nodes").stdout
            self.assertIn("verifier-1", table)
            self.assertIn("SEQUENCES", table)

    def test_all_models_compute_as_asked_on_their_share_of_processors(self):
        processors = len(os.sched_getaffinity(0))
        for engine in ("int8", "reference"):
            with self.subTest(engine=engine), UpCluster(
                    "--engine", engine, "--drafter", "model",
                    "--draft_layers", 1) as cluster:
                log = cluster.program.err()
                self.assertRegex(
                    log, r"threads: verifier \d+, draft node 1 of [1-9]\d* ")
                told = re.search(
                    r"verifier_node: model tiny, engine (\w+), .* "
                    r"threads (\d+)$", log, re.MULTILINE)
                self.assertIsNotNone(told, log)
                self.assertEqual(told.group(1), engine)
                # A quota may allow fewer.
                self.assertLessEqual(int(told.group(2)), processors)
                self.assertEqual(
                    {node["name"]: node["engine"] for node in cluster.nodes()},
                    {"verifier-0": engine, "draft-0": ""})
                cluster.generate("--max_tokens", 5, "the")

    def test_a_signal_ends_all_children(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=sent):
                cluster = UpCluster()
                children = cluster.children()
                self.assertEqual(len(children), 3)
                cluster.program.process.send_signal(sent)
                self.assertEqual(cluster.program.wait(20), 0)
                self.assertFalse([pid for pid in children if alive(pid)])

    def test_a_terminals_interrupt_ends_the_whole_group(self):
        cluster = UpCluster(start_new_session=True)
        children = cluster.children()
        self.assertEqual(len(children), 3)
        os.killpg(cluster.program.pid, signal.SIGINT)
        self.assertEqual(cluster.program.wait(20), 0)
        self.assertFalse([pid for pid in children if alive(pid)])

    def test_children_die_with_it_even_if_it_is_killed(self):
        cluster = UpCluster()
        children = cluster.children()
        self.assertEqual(len(children), 3)
        cluster.program.kill()
        wait_until(lambda: not [pid for pid in children if alive(pid)],
                   "the children to end", 10)

    def test_a_child_that_dies_is_not_restarted_and_the_others_stay(self):
        with UpCluster() as cluster:
            victim = next(node["pid"] for node in cluster.nodes()
                          if node["role"] == "draft")
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: f"draft-0 (pid {victim}) was killed by signal 9"
                       in cluster.program.err(), "the death to be logged")
            wait_until(lambda: cluster.serving() == ["verifier-0"],
                       "the draft node to leave")
            self.assertTrue(cluster.program.running())
            self.assertEqual(len(cluster.children()), 2)
            result = cluster.generate("--max_tokens", 5, "the")
            self.assertLessEqual(len(result["token_ids"]), 5)

    def test_it_ends_when_all_children_have_died(self):
        cluster = UpCluster()
        for pid in cluster.children():
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(cluster.program.wait(20), FAILED)

    def test_a_stopped_child_does_not_outlive_it(self):
        cluster = UpCluster()
        children = cluster.children()
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        # A second signal cuts the grace short.
        cluster.program.process.terminate()
        with self.assertRaises(subprocess.TimeoutExpired):
            cluster.program.wait(1)
        cluster.program.process.terminate()
        self.assertEqual(cluster.program.wait(20), 0)
        self.assertFalse([pid for pid in children if alive(pid)])

    def test_variables_of_its_flags_do_not_reach_the_children(self):
        environment = {**os.environ, "SPECWIRE_HTTP": "none",
                       "SPECWIRE_LISTEN": "127.0.0.1:0",
                       "SPECWIRE_MODEL": TINY_MODEL}
        with tempfile.NamedTemporaryFile() as output:
            up = subprocess.Popen([BIN / "specwire", "up"], stdout=output,
                                  stderr=subprocess.DEVNULL, env=environment)

            def text():
                with open(output.name) as file:
                    return file.read()
            try:
                wait_until(lambda: "READY" in text() or
                           up.poll() is not None, "READY")
                self.assertIsNone(up.poll())
                self.assertNotIn("http", text())
            finally:
                up.terminate()
                self.assertEqual(up.wait(PATIENCE_S), 0)


# Passes of tiny models are faster than any drafter.
WAITING = ("--patience_us", -1, "--max_draft_tokens", 4)


class SmallerModelTest(unittest.TestCase):
    """Ordinary models that draft for a larger one."""

    def check_drafts(self, cluster, drafter):
        flags = ("--max_tokens", 60, "the")
        plain = cluster.generate("--no_speculation", *flags)
        drafted = cluster.generate("--drafter", drafter, *WAITING, *flags)
        self.assertEqual(drafted["token_ids"], plain["token_ids"])
        stats = drafted["speculative_decoding"]
        self.assertGreater(stats["num_accepted_draft_tokens"], 0, stats)
        self.assertLess(stats["num_accepted_draft_tokens"],
                        stats["num_draft_tokens"])

    def test_one_with_the_same_vocabulary_drafts(self):
        with tempfile.TemporaryDirectory() as folder:
            small = os.path.join(folder, "small.gguf")
            # The target's first layers, in a file of their own; it has one
            # unused token more.
            make_tiny_model(small, "--layers", "2", "--name", "small",
                            "--vocab_padding", "1", "--context_length", "128")
            for drafter in ("model", "hybrid"):
                with self.subTest(drafter=drafter), UpCluster(
                        "--drafter", drafter, "--draft_model",
                        small) as cluster:
                    self.assertEqual(
                        [node["state"] for node in cluster.nodes()],
                        ["serving"] * 2)
                    self.check_drafts(cluster, drafter)

    def test_folders_draft_for_one_another(self):
        families = DATA / "families"
        with UpCluster("--drafter", "model", "--draft_model",
                       families / "llama3", model=families / "smollm2"
                       ) as cluster:
            result = cluster.generate("--max_tokens", 40, "--drafter",
                                      "model", *WAITING, "the")
            plain = cluster.generate("--max_tokens", 40, "--no_speculation",
                                     "the")
            self.assertEqual(result["token_ids"], plain["token_ids"])
            # Random models of two families agree by chance alone.
            self.assertGreater(
                result["speculative_decoding"]["num_draft_tokens"], 0)

    def test_one_with_another_vocabulary_is_listed_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
            other = os.path.join(folder, "other.gguf")
            make_tiny_model(other, "--layers", "2", "--permute_vocab")
            cluster.start_coordinator()
            cluster.start_verifier()
            cluster.wait_serving("verifier-0")
            cluster.start_draft_node("draft-0", "model", "--draft_model",
                                     other)
            wait_until(lambda: "incompatible" in
                       [node["state"] for node in cluster.nodes()],
                       "the draft node to be judged")
            node = next(node for node in cluster.nodes()
                        if node["name"] == "draft-0")
            self.assertRegex(
                node["reason"], r"its drafter is for vocabulary \w+, the "
                r"verifiers have 59549810")
            self.assertLessEqual(len(cluster.generate(
                "--max_tokens", 5, "the")["token_ids"]), 5)


class CannotStartTest(unittest.TestCase):

    def check_fails(self, *flags, names, listen="127.0.0.1:0",
                    http="127.0.0.1:0", lines=False):
        program = Program("specwire", "up", "--listen", listen, "--http", http,
                          *flags)
        try:
            self.assertEqual(program.wait(30), FAILED, program.err())
        finally:
            program.kill()
        self.assertNotIn("READY", program.out())
        for name in names:
            self.assertIn(name, program.err())
        if lines:
            self.assertTrue(one_line(program.err()), program.err())

    def test_a_model_file_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "missing.gguf")
            self.check_fails("--model", missing,
                             names=[missing, "verifier-0 exited with 1"])
            other = os.path.join(folder, "other.gguf")
            with open(other, "wb") as file:
                file.write(b"This is no model.\n" * 100)
            self.check_fails("--model", other,
                             names=[other, "verifier-0 exited with 1"])
            empty = os.path.join(folder, "empty.gguf")
            open(empty, "wb").close()
            self.check_fails("--model", empty, names=[empty])
            self.check_fails("--model", folder, names=[folder])
            with open(TINY_MODEL, "rb") as file:
                data = file.read()
            for size in (3, 20, 1000, len(data) // 2, len(data) - 1):
                truncated = os.path.join(folder, f"truncated-{size}.gguf")
                with open(truncated, "wb") as file:
                    file.write(data[:size])
                with self.subTest(size=size):
                    self.check_fails("--model", truncated, names=[truncated])

    def test_the_real_model_truncated(self):
        with tempfile.TemporaryDirectory() as folder:
            truncated = os.path.join(folder, "truncated.gguf")
            with open(MODEL, "rb") as file, open(truncated, "wb") as copy:
                copy.write(file.read(50_000_000))
            self.check_fails("--model", truncated, names=[truncated])

    def test_a_draft_model_that_cannot_be_read(self):
        self.check_fails("--model", TINY_MODEL, "--drafter", "oracle",
                         "--draft_model", "/nonexistent.gguf",
                         names=["/nonexistent.gguf",
                                "draft-0 exited with 1"])

    def test_a_draft_model_with_another_vocabulary(self):
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "other.gguf")
            make_tiny_model(other, "--permute_vocab")
            for drafter in ("oracle", "model", "hybrid"):
                self.check_fails(
                    "--model", TINY_MODEL, "--drafter", drafter,
                    "--draft_model", other, lines=True,
                    names=[f"--draft_model: {other} cannot draft for "
                           f"{TINY_MODEL}: their vocabularies differ, of 320 "
                           "and 320 tokens; the first difference is token 3, "
                           "which is "])

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.check_fails("--model", TINY_MODEL, listen=address,
                             names=[address, "--listen"], lines=True)
            self.check_fails("--model", TINY_MODEL, http=address,
                             names=[address, "--http"], lines=True)
            self.check_fails("--model", TINY_MODEL, "--metrics", address,
                             names=[address, "--metrics"], lines=True)

    def test_a_port_that_another_cluster_has(self):
        with UpCluster() as cluster:
            self.check_fails("--model", TINY_MODEL, listen=cluster.address,
                             names=[cluster.address], lines=True)
            self.assertEqual(cluster.serving(), ["draft-0", "verifier-0"])

    def test_programs_say_by_themselves_what_is_wrong(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            nobody = f"127.0.0.1:{free_port()}"
            node = ("--coordinator", nobody, "--listen", "127.0.0.1:0")
            verifier = ("verifier_node", *node, "--model", TINY_MODEL)
            draft = ("draft_node", *node, "--drafter", "ngram")
            for arguments, code, names in [
                (("coordinator", "--listen", address), 1, address),
                (("coordinator", "--listen", "127.0.0.1:0", "--http",
                  address), 1, address),
                (("coordinator", "--listen", "nonsense"), 2, "listen"),
                (("coordinator", "--bogus"), 2, "bogus"),
                ((*verifier, "--listen", address), 2, "listen"),
                (("verifier_node", "--coordinator", nobody, "--listen",
                  address, "--model", TINY_MODEL), 1, address),
                ((*verifier, "--metrics", address), 1, address),
                (("verifier_node", *node, "--model", "/nonexistent.gguf"), 1,
                 "/nonexistent.gguf"),
                (("verifier_node", "--model", TINY_MODEL), 2, "coordinator"),
                ((*verifier, "--engine", "magic"), 2, "int8, reference"),
                ((*verifier, "--kv_cache_mib", "0"), 2, "kv_cache_mib"),
                ((*verifier, "--max_model_len", "100000"), 1,
                 "--max_model_len: 100000"),
                ((*verifier, "--local_drafter", ""), 2, "--local_drafter"),
                ((*verifier, "--local_drafter", "hybrid",
                  "--local_draft_model", "/nonexistent.gguf"), 1,
                 "--local_draft_model: /nonexistent.gguf"),
                (("draft_node", *node, "--drafter", "model", "--draft_model",
                  TINY_MODEL, "--draft_layers", "99"), 1,
                 "--draft_layers: 99"),
                ((*draft, "--synthetic_acceptance", "0.5"), 2,
                 "--synthetic_acceptance"),
                (("draft_node", "--coordinator", nobody, "--listen", address,
                  "--drafter", "ngram"), 1, address),
                (("draft_node", *node, "--drafter", "bogus"), 2, "ngram"),
                (("draft_node", *node, "--drafter", "oracle"), 2,
                 "draft_model"),
                (("draft_node", *node), 2, "drafter"),
                ((*draft, "--metrics", "nonsense"), 2, "metrics"),
            ]:
                with self.subTest(arguments=arguments):
                    program = Program(*arguments)
                    try:
                        self.assertEqual(program.wait(30), code,
                                         program.err())
                    finally:
                        program.kill()
                    self.assertIn(names, program.err())
                    # Before the target is read, which may take minutes.
                    if "--local_draft_model" in arguments:
                        self.assertNotIn("engine reference", program.err())
                        self.assertNotIn("digest", program.err())


    def test_a_draft_model_that_cannot_be_used_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "broken.gguf")
            with open(TINY_MODEL, "rb") as file:
                model = file.read()
            self.assertEqual(model.count(b"smollm"), 1)
            with open(broken, "wb") as file:
                file.write(model.replace(b"smollm", b"smollx"))
            node = ("--coordinator", f"127.0.0.1:{free_port()}", "--listen",
                    "127.0.0.1:0")
            for arguments, flag in (
                    (("draft_node", *node, "--drafter", "model",
                      "--draft_model", broken), "--draft_model"),
                    (("verifier_node", *node, "--model", TINY_MODEL,
                      "--local_drafter", "hybrid", "--local_draft_model",
                      broken), "--local_draft_model")):
                with self.subTest(arguments=arguments):
                    program = Program(*arguments)
                    try:
                        self.assertEqual(program.wait(30), FAILED,
                                         program.err())
                    finally:
                        program.kill()
                    self.assertIn(f"{flag}: {broken}: ", program.err())


if __name__ == "__main__":
    unittest.main()
