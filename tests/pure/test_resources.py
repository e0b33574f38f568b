"""Policies, the report and `make status` derive the same facts from the same registered resource."""

from typing import Any

import pytest

from gke_ai.kube.values import UNKNOWN
from gke_ai.ops.status import command as status
from gke_ai.registered.pools import NodeBounds, node_bounds
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import NODE_POOL
from gke_ai.review.policy.rules import accelerators
from gke_ai.review.report import accelerators as capacity
from gke_ai.review.report.changes import Resource as ReportResource
from tests.support.repository import ROOT

L4 = {"machineType": "g2-standard-24", "guestAccelerators": [{"type": "nvidia-l4", "count": 2}]}
LABELS = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
REGION, ZONE = {"location": "us-central1"}, {"location": "us-central1-a"}
TWO_ZONES, ONE_ZONE = {"nodeLocations": ["us-central1-a", "us-central1-b"]}, {"nodeLocations": ["us-central1-b"]}
PER_ZONE, ZEROS = {"minNodeCount": 1, "maxNodeCount": 2}, {"minNodeCount": 0.0, "maxNodeCount": 0.0}
TOTAL = {"totalMinNodeCount": 1, "totalMaxNodeCount": 5}
AS_SENT = {"totalMinNodeCount": 0.0, "totalMaxNodeCount": 5.0, **ZEROS}
POOLS: dict[str, tuple[dict[str, Any], NodeBounds]] = {
    "without zones, in a region": ({**REGION, "autoscaling": PER_ZONE}, NodeBounds(3, 6, True)),
    "without zones, in a zone": ({**ZONE, "autoscaling": PER_ZONE}, NodeBounds(1, 2, True)),
    "in two zones": ({**REGION, **TWO_ZONES, "autoscaling": {"maxNodeCount": 2}}, NodeBounds(0, 4, True)),
    "with bounds for all zones together": ({**REGION, "autoscaling": TOTAL}, NodeBounds(1, 5, True)),
    "with bounds as the provider sends them": ({**REGION, "autoscaling": AS_SENT}, NodeBounds(0, 5, True)),
    "of a fixed size, without zones": ({**REGION, "nodeCount": 2}, NodeBounds(6, 6, False)),
    "of an initial size, in one zone": ({**REGION, **ONE_ZONE, "initialNodeCount": 2}, NodeBounds(2, 2, False)),
}


@pytest.mark.parametrize(("pool", "bounds"), POOLS.values(), ids=POOLS)
def test_policy_report_and_status_agree_on_the_size_of_a_pool(pool: dict[str, Any], bounds: NodeBounds) -> None:
    props = {"name": "l4", "nodeConfig": L4, **pool}
    assert node_bounds(props) == bounds
    (supply,) = capacity.of_pool(ReportResource("urn", NODE_POOL, inputs=props))
    assert (supply.min_count, supply.max_count) == (2 * bounds.minimum, 2 * bounds.maximum)
    ((_, _, _, ready, _),) = status.pool_rows(status.ClusterObjects(pools=[props]))
    assert ready == (f"empty, at most {bounds.maximum}" if bounds.autoscaled else "empty")
    assert not list(accelerators.quota_within_capacity.violations(stack_with(props, 2 * bounds.maximum)))
    (violation,) = accelerators.quota_within_capacity.violations(stack_with(props, 2 * bounds.maximum + 1))
    assert f"have {2 * bounds.maximum} for pods" in violation.text


def stack_with(props: dict[str, Any], gpus: int) -> RegisteredStack:
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "l4"}, "spec": {"nodeLabels": LABELS}}
    quota = {"name": "l4", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(gpus)}]}
    spec = {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]}
    queue = {"kind": "ClusterQueue", "metadata": {"name": "gpus"}, "spec": spec}
    kueue = "kubernetes:kueue.x-k8s.io/v1beta2"
    objects = Resource("f", f"{kueue}:ResourceFlavor", "l4", flavor), Resource("q", f"{kueue}:ClusterQueue", "q", queue)
    return RegisteredStack([Resource("p", NODE_POOL, "l4", props), *objects])


def test_zones_that_are_not_known_yet_count_as_those_of_the_region() -> None:
    for unknown in (UNKNOWN, "04da6b54-80e4-46f7-96ec-b56ff0331ba9", None):
        props = {"location": "us-central1", "nodeLocations": unknown, "nodeCount": 1}
        assert node_bounds(props) == NodeBounds(3, 3, False)


def test_the_policies_look_for_a_calibration_file_in_the_project() -> None:
    assert accelerators.PROJECT_FOLDER == ROOT
