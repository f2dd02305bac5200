# SPDX-License-Identifier: Apache-2.0
"""deploy/grafana and deploy/prometheus against a real Prometheus that scrapes a
running cluster: every query of the dashboard returns data, every alarm's rule
loads and evaluates, and no rate is negative although nodes were restarted."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from process_cluster import (DATA, PATIENCE_S, SOURCE, Cluster, LongModelTest,
                             free_port, wait_until)

DASHBOARD = SOURCE / "deploy/grafana/specwire.json"
ALERTS = SOURCE / "deploy/prometheus/alerts.yml"
CONFIG = SOURCE / "deploy/prometheus/prometheus.yml"
OPERATIONS = SOURCE / "docs/operations.md"
PROMPT = "the cat and the dog and the cat and the dog and the"
# What Grafana would put in.
RATE_INTERVAL = "6s"
STEP_S = 0.5


class Prometheus:
    """A server with a data folder of its own, scraping every half second."""

    def __init__(self, folder, targets):
        self.address = f"127.0.0.1:{free_port()}"
        config = pathlib.Path(folder, "prometheus.yml")
        config.write_text(
            "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
            f"rule_files: [{ALERTS}]\n"
            "scrape_configs:\n"
            "  - job_name: specwire\n"
            f"    static_configs: [{{targets: {json.dumps(targets)}}}]\n")
        self._log = open(pathlib.Path(folder, "log"), "wb")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={config}",
             f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.address}"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env={**os.environ, "GOMAXPROCS": "1"})
        wait_until(self._ready, "Prometheus to be ready")

    def _ready(self):
        if self._process.poll() is not None:
            raise AssertionError(
                pathlib.Path(self._log.name).read_text(errors="replace"))
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready",
                                        timeout=PATIENCE_S) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?" + urllib.parse.urlencode(
            parameters)
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(
                f"{parameters}: {error.read().decode()}") from error

    def query(self, expression):
        """[(labels, value)] now."""
        return [(one["metric"], float(one["value"][1])) for one in
                self.get("query", query=expression)["result"]]

    def query_range(self, expression, start):
        """[(labels, [values])] since `start`."""
        return [(one["metric"], [float(value) for _, value in one["values"]])
                for one in self.get("query_range", query=expression,
                                    start=start, end=time.time(),
                                    step=STEP_S)["result"]]

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(30)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._log.close()


class Load:
    """Requests of all kinds, a few at once, until it is told to stop."""

    KINDS = (
        ("--max_tokens", 60, "--ignore_eos"),
        ("--max_tokens", 40, "--ignore_eos", "--drafter", "ngram",
         "--patience_us", 20000),
        ("--max_tokens", 40, "--ignore_eos", "--drafter", "model",
         "--patience_us", 20000),
        ("--max_tokens", 40, "--ignore_eos", "--n", 2, "--temperature", 1),
        ("--max_tokens", 60, "--drafter", "local"),
        ("--max_tokens", 20, "--no_speculation"),
        # Refused.
        ("--temperature", -1),
    )

    def __init__(self, cluster, num_threads=2):
        self._cluster = cluster
        self._stop = threading.Event()
        self.num_done = 0
        self._threads = [threading.Thread(target=self._run, args=(i,))
                         for i in range(num_threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        while not self._stop.is_set():
            kind = self.KINDS[number % len(self.KINDS)]
            number += 1
            done = self._cluster.run("generate", *kind, PROMPT)
            if done.returncode == 0:
                self.num_done += 1

    def close(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def restart(cluster, name):
    """Kills a node and starts it again under its name and metrics address."""
    cluster.programs[name].kill()
    if name.startswith("verifier"):
        cluster.start_verifier(name, cluster.model)
    else:
        cluster.start_draft_node(name)


def panels():
    """(title, query) of every target of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
            query = query.replace("$model_name", ".*")
            if "$" in query:
                raise AssertionError(f"unknown variable: {query}")
            yield f'{panel["title"]}, {target["legendFormat"]}', query


