"""RDMA between nodes: what a run over several nodes of A4 makes of its pool, its queue, its namespace and its pods."""

import copy
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.fabric import rdma
from gke_ai.catalog.fabric.rdma import DEVICE_CLASS, PLUGIN_PATH, PROFILE_LABEL, RESOURCE, SINCE, TEMPLATE
from gke_ai.catalog.machines.features import ordered
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS
from gke_ai.catalog.section_files import PREFIX
from gke_ai.registered.registration import RegisteredStack
from gke_ai.review.policy.rules.accelerators import quota_within_capacity
from gke_ai.settings.published import place
from tests.support.mistakes import base
from tests.support.recorder import Cloud, Record, load_stack, run_program, shared_record
from tests.support.registered import policy_resources, published

Object = dict[str, Any]


def stack_of(of_base: str = "good", **changes: Any) -> Object:
    """A stack with a run of two A4 nodes, or with another base."""
    values = copy.deepcopy(base("rdma", of_base))
    if changes:
        values["gpuPools"][0] |= changes
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def pod_of(record: Record) -> Object:
    """The spec of the pods of the run."""
    (job,) = record.one("JobSet").inputs["spec"]["replicatedJobs"]
    spec: Object = job["template"]["spec"]["template"]["spec"]
    return spec


def manager_of(record: Record) -> Object:
    """The configuration of Kueue's manager."""
    values = record.one("Release", "kueue").inputs["values"]
    manager: Object = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    return manager


def with_tenant(of_base: str = "good") -> Object:
    tenant = {"name": "llm", "priorityClasses": ["low"], "buckets": ["datasets", "checkpoints"]}
    return stack_of(of_base) | {f"{PREFIX}tenants": [tenant]}


@pytest.mark.parametrize(("pods", "expected"), [(1, False), (2, True)])
def test_only_a_run_over_several_nodes_needs_the_network(pods: int, expected: bool) -> None:
    values = stack_of()
    values[f"{PREFIX}training"][0] |= {"pods": pods, "topology": None}
    stack = load_stack(values)
    assert (stack.pools[0].fabric.nics > 0, stack.placed[0].fabric.nics > 0) == (expected, expected)
    assert stack.claims["llm"] == ((TEMPLATE,) if expected else ())


def test_a_key_keeps_the_network_without_a_run() -> None:
    values = stack_of(rdma=True) | {f"{PREFIX}training": []}
    assert load_stack(values).pools[0].fabric.nics == 8


def test_pods_claim_the_nics_of_a_node_and_install_the_plugin() -> None:
    record = shared_record(stack_of())
    pod = pod_of(record)
    assert pod["resourceClaims"] == [{"name": TEMPLATE, "resourceClaimTemplateName": TEMPLATE}]
    assert pod["nodeSelector"][PROFILE_LABEL] == "auto"
    (container,), (install,) = pod["containers"], pod["initContainers"]
    assert container["resources"]["claims"] == [{"name": TEMPLATE}]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["NCCL_NET"] == "gIB"
    assert PLUGIN_PATH in variables["LD_LIBRARY_PATH"]
    assert {mount["name"] for mount in install["volumeMounts"]} < {mount["name"] for mount in container["volumeMounts"]}
    template = record.one("ResourceClaimTemplate")
    (request,) = template.inputs["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": 8}


