"""Pure rules about the state of a resource: what it contains, which of it is secret, how it differs from new inputs."""

from __future__ import annotations

from typing import Any

from emulator.pulumi.kubernetes import objects
from emulator.pulumi.kubernetes.configuration import DEFAULT_NAMESPACE
from emulator.pulumi.kubernetes.objects import Change, Object, Path, Properties, metadata
from emulator.pulumi.plugin import Secret, mark_secrets, plain


def without_nulls(value: Any) -> Any:
    """Removes nulls: in a typed object, null means absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return Secret(without_nulls(value.value)) if isinstance(value, Secret) else value


def state_of(inputs: Properties, live: Object, manager: str) -> Properties:
    """The state of a resource: the live object as outputs, and the data that the next operation needs."""
    outputs = live | {"metadata": {k: v for k, v in metadata(live).items() if k != "managedFields"}}
    marked = mark_secrets(outputs, inputs)
    return with_secret_data(marked) | {
        "__inputs": with_secret_data(inputs),
        "__initialApiVersion": live["apiVersion"],
        "__fieldManager": manager,
    }


def with_secret_data(obj: Properties) -> Properties:
    """Marks the data of a Kubernetes Secret as secret, wherever it comes from."""
    if not objects.is_secret(obj):
        return obj
    return {k: Secret(plain(v)) if k in ("data", "stringData") else v for k, v in obj.items()}


def live_object(state: Properties) -> Object:
    """The live object as the state recorded it."""
    return {key: value for key, value in plain(state).items() if not key.startswith("__")}


def changes(state: Properties, new: Object, *, typed: bool) -> dict[Path, Change]:
    """Compares new inputs with the recorded live object, as far as the last inputs stated it."""
    old_inputs, live = objects.normalized(plain(state.get("__inputs")) or {}), live_object(state)
    old, new = objects.pruned(objects.normalized(live), old_inputs), objects.normalized(new)
    old_meta = {k: v for k, v in metadata(old).items() if k not in objects.SERVER_OWNED}
    new_meta = {k: v for k, v in metadata(new).items() if k not in objects.SERVER_OWNED}
    if "name" in new_meta:
        old_meta["name"] = metadata(live).get("name")
    if metadata(live).get("namespace"):
        old_meta["namespace"] = metadata(live)["namespace"]
        new_meta.setdefault("namespace", DEFAULT_NAMESPACE)
    else:  # the kind is cluster-scoped
        old_meta.pop("namespace", None)
        new_meta.pop("namespace", None)
    kind = {key: live[key] for key in ("apiVersion", "kind") if key in live}
    return objects.differences(old | kind | {"metadata": old_meta}, new | {"metadata": new_meta}, typed=typed)


def with_string_data(refreshed: Object, inputs: Object) -> Object:
    """Keeps the `stringData` of a Secret's inputs while the live data has the same content."""
    if objects.normalized(inputs).get("data") != refreshed.get("data"):
        return refreshed
    rest = {key: value for key, value in refreshed.items() if key != "data"}
    return rest | {field: inputs[field] for field in ("data", "stringData") if field in inputs}
