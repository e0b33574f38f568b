"""A private Standard cluster on its own network: resources, their order, and what stays unchanged."""

from collections.abc import Callable
from typing import Any

import pytest

from emulator.cloud.store import Store
from emulator.google.clusters import LocalClusters
from emulator.google.plugin import RESOURCES
from emulator.google.resource import Cloud
from emulator.pulumi.plugin import decode, encode
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.project import apis, identities
from gke_ai.catalog.project.addresses import nodes_by_addresses, nodes_by_pods
from gke_ai.catalog.project.registries import registry_of
from gke_ai.components import GkeCluster
from gke_ai.components.arguments import Refused
from gke_ai.settings import ResolvedStack
from gke_ai.settings.resolved import needs
from tests.support.recorder import PROJECT, Record, configuration, load_stack, run_program, shared_record
from tests.support.recorder import Cloud as Mocks

STANDARD = "examples/mixed-training-inference.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
TPUS = "examples/multislice-training.yaml"
CLASSES = "examples/cost-optimized-serving.yaml"
ACCOUNT = f"gke-nodes@{PROJECT}.iam.gserviceaccount.com"
OWN_ACCOUNT = {"nodeServiceAccount": "gke-nodes"}
PRIVATE = {"vpc": {}, "privateNodes": True, "publicEndpoint": False, "dnsEndpoint": True, **OWN_ACCOUNT}

both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
Build = Callable[..., Record]


def changed(path: str, cluster: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """An example with some keys of its cluster and some sections replaced."""
    config = configuration(path)
    config["gke-ai:cluster"] |= cluster
    return config | {f"gke-ai:{name}": value for name, value in sections.items()}


def recorded(path: str, cluster: dict[str, Any], preview: bool = False, **sections: Any) -> Record:
    return shared_record(changed(path, cluster, **sections), preview)


def stack_of(path: str, cluster: dict[str, Any] | None = None, **sections: Any) -> ResolvedStack:
    return load_stack(changed(path, cluster or {}, **sections))


# --- what is built ----------------------------------------------------------------------------------------------------
@both
def test_cluster_uses_the_created_network(preview: bool) -> None:
    record = recorded(STANDARD, PRIVATE, preview)
    network, subnetwork, cluster = (record.one(kind).inputs for kind in ("Network", "Subnetwork", "Cluster"))
    assert network["autoCreateSubnetworks"] is False
    assert (subnetwork["privateIpGoogleAccess"], subnetwork["region"]) == (True, "us-central1")
    ranges = {secondary["rangeName"]: secondary["ipCidrRange"] for secondary in subnetwork["secondaryIpRanges"]}
    policy = cluster["ipAllocationPolicy"]
    pods, services = policy["clusterSecondaryRangeName"], policy["servicesSecondaryRangeName"]
    assert ranges == {pods: "10.4.0.0/14", services: "10.8.0.0/20"}
    before = {"Network llm-cluster", "Subnetwork llm-cluster", "RouterNat llm-cluster"}
    assert before <= record.waits_for(record.one("Cluster"))


@both
def test_every_node_is_private_and_runs_as_the_created_account(preview: bool) -> None:
    for path in (STANDARD, TPUS):
        record = recorded(path, PRIVATE, preview)
        assert record.one("Cluster").inputs["privateClusterConfig"] == {"enablePrivateNodes": True}
        pools = record.all("NodePool")
        assert len(pools) > 1
        for pool in pools:
            assert pool.inputs["networkConfig"] == {"enablePrivateNodes": True}, pool.name
            assert pool.inputs["nodeConfig"]["serviceAccount"] == ACCOUNT, pool.name
            # Made before its roles, a node would write neither logs nor metrics.
            assert "IAMMember gke-nodes/container.defaultNodeServiceAccount" in record.waits_for(pool), pool.name
            # By itself: Pulumi orders deletions by a resource's own dependencies, and the account goes after the pool.
            assert record.one("Account").urn in pool.dependencies, pool.name
    # The pool that GKE makes first, and that goes at once: a project may have no default account.
    assert record.one("Cluster").inputs["nodeConfig"]["serviceAccount"] == ACCOUNT


def test_node_account_has_only_the_roles_of_nodes_and_reads_the_projects_registry_if_it_is_used() -> None:
    def granted(record: Record) -> set[str]:
        return {member.inputs["role"] for member in record.all("IAMMember") if ACCOUNT in member.inputs["member"]}

    record = recorded(STANDARD, PRIVATE)
    assert record.one("Account").inputs["accountId"] == "gke-nodes"
    assert granted(record) == {"roles/container.defaultNodeServiceAccount"}
    (server,) = configuration(STANDARD)["gke-ai:serving"]
    for project, further in ((PROJECT, {"roles/artifactregistry.reader"}), ("another-project", set())):
        image = f"us-central1-docker.pkg.dev/{project}/models/tgi:3.3.5"
        with_image = recorded(STANDARD, PRIVATE, serving=[{**server, "image": image}])
        assert granted(with_image) == granted(record) | further


def test_pools_of_a_compute_class_run_as_the_account_too() -> None:
    record = recorded(CLASSES, OWN_ACCOUNT)
    classes = [resource for resource in record.resources.values() if resource.inputs.get("kind") == "ComputeClass"]
    assert [resource.inputs["spec"]["nodePoolConfig"] for resource in classes] == [{"serviceAccount": ACCOUNT}]


# --- ways to the control plane ----------------------------------------------------------------------------------------
def test_unreachable_control_plane_is_refused(build: Build) -> None:
    with pytest.raises(Refused, match="public_endpoint: the control plane would have neither an IP address"):
        build(GkeCluster, {"name": "c", "project": PROJECT, "mode": "standard"}, public_endpoint=False)


PUBLIC = {"vpc": {"nat": False}, "authorizedNetworks": ["8.8.8.0/24"]}


@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT, TPUS])
@pytest.mark.parametrize("cluster", [PRIVATE, PUBLIC], ids=["private", "public"])
def test_google_accepts_every_resource_of_the_cluster(path: str, cluster: dict[str, Any]) -> None:
    cloud = Cloud(Store(), LocalClusters(), PROJECT)
    record = recorded(path, cluster, enableApis=True)
    resources = [resource for resource in record.resources.values() if resource.type in RESOURCES]
    kinds = {resource.type.rpartition(":")[2] for resource in resources}
    assert {"Network", "Subnetwork", "Cluster", "Service"} <= kinds
    for resource in resources:
        assert list(RESOURCES[resource.type](cloud).problems(decode(encode(resource.inputs)))) == [], resource.name


