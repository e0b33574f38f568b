"""A Kueue of somebody else: none of it is registered, it is found anywhere, and refused for what it can not do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.kueue import Demand
from gke_ai.components.queues import kueue as component
from gke_ai.kube import kueue
from gke_ai.kube.client import Answer
from gke_ai.kube.kueue import ExistingKueue
from gke_ai.settings import load
from gke_ai.settings.stack import needs
from tests.mistakes import PROJECT, good
from tests.recorder import configuration, run_program

EXISTING = {"name": "shared", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
EXAMPLE = "examples/mixed-training-inference.yaml"
ALL = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment"]
NEEDED = Demand(
    frameworks={"batch/job": "finetune", "pod": "gemma", "deployment": "gemma"},
    namespaces=("llm",),
    unqueued=("model-cache",),
    start_seconds=1200,
)


def existing(version: str = "0.18.4", **stated: Any) -> ExistingKueue:
    """A Kueue in a namespace of its own that queues every kind, with more of its configuration."""
    manager = {"integrations": {"frameworks": ALL}, **stated}
    return ExistingKueue(version, "queueing", "manager", manager, cluster_queues=["research"])


def selecting(*expressions: dict[str, Any], **labels: str) -> dict[str, Any]:
    """The part of a configuration that says in which namespaces Kueue looks at workloads."""
    return {"managedJobsNamespaceSelector": {"matchExpressions": [*expressions], "matchLabels": labels}}


NAMED = {"key": "kubernetes.io/metadata.name"}


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (existing(), ""),
        (existing("0.19.1", featureGates={"DisableWaitForPodsReady": True}), ""),
        (existing("0.19.1"), ""),  # its default of 1800 s is enough
        (existing(waitForPodsReady={"timeout": "20m0s"}), ""),
        (existing(waitForPodsReady={"timeout": "19m59s"}), "not ready 1199 s after admission"),
        (existing(waitForPodsReady={"timeout": "1.5h"}), ""),
        (existing(apiVersion="config.kueue.x-k8s.io/v1beta1", waitForPodsReady={"timeout": "1s"}), ""),
        (existing(apiVersion="config.kueue.x-k8s.io/v1beta1", waitForPodsReady={"enable": True}), "not ready 300 s"),
        (existing(integrations={}), "does not queue pod: gemma would run without quota, or never"),
        (existing(integrations={"frameworks": ["pod", "deployment"]}), "does not queue batch/job: finetune"),
        (existing(**selecting({**NAMED, "operator": "In", "values": ["llm"]})), ""),
        (existing(**selecting({**NAMED, "operator": "NotIn", "values": ["llm"]})), "leaves out namespace llm"),
        (existing(**selecting({"key": "team", "operator": "Exists"})), "leaves out namespace llm"),
        (existing(**selecting({"key": "team", "operator": "DoesNotExist"})), ""),
        (existing(**selecting(team="a")), "leaves out namespace llm"),
        (existing(manageJobsWithoutQueueName=True), "holds Jobs without a queue, and those of this stack in model-cac"),
        (
            existing(manageJobsWithoutQueueName=True, **selecting({**NAMED, "operator": "In", "values": ["llm"]})),
            "",
        ),
    ],
)
def test_it_is_refused_for_what_its_configuration_can_not_do(found: ExistingKueue, cause: str) -> None:
    causes = [refusal.cause for refusal in found.refusals(NEEDED)]
    assert not causes if not cause else any(cause in each for each in causes), causes


def test_a_queue_that_it_lacks_and_a_version_that_is_too_old_are_refused() -> None:
    assert [*existing().refusals(Demand({}, (), cluster_queues=["research"]))] == []
    (lacking,) = existing().refusals(Demand({}, (), cluster_queues=["reserch"]))
    assert "has no cluster queue reserch" in lacking.cause
    assert "Name one of research" in lacking.remedy
    (old,) = ExistingKueue("0.14.1", "kueue-system", "m", cluster_queues=None).refusals(NEEDED)
    assert "does not serve kueue.x-k8s.io/v1beta2" in old.cause


def test_a_stack_with_tenants_and_one_that_waits_for_flex_start_ask_for_more() -> None:
    waits = Demand({}, (), start_seconds=None, has_tenants=True)
    slow, elsewhere = existing("0.19.1").refusals(waits)
    assert "pods of this stack may wait days for their nodes" in slow.cause
    assert "let only controllers of kueue-system" in elsewhere.cause.replace("lets", "let")
    assert [*ExistingKueue("0.18.4", "kueue-system", "manager").refusals(waits)] == []


def test_what_a_stack_needs_follows_from_its_workloads() -> None:
    values = {**good(), "cluster": EXISTING}
    values["queues"]["kueue"] = "existing"
    demand = needs.of_kueue(load(values, PROJECT, True))
    assert demand.frameworks == {"deployment": "gemma", "pod": "gemma", "batch/job": "finetune"}
    assert (demand.namespaces, demand.unqueued, demand.has_tenants) == (("llm",), (), False)
    assert demand.cluster_queues == ()
    values["queues"]["localQueues"].append({"name": "theirs", "namespace": "llm", "clusterQueue": "research"})
    assert needs.of_kueue(load(values, PROJECT, True)).cluster_queues == ("research",)
    assert demand.start_seconds == load(values, PROJECT, True).settings.serving[0].ready_timeout_seconds


def deployment(*args: str, **spec: Any) -> dict[str, Any]:
    """A manager in a namespace and with a name of its owner's choice."""
    container = {"name": "manager", "image": "registry.example.com/kueue:v0.16.2", "args": [*args]}
    template = {"spec": {"containers": [container], **spec}}
    return {"metadata": {"name": "batch-manager", "namespace": "queueing"}, "spec": {"template": template}}


