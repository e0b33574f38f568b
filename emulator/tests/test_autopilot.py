"""The API server of an Autopilot cluster changes and refuses workloads as the table of Google's rules says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from emulator.cloud.api import client
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, create
from emulator.tests.clusters import clusters_in

Object = dict[str, Any]
TABLE = yaml.safe_load(Path(__file__).with_name("autopilot_rules.yaml").read_text())
MARK = "autopilot.gke.io/warden-version"
APIS = {"Pod": "/api/v1", "Job": "/apis/batch/v1", "CronJob": "/apis/batch/v1"}
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The API of an Autopilot cluster without nodes."""
    record = ClusterRecord("autopilot", "my-project", "us-central1", "autopilot", ["us-central1-a"], "1.36.1-gke.1")
    with clusters_in(tmp_path_factory.mktemp("state")):
        create(record.name, record)
        with client(Folder(record.name)) as api:
            yield api


def post(api: httpx.Client, pod: Object, kind: str = "Deployment", namespace: str = "default") -> httpx.Response:
    """Creates a workload without keeping it."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    if kind in ("Job", "CronJob"):
        pod = {**pod, "restartPolicy": "Never"}
        job = {"template": {**template, "spec": pod}}
        spec: Object = job if kind == "Job" else {"schedule": "0 0 * * *", "jobTemplate": {"spec": job}}
    else:
        spec = pod if kind == "Pod" else {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    path = f"{APIS.get(kind, '/apis/apps/v1')}/namespaces/{namespace}/{kind.lower()}s"
    return api.post(path, params={"dryRun": "All"}, json={"metadata": {"name": "a"}, "spec": spec})


def pod_of(workload: Object, kind: str) -> Object:
    """The spec of its pods."""
    spec = workload["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else workload["spec"]
    pod: Object = spec if kind == "Pod" else spec["template"]["spec"]
    return pod


def pod_with(*containers: Object, **pod: Any) -> Object:
    named = [{"name": f"c{index}", "image": "a", **container} for index, container in enumerate(containers)]
    return {"containers": named, **pod}


@pytest.mark.parametrize("row", TABLE["requests"], ids=lambda row: row["what"])
def test_requests_become_those_of_the_table(row: Object, api: httpx.Client) -> None:
    kind = row.get("kind", "Deployment")
    pod = pod_with(*({"resources": resources} for resources in row["resources"]), **row.get("pod", {}))
    created = post(api, pod, kind).json()
    assert [container["resources"] for container in pod_of(created, kind)["containers"]] == row["become"]


@pytest.mark.parametrize("row", TABLE["tolerations"], ids=lambda row: row["what"])
def test_tolerations_are_added(row: Object, api: httpx.Client) -> None:
    created = post(api, pod_with({}, **row["pod"])).json()
    assert pod_of(created, "Deployment").get("tolerations", []) == row["added"]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_each_kind_of_workload_is_changed_itself(kind: str, api: httpx.Client) -> None:
    created = post(api, pod_with({}, initContainers=[{"name": "i", "image": "a"}]), kind).json()
    pod = pod_of(created, kind)
    assert MARK in created["metadata"]["annotations"]
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"] == {"capabilities": {"drop": ["NET_RAW"]}}
    assert pod["containers"][0]["resources"]["requests"].keys() == {"cpu", "memory", "ephemeral-storage"}


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job", "CronJob"])
def test_a_changed_workload_is_not_changed_again(kind: str, api: httpx.Client) -> None:
    created = post(api, pod_with({"resources": {"requests": {"cpu": "10m", "memory": "90Gi"}}}), kind).json()
    assert pod_of(post(api, pod_of(created, kind), kind).json(), kind) == pod_of(created, kind)


def test_stated_security_settings_stay(api: httpx.Client) -> None:
    own = {"capabilities": {"drop": ["ALL"]}}
    pod = pod_with({"securityContext": own}, securityContext={"seccompProfile": {"type": "Unconfined"}})
    changed = pod_of(post(api, pod).json(), "Deployment")
    assert changed["containers"][0]["securityContext"] == own
    assert changed["securityContext"] == pod["securityContext"]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job"])
@pytest.mark.parametrize("row", TABLE["refused"], ids=lambda row: str(row.get("pod") or row.get("container")))
def test_what_autopilot_refuses_is_refused(row: Object, kind: str, api: httpx.Client) -> None:
    answer = post(api, pod_with(row.get("container", {}), **row.get("pod", {})), kind)
    assert answer.status_code == 422
    assert row["because"] in answer.json()["message"]


@pytest.mark.parametrize("row", TABLE["allowed"], ids=str)
def test_what_autopilot_allows_is_created(row: Object, api: httpx.Client) -> None:
    pod = pod_with(row.get("container", {}), **row.get("pod", {}))
    answer = post(api, pod, "Deployment", row.get("namespace", "default"))
    assert answer.is_success, answer.text
