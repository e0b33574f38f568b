"""Cost-optimised serving: the cheapest node that can be had, the next where it can't, and none longer than needed."""

from __future__ import annotations

from collections import Counter

import pytest

from catalog.nodes import COMPUTE_CLASS, GKE_PROVISIONING, INSTANCE_TYPE
from tests.end_to_end.standin import StandIn, begun, eventually, gone, settled

pytestmark = pytest.mark.cluster

EXAMPLE = "examples/cost-optimized-serving.yaml"
CLASS, DEPLOYMENT = "dws-model-inference-class", "inference-mixtral-ccc"
SERVICE = "/api/v1/namespaces/default/services/llm-service:8080/proxy"


def nodes(stand_in: StandIn) -> Counter[tuple[str, str]]:
    """Machine type and provisioning of the class's nodes."""
    found = [one["metadata"]["labels"] for one in stand_in.get("nodes", "-l", f"{COMPUTE_CLASS}={CLASS}")]
    return Counter((labels[INSTANCE_TYPE], labels[GKE_PROVISIONING]) for labels in found)


def ready(stand_in: StandIn) -> list[str]:
    """The nodes that the server's ready pods are on."""
    pods = stand_in.get("pods", "-n", "default", "-l", "app=llm")
    return [
        pod["spec"]["nodeName"]
        for pod in pods
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def scale(stand_in: StandIn, replicas: int) -> None:
    stand_in.kubectl("-n", "default", "scale", f"deployment/{DEPLOYMENT}", f"--replicas={replicas}")


def test_server_gets_the_cheapest_node_there_is_and_gives_it_back(stand_in: StandIn) -> None:
    config = stand_in.configure(EXAMPLE)
    found = begun(stand_in, config)
    stand_in.make("up", config)
    spot, flex_start = ("g2-standard-24", "spot"), ("g2-standard-24", "flex-start")
    assert nodes(stand_in) == Counter([spot])
    settled(stand_in)

    stand_in.kubectl("get", "--raw", f"{SERVICE}/health")
    said = stand_in.make("smoke")
    assert "default/inference-mixtral-ccc" in said
    assert "pass" in said

    stand_in.run("capacity", "spot=0")
    scale(stand_in, 2)
    eventually(lambda: len(set(ready(stand_in))) == 2, "the second replica has a node of its own")
    assert nodes(stand_in) == Counter([spot, flex_start])

    stand_in.run("capacity", "flexStart=0")
    scale(stand_in, 3)

    def says_what_it_waits_for() -> bool:
        status = stand_in.make("status")
        return "2 of 3" in status and CLASS in status and "g2-standard-24" in status

    eventually(says_what_it_waits_for, "status says what the third replica waits for")
    assert nodes(stand_in) == Counter([spot, flex_start])
    assert len(ready(stand_in)) == 2

    stand_in.run("capacity", "spot=1", "flexStart=1")
    eventually(lambda: len(set(ready(stand_in))) == 3, "the third replica has a node once there is capacity again")
    assert nodes(stand_in) == Counter([spot, spot, flex_start])

    scale(stand_in, 1)
    eventually(lambda: nodes(stand_in).total() == 1, "a node goes when its pod has gone")
    assert len(eventually(lambda: ready(stand_in), "one replica is left")) == 1
    assert stand_in.planned() == {}
    stand_in.make("down")
    gone(stand_in, found)
