"""Prepares the emulator for a command on one stack: `emulator/run ready CONFIG`, a stack's configuration file.

Starts the clusters that stopped with the machine. Prints a JSON object:

    defaults   values of the gcp provider's keys that a configuration may omit on the emulator
    missing    what the configuration expects to exist and the emulator lacks, and the command that creates it; or null
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator import cluster
from emulator.cloud import capacity, delay, program
from emulator.cloud.diagnosis import COMMAND_BYTES, lack_of_space
from emulator.cloud.records import Damaged
from emulator.commands import existing
from emulator.machine import paths
from gke_ai.catalog import section_files
from gke_ai.catalog.documents import InvalidDocument, Reader, read_file


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="emulator/run ready", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, help="the configuration: Pulumi.dev.yaml")
    config = parser.parse_args().config
    if lack := lack_of_space(paths.STATE, "The emulator", COMMAND_BYTES):
        sys.exit(lack)
    try:
        content = next(iter(read_file(config, Reader.PULUMI)), None) or {}
        for read in (capacity.unavailable, delay.delays, program.named):
            read()  # the clusters' daemons could only wait for what is damaged
        for name in cluster.names():
            cluster.start(name)
    except InvalidDocument as invalid:
        sys.exit(f"{config} {invalid}")
    except (cluster.ClusterFailed, cluster.MissingTool, Damaged) as error:
        sys.exit(str(error))
    keys = content.get("config") if isinstance(content, dict) else None
    stated = section_files.read(keys if isinstance(keys, dict) else {}, section_files.folder_of(config))
    print(json.dumps(answer(stated.values)))


def answer(config: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object that the command prints."""
    missing = existing.missing(config)
    return {"defaults": existing.DEFAULTS, "missing": {"what": missing[0], "command": missing[1]} if missing else None}


if __name__ == "__main__":
    main()