# --- network policy ---------------------------------------------------------------------------------------------------
TENANTS = {"tenants": [{"name": "research"}]}


@pytest.mark.parametrize(
    ("path", "cluster", "sections", "expected"),
    [
        pytest.param(STANDARD, {}, {}, None, id="as before"),
        pytest.param(STANDARD, {"vpc": {}}, {}, "dataplaneV2", id="own network"),
        # Dataplane V2 would replace a cluster that is there: a tenant that comes must not.
        pytest.param(STANDARD, {}, TENANTS, "calico", id="tenants"),
        pytest.param(STANDARD, {"vpc": {}}, TENANTS, "dataplaneV2", id="own network and tenants"),
        pytest.param(AUTOPILOT, {"vpc": {}}, TENANTS, None, id="Autopilot"),
        pytest.param(CLASSES, {}, TENANTS, "existing", id="existing and tenants"),
        pytest.param(CLASSES, {}, {}, None, id="existing"),
    ],
)
def test_clusters_with_tenants_enforce_network_policies(
    path: str, cluster: dict[str, Any], sections: dict[str, Any], expected: str | None
) -> None:
    assert needs.network_policy(stack_of(path, cluster, **sections)) == expected


def test_changed_dataplane_replaces_the_cluster_and_calico_does_not(build: Build) -> None:
    args = {"name": "c", "project": PROJECT, "mode": "standard"}
    policies: list[dict[str, str]] = [{}, {"network_policy": "dataplaneV2"}, {"network_policy": "calico"}]
    records = [build(GkeCluster, args, **policy) for policy in policies]
    plain, v2, calico = (record.one("Cluster").inputs for record in records)
    before, replaced, same = (record.one("kubernetes").inputs["clusterIdentifier"] for record in records)
    assert v2["datapathProvider"] == "ADVANCED_DATAPATH"
    assert calico["networkPolicy"] == {"enabled": True, "provider": "CALICO"}
    assert calico["addonsConfig"]["networkPolicyConfig"] == {"disabled": False}
    assert "networkPolicy" not in v2
    assert "datapathProvider" not in calico
    assert before == same != replaced
    assert not {"networkPolicy", "datapathProvider"} & plain.keys()


