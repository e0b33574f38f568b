"""Checks and completes the inputs of an object: type, name, namespace, secret data."""

from __future__ import annotations

from collections.abc import Callable

from pulumi.runtime.proto import provider_pb2

from emulator.pulumi import sdk_types
from emulator.pulumi.kubernetes import kinds, objects
from emulator.pulumi.kubernetes.objects import Object, Properties, is_true, metadata
from emulator.pulumi.kubernetes.omitted import without_omitted
from emulator.pulumi.kubernetes.state import without_nulls
from emulator.pulumi.kubernetes.waits import refuse_unknown_wait
from emulator.pulumi.plugin import Secret, has_unknown, name_of, plain, random_suffix


def checked_object(
    request: provider_pb2.CheckRequest,
    token: str,
    olds: Properties,
    news: Properties,
    namespace: str,
    is_namespaced: Callable[[Properties], bool],
) -> tuple[Properties, list[tuple[str, str]]]:
    """Completes the inputs of an object and reports their problems, as pairs (path, reason).

    Args:
        request: The engine's request, for the URN and the options of autonaming.
        token: The type of the object.
        olds: The inputs of the last run.
        news: The new inputs.
        namespace: The default namespace.
        is_namespaced: Whether the kind of an object is namespaced.
    """
    kind: Properties = {"apiVersion": kinds.api_version(token), "kind": kinds.kind(token)}
    news = kind | news
    cls = kinds.input_type(token)
    if cls is not None:
        news = without_nulls(news)
        failures = sdk_types.problems(cls, news)
    else:
        failures = []
    if {key: plain(news[key]) for key in kind} != kind:
        failures.append(("apiVersion", f"apiVersion and kind must be those of the type {token}"))
    if isinstance(news.get("metadata"), Secret):
        failures.append(("metadata", "can't be a secret"))
    if (news.get("metadata") is None or isinstance(news["metadata"], dict)) and not failures:
        meta = dict(news.get("metadata") or {})
        stated = plain(meta)
        if stated.get("generateName") is not None and stated.get("name") is None:
            failures.append(("metadata.generateName", "not supported with server-side apply: set a name or omit it"))
        elif stated.get("name") in (None, ""):
            failures += _autoname(request, plain(olds), meta)
        if stated.get("namespace") is None and is_namespaced(news):
            meta["namespace"] = namespace
        news["metadata"] = meta
        if not has_unknown(meta):
            refuse_unknown_wait(plain(news))
    if cls is not None and not failures and not has_unknown(news):
        news = without_omitted(news)
    if objects.is_secret(plain(news)):
        if not failures and not has_unknown(news):
            news = objects.normalized(plain(news))  # the official plugin records `stringData` as `data` (Check)
        for field in ("data", "stringData"):
            if field in news and not isinstance(news[field], Secret):
                news[field] = Secret(news[field])
    return news, failures


def _autoname(request: provider_pb2.CheckRequest, olds: Object, meta: Properties) -> list[tuple[str, str]]:
    """Keeps the generated name of the last run, else generates one.

    Marks the object as autonamed.
    """
    options = provider_pb2.CheckRequest.AutonamingOptions
    if olds and is_true(olds, objects.AUTONAMED):
        meta["name"] = metadata(olds)["name"]
    elif request.HasField("autonaming") and request.autonaming.mode == options.Mode.DISABLE:
        return [("metadata.name", "autonaming is disabled: set a name")]
    elif request.HasField("autonaming") and request.autonaming.proposed_name:
        meta["name"] = request.autonaming.proposed_name
    else:
        meta["name"] = f"{name_of(request.urn)}-{random_suffix(request.randomSeed, 8)}"
    annotations = meta.get("annotations") or {}
    if isinstance(annotations, dict):
        meta["annotations"] = annotations | {objects.AUTONAMED: "true"}
    return []
