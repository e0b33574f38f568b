"""Only here: manifests of a cluster that no program of this repository deployed, through the steps of the action."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.forecast.compare.comparison import Fact, facts
from gke_ai.forecast.result.forecast import read
from tests.support.actions import commit, run_action
from tests.support.emulator import ROOT, Emulator, eventually, fresh, until_none
from tests.support.examples import POOLS, ZONES
from tests.support.rehearsal import cluster as queues
from tests.support.timelines import named

RAY = "00000000-0000-4000-8000-000000000001"
SAMPLE = ROOT / "examples" / "manifests"
POOL = {"name": "cpu", "machine_type": "e2-standard-16", "zones": ZONES, "min_nodes": 1, "max_nodes": 3}


def job(name: str, **labels: str) -> dict[str, Any]:
    """The sample's Job under another name, with more labels."""
    content: dict[str, Any] = yaml.safe_load((SAMPLE / "cluster" / "jobs.yaml").read_text())
    content["metadata"]["name"] = name
    content["metadata"]["labels"] |= {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}
    return content


URGENT = job("urgent", **{"priority-class": "urgent"})


def server(replicas: int = 1) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "data" / "queued_server.yaml").read_text())
    content["spec"]["replicas"] = replicas
    return content


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the sample manifests, and the snapshot of a cluster in which they are applied and run."""
    checkout = tmp_path_factory.mktemp("repository")
    shutil.copytree(SAMPLE / "cluster", checkout / "cluster")
    small = job("old")
    small["spec"] |= {"parallelism": 1, "completions": 1}
    (checkout / "cluster" / "old.yaml").write_text(yaml.safe_dump(small))
    (checkout / "cluster" / "web.yaml").write_text(yaml.safe_dump(server()))
    (checkout / "pools.json").write_text(json.dumps(POOLS))
    with fresh() as emulator:
        queues.create(emulator)
        emulator.run("python", "-c", queues.SET_POOLS, json.dumps([POOL]))
        with queues.connect(emulator) as cluster:
            kubectl = ("kubectl", "--kubeconfig", str(queues.kubeconfig(emulator)))
            emulator.run(*kubectl, "apply", "-f", str(checkout / "cluster" / "queues.yaml"))
            emulator.run(*kubectl, "apply", "-f", str(checkout / "cluster"))
            cluster.settle()
            pods = partial(cluster.send, "GET", "/api/v1/namespaces/research/pods")
            running = ["Running"] * 8
            eventually(lambda: [pod["status"]["phase"] for pod in pods()["items"]] == running, "all pods run")
        snapshot = ("--kubeconfig", str(queues.kubeconfig(emulator)), "--pools", str(checkout / "pools.json"))
        hashed = ("--hash-names", "--keep-names", str(checkout / "cluster"))
        text = emulator.run("gke-ai", "snapshot", "--stack", "sample", *snapshot, *hashed)
    (checkout / "snapshot.json").write_text(text)
    commit(checkout, "init --initial-branch=main", "add .", "commit --message=base", "switch --create=change")
    return checkout


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files of one runner, where a rehearsal keeps its base."""
    return tmp_path_factory.mktemp("runner")


def rehearse(checkout: Path, temporary: Path, code: int = 0, **inputs: str) -> str:
    """Runs the action on the checkout, and returns what it printed."""
    stated = {"manifests": "cluster", "snapshot": "snapshot.json", "output": "out", **inputs}
    ended, printed = run_action("rehearse", stated, checkout, temporary)
    assert ended == code, printed
    until_none(Emulator(temporary / "gke-ai").processes, "no process of the rehearsal is left", 30)
    return printed


