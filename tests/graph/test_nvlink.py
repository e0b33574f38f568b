"""NVLink domains of GB200: what a pool of A4X, and a run over several of its nodes, make of what is around them."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK
from gke_ai.catalog.fabric.nvlink import CHANNEL_CLASS, CHANNELS, DOMAIN
from gke_ai.catalog.fabric.nvlink import OF_CLASS as CHANNELS_OF_CLASS
from gke_ai.catalog.fabric.rdma import CLAIMS, DEVICE_CLASS, OF_CLASS, PROFILE_LABEL, RESOURCE
from gke_ai.catalog.machines import metal
from gke_ai.catalog.nodes.daemonsets import agent_requests
from gke_ai.catalog.nodes.shape import ARM_TAINT, allocatable, capacity_of, free
from gke_ai.catalog.quantities import GI, KI
from gke_ai.catalog.section_files import PREFIX
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.registered.registration import RegisteredStack
from gke_ai.review.gitops.objects import Stage, in_cluster
from gke_ai.review.policy.rules.accelerators import quota_within_capacity
from gke_ai.settings.published import place
from tests.support.mistakes import base
from tests.support.recorder import Record, load_stack, shared_record
from tests.support.registered import policy_resources, published, resources

ARM = {"key": ARM_TAINT.key, "operator": "Equal", "value": ARM_TAINT.value, "effect": ARM_TAINT.effect}


def stack_of(name: str = "good", **changes: Any) -> dict[str, Any]:
    """A stack with a pool of GB200 and a run on one node of it. `two_nodes`: a run over two of its nodes."""
    values = base("nvlink", name)
    values["gpuPools"][0] |= changes
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def pods_of(record: Record) -> dict[str, Any]:
    (job,) = record.one("JobSet").inputs["spec"]["replicatedJobs"]
    spec: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return spec


def test_a_workload_policy_places_the_pool_in_one_domain() -> None:
    values = stack_of()
    record = shared_record(values)
    policy, pool = record.one("ResourcePolicy"), record.one("NodePool", "gb200")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "1x72"}
    assert policy.inputs["region"] == "us-central1"
    assert policy.inputs["name"].startswith("gb200-")
    assert pool.inputs["placementPolicy"] == {"type": "", "policyName": policy.inputs["name"]}
    assert pool.inputs["nodeLocations"] == ["us-central1-b"]
    assert f"ResourcePolicy {policy.inputs['name']}" in record.waits_for(pool)
    assert pods_of(record)["tolerations"] == [ARM]
    assert ARM in record.one("ResourceFlavor").inputs["spec"]["tolerations"]
    values[f"{PREFIX}cluster"]["name"] = "other"
    assert shared_record(values).one("ResourcePolicy").inputs["name"] != policy.inputs["name"], "of another cluster"


def test_a_run_on_one_node_needs_no_domain_and_a_key_keeps_network_and_domain_without_a_run() -> None:
    values = stack_of()
    for gpus in (1, 4):
        values[f"{PREFIX}training"][0]["gpusPerPod"] = gpus
        placed = load_stack(values).placed[0]
        assert (placed.accelerators, placed.fabric) == (gpus, DEFAULT_NETWORK)
    values = stack_of("two_nodes", rdma=True)
    values[f"{PREFIX}training"] = []
    assert load_stack(values).claims["llm"] == (DOMAIN, "rdma-4")


def test_pods_of_a_fine_tuning_run_claim_the_same() -> None:
    values = stack_of("two_nodes")
    of_job = pods_of(shared_record(values))
    run = {"name": "tune", "queue": "lq", "namespace": "llm", "pool": "gb200", "pods": 2, "gpusPerPod": 4}
    run |= {"image": "us-docker.pkg.dev/my-project/training/tune-arm64:1.0.0", "volume": {"bucket": "checkpoints"}}
    values[f"{PREFIX}training"] = [run]
    pod = shared_record(values).one("Job").inputs["spec"]["template"]["spec"]
    same = ("resourceClaims", "initContainers", "tolerations")
    assert [pod[key] for key in same] == [of_job[key] for key in same]
    assert pod["nodeSelector"][PROFILE_LABEL] == "auto"
    assert pod["containers"][0]["resources"]["claims"] == of_job["containers"][0]["resources"]["claims"]


def test_the_driver_gives_channels_only_on_nodes_of_gb200_and_comes_before_the_domain() -> None:
    record = shared_record(stack_of("two_nodes"))
    release = record.one("Release", "nvidia-dra-driver-gpu").inputs
    assert release["repositoryOpts"] == {"repo": "https://helm.ngc.nvidia.com/nvidia"}
    assert release["values"]["resources"] == {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}
    assert "nvidia-gb200" in str(release["values"]["kubeletPlugin"]["affinity"])
    assert ARM in release["values"]["kubeletPlugin"]["tolerations"]
    assert record.one("ResourceQuota").inputs["metadata"]["namespace"] == release["namespace"]
    (stage,) = (
        item.stage for item in in_cluster(resources(record), "gke-ai up").objects if item.kind == "ComputeDomain"
    )
    assert [*Stage].index(stage) > [*Stage].index(Stage.CHARTS), "the chart brings the kind of the domain"


def test_kueue_counts_nics_and_channels_with_derived_quota() -> None:
    record = shared_record(stack_of("two_nodes"))
    (group,) = record.one("ClusterQueue").inputs["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    quota = {item["name"]: item["nominalQuota"] for item in flavor["resources"]}
    assert (quota[RESOURCE], quota[CHANNELS]) == ("72", "18")
    manager = record.one("Release", "kueue").inputs["values"]["managerConfig"]["controllerManagerConfigYaml"]
    classes = {RESOURCE: DEVICE_CLASS, CHANNELS: CHANNEL_CLASS}
    expected = [{"name": name, "deviceClassNames": [device]} for name, device in classes.items()]
    assert yaml.safe_load(manager)["resources"]["deviceClassMappings"] == expected
    (placed,) = load_stack(stack_of("two_nodes")).placed
    assert (int(placed.queued_request[RESOURCE]), int(placed.queued_request[CHANNELS])) == (4, 1)


def test_a_tenant_has_a_quota_of_claims_and_its_members_place_runs_on_the_published_domain() -> None:
    tenant = {"name": "llm", "priorityClasses": ["low"], "buckets": ["datasets", "checkpoints"]}
    values = {**stack_of("two_nodes"), f"{PREFIX}tenants": [tenant]}
    record = shared_record(values)
    (quota,) = (item.inputs for item in record.all("ResourceQuota") if item.object_name == "tenant")
    hard = quota["spec"]["hard"]
    assert (hard[OF_CLASS], hard[CHANNELS_OF_CLASS], hard[CLAIMS]) == ("144", "36", "72")
    policy = str(record.one("ValidatingAdmissionPolicy").inputs)
    assert "claim only nvlink and rdma-4 by resourceClaimTemplateName" in policy
    assert "computedomains" not in str(record.one("Role").inputs)
    (run,) = values[f"{PREFIX}training"]
    placed, problems = place(published(values, "llm"), "training", {**run, "name": "mine"})
    assert placed
    assert (placed.fabric.claims, problems) == (("rdma-4", DOMAIN), [])
    (jobset,) = objects_of(placed.section, place_of(placed))
    assert DOMAIN in str(jobset["spec"])


@pytest.mark.parametrize(("channels", "messages"), [("18", 0), ("19", 1)])
def test_the_policy_compares_quota_for_channels_with_nodes(channels: str, messages: int) -> None:
    values = stack_of("two_nodes")
    quota = {"cpu": "400", "memory": "4000Gi", "nvidia.com/gpu": "64", "ephemeral-storage": "10Ti", RESOURCE: "72"}
    (flavor,) = values[f"{PREFIX}queues"]["clusterQueues"][0]["flavors"]
    flavor["quota"] = {**quota, CHANNELS: channels}
    stack = RegisteredStack(policy_resources(shared_record(values)), {})
    assert len(list(quota_within_capacity.violations(stack))) == messages


def test_pods_on_a4x_max_claim_eight_nics_and_a_channel_and_install_its_own_plugin() -> None:
    record = shared_record(stack_of("bare_metal"))
    pod = pods_of(record)
    assert [claim["name"] for claim in pod["resourceClaims"]] == ["rdma", DOMAIN]
    assert [container["image"] for container in pod["initContainers"]] == [metal.PLUGIN_IMAGE]
    template = record.one("ResourceClaimTemplate").inputs
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert (template["metadata"]["name"], request["exactly"]["count"]) == ("rdma", 8)
    (placed,) = load_stack(stack_of("bare_metal")).placed
    assert (int(placed.queued_request[RESOURCE]), int(placed.queued_request[CHANNELS])) == (8, 1)
    # An agent on these nodes alone sets up their NICs.
    spec = record.one("DaemonSet", metal.AGENT).inputs["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["resources"]["limits"]["hugepages-2Mi"]) == (metal.AGENT_IMAGE, "8192Mi")
    assert "['a4x-maxgpu-4g-metal']" in str(spec["affinity"])
    assert {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume} == {*metal.AGENT_FOLDERS}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert shared_record(stack_of("two_nodes")).all("DaemonSet") == []


def test_derived_quota_leaves_out_the_memory_of_the_agent() -> None:
    shape = load_stack(stack_of("bare_metal")).node_pools[0].shape
    assert capacity_of(shape)["hugepages-2Mi"] == 8 * GI
    assert "hugepages-2Mi" not in free(shape)
    agents = agent_requests(gpu=True, tpu=False)["memory"] + GI
    assert 0 <= allocatable(shape)["memory"] - free(shape)["memory"] - agents < KI
    vm = replace(shape, machine_type="a4x-highgpu-4g", gpu="nvidia-gb200")
    kept = [capacity_of(node)["memory"] - allocatable(node)["memory"] for node in (shape, vm)]
    assert kept[0] - kept[1] > 8 * GI
