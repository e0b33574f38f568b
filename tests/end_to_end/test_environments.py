"""The environments that a team starts from, clusters that are there before, and configurations that must not pass."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from local.cluster.secret_sync import DUMMY_TOKEN
from tests.end_to_end.conftest import fresh
from tests.end_to_end.standin import StandIn, begun, cloud_of, eventually, gone, until_none
from tests.end_to_end.test_convergence import EXAMPLE, assert_nothing_left, changed, section

pytestmark = pytest.mark.cluster

DEV, PROD = "Pulumi.dev.yaml", "Pulumi.prod.yaml"
PROJECT = "my-project"  # in both, for the user to change
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
# What a cluster holds before anything is deployed to it; the objects of these kinds are compared by name.
KINDS = (
    "namespaces,crds,clusterroles,clusterrolebindings,priorityclasses,apiservices,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations"
)


def names(stand_in: StandIn, kinds: str) -> set[tuple[str, str]]:
    """Kind and name of every object of these kinds."""
    return {(found["kind"], found["metadata"]["name"]) for found in stand_in.get(kinds)}


def row(status: str, *cells: str) -> str:
    """The last line that has all of these, or nothing: a status stands at the end."""
    return next((line for line in reversed(status.splitlines()) if all(cell in line for cell in cells)), "")


def ready(stand_in: StandIn, namespace: str) -> dict[str, int]:
    """Replicas that are ready, by Deployment."""
    deployments = stand_in.get("deployments", "-n", namespace)
    return {one["metadata"]["name"]: one["status"].get("readyReplicas", 0) for one in deployments}


def token_in(stand_in: StandIn, namespace: str) -> str | None:
    """The token in the namespace's Secret, if GKE has made it."""
    for found in stand_in.get("secrets", "-n", namespace):
        if found["metadata"]["name"] == "hf-secret" and found["metadata"].get("ownerReferences"):
            return base64.b64decode(found["data"]["hf_api_token"]).decode()
    return None


def all_running(stand_in: StandIn, namespace: str) -> set[str]:
    """The pods of a namespace, once each of them runs; none before."""
    pods = stand_in.get("pods", "-n", namespace)
    started = all(pod["status"].get("phase") == "Running" for pod in pods)
    return {pod["metadata"]["uid"] for pod in pods} if started else set()


def test_dev_serves_trains_and_leaves_nothing(stand_in: StandIn) -> None:
    config = stand_in.configure(DEV)
    before = begun(stand_in, config)
    status = stand_in.make("up", config)
    assert "1 of 1" in row(status, "llm/gemma ")
    assert "Admitted" in row(status, "llm/job/finetune-")
    assert row(status, "research", "nvidia.com/gpu"), "the other team's queue"
    stand_in.make("smoke")  # fails where a server does

    running = eventually(lambda: all_running(stand_in, "llm"), "the run has started")
    stand_in.run("existing", "secret", "hf-token", "--project", PROJECT)
    stand_in.make("up", stand_in.configure(DEV, hfTokenSecret="hf-token"))
    eventually(lambda: token_in(stand_in, "llm") == DUMMY_TOKEN, "the token comes from Secret Manager from now on")
    assert running <= {pod["metadata"]["uid"] for pod in stand_in.get("pods", "-n", "llm")}, "nothing is disturbed"
    assert stand_in.planned() == {}
    stand_in.kubectl("-n", "llm", "delete", "job", "--all", "--wait=false")
    stand_in.kubectl("-n", "llm", "scale", "deployment/gemma", "--replicas=0")
    until_none(lambda: stand_in.get("nodes", "-l", "cloud.google.com/gke-accelerator"), "GPU nodes go when idle", 60)
    stand_in.make("down")
    stand_in.run("existing", "forget", "hf-token", "--project", PROJECT)
    gone(stand_in, before)


# ---------------------------------------------------------------------------------------------------------------- prod
@pytest.fixture(scope="module")
def prod() -> Iterator[StandIn]:
    """Production, deployed; the tests below use it in their order, and the last takes it down."""
    with fresh() as stand_in:
        config = stand_in.configure(PROD)
        refused = stand_in.make("up", config, fails=True)
        command = "local/run existing secret hf-token --project my-project"
        assert command in refused
        stand_in.run(*command.split()[1:])
        stand_in.make("up", config)
        yield stand_in


def test_prod_changes_nothing_twice(prod: StandIn) -> None:
    assert prod.planned() == {}


def test_token_comes_from_secret_manager_past_the_program(prod: StandIn) -> None:
    for namespace in ("serving", "training"):
        assert token_in(prod, namespace) == DUMMY_TOKEN
    for file in (prod.state / "backend").rglob("*"):
        assert not file.is_file() or DUMMY_TOKEN.encode() not in file.read_bytes(), f"the token is in {file.name}"


