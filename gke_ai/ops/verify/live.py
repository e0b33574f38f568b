"""Reads the recorded stack and the objects of its cluster, for `gke-ai verify`.

Every request goes through `call`: `GET /PATH` and `POST /PATH` to the API of the cluster, anything else as a command
line. Only the key names of Secrets are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import JOBSET_API, JOBSET_CHART, KUEUE_API, KUEUE_CHART
from gke_ai.kube.client import Answer, ApiClient, objects_of, request
from gke_ai.kube.objects import Object
from gke_ai.kube.values import is_unset, items, mapping, value
from gke_ai.ops.doctor import requests
from gke_ai.ops.verify.nodes import daemon_requests
from gke_ai.registered.registration import Pod, RegisteredStack, Resource
from gke_ai.registered.types import BUCKET_GRANT, RELEASE

Call = Callable[..., Answer]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROBE = "gke-ai-verify"


@dataclass(frozen=True)
class Secret:
    """A Secret with the keys that pods of the stack read."""

    namespace: str
    name: str
    keys: frozenset[str]


@dataclass(frozen=True)
class Grant:
    """One permission that a RoleBinding of the stack gives to one of its subjects."""

    binding: str
    kind: str
    name: str
    home: str
    """Namespace of the subject, if it is a service account."""
    namespace: str
    group: str
    resource: str
    verb: str

    @property
    def member(self) -> str:
        """Name of the subject in the API server."""
        return f"system:serviceaccount:{self.home}:{self.name}" if self.kind == "ServiceAccount" else self.name

    @property
    def review(self) -> dict[str, Any]:
        """The SubjectAccessReview for this permission."""
        attributes = {"namespace": self.namespace, "group": self.group, "resource": self.resource, "verb": self.verb}
        who: dict[str, Any] = {"groups": [self.member]} if self.kind == "Group" else {"user": self.member}
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"resourceAttributes": attributes, **who},
        }


@dataclass
class Live:
    """The objects of a cluster that claims are compared with."""

    version: str = ""
    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    cluster_queues: list[Object] = field(default_factory=list)
    workloads: list[Object] = field(default_factory=list)
    webhooks: list[Object] = field(default_factory=list)
    endpoint_slices: list[Object] = field(default_factory=list)
    secret_keys: dict[tuple[str, str], frozenset[str] | str] = field(default_factory=dict)
    """Keys of each Secret, or why they cannot be read. A missing Secret has no entry."""
    rights: dict[Grant, bool | str] = field(default_factory=dict)
    """Whether each permission is granted, or why the review failed."""
    dry_runs: dict[str, Answer] = field(default_factory=dict)
    """Response to a dry-run create that calls the webhook of a release, by the chart of the release."""
    bucket_policies: dict[str, Answer] = field(default_factory=dict)

    @cached_property
    def daemon_requests(self) -> dict[str, dict[str, Fraction]]:
        """Requests of DaemonSet pods, by node and resource."""
        return daemon_requests(self.pods)


def recorded(resources: Sequence[Mapping[str, Any]]) -> RegisteredStack:
    """Returns the recorded resources of a stack: their inputs, and names that the provider generated."""
    found = []
    for item in resources:
        if not item.get("delete"):
            named = {key: output for key, output in (item.get("outputs") or {}).items() if key == "name"}
            props = named | (item.get("inputs") or {})
            found.append(Resource(item["urn"], item["type"], item["urn"].rpartition("::")[2], props))
    return RegisteredStack(found)


def take(stack: RegisteredStack, call: Call) -> Live:
    """Reads the objects of the cluster that the claims of a stack need."""
    live = Live(
        version=str((call("GET /version").body or {}).get("gitVersion", "")),
        nodes=list_objects(call, "/api/v1/nodes"),
        pods=list_objects(call, "/api/v1/pods"),
        events=list_objects(call, "/api/v1/events"),
        cluster_queues=list_objects(call, f"/apis/{KUEUE_API}/clusterqueues"),
        workloads=list_objects(call, f"/apis/{KUEUE_API}/workloads"),
    )
    for secret in secrets(stack):
        answer = call(f"GET /api/v1/namespaces/{secret.namespace}/secrets/{secret.name}")
        if answer.code == 200:
            live.secret_keys[secret.namespace, secret.name] = frozenset(answer.body.get("data") or {})
        elif answer.code != 404:
            live.secret_keys[secret.namespace, secret.name] = answer.reason
    for grant in grants(stack):
        answer = call(f"POST {REVIEWS}", grant.review)
        allowed = value(answer.body, "status", "allowed") is True
        live.rights[grant] = allowed if answer.code in (200, 201) else answer.reason
    if releases(stack):
        for path in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            live.webhooks += list_objects(call, f"/apis/admissionregistration.k8s.io/v1/{path}")
        live.endpoint_slices = list_objects(call, "/apis/discovery.k8s.io/v1/endpointslices")
        for chart, (path, body) in probes(stack).items():
            live.dry_runs[chart] = call(f"POST {path}?dryRun=All", body)
    for bucket in dict.fromkeys(str(grant.props.get("bucket")) for grant in stack.of_type(BUCKET_GRANT)):
        live.bucket_policies[bucket] = call(bucket_command(bucket))
    return live


def bucket_command(bucket: str) -> str:
    """Returns the command that reads the IAM policy of a bucket."""
    return f"gcloud storage buckets get-iam-policy gs://{bucket} --format=json"


def list_objects(call: Call, path: str) -> list[Object]:
    """Returns the objects under a path; an empty list if their kind is not installed."""
    return objects_of(call(f"GET {path}"), path)


def caller(api: ApiClient) -> Call:
    """Returns a function that calls the cluster of a client, and runs command lines."""

    def call(line: str, body: Mapping[str, Any] | None = None) -> Answer:
        method, _, path = line.partition(" ")
        if not path.startswith("/"):
            return requests.call(line)
        path, _, query = path.partition("?")
        return request(api, method, path, dict(parse_qsl(query)), body)

    return call


# ------------------------------------------------------------------------------------ what the recorded stack relies on
def secrets(stack: RegisteredStack) -> list[Secret]:
    """Returns the Secrets that pods of the stack need to start, with the keys that they read."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for pod in stack.pods:
        for name, key in _secret_keys(pod):
            wanted.setdefault((pod.owner.namespace, name), set()).update([key] if key else [])
    return [Secret(namespace, name, frozenset(keys)) for (namespace, name), keys in sorted(wanted.items())]


