# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md tells every metric that running programs tell, with its kind
and labels, and no other; --metrics_vllm_aliases repeats those marked."""

import re
import unittest
import urllib.request

from process_cluster import PATIENCE_S, SOURCE, Cluster, LongModelTest

DOCUMENT = SOURCE / "docs/metrics.md"
SECTIONS = {"Coordinator": ("coordinator",), "Verifier": ("verifier",),
            "Draft node": ("draft",),
            "Every program": ("coordinator", "verifier", "draft")}
VLLM_NAMES = {"specwire_kv_cache_usage_ratio": "vllm:kv_cache_usage_perc"}
PROMPT = "the cat and the dog and the cat and the dog and the"


def documented():
    """({(role, name): (kind, labels)}, names that vLLM has)."""
    metrics, vllm = {}, set()
    for section in DOCUMENT.read_text().split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for role in SECTIONS.get(title, ()):
            for row in re.findall(r"^\| `(\w+)`( \*v\*)? \| (\w+) \| ([^|]*)\|",
                                  body, re.M):
                name, marked, kind, labels = row
                labels = {label for label in labels.strip().split(", ")
                          if label}
                if role != "coordinator":
                    labels.add("model_name")
                metrics[role, name] = (kind, labels | {"node_role"})
                if marked:
                    vllm.add((role, name))
    return metrics, vllm


def exposed(address):
    """({name: kind}, {name: labels}) of a page."""
    with urllib.request.urlopen(f"http://{address}/metrics",
                                timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    labels = {name: set() for name in kinds}
    for series, told in re.findall(r"^([\w:]+)(?:\{(.*)\})? \S+$", text, re.M):
        name = series
        if name not in kinds:
            name = re.sub(r"_(bucket|sum|count)$", "", series)
        labels[name] |= set(re.findall(r'(\w+)="', told)) - {"le"}
    return kinds, labels


class MetricsDocTest(LongModelTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster("--metrics_vllm_aliases", local_drafter="suffix")
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.start_coordinator()
        cls.cluster.start_verifier("verifier", cls.model,
                                   "--metrics_vllm_aliases")
        cls.cluster.start_draft_node("draft", "model", "--draft_model",
                                     cls.model, "--draft_layers", 1)
        cls.cluster.wait_serving("draft", "verifier")
        cls.cluster.generate("--max_tokens", 60, "--ignore_eos", "--drafter",
                             "model", "--patience_us", -1, PROMPT)
        cls.cluster.generate("--max_tokens", 60, "--ignore_eos", "--drafter",
                             "local", PROMPT)

    def test_the_document_tells_what_programs_tell(self):
        metrics, _ = documented()
        self.assertGreater(len(metrics), 50)
        for role in ("coordinator", "verifier", "draft"):
            with self.subTest(role=role):
                kinds, labels = exposed(self.cluster.metrics_addresses[role])
                told = {name: (kind, labels[name])
                        for name, kind in kinds.items()
                        if not name.startswith("vllm:")}
                wanted = {name: what for (where, name), what in
                          metrics.items() if where == role}
                self.assertEqual(told, wanted)

    def test_aliases_repeat_what_vllm_has(self):
        _, vllm = documented()
        for role in ("coordinator", "verifier"):
            kinds, labels = exposed(self.cluster.metrics_addresses[role])
            told = {name for name in kinds if name.startswith("vllm:")}
            wanted = {VLLM_NAMES.get(name, name.replace("specwire_", "vllm:"))
                      for where, name in vllm if where == role}
            self.assertEqual(told, wanted)
            for name in told:
                self.assertLessEqual(
                    labels[name], {"engine", "model_name", "node_role",
                                   "position", "finished_reason"}, name)
                self.assertIn("engine", labels[name])
        # Not asked for.
        kinds, _ = exposed(self.cluster.metrics_addresses["draft"])
        self.assertEqual([name for name in kinds if "vllm" in name], [])


if __name__ == "__main__":
    unittest.main()