def test_the_action_says_what_changed_added_and_removed_manifests_do(repository: Path, runner: Path) -> None:
    folder = repository / "cluster"
    (folder / "old.yaml").unlink()
    sample = job("sample")
    sample["metadata"]["generateName"] = f"{sample['metadata'].pop('name')}-"
    sample["spec"] |= {"parallelism": 1, "completions": 1}
    hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    # Fields that Google's schema of the kind has and the emulator's lacks.
    priorities = [{"podFamily": "general-purpose"}, {"machineType": "g2-standard-24", "maxPodsPerNode": 32}]
    pairs: dict[str, Any] = {"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass", "metadata": {"name": "pairs"}}
    pairs["spec"] = {"priorities": priorities}
    everything = {**hook, "metadata": {"name": "everything"}, "webhooks": []}
    written = {"urgent": URGENT, "sample": sample, "hook": everything, "class": pairs}
    for name, content in written.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    commit(repository, "add .", "commit --message=change")

    printed = rehearse(repository, runner)
    forecast = read(repository / "out" / "rehearsal.json")
    (created,) = {start.workload for start in forecast.starts if str(start.workload).startswith("research/job/sample-")}
    assert set(facts(forecast)) == {
        Fact(created, "starts", named(""), "default-flavor"),
        Fact(named("research/job/train"), "evicted", named("research/job/urgent"), "default-flavor"),
        Fact(named("research/job/urgent"), "starts", named(""), "default-flavor"),
        Fact(named("research/job/old"), "Deleted"),
        Fact(named("research/job/train"), "waits"),
    }, printed
    assert forecast.change == "ComputeClass pairs, Job research/sample-, Job research/urgent, Job research/old"
    assert forecast.settled
    notes = " ".join(forecast.notes)
    assert ("Unlike the snapshot" in notes, "1 ValidatingWebhookConfiguration" in notes) == (False, True), notes
    fields = "spec.priorities[].maxPodsPerNode and spec.priorities[].podFamily"
    assert f"Not judged, and without effect in the rehearsal: {fields} of ComputeClass pairs." in forecast.notes
    page = (repository / "out" / "rehearsal.md").read_text()
    assert page.startswith("# Rehearsal of `cluster`")


def test_a_change_that_the_cluster_refuses_is_refused_on_a_kept_base(repository: Path, runner: Path) -> None:
    folder = runner / "refused"
    shutil.copytree(SAMPLE / "cluster", folder)
    train = job("train")
    train["spec"]["template"]["spec"]["containers"][0]["args"] = ["another"]
    (folder / "jobs.yaml").write_text(yaml.safe_dump(train))
    folders = {"manifests": str(folder), "base": str(SAMPLE / "cluster")}
    printed = rehearse(repository, runner, 3, **folders)
    if "earlier rehearsal: none" in printed:  # no other test has kept a base
        printed = rehearse(repository, runner, 3, **folders)
    assert "earlier rehearsal: started" in printed
    refusal = printed.partition("The change is refused:")[2]
    assert "jobs.yaml, document 1: Job research/train: " in refusal
    assert "field is immutable" in refusal


def with_ray(text: str) -> str:
    """A snapshot in which the Workload of the Job `train`, its pods and no Job belong to a RayJob of this name."""
    content = json.loads(text)
    objects = content["objects"]
    objects["Job"] = [item for item in objects["Job"] if item["metadata"]["name"] != "train"]
    for kind in ("Workload", "Pod"):
        for item in objects[kind]:
            for owner in item["metadata"].get("ownerReferences", []):
                if owner["name"] == "train":
                    owner |= {"kind": "RayJob", "apiVersion": "ray.io/v1", "uid": RAY}
                    item["metadata"]["labels"] = {}
                    item["metadata"]["finalizers"] = []
    content["kueue"]["fairSharing"] = {"preemptionStrategies": ["LessThanInitialShare"]}
    return json.dumps(content)


def test_unlisted_fields_are_no_change_and_a_run_of_ray_makes_room(repository: Path, tmp_path: Path) -> None:
    """The base has the image of the server, the snapshot has another configuration of Kueue and a RayJob."""
    base, change = tmp_path / "base", tmp_path / "change"
    for folder, replicas in ((base, 1), (change, 2)):
        shutil.copytree(SAMPLE / "cluster", folder)
        (folder / "jobs.yaml").unlink()
        (folder / "web.yaml").write_text(yaml.safe_dump(server(replicas)))
    (change / "urgent.yaml").write_text(yaml.safe_dump(URGENT))
    (tmp_path / "ray.json").write_text(with_ray((repository / "snapshot.json").read_text()))
    state = str(tmp_path / "ray.json")
    printed = rehearse(repository, tmp_path, manifests=str(change), base=str(base), snapshot=state)
    forecast = read(repository / "out" / "rehearsal.json")
    (ray,) = forecast.evictions
    assert str(ray.workload).startswith("research/workload/"), printed
    assert str(ray.preemptor) == "research/job/urgent"
    assert {str(entry.workload) for entry in forecast.starts} == {"research/job/urgent", "research/deployment/web"}
    (web,) = forecast.servers
    assert (web.wanted_before, web.wanted_after, web.fewest) == (1, 2, 1), "its replica is not rolled out"
    assert forecast.interruptions == ()
    notes = " ".join(forecast.notes)
    assert "1 of RayJob" in notes
    assert "Kueue is configured otherwise" not in notes
