"""A rehearsal of a stack beside the Kueue of somebody else: what its scratch cluster gets before the base."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.forecast.rehearse import beside
from gke_ai.forecast.snapshot.format import Snapshot, build
from gke_ai.terminal import Stop
from tests.support.mistakes import base


def config(folder: Path, **sections: Any) -> Path:
    """The small stack with objects by name."""
    values = base("existing_kueue", "by_name") | sections
    file = folder / "base.yaml"
    stated = {f"gke-ai:{key}": value for key, value in values.items()}
    file.write_text(yaml.safe_dump({"config": {"gcp:project": "my-project", **stated}}))
    return file


def named(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "uid": name, "labels": {"kueue.x-k8s.io/managed": "true"}}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {}), **more}


def snapshot() -> Snapshot:
    quota = [{"coveredResources": ["cpu"], "flavors": [{"name": "l4", "resources": []}]}]
    theirs = named("theirs", spec={"namespaceSelector": {}}, status={"pendingWorkloads": 1})
    objects = {
        "ResourceFlavor": [named("l4", spec={"nodeLabels": {"team": "a"}}), named("other", spec={})],
        "ClusterQueue": [named("gpus", spec={"resourceGroups": quota}), theirs],
        "LocalQueue": [named("lq", "llm", spec={"clusterQueue": "gpus"}), named("x", "y", spec={"clusterQueue": "z"})],
    }
    return build("prod", objects, datetime(2026, 11, 26, tzinfo=UTC))


def test_the_scratch_cluster_gets_what_the_stack_uses_and_nothing_that_it_creates(tmp_path: Path) -> None:
    stack = beside.others(config(tmp_path), snapshot())
    assert stack is not None
    objects = [*beside._objects(stack, snapshot())]
    assert [(item["kind"], item["metadata"]["name"]) for item in objects] == [
        *(("Namespace", "llm"), ("PriorityClass", "low"), ("ResourceFlavor", "l4"), ("ResourceFlavor", "other")),
        *(("ClusterQueue", "theirs"), ("LocalQueue", "lq")),  # `gpus` is of the stack
    ]
    assert objects[2] == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "l4", "labels": {"kueue.x-k8s.io/managed": "true"}},
        "spec": {"nodeLabels": {"team": "a"}},
    }


def test_the_kueue_of_somebody_else_needs_a_snapshot_unless_the_stack_expects_nothing(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"gke-ai:queues\.kueue: it is somebody else's, .* --snapshot snapshot\.json"):
        beside.others(config(tmp_path), None)
    good = base("configuration")
    assert beside.others(config(tmp_path, cluster=good["cluster"], queues=good["queues"]), None) is None
    assert beside.others(config(tmp_path, gpuPool=[]), None) is None, "it is refused"
