"""The emulator's networks, accounts and APIs: Google's refusals, references between resources, REST bodies."""

import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.commands import existing
from emulator.google import rest
from emulator.google.iam import PROJECT_IAM_MEMBER, SERVICE_ACCOUNT
from emulator.google.network import NETWORK, ROUTER, ROUTER_NAT, SUBNETWORK
from emulator.google.services import PROJECT_SERVICE
from emulator.pulumi.plugin import Refused
from emulator.tests.gcp_engine import (
    AUTOPILOT,
    CLUSTER,
    CLUSTER_ID,
    L4_POOL,
    NODE_POOL,
    PROJECT,
    STANDARD,
    Engine,
    Values,
    accepted,
    but,
)
from gke_ai.catalog.project.apis import REASONS

NETWORK_ID = f"projects/{PROJECT}/global/networks/ai"
SUBNETWORK_ID = f"projects/{PROJECT}/regions/us-central1/subnetworks/ai"
ACCOUNT_ID = f"projects/{PROJECT}/serviceAccounts/gke-nodes@{PROJECT}.iam.gserviceaccount.com"
VPC, SUBNET, PROXIES = accepted("network"), accepted("subnetwork"), accepted("proxy-only subnetwork")
GATEWAY, NAT, ACCOUNT = accepted("router"), accepted("nat"), accepted("account")
EMAIL = ACCOUNT_ID.rpartition("/")[2]
PRIVATE: Values = STANDARD | {
    "network": NETWORK_ID,
    "subnetwork": SUBNETWORK_ID,
    "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
    "privateClusterConfig": {"enablePrivateNodes": True},
    "datapathProvider": "ADVANCED_DATAPATH",
}
SHARED = "emulator/run existing network shared --location"
LINKS = "https://www.googleapis.com/compute/v1"
AUTOPILOT_ACCOUNT = AUTOPILOT | {"clusterAutoscaling": {"autoProvisioningDefaults": {"serviceAccount": EMAIL}}}
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
ROLE = {"project": PROJECT, "role": NODE_ROLE, "member": f"serviceAccount:{EMAIL}"}


@pytest.fixture
def network(cloud: Engine) -> Engine:
    """A cloud with a network, its subnetwork, a router, NAT and the nodes' account."""
    for token, inputs in ((NETWORK, VPC), (SUBNETWORK, SUBNET), (ROUTER, GATEWAY), (ROUTER_NAT, NAT)):
        cloud.create(token, inputs)
    cloud.create(SERVICE_ACCOUNT, ACCOUNT)
    return cloud


@pytest.mark.parametrize(
    ("token", "inputs"),
    [(NETWORK, VPC), (SUBNETWORK, SUBNET), (ROUTER, GATEWAY), (ROUTER_NAT, NAT), (SERVICE_ACCOUNT, ACCOUNT)],
)
def test_an_existing_name_is_refused(network: Engine, token: str, inputs: Values) -> None:
    with pytest.raises(Refused, match="Error 409"):
        network.create(token, inputs)


def test_the_default_network_exists_and_can_not_be_created(cloud: Engine) -> None:
    with pytest.raises(Refused, match="Error 409"):
        cloud.create(NETWORK, but(VPC, name="default"))
    cloud.create(ROUTER, but(GATEWAY, network="default"))
    cloud.create(CLUSTER, STANDARD)


@pytest.mark.parametrize(
    ("token", "inputs", "text"),
    [
        (SUBNETWORK, SUBNET, f"Error 404: The resource '{NETWORK_ID}' was not found"),
        (ROUTER, GATEWAY, f"Error 404: The resource '{NETWORK_ID}' was not found"),
        (ROUTER_NAT, NAT, "Error 404.*/routers/ai"),
        (CLUSTER, AUTOPILOT_ACCOUNT, "does not exist"),
        (PROJECT_IAM_MEMBER, ROLE, "does not exist"),
    ],
)
def test_nothing_is_created_before_what_it_refers_to(cloud: Engine, token: str, inputs: Values, text: str) -> None:
    with pytest.raises(Refused, match=text):
        cloud.create(token, inputs)


def test_ranges_of_a_network_must_not_overlap(network: Engine) -> None:
    other = but(SUBNET, name="other", secondaryIpRanges=None, ipCidrRange="10.5.0.0/24")
    with pytest.raises(Refused, match="conflicts with existing subnetwork 'ai'"):
        network.create(SUBNETWORK, other)
    network.create(NETWORK, but(VPC, name="apart"))
    network.create(SUBNETWORK, other | {"network": "apart"})


