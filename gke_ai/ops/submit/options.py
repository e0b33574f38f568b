"""A run from options of the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gke_ai.terminal import Stop

if TYPE_CHECKING:
    # Otherwise the rules would be loaded before the cluster is asked.
    from gke_ai.settings.published import Published

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
    image: str | None = None
    command: Sequence[str] = ()
    pods: int | None = None
    gpus_per_pod: int | None = None
    queue: str | None = None
    priority_class: str | None = None
    pool: str | None = None
    accelerator: str | None = None
    compute_class: str | None = None
    tpu: str | None = None
    topology: str | None = None
    slices: int | None = None
    cpu: str | None = None
    memory: str | None = None
    shared_memory: str | None = None
    env: Sequence[str] = ()
    mounts: Sequence[str] = ()
    checkpoints: str | None = None
    resume_from: str | None = None
    max_restarts: int | None = None
    termination_grace_period_seconds: int | None = None
    service_account: str | None = None

    def run(self, published: Published | None) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run, and the run as it would stand there. Stops at a text that no key takes."""
        section, place = self._place(published)
        item = {
            "name": self.name,
            "image": self.image,
            "command": list(self.command),
            "pods": self.pods,
            "gpusPerPod": self.gpus_per_pod,
            "queue": self.queue,
            "priorityClass": self.priority_class,
            "pool": self.pool,
            "accelerator": self.accelerator,
            "computeClass": self.compute_class,
            "resources": {key: text for key, text in (("cpu", self.cpu), ("memory", self.memory)) if text is not None},
            "env": dict(_pair("--env", text) for text in self.env),
            "volumes": [_mount(text) for text in self.mounts],
            "checkpoints": _directory(self.checkpoints) if self.checkpoints else None,
            "resumeFrom": self.resume_from,
            "sharedMemory": self.shared_memory,
            "maxRestarts": self.max_restarts,
            "terminationGracePeriodSeconds": self.termination_grace_period_seconds,
            "serviceAccount": self.service_account,
            **place,
        }
        stated = {key: value for key, value in item.items() if value not in (None, [], {})}
        return section, {**_defaults(published, stated), **stated}

    def _place(self, published: Published | None) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run, and the keys of its kind and its slices. Without slices it is on GPUs."""
        tpu_pools = published.sections["tpuPools"] if published else []
        on_tpus = any(pool["name"] == self.pool for pool in tpu_pools)
        of_slice = bool(_SLICE.fullmatch(self.topology or ""))
        named = {"version": self.tpu, "topology": self.topology if of_slice else None}
        tpu = {"tpu": {key: text for key, text in named.items() if text}}
        placed = {"topology": _topology(self.topology)} if self.topology and not of_slice else {}
        if self.slices is not None:
            pools = {"pool": None, "pools": [self.pool]} if on_tpus else {}
            return "training", {"kind": "multislice", "slices": self.slices, **tpu, **pools, **placed}
        return ("batch", {**tpu, **placed}) if tpu["tpu"] or on_tpus else ("training", {"kind": "job", **placed})


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


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Stop(f"{option} {text} has no value. Write {option} NAME=VALUE")
    return name, value


def _topology(text: str) -> dict[str, str]:
    from gke_ai.catalog.fabric.topology import TOPOLOGY_KINDS

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
