"""Kueue's own test tables, printed as JSON by the Go tests of a release.

The Go client downloads the module, as for a build of Kueue. A temporary copy gets a function that prints a table where
a test would loop over it, so the objects are exactly those that Kueue's tests build.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from emulator.machine.paths import CACHE
from emulator.setup.go_build import exclusive, go_version
from emulator.setup.toolchain import BY_NAME, GO_FLAGS, Module
from gke_ai.catalog.kueue.configuration import tool
from gke_ai.catalog.versions import KUEUE_VERSION

MODULE = "sigs.k8s.io/kueue"
PACKAGES = ("pkg/scheduler", "pkg/scheduler/preemption", "pkg/cache/scheduler")
# Each test that holds a table of decisions of Kueue's scheduler.
TESTS = (
    *("TestPreemption", "TestHierarchicalPreemptions", "TestFairPreemptions", "TestSchedule"),
    *("TestScheduleForFairSharing", "TestScheduleForAFS", "TestScheduleConcurrentAdmission", "TestScheduleForTAS"),
    *("TestScheduleForTASPreemption", "TestScheduleForTASCohorts", "TestFindTopologyAssignments"),
)
_HERE = Path(__file__).parent
_PROGRAMS = (_HERE / "instrument.go", _HERE / "printer.go")
Table = dict[str, Any]


@cache
def tables(release: str = KUEUE_VERSION) -> tuple[Table, ...]:
    """Every table of a release: its `test`, what its cases share, and the `cases` by name."""
    pinned = BY_NAME[tool(release)].module
    pins = [pinned.source / "go.mod", pinned.source / "go.sum"]
    key = hashlib.sha256(json.dumps([go_version(), PACKAGES, TESTS]).encode())
    for file in (*_PROGRAMS, *pins):
        key.update(file.read_bytes())
    printed = CACHE / "kueue-tables" / f"{key.hexdigest()[:16]}.jsonl"
    with exclusive(printed):
        if not printed.exists():
            _print(pinned, printed)
    return tuple(json.loads(line) for line in printed.read_text().splitlines())


def _print(pinned: Module, to: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gke-ai-tables-") as name:
        folder = Path(name)
        module, pins, lines = folder / "kueue", folder / "go.mod", folder / "tables.jsonl"
        downloaded = json.loads(_go(pinned, "mod", "download", "-json", MODULE))["Dir"]
        shutil.copytree(downloaded, module, copy_function=shutil.copyfile)
        for path in module.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(pinned.source / file, folder / file)
        _go(pinned, "mod", "edit", f"-replace={MODULE}={module}", str(pins))
        instrument, printer = map(str, _PROGRAMS)
        _go(pinned, "run", instrument, *(str(module / package) for package in PACKAGES), printer)
        lines.touch()
        packages = [f"{MODULE}/{package}" for package in PACKAGES]
        flags = [*(flag for flag in GO_FLAGS if not flag.startswith("-mod")), f"-modfile={pins}", "-vet=off"]
        _go(pinned, "test", *flags, "-run", f"^({'|'.join(TESTS)})$", *packages, KUEUE_TABLES=str(lines))
        shutil.move(lines, to)


def _go(pinned: Module, *arguments: str, **variables: str) -> str:
    """The output of Go in the module that pins Kueue."""
    environment = os.environ | {"GOWORK": "off", "GO111MODULE": "on"} | variables
    command = ["go", *arguments]
    done = subprocess.run(command, cwd=pinned.source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout
