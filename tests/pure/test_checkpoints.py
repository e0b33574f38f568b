"""examples/training/checkpoints.py keeps the contract of docs/checkpoints.md, through failures and kills."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import checkpoints
from checkpoints import (
    MARKER,
    Checkpoint,
    CheckpointError,
    Checkpoints,
    HashedFile,
    SecondWriter,
    StopSignal,
    is_complete,
    is_unfinished,
    newest_first,
    read_marker,
    step_of,
    write_file,
)

# Every call of the module that changes the directory. Cloud Storage FUSE has them all. It lacks hard links, locks and
# atomic renames of directories: https://cloud.google.com/storage/docs/gcs-fuse#expandable-1
CHANGES = ("makedirs", "mkdir", "open", "write", "fsync", "close", "unlink", "rmdir")


class WatchedOs:
    """The module `os`, with a function that is called before every change of the directory."""

    def __init__(self, before: Callable[[str, tuple[Any, ...]], None]) -> None:
        self.before = before
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        function = getattr(os, name)
        if name not in CHANGES:
            return function

        def watched(*arguments: Any, **options: Any) -> Any:
            self.before(name, arguments)
            return function(*arguments, **options)

        return watched


def content(step: int) -> dict[str, Callable[[HashedFile], object]]:
    """Two files whose content follows from the step."""
    return {name: lambda file, name=name: file.write(data(step, name)) for name in ("model", "optimizer")}  # type: ignore[misc]


def data(step: int, name: str) -> bytes:
    return f"{name} after step {step} ".encode() * 50


def intact(checkpoint: Checkpoint | None) -> int:
    """The step of a checkpoint, after a look at its content. 0 for none."""
    if checkpoint is None:
        return 0
    for name in checkpoint.files:
        assert checkpoint.path(name).read_bytes() == data(checkpoint.step, name)
    return checkpoint.step


def start(directory: Path, keep: int = 2) -> Checkpoints:
    run = Checkpoints(directory, keep)
    run.resume()
    return run


def saved(directory: Path, *steps: int, keep: int = 9) -> Checkpoints:
    """A run that saved these steps."""
    run = start(directory, keep)
    for step in steps:
        run.save(step, content(step))
    return run


def steps(directory: Path) -> list[int]:
    return [step_of(folder) for folder in newest_first(directory)]


def folder_of(directory: Path, step: int) -> Path:
    return next(folder for folder in newest_first(directory) if step_of(folder) == step)


def no_marker_is_wrong(directory: Path) -> bool:
    """Whether every checkpoint whose marker can be read is complete."""
    return all(is_complete(folder) or is_unfinished(folder) for folder in newest_first(directory))


def count_changes(monkeypatch: pytest.MonkeyPatch, directory: Path) -> int:
    """How many changes of the directory a resumed run with one save makes."""
    saved(directory, 10, 20)
    calls: list[str] = []
    monkeypatch.setattr(checkpoints, "os", WatchedOs(lambda name, _: calls.append(name)))
    start(directory).save(30, content(30))
    monkeypatch.undo()
    return len(calls)


def require_recovery(directory: Path, *resumed: int) -> None:
    """A run resumes from one of these steps. The next save works, and nothing unfinished stays."""
    assert no_marker_is_wrong(directory), directory
    assert intact(Checkpoints(directory).resume()) in resumed, directory
    start(directory).save(40, content(40))
    assert intact(Checkpoints(directory).resume()) == 40
    assert all(is_complete(folder) for folder in newest_first(directory)), directory
    assert len(steps(directory)) == 2, directory


def test_a_run_resumes_from_what_it_saved(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "run").resume() is None
    saved(tmp_path / "run", 10, 20)
    assert intact(Checkpoints(tmp_path / "run").resume()) == 20


def test_a_failure_at_any_call_leaves_a_complete_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = count_changes(monkeypatch, tmp_path / "counted")
    assert changes > 20
    for failing in range(changes):
        directory = tmp_path / str(failing)
        saved(directory, 10, 20)
        number = 0

        def fail(name: str, arguments: tuple[Any, ...], failing: int = failing) -> None:
            nonlocal number
            number += 1
            if number == failing + 1:
                if name == "close":
                    os.close(arguments[0])  # as the kernel does, also when it reports an error
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(checkpoints, "os", WatchedOs(fail))
        try:
            start(directory).save(30, content(30))
            step_saved = 30
        except (CheckpointError, OSError):
            step_saved = 20
        monkeypatch.undo()
        assert number > failing
        require_recovery(directory, step_saved, 30)


KILLED = """
import os, signal, sys
from pathlib import Path
import checkpoints

