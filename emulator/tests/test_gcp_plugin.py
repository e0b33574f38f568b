"""The emulated gcp plugin, called as by the engine, with a recorder in place of its clusters."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pulumi_gcp
import pytest
from pulumi.runtime.proto import provider_pb2 as proto

from emulator.cloud.records import PoolRecord
from emulator.cloud.store import PROVISIONING, RUNNING, project_number
from emulator.commands import bucket, existing
from emulator.pulumi.plugin import UNKNOWN, Refused, Secret, decode, encode
from emulator.tests.gcp_engine import (
    ACCOUNT,
    ACCOUNT_MEMBER,
    AUTOPILOT,
    BUCKET,
    CLUSTER,
    CLUSTER_ID,
    FLEX_START,
    GRANT,
    INPUTS,
    L4_POOL,
    MEMBER,
    MODEL_BUCKET,
    NO_CONTEXT,
    NODE_POOL,
    POOL_ID,
    PROJECT,
    PROJECT_MEMBER,
    STANDARD,
    Engine,
    Values,
    accepted,
    but,
    mistakes,
    principal,
    urn,
)


class Killed(BaseException):
    """The process ends as after SIGKILL, without cleanup."""


ACCOUNT_INPUTS: Values = {"accountId": "prom-frontend-sa", "project": PROJECT, "displayName": "Frontend"}
EMAIL = f"prom-frontend-sa@{PROJECT}.iam.gserviceaccount.com"
ACCOUNT_ID = f"projects/{PROJECT}/serviceAccounts/{EMAIL}"
BINDING: Values = {
    "serviceAccountId": ACCOUNT_ID,
    "role": "roles/iam.workloadIdentityUser",
    "member": f"serviceAccount:{PROJECT}.svc.id.goog[default/prom-frontend-sa]",
}
VIEWER: Values = {"project": PROJECT, "role": "roles/monitoring.viewer", "member": f"serviceAccount:{EMAIL}"}


# ------------------------------------------------------------------------------------------------------ configuration
def test_provider_settings_are_known_and_another_default_project_replaces_nothing(cloud: Engine) -> None:
    def failures(settings: Values) -> Mapping[str, str]:
        answer = cloud.gcp.CheckConfig(proto.CheckRequest(news=encode(settings)), NO_CONTEXT)
        return {failure.property: failure.reason for failure in answer.failures}

    assert failures({"project": "p", "region": "r", "zone": "z", "version": "10.2.0"}) == {}
    assert "did you mean project?" in failures({"projct": "p"})["projct"]
    request = proto.DiffRequest(old_inputs=encode({"project": "p"}), news=encode({"project": "q"}))
    answer = cloud.gcp.DiffConfig(request, NO_CONTEXT)
    assert (answer.changes, list(answer.replaces)) == (proto.DiffResponse.DIFF_SOME, [])


def test_a_missing_resource_function_or_project_is_named(cloud: Engine, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the emulator has no gcp:sql/databaseInstance:DatabaseInstance"):
        cloud.check("gcp:sql/databaseInstance:DatabaseInstance", {})
    with pytest.raises(Refused, match="no function gcp:compute/getZones:getZones"):
        cloud.invoke("gcp:compute/getZones:getZones")
    with pytest.raises(Refused, match="Set gcp:project"):
        Engine(tmp_path, project=None).create(BUCKET, MODEL_BUCKET)


# ------------------------------------------------------------------------------------------------------------ mistakes
VALID = ("standard cluster", "autopilot cluster", "node pool", "bucket", "member")
OTHERS = ("network", "subnetwork", "proxy-only subnetwork", "nat", "service", "account")
BLOCKS = {"cidrBlocks": [{"cidrBlock": f"8.8.{number}.0/24"} for number in range(51)]}
TOO_MANY = (CLUSTER, but(STANDARD, masterAuthorizedNetworksConfig=BLOCKS), "masterAuthorizedNetworksConfig.cidrBlocks")


@pytest.mark.parametrize(
    ("token", "inputs", "path", "text"),
    [*mistakes(*VALID, *OTHERS), pytest.param(*TOO_MANY, "At most 50", id="51 authorized networks")],
)
def test_a_mistake_is_refused_at_its_property(cloud: Engine, token: str, inputs: Values, path: str, text: str) -> None:
    failures = cloud.check(token, inputs)[1]
    assert [place for place, _ in failures] == [path], failures
    assert text in failures[0][1]


@pytest.mark.parametrize("name", VALID)
def test_valid_inputs_pass_unchanged(cloud: Engine, name: str) -> None:
    assert cloud.check(INPUTS[name]["type"], accepted(name)) == (accepted(name), [])


QUEUED = {"nodeConfig__flexStart": None, "queuedProvisioning": {"enabled": True}, "autoscaling": None}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"autoscaling": None}, "Flex start node pools require autoscaling enabled."),
        ({"initialNodeCount": 1}, "Flex start node pools require initial node count to be set to 0."),
        ({"nodeConfig__reservationAffinity": None}, "flex start node pools don't support reservations"),
        ({"nodeConfig__spot": True}, "can't be spot"),
        ({"nodeConfig__maxRunDuration": "60s"}, "from 600s to 604800s"),
        (QUEUED, "autoscaling"),
    ],
)
def test_flex_start_pools_follow_google_s_rules(cloud: Engine, changes: Values, text: str) -> None:
    assert cloud.check(NODE_POOL, FLEX_START)[1] == []
    ((_, reason),) = cloud.check(NODE_POOL, but(FLEX_START, **changes))[1]
    assert text in reason


def test_a_node_without_flex_start_may_live_for_up_to_120_days(cloud: Engine) -> None:
    for seconds, refused in ((29, True), (30, False), (10368000, False), (10368001, True)):
        failures = cloud.check(NODE_POOL, but(L4_POOL, nodeConfig__maxRunDuration=f"{seconds}s"))[1]
        assert [path for path, _ in failures] == ["nodeConfig.maxRunDuration"] * refused


def test_unknown_and_secret_values_pass_the_check(cloud: Engine) -> None:
    inputs = but(L4_POOL, nodeLocations=None) | {"cluster": UNKNOWN, "nodeCount": Secret(3)}
    assert cloud.check(NODE_POOL, inputs) == (inputs, [])
    assert cloud.check(NODE_POOL, inputs | {"nodeCount": Secret("3")})[1] != []
    assert cloud.check(NODE_POOL, but(L4_POOL, location=None) | {"cluster": UNKNOWN})[1] == []
    assert cloud.check(MEMBER, GRANT | {"member": UNKNOWN})[1] == []


def test_a_name_is_generated_once_and_kept(cloud: Engine) -> None:
    request = proto.CheckRequest(urn=urn(BUCKET, "models"), news=encode(but(MODEL_BUCKET, name=None)), randomSeed=b"1")
    first = cloud.gcp.Check(request, NO_CONTEXT).inputs
    assert decode(first)["name"].startswith("models-")
    request.olds.CopyFrom(first)
    request.randomSeed = b"2"
    assert cloud.gcp.Check(request, NO_CONTEXT).inputs == first


# ---------------------------------------------------------------------------------------------------------- creations
def test_a_preview_knows_the_inputs_but_not_the_values_that_the_cloud_decides(cloud: Engine) -> None:
    dns = {"dnsEndpointConfig": {"allowExternalTraffic": True}}
    id, outputs = cloud.create(CLUSTER, STANDARD | {"controlPlaneEndpointsConfig": dns}, preview=True)
    assert (id, outputs["name"], outputs["resourceLabels"]) == ("", "llm-cluster", {"team": "ml"})
    assert outputs["endpoint"] is outputs["masterAuth"] is UNKNOWN
    endpoint = outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    assert endpoint == {"allowExternalTraffic": True, "endpoint": UNKNOWN}
    assert (cloud.store.all(), cloud.clusters.calls) == ([], [])


def test_a_standard_cluster_is_created_without_its_default_pool(cloud: Engine) -> None:
    id, outputs = cloud.create(CLUSTER, STANDARD)
    assert id == CLUSTER_ID
    assert cloud.clusters.calls == [("create", "llm-cluster")]
    record = cloud.clusters.clusters["llm-cluster"]
    assert (record.mode, record.project, record.location) == ("standard", PROJECT, "us-central1")
    assert record.zones == ["us-central1-a", "us-central1-b", "us-central1-c"]
    values = ("127.0.0.1:34567", record.version, PROJECT)
    assert (outputs["endpoint"], outputs["masterVersion"], outputs["project"]) == values
    assert outputs["masterAuth"]["clusterCaCertificate"] == "Q0E="
    name = outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
    assert re.fullmatch(r"gke-[0-9a-f]{32}-\d+\.us-central1\.gke\.goog", name)
    assert cloud.store.get(CLUSTER_ID) is not None


def test_a_default_pool_that_is_kept_is_a_normal_pool(cloud: Engine) -> None:
    kept = but(STANDARD, removeDefaultNodePool=None, nodeConfig__machineType="e2-standard-4", initialNodeCount=2)
    cloud.create(CLUSTER, kept)
    pool = cloud.clusters.pools["default-pool"]
    assert (pool.machine_type, pool.nodes_per_zone, len(pool.zones)) == ("e2-standard-4", 2, 3)
    pool_id = f"{CLUSTER_ID}/nodePools/default-pool"
    with pytest.raises(Refused, match="Error 409: Already exists"):
        cloud.create(NODE_POOL, but(L4_POOL, name="default-pool"))
    cloud.update(CLUSTER, CLUSTER_ID, kept, but(kept, removeDefaultNodePool=True))
    assert cloud.clusters.calls[-1] == ("remove_pool", "llm-cluster", "default-pool")
    assert cloud.store.get(pool_id) is None


def test_a_pool_named_default_pool_outlives_updates_of_a_cluster_that_removed_its_own(standard: Engine) -> None:
    standard.create(NODE_POOL, but(L4_POOL, name="default-pool"))
    standard.clusters.calls.clear()
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, but(STANDARD, resourceLabels={"team": "ops"}))
    assert "default-pool" in standard.clusters.pools
    assert standard.clusters.calls == [], "a label changes no node"


def test_an_autopilot_cluster_has_an_identity_pool_and_refuses_node_pools(cloud: Engine) -> None:
    _, outputs = cloud.create(CLUSTER, AUTOPILOT)
    assert cloud.clusters.clusters["llm-cluster"].mode == "autopilot"
    assert outputs["workloadIdentityConfig"] == {"workloadPool": f"{PROJECT}.svc.id.goog"}
    with pytest.raises(Refused, match="Autopilot clusters do not support mutating node pools"):
        cloud.create(NODE_POOL, L4_POOL)


def test_a_zonal_cluster_has_its_nodes_in_its_zone(cloud: Engine) -> None:
    _, outputs = cloud.create(CLUSTER, but(STANDARD, location="us-central1-f"))
    assert (cloud.clusters.clusters["llm-cluster"].zones, outputs["nodeLocations"]) == (["us-central1-f"], [])


def test_bare_metal_nodes_need_a_cluster_without_shielded_nodes(standard: Engine) -> None:
    policy = {"type": "", "policyName": "gb300"}
    gpus = [{"type": "nvidia-gb300", "count": 4}]
    node: Values = {"machineType": "a4x-maxgpu-4g-metal", "diskType": "hyperdisk-balanced", "guestAccelerators": gpus}
    node["linuxNodeConfig"] = {"hugepagesConfig": {"hugepageSize2m": 4096}}
    metal = {**L4_POOL, "nodeLocations": ["us-central1-b"], "placementPolicy": policy, "nodeConfig": node}
    with pytest.raises(Refused, match="a4x-maxgpu-4g-metal requires a cluster without shielded nodes"):
        standard.create(NODE_POOL, metal)
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, but(STANDARD, enableShieldedNodes=False))
    standard.create(NODE_POOL, metal)
    assert standard.clusters.pools["gpupool"].machine_type == "a4x-maxgpu-4g-metal"


def test_a_gpu_pool_creates_the_nodes_of_its_body(standard: Engine) -> None:
    id, outputs = standard.create(NODE_POOL, L4_POOL)
    assert id == POOL_ID
    assert standard.clusters.pools["gpupool"] == PoolRecord(
        name="gpupool",
        machine_type="g2-standard-24",
        zones=["us-central1-a"],
        gpu="nvidia-l4",
        gpus=2,
        driver="latest",
        capacity="onDemand",
        labels={"team": "ml"},
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        disk_gb=200,
        nodes_per_zone=3,
        workload_identity=True,
    )
    assert outputs["nodeCount"] == 3
    assert len(outputs["instanceGroupUrls"]) == 1


def test_pool_size_and_capacity_come_from_the_body(standard: Engine) -> None:
    def pool(**changes: Any) -> PoolRecord:
        standard.clusters.pools.clear()
        id, _ = standard.create(NODE_POOL, but(FLEX_START, **changes))
        standard.store.remove(id)
        return standard.clusters.pools["gpupool"]

    flex = pool()
    assert (flex.capacity, flex.nodes_per_zone, flex.min_nodes, flex.max_nodes) == ("flexStart", None, 0, 4)
    assert pool(queuedProvisioning={"enabled": True}).capacity == "queuedFlexStart"
    bounds = {"minNodeCount": 1, "maxNodeCount": 4}
    per_zone = pool(autoscaling=bounds, nodeLocations=["us-central1-a", "us-central1-b"])
    assert (per_zone.min_nodes, per_zone.max_nodes) == (2, 8)
    plain: Values = {"nodeConfig__flexStart": None, "nodeConfig__maxRunDuration": None}
    assert pool(**plain, nodeConfig__spot=True).capacity == "spot"
    reserved = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k", "values": ["mine"]}
    assert pool(**plain, nodeConfig__reservationAffinity=reserved).capacity == "reservation"


def test_a_pool_may_name_its_cluster_by_id(standard: Engine) -> None:
    assert standard.create(NODE_POOL, but(L4_POOL, cluster=CLUSTER_ID, location=None))[0] == POOL_ID


@pytest.mark.parametrize(
    ("token", "inputs", "text"),
    [
        (NODE_POOL, but(L4_POOL, cluster="other"), "Error 404: Not found: .*/clusters/other"),
        (
            NODE_POOL,
            but(L4_POOL, management__autoUpgrade=False),
            "Auto_upgrade must be true when release_channel RAPID",
        ),
        (CLUSTER, but(STANDARD, location="us-east1"), "has the same name"),
        (MEMBER, GRANT, "Error 404: The specified bucket does not exist"),
        (ACCOUNT_MEMBER, BINDING, "Error 404: Unknown service account"),
        (PROJECT_MEMBER, VIEWER, f"Service account {EMAIL} does not exist"),
    ],
)
def test_what_google_refuses_is_not_created(standard: Engine, token: str, inputs: Values, text: str) -> None:
    before = standard.store.all()
    with pytest.raises(Refused, match=text):
        standard.create(token, inputs)
    assert standard.store.all() == before
    assert standard.clusters.clusters["llm-cluster"].location == "us-central1"


def test_an_existing_resource_can_not_be_created_again(standard: Engine) -> None:
    standard.create(NODE_POOL, L4_POOL)
    standard.create(BUCKET, MODEL_BUCKET)
    for token, inputs, text in (
        (CLUSTER, STANDARD, f"Error 409: Already exists: {re.escape(CLUSTER_ID)}., alreadyExists"),
        (NODE_POOL, L4_POOL, "Error 409: Already exists"),
        (BUCKET, MODEL_BUCKET, r"Error 409: Your previous request .* you already own it\., conflict"),
        (BUCKET, MODEL_BUCKET | {"project": "another"}, "Error 409: The requested bucket name is not available"),
    ):
        with pytest.raises(Refused, match=text):
            standard.create(token, inputs)


def test_a_creation_that_fails_leaves_nothing_behind(cloud: Engine) -> None:
    cloud.clusters.fails["create"] = Refused("no etcd on PATH")
    with pytest.raises(Refused, match="no etcd"):
        cloud.create(CLUSTER, STANDARD)
    assert cloud.store.all() == []
    cloud.create(CLUSTER, STANDARD)


# -------------------------------------------------------------------------------------------------------------- grants
def test_a_grant_waits_for_the_project_s_identity_pool(cloud: Engine) -> None:
    cloud.create(BUCKET, MODEL_BUCKET)
    with pytest.raises(Refused, match=f"Error 400: Identity Pool does not exist \\({PROJECT}.svc.id.goog\\)"):
        cloud.create(MEMBER, GRANT)
    cloud.create(CLUSTER, but(STANDARD, workloadIdentityConfig=None))
    with pytest.raises(Refused, match="Identity Pool does not exist"):
        cloud.create(MEMBER, GRANT)
    cloud.update(CLUSTER, CLUSTER_ID, but(STANDARD, workloadIdentityConfig=None), STANDARD)
    id, outputs = cloud.create(MEMBER, GRANT)
    assert id == f"b/{GRANT['bucket']}/{GRANT['role']}/{GRANT['member']}"
    assert outputs["bucket"] == f"b/{GRANT['bucket']}"
    assert cloud.create(MEMBER, GRANT)[0] == id, "a grant that is there is granted again"


def test_a_grant_with_a_condition_is_another_one_than_that_without(standard: Engine) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    condition = {
        "title": "folder",
        "expression": 'resource.name.startsWith("projects/_/buckets/b/objects/f/") || false',
    }
    whole, part = (standard.create(MEMBER, inputs) for inputs in (GRANT, GRANT | {"condition": condition}))
    assert part[0] == f"{whole[0]}/folder//{condition['expression']}"
    for id, outputs in (whole, part):
        assert standard.read(MEMBER, id)[1] == outputs


def test_a_grant_with_another_project_s_number_is_refused(standard: Engine) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    with pytest.raises(Refused, match=f"that of {PROJECT} is {project_number(PROJECT)}"):
        standard.create(MEMBER, but(GRANT, member=principal(number="123456789012")))


def test_a_service_account_has_an_address_and_a_unique_name(cloud: Engine) -> None:
    planned = cloud.create(ACCOUNT, ACCOUNT_INPUTS, preview=True)[1]
    assert planned["member"] is UNKNOWN
    id, outputs = cloud.create(ACCOUNT, ACCOUNT_INPUTS)
    assert id == outputs["name"] == ACCOUNT_ID
    assert (outputs["email"], outputs["member"]) == (EMAIL, f"serviceAccount:{EMAIL}")
    with pytest.raises(Refused, match="Error 409: Already exists"):
        cloud.create(ACCOUNT, ACCOUNT_INPUTS)
    assert cloud.check(ACCOUNT, ACCOUNT_INPUTS | {"accountId": "sa"})[1][0][0] == "accountId"
    assert cloud.read(ACCOUNT, EMAIL)[0] == ACCOUNT_ID


def test_a_role_on_a_service_account_needs_the_identity_pool(cloud: Engine) -> None:
    cloud.create(ACCOUNT, ACCOUNT_INPUTS)
    with pytest.raises(Refused, match=f"Identity Pool does not exist \\({PROJECT}.svc.id.goog\\)"):
        cloud.create(ACCOUNT_MEMBER, BINDING)
    cloud.create(CLUSTER, STANDARD)
    id, _ = cloud.create(ACCOUNT_MEMBER, BINDING)
    assert id == f"{ACCOUNT_ID}/{BINDING['role']}/{BINDING['member']}"
    assert cloud.read(ACCOUNT_MEMBER, id.replace("/roles/", " roles/").replace("User/", "User "))[0] == id
    cloud.delete(ACCOUNT, ACCOUNT_ID, ACCOUNT_INPUTS)
    assert cloud.store.get(id) is None, "its bindings go with it"


def test_a_role_on_a_project_needs_the_pool_of_its_member(cloud: Engine) -> None:
    with pytest.raises(Refused, match="Identity Pool does not exist"):
        cloud.create(PROJECT_MEMBER, VIEWER | {"member": principal()})
    cloud.create(ACCOUNT, ACCOUNT_INPUTS)
    id, outputs = cloud.create(PROJECT_MEMBER, VIEWER)
    assert id == f"{PROJECT}/roles/monitoring.viewer/serviceAccount:{EMAIL}"
    assert outputs["role"] == VIEWER["role"]
    assert cloud.read(PROJECT_MEMBER, id.replace("/roles/", " roles/").replace("viewer/", "viewer "))[0] == id
    assert cloud.check(PROJECT_MEMBER, VIEWER | {"role": "viewer"})[1][0][0] == "role"
    assert cloud.check(PROJECT_MEMBER, VIEWER | {"member": EMAIL})[1][0][0] == "member"


# ------------------------------------------------------------------------------------------------- killed creations
def test_a_killed_creation_of_a_cluster_and_of_a_pool_is_finished_by_a_read(cloud: Engine) -> None:
    for id in (CLUSTER_ID, f"{PROJECT}/us-central1/llm-cluster", "us-central1/llm-cluster"):
        kill(cloud, "create", CLUSTER, STANDARD)
        assert [record.status for record in cloud.store.all()] == [PROVISIONING]
        with pytest.raises(Refused, match="is being created"):
            cloud.create(NODE_POOL, L4_POOL)
        resource_id, outputs, inputs = cloud.read(CLUSTER, id)
        assert (resource_id, inputs, outputs["endpoint"]) == (CLUSTER_ID, STANDARD, "127.0.0.1:34567")
        assert [record.status for record in cloud.store.all()] == [RUNNING]
        assert cloud.store.has_identity_pool(PROJECT)
        cloud.delete(CLUSTER, CLUSTER_ID, STANDARD)
    cloud.create(CLUSTER, STANDARD)
    for id in (POOL_ID, f"{PROJECT}/us-central1/llm-cluster/gpupool", "us-central1/llm-cluster/gpupool"):
        kill(cloud, "set_pool", NODE_POOL, L4_POOL)
        assert cloud.read(NODE_POOL, id, L4_POOL)[0] == POOL_ID
        assert "gpupool" in cloud.clusters.pools
        cloud.delete(NODE_POOL, POOL_ID, L4_POOL)


def kill(cloud: Engine, step: str, token: str, inputs: Values) -> None:
    """Kills a creation at a step."""
    cloud.clusters.fails[step] = Killed()
    with pytest.raises(Killed):
        cloud.create(token, inputs)


def test_a_creation_can_be_slowed_down(cloud: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setenv("GKE_AI_CLOUD_LATENCY", "2.5")
    monkeypatch.setattr("time.sleep", slept.append)
    cloud.create(CLUSTER, STANDARD)
    assert slept == [2.5]


# --------------------------------------------------------------------------------------------------------------- reads
def test_an_import_accepts_the_provider_s_ids(standard: Engine) -> None:
    bucket = standard.create(BUCKET, MODEL_BUCKET)
    grant = standard.create(MEMBER, GRANT)
    for form in (bucket[0], f"{PROJECT}/{bucket[0]}"):
        assert standard.read(BUCKET, form) == (*bucket, MODEL_BUCKET)
    for separator in (" ", "/"):
        assert standard.read(MEMBER, f"b/{separator.join(GRANT.values())}") == (*grant, GRANT)


def test_a_resource_that_does_not_exist_is_read_as_missing_and_not_updated(standard: Engine) -> None:
    with pytest.raises(Refused, match="is not the id of a cluster"):
        standard.read(CLUSTER, "a/b/c/d/e")
    assert standard.read(NODE_POOL, POOL_ID, L4_POOL)[0] == ""
    standard.delete(NODE_POOL, POOL_ID, L4_POOL)  # deleting it is fine
    with pytest.raises(Refused, match="Error 404: Not found"):
        standard.update(NODE_POOL, POOL_ID, L4_POOL, but(L4_POOL, nodeCount=5))


@pytest.mark.parametrize(("token", "inputs"), [(CLUSTER, STANDARD), (NODE_POOL, L4_POOL), (BUCKET, MODEL_BUCKET)])
def test_a_refresh_of_an_unchanged_resource_changes_nothing(cloud: Engine, token: str, inputs: Values) -> None:
    if token == NODE_POOL:
        cloud.create(CLUSTER, STANDARD)
    id, outputs = cloud.create(token, inputs)
    assert cloud.read(token, id, inputs) == (id, outputs, inputs)
    assert cloud.diff(token, inputs, inputs).changes == proto.DiffResponse.DIFF_NONE


def test_a_refresh_shows_changes_made_outside_pulumi(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
    record = standard.store.get(id)
    assert record is not None
    standard.store.put(replace(record, inputs=record.inputs | {"nodeCount": 1}))
    _, outputs, inputs = standard.read(NODE_POOL, id, L4_POOL)
    assert (outputs["nodeCount"], inputs["nodeCount"]) == (1, 1)


def test_a_secret_input_is_secret_in_the_outputs_after_create_update_and_refresh(standard: Engine) -> None:
    secret = but(MODEL_BUCKET) | {"labels": {"key": Secret("hidden")}}
    id, outputs = standard.create(BUCKET, secret)
    assert outputs["labels"] == {"key": Secret("hidden")}
    assert standard.update(BUCKET, id, secret, secret)["labels"] == {"key": Secret("hidden")}
    _, outputs, inputs = standard.read(BUCKET, id, secret)
    assert outputs["labels"] == inputs["labels"] == {"key": Secret("hidden")}


# ------------------------------------------------------------------------------------------------------------- changes
@pytest.mark.parametrize(
    ("token", "old", "change", "deleted_first"),
    [
        (CLUSTER, STANDARD, {"location": "us-east1"}, True),
        (CLUSTER, STANDARD, {"name": "other"}, False),
        (NODE_POOL, L4_POOL, {"nodeConfig__spot": True}, True),
        (BUCKET, MODEL_BUCKET, {"location": "EU"}, True),
        (MEMBER, GRANT, {"role": "roles/storage.objectUser"}, False),
    ],
)
def test_a_resource_is_deleted_before_another_one_of_its_name_replaces_it(
    cloud: Engine, token: str, old: Values, change: Values, deleted_first: bool
) -> None:
    answer = cloud.diff(token, old, but(old, **change))
    assert (answer.changes, bool(answer.replaces)) == (proto.DiffResponse.DIFF_SOME, True)
    assert answer.deleteBeforeReplace == deleted_first


def test_a_change_is_reported_at_the_path_of_its_property(cloud: Engine) -> None:
    labels = {"a/b": "c", "team": "ml"}
    new = but(L4_POOL, nodeCount=4, nodeConfig__labels=labels, nodeLocations=["us-central1-a", "us-central1-b"])
    answer = cloud.diff(NODE_POOL, L4_POOL, new)
    assert sorted(answer.detailedDiff) == ['nodeConfig.labels["a/b"]', "nodeCount", "nodeLocations[1]"]


def test_the_preview_of_an_update_knows_unchanged_outputs_also_of_an_imported_state(cloud: Engine) -> None:
    changed = but(STANDARD, resourceLabels={"team": "ops"})
    state = STANDARD | {"endpoint": "192.0.2.1", "nodeLocations": ["us-central1-f"]}
    outputs = cloud.update(CLUSTER, CLUSTER_ID, STANDARD, changed, preview=True, state=state)
    assert (outputs["endpoint"], outputs["nodeLocations"]) == ("192.0.2.1", ["us-central1-f"])
    assert outputs["resourceLabels"] == {"team": "ops"}
    cloud.create(CLUSTER, STANDARD)
    outputs = cloud.update(CLUSTER, CLUSTER_ID, STANDARD, changed, preview=True)
    assert (outputs["endpoint"], outputs["resourceLabels"]) == ("127.0.0.1:34567", {"team": "ops"})
    assert outputs["masterAuth"]["clusterCaCertificate"] == "Q0E="
    assert cloud.read(CLUSTER, CLUSTER_ID, STANDARD)[2] == STANDARD, "a preview changes nothing"


def test_a_changed_node_count_resizes_the_pool(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
    standard.clusters.calls.clear()
    assert standard.update(NODE_POOL, id, L4_POOL, but(L4_POOL, nodeCount=5))["nodeCount"] == 5
    assert standard.clusters.calls == [("set_pool", "llm-cluster", "gpupool")]
    assert standard.clusters.pools["gpupool"].nodes_per_zone == 5


# ----------------------------------------------------------------------------------------------------------- deletions
def test_a_protected_cluster_is_not_deleted_and_protection_is_the_default(standard: Engine) -> None:
    for state in (but(STANDARD, deletionProtection=True), but(STANDARD, deletionProtection=None)):
        with pytest.raises(Refused, match="Cannot destroy cluster because deletion_protection is set to true"):
            standard.delete(CLUSTER, CLUSTER_ID, state)
    assert "llm-cluster" in standard.clusters.clusters


def test_a_cluster_is_deleted_with_its_pools_and_without_the_identity_pool(standard: Engine) -> None:
    standard.create(NODE_POOL, L4_POOL)
    standard.clusters.fails["delete"] = Killed()
    with pytest.raises(Killed):
        standard.delete(CLUSTER, CLUSTER_ID, STANDARD)
    assert standard.store.get(CLUSTER_ID) is not None
    standard.delete(CLUSTER, CLUSTER_ID, STANDARD)
    assert (standard.store.all(), standard.clusters.clusters) == ([], {})
    assert standard.store.has_identity_pool(PROJECT)
    standard.create(CLUSTER, STANDARD)


def test_a_pool_is_deleted_with_its_nodes_unless_its_policy_says_otherwise(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
    with pytest.raises(Refused, match="deletionPolicy"):
        standard.delete(NODE_POOL, id, L4_POOL | {"deletionPolicy": "PREVENT"})
    standard.delete(NODE_POOL, id, L4_POOL | {"deletionPolicy": "ABANDON"})
    assert standard.store.get(id) is not None
    standard.delete(NODE_POOL, id, L4_POOL)
    assert standard.clusters.calls[-1] == ("remove_pool", "llm-cluster", "gpupool")
    assert standard.store.get(id) is None


def test_a_bucket_with_data_is_deleted_only_by_force_with_its_grants(standard: Engine) -> None:
    id, outputs = standard.create(BUCKET, MODEL_BUCKET)
    assert outputs["url"] == f"gs://{id}"
    standard.create(MEMBER, GRANT)
    standard.store.put_object(id, "checkpoint-10/model", b"weights")
    assert standard.store.objects(id) == ["checkpoint-10/model"]
    with pytest.raises(Refused, match="without `force_destroy` set to true"):
        standard.delete(BUCKET, id, MODEL_BUCKET)
    standard.delete(BUCKET, id, MODEL_BUCKET | {"forceDestroy": True})
    assert [record.identity for record in standard.store.all()] == [CLUSTER_ID]
    assert standard.store.objects(id) == []


# ----------------------------------------------------------------------------------------------------------- functions
def test_a_project_has_the_same_number_everywhere(cloud: Engine, tmp_path: Path) -> None:
    get = "gcp:organizations/getProject:getProject"
    number = cloud.invoke(get, projectId=PROJECT)["number"]
    assert re.fullmatch(r"\d{12}", number)
    assert Engine(tmp_path / "another").invoke(get)["number"] == number
    assert cloud.invoke(get, projectId="other-project")["number"] != number
    with pytest.raises(Refused, match="is not a project id"):
        cloud.invoke(get, projectId="No")
    with pytest.raises(Refused, match="unknown argument project"):
        cloud.invoke(get, project=PROJECT)


def test_an_existing_cluster_can_be_looked_up_and_a_missing_one_is_reported(standard: Engine) -> None:
    get = "gcp:container/getCluster:getCluster"
    cluster = standard.invoke(get, name="llm-cluster", location="us-central1", project=PROJECT)
    assert cluster["endpoint"] == "127.0.0.1:34567"
    assert cluster["masterAuths"][0]["clusterCaCertificate"] == "Q0E="
    assert cluster["workloadIdentityConfigs"] == [{"workloadPool": f"{PROJECT}.svc.id.goog"}]
    assert cluster["controlPlaneEndpointsConfigs"][0]["dnsEndpointConfigs"][0]["endpoint"].endswith(".gke.goog")
    assert cluster["enableAutopilot"] is False
    # NetworkPolicies hold by neither.
    assert (cluster.get("datapathProvider"), cluster["networkPolicies"]) == (None, [])
    lists = {name for name, value in cluster.items() if isinstance(value, list)}
    parameters = inspect.signature(pulumi_gcp.container.GetClusterResult.__init__).parameters
    assert lists <= {re.sub(r"_(.)", lambda match: match[1].upper(), name) for name in parameters}
    assert {"gatewayApiConfigs", "networkPolicies", "addonsConfigs", "confidentialNodes"} <= lists
    gateways = {"gatewayApiConfig": {"channel": "CHANNEL_STANDARD"}}
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, STANDARD | gateways)
    cluster = standard.invoke(get, name="llm-cluster", location="us-central1")
    assert cluster["gatewayApiConfigs"] == [{"channel": "CHANNEL_STANDARD"}]
    with pytest.raises(Refused, match=r"projects/.*/clusters/none not found"):
        standard.invoke(get, name="none", location="us-central1")


# ------------------------------------------------------------------------------------------------------------ commands
def test_a_cluster_created_outside_a_stack_can_be_read_and_deleted(cloud: Engine, run: Callable[..., str]) -> None:
    mine = ("--project", PROJECT)
    assert run("existing", "create", "llm-cluster", *mine) == CLUSTER_ID
    assert cloud.clusters.pools["default-pool"].nodes_per_zone == 1
    with pytest.raises(SystemExit, match="Error 409"):
        run("existing", "create", "llm-cluster", *mine)
    with pytest.raises(SystemExit, match='Location "nowhere1" does not exist'):
        run("existing", "create", "other", "--location", "nowhere1", *mine)
    run("existing", "delete", "llm-cluster", *mine)
    assert cloud.store.all() == []
    run("existing", "create", "llm-cluster", "--mode", "autopilot", *mine)
    assert cloud.clusters.clusters["llm-cluster"].mode == "autopilot"


@pytest.fixture
def run(cloud: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs `bucket` or `existing` for the cloud. Returns its output."""
    commands = {"bucket": bucket, "existing": existing}
    for command in commands.values():
        monkeypatch.setattr(command, "Store", lambda: cloud.store)
    monkeypatch.setattr(existing, "LocalClusters", lambda: cloud.clusters)

    def run(*words: str) -> str:
        monkeypatch.setattr("sys.argv", list(words))
        commands[words[0]].main()
        return capsys.readouterr().out.strip()

    return run


