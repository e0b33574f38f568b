"""Only here: the real scheduler gives a run NICs and channels of A4X Max nodes, beside the agent of these nodes."""

from __future__ import annotations

from pathlib import Path

import yaml

from gke_ai.catalog.metal import AGENT
from gke_ai.catalog.namespaces import NVIDIA_DRIVER
from gke_ai.catalog.nvlink import CHANNELS, DRIVER
from gke_ai.catalog.rdma import RESOURCE
from tests.cluster.conftest import fresh
from tests.cluster.emulator import eventually, settled
from tests.mistakes import PROJECT, base
from tests.nightly.test_rdma import RUN, of_queue, running


def test_each_pod_of_a_run_on_a4x_max_gets_eight_nics_and_a_channel_and_each_node_has_the_agent() -> None:
    with fresh() as emulator:
        good = base("nvlink", "bare_metal")
        values = {
            "cluster": good["cluster"],
            "gpuPools": [{**good["gpuPools"][0], "nodesPerZone": 2}],
            "queues": good["queues"],
            "tenants": [{"name": "llm", "priorityClasses": ["low"]}],
            "training": [{**RUN, "pool": "gb200", "gpusPerPod": 4}],
        }
        content = {f"gke-ai:{key}": value for key, value in values.items()}
        file = emulator.state / "metal.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **content}}))
        emulator.make("up", Path(file))
        eventually(lambda: len(running(emulator, "first")) == 2, "the run has its nodes")
        results = [
            item["driver"]
            for claim in emulator.get("resourceclaims", "-n", "llm")
            for item in claim["status"]["allocation"]["devices"]["results"]
        ]
        assert sorted(results) == [DRIVER] * 2 + ["dra.net"] * 16
        assert (of_queue(emulator)[RESOURCE], of_queue(emulator)[CHANNELS]) == ("16", "2")
        agents = [
            pod for pod in emulator.get("pods", "-n", NVIDIA_DRIVER) if pod["metadata"]["labels"].get("app") == AGENT
        ]
        assert [pod["status"]["phase"] for pod in agents] == ["Running", "Running"]
        settled(emulator)