def _secret_keys(pod: Pod) -> Iterator[tuple[str, str]]:
    for container in pod.containers:
        for variable in items(container, "env"):
            reference = mapping(variable, "valueFrom", "secretKeyRef")
            if reference and reference.get("optional") is not True:
                yield str(reference.get("name")), str(reference.get("key"))
        for source in items(container, "envFrom"):
            reference = mapping(source, "secretRef")
            if reference and reference.get("optional") is not True:
                yield str(reference.get("name")), ""
    for volume in items(pod.spec, "volumes"):
        secret = mapping(volume, "secret")
        if secret and secret.get("optional") is not True:
            keys = [str(item.get("key")) for item in items(secret, "items")]
            yield from ((str(secret.get("secretName")), key) for key in keys or [""])


def grants(stack: RegisteredStack) -> list[Grant]:
    """Returns the permissions that RoleBindings of the stack give by its Roles: one verb per resource, create if the
    role allows it."""
    roles = {(role.namespace, role.object_name): role for role in stack.of_kind("Role")}
    granted = []
    for binding in stack.of_kind("RoleBinding"):
        role = roles.get((binding.namespace, str(value(binding.props, "roleRef", "name"))))
        for subject in items(binding.props, "subjects"):
            identity = str(subject["kind"]), str(subject["name"]), str(subject.get("namespace", binding.namespace))
            for rule in items(role.props, "rules") if role else []:
                verbs = [str(verb) for verb in rule.get("verbs") or []]
                for group in rule.get("apiGroups") or [""]:
                    for resource in rule.get("resources") or []:
                        verb = "create" if "create" in verbs else verbs[0]
                        granted.append(Grant(binding.path, *identity, binding.namespace, group, resource, verb))
    return granted


def releases(stack: RegisteredStack) -> dict[str, Resource]:
    """Returns the releases of Kueue and JobSet by chart."""
    charts = {str(release.props.get("chart")): release for release in stack.of_type(RELEASE)}
    return {chart: release for chart, release in charts.items() if chart in (KUEUE_CHART, JOBSET_CHART)}


def probes(stack: RegisteredStack) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns, by chart, the path and body of a create that calls the webhook of the release. A dry run stores
    nothing."""
    queue = next(stack.of_kind("LocalQueue"), None)
    installed = releases(stack)
    requests_by_chart: dict[str, tuple[str, dict[str, Any]]] = {}
    namespace = queue.namespace if queue else "default"
    labels = {QUEUE_LABEL: queue.object_name} if queue else {}
    metadata = {"name": PROBE, "namespace": namespace, "labels": labels}
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"metadata": {"labels": {"app": PROBE}}, "spec": spec}
    if KUEUE_CHART in installed and queue is not None:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}
        requests_by_chart[KUEUE_CHART] = (f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    if JOBSET_CHART in installed:
        replicated = {"name": "probe", "replicas": 1, "template": {"spec": {"template": pod}}}
        jobset = {"apiVersion": JOBSET_API, "kind": "JobSet", "metadata": metadata}
        jobset["spec"] = {"replicatedJobs": [replicated]}
        requests_by_chart[JOBSET_CHART] = (f"/apis/{JOBSET_API}/namespaces/{namespace}/jobsets", jobset)
    return requests_by_chart


def images(stack: RegisteredStack) -> dict[str, str]:
    """Returns the images of the stack's pods, each with the first resource that uses it."""
    owners: dict[str, str] = {}
    for pod in stack.pods:
        for container in pod.containers:
            image = container.get("image")
            if isinstance(image, str) and not is_unset(image):
                owners.setdefault(image, pod.owner.path)
    return owners
