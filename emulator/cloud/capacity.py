"""Sets which capacity modes are available in the emulated Google Cloud.

    emulator/run capacity                      show which modes are available
    emulator/run capacity spot=0 flexStart=1   change them immediately, for all clusters of this emulator

An unavailable mode gives no new nodes to any cluster. Existing nodes stay.
"""

from __future__ import annotations

import sys
from pathlib import Path

from emulator.cloud.records import Damaged, read, write
from emulator.machine import paths
from gke_ai.catalog.machines.capacity import MODES


def unavailable() -> frozenset[str]:
    """The capacity modes (keys of `gke_ai.catalog.machines.capacity.MODES`) that are unavailable."""
    return frozenset(read(_file(), "out", ()))


def declare(changes: dict[str, bool]) -> None:
    """Sets for each of these capacity modes whether it is available from now on."""
    out = (unavailable() | changes.keys()) - {mode for mode, available in changes.items() if available}
    write(_file(), {"out": sorted(out)})


def main(arguments: list[str]) -> int:
    """Runs the command and prints the table."""
    changes = {}
    for argument in arguments:
        mode, _, value = argument.partition("=")
        if mode not in MODES or value not in ("0", "1"):
            print(
                f"{argument} is not a capacity mode. Write MODE=0 or MODE=1; modes: {', '.join(MODES)}.",
                file=sys.stderr,
            )
            return 2
        changes[mode] = value == "1"
    if changes:
        declare(changes)
    out = unavailable()
    width = max(map(len, MODES))
    for mode in MODES:
        print(f"{mode:{width}}  {'out' if mode in out else 'in'}")
    return 0


def _file() -> Path:
    return paths.STATE / "capacity.json"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Damaged as damaged:
        sys.exit(str(damaged))
