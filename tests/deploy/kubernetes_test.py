# SPDX-License-Identifier: Apache-2.0
"""What schemas cannot know about deploy/kubernetes: that the manifests agree
with the programs' flags and with each other."""

import pathlib
import re
import unittest

import lint_tools
from deploy_files import SOURCE, end_limit_s, load_manifests, workload_launch

yaml = lint_tools.import_yaml()
OPERATIONS = (SOURCE / "docs/operations.md").read_text()


def selects(selector, labels):
    return bool(selector) and all(
        labels.get(key) == value for key, value in selector.items())


@unittest.skipIf(yaml is None, "PyYAML cannot be installed")
class KubernetesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.objects = load_manifests(yaml)
        cls.workloads = cls.kind("Deployment") + cls.kind("StatefulSet")
        cls.launches = [workload_launch(one) for one in cls.workloads]

    @classmethod
    def kind(cls, kind):
        return [one for one in cls.objects if one["kind"] == kind]

    def selected(self, selector):
        """The one workload whose pods a selector means."""
        found = [one for one in self.workloads if selects(
            selector, one["spec"]["template"]["metadata"]["labels"])]
        self.assertEqual(len(found), 1, selector)
        return found[0]

    @staticmethod
    def container(workload):
        return workload["spec"]["template"]["spec"]["containers"][0]

    def ports(self, workload):
        return {port["name"]: port["containerPort"]
                for port in self.container(workload)["ports"]}

    def test_nothing_names_a_namespace(self):
        for one in self.objects:
            self.assertNotIn("namespace", one["metadata"])

    def test_workloads_select_their_pods(self):
        for one in self.workloads:
            self.assertIs(
                self.selected(one["spec"]["selector"]["matchLabels"]), one)

    def test_ports_are_those_of_the_flags(self):
        for workload, launch in zip(self.workloads, self.launches):
            with self.subTest(launch.where):
                self.assertEqual(
                    self.ports(workload),
                    {"grpc": launch.port("listen"),
                     "http": launch.port("http") or launch.port("metrics")})

    def test_probes_ask_for_health_where_it_is_told(self):
        for workload in self.workloads:
            container = self.container(workload)
            for name, path in (("startupProbe", "/health"),
                               ("readinessProbe", "/ready"),
                               ("livenessProbe", "/health")):
                with self.subTest(workload["metadata"]["name"], probe=name):
                    self.assertEqual(container[name]["httpGet"],
                                     {"path": path, "port": "http"})

    def test_liveness_does_not_cut_a_drain_short(self):
        """Health fails from the begin of a drain on."""
        for workload, launch in zip(self.workloads, self.launches):
            with self.subTest(launch.where):
                probe = self.container(workload)["livenessProbe"]
                patience = (probe["failureThreshold"] - 1) * probe[
                    "periodSeconds"]
                self.assertGreater(
                    patience, float(launch.value("grace") or 0) +
                    end_limit_s(launch.program))

    def test_services_lead_to_ports(self):
        for service in self.kind("Service"):
            ports = self.ports(self.selected(service["spec"]["selector"]))
            for port in service["spec"]["ports"]:
                with self.subTest(service["metadata"]["name"], port=port):
                    self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_nodes_find_coordinators_by_a_headless_service(self):
        services = {one["metadata"]["name"]: one["spec"]
                    for one in self.kind("Service")}
        for launch in self.launches:
            if launch.program == "coordinator":
                continue
            name, port = re.fullmatch(
                r"dns:///([\w-]+):(\d+)",
                launch.value("coordinator")).groups()
            spec = services[name]
            self.assertEqual(spec["clusterIP"], "None")
            # Or a new coordinator would have users before it has nodes.
            self.assertTrue(spec["publishNotReadyAddresses"])
            self.assertIn(int(port), [one["port"] for one in spec["ports"]])
            self.assertEqual(
                self.selected(spec["selector"])["metadata"]["name"],
                "specwire-coordinator")
        for one in self.kind("StatefulSet"):
            self.assertEqual(
                services[one["spec"]["serviceName"]]["clusterIP"], "None")

    def test_each_role_has_a_disruption_budget(self):
        budgets = [self.selected(one["spec"]["selector"]["matchLabels"])
                   ["metadata"]["name"]
                   for one in self.kind("PodDisruptionBudget")]
        self.assertEqual(sorted(budgets), sorted(
            one["metadata"]["name"] for one in self.workloads))

    def test_network_policies_open_what_is_used(self):
        policies = {
            self.selected(one["spec"]["podSelector"]["matchLabels"])
            ["metadata"]["name"]: one["spec"]
            for one in self.kind("NetworkPolicy")}
        listens = {launch.program: launch.port("listen")
                   for launch in self.launches}
        peers = {"coordinator": ("verifier_node", "draft_node"),
                 "verifier_node": ("coordinator",),
                 "draft_node": ("coordinator",)}
        names = {launch.program: one["metadata"]["name"] for launch, one in
                 zip(self.launches, self.workloads)}
        for program, others in peers.items():
            with self.subTest(program):
                spec = policies[names[program]]
                inward = {port["port"] for rule in spec["ingress"]
                          for port in rule["ports"]}
                workload = next(one for one in self.workloads if
                                one["metadata"]["name"] == names[program])
                self.assertEqual(inward, set(self.ports(workload).values()))
                outward = {}
                for rule in spec["egress"]:
                    for to in rule.get("to", []):
                        name = self.selected(
                            to["podSelector"]["matchLabels"])[
                                "metadata"]["name"]
                        outward[name] = [port["port"]
                                         for port in rule["ports"]]
                self.assertEqual(outward, {names[other]: [listens[other]]
                                           for other in others})
                self.assertIn(53, [port["port"] for rule in spec["egress"]
                                   if "to" not in rule
                                   for port in rule["ports"]])

    def test_pods_are_confined(self):
        for workload in self.workloads:
            with self.subTest(workload["metadata"]["name"]):
                pod = workload["spec"]["template"]["spec"]
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertFalse(pod["automountServiceAccountToken"])
                # A service "specwire" would set variables SPECWIRE_...
                self.assertFalse(pod["enableServiceLinks"])
                container = self.container(workload)
                context = container["securityContext"]
                self.assertFalse(context["allowPrivilegeEscalation"])
                self.assertTrue(context["readOnlyRootFilesystem"])
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                self.assertIn("memory", container["resources"]["limits"])
                self.assertTrue(all(mount["readOnly"] for mount in
                                    container["volumeMounts"]))

    def test_mounts_bring_the_files_of_the_flags(self):
        for workload, launch in zip(self.workloads, self.launches):
            pod = workload["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in pod["volumes"]}
            mounts = {mount["mountPath"]: mount["name"] for mount in
                      self.container(workload)["volumeMounts"]}
            self.assertEqual(set(mounts.values()), volumes)
            for flag in ("tls_cert", "tls_key", "tls_ca", "api_keys", "model"):
                path = launch.value(flag)
                if path is None:
                    continue
                with self.subTest(launch.where, flag=flag):
                    self.assertIn(str(pathlib.PurePath(path).parent), mounts)

    def test_the_guide_makes_the_secrets_and_claims(self):
        claims = {one["metadata"]["name"]
                  for one in self.kind("PersistentVolumeClaim")}
        for workload in self.workloads:
            for volume in workload["spec"]["template"]["spec"]["volumes"]:
                with self.subTest(volume=volume["name"]):
                    if "secret" in volume:
                        name = volume["secret"]["secretName"]
                        self.assertTrue(re.search(
                            rf"kubectl [^\n]*create secret generic {name} ",
                            OPERATIONS), name)
                    else:
                        self.assertIn(volume["persistentVolumeClaim"]
                                      ["claimName"], claims)


if __name__ == "__main__":
    unittest.main(verbosity=2)
