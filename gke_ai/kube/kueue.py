"""The Kueue of a cluster, in any namespace and with any name of its Deployment: what it is and what it can do.

Defaults: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/defaults.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read
from gke_ai.catalog.fabric.topology import is_supported
from gke_ai.catalog.kueue.cohort_tree import cycle
from gke_ai.catalog.kueue.configuration import DEFAULT_LIMIT_SECONDS, FRAMEWORKS, NO_LIMIT, Demand, limits_by_default
from gke_ai.catalog.kueue.namespaces import KUEUE, NAMESPACE_NAME
from gke_ai.catalog.selectors import matches
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import Answer, ApiClient, list_objects, request
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, list_at, mapping, value

# The manager's image, in any registry.
_IMAGE = re.compile(r"(?:.*/)?kueue:v?(\d+\.\d+\.\d+)(?:@.*)?")
_GATES, _CONFIG = "--feature-gates=", "--config="
# https://github.com/kubernetes-sigs/kueue, config/components/manager; the chart names both alike
CONFIG_MAP, KEY = "kueue-manager-config", "controller_manager_config.yaml"
# Of a v1beta1 configuration, which has a limit only with `enable`: apis/config/v1beta1/defaults.go there
OLD_API, OLD_LIMIT_SECONDS = "config.kueue.x-k8s.io/v1beta1", 300.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Manager:
    """The Deployment of Kueue's manager, and what its flags say."""

    version: str
    deployment: Object
    gates: Mapping[str, bool]
    file: str
    """Path of its configuration in the container; empty without one."""

    @property
    def config_map(self) -> str | None:
        """Name of the ConfigMap with its configuration; None without one."""
        volumes = self.deployment["spec"]["template"]["spec"].get("volumes") or []
        names = [volume["configMap"].get("name") for volume in volumes if "configMap" in volume]
        return str(names[0]) if names and self.file else None


@dataclass(frozen=True)
class Refusal:
    """Why a cluster can't do what a stack needs, and what its owner or the stack changes."""

    cause: str
    remedy: str
    path: str = "gke-ai:queues.kueue"
    """The key of the stack's configuration that expects it."""

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}. {self.remedy}."


