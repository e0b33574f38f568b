"""Only here: an `up` that is killed or meets a late webhook, and a teardown of busy queues, lose and double nothing."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.emulator import (
    Emulator,
    assert_nothing_left,
    begin_up,
    eventually,
    fresh,
    killed_at_random,
    killed_up,
    recovered,
    settled,
)
from tests.support.examples import EXAMPLE, changed, section

EMPTY = "tests/data/empty.yaml"
NIGHTLY = pytest.mark.nightly
FOUR = changed("serving", replicas=4)


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The protected example with four replicas, one of them gated, and a waiting fine-tuning Job.

    Kueue's Deployment is ready 8 s before its webhook answers. The tests below use it in order.
    """
    with fresh(GKE_AI_WEBHOOK_DELAY="8") as emulator:
        emulator.make("up", emulator.configure(EXAMPLE, **FOUR, **changed("cluster", protect=True)))
        eventually(lambda: gated(emulator) == 1, "the fourth replica is gated")
        yield emulator


def gated(emulator: Emulator) -> int:
    """How many pods of the server wait for quota."""
    return sum(1 for pod in emulator.get("pods", "-n", "llm") if pod["spec"].get("schedulingGates"))


def test_these_tests_read_what_kubectl_gets(deployed: Emulator) -> None:
    def named(objects: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
        return sorted((entry["apiVersion"], entry["kind"], entry["metadata"]["name"]) for entry in objects)

    for words in (
        "deployments,jobs,services -n llm",
        "workloads -A",
        "pods -n llm -l app=gemma-server",
        "secrets -n llm --field-selector=metadata.name=hf-secret",
        "clusterqueues,nodes,crds,hpa",
    ):
        by_kubectl = json.loads(deployed.kubectl("get", "-o", "json", *words.split()))["items"]
        assert named(deployed.get(*words.split())) == named(by_kubectl) != [], words


def test_changed_cluster_and_pool_touch_no_kubernetes_object(deployed: Emulator) -> None:
    settled(deployed)  # with a replica gated
    cluster = changed("cluster", protect=True, labels={"team": "research"}, releaseChannel="regular")
    deployed.prepare(deployed.configure(EXAMPLE, **FOUR, **cluster, **changed("gpuPools", nodesPerZone=4)))
    plan = {operation: sorted(names) for operation, names in deployed.planned().items()}
    both = ["gcp:container/cluster:Cluster::llm-cluster", "gcp:container/nodePool:NodePool::gpupool"]
    assert plan == {"update": both}


def test_protected_stack_refuses_before_anything_is_deleted(deployed: Emulator) -> None:
    before = deployed.exported()["resources"]
    assert "gke-ai:cluster.protect" in deployed.make("down", fails=True)
    deployed.pulumi("destroy", "--yes", fails=True)  # its own preview refuses
    assert len(deployed.exported()["resources"]) == len(before)
    assert deployed.get("pods", "-n", "llm")


def test_teardown_with_a_job_running_and_a_replica_gated_leaves_nothing(deployed: Emulator) -> None:
    queues = section("queues")
    queues["clusterQueues"][0]["preemption"] = {"withinClusterQueue": "Never"}  # else the Job would give way
    deployed.make("up", deployed.configure(EXAMPLE, queues=queues))

    jobs = partial(deployed.get, "jobs", "-n", "llm")
    eventually(lambda: jobs()[0]["status"].get("active") == 2, "the fine-tune Job runs beside one replica")
    deployed.kubectl("-n", "llm", "scale", "deployment/tgi-gemma-deployment", "--replicas=2")
    eventually(lambda: gated(deployed) == 1, "the second replica is gated")
    assert jobs()[0]["status"]["active"] == 2
    deployed.make("down")
    assert_nothing_left(deployed)


@NIGHTLY
@pytest.mark.parametrize("delay", range(0, 40, 4))
def test_first_up_succeeds_however_late_the_webhook_answers(delay: int, emulator_with: Callable[..., Emulator]) -> None:
    emulator = emulator_with(GKE_AI_WEBHOOK_DELAY=str(delay))
    emulator.make("up", emulator.configure(EXAMPLE))
    assert emulator.planned() == {}


RELEASE = "kubernetes:helm.sh/v3:Release"
CLOUD = ("gcp:container:Cluster", "gcp:storage:Bucket", "gcp:container:NodePool")
QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
OBJECTS = ("kubernetes:core/v1:Namespace", QUEUE, "kubernetes:apps/v1:Deployment", "kubernetes:batch/v1:Job")
# Where an `up` is killed: the type that is being created, and what Helm says then.
KILLS = [
    pytest.param(RELEASE, "pending-install", id="release half installed"),
    pytest.param(RELEASE, "deployed", id="release installed and not recorded"),
    *(pytest.param(point, None, id=point) for point in (*CLOUD, RELEASE, *OBJECTS)),
]


@NIGHTLY
@pytest.mark.parametrize(("point", "release"), KILLS)
def test_killed_up_recovers_with_nothing_twice_and_nothing_lost(
    point: str, release: str | None, emulator_with: Callable[..., Emulator]
) -> None:
    emulator = emulator_with(GKE_AI_WEBHOOK_DELAY="4", GKE_AI_CLOUD_LATENCY="1")
    config = emulator.configure(EXAMPLE)
    killed_up(emulator, config, point, release)
    recovered(emulator, config)
    assert len(emulator.get("deployments,jobs,services", "-n", "llm")) == 4
    if release:
        releases = emulator.get("secrets", "-n", "kueue-system", "-l", "owner=helm")
        assert [release["metadata"]["labels"]["status"] for release in releases] == ["deployed"]


@NIGHTLY
def test_up_killed_while_it_replaces_a_pool_recovers(emulator_with: Callable[..., Emulator]) -> None:
    emulator = emulator_with(GKE_AI_CLOUD_LATENCY="1")
    stack = {"cluster": section("cluster"), "gpuPools": section("gpuPools")}
    emulator.make("up", emulator.configure(EMPTY, **stack))
    replaced = {**stack["gpuPools"][0], "machineType": "g2-standard-48", "gpusPerNode": 4}
    config = emulator.configure(EMPTY, **stack | {"gpuPools": [replaced]})
    killed_up(emulator, config, "gcp:container:NodePool")
    recovered(emulator, config)


@NIGHTLY
def test_of_two_ups_at_once_the_second_is_refused_and_the_first_deploys_its_own(emulator: Emulator) -> None:
    first = emulator.configure(EMPTY, cluster={"labels": {"team": "first"}})
    second = emulator.state / "second.yaml"
    second.write_text(first.read_text().replace("team: first", "team: second"))
    up = begin_up(emulator, first)
    source = emulator.state / "config" / "test.source"
    eventually(source.exists, "the first up has chosen its configuration")
    refused = emulator.make("up", second, fails=True)
    assert "second.yaml is not the configuration with which another command deploys or previews test now." in refused
    output = up.communicate()[0]
    assert up.returncode == 0, output
    (cluster,) = (item for item in emulator.exported()["resources"] if item["type"].endswith(":Cluster"))
    assert cluster["inputs"]["resourceLabels"]["team"] == "first"
    emulator.make("up", second)


# The moments of the random kills; GKE_AI_KILL_SEED repeats those of an earlier run.
KILL_SEED = os.environ.get("GKE_AI_KILL_SEED") or str(time.time_ns())


@pytest.mark.nightly
@pytest.mark.parametrize("kill", range(30))
def test_up_killed_at_any_moment_recovers(kill: int, emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    config = emulator.configure("Pulumi.dev.yaml")
    happened = killed_at_random(emulator, config, random.Random(f"{KILL_SEED} {kill}"))
    with capsys.disabled():
        print(f"\nGKE_AI_KILL_SEED={KILL_SEED}, kill {kill}: {happened}")
    recovered(emulator, config)
    emulator.make("down")
    assert_nothing_left(emulator)


def test_on_destroy_keeps_a_bucket_or_deletes_it_with_its_data(emulator: Emulator) -> None:
    cluster, bucket = section("cluster"), {"name": "model-bucket-{project}", "onDestroy": "delete"}
    kept = {"name": "kept-{project}", "onDestroy": "keep"}
    emulator.make("up", emulator.configure(EMPTY, cluster=cluster, buckets=[bucket, kept]))
    for name in ("model-bucket-emulator-project", "kept-emulator-project"):
        emulator.run("bucket", "put", name, "checkpoint-10/model")
    output = emulator.make("down")
    assert "gs://kept-emulator-project" in output
    assert "checkpoint-10/model" in emulator.run("bucket", "ls", "kept-emulator-project")
    assert "model-bucket-emulator-project" in emulator.run("bucket", "ls", "model-bucket-emulator-project", fails=True)

    emulator.make("up", emulator.configure(EMPTY, cluster=cluster, buckets=[bucket, {**kept, "adopt": True}]))
    assert emulator.planned() == {}
    assert "checkpoint-10/model" in emulator.run("bucket", "ls", "kept-emulator-project")
