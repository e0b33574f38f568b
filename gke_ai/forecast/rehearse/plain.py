"""A rehearsal of plain manifests: the scratch cluster gets Kueue as a snapshot has it, and then its objects.

No Pulumi program is involved. The manifests of the base only give objects of the snapshot their unlisted fields, such
as images, so that a change of such a field is a change.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.kueue.namespaces import JOBSET, KUEUE
from gke_ai.catalog.versions import JOBSET_CHART, JOBSET_IMAGE, JOBSET_VERSION, KUEUE_CHART, KUEUE_IMAGE
from gke_ai.forecast.rehearse import prepared, reduced, release
from gke_ai.forecast.rehearse.applied import Applied, apply
from gke_ai.forecast.rehearse.evicted import Evictions, absent_owners
from gke_ai.forecast.rehearse.git import Checkout, checkout, top_level
from gke_ai.forecast.rehearse.kustomization import NAMES, kustomization
from gke_ai.forecast.rehearse.manifests import Change, Manifest, compare, read
from gke_ai.forecast.rehearse.pools import records
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.restore import wait_for_webhooks
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.snapshot.command import take
from gke_ai.forecast.snapshot.fields import kinds, trim_kueue
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.formats.sentences import join_names
from gke_ai.kube.client import ApiClient, client_of, request
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop

NAME = "rehearsal"
CONTROLLERS = (KUEUE, JOBSET)
_JOBSET_MANAGER = "jobset-controller-manager"
# Keys of Kueue's former configuration, which it still reads: apis/config/v1beta1 of its repository.
_FORMER = {"fairSharing": "enable", "waitForPodsReady": "enable"}


@dataclass(frozen=True)
class Manifests:
    """The two sides of a change of manifests, and the snapshot of the cluster to which they belong."""

    name: str
    base: tuple[Manifest, ...]
    change: Change
    snapshot: Snapshot

    def changes(self) -> list[str]:
        """What changes; empty if nothing does."""
        return self.change.names() or list(self.change.notes)

    def measured(self) -> Calibration:
        """Nothing: manifests name no calibration file."""
        return Calibration()

    def bring_up(self, emulator: Scratch) -> None:
        """Creates the scratch cluster with Kueue, or starts the copy that an earlier rehearsal kept."""
        release.build(emulator, release.rehearsed(self.snapshot))
        setup = controllers(emulator, self.snapshot)
        base = emulator.state / "rehearsed" / "base.yaml"
        base.parent.mkdir(parents=True, exist_ok=True)
        base.write_text(yaml.safe_dump({"config": {}, **setup}))
        kept = prepared.key(NAME, base, setup)
        prepared.bring_up(
            emulator, kept, "create a scratch cluster with Kueue", lambda: install(emulator, base.read_text(), setup)
        )

    def restored(self, emulator: Scratch) -> tuple[Snapshot, list[str]]:
        """Applies the manifests of the base. Returns what the scratch cluster is brought to, and what it lacks."""
        api = client_of(emulator.kubeconfig(), 1)
        wait_for_webhooks(api)
        with phase("apply the manifests of the base"):
            _apply_base(api, self.base)
        pools, notes = records(self.snapshot)
        emulator.run("cluster", "pools", stdin=json.dumps(pools))
        notes = [*self.change.notes, *notes, *unowned(self.snapshot), *release.notes(self.snapshot)]
        return adopt(self.snapshot, take(NAME, api)), notes

    def start(self, emulator: Scratch) -> Applied:
        """Applies the change."""
        evictions = Evictions(client_of(emulator.kubeconfig(), 1), self.snapshot)
        evictions.start()
        return Applied(client_of(emulator.kubeconfig(), 1), self.change, evictions.stop)


def source(folder: Path, base: Path | None, snapshot: Snapshot, name: str) -> Manifests:
    """Returns the change of a folder of manifests.

    Args:
        folder: Folder with the change, or a Kustomization.
        base: Folder before the change. Default: the same folder where the branch of its checkout left `main`.
        snapshot: State of the cluster.
        name: Name of the snapshot's file, for messages.
    """
    release.check_version(snapshot, name)
    if not folder.is_dir():
        raise Stop(f"There is no folder {folder}. Name the folder with the manifests: --manifests folder")
    folder = folder.resolve()
    after = read(folder, top_level(folder) or folder)
    with tempfile.TemporaryDirectory() as exported, checkout(folder) as around:
        before = _read_base(folder, base, around, Path(exported))
    change = compare(before, after)
    return Manifests(folder.name, tuple(before), change, snapshot)


def _read_base(folder: Path, base: Path | None, around: Checkout | None, exported: Path) -> list[Manifest]:
    if base:
        if not base.is_dir():
            raise Stop(f"There is no folder {base}. Name the folder before the change: --base folder")
        return read(base.resolve(), top_level(base) or base.resolve())
    commits = around.merge_bases() if around else []
    if not around or not commits:
        raise Stop(
            f"Git does not know where the branch of {folder} left main. Fetch the branch main with its history, "
            "or name the folder before the change: --base folder"
        )
    path = folder.relative_to(around.top)
    # A Kustomization may include other folders of the checkout.
    whole = kustomization(folder) is not None or not around.names(commits[0], str(path)).isdisjoint(NAMES)
    around.export(commits[0], "." if whole else str(path), exported)
    before = exported.resolve() / path
    return read(before, exported.resolve()) if before.is_dir() else []


# ------------------------------------------------------------------------------------------------- the scratch cluster
def controllers(emulator: Scratch, snapshot: Snapshot) -> dict[str, Any]:
    """Returns what a scratch cluster gets: Kueue in a release with the configuration of its manager, and maybe JobSet.

    The configuration is the chart's, with the listed settings of the snapshot.
    """
    version = release.rehearsed(snapshot)
    chart = emulator.run("chart", KUEUE_CHART, version).strip()
    values = yaml.safe_load(emulator.run("helm", "show", "values", chart))
    default = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    manager = release.known(overlaid(default, snapshot.kueue), version)
    return {"kueue": {"release": version, "configuration": manager}, "jobset": has_jobset(snapshot)}


def overlaid(default: Mapping[str, Any], stated: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a configuration of Kueue with the settings of a snapshot in place of its own listed ones."""
    if stated is None:
        return dict(default)
    own = {key: value for key, value in default.items() if key not in trim_kueue(default)}
    former = any(key in (stated.get(section) or {}) for section, key in _FORMER.items())
    version = str(default["apiVersion"]).replace("v1beta2", "v1beta1") if former else default["apiVersion"]
    return {**own, **stated, "apiVersion": version}


