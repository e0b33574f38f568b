"""Pure rules about objects: names, annotations, what of the live object counts, what differs, what forces replacement.

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

from emulator.plugin import UNKNOWN, Secret

Object = dict[str, Any]
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
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Fields of `metadata` that only the API server writes."""


def metadata(obj: Object) -> dict[str, Any]:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


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
    """(namespace or "", name)"""
    namespace, _, name = object_id.rpartition("/")
    return namespace, name


def is_secret(obj: Object) -> bool:
    return obj.get("apiVersion") == "v1" and obj.get("kind") == "Secret"


def without_server_fields(obj: Object) -> Object:
    """The object as someone could have written it."""
    cleaned = {key: value for key, value in obj.items() if key != "status"}
    cleaned["metadata"] = {key: value for key, value in metadata(obj).items() if key not in SERVER_OWNED}
    return cleaned


def normalized(obj: Object) -> Object:
    """A Secret's `stringData` as `data`, as the API server stores it; other objects as they are."""
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
    """What of the live object the inputs `like` state; lists are compared item by item."""
    if isinstance(live, dict) and isinstance(like, dict):
        return {key: pruned(value, like[key]) for key, value in live.items() if key in like}
    if isinstance(live, list) and isinstance(like, list):
        same_kind = bool(live) and bool(like) and type(live[0]) is type(like[0])
        return [pruned(a, b) for a, b in zip(live, like, strict=False)] if same_kind or not live or not like else live
    return live


def live_inputs(live: Any, inputs: Any, *, typed: bool, path: Path = ()) -> Any:
    """The inputs as the live object has them: what someone changed shows, what the API server only writes differently
    doesn't. `typed` as for `differences`.
    """
    if isinstance(live, dict) and isinstance(inputs, dict):
        kept = {k: v for k, v in inputs.items() if k in live or (typed and _empty(v))}
        return {k: live_inputs(live[k], v, typed=typed, path=(*path, k)) if k in live else v for k, v in kept.items()}
    if isinstance(live, list) and isinstance(inputs, list) and live and inputs and type(live[0]) is type(inputs[0]):
        pairs = enumerate(zip(live, inputs, strict=False))
        return [live_inputs(a, b, typed=typed, path=(*path, index)) for index, (a, b) in pairs]
    return inputs if typed and _same_quantity(live, inputs, path) else live


def differences(old: Object, new: Object, *, typed: bool) -> dict[Path, Change]:
    """Every property that differs between the live object (pruned) and the new inputs.

    Args:
        old: The live object, pruned to what the last inputs stated.
        new: The new inputs.
        typed: Whether the API server knows the kind's Go type, and so writes quantities in a form of its own and leaves
            out empty values; custom resources it stores as they are.
    """
    found: dict[Path, Change] = {}
    _compare(old, new, (), typed, found)
    return found


def _compare(old: Any, new: Any, path: Path, typed: bool, found: dict[Path, Change]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if key not in new:
                if not (typed and _empty(old[key])):
                    found[(*path, key)] = "delete"
            elif key not in old:
                if new[key] is UNKNOWN or not (typed and _empty(new[key])):
                    found[(*path, key)] = "add"
            else:
                _compare(old[key], new[key], (*path, key), typed, found)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index >= len(new):
                found[(*path, index)] = "delete"
            elif index >= len(old):
                found[(*path, index)] = "add"
            else:
                _compare(old[index], new[index], (*path, index), typed, found)
    elif new is UNKNOWN or (not _same(old, new) and not (typed and _same_quantity(old, new, path))):
        found[path] = "update"


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _empty(value: Any) -> bool:
    """A value that a Go type with `omitempty` leaves out."""
    return value is None or value is False or value in ("", 0) or (isinstance(value, (dict, list)) and not value)


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
    """As Pulumi writes property paths: `spec.containers[0].image`, `metadata.labels["a.b/c"]`."""
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
"""Fields whose change makes a new object (diff.go); beside them the name and the namespace of every object."""


def forces_replacement(
    obj: Object, path: Path, *, secrets_mutable: bool = False, configs_mutable: bool = False
) -> bool:
    """Whether a change at `path` can only be made by a new object.

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
    """A replacement by the same fixed name in the same namespace can't stand beside the old object."""
    return (
        not is_true(new, AUTONAMED)
        and metadata(new).get("name") == metadata(old).get("name")
        and (metadata(new).get("namespace") or "default") == (metadata(old).get("namespace") or "default")
    )


def redacted(text: str, inputs: Any) -> str:
    """`text` without any secret value of the inputs, in either encoding: an API server may quote one in a message."""
    for value in sorted(_secret_texts(inputs, secret=False), key=len, reverse=True):
        text = text.replace(value, "[secret]")
    return text


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
    """The inverse of `path_text`; `[*]` is the step "*"."""
    steps: list[str | int] = []
    for quoted, index, name in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]|\.?([^.\[\]]+)', text):
        steps.append(int(index) if index.isdigit() else index or name or quoted.replace('\\"', '"'))
    return tuple(steps)


def covers(pattern: Path, path: Path) -> bool:
    """Whether a path given to `ignoreChanges` covers a changed property: itself or what is below."""
    return len(pattern) <= len(path) and all(p in ("*", step) for p, step in zip(pattern, path, strict=False))


TAKEN_OVER = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    ("pulumi-kubernetes", "Update"),
    ("pulumi-resource-kubernetes", "Update"),
)
"""Managers, by the beginning of their names, whose fields the next update takes over (await.go)."""


def taken_over(managed: list[Object], manager: str) -> list[Object] | None:
    """`managedFields` in which the fields of `TAKEN_OVER` belong to the apply of `manager`; None if there are none.

    An object is created by a plain request, whose manager another one conflicts with: without this an object's first
    update would be refused. Edits by kubectl go the same way; a subresource, such as `kubectl scale` writes, does not.
    """
    applied = [e for e in managed if (e.get("manager"), e.get("operation")) == (manager, "Apply")]
    others = [
        entry
        for entry in managed
        if entry not in applied
        and not entry.get("subresource")
        and any(
            str(entry.get("manager")).startswith(name) and entry.get("operation") == kind for name, kind in TAKEN_OVER
        )
    ]
    if not others:
        return None
    rest = [entry for entry in managed if entry not in others and entry not in applied]
    fields: Object = {}
    for entry in others + applied:
        fields = _merged(fields, entry.get("fieldsV1") or {})
    return [*rest, (applied or others)[0] | {"manager": manager, "operation": "Apply", "fieldsV1": fields}]


def _merged(one: Object, other: Object) -> Object:
    both = {key: _merged(one[key], other[key]) for key in one.keys() & other.keys()}
    return one | other | both


def owned_fields(managed: list[Object], manager: str) -> tuple[Object, Object]:
    """(fields of `manager`, fields of all others) as one tree each; a field is a key `f:NAME`."""
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
        found = fields.get(f"f:{step}")
        if not isinstance(found, dict):
            return False
        fields = found
    return True


def with_ignored(obj: Object, live: Object, ignored: list[Path], manager: str) -> Object:
    """The object to apply when changes of some properties are ignored: left out where another manager owns them (and we
    don't), else as they are in the live object. Properties inside a list stay as the engine gives them.
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
