"""Each claim that a stack relies on against what its cluster says: pass, fail, not seen yet, or not checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from catalog import features
from catalog.capacity import MODES
from catalog.machines import MACHINES
from catalog.nodes import (
    COMPUTE_CLASS,
    GKE_ACCELERATOR,
    GKE_ACCELERATOR_COUNT,
    GKE_GPU_DRIVER_VERSION,
    GKE_NODEPOOL,
    GKE_TPU_ACCELERATOR,
    GKE_TPU_TOPOLOGY,
    NodeShape,
    node_labels,
    node_taints,
)
from catalog.quantities import format_quantity, parse_quantity, readable
from catalog.versions import KUEUE_CHART
from ops.stack import Object, kubectl
from ops.status import condition, label
from ops.verify_live import Grant, Live, bucket_command, images, releases, seconds_between, secrets
from ops.verify_nodes import NodeGroup, allocatable_of, amounts, daemon_requests, free_of, groups, is_ready
from resources.pools import flavor_pools, node_shape
from resources.stack import Resource, selects
from resources.stack import Stack as Recorded
from resources.types import BUCKET_GRANT, CLUSTER, NODE_POOL
from resources.values import items, mapping, value
from resources.workloads import ACCELERATORS, nominal_quotas
from settings.calibration import MEASURED, Calibration

PASS, FAIL, UNSEEN, UNCHECKED = "pass", "fail", "not seen yet", "not checked"
# Taints that come and go with the state of a node: https://kubernetes.io/docs/reference/labels-annotations-taints/,
# https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
# and the request of a node that queued provisioning brought: https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "autoscaling.gke.io/")
AUTOSCALER_TAINTS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
# What tells the accelerators of a node that GKE sizes by itself.
ACCELERATOR_LABELS = (GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, GKE_TPU_TOPOLOGY, GKE_ACCELERATOR_COUNT, COMPUTE_CLASS)
PULL_ERRORS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True)
class Check:
    """One claim: what the stack relies on, what the cluster has, and for what can't be compared, `step` to do."""

    state: str
    claim: str
    subject: str
    relied_on: str
    found: str
    step: str = ""


