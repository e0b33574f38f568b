"""Members of a tenant: their clients of the API server, the objects that they write, and how these are refused."""

import base64
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from gke_ai.components.queues.tenant_policy import GRACE_SECONDS
from tests.support.emulator import Emulator, eventually
from tests.support.further_kinds import ray_cluster, ray_job, train_job

AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
GPU_NODE = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
Object = dict[str, Any]
_ROWS: dict[str, Any] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)
TWO: Object = _ROWS["two"]
WITH_OPERATORS: Object = _ROWS["with_operators"]
UNFINISHED: dict[str, Object] = _ROWS["unfinished"]
PLACES: dict[str, str] = _ROWS["places"]
# GPUs that the queue of a team may use.
GPUS = 3


class Answer(NamedTuple):
    """An answer of the API server: the object, or the refusal."""

    status: int
    content: Object

    @property
    def message(self) -> str:
        return str(self.content.get("message", ""))


class Credential:
    """A team's client of the API server, with only a token of its deployer."""

    def __init__(self, emulator: Emulator, team: str) -> None:
        (cluster,) = yaml.safe_load(Path(emulator.kubeconfig()).read_text())["clusters"]
        authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
        token = emulator.kubectl("create", "token", "deployer", "-n", team).strip()
        self.team = team
        server, headers = cluster["cluster"]["server"], {"authorization": f"Bearer {token}"}
        trusted = ssl.create_default_context(cadata=authority)
        self._api = httpx.Client(base_url=server, verify=trusted, headers=headers, timeout=30, trust_env=False)

    def ask(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Answer:
        """A request with the strict validation that kubectl uses."""
        content_type = content_type or ("application/merge-patch+json" if method == "PATCH" else "")
        kind = {"content-type": content_type} if content_type else {}
        strict = {"fieldValidation": "Strict"} if method in ("POST", "PATCH") else {}
        response = self._api.request(method, httpx.URL(f"/{path}").copy_merge_params(strict), json=body, headers=kind)
        return Answer(response.status_code, response.json())

    def create(self, item: Object, namespace: str | None = None, *, try_only: bool = False) -> Answer:
        """Create an object, by default in the team's namespace. `try_only`: the API server only checks it."""
        path = PLACES[item["kind"]].format(namespace or self.team)
        answer = self.ask("POST", f"{path}?dryRun=All" if try_only else path, item)
        # The quota changed at the same time: https://github.com/kubernetes/kubernetes/issues/67761
        changed = answer.status == 409 and answer.content["details"]["kind"] == "resourcequotas"
        return self.create(item, namespace, try_only=try_only) if changed else answer

    def change(self, kind: str, name: str, change: Object, namespace: str | None = None) -> Answer:
        return self.ask("PATCH", f"{PLACES[kind].format(namespace or self.team)}/{name}", change)

    def delete(self, kind: str, name: str, namespace: str | None = None, **options: Any) -> Answer:
        body = {"propagationPolicy": "Background", **options}
        return self.ask("DELETE", f"{PLACES[kind].format(namespace or self.team)}/{name}", body)

    def read(self, kind: str, name: str = "", namespace: str | None = None) -> Answer:
        return self.ask("GET", f"{PLACES[kind].format(namespace or self.team)}/{name}".rstrip("/"))


def kubeconfig_of(emulator: Emulator, team: str) -> Path:
    content = yaml.safe_load(Path(emulator.kubeconfig()).read_text())
    token = emulator.kubectl("create", "token", "deployer", "-n", team).strip()
    context = {"cluster": content["clusters"][0]["name"], "user": "member"}
    content |= {"users": [{"name": "member", "user": {"token": token}}], "current-context": "ml"}
    file = emulator.state / f"kubeconfig-{team}"
    file.write_text(yaml.safe_dump({**content, "contexts": [{"name": "ml", "context": context}]}))
    return file


def spec(gpus: int | None = 1, **more: Any) -> Object:
    devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "1", "memory": "1Gi", **devices}, "limits": devices}
    container = {"name": "main", "image": "example.com/training:1", "resources": resources}
    # A namespace that goes waits at least half as long for its pods.
    quick = {"terminationGracePeriodSeconds": 1}
    return {"containers": [container], **quick, **({"nodeSelector": GPU_NODE} if gpus else {}), **more}


