"""The newest complete checkpoint of a run, from the names of the objects in its bucket."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import PurePosixPath
from urllib.parse import quote

from gke_ai.catalog import checkpoints
from gke_ai.catalog.checkpoints import Checkpoint
from gke_ai.kube.client import Answer
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping
from gke_ai.ops.doctor.requests import call
from gke_ai.workspace.emulation import RUN, on_emulator

STORAGE = "https://storage.googleapis.com/storage/v1"
# Variables with the directory: of the contract, and of a fine-tuning run.
DIRECTORIES = (checkpoints.DIRECTORY, "MODEL_PATH")
TOKEN = "gcloud auth application-default print-access-token"


class Unreadable(Exception):
    """The bucket can't be listed. The message says why."""


def newest(url: str) -> Checkpoint | None:
    """Returns the newest complete checkpoint in a `gs://` directory, if there is one. Raises Unreadable."""
    bucket, _, directory = url.removeprefix("gs://").partition("/")
    names = emulated_names(bucket) if on_emulator() else google_names(bucket, directory)
    prefix = f"{directory}/" if directory else ""
    return checkpoints.newest(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def directory_of(template: Object) -> str:
    """Returns the `gs://` directory to which the pods of a template write checkpoints; empty if they don't say it."""
    spec = mapping(template, "spec")
    mounted = {str(volume.get("name")): mapping(volume, "csi", "volumeAttributes") for volume in items(spec, "volumes")}
    for container in items(spec, "containers"):
        named = (entry.get("value") for entry in items(container, "env") if entry.get("name") in DIRECTORIES)
        path = next((PurePosixPath(text) for text in named if isinstance(text, str)), None)
        for mount in items(container, "volumeMounts"):
            attributes, at = mounted.get(str(mount.get("name")), {}), str(mount.get("mountPath"))
            is_part = "only-dir" in str(attributes.get("mountOptions")) or "subPath" in mount
            bucket = attributes.get("bucketName")
            if bucket and path and path.is_relative_to(at) and not is_part:
                return f"gs://{bucket}/{path.relative_to(at)}"
    return ""


@cache  # a command reads several runs, which often share a bucket
def emulated_names(bucket: str) -> list[str]:
    """Returns the names of the objects in a bucket of the emulator."""
    command = [str(RUN), "bucket", "ls", bucket]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreadable(f"bucket {bucket} does not exist")
    return done.stdout.splitlines()


@cache  # gcloud takes about a second
def credential(request: Callable[..., Answer]) -> Answer:
    """Returns a token for Cloud Storage."""
    return request(TOKEN)


def google_names(bucket: str, directory: str, request: Callable[..., Answer] = call) -> list[str]:
    """Returns the names of the markers below a directory in Cloud Storage.

    https://docs.cloud.google.com/storage/docs/json_api/v1/objects/list
    """
    token = credential(request)
    if token.code:
        raise Unreadable(f"no credential: run {TOKEN.replace('print-access-token', 'login')}")
    markers = f"{{{checkpoints.MARKER},{checkpoints.MARKER_OF_TRANSFORMERS}}}"
    query = f"fields=items(name),nextPageToken&matchGlob={quote(f'{directory}/*/{markers}'.lstrip('/'), safe='')}"
    names: list[str] = []
    page = ""
    while True:
        answer = request(f"GET {STORAGE}/b/{bucket}/o?{query}{page}", token=str(token.body))
        if answer.code != 200:
            raise Unreadable(f"bucket {bucket} can't be listed: {answer.reason}")
        names += [item["name"] for item in answer.body.get("items", [])]
        if not (following := answer.body.get("nextPageToken")):
            return names
        page = f"&pageToken={quote(following, safe='')}"