@dataclass
class Verification:
    """One comparison of a recorded stack with its cluster."""

    stack: Recorded
    live: Live
    measured: Calibration = field(default_factory=Calibration)

    def checks(self) -> list[Check]:
        """Every claim, in the order of a deployment."""
        parts = (self.versions, self.webhooks, self.grants, self.buckets, self.secrets, self.nodes, self.quotas)
        return [check for part in (*parts, self.images, self.servers) for check in part()]

    # ---------------------------------------------------------------------------------------------------------- cluster
    def versions(self) -> Iterator[Check]:
        """Control plane and nodes are no older than each feature of the stack needs."""
        kubelets = [str(value(node, "status", "nodeInfo", "kubeletVersion")) for node in self.live.nodes]
        oldest = min(kubelets, key=features.ordered, default="")
        for feature in features_of(self.stack):
            needed = features.MINIMUM[feature]
            relied_on = f"{needed} or newer"
            for subject, version in (("control plane", self.live.version), ("oldest node", oldest)):
                if not version:
                    shows = "a node" if subject == "oldest node" else "a control plane that answers GET /version"
                    yield Check(UNSEEN, "GKE version", f"{subject} for {feature}", relied_on, "–", shows)
                    continue
                # A control plane without GKE's suffix, as of the emulator, is compared by Kubernetes's version alone.
                have, need = features.ordered(version), features.ordered(needed)
                enough = have >= need[: len(have)]
                yield Check(
                    PASS if enough else FAIL,
                    "GKE version",
                    f"{subject} for {feature}",
                    relied_on,
                    version,
                    "" if enough else "upgrade the cluster, or leave the feature out",
                )

    def webhooks(self) -> Iterator[Check]:
        """The webhooks of Kueue and JobSet are registered, have an endpoint, and take part in a dry-run create."""
        for chart, release in releases(self.stack).items():
            namespace = str(release.props.get("namespace"))
            name = chart.rpartition("/")[2]
            services = {
                str(service.get("name"))
                for configuration in self.live.webhooks
                for webhook in items(configuration, "webhooks")
                if (service := mapping(webhook, "clientConfig", "service")).get("namespace") == namespace
            }
            silent = sorted(service for service in services if not self._endpoints(namespace, service))
            answer = self.live.dry_runs.get(chart)
            relied_on, step = "answers a dry-run create", f"{kubectl()} -n {namespace} get pods,endpointslices"
            state, found = PASS, "answers"
            if not services:
                state, found = FAIL, "no webhook is registered"
            elif silent:
                state, found = FAIL, f"no ready endpoint of Service {', '.join(silent)}"
            elif answer is None:
                state, found, step = UNCHECKED, "–", "no local queue to create a Job in"
            elif answer.code not in (200, 201):
                state = FAIL if "webhook" in answer.error else UNCHECKED
                found = answer.reason
            elif chart == KUEUE_CHART and value(answer.body, "spec", "suspend") is not True:
                state, found = FAIL, "a Job with a queue is not suspended"
            yield Check(state, "webhook", f"{name} in {namespace}", relied_on, found, "" if state == PASS else step)

    def _endpoints(self, namespace: str, service: str) -> int:
        return sum(
            value(endpoint, "conditions", "ready") is not False
            for one in self.live.endpoint_slices
            if one["metadata"]["namespace"] == namespace and label(one, "kubernetes.io/service-name") == service
            for endpoint in one.get("endpoints") or []
        )

    # ----------------------------------------------------------------------------------------------------------- rights
    def grants(self) -> Iterator[Check]:
        """The subjects of the stack's RoleBindings have the rights that its roles give."""
        by_subject: dict[tuple[str, str], list[Grant]] = defaultdict(list)
        for grant in self.live.rights:
            by_subject[grant.binding, grant.member].append(grant)
        for (binding, member), rights in by_subject.items():
            subject, relied_on = f"{binding} for {member}", f"{len(rights)} rights"
            unknown = [text for right in rights if isinstance(text := self.live.rights[right], str)]
            missing = [right for right in rights if self.live.rights[right] is False]
            first = (missing or rights)[0]
            as_whom = f"--as-group={member} --as=any" if first.kind == "Group" else f"--as={member}"
            resource = f"{first.resource}.{first.group}" if first.group else first.resource
            step = f"{kubectl()} auth can-i {first.verb} {resource} -n {first.namespace} {as_whom}"
            if missing:
                lacking = ", ".join(f"{right.verb} {right.resource}" for right in missing[:3])
                more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
                yield Check(FAIL, "grant", subject, relied_on, f"may not {lacking}{more}", step)
            elif unknown:
                yield Check(UNCHECKED, "grant", subject, relied_on, unknown[0], step)
            else:
                yield Check(PASS, "grant", subject, relied_on, f"{len(rights)} rights")

    def buckets(self) -> Iterator[Check]:
        """Members have their roles on buckets, as far as the buckets' policies can be read."""
        for grant in self.stack.of_type(BUCKET_GRANT):
            bucket, role, member = (str(grant.props.get(key)) for key in ("bucket", "role", "member"))
            answer = self.live.bucket_policies.get(bucket)
            subject, relied_on = f"bucket {bucket}", f"{role} for {member}"
            if answer is None or answer.code or not isinstance(answer.body, Mapping):
                yield Check(UNCHECKED, "grant", subject, relied_on, "–", bucket_command(bucket))
                continue
            there = sorted(
                str(one.get("role")) for one in items(answer.body, "bindings") if member in (one.get("members") or [])
            )
            found = ", ".join(there) or "no role"
            yield Check(
                PASS if role in there else FAIL,
                "grant",
                subject,
                relied_on,
                found,
                "" if role in there else bucket_command(bucket),
            )

    def secrets(self) -> Iterator[Check]:
        """Secrets that pods read have the keys that they read; values are not looked at."""
        for secret in secrets(self.stack):
            subject = f"Secret {secret.namespace}/{secret.name}"
            relied_on = f"keys {', '.join(sorted(secret.keys))}" if secret.keys else "there"
            step = f"{kubectl()} -n {secret.namespace} describe secret {secret.name}"
            keys = self.live.secret_keys.get((secret.namespace, secret.name))
            if isinstance(keys, str):
                yield Check(UNCHECKED, "secret", subject, relied_on, keys, step)
            elif keys is None:
                yield Check(FAIL, "secret", subject, relied_on, "no such Secret", step)
            else:
                enough = secret.keys <= keys
                found = f"keys {', '.join(sorted(keys))}" if keys else "no keys"
                yield Check(PASS if enough else FAIL, "secret", subject, relied_on, found, "" if enough else step)

    # ------------------------------------------------------------------------------------------------------------ nodes
    def nodes(self) -> Iterator[Check]:
        """Labels, taints, drivers, accelerators, allocatable and DaemonSets of the nodes of each group."""
        for group in groups(self.stack, self.live.nodes):
            shaped = list(group.shaped())
            if unknown := group.unknown():
                step = "add the machine type to catalog/machines.py"
                yield Check(FAIL, "machine", group.title, "a machine of the catalog", ", ".join(unknown), step)
            elif not shaped:
                yield Check(UNSEEN, "nodes", group.title, "labels, taints and sizes of the catalog", "–", group.shows)
            if not shaped:
                continue
            yield from self._choices(group, shaped)
            yield from self._labels(group, shaped)
            yield from self._taints(group, shaped)
            yield from self._accelerators(group, shaped)
            yield from self._sizes(group, shaped)

    def _choices(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """The machine and capacity of each node of a compute class is one of its priorities."""
        if not group.choices:
            return
        relied_on = ", ".join(f"{machine} {capacity}" for machine, capacity in group.choices)
        others = [shape for _, shape in shaped if (shape.machine_type, shape.capacity) not in group.choices]
        found = sorted({f"{one.machine_type} {one.capacity}" for one in others or [shape for _, shape in shaped]})
        yield Check(FAIL if others else PASS, "choice", group.title, relied_on, ", ".join(found))

    def _labels(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """Labels that the catalog says; one fail for each that differs, the version of the driver on its own."""
        wrong: dict[str, tuple[str, str, int]] = {}
        expected: dict[str, str] = {}
        for node, shape in shaped:
            for key, text in node_labels(shape).items():
                if not group.whole and key not in ACCELERATOR_LABELS:
                    continue  # Google's choice, the version of the driver included
                expected[key] = text
                if (found := label(node, key)) != text:
                    count = wrong[key][2] + 1 if key in wrong else 1
                    wrong[key] = (text, found or "no such label", count)
        for key, (text, found, count) in wrong.items():
            claim = "driver" if key == GKE_GPU_DRIVER_VERSION else "label"
            yield Check(FAIL, claim, f"{group.title}: {key}", text, f"{found}{_on(count, len(shaped))}")
        if GKE_GPU_DRIVER_VERSION in expected and GKE_GPU_DRIVER_VERSION not in wrong:
            text = expected[GKE_GPU_DRIVER_VERSION]
            yield Check(PASS, "driver", f"{group.title}: {GKE_GPU_DRIVER_VERSION}", text, text)
        good = len(expected.keys() - wrong.keys() - {GKE_GPU_DRIVER_VERSION})
        if good:
            yield Check(PASS, "label", group.title, f"{good} labels", f"{good} labels{_on(len(shaped), len(shaped))}")

    def _taints(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        wrong = []
        for node, shape in shaped:
            wanted = {_taint(one.key, one.value, one.effect) for one in (*node_taints(shape), *group.declared)}
            there = {
                _taint(one["key"], one.get("value", ""), one["effect"])
                for one in node["spec"].get("taints") or []
                if not one["key"].startswith(PASSING_TAINTS) and one["key"] not in AUTOSCALER_TAINTS
            }
            if wanted != there:
                wrong.append((wanted, there))
        wanted, there = wrong[0] if wrong else (wanted, there)
        found = ", ".join(sorted(there)) or "none"
        on = _on(len(wrong) or len(shaped), len(shaped))
        state = FAIL if wrong else PASS
        yield Check(state, "taint", group.title, ", ".join(sorted(wanted)) or "none", f"{found}{on}")

    def _accelerators(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """GPUs and TPU chips that the device plugin reports."""
        for resource in ACCELERATORS:
            counts = [
                (self.measured.allocatable(shape)[resource], str(allocatable_of(node).get(resource, "0")))
                for node, shape in shaped
                if resource in self.measured.allocatable(shape)
            ]
            wrong = [pair for pair in counts if parse_quantity(pair[0]) != parse_quantity(pair[1])]
            for wanted, found in (wrong or counts)[:1]:
                on = _on(len(wrong) or len(counts), len(counts))
                # GKE installs the driver once the node is ready, and the device plugin reports GPUs after that.
                step = "if a node is minutes old, wait for its driver and run this again" if wrong else ""
                subject, relied_on = f"{group.title}: {resource}", f"{wanted} a node"
                yield Check(FAIL if wrong else PASS, "accelerators", subject, relied_on, f"{found}{on}", step)

    def _sizes(self, group: NodeGroup, shaped: list[tuple[Object, NodeShape]]) -> Iterator[Check]:
        """Allocatable of each machine type is no less than planned, requests of DaemonSets no more."""
        by_machine: dict[str, list[tuple[Object, NodeShape]]] = defaultdict(list)
        for node, shape in shaped:
            by_machine[shape.machine_type].append((node, shape))
        for machine_type, members in by_machine.items():
            subject = f"{group.title}: {machine_type}"
            shape = members[0][1]
            planned = amounts(self.measured.allocatable(shape))
            room = amounts(self.measured.room(shape))
            accelerated = bool(shape.gpu or MACHINES[machine_type].tpu)
            requests = [daemon_requests(node, self.live.pods) for node, _ in members]
            for resource in MEASURED:
                if resource == "ephemeral-storage" and not group.whole:
                    continue  # the boot disk is GKE's choice
                least = min(amounts(allocatable_of(node)).get(resource, Fraction(0)) for node, _ in members)
                relied_on, found = both(resource, planned[resource], least)
                state = PASS if least >= planned[resource] else FAIL
                yield Check(state, f"allocatable {resource}", subject, f"at least {relied_on}", found)
                if not accelerated:
                    continue
                deducted = planned[resource] - room[resource]
                most = max(taken.get(resource, Fraction(0)) for taken in requests)
                relied_on, found = both(resource, deducted, most)
                state = PASS if most <= deducted else FAIL
                yield Check(state, f"DaemonSets {resource}", subject, f"at most {relied_on}", found)

    # ----------------------------------------------------------------------------------------------------------- queues
    def quotas(self) -> Iterator[Check]:
        """Quotas are the recorded ones, and no more than the real nodes of each flavor have for pods."""
        live = {queue["metadata"]["name"]: nominal_quotas(queue) for queue in self.live.cluster_queues}
        granted: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for queue in self.stack.of_kind("ClusterQueue"):
            wanted, there = nominal_quotas(queue.props), live.get(queue.object_name, {})
            wrong = [key for key in wanted if wanted[key] != there.get(key)]
            for key in wanted:
                granted[key] += there.get(key, Fraction(0))
            for flavor, resource in wrong:
                amount = there.get((flavor, resource))
                found = "no quota" if amount is None else both(resource, wanted[flavor, resource], amount)[1]
                relied_on = both(resource, wanted[flavor, resource], amount or Fraction(0))[0]
                step = f"{kubectl()} get clusterqueue {queue.object_name} -o yaml"
                subject = f"queue {queue.object_name}: {flavor} {resource}"
                yield Check(FAIL, "quota", subject, relied_on, found, step)
            if good := len(wanted) - len(wrong):
                yield Check(PASS, "quota", f"queue {queue.object_name}", f"{good} quotas", f"{good} quotas")
        for flavor_resource in self.stack.of_kind("ResourceFlavor"):
            yield from self._flavor(flavor_resource, granted)

    def _flavor(self, flavor: Resource, granted: Mapping[tuple[str, str], Fraction]) -> Iterator[Check]:
        """What queues give out of a flavor, against its nodes as they are, each pool at its largest."""
        pools = flavor_pools(flavor, self.stack)
        if pools is None:
            return  # nodes come as pods ask for them
        have: dict[str, Fraction] = defaultdict(Fraction)
        for shape, max_nodes in pools:
            own = [node for node in self.live.nodes if label(node, GKE_NODEPOOL) == shape.pool and is_ready(node)]
            if not own:
                shows = f"a node of pool {shape.pool}"
                subject = f"flavor {flavor.object_name}"
                yield Check(UNSEEN, "quota", subject, "quota within what nodes have", "–", shows)
                return
            free = [free_of(node, self.live.pods) for node in own]
            planned = amounts(self.measured.allocatable(shape))
            for resource in planned:
                # Accelerators that a node lacks are a claim of their own.
                least = min(one.get(resource, Fraction(0)) for one in free)
                have[resource] += (planned[resource] if resource in ACCELERATORS else least) * max_nodes
        for (name, resource), amount in granted.items():
            if name == flavor.object_name:
                relied_on, found = both(resource, amount, have[resource])
                state = PASS if amount <= have[resource] else FAIL
                subject = f"flavor {name}: {resource} of its nodes"
                yield Check(state, "quota", subject, f"at least {relied_on}", found)

    # ------------------------------------------------------------------------------------------------------------- pods
    def images(self) -> Iterator[Check]:
        """Each image of the stack's own pods was pulled; one that is pinned, under its digest."""
        for image, owner in images(self.stack).items():
            statuses = list(image_statuses(image, self.live.pods))
            waiting = [mapping(one, "state", "waiting") for one in statuses]
            errors = [one for one in waiting if one.get("reason") in PULL_ERRORS]
            ran = [
                one for one in statuses if "waiting" not in (one.get("state") or {"waiting": 1}) or one.get("imageID")
            ]
            pulled = sorted({str(one.get("imageID")) for one in ran if one.get("imageID")})
            digest = image.partition("@")[2]
            if errors:
                found = f"{errors[0].get('reason')}: {errors[0].get('message', '')}".strip(": ")
                yield Check(FAIL, "image", owner, image, found[:300])
            elif not ran:
                yield Check(UNSEEN, "image", owner, image, "–", f"a running pod of {owner}")
            elif digest and pulled and not any(one.endswith(digest) for one in pulled):
                yield Check(FAIL, "image", owner, image, pulled[0])
            else:
                yield Check(PASS, "image", owner, image, ", ".join(pulled) or "its container runs")

    def servers(self) -> Iterator[Check]:
        """Each server loads its model within the time that its startup probe allows."""
        for deployment in self.stack.of_kind("Deployment"):
            for container, seconds in startup_probes(deployment):
                relied_on = f"ready within {seconds} s"
                pods = pods_of(deployment, self.live.pods)
                took = [one for pod in pods if (one := load_seconds(pod, container)) is not None]
                failing = [
                    status
                    for pod in pods
                    for status in items(pod, "status", "containerStatuses")
                    if status.get("name") == container and status.get("restartCount") and not status.get("ready")
                ]
                slow = max(took, default=0)
                if failing:
                    found = f"not ready after {failing[0]['restartCount']} restarts"
                    step = f"{kubectl()} -n {deployment.namespace} logs deployment/{deployment.object_name} --previous"
                    yield Check(FAIL, "model load", deployment.path, relied_on, found, step)
                elif not took:
                    yield Check(UNSEEN, "model load", deployment.path, relied_on, "–", "a replica that is ready")
                else:
                    state = PASS if slow <= seconds else FAIL
                    yield Check(state, "model load", deployment.path, relied_on, f"{slow:.0f} s")


def _on(count: int, total: int) -> str:
    return f" (on {count} of {total} nodes)" if total > 1 else ""


def both(resource: str, one: Fraction, other: Fraction) -> tuple[str, str]:
    """Two amounts as people read them, with enough digits to tell them apart."""
    short = readable(resource, one), readable(resource, other)
    if one == other or short[0] != short[1]:
        return short
    return format_quantity(resource, one), format_quantity(resource, other)


def _taint(key: str, text: str, effect: str) -> str:
    return f"{key}={text}:{effect}"


# ----------------------------------------------------------------------------------------------------------------- pods
def image_statuses(image: str, pods: list[Object]) -> Iterator[Mapping[str, Any]]:
    """The statuses of containers that run an image."""
    for pod in pods:
        containers = [*items(pod, "spec", "initContainers"), *items(pod, "spec", "containers")]
        names = {one.get("name") for one in containers if one.get("image") == image}
        statuses = [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]
        yield from (status for status in statuses if status.get("name") in names)


def pods_of(deployment: Resource, pods: list[Object]) -> list[Object]:
    """The pods of a recorded Deployment."""
    selector = mapping(deployment.props, "spec", "selector", "matchLabels")
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == deployment.namespace
        and selects(selector, pod["metadata"].get("labels") or {})
    ]


def startup_probes(deployment: Resource) -> Iterator[tuple[str, int]]:
    """Containers of a Deployment that have a startup probe, and the seconds that it allows."""
    for container in items(deployment.props, "spec", "template", "spec", "containers"):
        probe = mapping(container, "startupProbe")
        if probe:
            # Defaults: https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
            failures, period = int(probe.get("failureThreshold", 3)), int(probe.get("periodSeconds", 10))
            yield str(container.get("name")), int(probe.get("initialDelaySeconds", 0)) + failures * period


def load_seconds(pod: Object, container: str) -> float | None:
    """Seconds from the start of a pod's container to the pod's readiness; none where it is not ready, or was
    restarted."""
    for status in items(pod, "status", "containerStatuses"):
        if status.get("name") == container and not status.get("restartCount"):
            ready = condition(pod, "Ready")
            if ready.get("status") == "True":
                return seconds_between(value(status, "state", "running", "startedAt"), ready.get("lastTransitionTime"))
    return None


# ------------------------------------------------------------------------------------------------------------- versions
def features_of(stack: Recorded) -> list[str]:
    """Features among the recorded resources that not every version of GKE has."""
    pools = list(stack.of_type(NODE_POOL))
    elastic = [shape for pool in pools if (shape := node_shape(pool)) and MODES[shape.capacity].elastic]
    classes = list(stack.of_kind("ComputeClass"))
    metrics = [
        component
        for cluster in stack.of_type(CLUSTER)
        for component in value(cluster.props, "monitoringConfig", "enableComponents") or []
    ]
    wanted = {
        features.FLEX_START: any(shape.gpu for shape in elastic),
        features.FLEX_START_TPU: any(not shape.gpu for shape in elastic),
        features.COMPUTE_CLASS: bool(classes),
        features.COMPUTE_CLASS_FLEX_START: any(
            mapping(priority, "flexStart") for one in classes for priority in items(one.props, "spec", "priorities")
        ),
        features.COMPUTE_CLASS_POOLS: any(
            value(one.props, "spec", "nodePoolAutoCreation", "enabled") is True for one in classes
        ),
        features.SECRET_SYNC: any(stack.of_kind("SecretSync")),
        features.JOBSET_METRICS: "JOBSET" in metrics,
    }
    return [feature for feature, needed in wanted.items() if needed]
