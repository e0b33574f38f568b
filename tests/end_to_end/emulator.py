"""A stack of this program on an emulator of a test's own: the commands on it, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from emulator.tests import harness
from emulator.tests.harness import ROOT as ROOT
from emulator.tests.harness import eventually as eventually
from emulator.tests.harness import until_none as until_none


@dataclass(frozen=True)
class Emulator(harness.Emulator):
    """One emulated cloud; `stack` is what its commands work on."""

    stack: str = "test"

    def configure(self, source: str, **sections: Any) -> Path:
        """Writes a configuration: that of `source` with some `gke-ai:` sections replaced."""
        content = yaml.safe_load((ROOT / source).read_text())
        content["config"] |= {f"gke-ai:{name}": section for name, section in sections.items()}
        path = self.state / f"{self.stack}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def make(self, command: str, config: Path | None = None, fails: bool = False) -> str:
        """Runs what `make COMMAND` runs."""
        picked = ["--config", str(config)] if config else []
        return self.run("python", "-m", "ops.emulated", command, "--stack", self.stack, *picked, fails=fails)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Runs Pulumi itself on the stack and its copied configuration."""
        copy = self.state / "config" / f"Pulumi.{self.stack}.yaml"
        return self.run(
            "pulumi", *arguments, "--stack", self.stack, "--config-file", str(copy), "--non-interactive", fails=fails
        )

    def planned(self) -> dict[str, list[str]]:
        """What the next up would do: operation → names of the resources, those that stay the same left out."""
        preview = self.pulumi("preview", "--json", "--suppress-progress")
        steps: list[dict[str, Any]] = json.loads(preview[preview.index("{") :])["steps"]
        plan: dict[str, list[str]] = {}
        for step in steps:
            if step["op"] not in ("same", "read"):
                plan.setdefault(step["op"], []).append(step["urn"].split("::", 2)[2].rpartition("$")[2])
        return plan

    def exported(self) -> dict[str, Any]:
        """The stack's recorded deployment."""
        deployment: dict[str, Any] = json.loads(
            self.run("pulumi", "stack", "export", "--stack", self.stack, "--non-interactive")
        )["deployment"]
        return deployment

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs."""
        found: dict[str, Any] = json.loads(self.run("pulumi", "stack", "output", "--json", "--stack", self.stack))
        return found

    def kubeconfig(self) -> str:
        """A file that reaches the stack's cluster, kept for when the stack has gone."""
        file = self.state / "test-kubeconfig"
        if not file.exists():
            file.write_text(self.outputs()["kubeconfig"])
        return str(file)

    def kubectl(self, *arguments: str) -> str:
        """Runs kubectl against the stack's cluster."""
        return self.run("kubectl", "--kubeconfig", self.kubeconfig(), *arguments)

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        """The objects that `kubectl get` finds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "-o", "json", *arguments))["items"]
        return found


# Kinds that a cluster's own controllers write all the time, or that merely mirror others.
FLEETING = {"componentstatuses", "controllerrevisions", "endpoints", "events", "events.events.k8s.io", "leases"}


@dataclass(frozen=True)
class Found:
    """What an emulator held before a stack: resources of the cloud by identity and, in a cluster that was there,
    objects by kind, namespace and name."""

    cloud: frozenset[str]
    objects: frozenset[tuple[str, str, str]]
    cluster: str | None = None


def begun(emulator: Emulator, config: Path) -> Found:
    """Makes the cluster that a configuration with `mode: existing` wants, and says what there is before the `up`."""
    cluster = yaml.safe_load(config.read_text())["config"].get("gke-ai:cluster", {})
    if cluster.get("mode") != "existing":
        return Found(cloud_of(emulator), frozenset())
    mode, location = cluster.get("existingMode", "standard"), cluster.get("location", "us-central1")
    emulator.run("existing", "create", cluster["name"], "--mode", mode, "--location", location)
    own = emulator.state / "clusters" / cluster["name"] / "kubeconfig"
    (emulator.state / "test-kubeconfig").write_text(own.read_text())
    return Found(cloud_of(emulator), objects_of(emulator), cluster["name"])


def cloud_of(emulator: Emulator) -> frozenset[str]:
    """The identity of every resource in the emulated cloud."""
    return frozenset(json.loads(file.read_text())["identity"] for file in (emulator.state / "cloud").glob("*.json"))


def objects_of(emulator: Emulator) -> frozenset[tuple[str, str, str]]:
    """Kind, namespace and name of every object in the cluster, save what comes and goes by itself."""
    kinds = set(emulator.kubectl("api-resources", "--verbs=list", "-o", "name").split())
    lasting = {kind for kind in kinds - FLEETING if not kind.partition(".")[0].endswith(("slices", "leases"))}
    found = emulator.get("-A", ",".join(sorted(lasting)))
    names = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in found}
    # The system's own pods come and go with the nodes, taken away by a collector that takes its time.
    return frozenset(name for name in names if name[:2] != ("Pod", "kube-system"))


def killed_up(emulator: Emulator, config: Path, point: str) -> None:
    """Begins an `up`, and kills its engine while the first resource of the type `point` is being created."""
    up = emulator.start("python", "-m", "ops.emulated", "up", "--stack", emulator.stack, "--config", str(config))
    assert up.stdout
    for line in up.stdout:
        if f" {point} " in line and "creating" in line:
            break
    else:
        raise AssertionError(f"the up ended before {point} was being created")
    (engine,) = (pid for pid, command in emulator.processes().items() if "pulumi up" in command)
    os.kill(engine, signal.SIGKILL)
    up.communicate()
    until_none(lambda: of_an_update(emulator), "plugins, Helm and language host end with their engine", 15)


def of_an_update(emulator: Emulator) -> dict[int, str]:
    """The processes of the emulator that belong to an update, not to its cluster."""
    parts = ("pulumi ", "pulumi-", "language_host", "emulator.gcp_plugin", "emulator.kubernetes_plugin", "bin/helm")
    return {pid: command for pid, command in emulator.processes().items() if any(part in command for part in parts)}


def recovered(emulator: Emulator, config: Path) -> None:
    """After a killed `up`: `recover` and another `up` converge, with nothing twice and nothing left pending."""
    emulator.make("recover")
    emulator.make("up", config)
    assert emulator.planned() == {}
    names = Counter(resource["urn"] for resource in emulator.exported()["resources"])
    assert set(names.values()) == {1}
    assert not emulator.exported().get("pending_operations")


def settled(emulator: Emulator) -> None:
    """A second `up` and a refresh would change nothing, and the refresh leaves nothing for an `up` to do."""
    assert emulator.planned() == {}
    emulator.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert emulator.planned() == {}


def gone(emulator: Emulator, found: Found) -> None:
    """After a `make down`: the cloud, a cluster that was there before and the list of stacks are as they were found."""
    assert cloud_of(emulator) == found.cloud
    assert json.loads(emulator.run("pulumi", "stack", "ls", "--json")) == []
    if found.cluster is None:
        assert list((emulator.state / "clusters").glob("*")) == []
        until_none(emulator.processes, "no process of the emulator is left", 15)
        return
    until_none(lambda: objects_of(emulator) - found.objects, "what was deployed is gone")
    assert found.objects - objects_of(emulator) == frozenset()
