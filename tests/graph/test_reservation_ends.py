"""A reservation with an end in the whole program: labels of GPU and TPU nodes, and the warning of a preview."""

from typing import Any

import pulumi
import pytest

from gke_ai.catalog.machines.capacity import UNTIL
from gke_ai.catalog.section_files import PREFIX
from tests.support.recorder import run_program


def pool(name: str, year: int, zone: str, **keys: Any) -> dict[str, Any]:
    """A pool of one node in a reservation that ends in a year."""
    capacity = {"mode": "reservation", "reservation": "march", "until": f"{year}-03-14T00:00:00Z"}
    return {"name": name, "capacity": capacity, "zones": [zone], "nodesPerZone": 1, **keys}


VALUES = {
    "cluster": {"mode": "standard", "location": "us-central1"},
    "gpuPools": [pool("gpus", 2020, "us-central1-a", machineType="g2-standard-24")],
    "tpuPools": [pool("tpus", 2999, "us-central1-b", version="v6e", topology="2x2")],
    "queues": {
        "flavors": [{"name": "gpus", "pools": ["gpus"]}],
        "clusterQueues": [{"name": "q", "flavors": [{"flavor": "gpus", "quota": "derive"}]}],
        "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "q"}],
    },
}


def test_nodes_but_no_flavors_have_the_end_and_a_past_one_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warned.append)
    record = run_program({f"{PREFIX}{key}": value for key, value in VALUES.items()}, False, monkeypatch)
    ends = {name: record.one("NodePool", name).inputs["nodeConfig"]["labels"][UNTIL] for name in ("gpus", "tpus")}
    assert ends == {"gpus": "20200314T000000Z", "tpus": "29990314T000000Z"}
    assert UNTIL not in record.one("ResourceFlavor").inputs["spec"]["nodeLabels"], "a new end would change the flavor"
    (text,) = [text for text in warned if "capacity.until" in text]
    message = "gke-ai:gpuPools[0].capacity.until: Google deleted the reservation and its machines at 2020-"
    assert text.startswith(message)
