"""A preview by Pulumi as plain data: recorded resources, steps, and relevant events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gke_ai.settings.estimates.cold_start import COLD_START
from gke_ai.settings.estimates.model_memory import NOT_CHECKED
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

State = Mapping[str, Any]

# Fields of a resource that are kept. The others (stack traces, times, ids) differ between runs.
KEPT = ("urn", "type", "parent", "provider", "inputs", "outputs", "dependencies", "retainOnDelete")
# Pulumi marks a secret in exported state with this key.
SECRET_KEY = "4dabf18193072939515e22adb298388d"
SECRET = "[secret]"
# Events of policies, and the fields that are kept.
POLICY_EVENTS = {
    "policyEvent": ("resourceUrn", "message", "policyName", "enforcementLevel"),
    "policyAnalyzeSummaryEvent": ("resourceUrn", "passed", "failed"),
    "policyAnalyzeStackSummaryEvent": ("passed", "failed"),
}
# Warnings of this program start with a configuration key. Warnings of Pulumi and its plugins are not shown.
WARNING = "gke-ai:"
# The order of these events shows whether Pulumi deletes the old resource first.
REPLACING = ("create-replacement", "delete-replaced")


@dataclass(frozen=True)
class Preview:
    """A preview of one stack.

    `resources` are recorded before it, `steps` are those of the plan, and `events` are policy results, errors, warnings
    and replacements in their order.
    """

    stack: str
    resources: tuple[State, ...] = ()
    steps: tuple[State, ...] = ()
    events: tuple[State, ...] = ()

    def written(self) -> str:
        """Returns JSON that `recorded` reads."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def recorded(text: str) -> Preview:
    """Reads a preview that `written` returned."""
    content = json.loads(text)
    return Preview(content["stack"], *(tuple(content[part]) for part in ("resources", "steps", "events")))


def take(stack: Stack, policy_packs: Iterable[Path] = ()) -> Preview:
    """Runs a preview of `stack`. Returns failed previews too; stops if Pulumi cannot start one."""
    packs = [part for pack in policy_packs for part in ("--policy-pack", str(pack))]
    done, events = stack.preview("--json", "--color", "never", *packs, quiet=True)
    if "no stack named" in done.stderr:
        raise Stop(f"There is no stack {stack.name} yet. Create it: pulumi stack init {stack.name}")
    try:
        steps = json.loads(done.stdout).get("steps") or []
    except ValueError:
        steps = None
    if steps is None or not events:
        raise Stop(done.stderr.strip() or done.stdout.strip() or "pulumi preview failed without a message")
    return trimmed(stack.name, stack.resources, steps, events)


def trimmed(stack: str, resources: Iterable[State], steps: Iterable[State], events: Iterable[State]) -> Preview:
    """Returns a preview without secrets, without what differs between runs, and without unused fields."""
    recorded = tuple(kept(state) for state in resources if not state.get("delete"))  # pending since an earlier up
    found = tuple(result for event in events if (result := of_interest(event)))
    return Preview(stack, recorded, tuple(map(trimmed_step, steps)), found)


def trimmed_step(step: State) -> dict[str, Any]:
    """Returns the used fields of a step. Outputs are those of a resource that is updated or replaced."""
    result = {key: step[key] for key in ("op", "urn", "diffReasons", "replaceReasons") if step.get(key)}
    result["detailedDiff"] = step.get("detailedDiff") or {}
    if step.get("oldState"):
        result["oldState"] = kept(step["oldState"], outputs=step["op"] in ("update", "replace"))
    if step.get("newState"):
        result["newState"] = kept(step["newState"])
    return result


def kept(state: State, outputs: bool = False) -> dict[str, Any]:
    """Returns the kept fields of a resource's state, with secrets masked."""
    kept_state = {key: masked(state[key]) for key in KEPT if state.get(key) and (key != "outputs" or outputs)}
    if "provider" in kept_state:
        kept_state["provider"] = kept_state["provider"].rpartition("::")[0]  # the last part is an id
    return kept_state


def masked(value: Any) -> Any:
    """Replaces each secret in nested data, also encrypted ones."""
    if isinstance(value, Mapping):
        return SECRET if SECRET_KEY in value else {key: masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list) else value


def of_interest(event: State) -> dict[str, Any] | None:
    """Returns a policy result, an error, a message of this program, or a replacement; else None."""
    for event_type, keys in POLICY_EVENTS.items():
        if event_type in event:
            return {event_type: {key: event[event_type][key] for key in keys if event[event_type].get(key)}}
    diagnostic = event.get("diagnosticEvent") or {}
    if diagnostic.get("severity") == "error":
        return {"error": str(diagnostic["message"])}
    if diagnostic.get("severity") == "warning" and NOT_CHECKED in diagnostic["message"]:
        return {"unchecked": diagnostic["message"].partition(NOT_CHECKED)[2].strip()}
    if COLD_START in diagnostic.get("message", ""):
        return {"coldStart": diagnostic["message"].partition(COLD_START)[2].strip()}
    if diagnostic.get("severity") == "warning" and diagnostic["message"].startswith(WARNING):
        return {"warning": diagnostic["message"]}
    metadata = (event.get("resourcePreEvent") or {}).get("metadata") or {}
    if metadata.get("op") in REPLACING:
        return {"replacing": {"op": metadata["op"], "urn": metadata["urn"]}}
    return None
