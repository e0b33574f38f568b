"""Only here: the real scheduler gives runs NICs and channels of A4X and A4X Max, Kueue counts them, attacks fail."""

from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.catalog.fabric.nvlink import CHANNELS, CONTROLLER, DOMAIN, DRIVER, OF_CLASS, compute_domain
from gke_ai.catalog.fabric.rdma import CLAIMS, RESOURCE
from gke_ai.catalog.fabric.rdma import claim_template as template_of
from gke_ai.catalog.kueue.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.machines.metal import AGENT
from tests.support.emulator import Emulator, eventually, fresh, settled
from tests.support.mistakes import base
from tests.support.rdma import RUN, allocated, allow, create, of_queue, queued, refused, running

Object = dict[str, Any]
BOTH = [{"name": name, "resourceClaimTemplateName": name} for name in ("rdma-4", DOMAIN)]


def with_run(emulator: Emulator, good: str) -> Emulator:
    """Deploys a run of a tenant over both nodes of a pool with an NVLink domain."""
    base_of_run = base("nvlink", good)
    pools = [{**base_of_run["gpuPools"][0], "nodesPerZone": 2}]
    training = [{**RUN, "pool": "gb200", "gpusPerPod": 4}]
    sections: Object = {"tenants": [{"name": "llm", "priorityClasses": ["low"]}], "training": training}
    same = {key: base_of_run[key] for key in ("cluster", "queues")}
    emulator.make("up", emulator.written(**same, gpuPools=pools, **sections))
    return emulator


@pytest.fixture(scope="module")
def cluster() -> Iterator[Emulator]:
    """A run of a tenant over both nodes of a pool of A4X."""
    with fresh() as emulator:
        yield with_run(emulator, "two_nodes")


def test_each_pod_of_the_run_gets_the_nics_and_the_channel_of_its_node(cluster: Emulator) -> None:
    eventually(lambda: len(running(cluster, "first")) == 2, "the run has its nodes")
    devices = [(item["driver"], item["device"]) for results in allocated(cluster) for item in results]
    assert sorted(driver for driver, _ in devices) == [DRIVER] * 2 + ["dra.net"] * 8
    assert {device for driver, device in devices if driver == DRIVER} == {"channel-0"}
    assert (of_queue(cluster)[RESOURCE], of_queue(cluster)[CHANNELS]) == ("8", "2")
    (quota,) = (item for item in cluster.get("resourcequotas", "-n", "llm") if item["metadata"]["name"] == "tenant")
    assert (quota["status"]["used"][CLAIMS], quota["status"]["hard"][CLAIMS]) == ("4", "8")
    assert (quota["status"]["used"][OF_CLASS], quota["status"]["hard"][OF_CLASS]) == ("2", "4")
    settled(cluster)


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (queued(claims=[*BOTH, {"name": "x", "resourceClaimTemplateName": DOMAIN}]), "claims devices that no queue"),
        (queued(claims=[{"name": "x", "resourceClaimTemplateName": "rdma"}]), "claims devices that no queue counts"),
        (compute_domain("llm"), "only the platform may write it"),
    ],
)
def test_an_attack_of_the_tenant_is_refused(cluster: Emulator, item: Object, cause: str) -> None:
    allow(cluster, "pods,computedomains.resource.nvidia.com")
    own = {**item, "metadata": {**item["metadata"], "name": "mine"}}
    assert cause in refused(cluster, own)


def test_a_pod_with_both_claims_is_allowed_and_only_the_controller_of_the_driver_writes_templates(
    cluster: Emulator,
) -> None:
    allow(cluster, "pods,computedomains.resource.nvidia.com")
    create(cluster, queued(claims=BOTH), "--as=developer", "--dry-run=server")
    template = {**template_of("llm"), "metadata": {"name": "mine", "namespace": "llm"}}
    _, _, space, account = CONTROLLER.split(":")
    kinds = "--resource=resourceclaimtemplates.resource.k8s.io"
    cluster.kubectl("create", "role", "driver", "-n", "llm", "--verb=create", kinds)
    subjects = ("--user=developer", f"--serviceaccount={space}:{account}")
    cluster.kubectl("create", "rolebinding", "driver", "-n", "llm", "--role=driver", *subjects)
    assert "only the platform may write it" in refused(cluster, template)
    create(cluster, template, f"--as={CONTROLLER}", "--dry-run=server")
    with pytest.raises(Exception, match="only the platform may write it"):
        cluster.kubectl("-n", "llm", "delete", "computedomain", DOMAIN, "--as=developer", "--dry-run=server")


def test_on_a4x_max_each_pod_gets_eight_nics_and_a_channel_and_each_node_has_the_agent(emulator: Emulator) -> None:
    with_run(emulator, "bare_metal")
    eventually(lambda: len(running(emulator, "first")) == 2, "the run has its nodes")
    drivers = [item["driver"] for results in allocated(emulator) for item in results]
    assert sorted(drivers) == [DRIVER] * 2 + ["dra.net"] * 16
    assert (of_queue(emulator)[RESOURCE], of_queue(emulator)[CHANNELS]) == ("16", "2")
    agents = [pod for pod in emulator.get("pods", "-n", NVIDIA_DRIVER) if pod["metadata"]["labels"].get("app") == AGENT]
    assert [pod["status"]["phase"] for pod in agents] == ["Running", "Running"]
    settled(emulator)
