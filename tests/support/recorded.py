"""Recorded states of stacks that earlier versions of this project deployed, in tests/data/recorded.

`VERSION/SYSTEM.json` has the configuration of a stack and its resources, one per line. A resource has the values that
Pulumi's engine and providers compare a program with, and nothing about the machine or the time. Secrets are
placeholders.
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from emulator.pulumi.kubernetes import kinds, objects, releases
from emulator.pulumi.kubernetes.omitted import without_omitted
from gke_ai.catalog.nodes.shape import RUN_OWNER
from tests.support.repository import ROOT

FOLDER = ROOT / "tests" / "data" / "recorded"
Resource = dict[str, Any]

# Fields that decide what an update does with a resource.
_KEPT = "urn custom id type inputs outputs parent provider protect retainOnDelete external"
# An address without a listener, and a certificate of the tests whose key was discarded.
NOWHERE = "127.0.0.1:1"
CERTIFICATE = base64.b64encode((FOLDER / "certificate.pem").read_bytes()).decode()
# The token that emulator/run sets. A record has the token of its version.
DUMMY_TOKEN = "hf_emulator"
FORMER_DUMMY_TOKEN = "hf_stand-in"
# The default engine of versions with another one than today. docs/upgrading.md tells to state it before the upgrade.
FORMER_ENGINE = {"0.2.0": "tgi"}
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_CERTIFICATE = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+")
RELEASE = "kubernetes:helm.sh/v3:Release"
SECRETS = "kubernetes:core/v1:Secret"
# Marks of a secret in a state (sdk/go/common/resource of Pulumi: SigKey, SecretSig). An import encrypts the plain text.
SIGNATURE, SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"


def recorded(deployment: Mapping[str, Any], stack: str, config: Mapping[str, Any]) -> str:
    """Formats a record of an exported deployment with plain secrets, and of the stack's configuration."""
    lines = [json.dumps(_trimmed(resource), sort_keys=True) for resource in deployment["resources"]]
    text = ",\n".join(lines).replace(f"urn:pulumi:{stack}::", "urn:pulumi:STACK::").replace(f"gke-ai-{stack}", "STACK")
    text = _CERTIFICATE.sub("CERTIFICATE", _ADDRESS.sub(NOWHERE, text))
    return f'{{"config": {json.dumps(config, sort_keys=True)},\n"resources": [\n{text}\n]}}\n'


def systems(version: str) -> list[str]:
    return sorted(file.stem for file in (FOLDER / version).glob("*.json"))


def versions() -> list[str]:
    return sorted(folder.name for folder in FOLDER.iterdir() if any(folder.glob("*.json")))


def read(version: str, system: str, stack: str, prepared: bool = True) -> tuple[dict[str, Any], list[Resource]]:
    """Returns configuration and resources of a record, for a stack of this name.

    If `prepared`, the configuration is ready for the upgrade, as docs/upgrading.md says; else it is as recorded.
    """
    text = (FOLDER / version / f"{system}.json").read_text()
    text = text.replace("urn:pulumi:STACK::", f"urn:pulumi:{stack}::")
    text = re.sub(r"(?<=::)STACK|(?<=-of-)STACK", f"gke-ai-{stack}", text)
    text = text.replace(FORMER_DUMMY_TOKEN, os.environ.get("HF_TOKEN") or DUMMY_TOKEN)
    record = json.loads(text.replace("CERTIFICATE", CERTIFICATE))
    resources: list[Resource] = record["resources"]
    for server in record["config"].get("gke-ai:serving", []) if prepared and version in FORMER_ENGINE else []:
        server.setdefault("engine", FORMER_ENGINE[version])
    # A configuration may omit the project. Then the record has the default of that version's emulator.
    (project,) = {resource["inputs"]["project"] for resource in resources if resource["type"] == "pulumi:providers:gcp"}
    return {"gcp:project": project, **record["config"]}, [_restored(resource) for resource in resources]


def _trimmed(resource: Resource) -> Resource:
    kept = {key: resource[key] for key in _KEPT.split() if resource.get(key) not in (None, False)}
    outputs = kept.pop("outputs", {})
    if not resource.get("custom"):
        return kept  # a component's outputs only repeat those of its children
    inputs = kept.get("inputs", {})
    if resource["type"] == RELEASE:
        outputs = {"status": {key: outputs["status"][key] for key in ("status", "version")}}
    elif resource["type"].startswith("kubernetes:"):
        stated = ({"data"} if resource["type"] == SECRETS else set()) | inputs.keys()
        uid = outputs.get("metadata", {}).get("uid")
        outputs = objects.pruned({key: value for key, value in outputs.items() if key in stated}, outputs | inputs)
        if RUN_OWNER in inputs.get("metadata", {}).get("annotations", {}):  # runs name it by its uid
            outputs["metadata"] = {**inputs["metadata"], "uid": uid}
    kept["outputs"] = {key: value for key, value in outputs.items() if inputs.get(key) != value}
    return kept


def _restored(resource: Resource) -> Resource:
    """The resource as the engine and the official kubernetes plugin record it."""
    if resource["type"] == RELEASE:
        resource["inputs"] = releases.completed(resource["inputs"])
    elif resource["type"] == SECRETS:
        resource["inputs"] = _with_data(resource["inputs"])
        resource["outputs"].pop("data", None)
    elif resource["type"].startswith("kubernetes:") and kinds.input_type(resource["type"]):
        resource["inputs"] = without_omitted(resource["inputs"])
    if resource.get("custom"):
        resource["outputs"] = resource.get("inputs", {}) | resource.get("outputs", {})
        resource["outputs"].pop("__internal", None)  # only inputs of providers have it
        if resource["type"] == RELEASE:  # the plugin only accepts them as a secret
            resource["outputs"]["__inputs"] = {SIGNATURE: SECRET, "plaintext": json.dumps(resource["inputs"])}
        elif resource["type"].startswith("kubernetes:"):
            resource["outputs"].setdefault("__inputs", resource["inputs"])
    return resource


def _with_data(secret: Resource) -> Resource:
    """A Kubernetes Secret with its `stringData` as `data`, which is marked as secret in the state."""
    fields = ("data", "stringData")
    plain = {field: json.loads(secret[field]["plaintext"]) for field in fields if field in secret}
    if not plain:  # a token that the cluster fills in
        return secret
    data = objects.normalized({"apiVersion": "v1", "kind": "Secret", **plain})["data"]
    kept = {key: value for key, value in secret.items() if key not in fields}
    return kept | {"data": {SIGNATURE: SECRET, "plaintext": json.dumps(data)}}
