"""Runs what unpacks the code of a run in its pods, on folders of this machine in place of the volumes."""

import subprocess
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gke_ai.ops.submit.workdir import ARCHIVE_VOLUME, VOLUME


def unpack(spec: Mapping[str, Any], config_map: Mapping[str, Any], target: Path) -> Path:
    """Runs the init container of a pod for its ConfigMap, and returns the folder that is its working directory."""
    (init,) = (container for container in spec["initContainers"] if container["name"] == VOLUME)
    archive = target / ARCHIVE_VOLUME
    folders = {ARCHIVE_VOLUME: archive, VOLUME: target / VOLUME}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for name, content in config_map["binaryData"].items():
        (archive / name).write_bytes(b64decode(content))
    paths = {mount["mountPath"]: folders[mount["name"]] for mount in init["volumeMounts"] if mount["name"] in folders}
    words = []
    for word in init["command"]:
        path = next((path for path in sorted(paths, reverse=True) if f"{word}/".startswith(f"{path}/")), None)
        words.append(f"{paths[path]}{word.removeprefix(path)}" if path else word)
    subprocess.run(words, check=True)
    return folders[VOLUME]


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
