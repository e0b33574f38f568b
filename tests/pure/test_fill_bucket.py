"""The program that fills a bucket with a model, against a local HTTP server that plays Hugging Face."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.machine.polling import poll_until
from emulator.pods import hub as stubbed
from programs import fill_bucket, hugging_face
from programs.fill_bucket import Filling, Output
from programs.hugging_face import FILLING, MARKER, FillError, Hub, ModelFile, needed
from tests.support.hub import COMMIT, MODEL, FakeHub, Request
from tests.support.repository import ROOT

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
# The programs find each other there as in their pods.
PODS = str(ROOT / "gke_ai" / "pods")

TOKEN = "hf_notatoken"
RANDOM = random.Random(1)
SHARD = "model-00001-of-00002.safetensors"
FILES = {
    "config.json": b'{"architectures": ["Tiny"]}',
    "tokenizer/tokenizer.json": RANDOM.randbytes(3000),
    SHARD: RANDOM.randbytes(600_000),
    "model-00002-of-00002.safetensors": RANDOM.randbytes(200_000),
    "empty.txt": b"",
}
BLOCK = 50_000
# For a process to start and get to work, on a busy machine. Less than the time for which the server holds a file.
SECONDS = 30


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: Patch) -> None:
    """Small blocks, and short pauses."""
    for module in (fill_bucket, hugging_face):
        monkeypatch.setattr(module, "BLOCK", BLOCK)
    monkeypatch.setattr(hugging_face, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(fill_bucket, "PROGRESS_SECONDS", 0.05)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub(dict(FILES)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bucket" / MODEL / "main"


def fill(folder: Path, hub: FakeHub, token: str = "", revision: str = "main") -> None:
    Filling(folder, MODEL, revision, Hub(hub.url, MODEL, token)).run()


def start(folder: Path, hub: FakeHub, token: str = "", before: str = "") -> subprocess.Popen[str]:
    """The program as a process of its own, as in a pod. `before` runs first."""
    code = (
        "import sys\nfrom programs import fill_bucket, hugging_face\n"
        f"fill_bucket.BLOCK = hugging_face.BLOCK = {BLOCK}\nhugging_face.FIRST_PAUSE_SECONDS = 0.001\n{before}\n"
        "sys.exit(fill_bucket.main())"
    )
    variables = {"MODEL": MODEL, "REVISION": "main", "MODEL_DIRECTORY": str(folder), "HF_ENDPOINT": hub.url}
    environment = {**variables, "HF_TOKEN": token, "PATH": os.environ["PATH"], "PYTHONPATH": PODS}
    output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **output)


def output_of(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=SECONDS)[0]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of the model in the folder, without those of the program."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != MARKER and FILLING not in file.parts
    }


def marker(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / MARKER).read_text())
    return content


def is_complete(folder: Path, files: dict[str, bytes] | None = None) -> bool:
    """Whether the folder has every file, the marker lists them, and no part is left."""
    if not (folder / MARKER).exists():
        return False
    assert contents(folder) == (FILES if files is None else files)
    sizes = {name: len(content) for name, content in contents(folder).items()}
    assert {name: entry["bytes"] for name, entry in marker(folder)["files"].items()} == sizes
    assert not (folder / FILLING).exists()
    return True


def test_folder_has_every_file_and_the_marker_its_checksums(folder: Path, hub: FakeHub, capsys: Capture) -> None:
    fill(folder, hub)
    assert is_complete(folder)
    assert (marker(folder)["model"], marker(folder)["revision"], marker(folder)["commit"]) == (MODEL, "main", COMMIT)
    assert marker(folder)["files"][SHARD]["sha256"] == hashlib.sha256(FILES[SHARD]).hexdigest()
    assert "git" in marker(folder)["files"]["config.json"]
    hub.requests.clear()
    capsys.readouterr()
    fill(folder, hub)
    assert hub.requests == [], "a complete folder needs none"
    assert COMMIT in capsys.readouterr().out


def test_truncated_file_of_a_complete_folder_is_downloaded_again(folder: Path, hub: FakeHub) -> None:
    fill(folder, hub)
    (folder / SHARD).unlink()
    hub.requests.clear()
    fill(folder, hub)
    assert is_complete(folder)
    assert [sent.path for sent in hub.requests if "/resolve/" in sent.path] == [f"/{MODEL}/resolve/{COMMIT}/{SHARD}"]
    (folder / SHARD).write_bytes(FILES[SHARD][:-1])
    fill(folder, hub)
    assert is_complete(folder)


@pytest.mark.parametrize(
    ("names", "skipped"),
    [
        # As in openai/gpt-oss-120b, whose `original` has the same 65 GB again.
        (["config.json", "model-0.safetensors", "original/config.json"], ["original/model-1.safetensors"]),
        (["config.json", "model.safetensors"], ["pytorch_model.bin", "original/consolidated.00.pth"]),
        (["config.json", "transformer/model.safetensors"], []),
    ],
    ids=["copies of the weights in folders are skipped", "other formats are skipped", "weights in folders alone"],
)
def test_other_formats_and_copies_of_safetensors_are_skipped(names: list[str], skipped: list[str]) -> None:
    files = [ModelFile(name, 10, "git", "0") for name in (*skipped, *names)]
    assert [file.name for file in needed(files)] == names


def test_model_without_safetensors_is_downloaded_in_its_format(folder: Path) -> None:
    files = {"config.json": b"{}", "pytorch_model.bin": b"1" * 100}
    with FakeHub(files) as hub:
        fill(folder, hub)
    assert is_complete(folder, files)


@pytest.mark.parametrize("after", [0, 1, BLOCK, 3 * BLOCK + 7, len(FILES[SHARD]) - 1])
def test_killed_process_goes_on_with_a_range_and_leaves_complete_files(folder: Path, hub: FakeHub, after: int) -> None:
    hub.files = {name: FILES[name] for name in ("config.json", SHARD)}
    hub.hold_after = after
    killed = start(folder, hub)
    assert hub.held.wait(SECONDS)
    assert poll_until(lambda: hub.of(SHARD), SECONDS, pause=0.01)  # the other file may be held first
    assert poll_until(lambda: partial_size(folder) >= after // BLOCK * BLOCK, SECONDS, pause=0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait(SECONDS)
    assert not (folder / MARKER).exists()
    assert not (folder / SHARD).exists()
    received = partial_size(folder)
    before = {name: (folder / name).stat().st_mtime_ns for name in contents(folder)}
    hub.hold_after = None
    hub.requests.clear()
    fill(folder, hub)
    assert is_complete(folder, hub.files)
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    assert [request.start for request in hub.of(SHARD)] == [received]
    assert [request for name in before for request in hub.of(name)] == []


def partial_size(folder: Path) -> int:
    return max((file.stat().st_size for file in (folder / FILLING).glob(f"{SHARD}.*")), default=0)


def test_process_that_gets_sigterm_ends_at_once(folder: Path, hub: FakeHub) -> None:
    hub.hold_after = 100
    process = start(folder, hub)
    assert hub.held.wait(SECONDS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not (folder / MARKER).exists()


def test_damaged_part_is_noticed_and_downloaded_from_its_beginning(folder: Path, hub: FakeHub) -> None:
    part = folder / FILLING / f"{SHARD}.0abc"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    fill(folder, hub)
    assert is_complete(folder)
    assert [request.start for request in hub.of(SHARD)] == [1000, 0]


@pytest.mark.parametrize(
    ("answer", "ignores_ranges", "starts"),
    [
        (FILES[SHARD][:123_456], False, [0, 123_456]),
        (FILES[SHARD][:123_456], True, [0, 123_456]),
        (b"x" * len(FILES[SHARD]), False, [0, 0]),
        ((403, {}), False, [0, 0]),
    ],
    ids=["closed early", "closed early by a server without ranges", "another checksum", "an expired address"],
)
def test_download_that_fails_once_continues_with_a_range_or_begins_again(
    answer: Any, ignores_ranges: bool, starts: list[int], folder: Path, hub: FakeHub
) -> None:
    answers = iter([answer])
    hub.faults[SHARD] = lambda *_: next(answers, None)
    hub.ignores_ranges = ignores_ranges
    fill(folder, hub)
    assert is_complete(folder)
    assert [request.start for request in hub.of(SHARD)] == starts


def test_progress_loses_only_repeated_bytes(folder: Path, hub: FakeHub, capsys: Capture) -> None:
    shown: list[str] = []

    def is_shown_twice() -> bool:
        shown.extend(line for line in capsys.readouterr().out.splitlines() if line.endswith("% of 0.8 MB"))
        return len(shown) >= 2

    def fault(_: Request, content: bytes) -> bytes | None:
        if len(hub.of("config.json")) == 1:
            poll_until((folder / SHARD).exists, SECONDS, pause=0.01)  # counted by another thread meanwhile
            return b"x" * len(content)
        capsys.readouterr()
        poll_until(is_shown_twice, SECONDS, pause=0.01)  # the second line counts what is missing now
        return None

    def later(*_: object) -> None:
        poll_until(lambda: hub.of("config.json"), SECONDS, pause=0.01)

    hub.faults["config.json"] = fault
    hub.faults[SHARD] = later
    fill(folder, hub)
    assert shown[-1] == "99 % of 0.8 MB"


@pytest.mark.parametrize("name", [SHARD, "config.json"])
def test_checksum_that_stays_wrong_fails_and_nothing_looks_complete(folder: Path, hub: FakeHub, name: str) -> None:
    hub.faults[name] = lambda _, content: b"x" * len(content)
    with pytest.raises(FillError, match=rf"{name} had another .* checksum than [0-9a-f]+ 3 times.*proxy"):
        fill(folder, hub)
    assert not (folder / MARKER).exists()
    assert not (folder / name).exists()
    assert len(hub.of(name)) == fill_bucket.MAX_DOWNLOADS


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "close"])
def test_full_disk_fails_with_the_remedy_and_leaves_nothing_that_looks_complete(
    folder: Path, hub: FakeHub, monkeypatch: Patch, code: int, call: str
) -> None:
    real = getattr(os, call)

    def full(descriptor: int, *data: bytes) -> Any:
        if SHARD in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        return real(descriptor, *data)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(FillError, match=r"can't be written: .*The model is not complete\. Free space"):
            fill(folder, hub)
    assert not (folder / MARKER).exists()
    assert not (folder / SHARD).exists()
    fill(folder, hub)
    assert is_complete(folder)


def test_file_that_can_not_be_written_is_closed_only_once(tmp_path: Path, monkeypatch: Patch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = Output(tmp_path / "part")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(FillError):
            output.write(b"x")
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)  # of another thread, with the same number
    output.close()
    output.discard()
    assert os.write(other, b"x") == 1
    os.close(other)


def test_limit_of_the_file_system_ends_the_process_with_a_message(folder: Path, hub: FakeHub) -> None:
    limit = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    )
    process = start(folder, hub, before=limit)
    assert "can't be written: File too large. The model is not complete." in output_of(process)
    assert process.returncode == fill_bucket.EXIT_FAILED
    assert not (folder / MARKER).exists()


def test_two_processes_at_once_fill_the_same_folder(folder: Path, hub: FakeHub) -> None:
    hub.hold_after = 200_000  # both are in the middle of the same file
    first, second = start(folder, hub), start(folder, hub)
    assert poll_until(lambda: len(list((folder / FILLING).glob(f"{SHARD}.*"))) == 2, SECONDS, pause=0.01)
    assert hub.held.wait(SECONDS)
    hub.go_on.set()
    outputs = output_of(first), output_of(second)
    assert (first.returncode, second.returncode) == (0, 0), outputs
    assert is_complete(folder)


def test_folder_that_another_process_deletes_while_it_is_looked_for_is_made_again(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    mkdir, calls = os.mkdir, []

    def existed_a_moment_ago(path: str, mode: int = 0o777) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", existed_a_moment_ago)
    output = Output(tmp_path / FILLING / "file")
    output.write(b"content")
    output.close()
    assert output.path.read_bytes() == b"content"


def test_process_whose_part_another_one_deleted_finds_the_file_complete(folder: Path, hub: FakeHub) -> None:
    hub.hold_after = 200_000
    slow = start(folder, hub)
    assert hub.held.wait(SECONDS)
    hub.hold_after = None
    fill(folder, hub)
    hub.go_on.set()
    assert slow.wait(SECONDS) == 0, output_of(slow)
    assert is_complete(folder)


@pytest.fixture
def source(folder: Path) -> Path:
    """The record of what a folder is filled with, which does not exist yet."""
    file = folder / FILLING / fill_bucket.SOURCE
    file.parent.mkdir(parents=True)
    return file


def test_revision_that_moves_meanwhile_changes_nothing(folder: Path, source: Path, hub: FakeHub) -> None:
    source.write_text(json.dumps({"commit": COMMIT}))
    fill(folder, hub)
    assert is_complete(folder)
    assert not any(request.path.endswith("/revision/main") for request in hub.requests)


def test_interrupted_repair_continues_with_the_commit_of_the_marker(folder: Path, hub: FakeHub) -> None:
    fill(folder, hub)
    (folder / SHARD).unlink()
    hub.faults[SHARD] = lambda _, content: b"x" * len(content)
    with pytest.raises(FillError):
        fill(folder, hub)
    del hub.faults[SHARD]
    hub.requests.clear()
    fill(folder, hub)
    assert is_complete(folder)
    assert not any(request.path.endswith("/revision/main") for request in hub.requests)


def test_record_that_a_kill_left_empty_is_written(folder: Path, source: Path, hub: FakeHub, monkeypatch: Patch) -> None:
    monkeypatch.setattr(fill_bucket, "RECORD_PAUSE_SECONDS", 0.001)
    source.touch()
    with pytest.raises(FillError, match="can't be written or read"):
        fill(folder, hub)
    fill(folder, hub)
    assert is_complete(folder)


def test_gated_model_is_refused_with_the_remedy_and_the_token_is_never_printed(folder: Path, hub: FakeHub) -> None:
    hub.token = "another"
    for token, reason in (("", "a request without a token (HTTP 401)"), (TOKEN, "the token (HTTP 403)")):
        process = start(folder, hub, token)
        output = output_of(process)
        assert process.returncode == fill_bucket.EXIT_REFUSED
        assert f"error: {hub.url}/{MODEL} refuses {reason}." in output
        assert "Accept its license" in output
        assert TOKEN not in output
        assert token or "pulumi config set --secret gke-ai:hfToken" in output
    assert contents(folder) == {}


def test_token_goes_to_hugging_face_and_not_to_the_host_of_the_files(folder: Path, hub: FakeHub) -> None:
    hub.token = TOKEN
    process = start(folder, hub, TOKEN)
    output = output_of(process)
    assert process.returncode == 0, output
    assert is_complete(folder)
    tokens = {(request.host, request.token) for request in hub.requests}
    assert tokens == {("127.0.0.1", f"Bearer {TOKEN}"), ("localhost", None)}
    assert TOKEN not in output
    assert "signature" not in output


def test_missing_model_is_refused(folder: Path, hub: FakeHub) -> None:
    with pytest.raises(FillError, match="does not have the model, revision or file") as refused:
        fill(folder, hub, revision="v9")
    assert refused.value.refused


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_hub_is_asked_again_when_it_says(folder: Path, hub: FakeHub, monkeypatch: Patch, status: int) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    answers = iter([(status, {"Retry-After": "7"}), (status, {})])
    hub.api_fault = lambda _: next(answers, None)
    of_file = iter([(status, {"Retry-After": "9"})])
    hub.faults[SHARD] = lambda *_: next(of_file, None)
    fill(folder, hub)
    assert is_complete(folder)
    assert (pauses[0], pauses[2]) == (7, 9)
    assert pauses[1] < 1


def test_pauses_grow_and_a_silent_hub_is_an_error(folder: Path, hub: FakeHub, monkeypatch: Patch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    hub.faults[SHARD] = lambda *_: (503, {})
    with pytest.raises(FillError, match=f"{SHARD}: HTTP 503, 8 times in a row"):
        fill(folder, hub)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 50 * pauses[0]
    assert not (folder / MARKER).exists()


BAD_NAMES = (
    *("../escape", "/absolute", "a/../../b", MARKER, f"./{MARKER}", f".//{MARKER}", "a/./b", "a//b", "a/", ""),
    *("nul\0", "line\n", "\ud800", "a/" + 256 * "x", 128 * "é", "/".join(5 * [200 * "x"])),
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_file_name_outside_the_folder_is_refused(folder: Path, name: str) -> None:
    with FakeHub({name: b"x"}) as hub, pytest.raises(FillError, match="can't be stored under this name"):
        fill(folder, hub)
    assert not folder.exists() or not [path for path in folder.rglob("*") if path.is_file() and path.name != "SOURCE"]


@pytest.mark.parametrize("name", [255 * "x", 127 * "é", "a/" + 250 * "y", "文件 1.json"])
def test_file_name_of_any_length_that_a_file_system_has_is_stored(folder: Path, name: str) -> None:
    with FakeHub({name: b"content"}) as hub:
        fill(folder, hub)
    assert (folder / name).read_bytes() == b"content"


def test_file_whose_name_is_also_a_folder_is_explained(folder: Path) -> None:
    with FakeHub({"a": b"larger", "a/b": b"x"}) as hub, pytest.raises(FillError, match="can't be written"):
        fill(folder, hub)


def test_program_needs_only_the_standard_library() -> None:
    """As in a pod: without the packages of this environment."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{PODS!r}]; import programs.fill_bucket"]
    subprocess.run(command, check=True)


def test_stub_of_the_emulator_has_the_api_that_the_program_uses(folder: Path) -> None:
    stub = stubbed.Hub()
    model, revision = "google/gemma-2-2b-it", "main"
    try:
        with pytest.raises(FillError, match="refuses a request without a token"):
            Filling(folder, model, revision, Hub(stub.url, model, "")).run()
        Filling(folder, model, revision, Hub(stub.url, model, TOKEN)).run()
    finally:
        stub.stop()
    assert is_complete(folder, stubbed.files(model))
    assert marker(folder)["commit"] == stubbed.commit(model, revision)