directory, kill_at, *changes = sys.argv[1:]
left = int(kill_at)

class KilledOs:
    def __getattr__(self, name):
        def call(*arguments, **options):
            global left
            left -= name in changes
            if left == 0 and name in changes:
                if name == "write":  # in the middle of it
                    os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return getattr(os, name)(*arguments, **options)
        return call if callable(getattr(os, name)) else getattr(os, name)

checkpoints.os = KilledOs()
run = checkpoints.Checkpoints(Path(directory))
run.resume()
contents = {name: f"{name} after step 30 ".encode() * 50 for name in ("model", "optimizer")}
run.save(30, {name: lambda file, name=name: file.write(contents[name]) for name in contents})
"""


def test_a_kill_at_any_call_leaves_a_complete_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = count_changes(monkeypatch, tmp_path / "counted")
    environment = os.environ | {"PYTHONPATH": str(Path(checkpoints.__file__).parent)}
    for kill_at in range(1, changes + 1):
        directory = tmp_path / str(kill_at)
        saved(directory, 10, 20)
        command = [sys.executable, "-c", KILLED, str(directory), str(kill_at), *CHANGES]
        killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        require_recovery(directory, 20, 30)


@pytest.mark.parametrize(
    "damaged",
    [lambda data: data[:10], lambda data: data + b"x", lambda data: data[:-1] + b"x", None],
    ids=["truncated", "longer", "other bytes", "missing"],
)
def test_a_damaged_checkpoint_is_skipped_then_removed(damaged: Callable[[bytes], bytes] | None, tmp_path: Path) -> None:
    saved(tmp_path, 10, 20, 30)
    file = folder_of(tmp_path, 30) / "model"
    if damaged:
        file.write_bytes(damaged(file.read_bytes()))
    else:
        file.unlink()
    assert intact(Checkpoints(tmp_path).newest()) == 20
    assert steps(tmp_path) == [30, 20, 10]
    # Otherwise a save of step 25 would be older than the damaged checkpoint, and be removed before it.
    start(tmp_path, keep=1).save(25, content(25))
    assert steps(tmp_path) == [25]
    assert intact(Checkpoints(tmp_path).resume()) == 25


@pytest.mark.parametrize("marker", [b"", b"{", b"\xff", b"[]", b"null", b'{"format": 1}', b'{"format": 9, "step": 30}'])
def test_a_wrong_marker_makes_no_checkpoint(marker: bytes, tmp_path: Path) -> None:
    saved(tmp_path, 10, 20, 30)
    (folder_of(tmp_path, 30) / MARKER).write_bytes(marker)
    assert intact(Checkpoints(tmp_path).resume()) == 20
    assert steps(tmp_path) == [20, 10]


def test_a_checkpoint_with_the_marker_or_the_name_of_another_is_none(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20, 30)
    folder = folder_of(tmp_path, 20)
    shutil.copy(folder / MARKER, folder_of(tmp_path, 30) / MARKER)
    shutil.copytree(folder, tmp_path / folder.name.replace("step-00000020", "step-00000040"))
    newest = Checkpoints(tmp_path).newest()
    assert newest
    assert newest.folder == folder
    assert intact(Checkpoints(tmp_path).resume()) == 20


def test_what_a_killed_save_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    write_file(saved(tmp_path, 10, 20).begin(30), "model", content(30)["model"])
    later = tmp_path / "step-00000031-000009-ffffffff"  # by a writer that started since
    later.mkdir()
    assert steps(tmp_path) == [31, 30, 20, 10]
    assert intact(Checkpoints(tmp_path).resume()) == 20
    assert later.exists()
    assert steps(tmp_path)[-2:] == [20, 10]
    assert 30 not in steps(tmp_path)


def test_a_run_whose_checkpoints_are_all_damaged_does_not_silently_begin_again(tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)
    for step in (10, 20):
        os.truncate(folder_of(tmp_path, step) / "model", 3)
    with pytest.raises(CheckpointError, match=r"no intact checkpoint, and 2 damaged\. The run would begin at step 0"):
        Checkpoints(tmp_path).resume()
    assert steps(tmp_path) == [20, 10]


def test_a_file_that_cannot_be_read_is_no_reason_to_fall_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(hashlib, "file_digest", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        Checkpoints(tmp_path).resume()
    assert steps(tmp_path) == [20, 10]


def test_full_disk_keeps_the_old_checkpoint_and_names_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = saved(tmp_path, 10, 20)
    written = 0

    def full(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal written
        if name == "write":
            written += len(arguments[1])
            if written > 1500:
                os.write(arguments[0], arguments[1][:100])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints, "os", WatchedOs(full))
    with pytest.raises(CheckpointError, match=r"No space left on device\. Complete checkpoints are unchanged"):
        run.save(30, content(30))
    monkeypatch.undo()
    assert intact(Checkpoints(tmp_path).newest()) == 20
    # The same process may try again once there is space.
    run.save(30, content(30))
    assert intact(Checkpoints(tmp_path).newest()) == 30


def test_the_earlier_of_two_writers_is_refused(tmp_path: Path) -> None:
    first = saved(tmp_path, 10)
    second = start(tmp_path)
    with pytest.raises(SecondWriter, match=r"stops without saving\. Give every run a CHECKPOINT_DIR of its own"):
        first.save(20, content(20))
    assert steps(tmp_path) == [10]
    second.save(20, content(20))
    assert intact(Checkpoints(tmp_path).newest()) == 20


def test_a_writer_that_is_replaced_in_mid_save_writes_no_marker(tmp_path: Path) -> None:
    first = saved(tmp_path, 10)
    folder = first.begin(20)
    files = {"model": write_file(folder, "model", content(20)["model"])}
    second = start(tmp_path)
    with pytest.raises(SecondWriter):
        first.complete(folder, files)
    assert intact(Checkpoints(tmp_path).newest()) == 10
    second.save(20, content(20))
    assert intact(Checkpoints(tmp_path).resume()) == 20
    assert steps(tmp_path) == [20, 10]


def test_a_late_marker_of_a_replaced_writer_harms_nothing(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10).begin(20)
    files = {name: write_file(folder, name, write) for name, write in content(20).items()}
    second = start(tmp_path)
    # Between its look for a newer writer and its marker, the first process was stopped for a while.
    marker = {"format": 1, "step": 20, "world_size": 1, "files": files}
    folder.mkdir(exist_ok=True)
    (folder / MARKER).write_text(json.dumps(marker))
    assert intact(Checkpoints(tmp_path).newest()) == 10  # the second removed its files
    second.save(15, content(15))
    assert intact(Checkpoints(tmp_path).resume()) == 15


def test_of_two_writers_that_start_at_once_one_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path)
    (tmp_path / "writers" / "000001-00000000").touch()
    run.save(10, content(10))
    (tmp_path / "writers" / "000001-ffffffff").touch()
    with pytest.raises(SecondWriter):
        run.save(20, content(20))
    assert steps(tmp_path) == [10]


def test_a_writer_does_not_remove_one_that_starts_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    newer = tmp_path / "writers" / "000009-00000000"
    require_claim = Checkpoints._require_claim

    def require_claim_and_start_another(run: Checkpoints) -> None:
        require_claim(run)
        newer.touch()

    monkeypatch.setattr(Checkpoints, "_require_claim", require_claim_and_start_another)
    run = Checkpoints(tmp_path)
    run.start_writing()
    monkeypatch.undo()
    assert newer.exists()
    with pytest.raises(SecondWriter, match="writer 000009-00000000"):
        run.save(10, content(10))


@pytest.mark.parametrize("seed", range(20))
def test_removing_old_checkpoints_never_removes_the_newest_complete_one(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    run, step, newest = start(tmp_path), 0, 0
    for _ in range(30):
        match chance.choice(["save", "save", "interrupted", "restart", "damage"]):
            case "save":
                step += chance.randint(1, 9)
                run.keep = chance.randint(1, 3)
                run.save(step, content(step))
                newest = step
                assert len([folder for folder in newest_first(tmp_path) if is_complete(folder)]) <= run.keep
            case "interrupted":
                write_file(run.begin(step + 1), "model", content(step + 1)["model"])
            case "restart":
                run = Checkpoints(tmp_path)
                step = intact(run.resume())
                assert step == newest
            case "damage" if len(complete := [f for f in newest_first(tmp_path) if is_complete(f)]) > 1:
                os.truncate(complete[0] / "optimizer", 1)
                run = Checkpoints(tmp_path)
                newest = step = intact(run.resume())
                assert step == step_of(complete[1])
    assert intact(Checkpoints(tmp_path).resume()) == newest


def test_a_damaged_checkpoint_counts_as_none_and_is_removed_in_its_turn(tmp_path: Path) -> None:
    run = saved(tmp_path, 10, 20, 30)
    os.truncate(folder_of(tmp_path, 20) / "model", 1)
    run.keep = 2
    run.save(40, content(40))
    assert steps(tmp_path) == [40, 30]
    os.truncate(folder_of(tmp_path, 40) / "model", 1)
    run.save(50, content(50))
    assert steps(tmp_path) == [50, 40, 30]
    run.save(60, content(60))
    assert steps(tmp_path) == [60, 50]


def test_a_run_that_continues_another_one_leaves_it_as_it_is(tmp_path: Path) -> None:
    saved(tmp_path / "old", 10, 20)
    before = sorted(tmp_path.rglob("*"))
    run = Checkpoints(tmp_path / "new", keep=1, resume_from=tmp_path / "old")
    assert intact(run.resume()) == 20
    run.save(30, content(30))
    assert before == sorted(path for path in tmp_path.rglob("*") if "new" not in path.parts)
    # From then on it continues its own.
    assert intact(Checkpoints(tmp_path / "new", keep=1, resume_from=tmp_path / "old").resume()) == 30
    assert before == sorted(path for path in tmp_path.rglob("*") if "new" not in path.parts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: Checkpoints(path).save(10, content(10)), "Only process 0"),
        (lambda path: Checkpoints(path, keep=0), "CHECKPOINT_KEEP is 0"),
        (lambda path: Checkpoints(path, resume_from=path / "mistyped").resume(), "The run would begin at step 0"),
    ],
    ids=["saved by another process", "none is kept", "nothing to continue"],
)
def test_a_run_that_cannot_save_is_refused(call: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        call(tmp_path)


def test_several_processes_write_one_checkpoint_and_another_number_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path)
    folder = run.begin(10)
    shards = {f"rank-{rank}": write_file(folder, f"rank-{rank}", lambda file: file.write(b"part")) for rank in range(3)}
    assert run.newest() is None
    run.complete(folder, shards, world_size=3)
    newest = run.newest()
    assert newest
    assert (newest.world_size, sorted(newest.files)) == (3, ["rank-0", "rank-1", "rank-2"])
    read_marker(newest.folder).require_world_size(3)
    with pytest.raises(CheckpointError, match="has the shards of 3 processes, and 4 are running"):
        read_marker(newest.folder).require_world_size(4)


def test_sigterm_is_remembered_and_ends_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        stop = StopSignal()
        assert not stop.received
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_save_that_takes_most_of_the_grace_period_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Checkpoints(tmp_path, grace_seconds=60)
    run.resume()
    clock = iter([0.0, 20.0, 100.0, 140.0])
    # Threads of other tests still read the real one.
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(time=time.time, monotonic=lambda: next(clock)))
    run.save(10, content(10))
    assert not capsys.readouterr().err
    run.save(20, content(20))
    assert "Saving step 20 took 40 s. A pod is killed 60 s after SIGTERM" in capsys.readouterr().err


def test_the_module_uses_nothing_that_cloud_storage_fuse_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(tmp_path, 10, 20)
    watched = WatchedOs(lambda *_: None)
    monkeypatch.setattr(checkpoints, "os", watched)
    run = start(tmp_path, keep=1)
    run.save(30, content(30))
    write_file(run.begin(40), "model", content(40)["model"])
    start(tmp_path)
    reads = {"listdir", "stat", "getpid", "O_WRONLY", "O_CREAT", "O_EXCL"}
    assert watched.used == {*CHANGES, *reads}


IN_RUN = {"CHECKPOINT_DIR": "/run"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "CHECKPOINT_DIR is not set"),
        ({**IN_RUN, "CHECKPOINT_KEEP": "two"}, "CHECKPOINT_KEEP is 'two'"),
        ({**IN_RUN, "CHECKPOINT_KEEP": "0"}, "CHECKPOINT_KEEP is 0"),
        ({**IN_RUN, "CHECKPOINT_GRACE_SECONDS": "1m"}, "CHECKPOINT_GRACE_SECONDS is '1m'"),
    ],
)
def test_wrong_variables_are_refused(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without = {name: value for name, value in os.environ.items() if not name.startswith("CHECKPOINT_")}
    monkeypatch.setattr(os, "environ", without | variables)
    with pytest.raises(CheckpointError, match=message):
        Checkpoints.from_environment()


def test_the_variables_of_the_container_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = {"DIR": str(tmp_path), "KEEP": "1", "GRACE_SECONDS": "60", "RESUME_FROM": str(tmp_path / "old")}
    for name, value in variables.items():
        monkeypatch.setenv(f"CHECKPOINT_{name}", value)
    run = Checkpoints.from_environment()
    assert (run.directory, run.keep, run.grace_seconds, run.resume_from) == (tmp_path, 1, 60, tmp_path / "old")