def test_objects_are_put_only_into_existing_buckets(cloud: Engine, run: Callable[..., str], tmp_path: Path) -> None:
    id, _ = cloud.create(BUCKET, MODEL_BUCKET)
    run("bucket", "put", id, "checkpoint-10/model")
    (tmp_path / "weights").write_bytes(b"weights")
    run("bucket", "put", id, "checkpoint-20/model", str(tmp_path / "weights"))
    assert run("bucket", "ls", id).split() == ["checkpoint-10/model", "checkpoint-20/model"]
    with pytest.raises(SystemExit, match=f"no bucket none. Existing buckets: {id}"):
        run("bucket", "ls", "none")
    with pytest.raises(SystemExit, match="can't be read"):
        run("bucket", "put", id, "o", str(tmp_path / "missing"))
    cloud.store.create_identity_pool("my-project")
    cloud.create(MEMBER, GRANT)
    run("bucket", "rm", id)
    assert cloud.store.all(BUCKET) == cloud.store.all(MEMBER) == []
    assert cloud.store.objects(id) == []


def test_an_object_is_a_file_of_its_buckets_folder(cloud: Engine, run: Callable[..., str]) -> None:
    id, _ = cloud.create(BUCKET, MODEL_BUCKET)
    folder = cloud.store.bucket_folder(id)
    cloud.store.put_object(id, "step 1/a%2Fb", b"1")
    cloud.store.put_object(id, "empty/", b"")
    (folder / "run").mkdir()
    (folder / "run" / "model").write_bytes(b"2")
    for name in ("", "/a", "a//b", "a/../../b", ".", "run/model/more"):
        with pytest.raises(SystemExit, match="The emulator keeps objects as files"):
            run("bucket", "put", id, name)
    assert cloud.store.objects(id) == ["empty/", "run/model", "step 1/a%2Fb"]
    assert (folder / "step 1" / "a%2Fb").read_bytes() == b"1"


# --------------------------------------------------------------------------------------------------------------- store


def test_a_record_has_a_short_file_name_and_survives_an_interrupted_write(
    standard: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    standard.create(MEMBER, but(GRANT, member=principal().replace("/ns/llm", f"/ns/{'n' * 63}")))
    assert all(len(file.name) < 200 for file in standard.store.folder.glob("*.json"))
    before = standard.store.all()
    monkeypatch.setattr(os, "replace", Mock(side_effect=Killed))
    with pytest.raises(Killed):
        standard.store.put(replace(before[0], inputs={}))
    assert standard.store.all() == before
