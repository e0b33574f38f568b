"""Reads a checkout of Cluster Toolkit: blueprints, defaults of modules' variables, and Kubernetes manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

UNKNOWN = "…"
"""A value that only a deployment has."""
# Blocks of Terraform that create nothing in a cloud or a cluster.
_CREATE_NOTHING = re.compile(r"(null_resource|random_id|terraform_data|time_sleep|local_file)\b")


class Item(NamedTuple):
    """An object that a blueprint makes: its type in Terraform or kind in Kubernetes, and settings by their path."""

    kind: str
    name: str
    settings: Mapping[str, Any] = {}


class Module:
    """A module of a blueprint, with its inputs."""

    def __init__(self, blueprint: Blueprint, spec: Mapping[str, Any]) -> None:
        self.blueprint = blueprint
        self.id: str = spec["id"]
        self.source: str = spec["source"]
        self.folder: Path = blueprint.checkout / self.source
        self.uses = [blueprint.modules[name] for name in spec.get("use", []) if name in blueprint.modules]
        self._settings: Mapping[str, Any] = spec.get("settings", {})
        self.unread = set(self._settings)

    def __getitem__(self, variable: str) -> Any:
        """The value of a variable: that of the blueprint, else its default in Terraform."""
        declaration = re.search(rf'^variable "{variable}" {{\n(.*?)^}}', self._text("variables.tf"), re.M | re.S)
        if declaration is None:
            raise LookupError(f"{self.source} has no variable {variable}")
        self.unread.discard(variable)
        if variable in self._settings:
            return self.blueprint.resolved(self._settings[variable])
        if variable in self.blueprint.variables:
            return self.blueprint.resolved(f"$(vars.{variable})")
        default = re.search(r"^  default\s*=\s*(.*?)(?=^  \w|\Z)", declaration[1], re.M | re.S)
        return UNKNOWN if default is None else literal(default[1])

    def skip(self, *variables: str) -> None:
        """Settings that no essential setting of an object follows from."""
        self.unread -= {*variables}

    def nested_default(self, variable: str, key: str) -> str:
        """The default of a key of an object variable."""
        text = self._text("variables.tf")
        match = re.search(rf'^variable "{variable}" {{\n.*?{key}\s*=\s*optional\(string, "(.*?)"\)', text, re.M | re.S)
        return match[1] if match else UNKNOWN

    def networks(self) -> list[str]:
        """The type of NIC of each additional network of the module."""
        if "additional_networks" in self._settings:
            self.unread.discard("additional_networks")
            names = re.findall(r"([\w-]+)\.\w+", str(self._settings["additional_networks"]))
            return [nic for name in names for nic in self.blueprint.networks(name)]
        used = [module.id for module in self.uses if module.source == "modules/network/multivpc"]
        return [nic for name in used for nic in self.blueprint.networks(name)]

    def used(self, source: str) -> list[Module]:
        """Modules of a source that this one uses."""
        return [module for module in self.uses if module.source == source]

    def creates(self) -> set[str]:
        """Resources and external modules in the module's Terraform."""
        text = "".join(path.read_text() for path in sorted(self.folder.glob("*.tf")))
        blocks = re.findall(
            r'^(?:resource "(\w+)" "\w+"|module "(\w+)" \{\s*(?:\w+\s*=[^\n]*\n\s*)*?source\s*=\s*"(.*?)")', text, re.M
        )
        found = {kind or f"module.{name}" for kind, name, source in blocks if not source.startswith("../../internal")}
        return {name for name in found if not _CREATE_NOTHING.match(name)}

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text()


class Blueprint:
    """A blueprint, with the variables of the deployment file beside it."""

    def __init__(self, checkout: Path, path: Path) -> None:
        self.checkout, self.path = checkout, path
        content = yaml.safe_load(path.read_text())
        self.variables: dict[str, Any] = dict(content["vars"])
        deployment = path.parent / f"{path.stem.removesuffix('-advanced')}-deployment.yaml"
        if path.parent.name != "examples" and deployment.exists():
            given = yaml.safe_load(deployment.read_text())["vars"]
            # Placeholders there are in capitals.
            self.variables |= {key: value for key, value in given.items() if value and not str(value).isupper()}
        self.modules: dict[str, Module] = {}
        for group in content["deployment_groups"]:
            for spec in group["modules"]:
                self.modules[spec["id"]] = Module(self, spec)

    @cached_property
    def name(self) -> str:
        return self.path.stem

    def resolved(self, value: Any) -> Any:
        """A value with its variables; UNKNOWN for what only a deployment or Terraform knows."""
        if isinstance(value, Mapping):
            return {key: self.resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolved(item) for item in value]
        if not isinstance(value, str):
            return value
        if match := re.fullmatch(r"\$\(vars\.(\w+)\)", value):
            found = self.resolved(self.variables.get(match[1]))
            return UNKNOWN if found is None or str(found).startswith("<") else found
        if match := re.fullmatch(r'\$\(ghpc_stage\("(.*?)"\)\)', value):
            return self.path.parent / match[1]
        text = re.sub(r"\$\(vars\.(\w+)\)-?", lambda match: "" if match[1] == "deployment_name" else UNKNOWN, value)
        return UNKNOWN if "$(" in text else text

    def networks(self, name: str) -> list[str]:
        """The type of NIC of each network that a module creates; none for another word of an expression."""
        module = self.modules.get(name)
        if module is None:
            return []
        if module.source == "modules/network/multivpc":
            return ["GVNIC"] * int(module["network_count"])
        if module.source == "modules/network/gpu-rdma-vpc":
            template = module["subnetworks_template"]
            return ["MRDMA"] * (template["count"] if template else 8)  # eight on metal
        return [module["nic_type"]] if module.source == "modules/network/vpc" else []


def literal(text: str) -> Any:
    """A literal of Terraform. Its objects become YAML."""
    text = re.sub(r"#.*", "", text).strip()
    text = re.sub(r"(\w+)\s*=\s*", r"\1: ", text)
    text = re.sub(r"\s*\n\s*", ", ", text)
    text = re.sub(r"([\[{]), ", r"\1", re.sub(r",(\s*,)+", ",", text))
    return yaml.safe_load(re.sub(r",\s*([\]}])", r"\1", text).rstrip(", "))


def manifests(path: Path, variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The Kubernetes objects of a manifest or a template."""
    lines = [line for line in path.read_text().splitlines() if "%{" not in line]
    text = re.sub(r"\$\{(\w+)[^}]*\}", lambda match: str(variables.get(match[1], UNKNOWN)), "\n".join(lines))
    yield from (document for document in yaml.safe_load_all(text) if document)
