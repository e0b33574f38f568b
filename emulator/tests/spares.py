"""A folder of spare control planes for the tests of one process: see emulator/cluster/spare.py.

`python -m emulator.tests.spares PID FOLDER` ends the control planes as soon as the process PID has ended, also by
SIGKILL, and the clusters that still use them.
"""

import atexit
import functools
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator.machine.paths import ROOT


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder. At its end every control plane in it is ended by id."""
    spares = Path(tempfile.mkdtemp(prefix="gke-ai-spare-"))
    command = [sys.executable, "-m", "emulator.tests.spares", str(os.getpid()), str(spares)]
    # In a session of its own, so that a Ctrl-C leaves it alone.
    guard = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        yield spares
    finally:
        guard.terminate()
        guard.wait()
        end(spares)


def give(state: Path) -> None:
    """Lets the clusters of a state folder use the control planes of this process, which end with it."""
    state.mkdir(parents=True, exist_ok=True)
    spares = _of_this_process()
    (state / "spare").symlink_to(spares)
    (spares / state.name).symlink_to(state)


@functools.cache
def _of_this_process() -> Path:
    opened = folder()
    atexit.register(opened.__exit__, None, None, None)
    return opened.__enter__()


def end(spares: Path) -> None:
    """Ends every control plane in the folder, the clusters of states that a killed process left, and deletes both."""
    # Here, because the guard of a process that ends regularly never needs it.
    from emulator.machine import processes

    for kept in spares.glob("*"):
        for cluster in (*kept.glob("clusters/*"), *kept.glob("rehearsal/clusters/*")):
            processes.end(cluster.resolve())
        if kept.is_symlink():
            shutil.rmtree(kept.resolve(), ignore_errors=True)
    shutil.rmtree(spares, ignore_errors=True)


def main(process: int, spares: Path) -> None:
    """Waits for the end of the process."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        pass
    else:
        select.select([descriptor], [], [])
    end(spares)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
