"""A private Standard cluster on its own network: resources, their order, and what stays unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emulator.cloud.store import Store
from emulator.google.clusters import LocalClusters
from emulator.google.plugin import RESOURCES
from emulator.google.resource import Cloud
from emulator.pulumi.plugin import decode, encode
from gke_ai import components
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.project import apis, identities
from gke_ai.catalog.project.addresses import nodes_by_addresses, nodes_by_pods
from gke_ai.catalog.project.registries import registry_of
from gke_ai.components import ClusterNetwork, GkeCluster, NodeAccount, ProjectApis
from gke_ai.components.arguments import Refused
from gke_ai.settings import ResolvedStack, Settings, load
from gke_ai.settings.model import Tenant, Vpc
from gke_ai.settings.resolved import needs
from tests.support.recorder import PROJECT, Record, Registration, configuration, run_program, shared_record
from tests.support.recorder import Cloud as Mocks

STANDARD = "examples/mixed-training-inference.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
TPUS = "examples/multislice-training.yaml"
CLASSES = "examples/cost-optimized-serving.yaml"
ACCOUNT = f"gke-nodes@{PROJECT}.iam.gserviceaccount.com"
PRIVATE: dict[str, Any] = {
    "vpc": {},
    "privateNodes": True,
    "publicEndpoint": False,
    "dnsEndpoint": True,
    "nodeServiceAccount": "gke-nodes",
}
TENANT = Tenant(name="research")

both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
Build = Callable[..., Record]


def recorded(path: str, cluster: dict[str, Any], preview: bool = False, **sections: Any) -> Record:
    """The record of an example with some keys of its cluster and some sections replaced."""
    config = configuration(path)
    config["gke-ai:cluster"] = {**config["gke-ai:cluster"], **cluster}
    return shared_record(config | {f"gke-ai:{name}": value for name, value in sections.items()}, preview)


def settings_of(path: str, **sections: Any) -> Settings:
    """The settings of an example with some sections replaced."""
    values = {
        key.removeprefix("gke-ai:"): section
        for key, section in configuration(path).items()
        if key.startswith("gke-ai:")
    }
    return load(values | sections, PROJECT).settings


# --- what is built ----------------------------------------------------------------------------------------------------


@both
def test_cluster_uses_the_created_network(preview: bool) -> None:
    record = recorded(STANDARD, PRIVATE, preview)
    network, subnetwork = record.one("Network").inputs, record.one("Subnetwork").inputs
    assert network["autoCreateSubnetworks"] is False
    assert subnetwork["privateIpGoogleAccess"] is True
    assert subnetwork["region"] == "us-central1"
    ranges = {secondary["rangeName"]: secondary["ipCidrRange"] for secondary in subnetwork["secondaryIpRanges"]}
    policy = record.one("Cluster").inputs["ipAllocationPolicy"]
    assert ranges == {
        policy["clusterSecondaryRangeName"]: "10.4.0.0/14",
        policy["servicesSecondaryRangeName"]: "10.8.0.0/20",
    }
    assert {"Network llm-cluster", "Subnetwork llm-cluster", "RouterNat llm-cluster"} <= record.waits_for(
        record.one("Cluster")
    )


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


def test_node_account_has_only_the_roles_of_nodes() -> None:
    record = recorded(STANDARD, PRIVATE)
    assert record.one("Account").inputs["accountId"] == "gke-nodes"
    granted = {member.inputs["role"] for member in record.all("IAMMember") if ACCOUNT in member.inputs["member"]}
    assert granted == {"roles/container.defaultNodeServiceAccount"}


def test_nodes_read_the_projects_registry_if_the_stack_has_images_there() -> None:
    serving = configuration(STANDARD)["gke-ai:serving"]
    own = [{**serving[0], "image": f"us-central1-docker.pkg.dev/{PROJECT}/models/tgi:3.3.5"}]
    record = recorded(STANDARD, PRIVATE, serving=own)
    assert "roles/artifactregistry.reader" in {member.inputs["role"] for member in record.all("IAMMember")}
    others = [{**serving[0], "image": "us-central1-docker.pkg.dev/another-project/models/tgi:3.3.5"}]
    record = recorded(STANDARD, PRIVATE, serving=others)
    assert "roles/artifactregistry.reader" not in {member.inputs["role"] for member in record.all("IAMMember")}


def test_pools_of_a_compute_class_run_as_the_account_too() -> None:
    record = recorded(CLASSES, {"nodeServiceAccount": "gke-nodes"})
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
    assert {"Network", "Subnetwork", "Cluster", "Service"} <= {
        resource.type.rpartition(":")[2] for resource in resources
    }
    for resource in resources:
        assert list(RESOURCES[resource.type](cloud).problems(decode(encode(resource.inputs)))) == [], resource.name


# --- network policy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "vpc", "tenants", "expected"),
    [
        (STANDARD, None, [], None),
        (STANDARD, Vpc(), [], "dataplaneV2"),
        # Dataplane V2 would replace a cluster that is there: a tenant that comes must not.
        (STANDARD, None, [TENANT], "calico"),
        (STANDARD, Vpc(), [TENANT], "dataplaneV2"),
        (AUTOPILOT, Vpc(), [TENANT], None),
        (CLASSES, None, [TENANT], "existing"),
        (CLASSES, None, [], None),
    ],
    ids=[
        "as before",
        "own network",
        "tenants",
        "own network and tenants",
        "Autopilot",
        "existing and tenants",
        "existing",
    ],
)
def test_clusters_with_tenants_enforce_network_policies(
    path: str, vpc: Vpc | None, tenants: list[Tenant], expected: str | None
) -> None:
    loaded = settings_of(path)
    cluster = loaded.cluster.model_copy(update={"vpc": vpc})
    assert (
        needs.network_policy(ResolvedStack(loaded.model_copy(update={"cluster": cluster, "tenants": tenants})))
        == expected
    )


def test_changed_dataplane_replaces_the_cluster_and_calico_does_not(build: Build) -> None:
    base = {"name": "c", "project": PROJECT, "mode": "standard"}

    def inputs(policy: str | None) -> tuple[Registration, str]:
        record = build(GkeCluster, base, **({"network_policy": policy} if policy else {}))
        return record.one("Cluster"), record.one("kubernetes").inputs["clusterIdentifier"]

    (plain, before), (v2, replaced), (calico, same) = inputs(None), inputs("dataplaneV2"), inputs("calico")
    assert v2.inputs["datapathProvider"] == "ADVANCED_DATAPATH"
    assert calico.inputs["networkPolicy"] == {"enabled": True, "provider": "CALICO"}
    assert calico.inputs["addonsConfig"]["networkPolicyConfig"] == {"disabled": False}
    assert "networkPolicy" not in v2.inputs
    assert "datapathProvider" not in calico.inputs
    assert before == same != replaced
    assert not {"networkPolicy", "datapathProvider"} & plain.inputs.keys()


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


def test_stack_needs_only_the_apis_of_its_resources() -> None:
    smallest_stack = settings_of(STANDARD, buckets=[], training=[])
    assert {apis.STORAGE, apis.IAM, apis.SECRET_MANAGER}.isdisjoint(needs.apis(ResolvedStack(smallest_stack)))
    assert apis.STORAGE in needs.apis(ResolvedStack(settings_of(STANDARD)))
    assert apis.SECRET_MANAGER in needs.apis(ResolvedStack(settings_of(STANDARD, hfTokenSecret="hf-token")))
    assert apis.CONTAINER_FILE_SYSTEM not in needs.apis(ResolvedStack(settings_of(STANDARD)))
    streaming = [pool | {"imageStreaming": True} for pool in configuration(STANDARD)["gke-ai:gpuPools"]]
    assert apis.CONTAINER_FILE_SYSTEM in needs.apis(ResolvedStack(settings_of(STANDARD, gpuPools=streaming)))
    # The metrics adapter's service account is made here.
    assert apis.IAM in needs.apis(ResolvedStack(settings_of("examples/jetstream-autoscaling.yaml")))
    account = smallest_stack.cluster.model_copy(update={"node_service_account": "gke-nodes"})
    assert apis.IAM in needs.apis(ResolvedStack(smallest_stack.model_copy(update={"cluster": account})))


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
    new = {
        *("ipAllocationPolicy", "nodeConfig", "networkPolicy"),
        *("masterAuthorizedNetworksConfig", "datapathProvider"),
    }
    cluster = record.one("Cluster")
    assert not new & cluster.inputs.keys()
    assert "networkPolicyConfig" not in cluster.inputs.get("addonsConfig", {})
    assert cluster.inputs["privateClusterConfig"] == {"enablePrivateNodes": False}
    assert "authenticatorGroupsConfig" not in cluster.inputs, (
        "the provider crashes if it creates one with an empty group"
    )
    for pool in record.all("NodePool"):
        assert pool.inputs["networkConfig"] == {"enablePrivateNodes": False}
        assert pool.inputs["nodeConfig"]["serviceAccount"] == "default"
    identifier = record.one("kubernetes").inputs["clusterIdentifier"]
    mode = "autopilot" if path == AUTOPILOT else "standard"
    location = cluster.inputs["location"]
    assert identifier == f"{PROJECT}/{location}/{cluster.inputs['name']}/{mode}/default/default"


@pytest.mark.parametrize("path", [STANDARD, AUTOPILOT])
def test_a_changed_identifier_replaces_the_cluster(path: str) -> None:
    record = recorded(path, {"network": "shared", "subnetwork": "ai", "podsRange": "pods"})
    assert record.one("Cluster").replacement_trigger == record.one("kubernetes").inputs["clusterIdentifier"]


# --- what the cloud keeps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "kept", "warned"),
    [
        ({}, ["8.8.8.0/24"], True),
        ({}, [], False),
        ({}, None, False),
        ({"authorizedNetworks": ["8.8.4.0/24"]}, ["8.8.4.0/24"], False),
        ({"publicEndpoint": False, "dnsEndpoint": True}, ["8.8.8.0/24"], False),
    ],
    ids=["kept", "none are left", "never had any", "still asked for", "no address that they hold for"],
)
def test_warning_about_kept_authorized_networks_has_the_command_that_removes_them(
    cluster: dict[str, Any], kept: list[str] | None, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, **_: messages.append(text))
    blocks = None if kept is None else {"cidrBlocks": [{"cidrBlock": cidr} for cidr in kept]}
    monkeypatch.setattr(Mocks, "kept", {"masterAuthorizedNetworksConfig": blocks})
    config = configuration(STANDARD)
    run_program(config | {"gke-ai:cluster": {**config["gke-ai:cluster"], **cluster}}, False, monkeypatch)
    networks = [text for text in messages if "authorizedNetworks" in text]
    assert bool(networks) == warned
    for text in networks:
        assert text.startswith("gke-ai:cluster.authorizedNetworks is empty, but only 8.8.8.0/24 can still reach")
        assert (
            "gcloud container clusters update llm-cluster --location us-central1 --project my-project "
            "--no-enable-master-authorized-networks" in text
        )


@pytest.mark.parametrize("maintained", [False, True], ids=["maintenance is removed", "maintenance is set"])
def test_warning_about_kept_exclusions_has_the_commands_that_remove_them(
    maintained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, **_: messages.append(text))
    period = {"startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}
    exclusions = [{"exclusionName": name, **period} for name in ("pretraining", "launch")]
    monkeypatch.setattr(Mocks, "kept", {"maintenancePolicy": {"maintenanceExclusions": exclusions}})
    window = {"startTime": "2026-01-03T00:00:00Z", "endTime": "2026-01-03T08:00:00Z", "recurrence": "FREQ=DAILY"}
    config = configuration(STANDARD)
    cluster = config["gke-ai:cluster"] | ({"maintenance": {"window": window}} if maintained else {})
    run_program(config | {"gke-ai:cluster": cluster}, False, monkeypatch)
    warnings = [text for text in messages if "exclusions" in text]
    update = "gcloud container clusters update llm-cluster --location us-central1 --project my-project"
    assert [f"{update} --remove-maintenance-exclusion=pretraining and {update}" in text for text in warnings] == (
        [] if maintained else [True]
    )


# --- zones ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(("location", "known"), [("us-east4", True), ("us-east4-a", True), ("us-central1", False)])
def test_a_pool_without_zones_states_those_of_its_cluster(
    location: str, known: bool, preview: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"gke-ai:cluster": {"name": "c", "mode": "standard", "location": location}}
    pool = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
    record = run_program({**config, "gke-ai:gpuPools": [pool]}, preview, monkeypatch)
    zones = [pool.inputs["nodeLocations"] for pool in record.all("NodePool")]
    if known or not preview:
        assert zones == [list(node_zones(location))] * 2
    else:  # GKE chooses three of four, when it creates the cluster
        assert [isinstance(zone, list) for zone in zones] == [False, False]


def test_a_pool_of_an_existing_zonal_cluster_states_the_cluster_s_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"gke-ai:cluster": {"name": "c", "mode": "existing", "location": "us-east4-a"}}
    pool = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}
    record = run_program({**config, "gke-ai:gpuPools": [pool]}, False, monkeypatch)
    assert record.one("NodePool").inputs["nodeLocations"] == ["us-east4-a"]


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cidr", "autopilot", "nodes"),
    # https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing_secondary_range_pods
    [("10.4.0.0/14", False, 1024), ("10.4.0.0/21", False, 8), ("10.4.0.0/24", False, 1), ("10.4.0.0/21", True, 32)],
)
def test_range_for_pods_has_the_number_of_nodes_that_google_documents(cidr: str, autopilot: bool, nodes: int) -> None:
    assert nodes_by_pods(cidr, autopilot) == nodes


@pytest.mark.parametrize(("cidr", "nodes"), [("10.0.0.0/29", 4), ("10.0.0.0/20", 4092)])
def test_range_for_nodes_loses_four_addresses(cidr: str, nodes: int) -> None:
    assert nodes_by_addresses(cidr) == nodes


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("python:3.12", "docker.io"),
        ("vllm/vllm-openai:v0.11.0", "docker.io"),
        ("ghcr.io/huggingface/tgi:3.3.5", "ghcr.io"),
        ("localhost:5000/x", "localhost:5000"),
        ("us-docker.pkg.dev/p/r/i@sha256:abc", "us-docker.pkg.dev"),
    ],
)
def test_registry_of_an_image_follows_from_its_name(image: str, host: str) -> None:
    assert registry_of(image) == host


def test_only_a_bare_account_name_is_created() -> None:
    assert identities.account_email("gke-nodes", PROJECT) == ACCOUNT
    assert identities.account_email(ACCOUNT, "another") == ACCOUNT
    assert [identities.is_account_id(name) for name in ("nodes1", "nodes", "1nodes", "a" * 30, "a" * 31)] == [
        *(True, False, False, True, False)
    ]


def test_components_are_exported() -> None:
    assert {ClusterNetwork, NodeAccount, ProjectApis} <= {*components.every_component()}
    assert NodeAccount.__doc__
