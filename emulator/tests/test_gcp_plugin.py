"""The emulated gcp plugin, called as by the engine, with a recorder in place of its clusters."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

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


# ------------------------------------------------------------------------------------------------------ configuration
def test_an_unknown_provider_setting_is_refused_with_the_nearest_known_one(cloud: Engine) -> None:
    def failures(settings: Values) -> Mapping[str, str]:
        answer = cloud.gcp.CheckConfig(proto.CheckRequest(news=encode(settings)), NO_CONTEXT)
        return {failure.property: failure.reason for failure in answer.failures}

    assert failures({"project": "p", "region": "r", "zone": "z", "version": "10.2.0"}) == {}
    assert "did you mean project?" in failures({"projct": "p"})["projct"]


def test_another_default_project_does_not_replace_the_provider_and_its_resources(cloud: Engine) -> None:
    request = proto.DiffRequest(old_inputs=encode({"project": "p"}), news=encode({"project": "q"}))
    answer = cloud.gcp.DiffConfig(request, NO_CONTEXT)
    assert (answer.changes, list(answer.replaces)) == (proto.DiffResponse.DIFF_SOME, [])


def test_a_resource_that_the_emulator_lacks_is_refused_by_name(cloud: Engine) -> None:
    with pytest.raises(Refused, match="the emulator has no gcp:sql/databaseInstance:DatabaseInstance"):
        cloud.check("gcp:sql/databaseInstance:DatabaseInstance", {})
    with pytest.raises(Refused, match="no function gcp:compute/getZones:getZones"):
        cloud.invoke("gcp:compute/getZones:getZones")


def test_a_missing_project_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="Set gcp:project"):
        Engine(tmp_path, project=None).create(BUCKET, MODEL_BUCKET)


# ------------------------------------------------------------------------------------------------------------ mistakes
VALID = ("standard cluster", "autopilot cluster", "node pool", "bucket", "member")


@pytest.mark.parametrize(("token", "inputs", "path", "text"), mistakes(*VALID))
def test_a_mistake_is_refused_at_its_property(cloud: Engine, token: str, inputs: Values, path: str, text: str) -> None:
    failures = cloud.check(token, inputs)[1]
    assert [place for place, _ in failures] == [path], failures
    assert text in failures[0][1]


@pytest.mark.parametrize("name", VALID)
def test_valid_inputs_pass_unchanged(cloud: Engine, name: str) -> None:
    assert cloud.check(INPUTS[name]["type"], accepted(name)) == (accepted(name), [])


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (but(FLEX_START, autoscaling=None), "Flex start node pools require autoscaling enabled."),
        (but(FLEX_START, initialNodeCount=1), "Flex start node pools require initial node count to be set to 0."),
        (but(FLEX_START, nodeConfig__reservationAffinity=None), "flex start node pools don't support reservations"),
        (but(FLEX_START, nodeConfig__spot=True), "can't be spot"),
        (but(FLEX_START, nodeConfig__maxRunDuration="60s"), "from 600s to 604800s"),
        (
            but(FLEX_START, nodeConfig__flexStart=None, queuedProvisioning={"enabled": True}, autoscaling=None),
            "autoscaling",
        ),
    ],
)
def test_flex_start_pools_follow_google_s_rules(cloud: Engine, inputs: Values, text: str) -> None:
    assert cloud.check(NODE_POOL, FLEX_START)[1] == []
    ((_, reason),) = cloud.check(NODE_POOL, inputs)[1]
    assert text in reason


@pytest.mark.parametrize(("seconds", "accepted"), [(29, False), (30, True), (10368000, True), (10368001, False)])
def test_a_node_without_flex_start_may_live_for_up_to_120_days(seconds: int, accepted: bool, cloud: Engine) -> None:
    refused = cloud.check(NODE_POOL, but(L4_POOL, nodeConfig__maxRunDuration=f"{seconds}s"))[1]
    assert [path for path, _ in refused] == ([] if accepted else ["nodeConfig.maxRunDuration"])


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
    id, outputs = cloud.create(CLUSTER, STANDARD, preview=True)
    assert id == ""
    assert outputs["name"] == "llm-cluster"
    assert outputs["resourceLabels"] == {"team": "ml"}
    assert outputs["endpoint"] is UNKNOWN
    assert outputs["masterAuth"] is UNKNOWN
    _, outputs = cloud.create(
        CLUSTER,
        STANDARD | {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"allowExternalTraffic": True}}},
        preview=True,
    )
    assert outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"] == {
        "allowExternalTraffic": True,
        "endpoint": UNKNOWN,
    }
    assert cloud.store.all() == []
    assert cloud.clusters.calls == []


def test_a_standard_cluster_is_created_without_its_default_pool(cloud: Engine) -> None:
    id, outputs = cloud.create(CLUSTER, STANDARD)
    assert id == CLUSTER_ID
    assert cloud.clusters.calls == [("create", "llm-cluster")]
    record = cloud.clusters.clusters["llm-cluster"]
    assert (record.mode, record.project, record.location) == ("standard", PROJECT, "us-central1")
    assert record.zones == ["us-central1-a", "us-central1-b", "us-central1-c"]
    assert outputs["endpoint"] == "127.0.0.1:34567"
    assert outputs["masterAuth"]["clusterCaCertificate"] == "Q0E="
    assert outputs["masterVersion"] == record.version
    name = outputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
    assert re.fullmatch(r"gke-[0-9a-f]{32}-\d+\.us-central1\.gke\.goog", name)
    assert outputs["project"] == PROJECT
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
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, but(STANDARD, resourceLabels={"team": "ops"}))
    assert "default-pool" in standard.clusters.pools


def test_an_autopilot_cluster_has_an_identity_pool_and_refuses_node_pools(cloud: Engine) -> None:
    _, outputs = cloud.create(CLUSTER, AUTOPILOT)
    assert cloud.clusters.clusters["llm-cluster"].mode == "autopilot"
    assert outputs["workloadIdentityConfig"] == {"workloadPool": f"{PROJECT}.svc.id.goog"}
    with pytest.raises(Refused, match="Autopilot clusters do not support mutating node pools"):
        cloud.create(NODE_POOL, L4_POOL)


def test_bare_metal_nodes_need_a_cluster_without_shielded_nodes(standard: Engine) -> None:
    metal = {
        **L4_POOL,
        "nodeLocations": ["us-central1-b"],
        "placementPolicy": {"type": "", "policyName": "gb300"},
        "nodeConfig": {
            "machineType": "a4x-maxgpu-4g-metal",
            "diskType": "hyperdisk-balanced",
            "guestAccelerators": [{"type": "nvidia-gb300", "count": 4}],
            "linuxNodeConfig": {"hugepagesConfig": {"hugepageSize2m": 4096}},
        },
    }
    with pytest.raises(Refused, match="a4x-maxgpu-4g-metal requires a cluster without shielded nodes"):
        standard.create(NODE_POOL, metal)
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, but(STANDARD, enableShieldedNodes=False))
    standard.create(NODE_POOL, metal)
    assert standard.clusters.pools["gpupool"].machine_type == "a4x-maxgpu-4g-metal"


def test_a_zonal_cluster_has_its_nodes_in_its_zone(cloud: Engine) -> None:
    _, outputs = cloud.create(CLUSTER, but(STANDARD, location="us-central1-f"))
    assert cloud.clusters.clusters["llm-cluster"].zones == ["us-central1-f"]
    assert outputs["nodeLocations"] == []


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
    per_zone = pool(
        autoscaling={"minNodeCount": 1, "maxNodeCount": 4}, nodeLocations=["us-central1-a", "us-central1-b"]
    )
    assert (per_zone.min_nodes, per_zone.max_nodes) == (2, 8)
    plain: Values = {"nodeConfig__flexStart": None, "nodeConfig__maxRunDuration": None}
    assert pool(**plain, nodeConfig__spot=True).capacity == "spot"
    reserved = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k", "values": ["mine"]}
    assert pool(**plain, nodeConfig__reservationAffinity=reserved).capacity == "reservation"


def test_a_pool_may_name_its_cluster_by_id_and_the_cluster_must_exist(standard: Engine) -> None:
    assert standard.create(NODE_POOL, but(L4_POOL, cluster=CLUSTER_ID, location=None))[0] == POOL_ID
    with pytest.raises(Refused, match=r"Error 404: Not found: .*/clusters/other"):
        standard.create(NODE_POOL, but(L4_POOL, cluster="other"))


def test_a_pool_can_not_leave_upgrades_off_in_a_release_channel(standard: Engine) -> None:
    with pytest.raises(Refused, match="Auto_upgrade must be true when release_channel RAPID is set"):
        standard.create(NODE_POOL, but(L4_POOL, management__autoUpgrade=False))


def test_an_existing_resource_can_not_be_created_again(standard: Engine) -> None:
    with pytest.raises(Refused, match=re.escape(f"Error 409: Already exists: {CLUSTER_ID}., alreadyExists")):
        standard.create(CLUSTER, STANDARD)
    standard.create(NODE_POOL, L4_POOL)
    with pytest.raises(Refused, match="Error 409: Already exists"):
        standard.create(NODE_POOL, L4_POOL)
    standard.create(BUCKET, MODEL_BUCKET)
    with pytest.raises(Refused, match=r"Error 409: Your previous request .* you already own it\., conflict"):
        standard.create(BUCKET, MODEL_BUCKET)
    with pytest.raises(Refused, match="Error 409: The requested bucket name is not available"):
        standard.create(BUCKET, MODEL_BUCKET | {"project": "another-project"})


def test_a_second_cluster_with_the_same_name_is_refused(standard: Engine) -> None:
    with pytest.raises(Refused, match="has the same name"):
        standard.create(CLUSTER, but(STANDARD, location="us-east1"))
    assert standard.clusters.clusters["llm-cluster"].location == "us-central1"


def test_a_creation_that_fails_leaves_nothing_behind(cloud: Engine) -> None:
    cloud.clusters.fails["create"] = Refused("no etcd on PATH")
    with pytest.raises(Refused, match="no etcd"):
        cloud.create(CLUSTER, STANDARD)
    assert cloud.store.all() == []
    cloud.create(CLUSTER, STANDARD)


# -------------------------------------------------------------------------------------------------------------- grants
def test_a_grant_waits_for_the_project_s_identity_pool_and_the_bucket(cloud: Engine) -> None:
    with pytest.raises(Refused, match="Error 404: The specified bucket does not exist"):
        cloud.create(MEMBER, GRANT)
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


def test_a_grant_with_another_project_s_number_is_refused(standard: Engine) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    with pytest.raises(Refused, match=f"that of {PROJECT} is {project_number(PROJECT)}"):
        standard.create(MEMBER, but(GRANT, member=principal(number="123456789012")))


ACCOUNT_INPUTS: Values = {"accountId": "prom-frontend-sa", "project": PROJECT, "displayName": "Frontend"}
EMAIL = f"prom-frontend-sa@{PROJECT}.iam.gserviceaccount.com"
ACCOUNT_ID = f"projects/{PROJECT}/serviceAccounts/{EMAIL}"
BINDING: Values = {
    "serviceAccountId": ACCOUNT_ID,
    "role": "roles/iam.workloadIdentityUser",
    "member": f"serviceAccount:{PROJECT}.svc.id.goog[default/prom-frontend-sa]",
}
VIEWER: Values = {"project": PROJECT, "role": "roles/monitoring.viewer", "member": f"serviceAccount:{EMAIL}"}


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


def test_a_role_on_a_service_account_needs_the_account_and_the_identity_pool(cloud: Engine) -> None:
    with pytest.raises(Refused, match="Error 404: Unknown service account"):
        cloud.create(ACCOUNT_MEMBER, BINDING)
    cloud.create(ACCOUNT, ACCOUNT_INPUTS)
    with pytest.raises(Refused, match=f"Identity Pool does not exist \\({PROJECT}.svc.id.goog\\)"):
        cloud.create(ACCOUNT_MEMBER, BINDING)
    cloud.create(CLUSTER, STANDARD)
    id, _ = cloud.create(ACCOUNT_MEMBER, BINDING)
    assert id == f"{ACCOUNT_ID}/{BINDING['role']}/{BINDING['member']}"
    assert cloud.read(ACCOUNT_MEMBER, id.replace("/roles/", " roles/").replace("User/", "User "))[0] == id
    cloud.delete(ACCOUNT, ACCOUNT_ID, ACCOUNT_INPUTS)
    assert cloud.store.get(id) is None, "its bindings go with it"


def test_a_role_on_a_project_needs_the_account_or_the_pool_of_its_member(cloud: Engine) -> None:
    with pytest.raises(Refused, match=f"Service account {EMAIL} does not exist"):
        cloud.create(PROJECT_MEMBER, VIEWER)
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
@pytest.mark.parametrize("id", [CLUSTER_ID, f"{PROJECT}/us-central1/llm-cluster", "us-central1/llm-cluster"])
def test_a_killed_creation_of_a_cluster_is_finished_by_a_read(cloud: Engine, id: str) -> None:
    cloud.clusters.fails["create"] = Killed()
    with pytest.raises(Killed):
        cloud.create(CLUSTER, STANDARD)
    (begun,) = cloud.store.all()
    assert begun.status == PROVISIONING

    resource_id, outputs, inputs = cloud.read(CLUSTER, id)
    assert (resource_id, inputs) == (CLUSTER_ID, STANDARD)
    assert outputs["endpoint"] == "127.0.0.1:34567"
    (whole,) = cloud.store.all()
    assert whole.status == RUNNING
    assert cloud.store.has_identity_pool(PROJECT)


@pytest.mark.parametrize(
    "id", [POOL_ID, f"{PROJECT}/us-central1/llm-cluster/gpupool", "us-central1/llm-cluster/gpupool"]
)
def test_a_killed_creation_of_a_pool_is_finished_by_a_read(standard: Engine, id: str) -> None:
    standard.clusters.fails["set_pool"] = Killed()
    with pytest.raises(Killed):
        standard.create(NODE_POOL, L4_POOL)
    assert standard.read(NODE_POOL, id, L4_POOL)[0] == POOL_ID
    assert "gpupool" in standard.clusters.pools


def test_a_pool_is_refused_while_its_cluster_is_incomplete(cloud: Engine) -> None:
    cloud.clusters.fails["create"] = Killed()
    with pytest.raises(Killed):
        cloud.create(CLUSTER, STANDARD)
    with pytest.raises(Refused, match="is being created"):
        cloud.create(NODE_POOL, L4_POOL)


def test_a_creation_can_be_slowed_down(cloud: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setenv("GKE_AI_CLOUD_LATENCY", "2.5")
    monkeypatch.setattr("time.sleep", slept.append)
    cloud.create(CLUSTER, STANDARD)
    assert slept == [2.5]


# --------------------------------------------------------------------------------------------------------------- reads
@pytest.mark.parametrize(
    ("token", "inputs", "forms"),
    [
        (BUCKET, MODEL_BUCKET, ["model-bucket-my-project", f"{PROJECT}/model-bucket-my-project"]),
        (
            MEMBER,
            GRANT,
            [
                f"b/{GRANT['bucket']} {GRANT['role']} {GRANT['member']}",
                f"b/{GRANT['bucket']}/{GRANT['role']}/{GRANT['member']}",
            ],
        ),
    ],
)
def test_an_import_accepts_the_provider_s_ids(standard: Engine, token: str, inputs: Values, forms: list[str]) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    id, outputs = standard.create(token, inputs) if token != BUCKET else (MODEL_BUCKET["name"], None)
    for form in forms:
        read = standard.read(token, form)
        assert (read[0], read[2]) == (id, inputs)
        assert outputs is None or read[1] == outputs


def test_an_id_of_unknown_form_is_refused(cloud: Engine) -> None:
    with pytest.raises(Refused, match="is not the id of a cluster"):
        cloud.read(CLUSTER, "a/b/c/d/e")


def test_a_deleted_resource_reads_as_missing(standard: Engine) -> None:
    assert standard.read(NODE_POOL, POOL_ID, L4_POOL)[0] == ""
    standard.delete(NODE_POOL, POOL_ID, L4_POOL)  # deleting it is fine


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
REPLACING: list[tuple[str, Values, Values]] = [
    (CLUSTER, STANDARD, but(STANDARD, name="other")),
    (CLUSTER, STANDARD, but(STANDARD, location="us-east1")),
    (CLUSTER, STANDARD, but(STANDARD, initialNodeCount=2)),
    (CLUSTER, STANDARD, but(STANDARD, network="ai")),
    (CLUSTER, STANDARD, but(STANDARD, enableAutopilot=True)),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__guestAccelerators=[{"type": "nvidia-l4", "count": 1}])),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__spot=True)),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__flexStart=True)),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__maxRunDuration="3600s")),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__reservationAffinity={"consumeReservationType": "NO_RESERVATION"})),
    (NODE_POOL, L4_POOL, but(L4_POOL, queuedProvisioning={"enabled": True})),
    (NODE_POOL, L4_POOL, but(L4_POOL, placementPolicy={"type": "COMPACT"})),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeCount=None, initialNodeCount=3)),
    (NODE_POOL, L4_POOL, but(L4_POOL, cluster="other")),
    (BUCKET, MODEL_BUCKET, but(MODEL_BUCKET, location="EU")),
    (MEMBER, GRANT, but(GRANT, role="roles/storage.objectUser")),
]
IN_PLACE: list[tuple[str, Values, Values, list[str]]] = [
    (CLUSTER, STANDARD, but(STANDARD, resourceLabels={"team": "ops"}), ["resourceLabels.team"]),
    (CLUSTER, STANDARD, but(STANDARD, releaseChannel={"channel": "STABLE"}), ["releaseChannel.channel"]),
    (CLUSTER, STANDARD, but(STANDARD, deletionProtection=True), ["deletionProtection"]),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeCount=4), ["nodeCount"]),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__machineType="g2-standard-48"), ["nodeConfig.machineType"]),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeConfig__labels={"a/b": "c", "team": "ml"}), ['nodeConfig.labels["a/b"]']),
    (NODE_POOL, L4_POOL, but(L4_POOL, nodeLocations=["us-central1-a", "us-central1-b"]), ["nodeLocations[1]"]),
    (BUCKET, MODEL_BUCKET, but(MODEL_BUCKET, forceDestroy=True), ["forceDestroy"]),
]


@pytest.mark.parametrize(("token", "old", "new"), REPLACING)
def test_properties_that_the_provider_can_not_change_in_place_replace(
    cloud: Engine, token: str, old: Values, new: Values
) -> None:
    answer = cloud.diff(token, old, new)
    assert answer.changes == proto.DiffResponse.DIFF_SOME
    assert len(answer.replaces) >= 1
    # Two resources of one name can't be there at once.
    assert answer.deleteBeforeReplace == (token != MEMBER and old["name"] == new["name"])


@pytest.mark.parametrize(("token", "old", "new", "paths"), IN_PLACE)
def test_properties_that_the_provider_changes_in_place_do_not_replace(
    cloud: Engine, token: str, old: Values, new: Values, paths: list[str]
) -> None:
    answer = cloud.diff(token, old, new)
    assert list(answer.replaces) == []
    assert sorted(answer.detailedDiff) == paths
    assert answer.changes == proto.DiffResponse.DIFF_SOME


def test_the_case_of_a_bucket_s_location_is_no_change(cloud: Engine) -> None:
    answer = cloud.diff(BUCKET, MODEL_BUCKET, but(MODEL_BUCKET, location="us-central1"))
    assert answer.changes == proto.DiffResponse.DIFF_NONE


def test_the_preview_of_an_update_knows_unchanged_outputs(standard: Engine) -> None:
    changed = but(STANDARD, resourceLabels={"team": "ops"})
    outputs = standard.update(CLUSTER, CLUSTER_ID, STANDARD, changed, preview=True)
    assert outputs["endpoint"] == "127.0.0.1:34567"
    assert outputs["masterAuth"]["clusterCaCertificate"] == "Q0E="
    assert outputs["resourceLabels"] == {"team": "ops"}
    assert standard.read(CLUSTER, CLUSTER_ID, STANDARD)[2] == STANDARD, "a preview changes nothing"


def test_a_changed_node_count_resizes_the_pool_and_a_label_of_the_cluster_does_not(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
    standard.clusters.calls.clear()
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, but(STANDARD, resourceLabels={"team": "ops"}))
    assert standard.clusters.calls == []
    outputs = standard.update(NODE_POOL, id, L4_POOL, but(L4_POOL, nodeCount=5))
    assert outputs["nodeCount"] == 5
    assert standard.clusters.calls == [("set_pool", "llm-cluster", "gpupool")]
    assert standard.clusters.pools["gpupool"].nodes_per_zone == 5


def test_an_update_of_a_deleted_resource_is_refused(standard: Engine) -> None:
    with pytest.raises(Refused, match="Error 404: Not found"):
        standard.update(NODE_POOL, POOL_ID, L4_POOL, but(L4_POOL, nodeCount=5))


# ----------------------------------------------------------------------------------------------------------- deletions
def test_a_protected_cluster_is_not_deleted_and_protection_is_the_default(standard: Engine) -> None:
    for state in (but(STANDARD, deletionProtection=True), but(STANDARD, deletionProtection=None)):
        with pytest.raises(Refused, match="Cannot destroy cluster because deletion_protection is set to true"):
            standard.delete(CLUSTER, CLUSTER_ID, state)
    assert "llm-cluster" in standard.clusters.clusters


def test_a_cluster_is_deleted_with_its_pools_and_without_the_identity_pool(standard: Engine) -> None:
    standard.create(NODE_POOL, L4_POOL)
    standard.delete(CLUSTER, CLUSTER_ID, STANDARD)
    assert standard.store.all() == []
    assert standard.clusters.clusters == {}
    assert standard.store.has_identity_pool(PROJECT)
    standard.create(CLUSTER, STANDARD)


def test_a_killed_deletion_of_a_cluster_can_be_repeated(standard: Engine) -> None:
    standard.clusters.fails["delete"] = Killed()
    with pytest.raises(Killed):
        standard.delete(CLUSTER, CLUSTER_ID, STANDARD)
    assert standard.store.get(CLUSTER_ID) is not None
    standard.delete(CLUSTER, CLUSTER_ID, STANDARD)
    assert standard.store.all() == []


def test_a_pool_is_deleted_with_its_nodes(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
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


def test_a_deletion_policy_is_applied(standard: Engine) -> None:
    id, _ = standard.create(NODE_POOL, L4_POOL)
    with pytest.raises(Refused, match="deletionPolicy"):
        standard.delete(NODE_POOL, id, L4_POOL | {"deletionPolicy": "PREVENT"})
    standard.delete(NODE_POOL, id, L4_POOL | {"deletionPolicy": "ABANDON"})
    assert standard.store.get(id) is not None


# ----------------------------------------------------------------------------------------------------------- functions
def test_a_project_has_the_same_number_everywhere(cloud: Engine, tmp_path: Path) -> None:
    get = "gcp:organizations/getProject:getProject"
    number = cloud.invoke(get, projectId=PROJECT)["number"]
    assert len(number) == 12
    assert number.isdigit()
    assert Engine(tmp_path / "another").invoke(get)["number"] == number
    assert cloud.invoke(get, projectId="other-project")["number"] != number
    with pytest.raises(Refused, match="is not a project id"):
        cloud.invoke(get, projectId="No")
    with pytest.raises(Refused, match="unknown argument project"):
        cloud.invoke(get, project=PROJECT)


def test_a_cluster_is_looked_up_with_every_block_that_the_sdk_reads(standard: Engine) -> None:
    cluster = standard.invoke("gcp:container/getCluster:getCluster", name="llm-cluster", location="us-central1")
    lists = {name for name, value in cluster.items() if isinstance(value, list)}
    parameters = inspect.signature(pulumi_gcp.container.GetClusterResult.__init__).parameters
    assert lists <= {re.sub(r"_(.)", lambda match: match[1].upper(), name) for name in parameters}
    assert {"gatewayApiConfigs", "networkPolicies", "addonsConfigs", "confidentialNodes"} <= lists


def test_an_existing_cluster_with_the_gateway_api_says_so(cloud: Engine) -> None:
    cloud.create(CLUSTER, STANDARD | {"gatewayApiConfig": {"channel": "CHANNEL_STANDARD"}})
    cluster = cloud.invoke("gcp:container/getCluster:getCluster", name="llm-cluster", location="us-central1")
    assert cluster["gatewayApiConfigs"] == [{"channel": "CHANNEL_STANDARD"}]


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
    with pytest.raises(Refused, match=r"projects/.*/clusters/none not found"):
        standard.invoke(get, name="none", location="us-central1")


# ------------------------------------------------------------------------------------------------------------ commands
def test_a_cluster_created_outside_a_stack_can_be_read_and_deleted(
    cloud: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: cloud.store)
    monkeypatch.setattr(existing, "LocalClusters", lambda: cloud.clusters)

    def run(*arguments: str) -> None:
        monkeypatch.setattr("sys.argv", ["existing", *arguments, "--project", PROJECT])
        existing.main()

    run("create", "llm-cluster")
    assert capsys.readouterr().out.strip() == CLUSTER_ID
    assert cloud.clusters.pools["default-pool"].nodes_per_zone == 1
    with pytest.raises(SystemExit, match="Error 409"):
        run("create", "llm-cluster")
    with pytest.raises(SystemExit, match='Location "nowhere1" does not exist'):
        run("create", "other", "--location", "nowhere1")
    run("delete", "llm-cluster")
    assert cloud.store.all() == []
    run("create", "llm-cluster", "--mode", "autopilot")
    assert cloud.clusters.clusters["llm-cluster"].mode == "autopilot"


def test_objects_are_put_only_into_existing_buckets(
    cloud: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bucket, "Store", lambda: cloud.store)

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["bucket", *arguments])
        bucket.main()
        return capsys.readouterr().out

    id, _ = cloud.create(BUCKET, MODEL_BUCKET)
    run("put", id, "checkpoint-10/model")
    (tmp_path / "weights").write_bytes(b"weights")
    run("put", id, "checkpoint-20/model", str(tmp_path / "weights"))
    assert run("ls", id).split() == ["checkpoint-10/model", "checkpoint-20/model"]
    with pytest.raises(SystemExit, match=f"no bucket none. Existing buckets: {id}"):
        run("ls", "none")
    with pytest.raises(SystemExit, match="can't be read"):
        run("put", id, "o", str(tmp_path / "missing"))
    cloud.store.create_identity_pool("my-project")
    cloud.create(MEMBER, GRANT)
    run("rm", id)
    assert cloud.store.all(BUCKET) == cloud.store.all(MEMBER) == []
    assert cloud.store.objects(id) == []


def test_an_object_is_a_file_of_its_buckets_folder(cloud: Engine) -> None:
    id, _ = cloud.create(BUCKET, MODEL_BUCKET)
    folder = cloud.store.bucket_folder(id)
    cloud.store.put_object(id, "step 1/a%2Fb", b"1")
    cloud.store.put_object(id, "empty/", b"")
    (folder / "run").mkdir()
    (folder / "run" / "model").write_bytes(b"2")
    assert cloud.store.objects(id) == ["empty/", "run/model", "step 1/a%2Fb"]
    assert (folder / "step 1" / "a%2Fb").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["", "/a", "a//b", "a/../../b", ".", "run/model/more"])
def test_an_object_that_can_not_be_a_file_is_refused(cloud: Engine, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    id, _ = cloud.create(BUCKET, MODEL_BUCKET)
    cloud.store.put_object(id, "run/model", b"1")
    monkeypatch.setattr(bucket, "Store", lambda: cloud.store)
    monkeypatch.setattr("sys.argv", ["bucket", "put", id, name])
    with pytest.raises(SystemExit, match="The emulator keeps objects as files"):
        bucket.main()
    assert cloud.store.objects(id) == ["run/model"]


# --------------------------------------------------------------------------------------------------------------- store
def test_the_longest_identity_fits_a_file_name(standard: Engine) -> None:
    standard.create(BUCKET, MODEL_BUCKET)
    standard.create(MEMBER, but(GRANT, member=principal().replace("/ns/llm", f"/ns/{'n' * 63}")))
    assert all(len(file.name) < 200 for file in standard.store.folder.glob("*.json"))


def test_an_interrupted_write_leaves_the_old_record(standard: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = standard.store.get(CLUSTER_ID)
    assert before is not None

    def cut(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(Killed):
        standard.store.put(replace(before, inputs={}))
    assert standard.store.all() == [before]
