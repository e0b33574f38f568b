"""An archive of the tools is used as a whole and only with its checksum. Otherwise set-up refuses it, or builds."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from emulator.machine.paths import CACHE, ROOT
from emulator.machine.progress import Progress, Stop
from emulator.setup import archive, installation, toolchain
from emulator.setup.toolchain import TOOLS, Module, Tool
from emulator.tests.harness import eventually, run

PROGRAM = "tools/thing/bin/thing"
CONTENT = {PROGRAM: "#!/bin/sh\necho thing\n", "licenses/example.com/thing@v1.2.3/LICENSE": "Apache-2.0\n"}
LONG = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(256)) * 4
TAKE = """
import sys, time
from pathlib import Path
from typing import Any
from emulator.setup import archive, toolchain
toolchain.MODULES = Path(sys.argv[1])
packages = {"thing": "example.com/thing/cmd/built"}
archive.TOOLS = (toolchain.Tool("thing", toolchain.Module("thing"), "example.com/thing", packages, seconds=1),)
unpack = archive.unpack
archive.unpack = lambda file, to: (unpack(file, to), time.sleep(600))
archive.take()
"""


def files(folder: Path) -> list[str]:
    """What a folder has, apart from the files that lock."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if not file.name.endswith(".lock"))


@dataclass
class Server:
    """A file server on this machine: the content of each path, what it was asked for, and after how much it ends."""

    cache: Path
    monkeypatch: pytest.MonkeyPatch
    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ends_after: int | None = None
    states_size: bool = True
    waits: threading.Event | None = None

    def offer(self, content: bytes, name: str = "") -> str:
        """Serves an archive, and lets set-up take it. Returns what pins it."""
        self.files[f"/{name or archive.file_name()}"] = content
        return self.pin(f"{self.address}/{name or archive.file_name()}#sha256={hashlib.sha256(content).hexdigest()}")

    def pin(self, place: str) -> str:
        self.monkeypatch.setenv("GKE_AI_ARCHIVE", place)
        return place

    def refuses(self, message: str) -> None:
        """Checks that set-up ends with this message and keeps nothing."""
        with pytest.raises(Stop, match=message):
            archive.take()
        assert files(self.cache) == ["archives"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a checkout whose only tool is `thing`."""
    source = tmp_path / "modules" / "thing"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module x\n\nrequire example.com/thing v1.2.3\n")
    (source / "go.sum").write_text("example.com/thing v1.2.3 h1:sum\n")
    packages = {"thing": "example.com/thing/cmd/built"}
    tool = Tool("thing", Module("thing"), "example.com/thing", packages, seconds=1)
    monkeypatch.setattr(toolchain, "MODULES", source.parent)
    monkeypatch.setattr(archive, "TOOLS", (tool,))
    monkeypatch.setattr(archive, "CACHE", tmp_path / "cache")
    monkeypatch.delenv("GKE_AI_ARCHIVE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server(cache, monkeypatch)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.path not in state.files:
                self.send_error(404)
                return
            content = state.files[self.path]
            self.send_response(200)
            if state.states_size:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.ends_after])
            self.wfile.flush()
            if state.waits:
                state.waits.wait(60)

        def log_message(self, format: str, *arguments: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield state
        if state.waits:
            state.waits.set()
        http.shutdown()


def packed(content: dict[str, str], *more: tarfile.TarInfo) -> bytes:
    """An archive of executable files, followed by these members."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w:gz", compresslevel=1) as tar:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
        for member in more:
            tar.addfile(member)
    return to.getvalue()


def test_an_archive_is_fetched_once_and_says_so(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    place = server.offer(packed(CONTENT))
    folder = archive.take()
    assert folder == server.cache / "archives" / place.partition("#sha256=")[2]
    assert subprocess.run([folder / PROGRAM], capture_output=True, text=True, check=True).stdout == "thing\n"
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"Set-up takes the tools from {place.partition('#')[0]} and keeps them in {server.cache}"
    # A busy machine takes seconds.
    assert re.fullmatch(r"  Archive of the tools of 0 MB fetched, verified and unpacked in \d+ s", second)
    assert archive.take() == folder
    assert (capsys.readouterr().err, len(server.asked)) == ("", 1)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]
    (folder / PROGRAM).write_text("")
    assert archive.take() == folder, "it lost a program, and is fetched again"
    assert (folder / PROGRAM).read_text() == CONTENT[PROGRAM]