# --- APIs -------------------------------------------------------------------------------------------------------------
@both
def test_resources_wait_until_their_api_is_enabled(preview: bool) -> None:
    record = recorded(STANDARD, PRIVATE, preview, enableApis=True)

    def waits(kind: str, name: str | None = None) -> set[str]:
        waited_for = record.waits_for(record.one(kind, name))
        return {waited.removeprefix("Service ") for waited in waited_for if waited.endswith(".googleapis.com")}

    assert waits("Bucket") == {apis.STORAGE}
    of_cluster = {apis.CONTAINER, apis.COMPUTE, apis.IAM, apis.IAM_CREDENTIALS, apis.LOGGING, apis.MONITORING}
    for kind, name in (("Cluster", None), ("Network", None), ("Account", None), ("NodePool", "gpupool")):
        assert waits(kind, name) == of_cluster, kind


STREAMING = [pool | {"imageStreaming": True} for pool in configuration(STANDARD)["gke-ai:gpuPools"]]
SMALLEST: dict[str, Any] = {"buckets": [], "training": []}


@pytest.mark.parametrize(
    ("stack", "needed"),
    [
        pytest.param(stack_of(STANDARD, **SMALLEST), set(), id="none"),
        pytest.param(stack_of(STANDARD), {apis.STORAGE}, id="a bucket"),
        pytest.param(stack_of(STANDARD, hfTokenSecret="hf-token", **SMALLEST), {apis.SECRET_MANAGER}, id="a secret"),
        pytest.param(stack_of(STANDARD, gpuPools=STREAMING, **SMALLEST), {apis.CONTAINER_FILE_SYSTEM}, id="streaming"),
        # The metrics adapter's service account is created.
        pytest.param(stack_of("examples/jetstream-autoscaling.yaml"), {apis.IAM, apis.STORAGE}, id="an adapter"),
        pytest.param(stack_of(STANDARD, OWN_ACCOUNT, **SMALLEST), {apis.IAM}, id="an account"),
    ],
)
def test_stack_needs_only_the_apis_of_its_resources(stack: ResolvedStack, needed: set[str]) -> None:
    optional = {apis.STORAGE, apis.IAM, apis.SECRET_MANAGER, apis.CONTAINER_FILE_SYSTEM}
    assert optional & {*needs.apis(stack)} == needed


def test_every_api_has_its_reason_and_none_is_needed_to_enable_itself() -> None:
    assert all(apis.REASONS.values())
    assert not apis.REASONS.keys() & apis.BEFOREHAND.keys()
    assert set(apis.OF_CLUSTERS) <= apis.REASONS.keys()


# --- what there was ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT, TPUS])
def test_stack_of_an_earlier_release_stays_as_it_is(path: str) -> None:
    """The program never states a property that replaces a cluster, unless its key is set. Off forms change in place:
    see tests/graph/test_changes_of_settings.py."""
    record = recorded(path, {})
    cluster = record.one("Cluster").inputs
    new = {"ipAllocationPolicy", "nodeConfig", "networkPolicy", "masterAuthorizedNetworksConfig", "datapathProvider"}
    # The provider crashes if it creates a cluster with an empty group.
    assert not {*new, "authenticatorGroupsConfig"} & cluster.keys()
    assert "networkPolicyConfig" not in cluster.get("addonsConfig", {})
    assert cluster["privateClusterConfig"] == {"enablePrivateNodes": False}
    for pool in record.all("NodePool"):
        assert pool.inputs["networkConfig"] == {"enablePrivateNodes": False}
        assert pool.inputs["nodeConfig"]["serviceAccount"] == "default"
    identifier = record.one("kubernetes").inputs["clusterIdentifier"]
    mode = "autopilot" if path == AUTOPILOT else "standard"
    assert identifier == f"{PROJECT}/{cluster['location']}/{cluster['name']}/{mode}/default/default"


@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT])
def test_a_changed_identifier_replaces_the_cluster(path: str) -> None:
    record = recorded(path, {"network": "shared", "subnetwork": "ai", "podsRange": "pods"})
    assert record.one("Cluster").replacement_trigger == record.one("kubernetes").inputs["clusterIdentifier"]


# --- what the cloud keeps ---------------------------------------------------------------------------------------------
UPDATE = "gcloud container clusters update llm-cluster --location us-central1 --project my-project"


