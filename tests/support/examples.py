"""Examples and environments with other keys than they have, and the pools of a cluster that is not of a stack."""

from collections.abc import Mapping
from typing import Any

import yaml

from tests.support import repository
from tests.support.emulator import ROOT
from tests.support.recorder import Record, configuration

GATEWAY = "examples/inference-gateway.yaml"
# What a user gets who follows README.md: a project, a group, and a token that Pulumi encrypted.
TOKEN = "  gke-ai:hfToken:\n    secure: v1:cipher\n"
SET_UP = {
    "my-project": "acme-ml",
    "group:research@example.com": "group:ml-research@acme.example",
    "config:\n": f"encryptionsalt: v1:salt\nconfig:\n{TOKEN}",
}


def set_up(name: str) -> str:
    """An environment that is set up as the README says."""
    text = repository.source(name).read_text()
    for shipped, own in SET_UP.items():
        text = text.replace(shipped, own)
    if "hfTokenSecret" in text:  # the token is in Secret Manager
        text = text.replace(TOKEN, "")
    assert "v1:salt" in text
    return text


def gateway_example(gateway: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """The first model of the example, with some keys of its gateway, and some sections, replaced."""
    config = configuration(GATEWAY)
    config["gke-ai:serving"] = config["gke-ai:serving"][:2]
    config["gke-ai:gateway"]["routes"] = config["gke-ai:gateway"]["routes"][:1]
    config |= {f"gke-ai:{name}": value for name, value in sections.items()}
    config["gke-ai:gateway"] |= gateway or {}
    return config


def of_tenants(*names: str, **gateway: Any) -> dict[str, Any]:
    """The example with its servers in the namespaces of tenants, each with a route of its own if there are several."""
    config = gateway_example(gateway, tenants=[{"name": name} for name in names])
    config["gke-ai:queues"] = {
        "flavors": [{"name": "l4", "pools": ["l4"]}],
        "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "l4", "quota": "derive"}]}],
        "localQueues": [{"name": "lq", "namespace": name, "clusterQueue": "gpus"} for name in names],
    }
    for server, name in zip(config["gke-ai:serving"], names * 2, strict=False):
        server |= {"queue": "lq", "namespace": name}
    if len(names) > 1:
        servers = config["gke-ai:serving"]
        config["gke-ai:gateway"]["routes"] = [
            {"name": server["name"], "host": f"{server['name']}.example.com", "servers": [{"server": server["name"]}]}
            for server in servers
        ]
    return config


MODEL_CACHE = "examples/model-cache.yaml"


def cache_example(cache: Mapping[str, Any] | None = None, **server: Any) -> dict[str, Any]:
    """The example with other keys of the server and of its model cache."""
    config = configuration(MODEL_CACHE)
    (only,) = config["gke-ai:serving"]
    only |= server
    only["modelCache"] |= cache or {}
    return config


def pod_of(record: Record, kind: str = "Deployment") -> dict[str, Any]:
    template: dict[str, Any] = record.one(kind).inputs["spec"]["template"]
    return template


def container_of(record: Record, kind: str = "Deployment") -> dict[str, Any]:
    container: dict[str, Any] = pod_of(record, kind)["spec"]["containers"][0]
    return container


EXAMPLE = "examples/mixed-training-inference.yaml"


def section(name: str, source: str = EXAMPLE) -> Any:
    return yaml.safe_load((ROOT / source).read_text())["config"][f"gke-ai:{name}"]


def changed(name: str, **keys: Any) -> dict[str, Any]:
    """A section of the example with some keys changed. For a list, its first item."""
    changed_section = section(name)
    if isinstance(changed_section, list):
        return {name: [{**changed_section[0], **keys}, *changed_section[1:]]}
    return {name: {**changed_section, **keys}}


ZONES = ["us-central1-a"]
# As gcloud container node-pools list --format json prints them.
_CONFIG = {"machineType": "e2-standard-16", "imageType": "COS_CONTAINERD"}
_SCALED = {"autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 3}, "status": "RUNNING"}
POOLS = [
    {"name": "cpu", "locations": ZONES, "config": _CONFIG, **_SCALED},
    {"name": "system", "locations": ZONES, "config": {"machineType": "e2-standard-8"}, "initialNodeCount": 1},
]