def has_jobset(snapshot: Snapshot) -> bool:
    """Whether the cluster of a snapshot has JobSet."""
    managers = (item["metadata"]["name"] for item in snapshot.of("Deployment"))
    return bool(snapshot.of("JobSet")) or _JOBSET_MANAGER in managers


def install(emulator: Scratch, base: str, setup: Mapping[str, Any]) -> None:
    """Creates the scratch cluster, and installs Kueue, and JobSet if the cluster has it."""
    emulator.run("existing", "create", NAME)
    enter(emulator, NAME)
    (emulator.state / "rehearsed").mkdir(exist_ok=True)
    (emulator.state / "rehearsed" / "base.yaml").write_text(base)
    reduced.open_schemas(client_of(emulator.kubeconfig(), 1))
    install_controllers(emulator, setup)


def enter(emulator: Scratch, cluster: str) -> None:
    """Lets commands on the scratch emulator use a cluster."""
    shutil.copy(emulator.state / "clusters" / cluster / "kubeconfig", emulator.state / "kubeconfig")


def install_controllers(emulator: Scratch, setup: Mapping[str, Any]) -> None:
    """Installs JobSet and Kueue as `controllers` returns them. Without a configuration, Kueue gets the chart's."""
    if setup.get("jobset"):
        image = {"repository": JOBSET_IMAGE, "tag": f"v{JOBSET_VERSION}", "pullPolicy": "IfNotPresent"}
        _helm(emulator, "jobset", JOBSET, JOBSET_CHART, JOBSET_VERSION, {"image": image})
    if kueue := setup.get("kueue"):
        image = {"repository": KUEUE_IMAGE, "tag": f"v{kueue['release']}", "pullPolicy": "IfNotPresent"}
        values: dict[str, Any] = {"controllerManager": {"manager": {"image": image}}}
        if stated := kueue.get("configuration"):
            values["managerConfig"] = {"controllerManagerConfigYaml": yaml.safe_dump(stated, sort_keys=False)}
        _helm(emulator, "kueue", KUEUE, KUEUE_CHART, kueue["release"], values)


