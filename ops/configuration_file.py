"""Reads a configuration file that may be a stranger's: in bounded memory, whatever its anchors repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ops.stack import ROOT, Stop
from settings import calibration
from settings.calibration import Calibration

MAX_BYTES = 2**20
# Far above any configuration: that of prod has about 300 values.
MAX_VALUES = 100_000


def read_configuration(path: Path) -> dict[str, Any]:
    """Returns the content of a configuration file. Stops if it has no keys, is too large, or is not YAML."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise Stop(f"{path} is not a file of at most {MAX_BYTES >> 20} MiB. Name the stack's configuration.")
    try:
        content = yaml.safe_load(path.read_text()) or {}
        values = count_values(content, {})
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise Stop(f"{path} is not valid YAML: {str(error)[:500]}") from None
    except RecursionError:
        raise Stop(f"{path} is nested too deeply.") from None
    if values > MAX_VALUES:
        raise Stop(f"{path} has {values:.0e} values with its aliases. Write it with fewer than {MAX_VALUES}.")
    if not isinstance(content, dict):
        raise Stop(f"{path} is not a stack's configuration: it has no keys.")
    return content


def read_calibration(path: Path) -> Calibration:
    """Returns the figures that a configuration file names, if any. Stops if they are invalid."""
    file = (read_configuration(path).get("config") or {}).get("gke-ai:calibration")
    if not isinstance(file, str):
        return Calibration()
    try:
        return calibration.read(ROOT / file)
    except calibration.BadCalibration as bad:
        where, cause, remedy = bad.mistakes[0]
        raise Stop(f"gke-ai:calibration: {where or file}: {cause}. {remedy}.") from None


def count_values(value: Any, counted: dict[int, int]) -> int:
    """Returns how many values a document has once each alias is a copy. Raises ValueError if one contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counted:
        counted[id(value)] = 0  # its own count, while it is not known
        counted[id(value)] = 1 + sum(
            count_values(part, counted) for part in (value.values() if isinstance(value, dict) else value)
        )
    if not counted[id(value)]:
        raise ValueError("an alias contains itself")
    return counted[id(value)]
