"""Only here: earlier programs of Kueue and JobSet are upgraded under workloads that run and wait."""

import json
from typing import Any

import pytest

from gke_ai.catalog.versions import EARLIER_JOBSET_VERSION, EARLIER_KUEUE_VERSIONS, JOBSET_VERSION, KUEUE_VERSION
from gke_ai.forecast.rehearse.standstill import LEASE
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.result.forecast import read
from gke_ai.kube.objects import holds
from tests.support.emulator import Emulator, eventually
from tests.support.examples import section

EXAMPLE = "examples/multislice-training.yaml"
NAMESPACE = "default"
# What JobSet 0.12 takes and 0.11 doesn't: an action of a failed child Job.
NEW_ACTION = "RestartJobAndIgnoreMaxRestarts"


def queues(**versions: str) -> dict[str, Any]:
    """Sections of the example with a Job behind its three JobSets, and Kueue and JobSet in these versions."""
    job = {"name": "probe", "namespace": "batch", "queue": "batch", "pool": "nodepool1", "command": ["sleep", "60"]}
    stated = section("queues", EXAMPLE)
    local = {"name": "batch", "namespace": "batch", "clusterQueue": stated["clusterQueues"][0]["name"]}
    return {"queues": {**stated, "localQueues": [*stated["localQueues"], local], **versions}, "batch": [job]}


def workloads(emulator: Emulator) -> dict[str, tuple[str, bool]]:
    """Kueue's workloads by owner: uid, and whether admitted."""
    owned = {item["metadata"]["ownerReferences"][0]["name"]: item for item in emulator.get("workloads", "-A")}
    return {owner: (item["metadata"]["uid"], holds(item, "Admitted")) for owner, item in owned.items()}


def pods(emulator: Emulator) -> dict[str, str]:
    """The running pods of runs: name and uid."""
    running = emulator.get("pods", "-n", NAMESPACE, "--field-selector=status.phase=Running")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in running}


def managers(emulator: Emulator) -> set[str]:
    """The images of the running managers of Kueue and JobSet."""
    manager_pods = [pod for name in ("kueue", "jobset") for pod in emulator.get("pods", "-n", f"{name}-system")]
    return {pod["spec"]["containers"][0]["image"].rpartition("/")[2] for pod in manager_pods}


def crd(emulator: Emulator) -> str:
    return emulator.kubectl("get", "crd", "jobsets.jobset.x-k8s.io", "-o", "json")


def changes_nothing_in_a_rehearsal(full: Emulator, earlier: str) -> None:
    """Rehearses the upgrade of a full queue on a snapshot."""
    snapshot, out = full.snapshot(), full.state / "out.json"
    rehearse = ("gke-ai", "rehearse", "--stack", full.stack, "--upgrade", "kueue,jobset", "--json", str(out))
    config = full.configure(EXAMPLE, **queues())
    full.run("--tools", "all", *rehearse, "--config", str(config), "--snapshot", str(snapshot))
    forecast = read(out)
    kueue = f"Kueue from {earlier} to {KUEUE_VERSION}"
    jobset = f"JobSet from {EARLIER_JOBSET_VERSION} to {JOBSET_VERSION}"
    unchanged = "changes nothing in the queue, and no server loses a ready replica."
    assert sentence(forecast) == f"The upgrade of {kueue} and {jobset} {unchanged}"
    assert [(str(wait.workload), wait.before) for wait in forecast.waits] == [
        (f"batch/job/{forecast.waits[0].workload.name}", True),
        ("default/jobset/multislice-1slice", True),
        ("default/jobset/multislice-2slice", True),
    ]
    notes = "\n".join(forecast.notes)
    assert "Both releases of Kueue store v1beta2, so no stored object is converted." in notes
    assert "Both releases of JobSet store v1alpha2, so no stored object is converted." in notes
    assert "pulumi up" not in notes, "both releases are upgraded when the watch ends"
    assert "Kueue's webhook refused new objects" in notes or "Kueue had no leader and admitted nothing" in notes
    lease = json.loads(full.kubectl("get", "lease", "-n", "kueue-system", LEASE.rpartition("/")[2], "-o", "json"))
    assert lease["spec"]["holderIdentity"], "only the leader of Kueue admits"


@pytest.mark.parametrize("earlier", EARLIER_KUEUE_VERSIONS)
def test_queued_workloads_are_kept_by_an_upgrade_as_its_rehearsal_says_and_admitted_later(
    earlier: str, emulator: Emulator
) -> None:
    full, versions = emulator, {"kueueVersion": earlier, "jobsetVersion": EARLIER_JOBSET_VERSION}
    config = full.configure(EXAMPLE, **queues(**versions))
    # Builds the programs and the charts of then.
    full.run("--tools", "all", "gke-ai", "up", "--stack", full.stack, "--config", str(config))
    eventually(lambda: len(workloads(full)) == 4, "Kueue has seen all")
    eventually(lambda: len(pods(full)) == 6, "the first JobSet runs, and two JobSets and a Job wait")
    changes_nothing_in_a_rehearsal(full, earlier)
    assert managers(full) == {f"kueue:v{earlier}", f"jobset:v{EARLIER_JOBSET_VERSION}"}
    queued, running = workloads(full), pods(full)
    assert sorted(admitted for _, admitted in queued.values()) == [False, False, False, True]

    config = full.configure(EXAMPLE, **queues())
    output = full.make("preview", config)
    assert f"JobSet changes from {EARLIER_JOBSET_VERSION} to {JOBSET_VERSION}" in output
    assert "The update first applies the CRDs of its chart" in output
    plan = {operation: sorted(names) for operation, names in full.planned().items()}
    assert plan == {"update": [f"kubernetes:helm.sh/v3:Release::{name}" for name in ("kueue", "kueue/jobset")]}
    assert NEW_ACTION not in crd(full)
    full.make("up", config)
    assert NEW_ACTION in crd(full)

    new = {f"kueue:v{KUEUE_VERSION}", f"jobset:v{JOBSET_VERSION}"}
    eventually(lambda: managers(full) == new, "only the new managers run")
    assert full.planned() == {}
    assert workloads(full) == queued, "each workload is the same object, and in the same place"
    assert pods(full) == running, "what ran was not restarted"

    full.kubectl("delete", "jobset", "-n", NAMESPACE, "multislice-3slice")
    waiting = {name: uid for name, (uid, admitted) in queued.items() if not admitted}
    small = {name: (waiting[name], True) for name in ("multislice-1slice", "multislice-2slice")}
    eventually(lambda: small.items() <= workloads(full).items(), "the JobSets that waited are let in")
    for name in small:
        full.kubectl("delete", "jobset", "-n", NAMESPACE, name)
    (job,) = waiting.keys() - small.keys()
    eventually(lambda: workloads(full)[job] == (waiting[job], True), "the Job that waited is let in")