def warnings(cluster: dict[str, Any], kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged of a cluster with these keys in a cloud that kept this."""
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, **_: messages.append(text))
    monkeypatch.setattr(Mocks, "kept", kept)
    run_program(changed(STANDARD, cluster), False, monkeypatch)
    return messages


@pytest.mark.parametrize(
    ("cluster", "kept", "warned"),
    [
        pytest.param({}, ["8.8.8.0/24"], True, id="kept"),
        pytest.param({}, [], False, id="none are left"),
        pytest.param({}, None, False, id="never had any"),
        pytest.param({"authorizedNetworks": ["8.8.4.0/24"]}, ["8.8.4.0/24"], False, id="still asked for"),
        pytest.param({"publicEndpoint": False, "dnsEndpoint": True}, ["8.8.8.0/24"], False, id="no address"),
    ],
)
def test_warning_about_kept_authorized_networks_has_the_command_that_removes_them(
    cluster: dict[str, Any], kept: list[str] | None, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = None if kept is None else {"cidrBlocks": [{"cidrBlock": cidr} for cidr in kept]}
    messages = warnings(cluster, {"masterAuthorizedNetworksConfig": blocks}, monkeypatch)
    networks = [text for text in messages if "authorizedNetworks" in text]
    assert len(networks) == warned
    for text in networks:
        assert text.startswith("gke-ai:cluster.authorizedNetworks is empty, but only 8.8.8.0/24 can still reach")
        assert f"{UPDATE} --no-enable-master-authorized-networks" in text


def test_warning_about_kept_exclusions_has_the_commands_that_remove_them(monkeypatch: pytest.MonkeyPatch) -> None:
    period = {"startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}
    exclusions = [{"exclusionName": name, **period} for name in ("pretraining", "launch")]
    kept = {"maintenancePolicy": {"maintenanceExclusions": exclusions}}
    (warning,) = (text for text in warnings({}, kept, monkeypatch) if "exclusions" in text)
    assert f"{UPDATE} --remove-maintenance-exclusion=pretraining and {UPDATE}" in warning
    window = {"startTime": "2026-01-03T00:00:00Z", "endTime": "2026-01-03T08:00:00Z", "recurrence": "FREQ=DAILY"}
    maintained = warnings({"maintenance": {"window": window}}, kept, monkeypatch)
    assert not [text for text in maintained if "exclusions" in text]


# --- zones ------------------------------------------------------------------------------------------------------------
@both
@pytest.mark.parametrize(
    ("mode", "location", "known"),
    [
        *(("standard", "us-east4", True), ("standard", "us-east4-a", True), ("existing", "us-east4-a", True)),
        ("standard", "us-central1", False),
    ],
)
def test_a_pool_without_zones_states_those_of_its_cluster(mode: str, location: str, known: bool, preview: bool) -> None:
    pool = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
    config = {"gke-ai:cluster": {"name": "c", "mode": mode, "location": location}, "gke-ai:gpuPools": [pool]}
    zones = [pool.inputs["nodeLocations"] for pool in shared_record(config, preview).all("NodePool")]
    assert len(zones) == (1 if mode == "existing" else 2)
    if known or not preview:
        assert zones == [list(node_zones(location))] * len(zones)
    else:  # GKE chooses three of four, when it creates the cluster
        assert not any(isinstance(zone, list) for zone in zones)


# --- facts ------------------------------------------------------------------------------------------------------------
def test_ranges_have_the_number_of_nodes_that_google_documents() -> None:
    # https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing_secondary_range_pods
    assert [nodes_by_pods(f"10.4.0.0/{size}", False) for size in (14, 21, 24)] == [1024, 8, 1]
    assert nodes_by_pods("10.4.0.0/21", True) == 32, "Autopilot"
    assert [nodes_by_addresses(f"10.0.0.0/{size}") for size in (29, 20)] == [4, 4092], "four addresses are lost"


def test_registry_of_an_image_follows_from_its_name() -> None:
    hosts = {"python:3.12": "docker.io", "vllm/vllm-openai:v0.11.0": "docker.io", "localhost:5000/x": "localhost:5000"}
    hosts |= {"ghcr.io/huggingface/tgi:3.3.5": "ghcr.io", "us-docker.pkg.dev/p/r/i@sha256:abc": "us-docker.pkg.dev"}
    assert {image: registry_of(image) for image in hosts} == hosts


def test_only_a_bare_account_name_is_created() -> None:
    assert identities.account_email("gke-nodes", PROJECT) == ACCOUNT
    assert identities.account_email(ACCOUNT, "another") == ACCOUNT
    names = ("nodes1", "nodes", "1nodes", "a" * 30, "a" * 31)
    assert [name for name in names if identities.is_account_id(name)] == ["nodes1", "a" * 30]
