"""Reads type tokens such as `kubernetes:apps/v1:Deployment` and finds the SDK's types for them."""

from __future__ import annotations

import functools
import typing

from emulator.pulumi import sdk_types


@functools.cache
def input_type(token: str) -> type | None:
    """The SDK's input type, or None for a custom resource."""
    _, group_version, kind = token.split(":")
    group, _, version = group_version.rpartition("/")
    module = f"pulumi_kubernetes.{group.split('.')[0]}.{version}.{kind}"
    try:
        cls = sdk_types.load(module, f"{kind}InitArgs", f"{kind}Args")
    except LookupError:
        return None
    # A custom resource's group may begin like a built-in group.
    api_versions = typing.get_args(sdk_types.properties(cls).get("apiVersion"))
    return cls if api_version(token) in api_versions else None


def api_version(token: str) -> str:
    return token.split(":")[1].removeprefix("core/")


def kind(token: str) -> str:
    return token.split(":")[2]


def refusal(token: str) -> str:
    """Why this plugin doesn't support a type, or "" if it does."""
    _, module, name = token.split(":")
    component = "/" not in module or module.split("/")[0] in ("yaml", "kustomize")
    if component or (module.startswith("helm.sh/") and name == "Chart"):
        return f"{token}: the emulator has no components of the official plugin; use objects or a helm.v3.Release"
    if name.endswith("List") and input_type(token):
        return f"{token}: a list can't be created; create its items"
    if name.endswith("Patch") and input_type(token):
        return f"{token}: the emulator has no Patch resources"
    return ""
