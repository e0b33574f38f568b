"""The changes that a preview plans: each resource with its operation and, property by property, old and new."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gke_ai.registered.types import STACK
from gke_ai.review.report.preview import SECRET, Preview, State, take
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

COMPONENT = "gke-ai:index:"
# Pulumi's placeholder for a value that the cloud sets.
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
CREATE, UPDATE, REPLACE, DELETE, LEAVE = "create", "update", "replace", "delete", "leave"
# Worst first: the mark of a component is that of its worst change.
OPERATIONS = (REPLACE, DELETE, LEAVE, UPDATE, CREATE)
_OPERATION = {"import": CREATE, "import-replacement": REPLACE}
# Names for readers, where they differ from the last part of the type token.
_KINDS = {
    "gcp:container/nodePool:NodePool": "node pool",
    "gcp:container/cluster:Cluster": "cluster",
    "gcp:storage/bucket:Bucket": "bucket",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "grant on a bucket",
    "gcp:projects/iAMMember:IAMMember": "grant on the project",
    "gcp:projects/service:Service": "API of Google Cloud",
    "gcp:serviceaccount/account:Account": "service account of Google Cloud",
    "gcp:serviceaccount/iAMMember:IAMMember": "grant on a service account",
    "gcp:secretmanager/secretIamMember:SecretIamMember": "grant on a secret",
    "gcp:monitoring/alertPolicy:AlertPolicy": "alert",
    "gcp:monitoring/dashboard:Dashboard": "dashboard",
    "gcp:compute/router:Router": "router",
    "gcp:compute/routerNat:RouterNat": "Cloud NAT",
    "gcp:compute/network:Network": "network",
    "gcp:compute/subnetwork:Subnetwork": "subnetwork",
    "gcp:compute/resourcePolicy:ResourcePolicy": "resource policy",
    "kubernetes:helm.sh/v3:Release": "Helm release",
}
MAX_VALUE_LENGTH = 80


@dataclass(frozen=True)
class Resource:
    """A resource as the state records it or the program declares it."""

    urn: str
    type: str
    parent: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    dependencies: frozenset[str] = frozenset()
    retained: bool = False

    @property
    def is_component(self) -> bool:
        """Whether it is a component of this program, which is no resource in the cloud."""
        return self.type.startswith(COMPONENT)

    @property
    def logical_name(self) -> str:
        """Its name in the program."""
        return self.urn.split("::", 3)[3] if self.urn.count("::") >= 3 else self.urn

    @property
    def name(self) -> str:
        """Its name for readers: namespace and name of an object, name of a cloud resource."""
        metadata = self.inputs.get("metadata")
        if isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str):
            return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
        stated = self.inputs.get("name")
        # With createBeforeDelete, the name of a pool in Google Cloud has a hash as suffix.
        if not isinstance(stated, str) or stated == UNKNOWN or stated.startswith(f"{self.logical_name}-"):
            return self.logical_name
        return stated

    @property
    def kind(self) -> str:
        """The kind of resource, in a word or two."""
        if self.type.startswith("pulumi:providers:"):
            return f"provider {self.type.rpartition(':')[2]}"
        return _KINDS.get(self.type, self.type.rpartition(":")[2])

    @property
    def title(self) -> str:
        """Kind and name. For a component: class and name."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Difference:
    """A changed property with its old and new value; `replaces` if it can't be changed in place."""

    path: str
    old: str
    new: str
    replaces: bool = False


@dataclass(frozen=True)
class Change:
    """The change of one resource; with `create_before_delete` Pulumi deletes the old one last."""

    operation: str
    resource: Resource
    before: Resource | None = None
    after: Resource | None = None
    differences: tuple[Difference, ...] = ()
    create_before_delete: bool = False


