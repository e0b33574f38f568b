"""Only here: replays by the real Kueue follow the past usage of local queues, if the cluster's Kueue does."""

from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.snapshot.format import Snapshot, build
from gke_ai.forecast.when.futures import Futures
from tests.support.emulator import fresh
from tests.support.simulation.training import QUEUE, past, workload
from tests.support.snapshots import TAKEN

Object = dict[str, Any]
HOUR, LEFT = 3600.0, 20.0
KUEUE = {"admissionFairSharing": {"usageHalfLifeTime": "168h", "usageSamplingInterval": "5m"}}


def local_queue(name: str, used: int, weight: str = "1") -> Object:
    consumed = {"consumedResources": {NVIDIA_GPU: str(used)}, "lastUpdate": "2026-01-01T00:00:00Z"}
    spec = {"clusterQueue": "training", "fairSharing": {"weight": weight}}
    fair = {"weightedShare": 0, "admissionFairSharingStatus": consumed}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": {"fairSharing": fair}}


def state(used: int, used_by_others: int, weight: str, kueue: Object) -> Snapshot:
    """A run has 20 s left, and an older one waits in its local queue. Each run of the cluster queue takes an hour."""
    queue: Object = {**QUEUE}
    queue["spec"] = {**queue["spec"], "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    flavor: Object = {"metadata": {"name": "l4"}, "spec": {}}
    objects: dict[str, list[Object]] = {
        "ResourceFlavor": [flavor],
        "ClusterQueue": [queue],
        "LocalQueue": [local_queue("gpus", used), local_queue("others", used_by_others, weight)],
        "Workload": [workload("first", HOUR - LEFT, HOUR - LEFT), workload("older", 60), *past(HOUR, 40)],
    }
    return build("prod", objects, TAKEN, kueue=kueue)


@pytest.mark.parametrize(
    ("used", "used_by_others", "weight", "kueue", "is_next"),
    [
        pytest.param(8, 2, "1", KUEUE, True, id="its queue used less"),
        pytest.param(2, 8, "1", KUEUE, False, id="its queue used more"),
        pytest.param(3, 8, "4", KUEUE, True, id="its queue used more, by a higher weight"),
        pytest.param(8, 2, "1", {}, False, id="usage does not count"),
    ],
)
def test_a_run_starts_before_an_older_one_if_its_local_queue_used_less(
    used: int, used_by_others: int, weight: str, kueue: Object, is_next: bool
) -> None:
    mine = workload("mine", 0)
    mine["spec"]["queueName"] = "others"
    futures = Futures(state(used, used_by_others, weight, kueue), [("training", mine)], replays=3)
    with fresh() as emulator, started(Scratch(emulator.state), futures.queues, futures.held) as queue:
        (waits,) = futures.replay(queue)
    assert all((seconds <= 2 * LEFT) is is_next for seconds in waits), waits
    assert all(seconds > 0 for seconds in waits), waits
