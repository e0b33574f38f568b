"""What a stack registers in its cluster: objects and Helm releases as plain data, each in the stage that applies it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from gke_ai.catalog.fabric.nvlink import DOMAIN_API
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import RUN_OWNER
from gke_ai.catalog.versions import KUEUE_API, KUEUE_CHART
from gke_ai.kube.objects import ApiObject
from gke_ai.kube.pods import templates
from gke_ai.kube.values import items, texts, value
from gke_ai.registered.types import RELEASE, SECRET
from gke_ai.review.report.changes import UNKNOWN, Resource
from gke_ai.review.report.preview import SECRET as MASKED
from gke_ai.terminal import Stop

KUEUE_GROUP, NVLINK_GROUP = KUEUE_API.partition("/")[0], DOMAIN_API.partition("/")[0]
RUNS = ("Job", "JobSet")
# Kinds whose requests are answered by pods of the same stage.
ANSWERED_BY_PODS = ("APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Stage(Enum):
    """The folders, in the order in which they are applied. Each needs what is in those before it."""

    NAMESPACES = "10-namespaces"
    BASE = "20-base"  # access, policies and whatever else needs no chart, such as the roles that a chart adopts
    CHARTS = "30-charts"  # they install the kinds and webhooks of queues, JobSets and ComputeDomains
    QUEUES = "40-queues"
    WORKLOADS = "50-workloads"
    RUNS = "60-runs"


@dataclass(frozen=True)
class KubernetesObject(ApiObject):
    """One object of the cluster, as the program registers it; `kept` if an `up` without it leaves it in the cluster."""

    kept: bool = False

    @property
    def is_run(self) -> bool:
        """Whether it is created once and never changed: Kueue admits and suspends it by writing into its spec."""
        return self.kind in RUNS

    @property
    def stage(self) -> Stage:
        """The stage that applies it."""
        if self.kind == "Namespace":
            return Stage.NAMESPACES
        if self.is_run:
            return Stage.RUNS
        if self.group in (KUEUE_GROUP, NVLINK_GROUP):
            return Stage.QUEUES
        if self.kind in ANSWERED_BY_PODS or any(True for _ in templates(self.kind, self.content)):
            return Stage.WORKLOADS
        return Stage.BASE

    @property
    def needs(self) -> Iterator[tuple[str, str, str]]:
        """Yields kind, namespace and name of the objects of Kueue that it names."""
        if queue := value(self.content, "metadata", "labels", QUEUE_LABEL):
            yield "LocalQueue", self.namespace, queue
        if self.kind == "LocalQueue":
            yield "ClusterQueue", "", value(self.content, "spec", "clusterQueue")
        if self.kind == "ResourceFlavor" and (topology := value(self.content, "spec", "topologyName")):
            yield "Topology", "", topology
        for group in items(self.content, "spec", "resourceGroups") if self.kind == "ClusterQueue" else ():
            for flavor in items(group, "flavors"):
                yield "ResourceFlavor", "", flavor["name"]


@dataclass(frozen=True)
class Release:
    """One Helm release with its chart and values. `registry` is an OCI registry, or a repository with an index."""

    name: str
    namespace: str
    registry: str
    chart: str
    version: str
    values: Mapping[str, Any]

    @property
    def is_oci(self) -> bool:
        """Whether its chart is in an OCI registry."""
        return self.registry.startswith("oci://")

    @property
    def has_crds(self) -> bool:
        """Whether its chart has CRDs in `crds/`. Those of Kueue's chart are templates."""
        return f"{self.registry}/{self.chart}" != KUEUE_CHART


