"""The environments that a team starts from, clusters that are there before, and configurations that must not pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end.standin import StandIn, until_none
from tests.end_to_end.test_convergence import EXAMPLE, assert_nothing_left, changed, section

pytestmark = pytest.mark.cluster

PROD = "Pulumi.prod.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
# What a cluster holds before anything is deployed to it; the objects of these kinds are compared by name.
KINDS = (
    "namespaces,crds,clusterroles,clusterrolebindings,priorityclasses,apiservices,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations"
)


def names(stand_in: StandIn, kinds: str) -> set[tuple[str, str]]:
    """Kind and name of every object of these kinds."""
    return {(found["kind"], found["metadata"]["name"]) for found in stand_in.get(kinds)}


def test_prod_comes_up_and_goes_when_its_protection_is_lifted(stand_in: StandIn) -> None:
    stand_in.make("up", stand_in.configure(PROD))
    assert stand_in.planned() == {}
    assert "protect" in stand_in.make("down", fails=True)
    cluster: dict[str, Any] = {**section("cluster", PROD), "protect": False}
    buckets = [{**bucket, "protect": False} for bucket in section("buckets", PROD)]
    pools = [{**pool, "protect": False} for pool in section("gpuPools", PROD)]
    stand_in.make("up", stand_in.configure(PROD, cluster=cluster, buckets=buckets, gpuPools=pools))
    stand_in.make("down")
    assert_nothing_left(stand_in)


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