def test_it_is_found_in_any_namespace_with_the_file_that_its_flags_name(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = {"name": "config", "configMap": {"name": "settings-of-kueue"}}
    manager = deployment("--config=/etc/kueue/config.yaml", "--feature-gates=A=true", volumes=[volume])
    asked: list[str] = []

    def answer(_: object, __: str, path: str, ___: object = None) -> Answer:
        asked.append(path)
        if path.endswith("deployments"):
            return Answer(200, {"items": [manager]})
        if path.endswith("clusterqueues"):
            return Answer(404)
        return Answer(200, {"data": {"config.yaml": yaml.safe_dump({"waitForPodsReady": {"timeout": "5m"}})}})

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
    config = configuration(EXAMPLE)
    config["gke-ai:cluster"] = EXISTING
    config["gke-ai:queues"] |= {"kueue": "existing", **queues}
    return config


class Connection:
    """A cluster with a Kueue, or without one."""

    def __init__(self, found: ExistingKueue | None) -> None:
        self.found = found

    def call(self, _: object) -> ExistingKueue | None:
        return self.found


@pytest.mark.parametrize("preview", [True, False])
def test_nothing_of_kueue_is_registered_and_the_queues_are(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run_program(of_others(), preview, monkeypatch)
    assert record.all("Release") == []
    assert [role.object_name for role in record.all("ClusterRole") if "kueue" in role.object_name] == []
    assert "kueue-system" not in [namespace.object_name for namespace in record.all("Namespace")]
    assert len(record.all("ClusterQueue")) == len(record.all("ResourceFlavor")) == len(record.all("LocalQueue")) == 1


def check(found: ExistingKueue | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the hook of the queues does beside this Kueue."""
    monkeypatch.setattr(component, "connection", lambda _: Connection(found))
    asyncio.get_event_loop().run_until_complete(component.refuse(NEEDED, "kubeconfig"))


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (None, "the cluster has no Kueue, so nothing would ever start"),
        (existing(integrations={}), "gke-ai:queues.kueue: Kueue 0.18.4 in namespace queueing does not queue pod"),
    ],
)
def test_a_preview_refuses_a_kueue_that_can_not_do_it(
    found: ExistingKueue | None, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(existing(), monkeypatch)
    with pytest.raises(pulumi.RunError, match=cause):
        check(found, monkeypatch)


@pytest.mark.parametrize(
    "stated",
    [
        {"integrations": ["pod"]},
        {"integrations": {"frameworks": "pod"}},
        {"waitForPodsReady": "5m"},
        {"managedJobsNamespaceSelector": {"matchExpressions": ["llm"]}},
        {"managedJobsNamespaceSelector": "llm"},
        {"featureGates": []},
    ],
)
def test_a_configuration_of_another_form_ends_without_a_traceback(
    stated: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = existing(**stated)
    assert all(isinstance(name, str) for name in found.frameworks)
    with contextlib.suppress(pulumi.RunError):
        check(found, monkeypatch)
