"""Renders a local Kustomization, which may be a stranger's: without remote bases, plugins and files outside.

`kubectl kustomize` fetches every path that does not exist locally, and some keys name programs. So each path is checked
before it runs: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ops.configuration_file import read_configuration
from ops.stack import Stop

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
SECONDS = 60
MAX_INCLUDED = 200  # each time that one is included, also if that is the same one again
# Keys that name neither programs nor files of their own form.
_KEYS = frozenset(
    (
        *("apiVersion", "kind", "metadata", "namespace", "namePrefix", "nameSuffix", "labels", "commonLabels"),
        *("commonAnnotations", "resources", "bases", "components", "patches", "patchesStrategicMerge"),
        *("patchesJson6902", "images", "replicas", "configMapGenerator", "secretGenerator", "generatorOptions"),
        *("replacements", "vars", "sortOptions", "buildMetadata"),
    )
)
_LISTS = ("resources", "bases", "components")
_WITH_PATH = ("patches", "patchesJson6902", "replacements")
# If a check missed a remote base, git and the HTTP client could not reach it either.
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}


def kustomization(folder: Path) -> Path | None:
    """Returns the file that makes a folder a Kustomization; None if it is none."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def render(folder: Path, root: Path) -> str:
    """Returns the manifests of a Kustomization. Stops if it needs more than files under `root`."""
    check(folder.resolve(), root.resolve(), [])
    try:
        done = subprocess.run(
            ["kubectl", "kustomize", str(folder)],
            env={**os.environ, **_OFFLINE},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Stop(f"kubectl kustomize {folder} does not end within {SECONDS} s. Simplify the Kustomization.") from None
    if done.returncode:
        raise Stop(f"kubectl kustomize {folder} fails:\n{done.stderr.strip()[:2000]}")
    return done.stdout


def check(folder: Path, root: Path, included: list[Path]) -> None:
    """Stops if a Kustomization, or one that it includes, names a program, a remote base or a file outside `root`."""
    file = kustomization(folder)
    if file is None:
        return
    included.append(folder)
    if len(included) > MAX_INCLUDED:
        raise Stop(f"{file}: Kustomizations are included more than {MAX_INCLUDED} times. Name one that includes fewer.")
    content = read_configuration(file)
    if others := sorted(str(key) for key in content.keys() - _KEYS):
        raise Stop(
            f"{file}: {others[0]}: a rehearsal does not use this key, because it can run programs or fetch charts. "
            "Commit what it generates as plain manifests."
        )
    for key, path in _paths(content):
        target = (folder / path).resolve()
        if "://" in path or not target.exists():
            raise Stop(
                f"{file}: {key}: {path[:200]!r} is not a local file or folder, and a rehearsal fetches nothing. "
                "Copy it into the repository."
            )
        if not target.is_relative_to(root):
            raise Stop(f"{file}: {key}: {path[:200]!r} is outside {root}. Copy it into the repository.")
        if target.is_dir():
            check(target, root, included)


def _paths(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields each path that a Kustomization names, with its key."""
    for key in _LISTS:
        yield from ((key, str(path)) for path in content.get(key) or [])
    for patch in content.get("patchesStrategicMerge") or []:
        if "\n" not in str(patch):  # otherwise it is the patch itself
            yield "patchesStrategicMerge", str(patch)
    for key in _WITH_PATH:
        yield from ((key, str(item["path"])) for item in _mappings(content.get(key)) if item.get("path"))
    for key in ("configMapGenerator", "secretGenerator"):
        for item in _mappings(content.get(key)):
            yield from ((key, str(path).partition("=")[2] or str(path)) for path in item.get("files") or [])
            yield from ((key, str(path)) for path in [*(item.get("envs") or []), *filter(None, [item.get("env")])])


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value or [] if isinstance(item, Mapping)]
