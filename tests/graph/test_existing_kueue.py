"""A Kueue of somebody else: none of it is registered, it is found anywhere, and refused for what it can not do."""

import contextlib
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pulumi
import pytest
import yaml

from gke_ai.catalog.kueue.configuration import Demand
from gke_ai.kube import kueue
from gke_ai.kube.client import Answer
from gke_ai.kube.existing import Content, refusals
from gke_ai.kube.kueue import ExistingKueue
from gke_ai.settings import load
from gke_ai.settings.resolved import needs
from tests.support.mistakes import PROJECT, good
from tests.support.recorder import ROOT, Record, configuration, load_stack, run_program

EXISTING = {"name": "shared", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
ALL = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment"]
TABLE: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/existing_kueue.yaml").read_text(), yaml.CSafeLoader)
FRAMEWORKS = {"batch/job": "finetune", "pod": "gemma", "deployment": "gemma"}
ONLY_JOBS = Demand({"batch/job": "finetune"}, ("llm",))
NEEDED = Demand(FRAMEWORKS, ("llm",), ("model-cache",), unqueued_servers=("web",), start_seconds=1200)
BY_TOPOLOGY = Demand({}, (), start_seconds=None, topology="b200")
TENANTS = Demand({}, (), start_seconds=None, has_tenants=True)


def existing(version: str = "0.18.4", **stated: Any) -> ExistingKueue:
    """A Kueue in a namespace of its own that queues every kind, with more of its configuration."""
    manager = {"integrations": {"frameworks": ALL}, **stated}
    queue: dict[str, Any] = {"spec": {"namespaceSelector": {}}}
    return ExistingKueue(version, "queueing", "manager", manager, cluster_queues={"research": queue})


@pytest.mark.parametrize("row", TABLE["configurations"], ids=lambda row: row["cause"])
def test_it_is_refused_for_what_its_configuration_can_not_do(row: dict[str, Any]) -> None:
    causes = [refusal.cause for refusal in existing(**row["kueue"]).refusals(NEEDED, {})]
    assert not causes if not row["cause"] else any(row["cause"] in each for each in causes), causes


LACKING = "has no cluster queue reserch: workloads of its local queue would wait forever. Name one of research"
OLD = "does not serve kueue.x-k8s.io/v1beta2"
JOBS = {"frameworks": ["batch/job"]}
SLOW = "pods of this stack may wait days for their nodes"


def of_system(version: str, **known: Any) -> ExistingKueue:
    """A Kueue in its usual namespace with all defaults."""
    return ExistingKueue(version, "kueue-system", "manager", **known)


def of_queue(name: str) -> Demand:
    return Demand({}, (), cluster_queues=[("llm", name)])


@pytest.mark.parametrize(
    ("found", "demand", "expected"),
    [
        pytest.param(existing(integrations=JOBS), ONLY_JOBS, [], id="Jobs need no pods"),
        pytest.param(of_system("0.18.4"), ONLY_JOBS, [], id="by default it queues Jobs"),
        pytest.param(existing(), of_queue("research"), [], id="a queue that it has"),
        pytest.param(existing(), of_queue("reserch"), [LACKING], id="a queue that it lacks"),
        pytest.param(of_system("0.18.4"), BY_TOPOLOGY, ["flavor b200 needs it"], id="no topology yet"),
        pytest.param(of_system("0.19.2"), BY_TOPOLOGY, [SLOW], id="topology"),
        pytest.param(of_system("0.14.1", cluster_queues=None), NEEDED, [OLD], id="too old"),
        pytest.param(existing("0.19.2"), TENANTS, [SLOW, "lets only controllers of kueue-system"], id="tenants"),
        pytest.param(of_system("0.18.4"), TENANTS, [], id="tenants of a Kueue in its usual namespace"),
    ],
)
def test_it_is_refused_for_what_a_stack_needs(found: ExistingKueue, demand: Demand, expected: list[str]) -> None:
    refused = [str(refusal) for refusal in found.refusals(demand, {})]
    assert len(refused) == len(expected), refused
    assert [text for text, cause in zip(refused, expected, strict=True) if cause not in text] == []


def test_what_a_stack_needs_follows_from_its_workloads() -> None:
    values = {**good(), "cluster": EXISTING}
    values["queues"]["kueue"] = "existing"
    timeout = load(values, PROJECT, True).settings.serving[0].ready_timeout_seconds
    assert needs.of_kueue(load(values, PROJECT, True)) == Demand(FRAMEWORKS, ("llm",), start_seconds=timeout)
    values["serving"].append({"name": "web", "namespace": "web", "model": "google/gemma-2-2b", "pool": "l4"})
    values["queues"]["localQueues"].append({"name": "theirs", "namespace": "llm", "clusterQueue": "research"})
    demand = needs.of_kueue(load(values, PROJECT, True))
    assert (demand.unqueued_servers, demand.cluster_queues) == (("web",), (("llm", "research"),))


def test_it_is_found_in_any_namespace_with_the_file_that_its_flags_name(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--config=/etc/kueue/config.yaml", "--feature-gates=A=true"]
    container = {"name": "manager", "image": "registry.example.com/kueue:v0.16.2", "args": flags}
    volume = {"name": "config", "configMap": {"name": "settings-of-kueue"}}
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    metadata = {"name": "batch-manager", "namespace": "queueing"}
    config = yaml.safe_dump({"waitForPodsReady": {"timeout": "5m"}})
    asked: list[str] = []

    def answer(_: object, __: str, path: str, ___: object = None) -> Answer:
        asked.append(path)
        if path.endswith("deployments"):
            return Answer(200, {"items": [{"metadata": metadata, "spec": {"template": template}}]})
        return Answer(404) if path.endswith("clusterqueues") else Answer(200, {"data": {"config.yaml": config}})

    monkeypatch.setattr("gke_ai.kube.client.request", answer)
    monkeypatch.setattr("gke_ai.kube.kueue.request", answer)
    found = kueue.installed(None)  # type: ignore[arg-type]
    assert found is not None
    assert (found.version, found.namespace, found.deployment) == ("0.16.2", "queueing", "batch-manager")
    assert (found.limit_seconds, found.gates, found.frameworks) == (300, {"A": True}, ("batch/job",))
    assert found.cluster_queues is None, "it serves another version"
    assert "/api/v1/namespaces/queueing/configmaps/settings-of-kueue" in asked


def of_others(**queues: Any) -> dict[str, Any]:
    """The example in a cluster that has a Kueue."""
    config = configuration("examples/mixed-training-inference.yaml")
    config["gke-ai:cluster"] = EXISTING
    config["gke-ai:queues"] |= {"kueue": "existing", **queues}
    return config


def run(
    config: dict[str, Any], content: Content | None, monkeypatch: pytest.MonkeyPatch, preview: bool = True
) -> Record:
    """The record of the program in a cluster with this content, or in one that does not answer."""
    answer = {"side_effect": OSError("no route to host")} if content is None else {"return_value": content}
    connection = SimpleNamespace(call=mock.Mock(**answer))
    monkeypatch.setattr("gke_ai.components.cluster.existing_cluster.connection", lambda _: connection)
    return run_program(config, preview, monkeypatch)


@pytest.mark.parametrize("preview", [True, False])
def test_nothing_of_kueue_is_registered_and_the_queues_are(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(of_others(), Content(existing()), monkeypatch, preview)
    assert record.all("Release") == []
    assert [role.object_name for role in record.all("ClusterRole") if "kueue" in role.object_name] == []
    assert "kueue-system" not in [namespace.object_name for namespace in record.all("Namespace")]
    assert len(record.all("ClusterQueue")) == len(record.all("ResourceFlavor")) == len(record.all("LocalQueue")) == 1
    assert run(of_others(), None, monkeypatch, preview).all("LocalQueue"), "a cluster without an answer is no reason"


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (None, "gke-ai:queues.kueue: the cluster has no Kueue, so nothing would ever start"),
        (existing(integrations={}), "gke-ai:queues.kueue: Kueue 0.18.4 in namespace queueing does not queue pod"),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_a_preview_refuses_a_kueue_that_can_not_do_it_also_without_queues_of_its_own(
    found: ExistingKueue | None, cause: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_others() if own else by_name()
    with pytest.raises(pulumi.RunError, match=re.escape(cause)):
        run(config, replace(CLUSTER, kueue=found), monkeypatch)


RESEARCH = {
    "flavors": [{"name": "l4", "mode": "existing", "pools": ["gpupool"]}],
    "localQueues": [{"name": "team", "mode": "existing", "namespace": "llm", "clusterQueue": "research"}],
    "priorityClasses": [
        {"name": "high-priority-preempting", "mode": "existing", "value": 30},
        {"name": "low-priority-preempting", "mode": "existing", "value": 20, "preemption": "Never"},
    ],
}
GPU = "cloud.google.com/gke-accelerator"
CLUSTER = Content(
    existing(),
    jobset=True,
    namespaces={"llm": {"kubernetes.io/metadata.name": "llm", "team": "a"}},
    flavors={"l4": {"metadata": {"name": "l4"}, "spec": {"nodeLabels": {GPU: "nvidia-l4"}}}},
    local_queues={("llm", "team"): {"spec": {"clusterQueue": "research"}}},
    priority_classes={
        "high-priority-preempting": {"value": 30},
        "low-priority-preempting": {"value": 20, "preemptionPolicy": "Never"},
        "system-node-critical": {"value": 2000001000},
    },
)
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TAINTED = replace(CLUSTER, flavors={"l4": {"metadata": {"name": "l4"}, "spec": {"nodeTaints": [TAINT]}}})


def by_name(**queues: Any) -> dict[str, Any]:
    """The example in a cluster whose flavor, local queue, namespace and priority classes it uses."""
    config = of_others()
    config["gke-ai:queues"] = {"kueue": "existing", **RESEARCH, **queues}
    for workload in (*config["gke-ai:serving"], *config["gke-ai:training"]):
        workload["queue"] = "team"
    return config


def test_objects_by_name_are_not_registered_and_the_workloads_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(by_name(), CLUSTER, monkeypatch, preview=False)
    for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "PriorityClass", "Namespace"):
        assert record.all(kind) == [], kind
    assert record.one("Deployment").inputs["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    queue = {"localQueue": "team", "namespace": "llm", "clusterQueue": "research", "cohort": "", "quota": []}
    assert record.outputs["queues"] == [queue]
    # A cluster queue of the stack has quota for a flavor by name.
    own = [{"name": "mine", "flavors": [{"flavor": "l4", "quota": "derive"}]}]
    to_own = [{"name": "team", "namespace": "llm", "clusterQueue": "mine"}]
    record = run(by_name(clusterQueues=own, localQueues=to_own), CLUSTER, monkeypatch)
    (group,) = record.one("ClusterQueue").inputs["spec"]["resourceGroups"]
    assert [entry["name"] for entry in group["flavors"]] == ["l4"]
    assert record.all("ResourceFlavor") == []


def test_a_namespace_by_name_gets_local_queues_and_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    config = by_name(localQueues=[{"name": "team", "namespace": "llm", "clusterQueue": "research"}])
    config["gke-ai:cluster"] = {**EXISTING, "existingNamespaces": ["llm"]}
    record = run(config, CLUSTER, monkeypatch)
    assert ([queue.name for queue in record.all("LocalQueue")], record.all("Namespace")) == (["llm/team"], [])
    message = r"existingNamespaces: the cluster has no namespace llm.*kubectl create n"
    with pytest.raises(pulumi.RunError, match=message):
        run(config, replace(CLUSTER, namespaces={}), monkeypatch)


def refused_by(cluster: Content, config: dict[str, Any]) -> list[str]:
    """Why a stack would not work in a cluster."""
    return [str(refusal) for refusal in refusals(needs.of_cluster(load_stack(config)), cluster)]


@pytest.mark.parametrize("row", TABLE["clusters"], ids=lambda row: row["refusal"].partition(":")[0])
def test_the_cluster_is_refused_for_what_it_lacks(row: dict[str, Any]) -> None:
    changed = dict(row["has"])
    if "local_queues" in changed:
        changed["local_queues"] = {tuple(name.split("/")): queue for name, queue in changed["local_queues"].items()}
    if "kueue" in changed:
        changed["kueue"] = existing(**changed["kueue"])
    if "cluster_queues" in changed:
        changed["kueue"] = replace(existing(), cluster_queues=changed.pop("cluster_queues"))
    refused = refused_by(replace(CLUSTER, **changed), by_name())
    assert not refused if not row["refusal"] else any(row["refusal"] in each for each in refused), refused


A100 = [{"name": "l4", "mode": "existing", "accelerator": "nvidia-tesla-a100"}]
ONLY_PODS = {key: section for key, section in by_name().items() if key not in ("gke-ai:training", "gke-ai:buckets")}
MULTISLICE = configuration("examples/multislice-training.yaml")
MULTISLICE["gke-ai:cluster"] = {**EXISTING, "location": "us-west4"}
MULTISLICE["gke-ai:queues"]["jobset"] = "existing"
CONTRADICTION = f"selects nodes with {GPU}=nvidia-l4, and this stack expects {GPU}=nvidia-tesla-a100"
NO_JOBSET = "gke-ai:queues.jobset: the cluster has no JobSet that serves jobset.x-k8s.io/v1alpha"


@pytest.mark.parametrize(
    ("cluster", "config", "message"),
    [
        pytest.param(CLUSTER, by_name(flavors=A100), CONTRADICTION, id="a flavor for another accelerator"),
        # GKE adds the toleration to pods. Kueue reads the template of a Job.
        pytest.param(TAINTED, by_name(), "has the taint nvidia.com/gpu", id="a taint keeps Jobs away"),
        pytest.param(TAINTED, ONLY_PODS, None, id="a taint keeps no pods away"),
        pytest.param(Content(), MULTISLICE, NO_JOBSET, id="a run needs JobSet"),
        pytest.param(Content(jobset=True), MULTISLICE, None, id="the cluster has JobSet"),
    ],
)
def test_it_is_refused_for_what_a_workload_needs(cluster: Content, config: dict[str, Any], message: str | None) -> None:
    refused = refused_by(cluster, config)
    assert len(refused) == (0 if message is None else 1), refused
    assert all((message or "") in text for text in refused)


def test_a_stack_with_only_local_queues_needs_its_namespaces_to_be_managed() -> None:
    queue = {"name": "team", "namespace": "llm", "clusterQueue": "research"}
    values = {"cluster": EXISTING, "queues": {"kueue": "existing", "localQueues": [queue]}}
    demand = needs.of_cluster(load(values, PROJECT, True)).kueue
    assert demand is not None
    assert (demand.namespaces, demand.cluster_queues) == (("llm",), (("llm", "research"),))


@pytest.mark.parametrize(
    "stated",
    [
        *({"integrations": ["pod"]}, {"integrations": {"frameworks": "pod"}}),
        *({"waitForPodsReady": "5m"}, {"featureGates": []}),
        *({"managedJobsNamespaceSelector": selector} for selector in ("llm", {"matchExpressions": ["llm"]})),
    ],
)
def test_a_configuration_of_another_form_ends_without_a_traceback(
    stated: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = existing(**stated)
    assert all(isinstance(name, str) for name in found.frameworks)
    with contextlib.suppress(pulumi.RunError):
        run(of_others(), Content(found), monkeypatch)
