"""Sections of a configuration that are in files of their own: `gke-ai:serving: {file: serving.yaml}`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read_file

PREFIX = "gke-ai:"
# Variable with the folder of the files, for the program: Pulumi does not pass the path of the configuration to it.
FOLDER = "GKE_AI_CONFIG_FOLDER"
FILE = r"^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}\.ya?ml$"
# The policy pack, a process of its own, reads the waivers from Pulumi.
WITHOUT_FILE = "waivers"
_COPIED = ".sections"
# Bytes of one environment variable, with its name and its end: MAX_ARG_STRLEN in
# https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/binfmts.h
LIMIT = 131_072
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Sections:
    """A configuration with the content of files in place of the keys that name them, without what cannot be read."""

    values: dict[str, Any]
    places: dict[str, str]
    """Where sections and entries are: `gke-ai:serving[3]` is `serving.yaml: [3]`."""
    mistakes: list[tuple[str, str, str]]
    """The path in the configuration, the cause and the remedy of each."""

    def located(self, path: str) -> str:
        """The file and the path in it, such as `serving.yaml: [3].gpus` for `gke-ai:serving[3].gpus`."""
        section, index, inside = re.findall(r"^([\w:-]*)(\[\d+\])?(.*)", path, re.S)[0]
        if index:
            return f"{self.places.get(section + index, section + index)}{inside}"
        return f"{self.places[section]} {inside[1:]}".strip(": ") if section in self.places else path


class _Invalid(Exception):
    """A cause and its remedy."""


def read(config: Mapping[str, Any], folder: Path) -> Sections:
    """Reads the sections that are in files of `folder`. The keys have the prefix, or none has."""
    sections = Sections(dict(config), {}, [])
    for key, value in config.items():
        if (files := _files(key, value)) is None:
            continue
        path, is_list = f"{PREFIX}{key.removeprefix(PREFIX)}", "files" in value
        try:
            if not files:
                cause = f"{_json(value):.100} names no YAML files in the folder of the configuration"
                raise _Invalid(cause, "Write {file: serving.yaml}, or {files: [a.yaml, b.yaml]}, each without '..'")
            parts = {name: _content(name, folder, is_list) for name in files}
            sections.values[key] = [*chain(*parts.values())] if is_list else parts[files[0]]
            entries = [f"{name}: [{index}]" for name, part in parts.items() for index in range(len(part))]
            sections.places.update({f"{path}[{number}]": entry for number, entry in enumerate(entries)})
            sections.places[path] = f"{', '.join(files)}:"
        except _Invalid as invalid:
            del sections.values[key]
            sections.mistakes.append((path, *invalid.args))
    return sections


def names(config: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the files that a configuration names. A section with an invalid path has none."""
    return [name for key, value in config.items() for name in _files(key, value) or ()]


def folder_of(config: Path) -> Path:
    """Returns the folder of the files that a configuration names: its own, or that of the files of a copy."""
    copied = config.with_suffix(_COPIED)
    return (copied if copied.is_dir() and not copied.is_symlink() else config.parent).absolute()


def copy(config: Mapping[str, Any], folder: Path, target: Path) -> None:
    """Copies the files that a configuration names to a folder of its own beside `target`, in place of earlier ones."""
    copied = target.with_suffix(_COPIED)
    shutil.rmtree(copied, ignore_errors=True)
    for name in names(config):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, copied / name)


def texts(config: Mapping[str, Any], folder: Path) -> dict[str, bytes]:
    """Returns the content of the files that a configuration names, by their names."""
    return {name: (folder / name).read_bytes() for name in names(config)}


def oversize(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns what is wrong if Pulumi cannot pass a configuration to the program.

    The size is that of Go's JSON, which escapes three characters: https://pkg.go.dev/encoding/json#Marshal. A secret
    counts with its ciphertext, which is longer.
    """
    texts = {key: value if isinstance(value, str) else _json(value) for key, value in config.items()}
    variable = f"PULUMI_CONFIG={_json(texts)}\0"
    size = len(variable.encode("utf-8", "replace")) + 6 * sum(map(variable.count, "<>&"))
    if size <= LIMIT:
        return []
    key = max(texts, key=lambda key: len(texts[key]))
    cause = f"the configuration has {size:,} bytes, and Pulumi passes at most {LIMIT:,} in one environment variable"
    remedy = f"Move this section to a file: {key}: {{file: {key.removeprefix(PREFIX)}.yaml}}"
    return [(key, f"{cause}. The program would not start", remedy)]


def _files(key: str, value: object) -> list[str] | None:
    """The files of a section; none of them if one is invalid. None if the section is not in files."""
    if not isinstance(value, Mapping) or not {"file", "files"} & value.keys() or key.endswith(WITHOUT_FILE):
        return None
    stated = value.get("files", [value.get("file")])
    files = [name for name in stated if re.fullmatch(FILE, str(name))] if isinstance(stated, list) else []
    return files if len(value) == 1 and files == stated and len({*files}) == len(files) else []


def _content(name: str, folder: Path, is_list: bool) -> Any:
    try:
        file = (folder / name).resolve()
        if not file.is_relative_to(folder.resolve()) or not file.exists():
            raise _Invalid(f"{name} is not in the folder of the configuration", "Write it there, and not as a link")
        documents = read_file(file, Reader.PULUMI)
    except (InvalidDocument, OSError, RuntimeError) as error:  # such as a loop of links
        raise _Invalid(f"{name} {str(error).rstrip('.')}", "Correct the file") from None
    if len(documents) != 1 or not isinstance(documents[0], list if is_list else list | dict):
        raise _Invalid(
            f"{name} has no {'list' if is_list else 'list or mapping'}", "Write what is below the key, or []"
        )
    return json.loads(json.dumps(documents[0], sort_keys=True))  # Pulumi sorts the keys of what it passes
