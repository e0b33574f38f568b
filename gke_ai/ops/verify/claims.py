"""All claims of a stack about its cluster: versions, webhooks, grants, buckets, secrets and quotas stand here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gke_ai.catalog.machines import features
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.nodes.shape import ACCELERATORS, GKE_NODEPOOL
from gke_ai.catalog.versions import KUEUE_CHART
from gke_ai.kube.objects import holds, label
from gke_ai.kube.queues import quotas_of
from gke_ai.kube.values import items, mapping, number, value
from gke_ai.ops.verify.checks import FAIL, PASS, UNCHECKED, UNSEEN, Check, both, judged
from gke_ai.ops.verify.live import Grant, bucket_command, releases, secrets
from gke_ai.ops.verify.node_claims import NodeClaims
from gke_ai.ops.verify.nodes import free_of
from gke_ai.ops.verify.pod_claims import PodClaims
from gke_ai.registered.pools import flavor_pools, node_shape
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import BUCKET_GRANT, CLUSTER, HORIZONTAL_POD_AUTOSCALER, NODE_POOL
from gke_ai.registered.workloads import class_choice
from gke_ai.workspace.stack import kubectl


@dataclass
class Verification(NodeClaims, PodClaims):
    """All claims of a recorded stack about its cluster."""

    def checks(self) -> list[Check]:
        """Checks every claim, in the order of a deployment."""
        parts = (self.versions, self.webhooks, self.grants, self.buckets, self.secrets, self.nodes, self.quotas)
        return [check for part in (*parts, self.images, self.servers) for check in part()]

    # ---------------------------------------------------------------------------------------------------------- cluster
    def versions(self) -> Iterator[Check]:
        """The control plane and the nodes have the version that each feature of the stack needs."""
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
                # The emulator's version has no GKE suffix, so only the Kubernetes version is compared.
                have, need = features.ordered(version), features.ordered(needed)
                step = "upgrade the cluster, or remove the feature from the configuration"
                enough = have >= need[: len(have)]
                yield judged(enough, "GKE version", f"{subject} for {feature}", relied_on, version, step)

    def webhooks(self) -> Iterator[Check]:
        """The webhooks of Kueue and JobSet are registered, have an endpoint, and answer a dry-run create."""
        for chart, release in releases(self.stack).items():
            namespace = str(release.props.get("namespace"))
            name = chart.rpartition("/")[2]
            webhooks = (webhook for found in self.live.webhooks for webhook in items(found, "webhooks"))
            called = [mapping(webhook, "clientConfig", "service") for webhook in webhooks]
            services = {str(service.get("name")) for service in called if service.get("namespace") == namespace}
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
        inside = (found for found in self.live.endpoint_slices if found["metadata"]["namespace"] == namespace)
        own = (found for found in inside if label(found, "kubernetes.io/service-name") == service)
        endpoints = (endpoint for found in own for endpoint in found.get("endpoints") or [])
        return sum(value(endpoint, "conditions", "ready") is not False for endpoint in endpoints)

    # ----------------------------------------------------------------------------------------------------------- rights
    def grants(self) -> Iterator[Check]:
        """The subjects of the stack's RoleBindings have the permissions of its roles."""
        by_subject: dict[tuple[str, str], list[Grant]] = defaultdict(list)
        for grant in self.live.rights:
            by_subject[grant.binding, grant.member].append(grant)
        for (binding, member), rights in by_subject.items():
            subject, relied_on = f"{binding} for {member}", f"{len(rights)} rights"
            unknown = [text for right in rights if isinstance(text := self.live.rights[right], str)]
            missing = [right for right in rights if self.live.rights[right] is False]
            first = (missing or rights)[0]
            impersonation = f"--as-group={member} --as=any" if first.kind == "Group" else f"--as={member}"
            resource = f"{first.resource}.{first.group}" if first.group else first.resource
            step = f"{kubectl()} auth can-i {first.verb} {resource} -n {first.namespace} {impersonation}"
            if unknown and not missing:
                yield Check(UNCHECKED, "grant", subject, relied_on, unknown[0], step)
                continue
            lacking = ", ".join(f"{right.verb} {right.resource}" for right in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            found = f"may not {lacking}{more}" if missing else relied_on
            yield judged(not missing, "grant", subject, relied_on, found, step)

    def buckets(self) -> Iterator[Check]:
        """Members have their roles on buckets. Not checked without permission to read the bucket's IAM policy."""
        for grant in self.stack.of_type(BUCKET_GRANT):
            bucket, role, member = (str(grant.props.get(key)) for key in ("bucket", "role", "member"))
            answer = self.live.bucket_policies.get(bucket)
            subject, relied_on = f"bucket {bucket}", f"{role} for {member}"
            if answer is None or answer.code or not isinstance(answer.body, Mapping):
                yield Check(UNCHECKED, "grant", subject, relied_on, "–", bucket_command(bucket))
                continue
            bindings = [item for item in items(answer.body, "bindings") if member in (item.get("members") or [])]
            there = [(str(item.get("role")), str(value(item, "condition", "expression") or "")) for item in bindings]
            texts = (f"{name} on a condition" if limit else name for name, limit in sorted(there))
            found = ", ".join(texts) or "no role"
            # A role without its condition would be on the whole bucket.
            limit = str(value(grant.props, "condition", "expression") or "")
            is_as_recorded = (role, limit) in there and not (limit and (role, "") in there)
            relied_on += " on a condition" if limit else ""
            yield judged(is_as_recorded, "grant", subject, relied_on, found, bucket_command(bucket))

    def secrets(self) -> Iterator[Check]:
        """Secrets have the keys that pods read. Their values are not read."""
        for secret in secrets(self.stack):
            subject = f"Secret {secret.namespace}/{secret.name}"
            relied_on = f"keys {', '.join(sorted(secret.keys))}" if secret.keys else "it exists"
            step = f"{kubectl()} -n {secret.namespace} describe secret {secret.name}"
            keys = self.live.secret_keys.get((secret.namespace, secret.name))
            if isinstance(keys, str):
                yield Check(UNCHECKED, "secret", subject, relied_on, keys, step)
            elif keys is None:
                yield Check(FAIL, "secret", subject, relied_on, "no such Secret", step)
            else:
                found = f"keys {', '.join(sorted(keys))}" if keys else "no keys"
                yield judged(secret.keys <= keys, "secret", subject, relied_on, found, step)

    # ----------------------------------------------------------------------------------------------------------- queues
    def quotas(self) -> Iterator[Check]:
        """Quotas are as recorded, and at most what the real nodes of each flavor have for pods."""
        live = {queue["metadata"]["name"]: quotas_of(queue) for queue in self.live.cluster_queues}
        granted: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for queue in self.stack.of_kind("ClusterQueue"):
            wanted, there = quotas_of(queue.props), live.get(queue.object_name, {})
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
        """The quota of a flavor is at most what its pools have for pods at maximum size, by their real nodes."""
        pools = flavor_pools(flavor, self.stack)
        if pools is None:
            return  # GKE creates nodes for pods, without a maximum
        have: dict[str, Fraction] = defaultdict(Fraction)
        for shape, max_nodes in pools:
            own = [node for node in self.live.nodes if label(node, GKE_NODEPOOL) == shape.pool and holds(node, "Ready")]
            if not own:
                shows = f"a node of pool {shape.pool}"
                subject = f"flavor {flavor.object_name}"
                yield Check(UNSEEN, "quota", subject, "quota within what nodes have", "–", shows)
                return
            free = [free_of(node, self.live.daemon_requests) for node in own]
            planned = self.measured.allocatable(shape)
            for resource in planned:
                # The claim `accelerators` covers accelerators that a node lacks.
                lowest = min(node_free.get(resource, Fraction(0)) for node_free in free)
                have[resource] += (planned[resource] if resource in ACCELERATORS else lowest) * max_nodes
        for (name, resource), amount in granted.items():
            if name == flavor.object_name:
                relied_on, found = both(resource, amount, have[resource])
                subject = f"flavor {name}: {resource} of its nodes"
                yield judged(amount <= have[resource], "quota", subject, f"at least {relied_on}", found)


def features_of(stack: RegisteredStack) -> list[str]:
    """Returns the features of the recorded resources that not every version of GKE has."""
    pools = list(stack.of_type(NODE_POOL))
    elastic = [shape for pool in pools if (shape := node_shape(pool)) and MODES[shape.capacity].elastic]
    classes = [mapping(compute_class.props, "spec") for compute_class in stack.of_kind("ComputeClass")]
    priorities = [priority for spec in classes for priority in items(spec, "priorities")]
    machine_types = [str(value(pool.props, "nodeConfig", "machineType")) for pool in pools]
    monitored = [value(own.props, "monitoringConfig", "enableComponents") or [] for own in stack.of_type(CLUSTER)]
    wanted = {
        features.FLEX_START: any(shape.gpu for shape in elastic),
        features.FLEX_START_TPU: any(not shape.gpu for shape in elastic),
        features.COMPUTE_CLASS: bool(classes),
        features.COMPUTE_CLASS_FLEX_START: any(class_choice(priority)[1] == "flexStart" for priority in priorities),
        features.COMPUTE_CLASS_POOLS: any(value(spec, "nodePoolAutoCreation", "enabled") is True for spec in classes),
        **dict.fromkeys(features.of_machines(machine_types), True),
        features.SECRET_SYNC: any(stack.of_kind("SecretSync")),
        features.SCALE_TO_ZERO: any(
            number(value(scaler.props, "spec", "minReplicas")) == 0
            for scaler in stack.of_type(HORIZONTAL_POD_AUTOSCALER)
        ),
        features.JOBSET_METRICS: any("JOBSET" in components for components in monitored),
    }
    return [feature for feature, needed in wanted.items() if needed]
