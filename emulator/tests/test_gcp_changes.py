"""The emulated gcp plugin plans changes as measured with Google's own provider."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.google.plugin import RESOURCES
from emulator.google.schema import schema_of
from emulator.pulumi.plugin import Refused
from emulator.tests.gcp_engine import (
    AUTOPILOT,
    CLUSTER,
    CLUSTER_ID,
    FLEX_START,
    L4_POOL,
    NODE_POOL,
    POOL_ID,
    STANDARD,
    Engine,
    Values,
    but,
)

MEASURED = yaml.load(Path(__file__).with_name("provider_changes.yaml").read_text(), yaml.CSafeLoader)
CASES, REFUSED = (
    [
        pytest.param(base, change, expected, id=f"{base}: {', '.join(change)} {expected}")
        for base, changes in MEASURED[kind].items()
        for expected, change in changes
    ]
    for kind in ("changes", "refused")
)


def plan(engine: Engine, token: str, old: Values, new: Values) -> str:
    """The plugin's plan, in the form of the table."""
    answer = engine.diff(token, old, new)
    return "replace" if answer.replaces else "update" if answer.detailedDiff else "no change"


# Not measured: that the number of items replaces stands in the provider's SDK (schema.go, diffList and diffSet).
# https://github.com/hashicorp/terraform-plugin-sdk/blob/v2.40.1/helper/schema/schema.go#L1396
SCOPES = [f"https://www.googleapis.com/auth/{name}" for name in ("cloud-platform", "userinfo.email", "compute")]
L4 = {"type": "nvidia-l4", "count": 1}


# One item more or less of a list replaces if a change of the list does.
ITEMS: list[tuple[str, dict[str, Any], str]] = [
    ("fixed GPU pool", {"nodeConfig.oauthScopes": SCOPES[:2]}, "replace"),
    ("pool in two zones", {"nodeConfig.oauthScopes": SCOPES[:1]}, "replace"),
    ("pool in two zones", {"nodeConfig.oauthScopes": SCOPES}, "replace"),
    ("fixed GPU pool", {"nodeConfig.guestAccelerators[1]": L4}, "replace"),
    ("reserved GPU pool", {"nodeConfig.reservationAffinity.values": ["r", "s"]}, "replace"),
    ("pool in two zones", {"nodeLocations": ["us-central1-a"]}, "update"),
    ("pool in two zones", {"nodeConfig.taints[2]": {"key": "c", "value": "d", "effect": "NO_SCHEDULE"}}, "update"),
]


@pytest.mark.parametrize(("base", "change", "planned"), [*CASES, *ITEMS])
def test_a_change_is_planned_as_the_provider_plans_it(
    base: str, change: dict[str, Any], planned: str, cloud: Engine
) -> None:
    resource = MEASURED["bases"][base]
    assert plan(cloud, resource["type"], resource["inputs"], but(resource["inputs"], **change)) == planned


@pytest.mark.parametrize(("base", "change", "path"), REFUSED)
def test_a_value_is_refused_as_the_provider_refuses_it(
    base: str, change: dict[str, Any], path: str | None, cloud: Engine
) -> None:
    resource = MEASURED["bases"][base]
    refused = [place for place, _ in cloud.check(resource["type"], but(resource["inputs"], **change))[1]]
    assert refused == ([] if path is None else [path])


def test_the_table_has_every_resource_and_its_inputs() -> None:
    assert all(schema_of(token).properties for token in RESOURCES)
    cluster = schema_of(CLUSTER)
    assert (cluster.at("location").force_new, cluster.at("location").computed) == (True, True)
    assert cluster.at("network").default == "default"
    assert cluster.at("networkPolicy").conflicts == ("enableAutopilot",)
    # A key of a map follows its map.
    assert schema_of(NODE_POOL).at('nodeConfig.metadata["a/b"]').force_new
    assert not schema_of(NODE_POOL).at("nodeConfig.labels.team").computed


def test_the_cloud_keeps_removed_computed_properties_through_updates_and_refreshes(standard: Engine) -> None:
    private = but(L4_POOL, networkConfig={"enablePrivateNodes": True}, nodeConfig__serviceAccount="default")
    id, outputs = standard.create(NODE_POOL, private)
    # Planned as no change, so the engine remembers the new inputs and calls nobody.
    silent = but(private, networkConfig=None, nodeConfig__serviceAccount=None)
    assert plan(standard, NODE_POOL, private, silent) == "no change"
    assert standard.read(NODE_POOL, id, silent) == (id, outputs, silent), "a refresh finds what it left"
    for preview in (True, False):
        updated = standard.update(NODE_POOL, id, silent, but(silent, nodeCount=5), preview=preview)
        assert updated["networkConfig"] == {"enablePrivateNodes": True}
        assert updated["nodeConfig"]["serviceAccount"] == "default"
    assert standard.read(NODE_POOL, id)[2] == but(private, nodeCount=5), "an import takes all that is there"


