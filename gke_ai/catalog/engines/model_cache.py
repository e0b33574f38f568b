"""Models in a bucket: how a Job fills it, and how servers read it (docs/model-cache.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# https://hub.docker.com/_/python. The digest is the one under which several public repositories pin this tag; it was
# never compared with the registry. The programs need Python 3.11 or newer, and no package.
FILL_IMAGE = (
    "docker.io/library/python:3.13-slim@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285"
)
HUB = "huggingface.co"
# Service account of the Jobs that fill buckets, in gke_ai.catalog.kueue.namespaces.MODEL_CACHE. Nothing else runs as
# it.
ACCOUNT = "model-download"
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup#authentication
WRITER, READER = "roles/storage.objectUser", "roles/storage.objectViewer"
# Roles that can write no object: https://cloud.google.com/storage/docs/access-control/iam-roles
CANNOT_WRITE = {
    *(READER, "roles/storage.legacyObjectReader", "roles/storage.legacyBucketReader"),
    *("roles/storage.bucketViewer", "roles/storage.insightsCollectorService"),
}
# Where servers and Jobs mount the bucket.
MOUNT_PATH = "/models"
# What vLLM keeps of an earlier start is in a folder of the bucket for each server, which alone may write there: vLLM
# loads it as code. A file that it can't load, it compiles again: https://docs.vllm.ai/en/latest/design/torch_compile/
# Of 0.28.0, with PyTorch 2.11, others measured that 8 engines that start at once write whole files:
# https://github.com/NovaSky-AI/SkyRL/pull/2167. Earlier releases were not tried with such a PyTorch.
COMPILED_PATH = "/compiled"
COMPILED_VARIABLE = "VLLM_CACHE_ROOT"
COMPILED_SINCE = (0, 28, 0)
WITHOUT_COMPILED = "VLLM_DISABLE_COMPILE_CACHE"
# Requests of the Job's container and of its sidecar, our choice. A file that is written needs 96 MiB of the sidecar:
# https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/semantics.md#streaming-writes---default-write-path
FILL_REQUEST: Mapping[str, str] = {"cpu": "1", "memory": "1Gi"}
FILL_SIDECAR: Mapping[str, str] = {"cpu": "1", "memory": "1Gi"}
# Exit status of gke_ai/pods/programs/fill_bucket.py that another try does not change, such as for a gated model.
REFUSED = 3
# The first release whose image has the streamer with Cloud Storage: https://github.com/vllm-project/vllm/pull/26464
STREAMER_SINCE = (0, 11, 1)
# With several GPUs, each process of the streamer reads the whole model unless it shares the reading:
# https://github.com/run-ai/runai-model-streamer/issues/84. The flag was read in model_executor/model_loader/
# runai_streamer_loader.py of this release; 0.20.1 answered with empty tokens: https://github.com/vllm-project/vllm/issues/41749
SHARED_READING = '--model-loader-extra-config={"distributed":true}'
SHARED_READING_SINCE = (0, 31, 0)


@dataclass(frozen=True)
class Reader:
    """A way in which a server reads a model from a bucket.

    Attributes:
        mounts: Whether the pods mount the bucket. Otherwise the engine reads a gs:// URI.
        roles: Roles on the bucket that it needs.
        flags: Flags of the engine.
        variables: Environment variables of the container.
    """

    mounts: bool
    roles: tuple[str, ...] = (READER,)
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


READERS: Mapping[str, Reader] = {
    # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hfhuboffline
    "fuse": Reader(mounts=True, variables={"HF_HUB_OFFLINE": "1"}),
    # Not offline: vLLM would look for the URI in the local cache of Hugging Face (vllm/engine/arg_utils.py).
    # Whether the streamer reads the bucket's metadata was never checked:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/run-ai-model-streamer
    "streamer": Reader(
        mounts=False, roles=(READER, "roles/storage.bucketViewer"), flags=("--load-format=runai_streamer",)
    ),
}


@dataclass(frozen=True)
class Access:
    """How an engine reads models from a bucket.

    Attributes:
        readers: Its ways, as in `READERS`.
        served_name: Flag with the name by which clients know a model from a folder. Default: it answers to any name.
        reason: Why it has no reader.
    """

    readers: tuple[str, ...] = ()
    served_name: str = ""
    reason: str = "no source says that it reads a model from a folder"


_BY_ENGINE: Mapping[str, Access] = {
    # https://docs.vllm.ai/en/stable/models/extensions/runai_model_streamer/
    "vllm": Access(("fuse", "streamer"), "--served-model-name"),
    # https://github.com/vllm-project/tpu-inference/pull/955
    "vllm-tpu": Access(("fuse", "streamer"), "--served-model-name"),
    # MODEL_ID may be a folder, and a request may name any model:
    # https://huggingface.co/docs/text-generation-inference/reference/launcher
    "tgi": Access(("fuse",)),
    "jetstream": Access(reason="it reads a converted checkpoint from a bucket, named in checkpoint"),
}


def access_of(engine: str) -> Access:
    """How an engine reads models from a bucket."""
    return _BY_ENGINE.get(engine, Access())


def folder_of(model: str, revision: str) -> str:
    """The folder of a model in its bucket."""
    return f"{model}/{revision}"


def compiled_folder(namespace: str, server: str) -> str:
    """The folder of a bucket in which a server keeps compiled code."""
    return f"{COMPILED_PATH.strip('/')}/{namespace}/{server}"


def release_of(image: str) -> tuple[int, ...] | None:
    """The release in the tag of an image, or None if the tag has another form, or is not known yet."""
    if not isinstance(image, str):
        return None
    match = re.search(r":v?(\d+)\.(\d+)\.(\d+)", image.partition("@")[0].rpartition("/")[2])
    return tuple(int(part) for part in match.groups()) if match else None
