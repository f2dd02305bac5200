# SPDX-License-Identifier: Apache-2.0
"""The web console: its files as they are served, and its pages in a browser."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from process_cluster import (MODEL, PATIENCE_S, SOURCE, Cluster, Program,
                             UpCluster)

CONSOLE = SOURCE / "coordinator/http/console"
TESTS = SOURCE / "tests/console"
CHROMIUM = os.environ.get("SPECWIRE_TEST_CHROMIUM") or shutil.which("chromium")
# Screenshots stay here.
PICTURES = pathlib.Path(os.environ["SPECWIRE_TEST_BIN"]).parent / "console"
OPERATOR_KEY = "an-operators-key-for-this-test-alone"
HOSTILE_NAME = "<svg/onload=window.hacked=1>"


def fetch(address, path):
    with urllib.request.urlopen(f"http://{address}{path}",
                                timeout=PATIENCE_S) as answer:
        return answer.read(), answer.headers


def why_no_browser():
    if not os.path.exists(MODEL):
        return "the model is absent; scripts/setup.sh fetches it"
    if CHROMIUM is None:
        return "chromium is absent; scripts/setup.sh --tests installs it"
    if shutil.which("node") is None:
        return "node is absent; scripts/setup.sh --tests installs it"
    if not (TESTS / "node_modules/playwright-core").is_dir():
        return "playwright-core is absent; scripts/setup.sh --tests fetches it"
    return None


def start_bare(cluster):
    """Has no operators, does not inspect, and generates slowly; returns the
    coordinator's pid."""
    coordinator = cluster.start_coordinator()
    cluster.programs["verifier-0"] = Program(
        "verifier_node", "--name", "verifier-0", "--coordinator",
        cluster.address, "--listen", "127.0.0.1:0", "--engine", "synthetic",
        "--allow_synthetic", "--synthetic_step_us", 20000)
    cluster.wait_serving("verifier-0")
    return coordinator.pid


class ServedFilesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.coordinator = Program("coordinator", "--listen", "127.0.0.1:0",
                                  "--http", "127.0.0.1:0")
        cls.http = cls.coordinator.line(r"^http on (\S+)$").group(1)

    @classmethod
    def tearDownClass(cls):
        cls.coordinator.terminate()

    def files(self):
        return [path.relative_to(CONSOLE) for path in CONSOLE.rglob("*")
                if path.suffix in (".html", ".css", ".js")]

    def test_every_file_is_served_as_it_is_in_the_tree(self):
        self.assertGreater(len(self.files()), 10)
        for name in self.files():
            path = "/" if str(name) == "index.html" else f"/{name}"
            body, headers = fetch(self.http, path)
            self.assertEqual(body, (CONSOLE / name).read_bytes(), name)
            kind = {".html": "text/html", ".css": "text/css",
                    ".js": "text/javascript"}[name.suffix]
            self.assertEqual(headers["Content-Type"], f"{kind}; charset=utf-8")
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(
                headers["Content-Security-Policy"],
                "default-src 'none'; script-src 'self'; style-src 'self'; "
                "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                "form-action 'none'; frame-ancestors 'none'")
            self.assertIsNone(headers["Access-Control-Allow-Origin"])

    def test_the_page_is_told_whether_it_may_drain(self):
        body, headers = fetch(self.http, "/console.json")
        self.assertEqual(json.loads(body), {"drain": "no"})
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(headers["Cache-Control"], "no-store")

    def test_nothing_else_is_served(self):
        for path in ("/js/", "/js/../../../main.cc", "/console_routes.cc",
                     "/index.html/"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                fetch(self.http, path)
            self.assertEqual(caught.exception.code, 404, path)
            caught.exception.close()

    def test_nobody_types_a_key_into_a_page_in_the_clear(self):
        coordinator = Program("coordinator", "--listen", "127.0.0.1:0",
                              "--http", "0.0.0.0:0")
        try:
            port = coordinator.line(r"^http on \S+:(\d+)$").group(1)
            address = f"127.0.0.1:{port}"
            self.assertEqual(fetch(address, "/health")[1].get_content_type(),
                             "application/json")
            with self.assertRaises(urllib.error.HTTPError) as caught:
                fetch(address, "/")
            self.assertEqual(caught.exception.code, 404)
            caught.exception.close()
        finally:
            coordinator.terminate()

    def test_the_files_ask_nobody_else(self):
        for name in self.files():
            text = (CONSOLE / name).read_text()
            links = re.findall(r"https?://[^\s\"')]+", text)
            self.assertEqual([link for link in links
                              if not link.startswith("http://www.w3.org/")],
                             [], name)
            for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML",
                         "document.write", "eval(", "localStorage",
                         "sessionStorage", "document.cookie"):
                self.assertNotIn(sink, text, name)


@unittest.skipIf(why_no_browser(), f"NOT TESTED: {why_no_browser()}")
class BrowserTest(unittest.TestCase):

    def test_the_pages_in_a_browser(self):
        """browser_test.mjs prints what it checks."""
        digest = hashlib.sha256(OPERATOR_KEY.encode()).hexdigest()
        PICTURES.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write(f"{digest} test\n")
            keys.flush()
            with UpCluster("--inspect", "--drafter", "suffix", model=MODEL,
                           env={**os.environ,
                                "SPECWIRE_OPERATOR_KEYS": keys.name}
                           ) as cluster, Cluster() as bare:
                stoppable = start_bare(bare)
                # A node whose name is an attack, to be drained later.
                node = Program("draft_node", "--coordinator", cluster.address,
                               "--listen", "127.0.0.1:0", "--drafter", "ngram",
                               "--name", HOSTILE_NAME)
                try:
                    result = subprocess.run(
                        ["node", TESTS / "browser_test.mjs"], timeout=900,
                        env={**os.environ,
                             "CONSOLE_URL": f"http://{cluster.http}/",
                             "CONSOLE_BARE_URL": f"http://{bare.http}/",
                             "CONSOLE_BARE_PID": str(stoppable),
                             "CONSOLE_OPERATOR_KEY": OPERATOR_KEY,
                             "CONSOLE_NODE": HOSTILE_NAME,
                             "CONSOLE_CHROMIUM": CHROMIUM,
                             "CONSOLE_PICTURES": str(PICTURES)},
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True)
                    print(result.stdout)
                    self.assertEqual(result.returncode, 0)
                    # It was drained from the page.
                    self.assertEqual(node.wait(), 0)
                finally:
                    node.kill()


if __name__ == "__main__":
    unittest.main()
