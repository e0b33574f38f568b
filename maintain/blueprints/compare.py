"""Compares what a blueprint makes with what the program registers for the example of the same machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from maintain.blueprints.checkout import UNKNOWN, Item
from maintain.blueprints.modules import GPU_MACHINE, TPU_MACHINE
from tests.support.recorder import Record, Registration, configuration, shared_record

FOLDER = Path(__file__).parent
FACTS, REASONS = FOLDER / "facts.yaml", FOLDER / "reasons.yaml"
# Types of Terraform, by the end of the same type in Pulumi.
TYPES: Mapping[str, str] = {
    "google_compute_address": "Address",
    "google_compute_firewall": "Firewall",
    "google_compute_network": "Network",
    "google_compute_resource_policy": "ResourcePolicy",
    "google_compute_router": "Router",
    "google_compute_router_nat": "RouterNat",
    "google_compute_subnetwork": "Subnetwork",
    "google_container_cluster": "Cluster",
    "google_container_node_pool": "NodePool",
    "google_project_iam_member": "IAMMember",
    "google_service_account": "Account",
    "google_storage_bucket": "Bucket",
    "helm_release": "Release",
}


class Reason(NamedTuple):
    """Why an object or a setting (KIND.PATH) of blueprints has no equal here."""

    of: str
    why: str
    name: str = "*"
    here: tuple[str, ...] = ()
    """What the example has instead: KIND or KIND.PATH of a registration."""


class Row(NamedTuple):
    """An object of a blueprint, or one of its settings, and what the example has."""

    kind: str
    name: str
    field: str
    here: str
    """Registrations that are the same, or that do the same."""
    reason: Reason | None
    explained: bool = True


@cache
def facts() -> Any:
    """What the blueprints make, with the repository and its commit."""
    return yaml.load(FACTS.read_text(), yaml.CSafeLoader)


@cache
def differences() -> Any:
    """The example of each blueprint, blueprints without one, and the reasons."""
    content = yaml.load(REASONS.read_text(), yaml.CSafeLoader)
    reasons = [Reason(**row | {"here": tuple(row.get("here", []))}) for row in content["reasons"]]
    return content | {"reasons": reasons}


def rows(blueprint: str) -> list[Row]:
    """Every object and setting of a blueprint that has an example."""
    record = shared_record(configuration(differences()["examples"][blueprint]))
    items = [Item(*item) for item in facts()["blueprints"][blueprint]["items"]]
    return [row for item, registration in pairs(items, record) for row in compared(item, registration, record)]


def pairs(items: Iterable[Item], record: Record) -> Iterator[tuple[Item, Registration | None]]:
    """Each object with the registration of the same kind and purpose."""
    free = {item.kind: registered(record, item.kind) for item in items}
    for item in items:
        found = next((other for other in free[item.kind] if fits(item, other)), None)
        if found:
            free[item.kind].remove(found)
        yield item, found


def registered(record: Record, kind: str) -> list[Registration]:
    """Registrations of a type of Terraform, or of a kind of Kubernetes."""
    of_google = kind.startswith("google_")
    return [other for other in record.all(TYPES.get(kind, kind)) if other.type.startswith("gcp:") == of_google]


def fits(item: Item, other: Registration) -> bool:
    """Whether both have the same purpose. Names matter where other objects refer to them by name."""
    # Networks of GPUs, with all that they have.
    if item.kind.startswith("google_compute_") and ("gpunet" in item.name) != ("-gpudirect-" in other.object_name):
        return False
    match item.kind:
        case "google_compute_firewall":
            return "internal" in item.name
        case "google_project_iam_member":
            return bool(item.settings["role"] == other.inputs["role"])
        case "google_compute_subnetwork":
            return item.settings.get("purpose") == other.inputs.get("purpose")
        case "google_container_node_pool":
            ours, theirs = other.inputs["nodeConfig"]["machineType"], item.settings["node_config.machine_type"]
            return bool(ours == theirs) or not (accelerated(ours) or accelerated(theirs) or item.name == "cpu-np")
        case "ConfigMap" | "DaemonSet" | "Namespace" | "PriorityClass" | "ServiceAccount" | "helm_release":
            return item.name == other.object_name
    return True


def accelerated(machine: str) -> bool:
    """Whether a machine has GPUs or TPUs."""
    return bool(GPU_MACHINE.match(machine) or TPU_MACHINE.match(machine))


def compared(item: Item, other: Registration | None, record: Record) -> Iterator[Row]:
    """The rows of an object: one for itself, and one for each setting that differs."""
    if other is None:
        yield explained(item, "", record)
        return
    kind = other.type.rpartition(":")[2]
    equal = [path for path, value in item.settings.items() if same(value, list(values(other.inputs, path)))]
    yield Row(item.kind, item.name, ", ".join(equal), kind, None)
    for path in item.settings:
        if path not in equal:
            yield explained(item, path, record)


def explained(item: Item, field: str, record: Record) -> Row:
    """What the example has instead, or why it has nothing."""
    wanted = f"{item.kind}.{field}" if field else item.kind
    for reason in differences()["reasons"]:
        if (
            fnmatch(wanted, reason.of)
            and fnmatch(item.name, reason.name)
            and all(has(record, at) for at in reason.here)
        ):
            return Row(item.kind, item.name, field, ", ".join(reason.here), reason)
    return Row(item.kind, item.name, field, "", None, explained=False)


def has(record: Record, wanted: str) -> bool:
    """Whether a registration of that kind has something at that path."""
    kind, _, path = wanted.partition(".")
    return any(not path or any(values(other.inputs, path)) for other in record.all(kind))


def values(inputs: Any, path: str) -> Iterator[Any]:
    """The values at a path, through all items of lists. Pulumi writes Terraform's names in camel case."""
    if isinstance(inputs, list | tuple):
        for item in inputs:
            yield from values(item, path)
    elif not path:
        yield inputs
    elif isinstance(inputs, Mapping):
        step, _, rest = path.partition(".")
        camel = re.sub("_(.)", lambda found: found[1].upper(), step)
        for name in dict.fromkeys([step, camel]):
            if isinstance(inputs.get(name), list | tuple) and not rest:
                yield inputs[name]
            elif name in inputs:
                yield from values(inputs[name], rest)


def same(theirs: Any, ours: list[Any]) -> bool:
    """Whether one of our values is theirs, as far as it is known without a deployment."""
    if theirs == UNKNOWN or theirs == [UNKNOWN]:
        return any(ours)
    if isinstance(theirs, int) and any(isinstance(value, list) for value in ours):
        return any(len(value) == theirs for value in ours)  # a number of networks
    plain = [sorted(map(short, value)) if isinstance(value, list | tuple) else value for value in ours]
    return (sorted(map(short, theirs)) if isinstance(theirs, list) else theirs) in plain


def short(entry: Any) -> str:
    """An item of a list, as the facts have it: taints as KEY=VALUE, GPUs by type, ranges by name."""
    if not isinstance(entry, Mapping):
        return str(entry)
    if "key" in entry and "operator" not in entry:
        return f"{entry['key']}={entry['value']}"
    name: Any = entry.get("rangeName") or entry.get("type") or sorted(entry.items())
    return str(name)
