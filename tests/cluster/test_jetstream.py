"""Only here: JetStream's metrics reach the real HPA controller through the real Prometheus and adapter."""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gke_ai.kube.objects import condition
from tests.cluster.users import repeated
from tests.support.emulator import Emulator, deployed_and_deleted, eventually, settled
from tests.support.workloads import AUTOSCALER, hpa, values

EXAMPLE = "examples/jetstream-autoscaling-prometheus.yaml"
# A request of the smoke check is 64 tokens: 8 seconds each, so that 100 on 32 slots are done after half a minute.
TOKEN_SECONDS = 0.125
SCALE_IN_SECONDS = 30
BACKLOG, MEMORY = "jetstream_prefill_backlog_size", "memory_used_percentage"


def autoscaling(*metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The example's autoscaler with these metrics, and windows that a test can wait for."""
    scaler = {"name": AUTOSCALER, "server": "maxengine-server", "adapter": "prometheus", "maxReplicas": 2}
    every = 5 if any(metric["metric"] != "tpuMemory" for metric in metrics) else 15
    windows = {"scrapeIntervalSeconds": every, "scaleInWindowSeconds": SCALE_IN_SECONDS}
    return [{**scaler, **windows, "metrics": [*metrics]}]


# Of its chips' memory the stub takes a quarter when idle and nine tenths when all slots are busy. That is within HPA's
# tolerance of 0.85, so that the backlog alone can ask for a second replica, and far above 0.6.
BOTH = autoscaling({"metric": "prefillBacklog", "target": 10}, {"metric": "tpuMemory", "target": 0.85})
MEMORY_ALONE = autoscaling({"metric": "tpuMemory", "target": 0.6})


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    """The example with both metrics. The tests below use it in order."""
    slow = {"GKE_AI_STUB_TOKEN_SECONDS": str(TOKEN_SECONDS)}
    with deployed_and_deleted(EXAMPLE, {"autoscaling": BOTH}, **slow) as emulator:
        yield emulator


def measure(emulator: Emulator, app: str) -> None:
    """Let the pods of an app report the TPUs' metrics."""
    spec = {"spec": {"selector": {"matchLabels": {"k8s-app": app}}}}
    exporter = ("podmonitoring", "-n", "kube-system", "tpu-metrics-exporter")
    emulator.kubectl("patch", *exporter, "--type=merge", "-p", json.dumps(spec))


def replicas(emulator: Emulator) -> int:
    (deployment,) = emulator.get("deployments", "-n", "default", "--field-selector=metadata.name=maxengine-server")
    return int(deployment["spec"]["replicas"])


def test_backlog_brings_the_second_replica_and_its_end_takes_it_back(deployed: Emulator) -> None:
    eventually(lambda: values(deployed) == {BACKLOG: "0", MEMORY: "250m"}, "both metrics are read", 180)
    assert replicas(deployed) == 1
    with repeated(partial(deployed.make, "smoke")):  # bursts of 100 requests
        # The larger answer of two: full slots alone do not ask for one.
        eventually(lambda: replicas(deployed) == 2, "the backlog asks for a second replica", 180)
        settled(deployed)
        assert replicas(deployed) == 2, "neither the second up nor the refresh set the replicas back"
    assert replicas(deployed) == 2
    eventually(lambda: replicas(deployed) == 1, "the second replica goes", SCALE_IN_SECONDS + 120)
    assert values(deployed)[BACKLOG] == "0"


@pytest.mark.nightly
def test_memory_scales_alone_and_changes_nothing_while_it_can_not_be_read(deployed: Emulator) -> None:
    deployed.make("up", deployed.configure(EXAMPLE, autoscaling=MEMORY_ALONE))
    eventually(lambda: values(deployed).keys() == {MEMORY}, "the memory alone is read", 180)
    assert replicas(deployed) == 1
    with repeated(partial(deployed.make, "smoke")):  # bursts of 100 requests
        eventually(lambda: replicas(deployed) == 2, "full memory asks for a second replica", 180)
        measure(deployed, "nothing")
        reason = {"reason": "FailedGetExternalMetric"}
        active = partial(condition, condition_type="ScalingActive")
        eventually(lambda: reason.items() <= active(hpa(deployed)).items(), "the metric can't be read", 180)
    time.sleep(SCALE_IN_SECONDS + 5)
    assert replicas(deployed) == 2, "while it could be read, memory that is free would have taken it back by now"

    measure(deployed, "tpu-device-plugin")
    eventually(lambda: replicas(deployed) == 1, "free memory takes the second replica back", SCALE_IN_SECONDS + 120)
