"""Only here: a stack beside a Kueue of somebody else, which is as it was before and after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.kueue import FRAMEWORKS
from gke_ai.components.queues.kueue_chart import chart_values, manager_configuration
from tests.cluster.conftest import fresh
from tests.cluster.emulator import Emulator, Found, begun, cloud_of, eventually, gone, objects_of, settled
from tests.cluster.test_convergence import section
from tests.cluster.test_mixed import admitted

EXAMPLE = "examples/mixed-training-inference.yaml"
CLUSTER = {"name": "shared", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
VERSION, NAMESPACE, RELEASE = "0.18.4", "queueing", "batch"


def settings(**stated: Any) -> dict[str, Any]:
    """Values of Kueue's chart of an owner with habits of their own."""
    manager = manager_configuration(["llm"], False, 0) | {"manageJobsWithoutQueueName": True} | stated
    return chart_values(VERSION, 1, manager)


def install(emulator: Emulator, values: dict[str, Any]) -> None:
    """Installs or changes the Kueue of the cluster, as its owner does."""
    file = emulator.state / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    kubeconfig = emulator.kubeconfig()
    command = (
        f"helm upgrade --install {RELEASE} $GKE_AI_CHARTS/kueue -n {NAMESPACE} --create-namespace -f {file} --wait"
    )
    emulator.run("sh", "-c", f"KUBECONFIG={kubeconfig} {command}")


def releases(emulator: Emulator) -> Any:
    """The releases of Helm in the cluster, by name, with their revision."""
    listed = emulator.run("sh", "-c", f"KUBECONFIG={emulator.kubeconfig()} helm list -A -o json")
    return {(release["name"], release["revision"]) for release in json.loads(listed[listed.index("[") :])}


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    """A cluster of somebody else with a Kueue that queues no pods. The tests below use it in order."""
    with fresh() as emulator:
        begun(emulator, config(emulator))
        install(emulator, settings(integrations={"frameworks": ["batch/job"]}))
        yield emulator


def config(emulator: Emulator) -> Path:
    """The example in that cluster."""
    return emulator.configure(EXAMPLE, cluster=CLUSTER, queues=section("queues") | {"kueue": "existing"})


def test_a_preview_refuses_a_kueue_that_queues_no_pods(shared: Emulator) -> None:
    output = shared.make("preview", config(shared), fails=True)
    assert f"gke-ai:queues.kueue: Kueue {VERSION} in namespace {NAMESPACE} does not queue pod" in output
    assert "Traceback" not in output


def test_a_stack_beside_it_serves_and_trains_and_leaves_it_as_it_was(shared: Emulator) -> None:
    install(shared, settings(integrations={"frameworks": [*FRAMEWORKS.values()]}))
    before, installed = Found(cloud_of(shared), objects_of(shared), CLUSTER["name"]), releases(shared)
    shared.make("up", config(shared))
    eventually(lambda: len(admitted(shared, "Pod")) == len(admitted(shared, "Job")) == 1, "both are admitted")
    settled(shared)
    assert releases(shared) == installed
    output = shared.run("gke-ai", "snapshot", "--stack", shared.stack)
    snapshot = json.loads(output[output.index("{") :])
    assert (snapshot["kueueVersion"], snapshot["kueue"]["manageJobsWithoutQueueName"]) == (VERSION, True)
    shared.make("down")
    gone(shared, before)
    assert releases(shared) == installed
