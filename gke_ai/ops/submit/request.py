"""What a user asks to submit: a run as it stands in a configuration, one from options, or a manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gke_ai.catalog.fabric.topology import TOPOLOGY_KINDS
from gke_ai.ops.submit.workdir import LABEL, Code
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration
from gke_ai.workspace.run_file import run_of

_SLICE = re.compile(r"\d+(x\d+)*")  # the topology of a TPU slice
# The option that sets a key of a training job, for messages.
OPTIONS: Mapping[str, str] = {
    "name": "NAME",
    "namespace": "--namespace",
    "image": "--image",
    "command": "COMMAND",
    "pods": "--pods",
    "gpusPerPod": "--gpus",
    "queue": "--queue",
    "priorityClass": "--priority",
    "pool": "--pool",
    "pools": "--pool",
    "tpu": "--tpu",
    "tpu.topology": "--topology",
    "slices": "--num-slices",
    "accelerator": "--accelerator",
    "computeClass": "--compute-class",
    "topology": "--topology",
    "checkpoints": "--checkpoints",
    "resumeFrom": "--resume-from",
    "volumes": "--mount",
    "resources.cpu": "--cpu",
    "resources.memory": "--memory",
    "env": "--env",
    "maxRestarts": "--restarts",
    "terminationGracePeriodSeconds": "--grace-period",
    "serviceAccount": "--service-account",
    "sharedMemory": "--shared-memory",
}


@dataclass(frozen=True)
class Options:
    """A run from options of the command line. What is not stated has the default of its key."""

    name: str
    image: str
    command: Sequence[str] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the section that an option states as they are, None for those that it does not state."""
    cpu: str | None = None
    memory: str | None = None
    env: Sequence[str] = ()
    mounts: Sequence[str] = ()
    checkpoints: str | None = None
    tpu: str | None = None
    topology: str | None = None
    slices: int | None = None

    def run(self, published: Published | None) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run, and the run as it would stand there. Stops at a text that no key takes."""
        section, place = self._place(published)
        item = {
            "name": self.name,
            "image": self.image,
            "command": list(self.command),
            "resources": {"cpu": self.cpu, "memory": self.memory},
            "env": dict(_pair("--env", text) for text in self.env),
            "volumes": [_mount(text) for text in self.mounts],
            "checkpoints": _directory(self.checkpoints) if self.checkpoints else None,
            **self.keys,
            **place,
        }
        item["resources"] = {key: value for key, value in item["resources"].items() if value is not None}
        stated = {key: value for key, value in item.items() if value not in (None, [], {})}
        return section, {**_defaults(published, stated), **stated}

    def _place(self, published: Published | None) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run, and the keys of its kind and its slices. Without slices it is on GPUs."""
        pool = self.keys.get("pool")
        on_tpus = _is_tpu_pool(published, pool)
        of_slice = bool(_SLICE.fullmatch(self.topology or ""))
        named = {"version": self.tpu, "topology": self.topology if of_slice else None}
        tpu = {"tpu": {key: text for key, text in named.items() if text}}
        placed = {"topology": _topology(self.topology)} if self.topology and not of_slice else {}
        if self.slices is not None:
            pools = {"pool": None, "pools": [pool]} if on_tpus else {}
            return "training", {"kind": "multislice", "slices": self.slices, **tpu, **pools, **placed}
        return ("batch", {**tpu, **placed}) if tpu["tpu"] or on_tpus else ("training", {"kind": "job", **placed})


@dataclass(frozen=True)
class Request:
    """A run to submit: in a file as it stands in a configuration, or from options."""

    file: Path | None = None
    options: Options | None = None
    code: Code | None = None
    """The code that it brings along."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of the file. Stops if it is a manifest."""
        content = read_configuration(self.file) if self.file else {}
        if "apiVersion" in content:
            raise Stop(f"{self.file} is a manifest. Submit it with --manifest {self.file}")
        return content

    @property
    def stated_namespace(self) -> str:
        """The namespace in the file; empty if it states none."""
        if not self.file:
            return ""
        _, item = run_of(self.file, self.content, set())
        return str(item.get("namespace") or "") if isinstance(item, dict) else ""

    def run(self, published: Published | None, namespace: str) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run and the run, in a namespace. Stops if the file has no run."""
        section, item = self.options.run(published) if self.options else ("training", {})
        if self.file:
            tpu_pools = published.sections["tpuPools"] if published else []
            section, item = run_of(self.file, self.content, {pool["name"] for pool in tpu_pools})
        if not isinstance(item, dict):
            raise Stop(f"{self.file} has no run. Write one entry of training or batch.")
        # By the label, another code is another run.
        labels = {"labels": {**(item.get("labels") or {}), LABEL: self.code.digest}} if self.code else {}
        return section, {**item, "namespace": namespace, **labels}

    def named(self, path: str) -> str:
        """Returns where a user wrote a key of the run: in the file, or as an option. `path` begins with the section."""
        inside = path.partition("[0]")[2].removeprefix(".")
        if self.file:
            return f"{self.file}: {inside}" if inside else str(self.file)
        key = next((key for key in sorted(OPTIONS, key=len, reverse=True) if inside.startswith(key)), "")
        return OPTIONS.get(key, inside)


def _defaults(published: Published | None, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The only queue, the tenant's service account, and the only pool or GPU type of the queue's flavors."""
    if published is None:
        return {}
    queues, (tenant,) = published.sections["queues"], published.sections["tenants"]
    defaults: dict[str, Any] = {"serviceAccount": tenant.get("serviceAccount", "workload")}
    if len(queues["localQueues"]) == 1:
        defaults["queue"] = queues["localQueues"][0]["name"]
    if not {"pool", "accelerator", "computeClass", "tpu", "slices"} & stated.keys():
        gpu_pools = {pool["name"] for pool in published.sections["gpuPools"]}
        pools = {pool for flavor in queues["flavors"] for pool in flavor.get("pools", []) if pool in gpu_pools}
        types = {flavor["accelerator"] for flavor in queues["flavors"] if flavor.get("accelerator")}
        if len(pools | types) == 1:
            defaults["pool" if pools else "accelerator"] = (pools | types).pop()
    return defaults


def _is_tpu_pool(published: Published | None, name: object) -> bool:
    return published is not None and any(pool["name"] == name for pool in published.sections["tpuPools"])


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Stop(f"{option} {text} has no value. Write {option} NAME=VALUE")
    return name, value


def _topology(text: str) -> dict[str, str]:
    how, _, level = text.partition("=")
    if how not in TOPOLOGY_KINDS or not level:
        raise Stop(
            f"--topology {text} is not required=LEVEL or preferred=LEVEL, and no TPU slice. Write for example "
            "--topology required=block, or --topology 2x4 for a slice."
        )
    return {how: level}


def _directory(text: str) -> dict[str, str]:
    bucket, _, path = text.removeprefix("gs://").strip("/").partition("/")
    return {"bucket": bucket, **({"path": path} if path else {})}


def _mount(text: str) -> dict[str, Any]:
    bucket, *parts = text.split(";")
    if not parts or len(parts) > 2 or parts[1:] not in ([], ["ro"], ["rw"]):
        raise Stop(
            f"--mount {text} is not 'BUCKET;PATH' or 'BUCKET;PATH;ro', in quotes: in a shell, a semicolon ends the "
            "command. Write for example --mount 'datasets;/data;ro'"
        )
    return {"bucket": bucket.removeprefix("gs://"), "mountPath": parts[0], "readOnly": parts[1:] == ["ro"]}
