"""Only here: a stack beside a Kueue of somebody else, which is as it was before and after."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.kueue.configuration import FRAMEWORKS
from gke_ai.catalog.versions import EARLIER_KUEUE_VERSIONS, KUEUE_CHART, KUEUE_VERSION
from gke_ai.forecast.result.forecast import read as read_forecast
from gke_ai.manifests.kueue_chart import chart_values, manager_configuration
from tests.support.emulator import ROOT, Emulator, Found, begun, cloud_of, eventually, fresh, gone, objects_of, settled
from tests.support.examples import section
from tests.support.workloads import admitted

EXAMPLE = "examples/mixed-training-inference.yaml"
CLUSTER = {"name": "shared", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
NAMESPACE, RELEASE = "queueing", "batch"
KUEUES = "resourceflavors,clusterqueues,localqueues,priorityclasses,namespaces"
OWNERS = ROOT / "tests" / "data" / "existing_kueue.yaml"


def settings(release: str, *frameworks: str, seconds: int) -> dict[str, Any]:
    """Values of Kueue's chart of an owner with habits of their own, as in the manifests of Kueue."""
    manager = manager_configuration(["llm"], False, seconds, release) | {
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {"team": "research"}},
        "integrations": {"frameworks": [*frameworks]},
        "featureGates": {"VisibilityOnDemand": False},
    }
    return chart_values(release, 1, manager)


def install(emulator: Emulator, release: str, values: dict[str, Any]) -> None:
    """Installs or changes the Kueue of the cluster, as its owner does."""
    chart = emulator.run("chart", KUEUE_CHART, release).strip()
    file = emulator.state / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    kubeconfig = emulator.kubeconfig()
    command = f"helm upgrade --install {RELEASE} {chart} -n {NAMESPACE} --create-namespace -f {file} --wait"
    emulator.run("sh", "-c", f"KUBECONFIG={kubeconfig} {command}")


def releases(emulator: Emulator) -> Any:
    listed = emulator.run("sh", "-c", f"KUBECONFIG={emulator.kubeconfig()} helm list -A -o json")
    return {(release["name"], release["revision"]) for release in json.loads(listed[listed.index("[") :])}


def of_the_owner(emulator: Emulator) -> dict[str, Any]:
    """What the objects of the owner say, by kind and name."""
    names = {document["metadata"]["name"] for document in yaml.safe_load_all(OWNERS.read_text())}
    own = [item for item in emulator.get("-A", KUEUES) if item["metadata"]["name"] in names]
    names_of = [f"{item['kind']}/{item['metadata']['name']}" for item in own]
    return dict(zip(names_of, [(item["metadata"].get("labels"), item.get("spec")) for item in own], strict=True))


@pytest.fixture(scope="module", params=[KUEUE_VERSION, *EARLIER_KUEUE_VERSIONS])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(release: str) -> Iterator[Emulator]:
    """A cluster of somebody else with a Kueue that queues no pods. The tests below use it in order."""
    with fresh() as emulator:
        begun(emulator, configure(emulator, {"kueue": "existing"}))
        install(emulator, release, settings(release, "batch/job", seconds=300))
        apply = f"kubectl --kubeconfig {emulator.kubeconfig()} apply -f {OWNERS}"
        # The webhooks start meanwhile.
        emulator.run("sh", "-c", f"for i in $(seq 60); do {apply} && exit 0; sleep 1; done; exit 1")
        yield emulator


def configure(emulator: Emulator, queues: dict[str, Any], **sections: Any) -> Path:
    """The example in that cluster with these queues."""
    return emulator.configure(EXAMPLE, cluster=CLUSTER, queues=queues, **sections)


def config(emulator: Emulator) -> Path:
    """The example: its server in the queue of the owner, its run in a queue of its own with quota for their flavor."""
    queues = section("queues")
    quota = queues["clusterQueues"][0]["flavors"][0]["quota"]
    by_name = {"mode": "existing"}
    default, low, high = queues["priorityClasses"]
    own = {
        "kueue": "existing",
        "flavors": [{"name": "l4", **by_name, "pools": ["gpupool"]}],
        "clusterQueues": [{"name": "cluster-queue", "flavors": [{"flavor": "l4", "quota": quota}]}],
        "localQueues": [
            {"name": "lq", **by_name, "namespace": "llm", "clusterQueue": "research"},
            {"name": "runs", "namespace": "llm", "clusterQueue": "cluster-queue"},
        ],
        "priorityClasses": [default, low, {"name": high["name"], **by_name, "value": high["value"]}],
    }
    return configure(emulator, own, training=[{**section("training")[0], "queue": "runs"}])


