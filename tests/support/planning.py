"""Plans the changes of an update in the cloud, with the emulated gcp plugin, for a program with other inputs."""

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
    part: str = ""
    """What the resource is called in its component."""


# Resources by type and by name in the program, which a replacement keeps.
State = Mapping[tuple[str, str], Known]


def known(record: Record) -> State:
    return {
        (it.type, it.name): Known(it.inputs, it.inputs, it.replacement_trigger, it.part)
        for it in record.resources.values()
    }


def operations(before: State, after: Record, folder: Path) -> dict[str, str]:
    """The operations on Google Cloud's resources and on the Kubernetes provider, except `same`."""
    engine = Engine(folder)
    planned, kept = {}, set()
    for new in after.resources.values():
        if not concerns(type_ := new.type):
            continue
        name = next((name for name in (new.name, *new.former) if (type_, name) in before), new.name)
        kept.add((type_, name))
        old = before.get((type_, name))
        operation = "create" if old is None else of(engine, old, new)
        if type_ != KUBERNETES and operation in ("create", "replace"):
            # A replacement is checked again as a creation, without the old inputs.
            assert engine.check(type_, decode(encode(new.inputs)))[1] == [], name
        planned[f"{type_.rpartition(':')[2]} {new.part}"] = operation
    gone = [(type_, known.part or name) for (type_, name), known in before.items() if (type_, name) not in kept]
    removed = [f"{type_.rpartition(':')[2]} {part}" for type_, part in gone if concerns(type_)]
    changes = {name: operation for name, operation in planned.items() if operation != "same"}
    return changes | {name: "replace" if planned.get(name) == "create" else "delete" for name in removed}


def concerns(type_: str) -> bool:
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
