"""The file for `pulumi import --file`: what a preview would create and a project may have, instead of a second one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gke_ai.ops.lifecycle.network_pools import steps
from gke_ai.registered.types import CLUSTER, NETWORK, NODE_POOL, ROUTER, ROUTER_NAT, STACK, SUBNETWORK

# The ids by which Google's provider imports: the section Import of each resource, such as
# https://www.pulumi.com/registry/packages/gcp/api-docs/container/nodepool/#import
IDS = {
    CLUSTER: "projects/{project}/locations/{location}/clusters/{name}",
    NODE_POOL: "projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{name}",
    NETWORK: "projects/{project}/global/networks/{name}",
    SUBNETWORK: "projects/{project}/regions/{region}/subnetworks/{name}",
    ROUTER: "projects/{project}/regions/{region}/routers/{name}",
    ROUTER_NAT: "{project}/{region}/{router}/{name}",
}


def write(events: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Writes the import file for the events of a preview."""
    planned = {step["urn"]: step for step in steps(events) if step.get("new")}
    registered = {urn: step["new"] for urn, step in planned.items()}
    created = [urn for urn, step in planned.items() if step["op"] == "create"]
    wanted = [urn for urn in created if registered[urn]["type"] in IDS]
    within = dict.fromkeys(parent for urn in wanted for parent in _parents(registered, urn))
    resources = [_entry(registered, urn) for urn in (*within, *wanted) if urn in created]
    names = {parent: parent for parent in within if parent not in created}
    file.write_text(json.dumps({"nameTable": names, "resources": resources}, indent=2) + "\n")


def _parents(registered: Mapping[str, Any], urn: str) -> Iterator[str]:
    """The components around a resource, without the stack, the outermost first."""
    parent = registered[urn].get("parent") or ""
    if parent in registered and registered[parent]["type"] != STACK:
        yield from _parents(registered, parent)
        yield parent


def _entry(registered: Mapping[str, Any], urn: str) -> dict[str, Any]:
    """A resource of the import file. URNs are the names, because those of resources are not unique."""
    state = registered[urn]
    entry = {"type": state["type"], "name": urn, "logicalName": urn.rpartition("::")[2]}
    if parents := [*_parents(registered, urn)]:
        entry["parent"] = parents[-1]
    if state["type"] not in IDS:
        return {**entry, "component": True}
    inputs = {key: str(value).rpartition("/")[2] for key, value in state["inputs"].items()}
    default = state.get("provider", "").split("::")[-2].removeprefix("default_")  # such as default_10_2_0
    return {**entry, "id": IDS[state["type"]].format_map(inputs), "version": default.replace("_", ".")}
