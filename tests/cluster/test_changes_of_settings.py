"""Only here: the engine's plan for settings that are turned off: replacements, their order, and what stays."""

import re
from typing import Any

import yaml

from tests.support.emulator import Emulator

# In a region where GKE chooses the zones.
ONE = {"name": "c", "mode": "standard", "location": "us-central1"}
RANGES = {"podsRange": "pods", "servicesRange": "services"}
CLUSTER = {**ONE, "network": "shared", "subnetwork": "shared", **RANGES}
OPEN = {"nodeServiceAccount": "gke-nodes", "authorizedNetworks": ["8.8.8.0/24"], "privateNodes": True}
POOL = {"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1, "createBeforeDelete": True}
WARNING = "gke-ai:cluster.authorizedNetworks is empty, but only 8.8.8.0/24 can still reach"


def test_removed_settings_are_off_and_kept_ones_are_reported(emulator: Emulator) -> None:
    def up(**cluster: Any) -> str:
        config = {"gke-ai:cluster": CLUSTER | cluster, "gke-ai:gpuPools": [POOL]}
        file = emulator.state / "stack.yaml"
        file.write_text(yaml.safe_dump({"config": config}))
        return emulator.make("up", file)

    emulator.run("existing", "network", "shared", "--location", "us-central1")
    assert WARNING not in up(**OPEN)
    assert emulator.planned() == {}, "every zone, account and endpoint is as it was stated"

    # The emulator refuses to delete an account that nodes still run as.
    assert WARNING in up()
    pools = [item for item in emulator.exported()["resources"] if item["type"] == "gcp:container/nodePool:NodePool"]
    assert {pool["outputs"]["nodeConfig"]["serviceAccount"] for pool in pools} == {"default"}
    assert {pool["outputs"]["networkConfig"]["enablePrivateNodes"] for pool in pools} == {False}
    assert WARNING in emulator.pulumi("preview", "--expect-no-changes")

    emulator.pulumi("config", "rm", "--path", "gke-ai:cluster.podsRange")
    replaced = emulator.planned()["replace"]
    assert {"gcp:container/cluster:Cluster::c", "pulumi:providers:kubernetes::c"} <= set(replaced)


# What the nodes of these pools need of their cluster.
NEEDED = {"multiNetworking": True, "shieldedNodes": False}
NODE = {"nodesPerZone": 1, "zones": ["us-central1-a"]}
RESERVED = {"mode": "reservation", "reservation": "r"}
NEEDING = [
    {"name": "tcpx", "machineType": "a3-highgpu-8g", "gpuDirect": True, **NODE},
    {"name": "metal", "machineType": "a4x-maxgpu-4g-metal", "capacity": RESERVED, **NODE},
]


def test_a_cluster_keeps_what_its_pools_need_until_they_are_gone(emulator: Emulator) -> None:
    def up(pools: list[dict[str, Any]], fails: bool = False, **cluster: Any) -> str:
        section = {**ONE, "vpc": {}}
        config = emulator.configure("examples/mixed-training-inference.yaml")
        config.write_text(yaml.safe_dump({"config": {"gke-ai:cluster": section | cluster, "gke-ai:gpuPools": pools}}))
        return emulator.make("up", config, fails=fails)

    up(NEEDING, **NEEDED)
    before = emulator.exported()["resources"]
    for pools, cluster, refused in (
        ([], {}, r"node pool (metal|tcpx) still exists and needs"),
        (NEEDING[:1], {"multiNetworking": True}, "node pool metal still exists and needs shieldedNodes: false"),
        (NEEDING[1:], {"shieldedNodes": False}, "node pool tcpx still exists and needs multiNetworking: true"),
    ):
        assert re.search(refused, up(pools, fails=True, **cluster))
        assert re.search(refused, emulator.pulumi("preview", fails=True)), "a preview refuses it too"
    assert {resource["urn"] for resource in emulator.exported()["resources"]} == {each["urn"] for each in before}

    up([], **NEEDED)
    up([])
    (cluster,) = (each for each in emulator.exported()["resources"] if each["type"] == "gcp:container/cluster:Cluster")
    assert not cluster["outputs"].get("enableMultiNetworking")
    assert cluster["id"] in {each.get("id") for each in before}, "it is the same cluster"