@dataclass(frozen=True)
class MissingSecret:
    """A Secret that is not written, with the keys that pods of the stack read."""

    namespace: str
    name: str
    keys: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that creates it, with a placeholder for each value."""
        stated = [f"--from-literal={key}=VALUE" for key in self.keys or ("KEY",)]
        create = ["create", "secret", "generic", self.name, *stated]
        return shlex.join(["kubectl", "-n", self.namespace or "default", *create])


@dataclass(frozen=True)
class InCluster:
    """Everything that a stack registers in its cluster, in the order of its names."""

    objects: tuple[KubernetesObject, ...] = ()
    releases: tuple[Release, ...] = ()
    secrets: tuple[MissingSecret, ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """The stages that have an object or a release, in their order."""
        present = {*(item.stage for item in self.objects), *([Stage.CHARTS] if self.releases else [])}
        return [stage for stage in Stage if stage in present]


def in_cluster(resources: Iterable[Resource], next_up: str) -> InCluster:
    """Returns what resources register in the cluster.

    Stops if a value is known only after an update, for which `next_up` is the command, or if an object other than a
    Secret has a secret value.
    """
    kubernetes = sorted(
        (unowned(resource) for resource in resources if resource.type.startswith("kubernetes:") and not owns(resource)),
        key=lambda resource: (resource.kind, resource.name),
    )
    objects = [resource for resource in kubernetes if resource.type not in (RELEASE, SECRET)]
    releases = [resource for resource in kubernetes if resource.type == RELEASE]
    if without := [resource.title for resource in objects if not isinstance(value(resource.inputs, "kind"), str)]:
        raise Stop(f"{', '.join(without)} cannot be written as a manifest. Nothing was written.")
    refuse(UNKNOWN, [*objects, *releases], f"is known only after an update. Run {next_up}, then this again")
    refuse(MASKED, [*objects, *releases], "is secret, and would be in plain text in the repository. Use a Secret")
    written = tuple(KubernetesObject(resource.inputs, resource.retained) for resource in objects)
    secrets = (resource for resource in kubernetes if resource.type == SECRET)
    return InCluster(written, tuple(map(release, releases)), tuple(missing(secret, written) for secret in secrets))


def owns(resource: Resource) -> bool:
    """Whether the resource is the owner of runs, which has a meaning only for Pulumi."""
    return RUN_OWNER in (value(resource.inputs, "metadata", "annotations") or ())


def unowned(resource: Resource) -> Resource:
    """Returns the resource without the owner of a run, which Pulumi's deletion needs and only the cluster can name."""
    metadata = resource.inputs.get("metadata")
    if not isinstance(metadata, dict) or "ownerReferences" not in metadata:
        return resource
    kept = {key: given for key, given in metadata.items() if key != "ownerReferences"}
    return replace(resource, inputs={**resource.inputs, "metadata": kept})


def refuse(hidden: str, resources: Iterable[Resource], reason: str) -> None:
    """Stops with the path of each value that has the text `hidden`."""
    found = ((item.title, path, text) for item in resources for path, text in texts(item.inputs))
    if paths := [f"  {title}: {path}" for title, path, text in found if hidden in text]:
        raise Stop("\n".join(["Nothing was written:", *paths, f"Each of these values {reason}."]))


def release(resource: Resource) -> Release:
    """Returns a registered Helm release. Stops if its chart is in no registry and no repository."""
    inputs = resource.inputs
    address = str(inputs.get("chart"))
    if repository := value(inputs, "repositoryOpts", "repo"):
        address = f"{str(repository).rstrip('/')}/{address}"
    elif not address.startswith("oci://"):
        raise Stop(f"{resource.title}: the chart {address} is not in an OCI registry, so no tool finds it.")
    registry, _, chart = address.rpartition("/")
    name, namespace, version = (str(inputs[key]) for key in ("name", "namespace", "version"))
    return Release(name, namespace, registry, chart, version, inputs.get("values") or {})


def missing(secret: Resource, objects: Iterable[KubernetesObject]) -> MissingSecret:
    """Returns a Secret that is not written, with the keys that variables of pods in its namespace read."""
    name, namespace = str(value(secret.inputs, "metadata", "name")), value(secret.inputs, "metadata", "namespace") or ""
    references = (
        reference
        for item in objects
        if item.namespace == namespace
        for template in templates(item.kind, item.content)
        for containers in ("containers", "initContainers")
        for container in items(template, "spec", containers)
        for variable in items(container, "env")
        if isinstance(reference := value(variable, "valueFrom", "secretKeyRef"), Mapping)
    )
    keys = {str(reference["key"]) for reference in references if reference.get("name") == name}
    return MissingSecret(str(namespace), name, tuple(sorted(keys)))
