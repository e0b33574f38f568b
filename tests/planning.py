"""What an `up` would do to the cloud when a program registers other inputs, as the emulated gcp plugin plans it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.gcp_plugin.plugin import RESOURCES
from emulator.plugin import decode, encode
from emulator.tests.test_gcp_plugin import Engine
from tests.recorder import Record, Registration

KUBERNETES = "pulumi:providers:kubernetes"


@dataclass(frozen=True)
class Known:
    """A resource as the state has it."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    trigger: Any = None


# By type, and name in the program, which a replacement keeps.
State = Mapping[tuple[str, str], Known]


def known(record: Record) -> State:
    """What a recorded program leaves in the state."""
    return {
        (one.type, one.name): Known(one.inputs, one.inputs, one.replacement_trigger)
        for one in record.resources.values()
    }


def operations(before: State, after: Record, folder: Path) -> dict[str, str]:
    """The operation on each resource of Google Cloud, and on the cluster's Kubernetes provider, that isn't `same`."""
    engine = Engine(folder)
    now = {(one.type, one.name): one for one in after.resources.values() if concerns(one.type)}
    planned = {}
    for (type_, name), one in now.items():
        if type_ != KUBERNETES:
            assert engine.check(type_, decode(encode(one.inputs)))[1] == [], name
        old = before.get((type_, name))
        planned[f"{type_.rpartition(':')[2]} {name}"] = "create" if old is None else of(engine, old, one)
    gone = {f"{type_.rpartition(':')[2]} {name}" for type_, name in before if concerns(type_)} - planned.keys()
    return {name: operation for name, operation in planned.items() if operation != "same"} | dict.fromkeys(
        gone, "delete"
    )


def concerns(type_: str) -> bool:
    """Whether the resource is Google Cloud's, or the provider of what is in the cluster."""
    return type_ in RESOURCES or type_ == KUBERNETES


def of(engine: Engine, old: Known, new: Registration) -> str:
    """The engine's decision on one resource: the provider's plan, and the options of the program."""
    if new.type == KUBERNETES:
        return "same" if old.inputs["clusterIdentifier"] == new.inputs["clusterIdentifier"] else "replace"
    if None not in (old.trigger, new.replacement_trigger) and old.trigger != new.replacement_trigger:
        return "replace"
    inputs = {key: value for key, value in new.inputs.items() if key not in new.ignored}
    inputs |= {key: old.inputs[key] for key in new.ignored if key in old.inputs}
    was, wanted, cloud = (decode(encode(one)) for one in (old.inputs, inputs, old.outputs))
    answer = engine.diff(new.type, was, wanted, cloud)
    changed = [re.sub(r"\[\d+\]", "", path) for path in answer.detailedDiff]
    forced = any(path == one or path.startswith(f"{one}.") for path in changed for one in new.replace_on_changes)
    return "replace" if answer.replaces or forced else "update" if changed else "same"