def test_a_preview_refuses_what_it_lacks_and_what_the_kueue_can_not_do(shared: Emulator, release: str) -> None:
    content = yaml.safe_load(config(shared).read_text())
    content["config"]["gke-ai:queues"]["localQueues"][0]["name"] = "team"
    content["config"]["gke-ai:serving"][0]["queue"] = "team"
    file = shared.state / "refused.yaml"
    file.write_text(yaml.safe_dump(content))
    output = shared.make("preview", file, fails=True)
    place = f"gke-ai:queues.kueue: Kueue {release} in namespace {NAMESPACE}"
    assert f"{place} does not queue pod" in output
    assert f"{place} evicts workloads whose pods are not ready 300 s after admission" in output
    assert "gke-ai:queues.localQueues[0].name: the cluster has no local queue team in namespace llm" in output
    assert "Write as name one of lq." in output
    assert "Traceback" not in output
    assert "never retrieved" not in output


def test_a_first_preview_of_what_init_finds_changes_nothing(shared: Emulator) -> None:
    folder, place = shared.state / "own", "--project emulator-project --region us-central1 --cluster shared"
    context = yaml.safe_load(Path(shared.kubeconfig()).read_text())["current-context"]
    init = f"KUBECONFIG={shared.kubeconfig()} gke-ai init {folder} --from-cluster {context} {place}"
    assert "Cluster queue" not in shared.run("sh", "-c", init)
    file = folder / "Pulumi.dev.yaml"
    queues = yaml.safe_load(file.read_text())["config"]["gke-ai:queues"]
    assert [queue["name"] for queue in queues["localQueues"]] == ["lq"]
    assert [flavor["name"] for flavor in queues["flavors"]] == ["l4"]
    shared.prepare(file)
    planned = shared.planned()
    assert planned.keys() == {"create"}
    assert [name for name in planned["create"] if name.startswith("kubernetes:")] == []


def test_a_stack_beside_it_serves_trains_is_rehearsed_and_leaves_it_as_it_was(shared: Emulator, release: str) -> None:
    install(shared, release, settings(release, *FRAMEWORKS.values(), seconds=3600))  # can do what the stack needs
    found = Found(cloud_of(shared), objects_of(shared), CLUSTER["name"])
    installed, owned = releases(shared), of_the_owner(shared)
    base = config(shared)
    shared.make("up", base)
    eventually(lambda: len(admitted(shared, "Pod")) == len(admitted(shared, "Job")) == 1, "both are admitted")
    settled(shared)
    queues = {workload["spec"]["queueName"] for workload in shared.get("workloads", "-n", "llm")}
    assert queues == {"lq", "runs"}
    assert releases(shared) == installed

    # A rehearsal has the Kueue and the objects of the owner.
    file, out = shared.snapshot(), shared.state / "out.json"
    taken = json.loads(file.read_text())
    assert (taken["kueueVersion"], taken["kueue"]["manageJobsWithoutQueueName"]) == (release, True)
    content = yaml.safe_load(base.read_text())
    content["config"]["gke-ai:serving"][0]["replicas"] = 2
    changed = shared.state / "changed.yaml"
    changed.write_text(yaml.safe_dump(content))
    sides = ("--base", str(base), "--config", str(changed), "--snapshot", str(file), "--json", str(out))
    output = shared.run("gke-ai", "rehearse", "--stack", shared.stack, *sides)
    assert "scales tgi-gemma-deployment from 1 to 2 replicas" in " ".join(output.split())
    notes = read_forecast(out).notes
    assert not [note for note in notes if "configured otherwise" in note or "ResourceFlavor" in note]

    shared.make("down")
    gone(shared, found)
    assert (releases(shared), of_the_owner(shared)) == (installed, owned)
