"""What `ops.verify` reads: the stack as recorded, and the objects of its cluster as the API gives them.

Every request goes through `call`: `GET /PATH` and `POST /PATH` to the cluster's API, anything else is a command line.
Of Secrets only the names of their keys are kept.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from catalog.quota import QUEUE_LABEL
from catalog.versions import JOBSET_API, JOBSET_CHART, KUEUE_API, KUEUE_CHART
from ops.doctor import requests
from ops.stack import Answer, Object, objects_of, request
from resources.stack import Pod, Resource
from resources.stack import Stack as Recorded
from resources.types import BUCKET_GRANT, RELEASE
from resources.values import is_unset, items, mapping, value

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Call = Callable[..., Answer]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROBE = "gke-ai-verify"


@dataclass(frozen=True)
class Secret:
    """Keys of a Secret that pods of the stack read."""

    namespace: str
    name: str
    keys: frozenset[str]


@dataclass(frozen=True)
class Grant:
    """One right that a RoleBinding of the stack gives to one of its subjects."""

    binding: str
    kind: str
    name: str
    home: str
    """Namespace of a subject that is a service account."""
    namespace: str
    group: str
    resource: str
    verb: str

    @property
    def member(self) -> str:
        """The subject as the API server knows it."""
        return f"system:serviceaccount:{self.home}:{self.name}" if self.kind == "ServiceAccount" else self.name

    @property
    def review(self) -> dict[str, Any]:
        """The question whether the subject has the right."""
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
    """Keys of each Secret, or why they can't be read; no entry where there is no Secret."""
    rights: dict[Grant, bool | str] = field(default_factory=dict)
    """Whether each right is there, or why that can't be asked."""
    dry_runs: dict[str, Answer] = field(default_factory=dict)
    """The answer to a dry-run create that the webhook of a release takes part in, by the release's chart."""
    bucket_policies: dict[str, Answer] = field(default_factory=dict)


def recorded(resources: Sequence[Mapping[str, Any]]) -> Recorded:
    """The recorded resources of a stack, as policies read them: inputs, and names that the provider chose."""
    return Recorded(
        [
            Resource(
                resource["urn"],
                resource["type"],
                resource["urn"].rpartition("::")[2],
                {key: found for key, found in (resource.get("outputs") or {}).items() if key == "name"}
                | (resource.get("inputs") or {}),
            )
            for resource in resources
            if not resource.get("delete")
        ]
    )


def take(stack: Recorded, call: Call) -> Live:
    """Reads what the claims of a stack are about."""
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
        live.rights[grant] = (
            value(answer.body, "status", "allowed") is True if answer.code in (200, 201) else answer.reason
        )
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
    """The command that reads who has which role on a bucket."""
    return f"gcloud storage buckets get-iam-policy gs://{bucket} --format=json"


def list_objects(call: Call, path: str) -> list[Object]:
    """The objects under a path; none where the kind isn't installed."""
    return objects_of(call(f"GET {path}"), path)


def caller(api: ApiClient) -> Call:
    """Calls the cluster behind a client, and runs command lines."""

    def call(line: str, body: Mapping[str, Any] | None = None) -> Answer:
        method, _, path = line.partition(" ")
        if not path.startswith("/"):
            return requests.call(line)
        path, _, query = path.partition("?")
        return request(api, method, path, dict(parse_qsl(query)), body)

    return call


# ------------------------------------------------------------------------------------ what the recorded stack relies on
def secrets(stack: Recorded) -> list[Secret]:
    """Secrets that pods of the stack can't start without, and the keys that they read."""
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


def grants(stack: Recorded) -> list[Grant]:
    """The rights that RoleBindings of the stack give by Roles of the stack: one for each resource, to change it where
    the role allows that."""
    roles = {(role.namespace, role.object_name): role for role in stack.of_kind("Role")}
    found = []
    for binding in stack.of_kind("RoleBinding"):
        role = roles.get((binding.namespace, str(value(binding.props, "roleRef", "name"))))
        for subject in items(binding.props, "subjects"):
            who = str(subject["kind"]), str(subject["name"]), str(subject.get("namespace", binding.namespace))
            for rule in items(role.props, "rules") if role else []:
                verbs = [str(verb) for verb in rule.get("verbs") or []]
                for group in rule.get("apiGroups") or [""]:
                    for resource in rule.get("resources") or []:
                        verb = "create" if "create" in verbs else verbs[0]
                        found.append(Grant(binding.path, *who, binding.namespace, group, resource, verb))
    return found


def releases(stack: Recorded) -> dict[str, Resource]:
    """The releases of Kueue and JobSet by their charts."""
    charts = {str(one.props.get("chart")): one for one in stack.of_type(RELEASE)}
    return {chart: one for chart, one in charts.items() if chart in (KUEUE_CHART, JOBSET_CHART)}


def probes(stack: Recorded) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each release the path and body of a create that its webhook is called for; nothing is stored in a dry run."""
    queue = next(stack.of_kind("LocalQueue"), None)
    there = releases(stack)
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    namespace = queue.namespace if queue else "default"
    labels = {QUEUE_LABEL: queue.object_name} if queue else {}
    metadata = {"name": PROBE, "namespace": namespace, "labels": labels}
    pod = {
        "metadata": {"labels": {"app": PROBE}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "pause",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }
            ],
        },
    }
    if KUEUE_CHART in there and queue is not None:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}
        found[KUEUE_CHART] = (f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    if JOBSET_CHART in there:
        replicated = {"name": "probe", "replicas": 1, "template": {"spec": {"template": pod}}}
        jobset = {"apiVersion": JOBSET_API, "kind": "JobSet", "metadata": metadata}
        jobset["spec"] = {"replicatedJobs": [replicated]}
        found[JOBSET_CHART] = (f"/apis/{JOBSET_API}/namespaces/{namespace}/jobsets", jobset)
    return found


def images(stack: Recorded) -> dict[str, str]:
    """The images of the stack's own pods, each with the resource that first names it."""
    found: dict[str, str] = {}
    for pod in stack.pods:
        for container in pod.containers:
            image = container.get("image")
            if isinstance(image, str) and not is_unset(image):
                found.setdefault(image, pod.owner.path)
    return found


def moment(text: str) -> datetime.datetime:
    """A time as the API and Pulumi write it."""
    # Pulumi writes nanoseconds, of which Python reads six digits.
    return datetime.datetime.fromisoformat(re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text))


def seconds_between(since: Any, until: Any) -> float | None:
    """Seconds between two times; none where one is missing, or the later one comes first."""
    if not isinstance(since, str) or not isinstance(until, str):
        return None
    seconds = (moment(until) - moment(since)).total_seconds()
    return seconds if seconds >= 0 else None