def test_the_cloud_keeps_a_security_group_until_an_update_states_an_empty_one(cloud: Engine) -> None:
    grouped = STANDARD | {"authenticatorGroupsConfig": {"securityGroup": "gke-security-groups@example.com"}}
    id, _ = cloud.create(CLUSTER, grouped)
    relabeled = but(STANDARD, resourceLabels={"team": "ops"})
    for preview in (True, False):
        updated = cloud.update(CLUSTER, id, grouped, relabeled, preview=preview)
        assert updated["authenticatorGroupsConfig"] == grouped["authenticatorGroupsConfig"]
    empty = relabeled | {"authenticatorGroupsConfig": {"securityGroup": ""}}
    assert cloud.update(CLUSTER, id, relabeled, empty)["authenticatorGroupsConfig"] == {"securityGroup": ""}
    assert plan(cloud, CLUSTER, empty, relabeled) == "no change", "a state in which an empty group was stated"


def test_the_cloud_keeps_the_exclusions_of_a_removed_maintenance_policy(cloud: Engine) -> None:
    exclusion = {"exclusionName": "a", "startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}
    window = {"startTime": "2026-01-03T00:00:00Z", "endTime": "2026-01-03T08:00:00Z", "recurrence": "FREQ=DAILY"}
    maintained = STANDARD | {"maintenancePolicy": {"recurringWindow": window, "maintenanceExclusions": [exclusion]}}
    id, _ = cloud.create(CLUSTER, maintained)
    assert "maintenancePolicy" not in cloud.update(CLUSTER, id, maintained, STANDARD, preview=True)
    state = cloud.update(CLUSTER, id, maintained, STANDARD)
    assert state["maintenancePolicy"] == {"maintenanceExclusions": [exclusion]}
    assert list(cloud.diff(CLUSTER, STANDARD, STANDARD, state).detailedDiff) == ["maintenancePolicy"], "for ever"
    # This works: an empty list beside a window, then no policy.
    empty = STANDARD | {"maintenancePolicy": {"recurringWindow": window}}
    cloud.update(CLUSTER, id, STANDARD, empty)
    state = cloud.update(CLUSTER, id, empty, STANDARD)
    assert "maintenancePolicy" not in state
    assert cloud.diff(CLUSTER, STANDARD, STANDARD, state).detailedDiff == {}


def test_a_change_is_compared_with_the_kept_value_of_the_cloud(standard: Engine) -> None:
    dns = {"dnsEndpointConfig": {"allowExternalTraffic": True}, "ipEndpointsConfig": {"enabled": False}}
    closed = but(STANDARD, controlPlaneEndpointsConfig=dns)
    standard.update(CLUSTER, CLUSTER_ID, STANDARD, closed)
    state = standard.read(CLUSTER, CLUSTER_ID, STANDARD)[1]
    reopened = {**dns, "ipEndpointsConfig": {"enabled": True}}
    answer = standard.diff(CLUSTER, STANDARD, but(STANDARD, controlPlaneEndpointsConfig=reopened), state)
    assert list(answer.detailedDiff) == ["controlPlaneEndpointsConfig.ipEndpointsConfig.enabled"]
    assert standard.diff(CLUSTER, STANDARD, closed, state).changes == answer.DIFF_NONE


def test_a_first_size_of_earlier_settings_is_refused_in_a_creation_alone(standard: Engine) -> None:
    growing = L4_POOL | {"autoscaling": {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}}
    fixed = L4_POOL | {"initialNodeCount": 1}
    for stale, other in ((growing, fixed), (fixed, growing)):
        assert [path for path, _ in standard.check(NODE_POOL, stale)[1]] == ["nodeCount"]
        assert standard.check(NODE_POOL, stale, olds=other)[1] == []


def test_the_last_label_of_a_pool_cannot_be_removed(standard: Engine) -> None:
    """The provider's request has no label then, so no field at all: terraform-provider-google#15848."""
    standard.create(NODE_POOL, L4_POOL)
    with pytest.raises(Refused, match="Error 400: At least one of"):
        standard.update(NODE_POOL, POOL_ID, L4_POOL, but(L4_POOL, nodeConfig__labels={}))
    standard.update(NODE_POOL, POOL_ID, L4_POOL, but(L4_POOL, nodeConfig__labels={"tier": "a"}))


@pytest.mark.parametrize("former", [{"machineType": "n4-standard-4"}, {"machineType": "c4-standard-4"}])
def test_an_omitted_disk_type_stays_that_of_the_former_machine(former: Values, standard: Engine) -> None:
    old, new = (but(L4_POOL, nodeConfig=config) for config in (former, {"machineType": "e2-standard-4"}))
    standard.create(NODE_POOL, old)
    with pytest.raises(Refused, match=r"hyperdisk-balanced\] features are not compatible"):
        standard.update(NODE_POOL, POOL_ID, old, new)
    standard.update(NODE_POOL, POOL_ID, old, but(new, nodeConfig__diskType="pd-balanced"))


def test_a_pool_without_autoscaling_has_its_fixed_size_also_in_an_ai_zone(standard: Engine) -> None:
    fixed = but(L4_POOL, nodeCount=2, nodeLocations=["us-central1-ai1a"])
    bounds = {"totalMinNodeCount": 1, "totalMaxNodeCount": 4}
    growing = but(fixed, nodeCount=None, initialNodeCount=1, autoscaling=bounds)
    standard.create(NODE_POOL, growing)
    standard.update(NODE_POOL, POOL_ID, growing, fixed)
    assert standard.clusters.pools["gpupool"].nodes_per_zone == 2


@pytest.mark.parametrize(("old", "new"), [(AUTOPILOT, STANDARD), (STANDARD, AUTOPILOT)])
def test_an_update_is_not_checked_as_a_creation(old: Values, new: Values, cloud: Engine) -> None:
    """The program ignores changes of the first nodes, so the inputs of the other mode have those of the old one."""
    kept = ("initialNodeCount", "nodeConfig")
    news = {key: value for key, value in new.items() if key not in (*kept, "removeDefaultNodePool")}
    news |= {key: old[key] for key in kept if key in old}
    assert cloud.check(CLUSTER, news, olds=old)[1] == []
    assert cloud.diff(CLUSTER, old, news).replaces


def test_a_flex_start_pool_has_its_own_upgrade_strategy_whatever_its_settings_say(standard: Engine) -> None:
    surge = {"maxSurge": 0, "maxUnavailable": 1}
    id, outputs = standard.create(NODE_POOL, FLEX_START)
    assert outputs["upgradeSettings"] == {"strategy": "SHORT_LIVED"}
    assert standard.diff(NODE_POOL, FLEX_START, FLEX_START, outputs).detailedDiff == {}
    stated = FLEX_START | {"upgradeSettings": surge}
    outputs = standard.update(NODE_POOL, id, FLEX_START, stated)
    assert outputs["upgradeSettings"] == {"strategy": "SHORT_LIVED"}
    assert list(standard.diff(NODE_POOL, stated, stated, outputs).detailedDiff) == ["upgradeSettings.strategy"]
    _, ordinary = standard.create(NODE_POOL, L4_POOL | {"name": "ordinary", "upgradeSettings": surge})
    assert ordinary["upgradeSettings"] == {**surge, "strategy": "SURGE"}


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        (STANDARD | {"enableAutopilot": False}, "removeDefaultNodePool"),
        (AUTOPILOT | {"removeDefaultNodePool": False}, "removeDefaultNodePool"),
        (AUTOPILOT | {"networkPolicy": {"enabled": False}}, "networkPolicy"),
        (AUTOPILOT | {"clusterAutoscaling": {"enabled": False}}, "clusterAutoscaling.enabled"),
        (AUTOPILOT | {"addonsConfig": {"networkPolicyConfig": {"disabled": True}}}, "addonsConfig.networkPolicyConfig"),
        (STANDARD | {"clusterIpv4Cidr": "/14", "ipAllocationPolicy": {"stackType": "IPV4"}}, "clusterIpv4Cidr"),
    ],
)
def test_conflicting_properties_are_refused_whatever_their_values(inputs: Values, path: str, cloud: Engine) -> None:
    refused = [place for place, text in cloud.check(CLUSTER, inputs)[1] if "conflicts with" in text]
    assert path in refused
