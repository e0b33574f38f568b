"""Only here: plain `pulumi up` and `destroy` end as `gke-ai up` and `down` do, in a cluster that stays."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.support.emulator import Emulator, begun, cloud_of, eventually, objects_of

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
CLUSTER = {"name": "team", "mode": "existing", "existingMode": "standard", "location": "us-west4"}
# Their names are random, or follow from a uid.
OF_CONTROLLERS = {"CSINode", "IPAddress", "Node", "Pod", "ReplicaSet", "Workload"}


def content(emulator: Emulator) -> dict[str, Any]:
    """What the stack has recorded, what is in the cloud, and what is in the cluster."""
    objects = {item for item in objects_of(emulator) if item[0] not in OF_CONTROLLERS}
    recorded = {resource["urn"] for resource in emulator.exported().get("resources", [])}
    return {"recorded": recorded, "cloud": cloud_of(emulator), "objects": objects}


def deployed(emulator: Emulator, plain: bool) -> Mapping[str, Any]:
    """What is there after an `up` and after its end."""
    config = emulator.configure("examples/multislice-training.yaml", cluster=CLUSTER)
    begun(emulator, config)
    if plain:
        emulator.make("preview", config)  # creates the stack
        emulator.pulumi("up", "--yes", "--skip-preview")
    else:
        emulator.make("up", config)
    pods = partial(emulator.get, "pods", "-n", "default")
    eventually(lambda: [pod["status"]["phase"] for pod in pods()] == ["Running"] * 6, "the largest JobSet runs")
    assert emulator.planned() == {}
    up = content(emulator)
    if plain:
        emulator.pulumi("destroy", "--yes", "--skip-preview")
        assert emulator.exported().get("resources", []) == []
    else:
        assert "Kept in the cluster, as Helm keeps it: CRD jobsets.jobset.x-k8s.io" in emulator.make("down")
    return {"up": up, "cloud": cloud_of(emulator), "objects": objects_of(emulator)}


def test_plain_pulumi_and_the_command_end_alike(emulator_with: Callable[..., Emulator]) -> None:
    ours, plain = (deployed(emulator_with(), plain) for plain in (False, True))
    for key in ("recorded", "cloud", "objects"):
        assert ours["up"][key] ^ plain["up"][key] == set(), key
    assert ours["cloud"] ^ plain["cloud"] == set()
    assert {item for item in ours["objects"] ^ plain["objects"] if item[0] not in OF_CONTROLLERS} == set()
