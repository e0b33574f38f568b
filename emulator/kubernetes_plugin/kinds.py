"""What a type token such as `kubernetes:apps/v1:Deployment` says, and what the SDK knows of the type."""

from __future__ import annotations

import functools
import typing

from emulator import sdk_types


@functools.cache
def input_type(token: str) -> type | None:
    """The SDK's input type; None for a custom resource."""
    _, module, kind = token.split(":")
    group, _, version = module.rpartition("/")
    try:
        sdk = sdk_types.load(f"pulumi_kubernetes.{group.split('.')[0]}.{version}.{kind}")
    except ModuleNotFoundError:
        return None
    found: type | None = getattr(sdk, f"{kind}InitArgs", None) or getattr(sdk, f"{kind}Args", None)
    # A custom resource's group may begin like a built-in one.
    stated = typing.get_args(sdk_types.properties(found).get("apiVersion")) if found else ()
    return found if api_version(token) in stated else None


def api_version(token: str) -> str:
    return token.split(":")[1].removeprefix("core/")


def kind(token: str) -> str:
    return token.split(":")[2]


def refusal(token: str) -> str:
    """Why this plugin doesn't do a type, "" if it does."""
    _, module, name = token.split(":")
    component = "/" not in module or module.split("/")[0] in ("yaml", "kustomize")
    if component or (module.startswith("helm.sh/") and name == "Chart"):
        return f"{token}: the official plugin's components aren't in this emulator; state objects, or a helm.v3.Release"
    if name.endswith("List") and input_type(token):
        return f"{token}: a list can't be created; state its items"
    if name.endswith("Patch") and input_type(token):
        return f"{token}: Patch resources aren't in this emulator"
    return ""
