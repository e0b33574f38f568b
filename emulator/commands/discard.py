"""Ends every process of this emulator and deletes its state folder, whatever state it is in.

    GKE_AI_STATE=/tmp/scratch emulator/run discard

Nothing is destroyed by a program first, and no protection counts. The folder of the state must be named, so that the
command never deletes the default one by mistake.
"""

from __future__ import annotations

import shutil
import sys

from emulator import cluster
from emulator.machine import paths, processes

MARKS = ("clusters", "backend", "cloud", "pulumi")


def main(arguments: list[str]) -> int:
    """Runs the command."""
    if arguments:
        print(__doc__)
        return 0 if arguments == ["--help"] else 2
    if (paths.ROOT / ".local").absolute() == paths.STATE:
        print(f"{paths.STATE} is the default state. Name another one: GKE_AI_STATE=FOLDER.", file=sys.stderr)
        return 2
    if paths.STATE.exists() and not any((paths.STATE / mark).exists() for mark in MARKS):
        print(f"{paths.STATE} is not the state of an emulator. Nothing was deleted.", file=sys.stderr)
        return 2
    # An update that goes on after its engine was killed would create its cluster once more. A killed `when` leaves a
    # state inside this one, with processes.
    processes.end_state(paths.STATE, paths.CACHE / "tools")
    for folder in paths.CLUSTERS.glob("[!.]*"):
        cluster.delete(folder.name)
    shutil.rmtree(paths.STATE, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