def test_servers_of_every_engine_answer(prod: StandIn) -> None:
    said = prod.make("smoke")
    for server in ("gemma", "llama", "jetstream"):
        assert row(said, f"serving/{server}"), said


def test_training_borrows_what_serving_leaves_and_gives_it_back(prod: StandIn) -> None:
    status = prod.make("status")
    assert "Admitted" in row(status, "training/job/finetune-")
    assert "8, 4 borrowed" in row(status, "training", "l4", "nvidia.com/gpu")
    assert "2 of 2" in row(status, "training/pretrain-"), "both slices train"

    prod.kubectl("-n", "serving", "scale", "deployment/gemma", "--replicas=3")
    eventually(lambda: ready(prod, "serving")["gemma"] == 3, "the third replica gets the GPUs that training borrowed")
    status = prod.make("status")
    assert "Evicted: Preempted" in row(status, "training/job/finetune-", "reclamation within the cohort")

    prod.kubectl("-n", "serving", "scale", "deployment/gemma", "--replicas=2")
    eventually(lambda: row(prod.make("status"), "training", "nvidia.com/gpu", "8, 4 borrowed"), "training resumes")


def test_protected_prod_goes_only_when_its_configuration_lets_it(prod: StandIn) -> None:
    before = cloud_of(prod)
    refused = prod.make("down", fails=True)
    for guarded in ("cluster ai-prod", "bucket ai-prod-models-my-project", "nodepool slice-1", "nodepool v5e"):
        assert guarded in refused
    assert cloud_of(prod) == before

    unprotected: dict[str, Any] = {
        "cluster": {**section("cluster", PROD), "protect": False},
        "buckets": [{**bucket, "protect": False} for bucket in section("buckets", PROD)],
        "tpuPools": [{**pool, "protect": False} for pool in section("tpuPools", PROD)],
    }
    demanded = prod.make("up", prod.configure(PROD, **unprotected), fails=True)
    assert "what-matters-is-protected" in demanded
    prod.make("up", prod.configure(PROD, **unprotected, policies="advisory"))
    kept = prod.make("down")
    assert "gs://ai-prod-models-my-project" in kept
    assert_nothing_left(prod)
    left = {f"projects/{PROJECT}/secrets/hf-token", "ai-prod-models-my-project"}
    assert cloud_of(prod) == left


# ----------------------------------------------------------------------------------------------------------- beforehand
def test_existing_cluster_is_left_as_it_was_found(stand_in: StandIn) -> None:
    cluster = section("cluster", AUTOPILOT)
    stand_in.run("existing", "create", cluster["name"], "--mode", "autopilot", "--location", cluster["location"])
    kubeconfig = stand_in.state / "test-kubeconfig"
    kubeconfig.write_text((stand_in.state / "clusters" / cluster["name"] / "kubeconfig").read_text())
    before = names(stand_in, KINDS)
    existing = {key: cluster[key] for key in ("name", "location")} | {"mode": "existing", "existingMode": "autopilot"}
    stand_in.make("up", stand_in.configure(AUTOPILOT, cluster=existing))
    assert stand_in.planned() == {}
    assert names(stand_in, KINDS) > before
    stand_in.make("down")
    until_none(lambda: names(stand_in, KINDS) - before, "what was deployed is gone")
    assert before - names(stand_in, KINDS) == set()


def test_bad_configuration_creates_nothing_and_shows_no_traceback(stand_in: StandIn) -> None:
    pool = {**section("gpuPools")[0], "machineTyp": "g2-standard-24", "zones": ["europe-west4-a"]}
    config = stand_in.configure(EXAMPLE, gpuPools=[pool], **changed("serving", queue="lg"))
    for command in ("preview", "up"):
        said = stand_in.make(command, config, fails=True)
        for path in ("gke-ai:gpuPools[0].machineTyp", "gke-ai:gpuPools[0].zones[0]", "gke-ai:serving[0].queue"):
            assert path in said, f"{path} is not reported by {command}"
        assert "Traceback" not in said
        assert "did you mean" in said.lower()
    assert [found for found in stand_in.exported().get("resources", []) if found["custom"]] == []
    assert not list((stand_in.state / "clusters").glob("*"))


def test_missing_token_names_both_ways_to_give_it(stand_in: StandIn) -> None:
    config = stand_in.configure(EXAMPLE)
    command = ("sh", "-c", f"unset HF_TOKEN; python -m local.stack preview --stack test --config {config}")
    said = stand_in.run(*command, fails=True)
    assert "pulumi config set --secret gke-ai:hfToken" in said
    assert "HF_TOKEN" in said
