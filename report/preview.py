"""What Pulumi says in a preview, as plain data: the recorded resources, the steps, and the events that matter here."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ops.stack import Stack, Stop
from settings.model_memory import NOT_CHECKED

State = Mapping[str, Any]

# What is read of a resource; the rest (stack traces, times, ids) differs from run to run.
KEPT = ("urn", "type", "parent", "provider", "inputs", "outputs", "dependencies", "retainOnDelete")
# How Pulumi writes a secret into exported state: this key, with a signature of its own.
SECRET_KEY = "4dabf18193072939515e22adb298388d"
SECRET = "[secret]"
# Events of policies, and what is read of them.
POLICY_EVENTS = {
    "policyEvent": ("resourceUrn", "message", "policyName", "enforcementLevel"),
    "policyAnalyzeSummaryEvent": ("resourceUrn", "passed", "failed"),
    "policyAnalyzeStackSummaryEvent": ("passed", "failed"),
}
# How a warning of this program begins: with a key of the configuration. Those of Pulumi and its plugins are not shown.
WARNING = "gke-ai:"
# The order of the two says whether the old one goes first.
REPLACING = ("create-replacement", "delete-replaced")


@dataclass(frozen=True)
class Preview:
    """A preview of one stack: `resources` as recorded before it, `steps` of the plan, `events` of policies, errors and
    replacements, in the order in which they came."""

    stack: str
    resources: tuple[State, ...] = ()
    steps: tuple[State, ...] = ()
    events: tuple[State, ...] = ()

    def written(self) -> str:
        """As JSON text, to be read again by `recorded`."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def recorded(text: str) -> Preview:
    """The preview that `written` wrote."""
    found = json.loads(text)
    return Preview(found["stack"], *(tuple(found[part]) for part in ("resources", "steps", "events")))


def take(stack: Stack, policy_packs: Iterable[Path] = ()) -> Preview:
    """Asks Pulumi for a preview of `stack`; a plan that fails is one too. Stops where Pulumi can't even begin."""
    os.environ["PULUMI_DEBUG_COMMANDS"] = "1"  # --event-log is among the CLI's options for debugging
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events"
        packs = [part for pack in policy_packs for part in ("--policy-pack", str(pack))]
        plain = ["--json", "--color", "never", "--event-log", str(log)]
        done = stack.pulumi("preview", *plain, *packs, configured=True, quiet=True)
        if "no stack named" in done.stderr:
            raise Stop(f"There is no stack {stack.name} yet. Make it first: pulumi stack init {stack.name}")
        try:
            steps = json.loads(done.stdout).get("steps") or []
            events = [json.loads(line) for line in log.read_text().splitlines()]
        except (ValueError, OSError):
            raise Stop(
                done.stderr.strip() or done.stdout.strip() or "pulumi preview failed, and said nothing"
            ) from None
    return trimmed(stack.name, stack.export().get("resources") or [], steps, events)


def trimmed(stack: str, resources: Iterable[State], steps: Iterable[State], events: Iterable[State]) -> Preview:
    """A preview less what changes from run to run, what no page shows, and every secret."""
    return Preview(
        stack,
        tuple(kept(one) for one in resources if not one.get("delete")),  # some wait to be deleted since an earlier up
        tuple(
            {
                **{key: step[key] for key in ("op", "urn", "diffReasons", "replaceReasons") if step.get(key)},
                "detailedDiff": step.get("detailedDiff") or {},
                **{
                    side: kept(step[side], outputs=side == "oldState" and step["op"] in ("update", "replace"))
                    for side in ("oldState", "newState")
                    if step.get(side)
                },
            }
            for step in steps
        ),
        tuple(result for event in events if (result := of_interest(event))),
    )


def kept(state: State, outputs: bool = False) -> dict[str, Any]:
    """What is read of a resource's state, secrets masked."""
    found = {key: masked(state[key]) for key in KEPT if state.get(key) and (key != "outputs" or outputs)}
    if "provider" in found:
        found["provider"] = found["provider"].rpartition("::")[0]  # what follows is an id
    return found


def masked(value: Any) -> Any:
    """Nested data with each secret, even an encrypted one, replaced."""
    if isinstance(value, Mapping):
        return SECRET if SECRET_KEY in value else {key: masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list) else value


def of_interest(event: State) -> dict[str, Any] | None:
    """An event of a policy, an error, a warning of this program, or a replacement; None of any other."""
    for event_type, keys in POLICY_EVENTS.items():
        if event_type in event:
            return {event_type: {key: event[event_type][key] for key in keys if event[event_type].get(key)}}
    said = event.get("diagnosticEvent") or {}
    if said.get("severity") == "error":
        return {"error": str(said["message"])}
    if said.get("severity") == "warning" and NOT_CHECKED in said["message"]:
        return {"unchecked": said["message"].partition(NOT_CHECKED)[2].strip()}
    if said.get("severity") == "warning" and said["message"].startswith(WARNING):
        return {"warning": said["message"]}
    metadata = (event.get("resourcePreEvent") or {}).get("metadata") or {}
    if metadata.get("op") in REPLACING:
        return {"replacing": {"op": metadata["op"], "urn": metadata["urn"]}}
    return None