def test_pods_of_a_fine_tuning_run_claim_them_too_and_load_the_settings_of_the_machine() -> None:
    record, of_job = shared_record(stack_of("tuned")), pod_of(shared_record(stack_of()))
    assert record.one("NodePool", "b200").inputs["networkConfig"]["acceleratorNetworkProfile"] == "auto"
    assert record.one("ResourceClaimTemplate").inputs["metadata"]["namespace"] == "llm"
    template = record.one("Job").inputs["spec"]["template"]
    assert "networking.gke.io/interfaces" not in template["metadata"]["annotations"]
    pod = template["spec"]
    for key in ("resourceClaims", "initContainers"):
        assert pod[key] == of_job[key]
    assert pod["nodeSelector"][PROFILE_LABEL] == "auto"
    (container,) = pod["containers"]
    assert container["resources"]["claims"] == [{"name": TEMPLATE}]
    assert f"source {PLUGIN_PATH}/scripts/set_nccl_env.sh\naccelerate launch" in container["command"][2]
    assert {"name": "NCCL_NET", "value": "gIB"} in container["env"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_a_fine_tuning_run_on_one_node_claims_no_nics() -> None:
    values = stack_of("tuned")
    values[f"{PREFIX}training"][0] |= {"pods": 2, "gpusPerPod": 4}
    stack = load_stack(values)
    assert (stack.pools[0].fabric.nics, stack.placed[0].fabric.nics) == (0, 0)


def class_of(record: Record) -> Object:
    """The spec of the ComputeClass, whose component has the same type."""
    (created,) = (item for item in record.all("ComputeClass") if "spec" in item.inputs)
    spec: Object = created.inputs["spec"]
    return spec


@pytest.mark.parametrize("cluster", [{}, {"mode": "autopilot", "vpc": None}], ids=["standard", "autopilot"])
def test_a_class_has_the_network_in_one_zone_and_pods_on_it_claim_nics(cluster: Object) -> None:
    values = stack_of("on_a_class")
    values[f"{PREFIX}cluster"] |= cluster
    record = shared_record(values)
    spec = class_of(record)
    assert spec["nodePoolConfig"]["dra"] == {"networking": {"enabled": True}}
    (priority,) = spec["priorities"]
    assert (priority["acceleratorNetworkProfile"], priority["location"]) == ("auto", {"zones": ["us-central1-b"]})
    assert record.one("IAMMember", "gke-networks").inputs["role"] == rdma.AGENT_ROLE
    pod = pod_of(record)
    assert pod["nodeSelector"] == {COMPUTE_CLASS: "b200"}, "the autoscaler knows no other label of a new node"
    assert pod["resourceClaims"] == [{"name": TEMPLATE, "resourceClaimTemplateName": TEMPLATE}]
    assert record.one("ResourceClaimTemplate").inputs["metadata"]["namespace"] == "llm"
    assert manager_of(record)["resources"]["deviceClassMappings"][0]["name"] == RESOURCE


def test_a_class_without_the_key_has_no_network() -> None:
    values = stack_of("on_a_class")
    del values[f"{PREFIX}computeClasses"][0]["rdmaZone"]
    values[f"{PREFIX}training"][0]["acceptSlowNetwork"] = True
    record = shared_record(values)
    spec = class_of(record)
    assert "dra" not in spec.get("nodePoolConfig", {})
    assert "acceleratorNetworkProfile" not in str(spec["priorities"])
    assert record.all("IAMMember") == []
    assert "resourceClaims" not in pod_of(record)


@pytest.mark.parametrize("of_base", ["good", "on_a_class"])
def test_a_member_places_a_run_on_the_network_of_a_pool_or_a_class(of_base: str) -> None:
    values = with_tenant(of_base)
    run = {**values[f"{PREFIX}training"][0], "name": "mine"}
    placed, problems = place(published(values, "llm"), "training", run)
    assert (placed and placed.fabric.nics, problems) == (8, [])


def test_without_the_network_nothing_of_it_is_registered() -> None:
    values = stack_of()
    values[f"{PREFIX}training"][0]["acceptSlowNetwork"] = True
    record = shared_record(values)
    assert record.all("ResourceClaimTemplate") == record.all("IAMMember") == []
    assert "resourceClaims" not in pod_of(record)
    assert "acceleratorNetworkProfile" not in record.one("NodePool", "b200").inputs["networkConfig"]
    assert "mrdma" not in str(record.one("ClusterQueue").inputs)


def test_kueue_counts_nics_with_derived_quota() -> None:
    record = shared_record(stack_of())
    (group,) = record.one("ClusterQueue").inputs["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert {item["name"]: item["nominalQuota"] for item in flavor["resources"]}[RESOURCE] == "64"
    mapping = {"name": RESOURCE, "deviceClassNames": [DEVICE_CLASS]}
    assert manager_of(record)["resources"] == {"deviceClassMappings": [mapping]}


def test_a_tenant_has_a_quota_of_claims() -> None:
    hard = shared_record(with_tenant()).one("ResourceQuota").inputs["spec"]["hard"]
    assert (hard[rdma.OF_CLASS], hard[rdma.CLAIMS]) == ("128", "16")
    assert f"requests.{RESOURCE}" not in hard


@pytest.mark.parametrize(
    ("version", "expected"),
    [(SINCE, True), ("1.34.1-gke.1829000", False), ("1.33.9-gke.9999999", False), ("1.36.1-gke.1027000", True)],
)
def test_versions_of_gke_with_the_driver(version: str, expected: bool) -> None:
    assert (ordered(version) >= ordered(rdma.since(autopilot=False))) is expected
    assert (ordered(version) >= ordered(rdma.since(autopilot=True))) is version.startswith("1.36")


OLD_GKE = {"datapathProvider": "ADVANCED_DATAPATH", "masterVersion": "1.33.4-gke.1000000"}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "does not have Dataplane V2.*acceptSlowNetwork: true"),
        ({"datapathProvider": "LEGACY_DATAPATH"}, "does not have Dataplane V2"),
        (OLD_GKE, f"has GKE 1.33.4-gke.1000000.*need {SINCE}.*clusters upgrade"),
    ],
)
def test_an_unfit_existing_cluster_is_refused(answer: Object, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"name": "llm-cluster", "mode": "existing", "location": "us-central1"}
    monkeypatch.setattr(Cloud, "further", answer)
    with pytest.raises(pulumi.RunError, match=message):
        run_program(stack_of() | {f"{PREFIX}cluster": cluster}, True, monkeypatch)


@pytest.mark.parametrize(("nics", "messages"), [("64", 0), ("65", 1)])
def test_the_policy_compares_quota_for_nics_with_those_of_the_pools(nics: str, messages: int) -> None:
    values = stack_of()
    quota = {"cpu": "400", "memory": "4000Gi", "nvidia.com/gpu": "64", "ephemeral-storage": "10Ti", RESOURCE: nics}
    values[f"{PREFIX}queues"]["clusterQueues"][0]["flavors"][0]["quota"] = quota
    stack = RegisteredStack(policy_resources(shared_record(values)), {})
    assert len(list(quota_within_capacity.violations(stack))) == messages
