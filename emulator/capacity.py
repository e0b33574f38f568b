"""Declares which kinds of capacity the emulated Google Cloud has.

    emulator/run capacity                      show what is available
    emulator/run capacity spot=0 flexStart=1   change it, at once, for every cluster of this emulator

A kind that is out gives no new nodes, whoever asks; nodes that are there stay.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from catalog.capacity import MODES
from emulator import paths
from emulator.cluster.records import write


def declared_out() -> frozenset[str]:
    """The kinds (keys of `catalog.capacity.MODES`) that are not to be had."""
    try:
        return frozenset(json.loads(_file().read_text())["out"])
    except FileNotFoundError:
        return frozenset()


def declare(changes: dict[str, bool]) -> None:
    """Say of kinds of capacity whether they are to be had from now on."""
    out = (declared_out() | changes.keys()) - {kind for kind, there in changes.items() if there}
    write(_file(), {"out": sorted(out)})


def main(arguments: list[str]) -> int:
    """Runs the command and prints the table."""
    changes = {}
    for argument in arguments:
        kind, _, value = argument.partition("=")
        if kind not in MODES or value not in ("0", "1"):
            print(
                f"{argument} is no capacity. Write KIND=0 or KIND=1, KIND being one of {', '.join(MODES)}.",
                file=sys.stderr,
            )
            return 2
        changes[kind] = value == "1"
    if changes:
        declare(changes)
    out = declared_out()
    width = max(map(len, MODES))
    for kind in MODES:
        print(f"{kind:{width}}  {'out' if kind in out else 'in'}")
    return 0


def _file() -> Path:
    return paths.STATE / "capacity.json"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
