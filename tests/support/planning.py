"""Plans the changes of an update in the cloud, with the emulated gcp plugin, for a program with other inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.google.plugin import RESOURCES
from emulator.pulumi.plugin import decode, encode, plain
from emulator.tests.gcp_engine import Engine
from tests.support.recorder import Record, Registration

KUBERNETES = "pulumi:providers:kubernetes"


@dataclass(frozen=True)
class Known:
    """A resource in the state."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    trigger: Any = None


# Resources by type and by name in the program, which a replacement keeps.
State = Mapping[tuple[str, str], Known]


def known(record: Record) -> State:
    """The state after a deployment of a recorded program."""
    return {
        (resource.type, resource.name): Known(resource.inputs, resource.inputs, resource.replacement_trigger)
        for resource in record.resources.values()
    }


def operations(before: State, after: Record, folder: Path) -> dict[str, str]:
    """The operations on Google Cloud's resources and on the Kubernetes provider, except `same`."""
    engine = Engine(folder)
    new_resources = {
        (resource.type, resource.name): resource for resource in after.resources.values() if concerns(resource.type)
    }
    planned = {}
    for (type_, name), new in new_resources.items():
        old = before.get((type_, name))
        operation = "create" if old is None else of(engine, old, new)
        if type_ != KUBERNETES and operation in ("create", "replace"):
            # A replacement is checked again as a creation, without the old inputs.
            assert engine.check(type_, decode(encode(new.inputs)))[1] == [], name
        planned[f"{type_.rpartition(':')[2]} {name}"] = operation
    removed = {f"{type_.rpartition(':')[2]} {name}" for type_, name in before if concerns(type_)} - planned.keys()
    changes = {name: operation for name, operation in planned.items() if operation != "same"}
    return changes | dict.fromkeys(removed, "delete")


def concerns(type_: str) -> bool:
    """Whether the resource is Google Cloud's or a Kubernetes provider."""
    return type_ in RESOURCES or type_ == KUBERNETES


def of(engine: Engine, old: Known, new: Registration) -> str:
    """The engine's decision on a resource, from the provider's plan and the program's options."""
    if new.type == KUBERNETES:
        return "same" if old.inputs["clusterIdentifier"] == new.inputs["clusterIdentifier"] else "replace"
    # The engine gives ignored inputs their old values before it asks the provider to check, also for a replacement.
    inputs = {key: value for key, value in new.inputs.items() if key not in new.ignored}
    inputs |= {key: old.inputs[key] for key in new.ignored if key in old.inputs}
    old_inputs, new_inputs, outputs = (decode(encode(values)) for values in (old.inputs, inputs, old.outputs))
    assert engine.check(new.type, new_inputs, olds=old_inputs)[1] == [], new.name
    if None not in (old.trigger, new.replacement_trigger) and old.trigger != new.replacement_trigger:
        return "replace"
    answer = engine.diff(new.type, old_inputs, new_inputs, outputs)
    changed = [re.sub(r"\[\d+\]", "", path) for path in answer.detailedDiff]
    forced = any(
        path == prefix or path.startswith(f"{prefix}.") for path in changed for prefix in new.replace_on_changes
    )
    if answer.replaces or forced:
        return "replace"
    if changed:  # Google accepts what the provider sends
        resource = RESOURCES[new.type](engine.gcp.cloud)
        kept = resource.kept(*map(plain, (old_inputs, new_inputs)))
        assert list(resource.update_problems(plain(old_inputs), kept)) == [], new.name
    return "update" if changed else "same"