def test_network_has_one_proxy_only_subnetwork_in_a_region(network: Engine) -> None:
    _, proxies = network.create(SUBNETWORK, PROXIES)
    assert (proxies["purpose"], proxies["role"]) == ("REGIONAL_MANAGED_PROXY", "ACTIVE")
    other = but(PROXIES, name="other", ipCidrRange="10.10.0.0/23")
    with pytest.raises(Refused, match="already has the active proxy-only subnetwork"):
        network.create(SUBNETWORK, other)
    network.create(SUBNETWORK, but(other, region="us-east1"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"network": "shared"}, "Error 404.*/networks/shared"),
        ({"subnetwork": "none"}, "Error 404.*/subnetworks/none"),
        ({"subnetwork": f"projects/{PROJECT}/regions/us-east1/subnetworks/ai"}, "Error 404.*us-east1"),
        ({"network": "default"}, "is not in network"),
        ({"subnetwork": None}, "has no subnetwork default"),
        ({"ipAllocationPolicy__clusterSecondaryRangeName": "pod"}, 'Pod secondary range "pod" does not exist'),
        ({"ipAllocationPolicy__servicesSecondaryRangeName": "svc"}, 'Service secondary range "svc" does not exist'),
        ({"nodeConfig": {"serviceAccount": EMAIL.replace("nodes", "other")}}, "Service account .* does not exist"),
    ],
)
def test_a_cluster_with_a_missing_network_range_or_account_is_refused(
    network: Engine, changes: Values, text: str
) -> None:
    with pytest.raises(Refused, match=text):
        network.create(CLUSTER, but(PRIVATE, **changes))
    assert network.clusters.calls == []


@pytest.mark.parametrize(
    "named",
    [
        {"network": "ai", "subnetwork": "ai"},
        {"network": f"{LINKS}/{NETWORK_ID}", "subnetwork": f"{LINKS}/{SUBNETWORK_ID}"},
        {"nodeConfig": {"serviceAccount": EMAIL}},
        {"nodeConfig": {"serviceAccount": "123-compute@developer.gserviceaccount.com"}},
    ],
    ids=["by name", "by link", "as an account", "as Google's own account"],
)
def test_a_cluster_accepts_names_paths_and_links(network: Engine, named: Values) -> None:
    network.create(CLUSTER, PRIVATE | named)
    assert network.clusters.calls[0] == ("create", "llm-cluster")


def test_a_pool_needs_its_account_which_can_not_be_deleted_while_nodes_use_it(network: Engine) -> None:
    network.create(CLUSTER, PRIVATE | {"nodeConfig": {"serviceAccount": EMAIL}})
    with pytest.raises(Refused, match=r'Service account "gone@.*" does not exist'):
        network.create(NODE_POOL, but(L4_POOL, nodeConfig__serviceAccount=EMAIL.replace("gke-nodes", "gone")))

    pool = but(L4_POOL, nodeConfig__serviceAccount=EMAIL)
    id, _ = network.create(NODE_POOL, pool)
    with pytest.raises(Refused, match=r"can't be deleted yet: nodes of .*/nodePools/gpupool run as it"):
        network.delete(SERVICE_ACCOUNT, ACCOUNT_ID, ACCOUNT)
    network.delete(NODE_POOL, id, pool)
    network.delete(SERVICE_ACCOUNT, ACCOUNT_ID, ACCOUNT)


def test_an_account_can_not_be_deleted_while_autopilot_creates_nodes_with_it(cloud: Engine) -> None:
    cloud.create(SERVICE_ACCOUNT, ACCOUNT)
    cloud.create(CLUSTER, AUTOPILOT_ACCOUNT)
    cloud.create(PROJECT_IAM_MEMBER, ROLE)
    with pytest.raises(Refused, match="can't be deleted yet"):
        cloud.delete(SERVICE_ACCOUNT, ACCOUNT_ID, ACCOUNT)
    # What is no longer stated is kept: only the off form lets go of the account.
    cloud.update(CLUSTER, CLUSTER_ID, AUTOPILOT_ACCOUNT, AUTOPILOT)
    with pytest.raises(Refused, match="can't be deleted yet"):
        cloud.delete(SERVICE_ACCOUNT, ACCOUNT_ID, ACCOUNT)
    off = but(AUTOPILOT_ACCOUNT, clusterAutoscaling__autoProvisioningDefaults__serviceAccount="default")
    cloud.update(CLUSTER, CLUSTER_ID, AUTOPILOT_ACCOUNT, off)
    cloud.delete(SERVICE_ACCOUNT, ACCOUNT_ID, ACCOUNT)


def test_a_network_can_not_be_deleted_while_it_is_in_use(network: Engine) -> None:
    network.create(CLUSTER, PRIVATE)
    for token, id, inputs in ((SUBNETWORK, SUBNETWORK_ID, SUBNET), (NETWORK, NETWORK_ID, VPC)):
        with pytest.raises(Refused, match="resourceInUseByAnotherResource"):
            network.delete(token, id, inputs)
    network.delete(CLUSTER, CLUSTER_ID, PRIVATE)
    network.delete(SUBNETWORK, SUBNETWORK_ID, SUBNET)
    with pytest.raises(Refused, match=r"already being used by '.*/routers/ai'"):
        network.delete(NETWORK, NETWORK_ID, VPC)
    network.delete(ROUTER, f"projects/{PROJECT}/regions/us-central1/routers/ai", GATEWAY)
    network.delete(NETWORK, NETWORK_ID, VPC)
    # A router takes its NATs with it.
    assert [resource.kind for resource in network.store.all()] == [SERVICE_ACCOUNT]


