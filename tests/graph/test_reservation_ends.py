"""A reservation with an end in the whole program: labels of GPU and TPU nodes, and the warning of a preview."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from gke_ai.catalog.machines.capacity import UNTIL
from gke_ai.catalog.section_files import PREFIX
from tests.support.recorder import run_program

CAPACITY = {"mode": "reservation", "reservation": "march", "until": "2020-03-14T00:00:00Z"}
QUOTA: dict[str, Any] = {"quota": "derive"}
VALUES = {
    "cluster": {"mode": "standard", "location": "us-central1"},
    "gpuPools": [
        {"name": "gpus", "machineType": "g2-standard-24", "nodesPerZone": 1, "zones": ["us-central1-a"]}
        | {"capacity": CAPACITY}
    ],
    "tpuPools": [
        {"name": "tpus", "version": "v6e", "topology": "2x2", "nodesPerZone": 1, "zones": ["us-central1-b"]}
        | {"capacity": {**CAPACITY, "until": "2999-03-14T00:00:00Z"}}
    ],
    "queues": {
        "flavors": [{"name": "gpus", "pools": ["gpus"]}],
        "clusterQueues": [{"name": "q", "flavors": [{"flavor": "gpus", **QUOTA}]}],
        "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "q"}],
    },
}


def test_nodes_have_the_end_flavors_do_not_select_it_and_a_past_one_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warned.append)
    record = run_program({f"{PREFIX}{key}": value for key, value in VALUES.items()}, False, monkeypatch)
    ends = {name: record.one("NodePool", name).inputs["nodeConfig"]["labels"][UNTIL] for name in ("gpus", "tpus")}
    assert ends == {"gpus": "20200314T000000Z", "tpus": "29990314T000000Z"}
    assert UNTIL not in record.one("ResourceFlavor").inputs["spec"]["nodeLabels"], "a new end would change the flavor"
    (text,) = [text for text in warned if "capacity.until" in text]
    assert text.startswith(
        "gke-ai:gpuPools[0].capacity.until: Google deleted the reservation and its machines at 2020-"
    )
