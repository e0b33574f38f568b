"""Only here: earlier programs of Kueue and JobSet are upgraded under workloads that run and wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog.versions import JOBSET_VERSION, KUEUE_VERSION
from emulator.go_build import go_version, install
from emulator.progress import Progress
from emulator.toolchain import BY_NAME
from tests.end_to_end.conftest import fresh
from tests.end_to_end.emulator import Emulator, eventually
from tests.end_to_end.test_convergence import section
from tests.end_to_end.test_mixed import holds

pytestmark = pytest.mark.cluster

EXAMPLE = "examples/multislice-training.yaml"
NAMESPACE = "default"
# What JobSet 0.12 takes and 0.11 doesn't: an action of a failed child Job.
NEW_ACTION = "RestartJobAndIgnoreMaxRestarts"


@pytest.fixture(scope="module")
def previous() -> Path:
    """The earlier versions, built at the first use."""
    tool = BY_NAME["previous"]
    folder = tool.module.folder(go_version())
    install([tool], folder, Progress().step(tool.title))
    return folder


def version(previous: Path, chart: str) -> str:
    """The earlier version of a chart."""
    return str(yaml.safe_load((previous / "charts" / chart / "Chart.yaml").read_text())["version"])


def queues(**versions: str) -> dict[str, Any]:
    """Sections of the example with a Job behind its three JobSets, and Kueue and JobSet in these versions."""
    job = {"name": "probe", "namespace": "batch", "queue": "batch", "pool": "nodepool1", "command": ["sleep", "60"]}
    stated = section("queues", EXAMPLE)
    local = {"name": "batch", "namespace": "batch", "clusterQueue": stated["clusterQueues"][0]["name"]}
    return {"queues": {**stated, "localQueues": [*stated["localQueues"], local], **versions}, "batch": [job]}


@pytest.fixture(scope="module")
def full(previous: Path) -> Iterator[Emulator]:
    """The deployed earlier versions: the first JobSet has the whole quota, and two JobSets and a Job wait."""
    with fresh() as emulator:
        versions = {"kueueVersion": version(previous, "kueue"), "jobsetVersion": version(previous, "jobset")}
        config = emulator.configure(EXAMPLE, **queues(**versions))
        # The charts of then; programs go by their tags. The cluster's daemon keeps this PATH.
        path = os.pathsep.join([str(previous / "bin"), os.environ["PATH"]])
        up = ("python", "-m", "ops.emulated", "up", "--stack", emulator.stack, "--config", str(config))
        emulator.run("env", f"GKE_AI_CHARTS={previous / 'charts'}", f"PATH={path}", *up)
        eventually(lambda: len(workloads(emulator)) == 4, "Kueue has seen all")
        yield emulator


def workloads(emulator: Emulator) -> dict[str, tuple[str, bool]]:
    """Kueue's workloads by owner: uid, and whether admitted."""
    return {
        workload["metadata"]["ownerReferences"][0]["name"]: (workload["metadata"]["uid"], holds(workload, "Admitted"))
        for workload in emulator.get("workloads", "-A")
    }


def pods(emulator: Emulator) -> dict[str, str]:
    """The running pods of runs: name and uid."""
    running_pods = emulator.get("pods", "-n", NAMESPACE, "--field-selector=status.phase=Running")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in running_pods}


def managers(emulator: Emulator) -> set[str]:
    """The images of the running managers of Kueue and JobSet."""
    manager_pods = [pod for name in ("kueue", "jobset") for pod in emulator.get("pods", "-n", f"{name}-system")]
    return {pod["spec"]["containers"][0]["image"].rpartition("/")[2] for pod in manager_pods}


def crd(emulator: Emulator) -> str:
    """JobSet's CRD, as text."""
    return emulator.kubectl("get", "crd", "jobsets.jobset.x-k8s.io", "-o", "json")


def test_queued_workloads_are_kept_by_an_upgrade_and_admitted_after_it(full: Emulator, previous: Path) -> None:
    earlier = {f"{name}:v{version(previous, name)}" for name in ("kueue", "jobset")}
    assert managers(full) == earlier
    eventually(lambda: len(pods(full)) == 6, "the first JobSet runs")
    queued, running = workloads(full), pods(full)
    assert sorted(admitted for _, admitted in queued.values()) == [False, False, False, True]

    config = full.configure(EXAMPLE, **queues())
    output = full.make("preview", config)
    assert f"JobSet changes from {version(previous, 'jobset')} to {JOBSET_VERSION}" in output
    assert "python -m ops.crds" in output
    plan = full.planned()
    assert {operation: sorted(names) for operation, names in plan.items()} == {
        "update": ["kubernetes:helm.sh/v3:Release::jobset", "kubernetes:helm.sh/v3:Release::kueue"]
    }
    assert NEW_ACTION not in crd(full)
    full.make("crds", config)
    assert NEW_ACTION in crd(full)
    assert workloads(full) == queued
    full.make("up", config)

    eventually(
        lambda: managers(full) == {f"kueue:v{KUEUE_VERSION}", f"jobset:v{JOBSET_VERSION}"}, "only the new managers run"
    )
    assert full.planned() == {}
    assert workloads(full) == queued, "each workload is the same object, and in the same place"
    assert pods(full) == running, "what ran was not restarted"

    full.kubectl("delete", "jobset", "-n", NAMESPACE, "multislice-3slice")
    waiting = {name: uid for name, (uid, admitted) in queued.items() if not admitted}
    eventually(
        lambda: (
            [
                name
                for name in ("multislice-1slice", "multislice-2slice")
                if workloads(full)[name] == (waiting[name], True)
            ]
            == ["multislice-1slice", "multislice-2slice"]
        ),
        "the JobSets that waited are let in",
    )
    for name in ("multislice-1slice", "multislice-2slice"):
        full.kubectl("delete", "jobset", "-n", NAMESPACE, name)
    (job,) = waiting.keys() - {"multislice-1slice", "multislice-2slice"}
    eventually(lambda: workloads(full)[job] == (waiting[job], True), "the Job that waited is let in")
