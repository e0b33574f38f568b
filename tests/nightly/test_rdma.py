"""Only here: the real scheduler gives a run the NICs of two A4 nodes, Kueue counts them, and attacks are refused.

Autopilot creates such nodes for a run on a compute class. Pods of a run start on nodes with the networks of A3 Mega."""

import json
from collections.abc import Iterator

import pytest

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT_LABEL
from gke_ai.catalog.fabric.rdma import CLAIMS, DEVICE_API, DEVICE_CLASS, NICS_PER_POD, OF_CLASS, RESOURCE, TEMPLATE
from gke_ai.catalog.fabric.rdma import claim_template as template_of
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.snapshot.format import read as read_snapshot
from gke_ai.kube.objects import condition
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.settings import load
from tests.support.emulator import Emulator, eventually, fresh, settled
from tests.support.mistakes import PROJECT, base
from tests.support.rdma import RUN, Object, allocated, allow, create, of_queue, pod, queued, refused, running, values


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    """A run that has all NICs of the pool. The tests below use it in order."""
    with fresh() as emulator:
        emulator.make("up", emulator.written("rdma", **values([RUN])))
        yield emulator


def status(emulator: Emulator) -> str:
    """What `gke-ai status` prints, with the lines of a cell joined."""
    return " ".join(emulator.make("status").split())


def test_each_pod_of_the_run_gets_the_nics_of_its_node(cluster: Emulator) -> None:
    eventually(lambda: len(running(cluster, "first")) == 2, "the run has its nodes")
    results = allocated(cluster)
    assert [len(devices) for devices in results] == [NICS_PER_POD, NICS_PER_POD]
    assert {device["driver"] for devices in results for device in devices} == {"dra.net"}
    pools = {device["pool"] for devices in results for device in devices}
    assert pools == {f"{item['spec']['nodeName']}-dra.net" for item in running(cluster, "first")}
    assert of_queue(cluster)[RESOURCE] == "16"
    (quota,) = (item for item in cluster.get("resourcequotas", "-n", "llm") if item["metadata"]["name"] == "tenant")
    assert (quota["status"]["used"][CLAIMS], quota["status"]["hard"][CLAIMS]) == ("2", "4")
    assert (quota["status"]["used"][OF_CLASS], quota["status"]["hard"][OF_CLASS]) == ("16", "32")
    assert "NICs 16 of 16" in status(cluster)
    settled(cluster)


MINE = {"name": "mine", "namespace": "llm"}
UNCOUNTED, OF_KUBERNETES = "claims devices that no queue counts", "only Kubernetes may write"


def claim(mode: str, device_class: str = DEVICE_CLASS, **count: int) -> Object:
    """A claim that the tenant writes itself."""
    exactly = {"deviceClassName": device_class, "allocationMode": mode, **count}
    spec = {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}
    return {"apiVersion": DEVICE_API, "kind": "ResourceClaim", "metadata": MINE, "spec": spec}


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (pod("x"), UNCOUNTED),  # without a GPU
        (pod("x", gpus=8), "requests accelerators or their nodes without a queue"),
        (queued(claims=[{"name": "a", "resourceClaimName": "mine"}]), UNCOUNTED),
        (queued(claims=[{"name": "a", "resourceClaimTemplateName": "mine"}]), UNCOUNTED),
        (queued(claims=[{"name": name, "resourceClaimTemplateName": TEMPLATE} for name in "ab"]), UNCOUNTED),
        ({**template_of("llm"), "metadata": MINE}, "only the platform may write it"),
        (claim("ExactCount", count=1), OF_KUBERNETES),
        (claim("ExactCount", "netdev.google.com", count=1), OF_KUBERNETES),
        (claim("All"), OF_KUBERNETES),
        (claim("ExactCount", count=9), OF_KUBERNETES),
    ],
)
def test_an_attack_of_the_tenant_is_refused(cluster: Emulator, item: Object, cause: str) -> None:
    allow(cluster, "pods,resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io")
    assert cause in refused(cluster, item)


def test_a_second_run_waits_for_quota_of_nics(cluster: Emulator) -> None:
    (placed,) = load(values([{**RUN, "name": "second"}]), PROJECT).placed_runs
    (jobset,) = objects_of(placed.section, place_of(placed))
    create(cluster, jobset)
    second = jobset["metadata"]["name"]

    def waits() -> bool:
        workloads = cluster.get("workloads", "-n", "llm")
        own = [item for item in workloads if item["metadata"]["ownerReferences"][0]["name"] == second]
        return any("insufficient" in condition(item, "QuotaReserved").get("message", "") for item in own)

    eventually(waits, "Kueue says why it waits")
    assert not running(cluster, second)
    cluster.kubectl("-n", "llm", "delete", "jobset", second)  # the tests below count what waits


def claimed(snapshot: Snapshot) -> list[int]:
    """How many devices each claim of a snapshot has."""
    allocated = [item for item in snapshot.of("ResourceClaim") if item.get("status", {}).get("allocation")]
    results = [item["status"]["allocation"]["devices"]["results"] for item in allocated]
    return [len({f"{device['pool']}/{device['device']}" for device in devices}) for devices in results]