class PrometheusTest(LongModelTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for program in ("prometheus", "promtool"):
            if shutil.which(program) is None:
                raise AssertionError(f"{program} is not installed: run "
                                     "scripts/setup.sh")
        cls.data = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.data.cleanup)
        # What is stopped for a while is not gone.
        cls.cluster = Cluster("--max_silence", 10, "--max_stall", 10,
                              local_drafter="suffix")
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.model = cls.model
        cls.cluster.start_coordinator()
        names = ("verifier-0", "verifier-1", "draft-0", "draft-1")
        cls.cluster.start_verifier("verifier-0", cls.model)
        cls.cluster.start_verifier("verifier-1", cls.model)
        cls.cluster.start_draft_node("draft-0")
        cls.cluster.start_draft_node("draft-1", "model", "--draft_model",
                                     cls.model, "--draft_layers", 1)
        cls.cluster.wait_serving(*names)
        cls.prometheus = Prometheus(
            cls.data.name, sorted(cls.cluster.metrics_addresses.values()))
        cls.addClassCleanup(cls.prometheus.close)
        cls.start = time.time()
        cls.load = Load(cls.cluster)
        cls.addClassCleanup(cls.load.close)
        cls.run_with_restarts(names)

    @classmethod
    def run_with_restarts(cls, names):
        cls.wait_scraped()
        for name in ("draft-0", "verifier-0"):
            cls.cluster.programs[name].kill()
            if name == "verifier-0":
                # Seen while it is away.
                expression = cls.expressions()["SpecwireOneVerifierLeft"]
                wait_until(lambda: cls.prometheus.query(expression),
                           "the alarm of the last verifier")
            restart(cls.cluster, name)
            cls.cluster.wait_serving(*names)
            cls.wait_scraped()

    @classmethod
    def wait_scraped(cls):
        """Work has been done, and told, for a while from now."""
        done = cls.load.num_done + 6
        wait_until(lambda: cls.load.num_done >= done, "requests to be done")
        end = time.time() + 4
        programs = len(cls.cluster.metrics_addresses)
        wait_until(lambda: time.time() >= end and
                   [value for _, value in
                    cls.prometheus.query('up{job="specwire"}')] ==
                   [1.0] * programs,
                   "all programs to be scraped")

    @staticmethod
    def expressions():
        """{name: expression} of the alarms, without a YAML library."""
        text = ALERTS.read_text()
        found = {}
        for part in re.split(r"^ +- alert: ", text, flags=re.M)[1:]:
            name = part.split("\n", 1)[0].strip()
            expression = re.search(r"^ +expr: (.*?)^ +(?:for|labels):", part,
                                   re.M | re.S).group(1)
            found[name] = " ".join(expression.split()).removeprefix(">- ")
        return found

    def test_every_query_of_the_dashboard_returns_data(self):
        empty, queries = [], list(panels())
        self.assertGreater(len(queries), 40)
        for title, query in queries:
            series = self.prometheus.query_range(query, self.start)
            numbers = [value for _, values in series for value in values
                       if not math.isnan(value)]
            if not numbers:
                empty.append(f"{title}: {query}")
        self.assertEqual(empty, [])

    def test_nothing_is_negative_across_restarts(self):
        negative = []
        queries = list(panels())
        for name in sorted(set(self.prometheus.get(
                "label/__name__/values"))):
            if name.endswith(("_total", "_count", "_sum", "_bucket")):
                queries += [(name, f"rate({name}[{RATE_INTERVAL}])"),
                            (name, f"sum(rate({name}[{RATE_INTERVAL}]))")]
        for title, query in queries:
            for labels, values in self.prometheus.query_range(query,
                                                              self.start):
                # Sums of rates round.
                if any(value < -1e-9 for value in values):
                    negative.append((title, query, labels, min(values)))
        self.assertEqual(negative, [])
        # A restart was seen as one.
        resets = self.prometheus.query(
            "max(resets(specwire_engine_rows_total[10m]))")
        self.assertGreaterEqual(resets[0][1], 1)

    def test_a_nodes_restart_resets_nothing_at_the_coordinator(self):
        counted = self.prometheus.query(
            'sum(resets(specwire_generation_tokens_total'
            '{node_role="coordinator"}[10m]))')
        self.assertEqual(counted[0][1], 0)

    def test_every_alarm_loads_and_evaluates(self):
        for command in (["check", "rules", ALERTS],
                        ["check", "config", CONFIG]):
            done = subprocess.run(["promtool", *command], text=True,
                                  capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        def rules():
            found = [rule for group in
                     self.prometheus.get("rules")["groups"]
                     for rule in group["rules"]]
            return found if all(rule["health"] != "unknown"
                                for rule in found) else None

        found = wait_until(rules, "all rules to be evaluated")
        expressions = self.expressions()
        self.assertEqual({rule["name"] for rule in found}, set(expressions))
        for rule in found:
            self.assertEqual(rule["health"], "ok", rule)
        for name, expression in expressions.items():
            with self.subTest(alarm=name):
                self.prometheus.query(expression)
        # All serve again.
        for name in ("SpecwireNoVerifier", "SpecwireOneVerifierLeft",
                     "SpecwireProgramDown", "SpecwireNodeSuspect",
                     "SpecwireInternalErrors", "SpecwireRequestsFail"):
            self.assertEqual(self.prometheus.query(expressions[name]), [],
                             name)

    def test_alarms_go_off_when_they_should(self):
        done = subprocess.run(
            ["promtool", "test", "rules", DATA / "alerts_test.yml",
             DATA / "alerts_day_test.yml"], text=True,
            capture_output=True, timeout=5 * PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_metric_that_alarms_and_panels_ask_for_is_there(self):
        known = set(self.prometheus.get("label/__name__/values"))
        text = ALERTS.read_text() + DASHBOARD.read_text()
        asked = set(re.findall(r"\b(?:specwire|process)_\w+(?=[{\[ )>/])", text))
        asked -= {"specwire_"}
        self.assertGreater(len(asked), 30)
        self.assertEqual(sorted(asked - known), [])

    def test_operations_explains_every_alarm(self):
        text = OPERATIONS.read_text()
        for name in self.expressions():
            self.assertIn(f"`{name}`", text)


if __name__ == "__main__":
    unittest.main()