@dataclass(frozen=True)
class PlannedUpdate:
    """Resources before and after by URN, the changes between them, and errors of the preview.

    `warnings` has the warnings of the program, `unchecked` what the program could not check, and
    `cold_starts` how long new replicas take to read their models.
    """

    stack: str
    before: Mapping[str, Resource]
    after: Mapping[str, Resource]
    changes: tuple[Change, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    cold_starts: tuple[str, ...] = ()

    def component_of(self, resource: Resource) -> Resource | None:
        """Returns the outermost component that a resource is, or is part of."""
        return component_of(resource, {**self.before, **self.after})

    def of(self, operation: str) -> list[Change]:
        """Returns the changes of one operation, without components."""
        return [change for change in self.changes if change.operation == operation and not change.resource.is_component]


def component_of(resource: Resource, among: Mapping[str, Resource]) -> Resource | None:
    """Returns the outermost component of `among` that a resource is, or is part of."""
    outermost: Resource | None = None
    current: Resource | None = resource
    while current is not None:
        outermost = current if current.is_component else outermost
        current = among.get(current.parent)
    return outermost


def planned(stack: Stack, consequence: str) -> PlannedUpdate:
    """Returns the plan of a preview of a stack. Stops with its errors and the consequence if it fails."""
    found = plan(take(stack))
    if found.errors:
        raise Stop("\n".join([*found.errors, f"The preview of {stack.name} failed. {consequence}"]))
    return found


def plan(preview: Preview) -> PlannedUpdate:
    """Returns the plan of a preview. Recorded resources without a step stay unchanged."""
    before = {state["urn"]: resource(state) for state in preview.resources if state["type"] != STACK}
    after = dict(before)
    first = first_of_replacements(preview)
    changes = []
    for step in preview.steps:
        old, new = (resource(step[side]) if step.get(side) else None for side in ("oldState", "newState"))
        known = new or old
        if known is None or known.type == STACK:
            continue
        if new is None:
            after.pop(known.urn, None)
        else:
            after[known.urn] = new
        if old is not None:
            before[known.urn] = old
        operation = _OPERATION.get(step["op"], step["op"])
        if operation == DELETE and known.retained:
            operation = LEAVE
        if operation in OPERATIONS:
            create_before_delete = first.get(known.urn) == "create-replacement"
            changes.append(Change(operation, known, old, new, tuple(differences(step, old, new)), create_before_delete))
    changes.sort(key=lambda change: (OPERATIONS.index(change.operation), change.resource.title, change.resource.urn))
    # A mandatory violation also fails the preview, and is reported on its own.
    errors = [event["error"].strip() for event in preview.events if "error" in event]
    reported = [error for error in errors if error != "preview failed" and "unhandled error occurred" not in error]
    warnings = tuple(dict.fromkeys(event["warning"].strip() for event in preview.events if "warning" in event))
    unchecked = tuple(sorted({event["unchecked"] for event in preview.events if "unchecked" in event}))
    cold_starts = tuple(sorted({event["coldStart"] for event in preview.events if "coldStart" in event}))
    messages = (tuple(dict.fromkeys(reported)), warnings, unchecked, cold_starts)
    return PlannedUpdate(preview.stack, before, after, tuple(changes), *messages)


def resource(state: State) -> Resource:
    """Returns the resource of an entry in Pulumi's state."""
    parent, inputs, outputs = state.get("parent") or "", state.get("inputs") or {}, state.get("outputs") or {}
    needed = frozenset(filter(None, [*(state.get("dependencies") or ()), state.get("provider")]))
    return Resource(state["urn"], state["type"], parent, inputs, outputs, needed, bool(state.get("retainOnDelete")))


def first_of_replacements(preview: Preview) -> dict[str, str]:
    """Returns for the URN of each replaced resource which comes first: creation or deletion."""
    first: dict[str, str] = {}
    for event in preview.events:
        if "replacing" in event:
            first.setdefault(event["replacing"]["urn"], event["replacing"]["op"])
    return first


def differences(step: State, old: Resource | None, new: Resource | None) -> Iterator[Difference]:
    """Yields the changed properties: from the provider's detailed diff, else by comparing inputs."""
    if old is None or new is None:
        return
    replaces = set(step.get("replaceReasons") or ())
    detailed: Mapping[str, Any] = step.get("detailedDiff") or {}
    if not detailed:
        for path, was, now in sorted(compared(old.inputs, new.inputs)):
            yield Difference(path, was, now, path in replaces or path.partition(".")[0] in replaces)
        return
    for path, property_diff in sorted(detailed.items()):
        was = at(old.inputs, path) if property_diff.get("inputDiff") else at(old.outputs, path, at(old.inputs, path))
        now = at(new.inputs, path)
        # If a provider names a whole object, compare its parts.
        nested = isinstance(was, dict | list) and isinstance(now, dict | list)
        parts = sorted(compared(was, now, path)) if nested else []
        if SECRET in (was, now):
            was = now = SECRET  # Pulumi may mark only one of the two as secret
        replaced = property_diff.get("kind", "").endswith("-replace") or path in replaces
        for part in parts or [(path, shown(was), shown(now))]:
            yield Difference(*part, replaced)


def compared(was: Any, now: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields path, old and new value of each leaf that differs."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}):
            yield from compared(was.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list):
        for index in range(max(len(was), len(now))):
            old, new = (side[index] if index < len(side) else None for side in (was, now))
            yield from compared(old, new, f"{path}[{index}]")
    elif was != now:
        yield path, shown(was), shown(now)


def at(data: Any, path: str, default: Any = None) -> Any:
    """Returns the value at a property path of Pulumi: `a.b[0]["c.d"]`. Parts of a secret are secret."""
    for quoted, index, key in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)', path):
        if data == SECRET:
            return SECRET
        if index and isinstance(data, list) and int(index) < len(data):
            data = data[int(index)]
        elif not index and isinstance(data, Mapping) and (quoted or key) in data:
            data = data[quoted or key]
        else:
            return default
    return data


def shown(value: Any) -> str:
    """Formats a value for readers: short, on one line, without secrets."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    if SECRET in text:
        return "(secret)"
    if UNKNOWN in text:
        return "(known after an up)"
    text = " ".join(text.split())
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"