@dataclass(frozen=True)
class ExistingKueue:
    """A Kueue in a cluster."""

    version: str
    namespace: str
    deployment: str
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Its manager's configuration; empty for all defaults."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    cluster_queues: Mapping[str, Object] | None = field(default_factory=dict)
    """Its cluster queues by name; None if it does not serve the API version that this program writes."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Parent of each of its cohorts; empty for a root."""

    @property
    def frameworks(self) -> Sequence[str]:
        """The kinds that it queues."""
        stated = list_at(self.configuration, "integrations", "frameworks")
        return tuple(name for name in stated if isinstance(name, str)) or (FRAMEWORKS["Job"],)

    @property
    def limit_seconds(self) -> float | None:
        """Time after admission in which all pods must be ready; None without a limit."""
        if {**mapping(self.configuration, "featureGates"), **self.gates}.get(NO_LIMIT):
            return None
        if self.configuration.get("waitForPodsReady") is None:
            return DEFAULT_LIMIT_SECONDS if limits_by_default(self.version) else None
        stated = mapping(self.configuration, "waitForPodsReady")
        old = self.configuration.get("apiVersion") == OLD_API
        if old and not stated.get("enable"):
            return None
        parts = _DURATION.findall(str(stated.get("timeout", "")))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        return seconds if parts else OLD_LIMIT_SECONDS if old else DEFAULT_LIMIT_SECONDS

    def manages(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it looks at workloads in a namespace with these labels."""
        stated = self.configuration.get("managedJobsNamespaceSelector")
        if stated is None:
            return namespace not in ("kube-system", self.namespace)
        return selects(stated, labels)

    def refusals(self, needed: Demand, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[Refusal]:
        """Yields what it can't do. `namespaces` are the labels of those that exist; the others get only their name."""

        def labels(namespace: str) -> Mapping[str, str]:
            return namespaces.get(namespace, {NAMESPACE_NAME: namespace})

        place = f"Kueue {self.version} in namespace {self.namespace}"
        if self.cluster_queues is None:
            yield Refusal(f"{place} does not serve {KUEUE_API}, which this stack writes", "Upgrade it to 0.16 or newer")
            return
        for namespace, name in needed.cluster_queues:
            if name not in self.cluster_queues:
                names = f"Name one of {', '.join(self.cluster_queues)}, or define" if self.cluster_queues else "Define"
                yield Refusal(
                    f"{place} has no cluster queue {name}: workloads of its local queue would wait forever",
                    f"{names} it in gke-ai:queues.clusterQueues",
                )
            elif not selects(value(self.cluster_queues[name], "spec", "namespaceSelector"), labels(namespace)):
                yield Refusal(
                    f"cluster queue {name} of {place} takes no workloads of namespace {namespace}: they would wait "
                    "forever",
                    f"Let its namespaceSelector select {namespace}, or name another cluster queue",
                )
        yield from self._lacks_of_shares(needed, place)
        for framework, workload in needed.frameworks.items():
            if framework not in self.frameworks:
                yield Refusal(
                    f"{place} does not queue {framework}: {workload} would run without quota, or never",
                    f"Add it to integrations.frameworks of its configuration: {', '.join(self.frameworks)}",
                )
        for namespace in needed.namespaces:
            if not self.manages(namespace, labels(namespace)):
                yield Refusal(
                    f"{place} leaves out namespace {namespace}: workloads there would pass their queue",
                    "Let managedJobsNamespaceSelector of its configuration select it by kubernetes.io/metadata.name",
                )
        if self.configuration.get("manageJobsWithoutQueueName"):
            # Kueue takes a Deployment without a queue for managed, and so its pods too, only if it queues Deployments:
            # https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/pkg/controller/jobs/pod/pod_webhook.go
            holds_servers = FRAMEWORKS["Pod"] in self.frameworks and FRAMEWORKS["Deployment"] not in self.frameworks
            held = [("Jobs", namespace) for namespace in needed.unqueued]
            held += [("pods", namespace) for namespace in needed.unqueued_servers if holds_servers]
            for noun, namespace in held:
                if self.manages(namespace, labels(namespace)):
                    also = "" if noun == "Jobs" else f", add {FRAMEWORKS['Deployment']} to integrations.frameworks"
                    yield Refusal(
                        f"{place} holds {noun} without a queue, and those of this stack in {namespace} have none: they "
                        "would never start",
                        f"Give them a queue{also}, or leave {namespace} out of managedJobsNamespaceSelector",
                    )
        limit = self.limit_seconds
        if limit is not None and (needed.start_seconds is None or needed.start_seconds > limit):
            slow = "may wait days for their nodes" if needed.start_seconds is None else f"take {needed.start_seconds} s"
            yield Refusal(
                f"{place} evicts workloads whose pods are not ready {limit:.0f} s after admission, and pods of this "
                f"stack {slow}: they would be evicted again and again",
                "Raise waitForPodsReady.timeout of its configuration",
            )
        if needed.topology and not is_supported(self.version):
            yield Refusal(
                f"{place} places by topology with faults that 0.19 fixes, and flavor {needed.topology} needs it: pods "
                "could be lost or counted twice",
                f"Upgrade it, or remove topology from flavor {needed.topology}",
            )
        if needed.has_tenants and self.namespace != KUEUE:
            yield Refusal(
                f"{place} can't serve tenants: their policy lets only controllers of {KUEUE} change their objects",
                f"Remove gke-ai:tenants, or install Kueue in {KUEUE}",
            )

    def _lacks_of_shares(self, needed: Demand, place: str) -> Iterator[Refusal]:
        """Yields what it lacks for the cohorts, weights and past usage of a stack."""
        parents = {**self.parents, **needed.parents}
        known = {*parents, *(str(value(queue, "spec", "cohortName")) for queue in (self.cluster_queues or {}).values())}
        for name, parent in needed.parents.items():
            path = f"gke-ai:queues.cohorts[{[*needed.parents].index(name)}].parent"
            if way := " → ".join(cycle(name, parents)):
                yield Refusal(
                    f"cohorts of {place} would close a cycle: {way}. Kueue would admit nothing in these cohorts",
                    f"Set another parent for {name}",
                    path,
                )
            elif parent and parent not in known:
                yield Refusal(
                    f"neither the stack nor {place} has cohort {parent}: Kueue would take it for one without limits",
                    f"Name one of {', '.join(sorted(self.parents))}"
                    if self.parents
                    else f"Add {parent} to the cohorts",
                    path,
                )
        if needed.weights and self.configuration.get("fairSharing") is None:
            yield Refusal(
                f"{place} does not share by weight: the weight of {needed.weights} would have no effect",
                "Add fairSharing to its configuration, or remove the weights",
            )
        if needed.by_usage and self.configuration.get("admissionFairSharing") is None:
            yield Refusal(
                f"{place} counts no past usage: {needed.by_usage} would order by priority alone",
                "Add admissionFairSharing to its configuration, or remove admissionMode",
            )


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a namespace selector of Kueue selects labels. Without one, a cluster queue selects nothing."""
    parts = {"matchLabels": mapping(selector, "matchLabels"), "matchExpressions": items(selector, "matchExpressions")}
    return isinstance(selector, Mapping) and matches(parts, labels)


def manager(deployments: Iterable[Object]) -> Manager | None:
    """Returns the manager among the Deployments of a cluster; None if there is none."""
    for deployment in deployments:
        for container in deployment.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            if match := _IMAGE.fullmatch(str(container.get("image"))):
                flags = [str(word) for word in container.get("args") or []]
                gates = [gate.partition("=") for flag in _values(flags, _GATES) for gate in flag.split(",")]
                stated = {name: text.lower() == "true" for name, _, text in gates}
                return Manager(match[1], deployment, stated, next(_values(flags, _CONFIG), ""))
    return None


def _values(flags: Iterable[str], name: str) -> Iterator[str]:
    return (flag.removeprefix(name) for flag in flags if flag.startswith(name))


def installed(api: ApiClient) -> ExistingKueue | None:
    """Returns the Kueue of a cluster; None if it has none. Stops if the cluster does not answer."""
    found = manager(list_objects(api, "/apis/apps/v1/deployments"))
    if found is None:
        return None
    meta, configuration = found.deployment["metadata"], None
    if found.config_map:
        path, key = place(found)
        configuration = read_configuration(request(api, "GET", path), key)
    served = request(api, "GET", f"/apis/{KUEUE_API}/clusterqueues")
    queues = {queue["metadata"]["name"]: queue for queue in served.body["items"]} if served.code == 200 else None
    cohorts = request(api, "GET", f"/apis/{KUEUE_API}/cohorts")
    parents = {
        cohort["metadata"]["name"]: str(value(cohort, "spec", "parentName") or "")
        for cohort in (items(cohorts.body, "items") if cohorts.code == 200 else ())
    }
    name = meta["name"]
    return ExistingKueue(found.version, meta["namespace"], name, configuration or {}, found.gates, queues, parents)


def place(found: Manager | None) -> tuple[str, str]:
    """Returns the API path of the ConfigMap with Kueue's configuration, and its key there."""
    if found is None or not found.config_map:
        return f"/api/v1/namespaces/{KUEUE}/configmaps/{CONFIG_MAP}", KEY
    namespace = found.deployment["metadata"]["namespace"]
    return f"/api/v1/namespaces/{namespace}/configmaps/{found.config_map}", found.file.rpartition("/")[2]


def read_configuration(answer: Answer, key: str) -> dict[str, Any] | None:
    """Returns the configuration in the answer for a ConfigMap; None if the cluster has none or does not show it."""
    text = (answer.body.get("data") or {}).get(key) if answer.code == 200 else None
    try:
        content = read(text or "", Reader.KUBECTL)[0]
    except (InvalidDocument, IndexError):
        return None
    return content if isinstance(content, dict) else None
