"""Checks, compares and reads the provider's own arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_kubernetes.provider import ProviderArgs

from emulator.pulumi.kubernetes import kubeconfig
from emulator.pulumi.plugin import UNKNOWN, Refused, plain
from emulator.pulumi.sdk_types import properties

DEFAULT_NAMESPACE = "default"
PLUGIN_KEYS = {"version", "pluginDownloadURL"}  # the engine's own, on every provider
IDENTITY = "clusterIdentifier"
TRUE, FALSE = (True, "true"), (False, "false")
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "alwaysRender": FALSE,
    "enableServerSideApply": TRUE,
    "helmReleaseSettings": ({},),
    "renderYamlToDirectory": ("",),
    "skipUpdateUnreachable": FALSE,
    "upsertExistingObjects": FALSE,
}
"""Arguments of the official plugin that this one accepts only with these values."""


def schema() -> dict[str, dict[str, str]]:
    """Schema of the arguments for programs that need one.

    The engine passes all arguments as strings.
    """
    return {name: {"type": "string"} for name in properties(ProviderArgs)}


def problems(news: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Problems of the provider's arguments, as pairs (name, reason)."""
    known = properties(ProviderArgs)
    result = []
    for key, value in news.items():
        if key not in known and key not in PLUGIN_KEYS and not key.startswith("__"):
            result.append((key, f"unknown argument of the kubernetes provider; known are {', '.join(sorted(known))}"))
        elif key in UNSUPPORTED and _parsed(plain(value)) not in (None, *UNSUPPORTED[key]):
            result.append((key, f"the emulator doesn't support {key}; use the official plugin"))
    return result


def _parsed(value: Any) -> Any:
    """Parses an argument: the engine passes arguments that aren't strings as JSON."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    if isinstance(parsed, dict):
        # This plugin always uses helm's storage driver `secret` and never shows the warning.
        return {k: v for k, v in parsed.items() if k != "suppressBetaWarning" and (k, v) != ("driver", "secret")}
    return parsed


def differences(olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the changed arguments, and those that select another cluster and so replace all its objects.

    If `clusterIdentifier` is set and unchanged, the cluster is the same. Otherwise a kubeconfig with another cluster
    replaces, and so does a kubeconfig that isn't known yet.
    """
    olds, news = plain(dict(olds)), plain(dict(news))
    changed = sorted(
        key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key) and key not in PLUGIN_KEYS
    )
    old_identity, identity = olds.get(IDENTITY), news.get(IDENTITY)
    if identity and old_identity == identity:
        return changed, []
    replacing = [IDENTITY] if identity and old_identity and IDENTITY in changed else []
    cluster_keys = [key for key in ("kubeconfig", "context", "cluster") if key in changed]
    if any(news.get(key) is UNKNOWN for key in cluster_keys) or _active(olds) != _active(news):
        replacing += cluster_keys
    return changed, replacing


def _active(arguments: Mapping[str, Any]) -> Any:
    text = arguments.get("kubeconfig")
    if not text:
        return None
    return kubeconfig.load(text, arguments.get("context") or "", arguments.get("cluster") or "").cluster


@dataclass(frozen=True)
class Configuration:
    """The provider's arguments that this plugin uses.

    The kubeconfig is None while it isn't known.
    """

    kubeconfig: kubeconfig.Kubeconfig | None
    namespace: str
    delete_unreachable: bool
    secrets_mutable: bool
    configs_mutable: bool
    force: bool


def read(arguments: Mapping[str, Any]) -> Configuration:
    """Reads the provider's arguments.

    Raises:
        Refused: An argument is unknown or unsupported, or the kubeconfig can't be read.
    """
    mistakes = problems(arguments)
    if mistakes:
        raise Refused("\n".join(f"kubernetes:{key}: {reason}" for key, reason in mistakes))
    values = plain(dict(arguments))

    def flag(key: str) -> bool:
        return values.get(key) in TRUE  # the SDK copies PULUMI_K8S_… of the environment into the arguments

    # The engine loads a provider of the state with its old arguments, so the environment counts here.
    unreachable = values.get("deleteUnreachable", os.environ.get("PULUMI_K8S_DELETE_UNREACHABLE"))

    text = values.get("kubeconfig")
    known = text is not UNKNOWN
    config = kubeconfig.load(text, values.get("context") or "", values.get("cluster") or "") if known else None
    return Configuration(
        kubeconfig=config,
        namespace=values.get("namespace") or (config.namespace if config else "") or DEFAULT_NAMESPACE,
        delete_unreachable=unreachable in TRUE,
        secrets_mutable=flag("enableSecretMutable"),
        configs_mutable=flag("enableConfigMapMutable"),
        force=flag("enablePatchForce"),
    )
