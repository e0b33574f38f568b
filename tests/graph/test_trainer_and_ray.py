"""Kubeflow Trainer and KubeRay: what is registered for them, and what a cluster of somebody else must have."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gke_ai.catalog.kueue.existing import Expected
from gke_ai.catalog.kueue.operators import KUBERAY, OPERATORS, TRAINER
from gke_ai.components.queues.tenant_policy import FIELDS, variables
from gke_ai.kube import existing
from gke_ai.kube.client import Answer
from gke_ai.kube.existing import Content, refusals
from gke_ai.review.gitops.command import files
from gke_ai.review.gitops.objects import Stage
from gke_ai.settings import load
from gke_ai.settings.resolved import needs
from tests.support.mistakes import PROJECT, base
from tests.support.recorder import Record, configuration, shared_record
from tests.support.registered import tool

Object = dict[str, Any]
EXISTING = {"name": "shared", "mode": "existing", "existingMode": "standard", "location": "us-central1"}
NAMES = ["trainer.kubeflow.org/trainjob", "ray.io/rayjob", "ray.io/raycluster"]


def stated(subject: str = "tenants", **queues: str) -> Object:
    values = base(subject)
    return {**values, "queues": {**values["queues"], **queues}}


def recorded(values: Object, preview: bool = True) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()}, preview)


def frameworks(record: Record) -> list[str]:
    manager = releases(record)["kueue"]["values"]["managerConfig"]["controllerManagerConfigYaml"]
    names: list[str] = yaml.safe_load(manager)["integrations"]["frameworks"]
    return names


def releases(record: Record) -> dict[str, Mapping[str, Any]]:
    return {release.part: release.inputs for release in record.all("Release")}


def test_a_stack_without_the_keys_has_neither() -> None:
    record = recorded(stated())
    assert releases(record).keys() == {"kueue", "jobset"}
    assert not {*NAMES} & {*frameworks(record)}
    (policy, *_) = record.all("ValidatingAdmissionPolicy")
    assert "kubeflow-system" not in str(policy.inputs)
    assert "trainjobs" not in str(record.all("Role")[0].inputs)


CONFIGURED, LOGGING = (
    {"data": {"config.yaml": text}}
    for text in ("apiVersion: config.ray.io/v1alpha1\nuseKubernetesProxy: true\n", "logFile: x\n")
)


@pytest.mark.parametrize(
    ("container", "files", "proxying"),
    [
        ({}, [], False),
        ({"args": ["--use-kubernetes-proxy=false", "--enable-metrics=true"]}, [], False),
        ({"args": ["--use-kubernetes-proxy=F"]}, [], False),
        ({"args": ["--enable-metrics=true"]}, [CONFIGURED], False),  # another program's file
        ({"args": ["--enable-metrics=true", "--use-kubernetes-proxy=true"]}, [], True),
        ({"args": ["-use-kubernetes-proxy"]}, [], True),  # Go takes one dash
        ({"command": ["/manager", "--use-kubernetes-proxy"]}, [], True),
        ({"args": ["--config", "/etc/kuberay/config.yaml"]}, [CONFIGURED], True),
        ({"args": ["--config=/etc/kuberay/config.yaml"]}, [LOGGING], False),
    ],
)
def test_a_kuberay_that_asks_pods_with_its_credential_is_noticed_in_its_cluster(
    container: Object, files: list[Object], proxying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"name": "kuberay-operator", "namespace": KUBERAY.namespace}
    deployment = {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}}
    lists = {
        f"/apis/apps/v1/namespaces/{KUBERAY.namespace}/deployments": [deployment],
        f"/api/v1/namespaces/{KUBERAY.namespace}/configmaps": files,
    }
    monkeypatch.setattr(existing, "list_objects", lambda _, path: lists.get(path, []))
    monkeypatch.setattr(existing, "request", lambda *_: Answer(200))
    monkeypatch.setattr(existing, "installed", lambda _: None)
    content = existing.read(object())  # type: ignore[arg-type]
    assert content.operators == [KUBERAY.namespace]
    assert content.proxying == ([KUBERAY.namespace] if proxying else [])


def test_a_kuberay_that_asks_pods_with_its_credential_is_refused_beside_tenants() -> None:
    queues: Object = {**stated()["queues"], "kueue": "existing", "jobset": "existing", "ray": "existing"}
    expected = needs.of_cluster(load({**stated(), "cluster": EXISTING, "queues": queues}, PROJECT, True))
    content = Content(jobset=True, operators=[KUBERAY.namespace], proxying=[KUBERAY.namespace])

    def about_credentials(needed: Expected) -> list[str]:
        return [str(refusal) for refusal in refusals(needed, content) if "credential" in str(refusal)]

    assert about_credentials(expected) == [
        "gke-ai:queues.ray: KubeRay of the cluster runs with --use-kubernetes-proxy, so the head of any RayJob can "
        "obtain its credential, which reads every Secret. Remove the flag, and useKubernetesProxy from its "
        "configuration. Or remove gke-ai:tenants."
    ]
    assert about_credentials(replace(expected, tenants=False)) == []


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_both_are_installed_before_kueue_which_queues_their_kinds(preview: bool) -> None:
    record = recorded(stated(trainer="install", ray="install"), preview)
    own = releases(record)
    assert own.keys() == {"kueue", "jobset", TRAINER.release, KUBERAY.release}
    for operator in OPERATORS.values():
        inputs = own[operator.release]
        assert (inputs["version"], inputs["namespace"]) == (operator.version, operator.namespace)
    assert frameworks(record)[-3:] == NAMES
    assert own[KUBERAY.release]["repositoryOpts"] == {"repo": KUBERAY.repository}
    # It asks pods without a credential: a head that redirects the request would receive it.
    assert own[KUBERAY.release]["values"]["useKubernetesProxy"] is False
    assert record.one("ClusterTrainingRuntime").part == "torch-distributed"
    of = {release.part: record.waits_for(release) for release in record.all("Release")}
    assert {f"Release {name}" for name in ("jobset", TRAINER.release, KUBERAY.release)} <= of["kueue"]
    assert "Release jobset" in of[TRAINER.release]


def test_a_tenant_gets_rights_a_quota_and_rules_for_the_kinds_of_the_stack() -> None:
    record = recorded(stated(ray="install"))
    role = str(record.all("Role")[0].inputs["rules"])
    assert ("rayjobs" in role, "trainjobs" in role) == (True, False)
    (quota, *_) = record.all("ResourceQuota")
    assert quota.inputs["spec"]["hard"]["count/rayclusters.ray.io"] == "200"
    (policy, *_) = record.all("ValidatingAdmissionPolicy")
    spec = policy.inputs["spec"]
    resources = {name for rule in spec["matchConstraints"]["resourceRules"] for name in rule["resources"]}
    assert {"rayjobs", "rayclusters", "trainjobs"} & resources == {"rayjobs", "rayclusters"}
    conditions = str(spec["matchConditions"])
    assert "system:serviceaccounts:kuberay-system" in conditions
    assert "system:serviceaccounts:kubeflow-system" not in str(spec)


def test_an_object_is_exempt_only_as_the_child_of_one_that_kueue_held() -> None:
    """KubeRay also creates RayClusters for RayServices, which no queue holds."""
    (children,) = (entry["expression"] for entry in variables((), ["RayJob", "RayCluster"]) if "ofIts" in entry["name"])
    assert '"RayCluster": {"accounts": "system:serviceaccounts:kuberay-system", "owner": "RayJob"}' in children
    assert '"JobSet"' not in children


def test_what_starts_pods_past_the_queue_is_in_no_list() -> None:
    past = {"clusterSelector", "enableInTreeAutoscaling", "autoscalerOptions", "headService", "enableIngress"}
    assert past & {field for fields in FIELDS.values() for field in fields} == set()


@pytest.mark.parametrize("example", ["mixed-training-inference", "mixed-training-inference-autopilot"])
def test_the_addon_is_turned_on_in_a_new_cluster(example: str) -> None:
    config = configuration(f"examples/{example}.yaml")
    config["gke-ai:queues"] = {**config["gke-ai:queues"], "ray": "addon"}
    record = shared_record(config, True)
    assert record.one("Cluster").inputs["addonsConfig"]["rayOperatorConfigs"] == [{"enabled": True}]
    assert KUBERAY.release not in releases(record)
    assert frameworks(record)[-2:] == NAMES[1:]


def test_a_cluster_without_the_controllers_of_somebody_else_is_refused() -> None:
    queues: Object = {"kueue": "existing", "jobset": "existing", "trainer": "existing", "ray": "existing"}
    queues |= {"localQueues": [{"name": "team", "namespace": "llm", "clusterQueue": "research"}]}
    expected = needs.of_cluster(load({"cluster": EXISTING, "queues": queues}, PROJECT, True))
    assert expected.kueue is not None
    assert {*NAMES} <= expected.kueue.frameworks.keys()
    found = [str(refusal) for refusal in refusals(expected, Content(jobset=True, operators=["kubeflow-system"]))]
    assert [text for text in found if "KubeRay" in text] == [
        "gke-ai:queues.ray: the cluster has no KubeRay in the namespace kuberay-system that serves ray.io/v1, so "
        "nothing of its kinds would start. Install it there first, or write install: then this stack installs it."
    ]
    assert not [text for text in found if "Trainer" in text]


KUBERAY_CHARTS = "https://ray-project.github.io/kuberay-helm"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("kubectl", f"kuberay-operator kuberay-operator --repo {KUBERAY_CHARTS} --version 1.6.2 "),
        ("argocd", f"repoURL: {KUBERAY_CHARTS}\n"),
        ("flux", "kind: HelmRepository\n"),
        ("config-sync", f"repo: {KUBERAY_CHARTS}\n"),
    ],
)
def test_every_tool_finds_a_chart_in_a_repository_with_an_index(name: str, address: str) -> None:
    rendered = tool(name, recorded(stated(trainer="install", ray="install"), False))
    assert [text for _, text in files(rendered) if address in text]
    stages = {item.kind: item.stage for item in rendered.content.objects}
    assert stages["ClusterTrainingRuntime"] is Stage.WORKLOADS  # its kind comes with a chart