def _helm(
    emulator: Scratch, name: str, namespace: str, reference: str, version: str, values: Mapping[str, Any]
) -> None:
    file = emulator.state / "rehearsed" / f"{name}-values.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(dict(values)))
    chart = emulator.run("chart", reference, version).strip()
    place = ("--namespace", namespace, "--create-namespace")
    emulator.run("helm", "install", name, chart, "--values", str(file), *place)


def _apply_base(api: ApiClient, manifests: tuple[Manifest, ...]) -> None:
    """Applies what the cluster accepts. The snapshot decides what exists."""
    rehearsed = [*compare((), manifests).apply]
    for namespace in sorted({item.namespace for item in rehearsed if item.namespace}):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        request(api, "POST", "/api/v1/namespaces", body=body)
    for manifest in rehearsed:
        if manifest.is_named:
            apply(api, manifest, strict=False)


# ---------------------------------------------------------------------------------------------------------- a snapshot
def adopt(snapshot: Snapshot, own: Snapshot) -> Snapshot:
    """Returns a snapshot in which the controllers are those of the scratch cluster, on nodes of the snapshot.

    A snapshot has no images, Services and certificates of Kueue and JobSet, whose names and labels depend on how they
    were installed.
    """
    home = _home(snapshot)
    objects = {}
    for kind in kinds():
        others = [item for item in snapshot.of(kind) if not _is_controllers(kind, item)]
        controllers = [item for item in own.of(kind) if _is_controllers(kind, item)]
        objects[kind] = [*others, *(_placed(kind, item, home) for item in controllers)]
    if not home:
        objects["Node"] = own.of("Node")
    return snapshot.model_copy(update={"objects": objects})


def _is_controllers(kind: str, item: Mapping[str, Any]) -> bool:
    metadata = item["metadata"]
    return (metadata["name"] if kind == "Namespace" else metadata.get("namespace")) in CONTROLLERS


def _home(snapshot: Snapshot) -> str:
    """The node for the controllers: theirs in the snapshot, else one without accelerators, else any; empty for none."""
    names = {node["metadata"]["name"]: node for node in snapshot.of("Node")}
    pods = (pod for pod in snapshot.of("Pod") if pod["metadata"].get("namespace") == KUEUE)
    theirs = [pod.get("spec", {}).get("nodeName") for pod in pods]
    plain = [name for name, node in names.items() if not node.get("spec", {}).get("taints")]
    return next((name for name in (*theirs, *plain, *names) if name in names), "")


def _placed(kind: str, item: Mapping[str, Any], home: str) -> dict[str, Any]:
    if kind != "Pod" or not home or not item.get("spec", {}).get("nodeName"):
        return dict(item)
    return {**item, "spec": {**item["spec"], "nodeName": home}}


def unowned(snapshot: Snapshot) -> Iterator[str]:
    """Yields a note if Workloads belong to kinds that a snapshot does not have, such as RayJob."""
    owners = Counter(owner["kind"] for item in snapshot.of("Workload") for owner in absent_owners(item))
    if owners:
        counted = join_names([f"{count} of {kind}" for kind, count in sorted(owners.items())])
        yield (
            "The rehearsal lacks the controllers of some kinds, so it restores only their Workloads and pods: "
            f"{counted}. If Kueue evicts one, the rehearsal itself ends its pods."
        )
