"""Renders a local Kustomization, which may be a stranger's: without remote bases, plugins and files outside.

`kubectl kustomize` fetches every path that does not exist locally, and some keys name programs. So each path is checked
before it runs: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import Reader
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration

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
_GENERATOR = frozenset(("namespace", "name", "behavior", "literals", "files", "envs", "env", "options", "type"))
_PATCH = frozenset(("path", "patch", "target", "options"))
# Keys of entries that name files: https://github.com/kubernetes-sigs/kustomize/tree/master/api/types
_ENTRIES = {
    "configMapGenerator": _GENERATOR,
    "secretGenerator": _GENERATOR,
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    "replacements": frozenset(("path", "source", "sourceValue", "targets")),
}
# kustomize clones a folder whose name could be that of a host, such as github.com/example, also if it exists.
_NO_HOST = re.compile(r"(\.{1,2}|[\w-]+)(/.*)?")
# If a check missed a remote base, git could not reach it, nor the HTTP client beyond this machine.
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
    if not file.resolve().is_relative_to(root):
        raise Stop(f"{file} links to a file outside {root}. Copy it into the repository.")
    included.append(folder)
    if len(included) > MAX_INCLUDED:
        raise Stop(f"{file}: Kustomizations are included more than {MAX_INCLUDED} times. Name one that includes fewer.")
    content = read_configuration(file, Reader.KUBECTL)
    if others := sorted(_others(content)):
        raise Stop(
            f"{file}: {others[0][:200]}: a rehearsal does not use this key, because it can run programs or fetch "
            "charts. Correct its spelling, or commit what it generates as plain manifests."
        )
    for key, path in _paths(content):
        if not isinstance(path, str) or "\0" in path:
            raise Stop(f"{file}: {key}: {str(path)[:200]!r} is no path. Correct it.")
        target = (folder / path).resolve()
        if "://" in path or not os.path.exists(target):  # Path.exists raises an error for a long name
            raise Stop(
                f"{file}: {key}: {path[:200]!r} is not a local file or folder, and a rehearsal fetches nothing. "
                "Copy it into the repository."
            )
        if not target.is_relative_to(root):
            raise Stop(f"{file}: {key}: {path[:200]!r} is outside {root}. Copy it into the repository.")
        if target.is_dir() and not _NO_HOST.fullmatch(path):
            raise Stop(f"{file}: {key}: {path[:200]!r} could be a host. Write it as ./{path[:200]}")
        if target.is_dir():
            check(target, root, included)


def _others(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields each key that is not used. kustomize also takes `Files` for `files`, and a check would miss it."""
    yield from content.keys() - _KEYS
    for section, keys in _ENTRIES.items():
        for entry in _entries(content, section):
            names = entry.keys() if isinstance(entry, dict) else {str(entry)}
            yield from (f"{section}: {name}" for name in names - keys)


def _paths(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields each path that a Kustomization names, with its key."""
    for key in _LISTS:
        yield from ((key, path) for path in _entries(content, key))
    for patch in _entries(content, "patchesStrategicMerge"):
        if "\n" not in str(patch):  # otherwise it is the patch itself
            yield "patchesStrategicMerge", patch
    for section in _ENTRIES:
        for entry in _entries(content, section):
            paths = [*_entries(entry, "envs"), *filter(None, (entry.get("env"), entry.get("path")))]
            yield from ((section, path) for path in paths)
            yield from ((section, str(file).partition("=")[2] or file) for file in _entries(entry, "files"))


def _entries(content: Mapping[str, Any], key: str) -> list[Any]:
    """The entries of a list. What is no list is its only entry, which no check accepts."""
    value = content.get(key)
    return value if isinstance(value, list) else [] if value is None else [value]