def test_a_range_that_a_cluster_uses_can_not_be_changed(network: Engine) -> None:
    wider = but(SUBNET, secondaryIpRanges=[{"rangeName": "pods", "ipCidrRange": "10.16.0.0/14"}])
    network.update(SUBNETWORK, SUBNETWORK_ID, SUBNET, wider)
    network.update(SUBNETWORK, SUBNETWORK_ID, wider, SUBNET)
    network.create(CLUSTER, PRIVATE)
    with pytest.raises(Refused, match="Secondary range 'pods' is in use"):
        network.update(SUBNETWORK, SUBNETWORK_ID, SUBNET, wider)


def test_outputs_that_others_use_are_known_after_creation(cloud: Engine) -> None:
    network, outputs = cloud.create(NETWORK, VPC)
    assert (network, outputs["selfLink"]) == (NETWORK_ID, f"{LINKS}/{NETWORK_ID}")
    subnetwork, outputs = cloud.create(SUBNETWORK, SUBNET)
    assert (subnetwork, outputs["gatewayAddress"]) == (SUBNETWORK_ID, "10.0.0.1")
    router, outputs = cloud.create(ROUTER, GATEWAY)
    assert (router, outputs["name"]) == (f"projects/{PROJECT}/regions/us-central1/routers/ai", "ai")
    nat, _ = cloud.create(ROUTER_NAT, NAT)
    assert nat == f"{PROJECT}/us-central1/ai/ai"
    for token, id, inputs in ((NETWORK, network, VPC), (SUBNETWORK, subnetwork, SUBNET), (ROUTER_NAT, nat, NAT)):
        assert cloud.read(token, id, inputs)[2] == inputs, "a refresh of what nobody touched changes nothing"
    short = f"{PROJECT}/us-central1/ai"
    assert cloud.read(NETWORK, f"{PROJECT}/ai")[0] == network, "an import accepts other forms of an id"
    assert (cloud.read(SUBNETWORK, short)[0], cloud.read(ROUTER, short)[0]) == (subnetwork, router)
    assert cloud.read(ROUTER_NAT, f"{router}/ai")[0] == nat


def test_an_api_can_be_enabled_by_two_stacks(cloud: Engine) -> None:
    inputs = {"service": "container.googleapis.com", "disableOnDestroy": False}
    assert cloud.create(PROJECT_SERVICE, inputs)[0] == f"{PROJECT}/container.googleapis.com"
    for service in REASONS:  # also those without a discovery document
        assert cloud.check(PROJECT_SERVICE, {"service": service})[1] == []
    cloud.create(PROJECT_SERVICE, inputs)


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        ({"network": "shared"}, f"{SHARED} us-central1"),
        (
            {"network": "projects/host/global/networks/shared", "location": "us-east5"},
            f"{SHARED} us-east5 --project host",
        ),
        ({"network": "default"}, None),
        ({"network": "shared", "mode": "existing", "name": "c"}, None),
        ({"vpc": {}}, None),
        ({"network": "No Name"}, None),
    ],
)
def test_a_missing_network_is_reported_with_the_command_that_creates_it(
    cloud: Engine, cluster: Values, command: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: cloud.store)
    monkeypatch.setattr(existing, "LocalClusters", lambda: cloud.clusters)
    config = {"gke-ai:cluster": cluster}
    assert (existing.missing(config) or ("", None))[1] == command
    if command:
        monkeypatch.setattr("sys.argv", shlex.split(command)[1:])
        existing.main()
        assert existing.missing(config) is None
        # A cluster of the provider's own location finds its subnetwork there.
        project = command.partition("--project ")[2] or existing.DEFAULTS["gcp:project"]
        place = {"project": project, "location": cluster.get("location", "us-central1")}
        pool = {"workloadIdentityConfig": {"workloadPool": f"{project}.svc.id.goog"}}
        ranges = {"ipAllocationPolicy": PRIVATE["ipAllocationPolicy"]}
        cloud.create(CLUSTER, STANDARD | place | pool | ranges | {"network": "shared", "subnetwork": "shared"})


# By hand, from https://cloud.google.com/compute/docs/reference/rest/v1/networks/insert (subnetworks, routers),
# https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts/create,
# https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchEnable and
# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters
BODIES = yaml.load(Path(__file__).with_name("network_bodies.yaml").read_text(), yaml.CSafeLoader)
WRITERS = {"account": rest.account, "enabled_service": rest.enabled_service, "cluster": rest.cluster}


@pytest.mark.parametrize("row", BODIES, ids=lambda row: row["of"])
def test_a_body_has_the_form_of_google_s_reference(row: dict[str, Any]) -> None:
    write = WRITERS.get(row["of"], partial(rest.compute, row["of"]))
    body = write(row["inputs"])
    assert body.content == row["body"]
    assert body.problems("body") == []


def test_a_wrong_type_in_an_authorized_network_is_reported_at_its_property() -> None:
    body = rest.cluster({"name": "c", "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": 1}]}})
    assert [path for path, _ in body.problems("cluster")] == ["masterAuthorizedNetworksConfig.cidrBlocks[0].cidrBlock"]
