"""Pure rules about objects: names, annotations, comparison with the live object, forced replacement, field managers.

The rules are those of the official plugin (https://github.com/pulumi/pulumi-kubernetes, in provider/pkg: provider.go,
diff.go and util.go of provider/, metadata/).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from emulator.pulumi.kubernetes.omitted import is_omitted
from emulator.pulumi.plugin import UNKNOWN, Secret

Object = dict[str, Any]
"""An object of the Kubernetes API."""
Properties = dict[str, Any]
"""Properties of a Pulumi resource, with unknown and secret values."""
Path = tuple[str | int, ...]
Change = Literal["add", "delete", "update"]

AUTONAMED = "pulumi.com/autonamed"
SKIP_AWAIT = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
FIELD_MANAGER = "pulumi.com/patchFieldManager"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"

SERVER_OWNED = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"),
    *("resourceVersion", "selfLink", "uid"),
)
"""Fields of `metadata` that only the API server writes."""


def metadata(obj: Object) -> dict[str, Any]:
    value = obj.get("metadata")
    return value if isinstance(value, dict) else {}


def annotation(obj: Object, key: str) -> str:
    annotations = metadata(obj).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""


def is_true(obj: Object, key: str) -> bool:
    return annotation(obj, key) == "true"


def object_id(obj: Object) -> str:
    namespace, name = metadata(obj).get("namespace"), metadata(obj)["name"]
    return f"{namespace}/{name}" if namespace else str(name)


def parse_id(object_id: str) -> tuple[str, str]:
    """Returns (namespace or "", name)."""
    namespace, _, name = object_id.rpartition("/")
    return namespace, name


def is_secret(obj: Object) -> bool:
    return obj.get("apiVersion") == "v1" and obj.get("kind") == "Secret"


def without_server_fields(obj: Object) -> Object:
    """The object without the fields that only the API server writes."""
    cleaned = {key: value for key, value in obj.items() if key != "status"}
    cleaned["metadata"] = {key: value for key, value in metadata(obj).items() if key not in SERVER_OWNED}
    return cleaned


def normalized(obj: Object) -> Object:
    """Turns a Secret's `stringData` into `data`, as the API server stores it.

    Returns other objects unchanged.
    """
    if not is_secret(obj):
        return obj
    data, texts = obj.get("data"), obj.get("stringData")
    encoded = {key: _encoded_again(value) for key, value in data.items()} if isinstance(data, dict) else {}
    if isinstance(texts, dict):
        encoded |= {k: v if v is UNKNOWN else base64.b64encode(str(v).encode()).decode() for k, v in texts.items()}
    rest = {key: value for key, value in obj.items() if key not in ("data", "stringData")}
    unreadable = {key: value for key, value in (("data", data), ("stringData", texts)) if value is UNKNOWN}
    return rest | ({"data": encoded} if encoded else {}) | unreadable


def _encoded_again(value: Any) -> Any:
    try:
        return base64.b64encode(base64.b64decode(value)).decode() if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        return value  # the API server refuses it


def pruned(live: Any, like: Any) -> Any:
    """The parts of the live object that the inputs `like` state.

    Lists are compared item by item.
    """
    if isinstance(live, dict) and isinstance(like, dict):
        return {key: pruned(value, like[key]) for key, value in live.items() if key in like}
    if isinstance(live, list) and isinstance(like, list):
        same_kind = bool(live) and bool(like) and type(live[0]) is type(like[0])
        return [pruned(a, b) for a, b in zip(live, like, strict=False)] if same_kind or not live or not like else live
    return live


def live_inputs(live: Any, inputs: Any, *, typed: bool, path: Path = ()) -> Any:
    """The inputs with the values of the live object: it shows real changes, but not another form of the same value.

    `typed` as in `differences`.
    """
    if isinstance(live, dict) and isinstance(inputs, dict):
        kept = {k: v for k, v in inputs.items() if k in live or (typed and is_omitted((*path, k), v))}
        return {k: live_inputs(live[k], v, typed=typed, path=(*path, k)) if k in live else v for k, v in kept.items()}
    if isinstance(live, list) and isinstance(inputs, list) and live and inputs and type(live[0]) is type(inputs[0]):
        pairs = enumerate(zip(live, inputs, strict=False))
        return [live_inputs(a, b, typed=typed, path=(*path, index)) for index, (a, b) in pairs]
    return inputs if typed and _same_quantity(live, inputs, path) else live


def differences(old: Object, new: Object, *, typed: bool) -> dict[Path, Change]:
    """The properties that differ between the live object (pruned) and the new inputs.

    Args:
        old: The live object, pruned to the properties of the last inputs.
        new: The new inputs.
        typed: Whether the API server has a Go type for the kind. It then normalizes quantities and omits empty
            values. It stores custom resources unchanged.
    """
    changes: dict[Path, Change] = {}
    _compare(old, new, (), typed, changes)
    return changes


def _compare(old: Any, new: Any, path: Path, typed: bool, changes: dict[Path, Change]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if key not in new:
                if not (typed and is_omitted((*path, key), old[key])):
                    changes[(*path, key)] = "delete"
            elif key not in old:
                if new[key] is UNKNOWN or not (typed and is_omitted((*path, key), new[key])):
                    changes[(*path, key)] = "add"
            else:
                _compare(old[key], new[key], (*path, key), typed, changes)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index >= len(new):
                changes[(*path, index)] = "delete"
            elif index >= len(old):
                changes[(*path, index)] = "add"
            else:
                _compare(old[index], new[index], (*path, index), typed, changes)
    elif new is UNKNOWN or (not _same(old, new) and not (typed and _same_quantity(old, new, path))):
        changes[path] = "update"


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


_QUANTITIES = {"limits", "requests", "capacity", "hard", "overhead", "sizeLimit", "divisor", "min", "max", "default"}
_SUFFIXES = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_SUFFIXES |= {suffix: Decimal(1000) ** (n + 1) for n, suffix in enumerate("kMGTPE")}
_SUFFIXES |= {f"{suffix}i": Decimal(1024) ** (n + 1) for n, suffix in enumerate("KMGTPE")}


def _same_quantity(old: Any, new: Any, path: Path) -> bool:
    return not _QUANTITIES.isdisjoint(path[-2:]) and _quantity(old) is not None and _quantity(old) == _quantity(new)


def _quantity(value: Any) -> Decimal | None:
    match = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", str(value))
    try:
        return Decimal(match[1]) * _SUFFIXES[match[2]] if match else None
    except (InvalidOperation, KeyError):
        return None


def path_text(path: Path) -> str:
    """Formats a property path as Pulumi does: `spec.containers[0].image`, `metadata.labels["a.b/c"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.search(r'[."\[\]]', step):
            text += '["' + step.replace('"', '\\"') + '"]'
        else:
            text += f".{step}" if text else step
    return text


_FORCE_REPLACEMENT: Mapping[tuple[str, str], list[str]] = {
    ("apps/v1", "DaemonSet"): ["spec.selector"],
    ("apps/v1", "Deployment"): ["spec.selector"],
    ("apps/v1", "StatefulSet"): [
        f"spec.{f}"
        for f in ("podManagementPolicy", "revisionHistoryLimit", "selector", "serviceName", "volumeClaimTemplates")
    ],
    ("batch/v1", "Job"): ["spec.completions", "spec.parallelism", "spec.selector", "spec.template"],
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): ["roleRef"],
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ["roleRef"],
    ("storage.k8s.io/v1", "StorageClass"): ["parameters", "provisioner"],
    ("v1", "PersistentVolumeClaim"): [
        f"spec.{f}" for f in ("accessModes", "selector", "storageClassName", "volumeName")
    ],
    ("v1", "Pod"): ["spec"],
    ("v1", "ResourceQuota"): ["spec.scopes"],
    ("v1", "Service"): ["spec.clusterIP"],
    ("v1", "Secret"): ["type"],
}
"""Fields whose change replaces the object (diff.go), in addition to the name and the namespace."""


def forces_replacement(
    obj: Object, path: Path, *, secrets_mutable: bool = False, configs_mutable: bool = False
) -> bool:
    """Whether a change at `path` replaces the object.

    Args:
        obj: The new inputs.
        path: The changed property.
        secrets_mutable: The provider's `enableSecretMutable`.
        configs_mutable: The provider's `enableConfigMapMutable`.
    """
    kind = (str(obj.get("apiVersion")), str(obj.get("kind")))
    forcing = ["metadata.name", "metadata.namespace", *_FORCE_REPLACEMENT.get(kind, [])]
    immutable = obj.get("immutable") is True
    if kind == ("v1", "Secret") and (immutable or not secrets_mutable):
        forcing += ["data", "stringData"]
    if kind == ("v1", "ConfigMap") and (immutable or not configs_mutable):
        forcing += ["data", "binaryData"]
    fields = [step for step in path if isinstance(step, str)]
    return any(fields[: len(steps)] == steps for steps in (field.split(".") for field in forcing))


def must_delete_first(old: Object, new: Object) -> bool:
    """Whether the replacement has the old object's fixed name and namespace, so that both can't exist."""
    return (
        not is_true(new, AUTONAMED)
        and metadata(new).get("name") == metadata(old).get("name")
        and (metadata(new).get("namespace") or "default") == (metadata(old).get("namespace") or "default")
    )


def redacted(text: str, inputs: Any) -> str:
    """Removes secret values of the inputs from `text`, plain or base64: the API server may quote them in a message."""
    for value in sorted(_secret_texts(inputs, secret=False), key=len, reverse=True):
        text = text.replace(value, "[secret]")
    return text


def redacted_all(texts: list[str], inputs: Any) -> list[str]:
    """Removes secret values of the inputs from each text."""
    return [redacted(text, inputs) for text in texts]


def _secret_texts(value: Any, *, secret: bool) -> set[str]:
    if isinstance(value, Secret):
        return _secret_texts(value.value, secret=True)
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return {text for item in items for text in _secret_texts(item, secret=secret)}
    if not secret or not isinstance(value, str) or not value:
        return set()
    texts = {value, base64.b64encode(value.encode()).decode()}
    with contextlib.suppress(binascii.Error, UnicodeDecodeError, ValueError):
        texts.add(base64.b64decode(value, validate=True).decode())
    return texts - {""}


def parse_path(text: str) -> Path:
    """Does the inverse of `path_text`; `[*]` becomes the step "*"."""
    steps: list[str | int] = []
    for quoted, index, name in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]|\.?([^.\[\]]+)', text):
        steps.append(int(index) if index.isdigit() else index or name or quoted.replace('\\"', '"'))
    return tuple(steps)


def covers(pattern: Path, path: Path) -> bool:
    """Whether a path of `ignoreChanges` covers a changed property: the property itself or one above it."""
    return len(pattern) <= len(path) and all(p in ("*", step) for p, step in zip(pattern, path, strict=False))


ADOPTED_MANAGERS = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    ("pulumi-kubernetes", "Update"),
    ("pulumi-resource-kubernetes", "Update"),
)
"""Prefixes of managers whose fields the next update adopts, each with the operation (await.go)."""


def adopted_fields(managed: list[Object], manager: str) -> list[Object] | None:
    """Moves the fields of `ADOPTED_MANAGERS` to the apply of `manager`.

    Returns None if there are none.

    A plain request creates an object, and its manager conflicts with that of the first update, which would be refused.
    Edits by kubectl are adopted in the same way. Fields that were written through a subresource, as `kubectl scale`
    does, are not.
    """
    applied = [e for e in managed if (e.get("manager"), e.get("operation")) == (manager, "Apply")]
    others = [
        entry
        for entry in managed
        if entry not in applied
        and not entry.get("subresource")
        and any(
            str(entry.get("manager")).startswith(name) and entry.get("operation") == kind
            for name, kind in ADOPTED_MANAGERS
        )
    ]
    if not others:
        return None
    rest = [entry for entry in managed if entry not in others and entry not in applied]
    fields: Object = {}
    for entry in others + applied:
        fields = _merged(fields, entry.get("fieldsV1") or {})
    return [*rest, (applied or others)[0] | {"manager": manager, "operation": "Apply", "fieldsV1": fields}]


def _merged(left: Object, right: Object) -> Object:
    both = {key: _merged(left[key], right[key]) for key in left.keys() & right.keys()}
    return left | right | both


def owned_fields(managed: list[Object], manager: str) -> tuple[Object, Object]:
    """Returns the fields of `manager` and those of all other managers, each as one tree with keys `f:NAME`."""
    ours: Object = {}
    theirs: Object = {}
    for entry in managed:
        if entry.get("manager") == manager:
            ours = _merged(ours, entry.get("fieldsV1") or {})
        else:
            theirs = _merged(theirs, entry.get("fieldsV1") or {})
    return ours, theirs


def has_field(fields: Object, path: Path) -> bool:
    for step in path:
        below = fields.get(f"f:{step}")
        if not isinstance(below, dict):
            return False
        fields = below
    return True


def with_ignored(obj: Object, live: Object, ignored: list[Path], manager: str) -> Object:
    """The object to apply when changes of some properties are ignored.

    An ignored property is omitted if only another manager owns it, else it has the live value. Properties inside a list
    stay as the engine passes them.
    """
    ours, theirs = owned_fields(metadata(live).get("managedFields") or [], manager)
    result: Object = copy.deepcopy(obj)
    for path in ignored:
        if not path or any(isinstance(step, int) or step == "*" for step in path):
            continue
        *parents, last = path
        target: Any = result
        source: Any = live
        for step in parents:
            target = target.get(step) if isinstance(target, dict) else None
            source = source.get(step) if isinstance(source, dict) else None
        if not isinstance(target, dict):
            continue
        if has_field(theirs, path) and not has_field(ours, path):
            target.pop(last, None)
        elif isinstance(source, dict) and last in source:
            target[last] = copy.deepcopy(source[last])
    return result
