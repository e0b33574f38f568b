"""What earlier versions of this project left in their stacks' state, and what of it is kept.

`VERSION/SYSTEM.json` has the configuration of a stack and its resources, one a line: what Pulumi's engine and providers
compare a program with, and nothing of the machine or the moment. Secrets are there as placeholders.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator.kubernetes_plugin import objects

FOLDER = Path(__file__).resolve().parent
Resource = dict[str, Any]

# What decides whether a resource stays: its place, what was asked for, what came of it, and how it may go.
KEPT = (
    "urn",
    "custom",
    "id",
    "type",
    "inputs",
    "outputs",
    "parent",
    "provider",
    "protect",
    "retainOnDelete",
    "external",
)
# Where nothing answers, and who it would be: a certificate of the tests' own, whose key is nowhere.
NOWHERE = "127.0.0.1:1"
CERTIFICATE = base64.b64encode((FOLDER / "certificate.pem").read_bytes()).decode()
# The token that emulator/run gives; a record has the one of its time.
DUMMY_TOKEN = "hf_emulator"
FORMER_DUMMY_TOKEN = "hf_stand-in"
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_CERTIFICATE = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+")
RELEASE = "kubernetes:helm.sh/v3:Release"
SECRETS = "kubernetes:core/v1:Secret"


def recorded(deployment: Mapping[str, Any], stack: str, config: Mapping[str, Any]) -> str:
    """The text of a record: of an exported deployment whose secrets are shown, and of the stack's configuration."""
    lines = [json.dumps(_trimmed(resource), sort_keys=True) for resource in deployment["resources"]]
    text = ",\n".join(lines).replace(f"urn:pulumi:{stack}::", "urn:pulumi:STACK::").replace(f"gke-ai-{stack}", "STACK")
    text = _CERTIFICATE.sub("CERTIFICATE", _ADDRESS.sub(NOWHERE, text))
    return f'{{"config": {json.dumps(config, sort_keys=True)},\n"resources": [\n{text}\n]}}\n'


def systems(version: str) -> list[str]:
    """The names of the systems that a version has records of."""
    return sorted(file.stem for file in (FOLDER / version).glob("*.json"))


def versions() -> list[str]:
    """The versions with records."""
    return sorted(folder.name for folder in FOLDER.iterdir() if any(folder.glob("*.json")))


def read(version: str, system: str, stack: str) -> tuple[dict[str, Any], list[Resource]]:
    """Configuration and resources of a record, as those of the stack of this name."""
    text = (FOLDER / version / f"{system}.json").read_text()
    text = text.replace("urn:pulumi:STACK::", f"urn:pulumi:{stack}::").replace("::STACK", f"::gke-ai-{stack}")
    text = text.replace(FORMER_DUMMY_TOKEN, os.environ.get("HF_TOKEN") or DUMMY_TOKEN)
    found = json.loads(text.replace("CERTIFICATE", CERTIFICATE))
    resources: list[Resource] = found["resources"]
    # A configuration may omit the project; then the record has the default of the emulator of that version.
    (project,) = {one["inputs"]["project"] for one in resources if one["type"] == "pulumi:providers:gcp"}
    return {"gcp:project": project, **found["config"]}, [_whole(resource) for resource in resources]


def _trimmed(resource: Resource) -> Resource:
    kept = {key: resource[key] for key in KEPT if resource.get(key) not in (None, False)}
    outputs = kept.pop("outputs", {})
    if not resource.get("custom"):
        return kept  # what a component gives says nothing that its children don't
    inputs = kept.get("inputs", {})
    if resource["type"] == RELEASE:
        outputs = {"status": {key: outputs["status"][key] for key in ("status", "version")}}
    elif resource["type"].startswith("kubernetes:"):
        stated = ({"data"} if resource["type"] == SECRETS else set()) | inputs.keys()
        outputs = objects.pruned({key: value for key, value in outputs.items() if key in stated}, outputs | inputs)
    kept["outputs"] = {key: value for key, value in outputs.items() if inputs.get(key) != value}
    return kept


def _whole(resource: Resource) -> Resource:
    if resource.get("custom"):
        resource["outputs"] = resource.get("inputs", {}) | resource.get("outputs", {})
        if resource["type"].startswith("kubernetes:"):
            resource["outputs"].setdefault("__inputs", resource["inputs"])
    return resource
