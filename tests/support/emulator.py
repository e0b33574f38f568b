"""A stack of this program on a test's own emulator: its commands, and what remains after a destroy."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from emulator.tests import harness, spares
from emulator.tests.harness import ROOT as ROOT
from emulator.tests.harness import eventually as eventually
from emulator.tests.harness import until_none as until_none
from gke_ai.catalog.versions import JOBSET_API, JOBSET_CRD
from gke_ai.kube.client import client_of, list_objects, send
from tests.support import repository
from tests.support.mistakes import PROJECT
from tests.support.reading import objects_of_cluster

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Emulator(harness.Emulator):
    """One emulated cloud. Its commands work on `stack`."""

    stack: str = "test"

    def configure(self, source: str, **sections: Any) -> Path:
        """Write the configuration of `source` with some `gke-ai:` sections replaced."""
        content = yaml.safe_load(repository.source(source).read_text())
        content["config"] |= {f"gke-ai:{name}": section for name, section in sections.items()}
        return self._file(self.stack, content)

    def written(self, name: str = "test", **sections: Any) -> Path:
        """Write a configuration of these `gke-ai:` sections alone."""
        content = {"gcp:project": PROJECT, **{f"gke-ai:{key}": section for key, section in sections.items()}}
        return self._file(name, {"config": content})

    def _file(self, name: str, content: Mapping[str, Any]) -> Path:
        path = self.state / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def snapshot(self) -> Path:
        printed = self.make("snapshot")
        file = self.state / "snapshot.json"
        file.write_text(printed[printed.index("{") :])
        return file

    def make(self, command: str, config: Path | None = None, fails: bool = False) -> str:
        picked = ["--config", str(config)] if config else []
        return self.run("gke-ai", command, "--stack", self.stack, *picked, fails=fails)

    def prepare(self, config: Path) -> None:
        """Copy a configuration for Pulumi's own commands, as every command of `make` does."""
        code = "import pathlib, sys; from gke_ai.workspace.emulated import prepare; "
        code += "prepare(sys.argv[1], pathlib.Path(sys.argv[2]))"
        self.run("python", "-c", code, self.stack, str(config))

    @property
    def of_stack(self) -> tuple[str, ...]:
        """Pulumi's options for the stack, with its prepared configuration."""
        return "--stack", self.stack, "--config-file", str(self.state / "config" / f"Pulumi.{self.stack}.yaml")

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        return self.run("pulumi", *arguments, *self.of_stack, "--non-interactive", fails=fails)

    def planned(self) -> dict[str, list[str]]:
        """Changes of the next up: operation → names of the resources, without unchanged ones."""
        preview = self.pulumi("preview", "--json", "--suppress-progress")
        steps: list[dict[str, Any]] = json.loads(preview[preview.index("{") :])["steps"]
        plan: dict[str, list[str]] = {}
        for step in steps:
            if step["op"] not in ("same", "read"):
                plan.setdefault(step["op"], []).append(step["urn"].split("::", 2)[2].rpartition("$")[2])
        return plan

    def exported(self) -> dict[str, Any]:
        text = self.run("pulumi", "stack", "export", "--stack", self.stack, "--non-interactive")
        deployment: dict[str, Any] = json.loads(text)["deployment"]
        return deployment

    def outputs(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.run("pulumi", "stack", "output", "--json", "--stack", self.stack))
        return values

    def kubeconfig(self) -> str:
        """A kubeconfig of the stack's cluster that stays valid after the stack is deleted."""
        file = self.state / "test-kubeconfig"
        if not file.exists():
            file.write_text(self.outputs()["kubeconfig"])
        return str(file)

    def kubectl(self, *arguments: str) -> str:
        return self.run("kubectl", "--kubeconfig", self.kubeconfig(), *arguments)

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        """The objects that `kubectl get` finds. Waits ask often, and each kubectl would take 0.2 s of the CPU."""
        return objects_of_cluster(self.certified()).get(*arguments)

    def status_of(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> int:
        return send(client_of(self.certified(), 1), method, path, body=body, headers=JSON).code

    def delete_clusters(self) -> None:
        """End every cluster, by its processes' ids."""
        for cluster in (self.state / "clusters").glob("*"):
            self.run("python", "-c", f"import emulator.cluster; emulator.cluster.delete({cluster.name!r})")

    def certified(self) -> str:
        """A kubeconfig of the only cluster with a certificate. It needs no plugin."""
        (kubeconfig,) = self.state.glob("clusters/*/kubeconfig")
        return kubeconfig.read_text()


# Kinds that a cluster's own controllers write all the time, or that merely mirror others.
FLEETING = {"componentstatuses", "controllerrevisions", "endpoints", "events", "events.events.k8s.io", "leases"}


# JobSet's CRD, which Helm keeps, and what the API server makes of it.
KEPT = {("CustomResourceDefinition", JOBSET_CRD), ("APIService", ".".join(reversed(JOBSET_API.split("/"))))}


@dataclass(frozen=True)
class Found:
    """The content of an emulator before a stack: cloud resources by identity and, in an existing cluster,
    objects by kind, namespace and name."""

    cloud: frozenset[str]
    objects: frozenset[tuple[str, str, str]]
    cluster: str | None = None


def begun(emulator: Emulator, config: Path) -> Found:
    """Create the cluster for a configuration with `mode: existing`. Returns the content before the `up`."""
    cluster = yaml.safe_load(config.read_text())["config"].get("gke-ai:cluster", {})
    if cluster.get("mode") != "existing":
        return Found(cloud_of(emulator), frozenset())
    mode, location = cluster.get("existingMode", "standard"), cluster.get("location", "us-central1")
    emulator.run("existing", "create", cluster["name"], "--mode", mode, "--location", location)
    own = emulator.state / "clusters" / cluster["name"] / "kubeconfig"
    (emulator.state / "test-kubeconfig").write_text(own.read_text())
    return Found(cloud_of(emulator), objects_of(emulator), cluster["name"])


def cloud_of(emulator: Emulator) -> frozenset[str]:
    return frozenset(json.loads(file.read_text())["identity"] for file in (emulator.state / "cloud").glob("*.json"))


def objects_of(emulator: Emulator) -> frozenset[tuple[str, str, str]]:
    """Kind, namespace and name of every object in the cluster, except short-lived ones."""
    kinds = set(emulator.kubectl("api-resources", "--verbs=list", "-o", "name").split())
    lasting = {kind for kind in kinds - FLEETING if not kind.partition(".")[0].endswith(("slices", "leases"))}
    objects = emulator.get("-A", ",".join(sorted(lasting)))
    names = {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in objects}
    # The system's own pods come and go with the nodes, taken away by a collector that takes its time.
    return frozenset(name for name in names if name[:2] != ("Pod", "kube-system"))


# The official kubernetes plugin goes on for minutes after its engine was killed; the emulated one ends with it.
ENDS_SECONDS, OFFICIAL_ENDS_SECONDS = 15, 330


def killed_up(emulator: Emulator, config: Path, point: str, release: str | None = None) -> None:
    """Start an `up`, and kill its engine while it creates the first resource of the type `point`.

    With `release`, that is a Helm release, and the kill comes when Helm has recorded this status. The engine stands
    still from the beginning of the installation: Helm goes on, and what becomes of it is in no state.
    """
    up = begin_up(emulator, config)
    assert up.stdout
    for line in up.stdout:
        if f" {point} " in line and "creating" in line:
            break
    else:
        raise AssertionError(f"the up ended before {point} was being created")
    engine = engine_of(emulator)
    try:
        if release:
            statuses = helm_statuses(emulator)
            eventually(lambda: "pending-install" in statuses(), "Helm begins to install the release")
            os.kill(engine, signal.SIGSTOP)
            eventually(lambda: release in statuses(), f"Helm has the release as {release}")
    finally:
        os.kill(engine, signal.SIGKILL)
    up.communicate()
    until_update_ends(emulator)


def helm_statuses(emulator: Emulator) -> Callable[[], list[str]]:
    """The status of every revision that Helm has recorded, in a stack without outputs."""
    api = client_of(emulator.certified(), 1)

    def ask() -> list[str]:
        secrets = list_objects(api, "/api/v1/secrets", labelSelector="owner=helm")
        return [secret["metadata"]["labels"]["status"] for secret in secrets]

    return ask


def killed_at_random(emulator: Emulator, config: Path, chance: random.Random) -> str:
    """Start an `up`, and kill it at a random moment. Returns what happened, in words. The `up` may end earlier."""
    operations, pause, alone = chance.randrange(60), chance.uniform(0, 2), chance.random() < 0.5
    up = begin_up(emulator, config)
    assert up.stdout
    seen, last = 0, ""
    for line in up.stdout:
        if "creating" in line or "created" in line:
            seen, last = seen + 1, line.strip()
        if seen >= operations:
            break
    time.sleep(pause)
    killed = up.poll() is None and (pids := of_an_update(emulator))
    if killed:
        for pid in [pid for pid in pids if not alone or "pulumi up" in pids[pid]]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    rest = up.communicate()[0]
    assert killed or up.returncode == 0, rest
    until_update_ends(emulator)
    who = "the engine alone" if alone else "everything"
    return f"{who} was killed {pause:.2f} s after line {operations} ({last})"


def begin_up(emulator: Emulator, config: Path) -> subprocess.Popen[str]:
    return emulator.start("gke-ai", "up", "--stack", emulator.stack, "--config", str(config))


def engine_of(emulator: Emulator) -> int:
    (engine,) = (pid for pid, command in emulator.processes().items() if "pulumi up" in command)
    return engine


def until_update_ends(emulator: Emulator) -> None:
    """Wait until the plugins, Helm and the language host have ended after their engine."""
    official = any("/pulumi-resource-kubernetes" in command for command in of_an_update(emulator).values())
    bound = OFFICIAL_ENDS_SECONDS if official else ENDS_SECONDS
    until_none(lambda: of_an_update(emulator), "plugins, Helm and language host end with their engine", bound)


def of_an_update(emulator: Emulator) -> dict[int, str]:
    """The processes of the emulator that belong to an update, not to its cluster."""
    parts = ("pulumi ", "pulumi-", "language_host", "emulator.google", "emulator.pulumi.kubernetes", "bin/helm")
    return {pid: command for pid, command in emulator.processes().items() if any(part in command for part in parts)}


def recovered(emulator: Emulator, config: Path) -> None:
    """After a killed `up`, assert that `recover` and another `up` converge without duplicates or pending operations."""
    emulator.make("recover")
    emulator.make("up", config)
    assert emulator.planned() == {}
    names = Counter(resource["urn"] for resource in emulator.exported()["resources"])
    assert set(names.values()) == {1}
    assert not emulator.exported().get("pending_operations")


def settled(emulator: Emulator) -> None:
    """Assert that a second `up` and a refresh change nothing, and that an `up` after the refresh has nothing to do."""
    assert emulator.planned() == {}
    emulator.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    assert emulator.planned() == {}


def gone(emulator: Emulator, before: Found) -> None:
    """After `make down`, assert that cloud, existing cluster and list of stacks are as before."""
    assert cloud_of(emulator) == before.cloud
    assert json.loads(emulator.run("pulumi", "stack", "ls", "--json")) == []
    if before.cluster is None:
        assert list((emulator.state / "clusters").glob("*")) == []
        until_none(emulator.processes, "no process of the emulator is left", 15)
        return

    def left() -> set[tuple[str, str, str]]:
        return {found for found in objects_of(emulator) - before.objects if (found[0], found[2]) not in KEPT}

    until_none(left, "what was deployed is gone")
    assert before.objects - objects_of(emulator) == frozenset()


@contextmanager
def fresh(**extra: str) -> Iterator[Emulator]:
    """An empty emulator. At the end its clusters are deleted."""
    state = Path(tempfile.mkdtemp(prefix="gke-ai-"))
    emulator = Emulator(state, extra=tuple(extra.items()))
    spares.give(state)
    try:
        yield emulator
    finally:
        emulator.delete_clusters()
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def deployed(example: str, sections: Mapping[str, Any]) -> Iterator[Emulator]:
    """An emulator with an example, of which some sections are others."""
    with fresh() as emulator:
        emulator.make("up", emulator.configure(example, **sections))
        yield emulator


@contextmanager
def deployed_and_deleted(example: str, sections: Mapping[str, Any], **extra: str) -> Iterator[Emulator]:
    """The same, with more variables. At the end it is deleted, and nothing of it is left."""
    with fresh(**extra) as emulator:
        config = emulator.configure(example, **sections)
        before = begun(emulator, config)
        emulator.make("up", config)
        yield emulator
        emulator.make("down")
        gone(emulator, before)


def assert_nothing_left(emulator: Emulator) -> None:
    """No cloud resource, no cluster, no process and no stack."""
    assert [path.name for path in (emulator.state / "cloud").rglob("*.json") if "clusters" in path.name] == []
    assert list((emulator.state / "clusters").glob("*")) == []
    until_none(emulator.processes, "no process of the emulator is left", 15)
    assert json.loads(emulator.run("pulumi", "stack", "ls", "--json")) == []


def clean(emulator: Emulator) -> None:
    """Asserts that a rehearsal left no process, no scratch emulator and no stack."""
    until_none(emulator.processes, "no process of the emulator is left")
    scratch = Emulator(emulator.state / "rehearsal")
    until_none(scratch.processes, "no process of the scratch emulator is left")
    assert not scratch.state.exists(), [*map(str, scratch.state.rglob("*"))]
    assert emulator.run("pulumi", "stack", "ls", "--json").strip() == "[]"
