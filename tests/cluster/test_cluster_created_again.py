"""Only here: after a cluster is created again under its name, a consumer's plan creates its objects again."""

from __future__ import annotations

import json

from tests.support.emulator import Emulator
from tests.support.repository import ROOT

PROGRAM = """
import pulumi, pulumi_kubernetes as k8s
from gke_ai_outputs import StackOutputs

provider = StackOutputs(pulumi.Config().require("platform")).provider()
k8s.core.v1.ConfigMap("theirs", metadata={"name": "theirs", "namespace": "default"}, data={"a": "1"},
    opts=pulumi.ResourceOptions(provider=provider))
"""
CLUSTER = {"name": "ai", "mode": "autopilot", "location": "us-central1", "protect": False}


class Consumer:
    """A program of another team with an object in the cluster of the platform's stack."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = Emulator(emulator.state, extra=(("PYTHONPATH", str(ROOT)),))
        self.folder = emulator.state / "consumer"
        self.folder.mkdir()
        (self.folder / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
        (self.folder / "__main__.py").write_text(PROGRAM)
        self.pulumi("stack", "init", "theirs")
        self.pulumi("config", "set", "platform", f"organization/gke-ai/{emulator.stack}")

    def pulumi(self, *arguments: str, variables: tuple[str, ...] = ()) -> str:
        return self.emulator.run("env", *variables, "pulumi", "-C", str(self.folder), *arguments, "--non-interactive")

    def planned(self) -> dict[str, str]:
        """The operation of the next update on each resource that it changes."""
        preview = self.pulumi("preview", "--json")
        steps = json.loads(preview[preview.index("{") :])["steps"]
        return {step["urn"].rpartition("::")[2]: step["op"] for step in steps if step["op"] not in ("same", "read")}


def test_objects_of_a_consumer_are_created_again_with_the_cluster_and_at_no_other_time(emulator: Emulator) -> None:
    (emulator.state / "spare").unlink()  # each cluster gets an address and an authority of its own, as on Google Cloud
    config = emulator.written(cluster=CLUSTER)
    emulator.make("up", config)
    first = emulator.outputs()["clusterIdentifier"]
    consumer = Consumer(emulator)
    consumer.pulumi("up", "--yes", "--skip-preview")
    emulator.make("up", emulator.written(cluster={**CLUSTER, "labels": {"team": "ai"}}))
    assert emulator.outputs()["clusterIdentifier"] == first, "the cluster was changed in place"
    assert consumer.planned() == {}

    emulator.make("down")
    emulator.make("up", config)
    assert emulator.outputs()["clusterIdentifier"] != first
    assert "replace" in consumer.planned()["theirs"]
    # The objects of the former cluster are gone, and nobody can delete them.
    consumer.pulumi("up", "--yes", "--skip-preview", variables=("PULUMI_K8S_DELETE_UNREACHABLE=true",))
    assert emulator.kubectl("get", "configmap", "theirs", "-o", "jsonpath={.data.a}") == "1"
    assert consumer.planned() == {"platform": "update"}, "the SDK records the variable in the provider"
