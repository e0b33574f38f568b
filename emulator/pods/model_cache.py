"""The one program that runs as a local process although nobody named it: that of Jobs that fill buckets with models."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from emulator.machine.folders import inside
from emulator.pods.local_spec import NotStarted, Paths, is_own
from gke_ai.catalog.engines.model_cache import ACCOUNT, MOUNT_PATH, folder_of
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE

Object = dict[str, Any]
# The files of this checkout, whatever the ConfigMap of the Job has. Isolated: no variable makes Python run other code.
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from programs.fill_bucket import main; sys.exit(main())"
COMMAND = [sys.executable, "-I", "-S", "-B", "-u", "-c", _START, str(files("gke_ai") / "pods")]
VARIABLES = ("MODEL", "REVISION", "HF_TOKEN")
_STATED = ["python3", "-m", "programs.fill_bucket"]
_PROGRAM = Path("programs") / "fill_bucket.py"
_MODEL = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REVISION = re.compile(r"[\w./-]+", re.ASCII)


def fills(pod: Object, container: Object) -> bool:
    """Whether a container is that of a Job that fills a bucket."""
    return is_own(pod, container, _STATED, MODEL_CACHE, ACCOUNT)


def directory(spec: Object, environment: Mapping[str, str], paths: Paths) -> Path:
    """The folder that the program fills, in the bucket of the Job. Raises NotStarted."""
    model, revision = environment.get("MODEL", ""), environment.get("REVISION", "")
    stated = f"{MOUNT_PATH}/{folder_of(model, revision)}"
    plain = _MODEL.fullmatch(model) and _REVISION.fullmatch(revision)
    if not plain or environment.get("MODEL_DIRECTORY") != stated or MOUNT_PATH not in paths.folders:
        raise NotStarted("CreateContainerConfigError", f"MODEL_DIRECTORY is not the folder {stated} of a bucket")
    program = paths.folders.get(environment.get("PYTHONPATH", ""))
    if program is None or not (program / _PROGRAM).is_file():
        raise NotStarted("CreateContainerError", f"no ConfigMap of {spec['name']} has {_PROGRAM} under PYTHONPATH")
    return inside(paths.folders[MOUNT_PATH], folder_of(model, revision))