def item(kind: str, name: str, body: Object, queue: str | None = None, **metadata: Any) -> Object:
    versions = {"Job": "batch/v1", "CronJob": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "Pod": "v1"}
    labels = {**({QUEUE: queue} if queue else {}), **metadata.pop("labels", {})}
    metadata = {"name": name, "labels": labels, **metadata}
    return {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "metadata": metadata, "spec": body}


OWN, OTHERS = "queue-of-team-a", "queue-of-team-b"


def pod(body: Object | None = None, queue: str | None = OWN, name: str = "pod", **metadata: Any) -> Object:
    return item("Pod", name, body or spec(), queue, **metadata)


def job(body: Object | None = None, queue: str | None = OWN, name: str = "job", **metadata: Any) -> Object:
    template = {"template": {"spec": {"restartPolicy": "Never", **(body or spec())}}}
    return item("Job", name, template, queue, **metadata)


def jobset(body: Object | None = None, queue: str | None = OWN, name: str = "jobset", **metadata: Any) -> Object:
    slices = {"name": "slice", "replicas": 1, "template": {"spec": job(body)["spec"]}}
    return item("JobSet", name, {"replicatedJobs": [slices]}, queue, **metadata)


def deployment(body: Object | None = None, queue: str | None = OWN, name: str = "server", **metadata: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": body or spec()}
    return item("Deployment", name, {"selector": {"matchLabels": labels}, "template": template}, queue, **metadata)


def kept(kind: str, finalizer: str = "example.com/kept") -> Object:
    """An object that nobody finishes."""
    return {**UNFINISHED[kind], "kind": kind, "metadata": {"name": "kept", "finalizers": [finalizer]}}


def owned_by(kind: str, version: str, name: str) -> list[Object]:
    """An owner reference that makes Kueue treat the object as part of another, with the other's `uid`."""
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": "UID", "controller": True}]


def created(answer: Answer) -> str:
    assert answer.status == 201, answer.message
    return str(answer.content["metadata"]["uid"])


def pods_of(team: Credential, label: str) -> list[Object]:
    team_pods = team.read("Pod").content["items"]
    key, _, value = label.partition("=")
    return [pod for pod in team_pods if pod["metadata"].get("labels", {}).get(key) == value]


def running(team: Credential, label: str) -> bool:
    """Whether at least one pod exists and all run."""
    phases = [pod["status"].get("phase") for pod in pods_of(team, label)]
    return bool(phases) and set(phases) == {"Running"}


NO_QUEUE, NOT_ITS_QUEUE = "without a queue", "uses a queue that team-a does not have"
NOT_HELD, OWNER = "Kueue does not hold it", "which only controllers may write"
PRIORITY_NOT_ITS, BUCKET_NOT_ITS = "a priority class that team-a may not use", "a bucket that team-a may not use"
FOREIGN, FINALIZER = "which changes how Kueue counts it", "has a finalizer"
TOO_LONG = f"set terminationGracePeriodSeconds to {GRACE_SECONDS} or less"
SECRET_TYPE, UNLISTED = "a Secret of a type that teams may not create", "which teams may not set"
RBAC, EXCEEDED, UNKNOWN, FIXED = "cannot", "exceeded quota", "unknown field", "is queued as it was created"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def in_use(team: Credential) -> int:
    """GPUs of the team's pods on nodes, running or ending."""
    return sum(
        int(pod["spec"]["containers"][0]["resources"].get("limits", {}).get("nvidia.com/gpu", 0))
        for pod in team.read("Pod").content["items"]
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed")
    )


def counted_member(emulator: Emulator) -> Credential:
    """A member's client, once the quota of its namespace counts every kind of run."""
    member = Credential(emulator, "team-a")
    for item in (jobset(queue=OWN), train_job("first", OWN), ray_job("first", OWN), ray_cluster("first", OWN)):
        tries = partial(member.create, item, try_only=True)
        eventually(partial(taken, tries), f"the cluster takes a {item['kind']}", seconds=120)
    return member


def taken(create: Callable[[], Answer]) -> bool:
    """Whether an object is accepted. A quota that does not count its kind yet refuses it, and nothing else may."""
    answer = create()
    assert answer.status == 201 or "status unknown for quota" in answer.message, answer.message
    return answer.status == 201
