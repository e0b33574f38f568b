"""The provider's functions that the program calls.

They read resources and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from emulator.cloud.store import project_number
from emulator.google.cluster_records import is_autopilot
from emulator.google.containers import NODE_POOL, Cluster, NodePool
from emulator.google.resource import Cloud, Properties
from emulator.google.schema import Schema
from emulator.google.secrets import get_secret
from emulator.pulumi.plugin import Refused, plain


def get_project(cloud: Cloud, arguments: Properties) -> Properties:
    """`getProject`: every well-formed project id exists here.

    The number follows from the id.
    """
    _check_arguments(arguments, {"projectId"})
    project = arguments.get("projectId") or cloud.project_of({})
    # https://cloud.google.com/resource-manager/docs/creating-managing-projects#before_you_begin
    if not re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", project):
        raise Refused(f"project: {project!r} is not a project id: 6 to 30 lower-case letters, digits and hyphens")
    return {
        "id": f"projects/{project}",
        "projectId": project,
        "name": project,
        "number": project_number(project),
        "labels": {},
    }


def get_cluster(cloud: Cloud, arguments: Properties) -> Properties:
    """`getCluster`: an existing cluster, whoever created it.

    As in the provider, a block is a list of one item.
    """
    _check_arguments(arguments, {"name", "location", "project", "skipNodePoolRefresh"})
    resource = Cluster(cloud)
    identity = resource.identity(arguments)
    record = resource.read(identity)
    if record is None:
        raise Refused(f"{identity} not found")
    outputs = plain(resource.outputs(record))
    plain_names = {
        *("datapathProvider", "endpoint", "location", "masterVersion", "name", "network", "nodeLocations"),
        *("nodeVersion", "project", "resourceLabels", "selfLink"),
    }
    result: dict[str, Any] = {name: value for name, value in outputs.items() if name in plain_names}
    for name in blocks_of(resource.schema):
        value = outputs.get(name)
        # A block whose name is a plural keeps it, such as confidentialNodes.
        plural = name if re.search(r"[^u]s$", name) else _plural(name)
        result[plural] = [] if value is None else [_lists(value)]
    pools = [NodePool(cloud).outputs(pool) for pool in cloud.store.all(NODE_POOL, under=f"{identity}/nodePools/")]
    result["nodePools"] = [_lists(pool) for pool in pools]
    return result | {"id": record.identity, "enableAutopilot": is_autopilot(record.inputs)}


def blocks_of(schema: Schema) -> list[str]:
    """The blocks of a resource itself."""
    return [name for name, property_ in schema.properties.items() if property_.block and "." not in name]


def _lists(block: Properties) -> Properties:
    """Turns the blocks within a block into lists of one item with plural names, as in the function's result."""
    return {
        (_plural(name) if isinstance(value, dict) else name): [_lists(value)] if isinstance(value, dict) else value
        for name, value in block.items()
    }


def _plural(name: str) -> str:
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _check_arguments(arguments: Properties, names: set[str]) -> None:
    for name in arguments:
        if name not in names:
            raise Refused(f"unknown argument {name}; known are {', '.join(sorted(names))}")


FUNCTIONS: dict[str, Callable[[Cloud, Properties], Properties]] = {
    "gcp:organizations/getProject:getProject": get_project,
    "gcp:container/getCluster:getCluster": get_cluster,
    "gcp:secretmanager/getSecret:getSecret": get_secret,
}
