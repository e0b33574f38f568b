"""Reads a configuration file that may be a stranger's, as Pulumi does, and the files of figures and prices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gke_ai import settings
from gke_ai.catalog import section_files
from gke_ai.catalog.documents import InvalidDocument, Reader, read_file
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.section_files import PREFIX, folder_of
from gke_ai.settings import Problem, ResolvedStack, calibration
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import Cluster
from gke_ai.settings.secrets import API_KEY, HF_TOKEN
from gke_ai.terminal import Stop
from gke_ai.workspace import prices
from gke_ai.workspace.environments import with_environment, without_masked
from gke_ai.workspace.stack import ROOT

CALIBRATION = "gke-ai:calibration"
PRICES = "gke-ai:prices"


def read_configuration(path: Path, reader: Reader = Reader.PULUMI) -> dict[str, Any]:
    """Returns the content of a configuration file. Stops if it has no keys, is too large, or is not YAML."""
    documents = read_documents(path, reader)
    content = documents[0] if documents and documents[0] is not None else {}
    if not isinstance(content, dict):
        raise Stop(f"{path} is not a configuration: it has no keys.")
    if len(documents) > 1:
        raise Stop(f"{path} has {len(documents)} documents. Leave one.")
    return content


def no_configuration(file: Path) -> Stop:
    """Returns the message of a command whose configuration is missing, with those that it could take."""
    there = sorted(str(path) for pattern in ("Pulumi.*.yaml", "examples/*.yaml") for path in Path().glob(pattern))
    remedy = f"Name one with --config, such as {', '.join(there[-3:])}" if there else "Write a first one:  gke-ai init"
    return Stop(f"There is no configuration {file}. {remedy}")


def read_keys(path: Path) -> dict[str, Any]:
    """Returns the keys of a configuration file and of its environment. A section in a file has the key `file`."""
    content = read_configuration(path)
    return with_environment(path, content, config if isinstance(config := content.get("config"), dict) else {})


def read_sections(path: Path, deploying: bool = False) -> dict[str, Any]:
    """Returns the keys of a configuration file with the sections that are in files. Stops if one cannot be read.

    With `deploying`, stops if Pulumi cannot pass the file to the program.
    """
    keys = read_keys(path)
    sections = section_files.read(keys, folder_of(path))
    if mistakes := [*sections.mistakes, *(section_files.oversize(keys) if deploying else [])]:
        raise Stop("\n".join(f"{path.name}: {Problem(*mistake)}" for mistake in mistakes))
    return sections.values


def write_keys(target: Path, keys: Mapping[str, Any], source: Path, head: Mapping[str, Any] | None = None) -> Path:
    """Writes keys of `source` to a configuration file, after `head`, and copies the files that they name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(yaml.safe_dump({**(head or {}), "config": without_masked(keys)}, sort_keys=False))
    section_files.copy(keys, folder_of(source), target)
    return target


def read_documents(path: Path, reader: Reader) -> list[Any]:
    """Returns the documents of a file. Stops if it is too large, or not YAML."""
    try:
        return read_file(path, reader)
    except InvalidDocument as invalid:
        raise Stop(f"{path} {invalid}") from None


def resolve(config: Mapping[str, Any], folder: Path = Path()) -> ResolvedStack:
    """Returns the stack that the keys of a configuration describe. Raises BadConfiguration with every mistake.

    `folder` has the files of its sections. A missing token is none: the stack may get it later.
    """
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    return settings.load(
        values,
        str(config.get("gcp:project") or ""),
        token_given=True,
        region=str(config.get("gcp:region") or ""),
        token_problems=[
            *settings.token_problems(*_secret(values, HF_TOKEN.key), os.environ.get(HF_TOKEN.variable)),
            *settings.api_key_problems(*_secret(values, API_KEY.key), os.environ.get(API_KEY.variable)),
            *(Problem(*mistake) for mistake in section_files.oversize(config)),
        ],
        folder=folder,
    )


def _secret(values: Mapping[str, Any], key: str) -> tuple[str | None, bool]:
    """Returns a secret in the file, or its ciphertext, and whether Pulumi encrypted it."""
    stated = values.get(key)
    if isinstance(stated, Mapping) and "secure" in stated:
        return "".join(str(stated["secure"]).split()), True
    return (None if stated is None else str(stated)), False


def calibration_file(path: Path) -> Path | None:
    """Returns the file of figures that a configuration file names, if any."""
    return _named_file(path, CALIBRATION)


def _named_file(path: Path, key: str) -> Path | None:
    file = read_keys(path).get(key)
    return ROOT / file if isinstance(file, str) else None


def read_calibration(path: Path) -> Calibration:
    """Returns the figures that a configuration file names, if any. Stops if they are invalid."""
    file = calibration_file(path)
    return read_figures(file) if file else Calibration()


def read_figures(file: Path) -> Calibration:
    """Returns the figures of a file. Stops with every mistake."""
    try:
        return calibration.read(file)
    except calibration.BadCalibration as bad:
        lines = (f"{CALIBRATION}: {where and f'{where}: '}{cause}. {remedy}." for where, cause, remedy in bad.mistakes)
        raise Stop("\n".join(lines)) from None


def read_region(path: Path) -> str:
    """Returns the region of the cluster of a configuration file; its default if the file names none."""
    cluster = read_sections(path).get(f"{PREFIX}cluster")
    location = cluster.get("location", Cluster().location) if isinstance(cluster, Mapping) else Cluster().location
    return region_of(str(location))


def read_prices(path: Path | None, configuration: Path | None = None) -> prices.Prices | None:
    """Reads a price table: the stated one, else the one of a configuration, if any. Stops if it is invalid."""
    named = path or (_named_file(configuration, PRICES) if configuration else None)
    if not path and named and not named.resolve().is_relative_to(ROOT.resolve()):
        raise Stop(f"{PRICES}: {named} is outside of the project. Name a file in it, or use --prices")
    try:
        return prices.read(named) if named else None
    except prices.BadPrices as bad:
        raise Stop(str(bad)) from None
