"""Only here: a server of a compute class moves to the next capacity on real nodes, and gives each node back."""

from collections import Counter

from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, GKE_PROVISIONING, INSTANCE_TYPE
from gke_ai.kube.objects import holds
from tests.support.emulator import Emulator, begun, eventually, gone, settled

EXAMPLE = "examples/cost-optimized-serving.yaml"
CLASS, DEPLOYMENT = "dws-model-inference-class", "inference-mixtral-ccc"
SERVICE = "/api/v1/namespaces/default/services/llm-service:8080/proxy"


def nodes(emulator: Emulator) -> Counter[tuple[str, str]]:
    """Machine type and provisioning of the class's nodes."""
    node_labels = [node["metadata"]["labels"] for node in emulator.get("nodes", "-l", f"{COMPUTE_CLASS}={CLASS}")]
    return Counter((labels[INSTANCE_TYPE], labels[GKE_PROVISIONING]) for labels in node_labels)


def ready(emulator: Emulator) -> list[str]:
    """The nodes of the server's ready pods."""
    pods = emulator.get("pods", "-n", "default", "-l", "app=llm")
    return [pod["spec"]["nodeName"] for pod in pods if holds(pod, "Ready")]


def scale(emulator: Emulator, replicas: int) -> None:
    emulator.kubectl("-n", "default", "scale", f"deployment/{DEPLOYMENT}", f"--replicas={replicas}")


def test_server_gets_the_cheapest_available_node_and_releases_it(emulator: Emulator) -> None:
    config = emulator.configure(EXAMPLE)
    before = begun(emulator, config)
    emulator.make("up", config)
    spot, flex_start = ("g2-standard-24", "spot"), ("g2-standard-24", "flex-start")
    assert nodes(emulator) == Counter([spot])
    settled(emulator)

    emulator.kubectl("get", "--raw", f"{SERVICE}/health")
    output = emulator.make("smoke")
    assert "default/inference-mixtral-ccc" in output
    assert "pass" in output

    emulator.run("capacity", "spot=0")
    scale(emulator, 2)
    eventually(lambda: len(set(ready(emulator))) == 2, "the second replica has a node of its own")
    assert nodes(emulator) == Counter([spot, flex_start])

    emulator.run("capacity", "flexStart=0")
    scale(emulator, 3)

    def says_what_it_waits_for() -> bool:
        status = emulator.make("status")
        return "2 of 3" in status and CLASS in status and "g2-standard-24" in status

    eventually(says_what_it_waits_for, "status says what the third replica waits for")
    assert nodes(emulator) == Counter([spot, flex_start])
    assert len(ready(emulator)) == 2

    emulator.run("capacity", "spot=1", "flexStart=1")
    eventually(lambda: len(set(ready(emulator))) == 3, "the third replica has a node once there is capacity again")
    assert nodes(emulator) == Counter([spot, spot, flex_start])

    scale(emulator, 1)
    eventually(lambda: nodes(emulator).total() == 1, "a node goes when its pod has gone")
    assert len(eventually(lambda: ready(emulator), "one replica is left")) == 1
    assert emulator.planned() == {}
    emulator.make("down")
    gone(emulator, before)