def test_an_archive_in_a_folder_of_this_machine_is_taken(server: Server, tmp_path: Path) -> None:
    content = packed(CONTENT)
    (tmp_path / archive.file_name()).write_bytes(content)
    server.pin(f"{(tmp_path / archive.file_name()).as_uri()}#sha256={hashlib.sha256(content).hexdigest()}")
    assert archive.take()
    assert server.asked == []


def test_two_set_ups_at_once_fetch_once(server: Server) -> None:
    server.offer(packed(CONTENT))
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(archive.take) for _ in range(2))
    assert first.result() == second.result() == archive.take()
    assert len(server.asked) == 1


def test_the_repository_pins_archives_by_address_and_checksum() -> None:
    """The list may be empty: then set-up builds."""
    pins = json.loads(archive.PINS.read_text())
    assert [pin for pin in pins if not archive.FORM.fullmatch(pin) or not pin.startswith("https://")] == []


def test_the_pinned_archive_of_this_checkout_and_platform_is_taken_unless_archives_are_turned_off(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PINS", tmp_path / "archives.json")
    others = [server.offer(b"x", f"gke-ai-tools-0-linux-{platform}.tar.gz") for platform in ("amd64", "arm64")]
    pins = [*others, server.offer(packed(CONTENT))]
    monkeypatch.delenv("GKE_AI_ARCHIVE")
    archive.PINS.write_text(json.dumps(others))
    assert archive.take() is None
    archive.PINS.write_text(json.dumps(pins))
    server.pin("build")
    assert (archive.take(), server.asked) == (None, [])
    monkeypatch.delenv("GKE_AI_ARCHIVE")
    assert archive.take()
    assert server.asked == [f"/{archive.file_name()}"]


@pytest.mark.parametrize("states_size", [True, False])
def test_a_download_that_is_larger_than_any_archive_ends_before_it_fills_the_disk(
    states_size: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 10**6)
    monkeypatch.setattr(archive, "BLOCK", 10**5)
    server.states_size = states_size
    server.offer(b"x" * (10**6 + 1))
    server.refuses(r"it has more than 1 MB\. Nothing of it was kept")


@pytest.mark.usefixtures("cache")
def test_a_changed_tool_or_package_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive.file_name()
    (toolchain.MODULES / "thing" / "go.sum").write_text("example.com/thing v1.2.3 h1:other\n")
    changed_tool = archive.file_name()
    lock = tmp_path / "requirements.lock"
    lock.write_text("pulumi==1.0\n")
    monkeypatch.setattr(archive, "LOCK", lock)
    assert len({before, changed_tool, archive.file_name()}) == 3


def test_an_archive_of_other_tools_is_not_fetched(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.offer(packed(CONTENT), "gke-ai-tools-0-linux-amd64.tar.gz")
    assert archive.take() is None
    assert f"and builds them: this checkout and platform need {archive.file_name()}" in capsys.readouterr().err
    assert server.asked == []


def test_a_cut_download_is_not_unpacked_and_the_next_one_starts_clean(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    content = packed(CONTENT)
    server.offer(content)
    server.ends_after = len(content) // 2
    assert archive.take() is None
    assert f"the download ended after {len(content) // 2} of {len(content)} bytes" in capsys.readouterr().err
    assert files(server.cache) == ["archives"]
    server.ends_after = None
    assert archive.take()


@pytest.mark.parametrize("cause", ["nothing listens", "not found", "no answer", "no such host"])
def test_without_an_answer_set_up_builds(
    server: Server, monkeypatch: pytest.MonkeyPatch, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = server.offer(packed(CONTENT))
    if cause == "nothing listens":
        place = server.pin(place.replace(server.address, "http://127.0.0.1:1"))
    elif cause == "no such host":
        place = server.pin(place.replace(server.address, "http://archives.invalid"))
    elif cause == "not found":
        server.files.clear()
    else:
        server.ends_after, server.waits = 10, threading.Event()
        monkeypatch.setattr(archive, "TIMEOUT_SECONDS", 0.2)
    assert archive.take() is None
    assert f"Set-up can't take the tools from {place.partition('#')[0]}, and builds them: " in capsys.readouterr().err
    assert files(server.cache) == ["archives"]


@pytest.mark.parametrize("at", ["the download", "unpacking"])
def test_a_killed_set_up_leaves_no_archive_and_the_next_one_succeeds(server: Server, at: str) -> None:
    content = packed(CONTENT)
    place = server.offer(content)
    if at == "the download":
        server.ends_after, server.waits = len(content) // 2, threading.Event()
    command = [sys.executable, "-c", TAKE, str(toolchain.MODULES)]
    variables = {"PYTHONPATH": str(ROOT), "GKE_AI_CACHE": str(server.cache), "GKE_AI_ARCHIVE": place}
    killed = subprocess.Popen(command, env=os.environ | variables, start_new_session=True)
    begun = "archives/.*-*/archive" if at == "the download" else f"archives/.*-*/unpacked/{PROGRAM}"
    eventually(lambda: any(server.cache.glob(begun)), f"{at} has begun")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert [name for name in files(server.cache) if not name.startswith("archives/.")] == ["archives"]
    server.ends_after = None
    if server.waits:
        server.waits.set()
    folder = archive.take()
    assert folder
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


def test_an_archive_with_another_checksum_is_refused_before_it_is_unpacked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = server.offer(packed(CONTENT))
    replaced = packed({**CONTENT, PROGRAM: "#!/bin/sh\necho replaced\n"})
    server.offer(replaced)
    server.pin(place)
    monkeypatch.setattr(archive, "unpack", lambda *_: pytest.fail("it was unpacked"))
    server.refuses(rf"is not the pinned one: its SHA-256 is {hashlib.sha256(replaced).hexdigest()}, not")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "hostile",
    [
        member("/absolute"),
        member("tools/../../../outside"),
        member("tools/link", tarfile.SYMTYPE, "../../../.."),
        member("tools/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("tools/link", tarfile.SYMTYPE, "thing"),
        member("tools/link", tarfile.LNKTYPE, PROGRAM),
        member("tools/link", tarfile.LNKTYPE, "/etc/passwd"),
        member("tools/device", tarfile.CHRTYPE),
        member("tools/disk", tarfile.BLKTYPE),
        member("tools/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda info: f"{info.name} {info.type.decode()} {info.linkname}",
)
def test_an_archive_with_more_than_plain_files_is_refused(
    server: Server, tmp_path: Path, hostile: tarfile.TarInfo
) -> None:
    server.offer(packed(CONTENT, hostile))
    server.refuses(r"The archive of the tools is refused: .* Nothing of it was kept\.")
    assert not list(tmp_path.rglob("outside"))


def test_programs_of_an_archive_do_not_run_with_the_rights_of_their_owner(tmp_path: Path) -> None:
    special = member("tools/special")
    special.mode = 0o6777
    (tmp_path / "archive").write_bytes(packed(CONTENT, special))
    archive.unpack(tmp_path / "archive", tmp_path / "unpacked")
    assert (tmp_path / "unpacked/tools/special").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "content",
    [b"<html>Sign in</html>", packed({PROGRAM: LONG})[:5_000], packed({"tools/thing/bin/other": "x"})],
    ids=["no archive", "cut", "without a tool"],
)
def test_a_file_with_the_pinned_checksum_that_is_no_whole_archive_is_refused(server: Server, content: bytes) -> None:
    server.offer(content)
    server.refuses(r"refused|lacks tools")


@pytest.mark.parametrize("place", ["https://example.com/tools.tar.gz", "tools.tar.gz#sha256=00", "yes"])
def test_an_address_without_a_checksum_is_refused(server: Server, place: str) -> None:
    server.pin(place)
    with pytest.raises(Stop, match="It has the form https://HOST/FILE#sha256=CHECKSUM"):
        archive.take()


def wheel(folder: Path, name: str, tag: str) -> str:
    """Writes a package with one module. Returns its lines of a lock."""
    file = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(file, "w") as content:
        content.writestr(f"{name}.py", "answer = 42\n")
        content.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        content.writestr(f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        content.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return f"{name.replace('_', '-')}==1.0 \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of packages, which come from a folder `index` in place of the Internet."""
    monkeypatch.setattr(installation, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "requirements.lock"


def create(environment: Path, wheels: Path | None) -> str:
    return installation.create_environment(environment, wheels, Progress().step("Python environment"))


@pytest.mark.slow
def test_the_packages_of_an_archive_are_enough_until_those_of_tests_are_requested(tmp_path: Path, lock: Path) -> None:
    wheels, index, environment = tmp_path / "wheels", tmp_path / "index", tmp_path / "venv" / "key"
    wheels.mkdir()
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    compiled = f"{version}-{version}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    lock.write_text(wheel(wheels, "for_stacks", compiled) + wheel(index, "for_tests", "py3-none-any"))

    def modules() -> str:
        show = "import importlib.util as u; print([n for n in ('for_stacks', 'for_tests') if u.find_spec(n)])"
        return subprocess.run([environment / "bin/python", "-c", show], capture_output=True, text=True).stdout.strip()

    assert create(environment, wheels) == "created from the archive"
    assert modules() == "['for_stacks']"
    assert installation.is_installed(environment, wheels)
    assert not installation.is_installed(environment, None)
    shutil.copy(next(wheels.iterdir()), index)
    assert create(environment, None) == "created"
    assert modules() == "['for_stacks', 'for_tests']"
    assert create(environment, wheels) == "found, created by another set-up,"


@pytest.mark.slow
def test_a_package_of_an_archive_without_the_locked_hash_is_refused(tmp_path: Path, lock: Path) -> None:
    lock.write_text(wheel(tmp_path, "thing", "py3-none-any"))
    (file,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(file, "a") as content:
        content.writestr("more.py", "answer = 43\n")
    with pytest.raises(Stop, match="Set-up could not create the Python environment"):
        create(tmp_path / "venv" / "key", tmp_path)
    assert not installation.is_installed(tmp_path / "venv" / "key", tmp_path)


@pytest.mark.slow
def test_packages_come_from_the_index_if_an_archive_has_none_for_this_python(
    tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock.write_text(wheel(tmp_path / "index", "thing", "py3-none-any"))
    monkeypatch.setattr(installation, "locked", lambda _: lock.read_text().replace("thing", "other"))
    assert create(tmp_path / "venv" / "key", tmp_path / "wheels") == "created"
    assert installation.complete_marker(tmp_path / "venv" / "key").exists()


@pytest.fixture
def whole(tmp_path: Path) -> Callable[..., str]:
    """Writes an archive with every tool of this checkout: scripts that print their paths. Returns what pins it."""
    paths = [f"tools/{tool.module.name}/bin/{program}" for tool in TOOLS for program in tool.packages]
    content = packed(dict.fromkeys(paths, '#!/bin/sh\necho "$0"\n'))

    def write() -> str:
        (tmp_path / archive.file_name()).write_bytes(content)
        return f"{(tmp_path / archive.file_name()).as_uri()}#sha256={hashlib.sha256(content).hexdigest()}"

    return write


def without_go(tmp_path: Path, *command: str, place: str) -> subprocess.CompletedProcess[str]:
    cache = tmp_path / "empty cache"
    cache.mkdir(exist_ok=True)
    (cache / "venv").symlink_to(CACHE / "venv")
    variables: dict[str, Any] = {"GKE_AI_ARCHIVE": place, "GKE_AI_CACHE": str(cache)}
    variables |= {"GKE_AI_INTERPRETER": sys.executable}
    return run("--tools", "stack", *command, state=tmp_path / "state", **variables, PATH="/usr/bin:/bin")


@pytest.mark.parametrize("is_offered", [True, False])
def test_a_refused_archive_or_a_missing_go_ends_the_command_before_it_runs(
    tmp_path: Path, whole: Callable[..., str], is_offered: bool
) -> None:
    place = whole()
    if is_offered:
        place, reasons = place[:-8] + "00000000", ["is not the pinned one"]
    else:
        (tmp_path / archive.file_name()).unlink()
        reasons = ["and builds them: ", "Go isn't on PATH"]
    done = without_go(tmp_path, "echo", "ran", place=place)
    assert (done.returncode, done.stdout) == (1, "")
    assert [reason for reason in [*reasons, "Traceback"] if reason in done.stderr] == reasons


def test_with_an_archive_a_machine_without_go_runs_the_tools(tmp_path: Path, whole: Callable[..., str]) -> None:
    place = whole()
    done = without_go(tmp_path, "pulumi", "version", place=place)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "empty cache" / "archives" / place.partition("#sha256=")[2]
    assert done.stdout == f"{folder}/tools/pulumi/bin/pulumi\n"