def rehearsed(emulator: Emulator, name: str, *options: str) -> Object:
    """The forecast of a change that adds a run of a higher priority."""
    out = emulator.state / "out.json"
    more = values([RUN, {**RUN, "name": name, "priorityClass": "high"}])
    more["tenants"] = [{"name": "llm", "priorityClasses": ["low", "high"]}]
    change = emulator.written(name, **more)
    sides = ["--base", str(emulator.state / "rdma.yaml"), "--config", str(change), "--json", str(out)]
    emulator.run("gke-ai", "rehearse", "--stack", emulator.stack, *sides, *options)
    forecast: Object = json.loads(out.read_text())
    return forecast


def preempts_first(forecast: Object, name: str) -> None:
    """The first run is evicted and waits for NICs, and the other one has its pods on nodes."""
    evicted = [(eviction["workload"].split("-")[0], eviction["reason"]) for eviction in forecast["evictions"]]
    assert evicted == [("llm/jobset/first", "Preempted")]
    assert [start["workload"].split("-")[0] for start in forecast["starts"]] == [f"llm/jobset/{name}"]
    assert [f"16 more {RESOURCE}" in wait["text"] for wait in forecast["waits"]] == [True], forecast["waits"]
    assert forecast["refused"] == ""


def test_a_rehearsal_gives_the_nics_of_the_run_to_another_also_from_a_snapshot(cluster: Emulator) -> None:
    preempts_first(rehearsed(cluster, "urgent"), "urgent")
    file = cluster.snapshot()
    snapshot = read_snapshot(file.read_text())
    assert claimed(snapshot) == [NICS_PER_POD, NICS_PER_POD]
    assert snapshot.kueue is not None
    mapping = {"name": RESOURCE, "deviceClassNames": [DEVICE_CLASS]}
    assert snapshot.kueue["resources"]["deviceClassMappings"] == [mapping]
    # Another name: in tests, a kept base has the control plane of the rehearsal before, and the record of its run.
    forecast = rehearsed(cluster, "sooner", "--snapshot", str(file))
    assert not [note for note in forecast["notes"] if "Resource" in note or "DeviceClass" in note], forecast["notes"]
    preempts_first(forecast, "sooner")


def test_a_pod_outside_the_queue_waits_for_an_exclusive_nic_and_follows(cluster: Emulator) -> None:
    create(cluster, template_of("default"))
    create(cluster, pod("other", "default"))

    def message() -> str:
        (waiting,) = (item for item in cluster.get("pods", "-n", "default") if item["metadata"]["name"] == "other")
        return str(condition(waiting, "PodScheduled").get("message", ""))

    eventually(lambda: "cannot allocate all claims" in message(), "the scheduler says why it waits")
    assert "is not allocated: it requests 8 NICs, and no node has more than 0 free" in status(cluster)
    (jobset,) = (item for item in cluster.get("jobsets", "-n", "llm") if item["metadata"]["name"].startswith("first"))
    cluster.kubectl("-n", "llm", "delete", "jobset", jobset["metadata"]["name"])
    eventually(lambda: bool(running(cluster, "other", "default")), "it has the NICs of a node")


def test_a_run_on_a_compute_class_gets_the_nics_of_its_nodes(emulator: Emulator) -> None:
    good = base("rdma", "on_a_class")
    run = {key: value for key, value in RUN.items() if key != "pool"} | {"computeClass": "b200"}
    cluster = {"name": "llm-cluster", "mode": "autopilot", "location": "us-central1"}
    sections = {"computeClasses": good["computeClasses"], "queues": good["queues"], "training": [run]}
    emulator.make("up", emulator.written(cluster=cluster, **sections))
    eventually(lambda: len(running(emulator, "first")) == 2, "the run has its nodes")
    assert [len(devices) for devices in allocated(emulator)] == [NICS_PER_POD, NICS_PER_POD]
    assert of_queue(emulator)[RESOURCE] == "16"
    zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in emulator.get("nodes")}
    assert "us-central1-b" in zones


def test_the_pods_of_a_run_start_on_two_nodes_and_each_has_the_installers(emulator: Emulator) -> None:
    good = base("gpudirect")
    pools, training = [{**good["gpuPools"][0], "nodesPerZone": 2}], [{**RUN, "pool": "mega"}]
    sections = {"cluster": good["cluster"], "gpuPools": pools, "queues": good["queues"], "training": training}
    emulator.make("up", emulator.written(**sections))

    def nodes_of(namespace: str) -> list[str]:
        pods = emulator.get("pods", "-n", namespace)
        return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["status"].get("phase") == "Running")

    nodes = [node["metadata"] for node in emulator.get("nodes") if GPUDIRECT_LABEL in node["metadata"]["labels"]]
    names = sorted(node["name"] for node in nodes)
    assert len(names) == 2
    eventually(lambda: nodes_of("llm") == names, "pods of the run on both nodes")
    eventually(lambda: nodes_of("gpudirect") == sorted(2 * names), "both installers on each node")
