"""The provider's own arguments: checked, compared (what makes it another cluster), read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_kubernetes.provider import ProviderArgs

from emulator.kubernetes_plugin import kubeconfig
from emulator.plugin import UNKNOWN, Refused, plain
from emulator.sdk_types import properties

DEFAULT_NAMESPACE = "default"
PLUGIN_KEYS = {"version", "pluginDownloadURL"}  # of every provider; the engine's own
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
"""Arguments that the official plugin takes and this one takes with these values only."""


def schema() -> dict[str, dict[str, str]]:
    """The arguments for programs that are checked against a schema: texts, as the engine hands them over."""
    return {name: {"type": "string"} for name in properties(ProviderArgs)}


def problems(news: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is wrong in the provider's arguments: (name, reason)."""
    known = properties(ProviderArgs)
    found = []
    for key, value in news.items():
        if key not in known and key not in PLUGIN_KEYS and not key.startswith("__"):
            found.append((key, f"unknown argument of the kubernetes provider; known are {', '.join(sorted(known))}"))
        elif key in UNSUPPORTED and _parsed(plain(value)) not in (None, *UNSUPPORTED[key]):
            found.append((key, f"{key} is not supported by this emulator; the official plugin is needed"))
    return found


def _parsed(value: Any) -> Any:
    """Arguments of a provider that aren't strings come as JSON."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    if isinstance(parsed, dict):
        # Which driver helm stores releases by, and that a warning is off, are what this plugin does anyway.
        return {k: v for k, v in parsed.items() if k != "suppressBetaWarning" and (k, v) != ("driver", "secret")}
    return parsed


def differences(olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """(changed arguments, those of them that make it another cluster, so that everything in it is made anew).

    With an unchanged `clusterIdentifier` nothing makes it another cluster. Else a kubeconfig that isn't known yet
    might, and one that names another cluster does.
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
    given = arguments.get("kubeconfig")
    if not given:
        return None
    return kubeconfig.load(given, arguments.get("context") or "", arguments.get("cluster") or "").cluster


@dataclass(frozen=True)
class Configuration:
    """The provider's arguments, as far as this plugin minds them; the kubeconfig is None while it isn't known."""

    kubeconfig: kubeconfig.Kubeconfig | None
    namespace: str
    delete_unreachable: bool
    secrets_mutable: bool
    configs_mutable: bool
    force: bool


def read(arguments: Mapping[str, Any]) -> Configuration:
    """Raises:
    Refused: An argument is unknown or unsupported, or the kubeconfig can't be read.
    """
    wrong = problems(arguments)
    if wrong:
        raise Refused("\n".join(f"kubernetes:{key}: {reason}" for key, reason in wrong))
    values = plain(dict(arguments))

    def flag(key: str) -> bool:
        return values.get(key) in TRUE  # the SDK puts the environment's PULUMI_K8S_… into the arguments

    # A provider of the state, whose cluster was replaced, has those arguments that it was made with.
    unreachable = values.get("deleteUnreachable", os.environ.get("PULUMI_K8S_DELETE_UNREACHABLE"))

    given = values.get("kubeconfig")
    known = given is not UNKNOWN
    config = kubeconfig.load(given, values.get("context") or "", values.get("cluster") or "") if known else None
    return Configuration(
        kubeconfig=config,
        namespace=values.get("namespace") or (config.namespace if config else "") or DEFAULT_NAMESPACE,
        delete_unreachable=unreachable in TRUE,
        secrets_mutable=flag("enableSecretMutable"),
        configs_mutable=flag("enableConfigMapMutable"),
        force=flag("enablePatchForce"),
    )
