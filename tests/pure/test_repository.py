"""Tests and generated pages cover the files of the repository and ignore files that a user adds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from emulator.setup.toolchain import EARLIER
from tests.support import repository
from tests.support.repository import ROOT

SELF = Path(__file__)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with two stacks, one example and one page."""
    (tmp_path / "examples").mkdir()
    for name in (*repository.STACKS, "examples/serving.yaml", "README.md"):
        (tmp_path / name).write_text("config: {}\n")
    for command in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_stack_of_a_user_and_a_file_that_is_not_committed_are_not_covered(checkout: Path) -> None:
    before = repository.configurations(checkout)
    assert [str(file.relative_to(checkout)) for file in before] == [*repository.STACKS, "examples/serving.yaml"]
    (checkout / "Pulumi.staging.yaml").write_text("config: {}\n")
    assert repository.configurations(checkout) == before
    subprocess.run(["git", "add", "."], cwd=checkout, check=True)
    assert repository.configurations(checkout) == before, "nor once it is committed"
    (checkout / "examples" / "mine.yaml").write_text("config: {}\n")
    (checkout / "notes.md").write_text("# Notes\n")
    assert [file.name for file in repository.examples(checkout)] == ["serving.yaml"]
    assert [file.name for file in repository.tracked("**/*.md", checkout)] == ["README.md"]


def test_copy_without_git_covers_all_files_except_the_emulator_state(tmp_path: Path) -> None:
    for name in ("README.md", "docs/page.md", ".local/state.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Page\n")
    names = [str(file.relative_to(tmp_path)) for file in repository.tracked("**/*.md", tmp_path)]
    assert names == ["README.md", "docs/page.md"]


def test_configurations_are_listed_in_one_place_only() -> None:
    lists = re.compile(r"""glob\((?:["']Pulumi\.|["']examples)|["']examples["']\)?\.r?glob""")
    folders = ("docs", "maintain", "tests", "emulator/tests")
    files = {file for folder in folders for file in repository.tracked(f"{folder}/**/*.py")} - {SELF}
    assert len(files) > 50
    found = [str(file.relative_to(ROOT)) for file in files if lists.search(file.read_text())]
    assert found == ["tests/support/repository.py"]


def test_lock_has_the_versions_that_the_requirements_pin() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text(), re.M))

    locked = {package.lower(): version for package, version in pins("requirements/all.lock").items()}
    pinned = pins("requirements.txt") | pins("requirements/dev.txt") | pins("emulator/requirements.txt")
    assert len(pinned) > 15
    for package, version in pinned.items():
        assert locked[package.lower()] == version, f"{package}: renew requirements/all.lock, see requirements/dev.txt"


def test_every_install_checks_hashes_and_takes_the_locked_packages_alone() -> None:
    """Without `--no-deps`, pip before 23.3 takes the newest `coverage` for `coverage[toml]`, whatever is locked."""
    locked = (ROOT / "requirements/all.lock").read_text()
    program = (ROOT / "requirements/program.lock").read_text()
    packages = re.findall(r"^([\w.-]+==[\w.]+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\\\)?)*)", program, re.M)
    assert len(packages) > 40
    assert [package for package, hashes in packages if not hashes] == []
    names = {package.lower() for package, _ in packages}
    pins = re.findall(r"^[\w.-]+==[\w.]+", (ROOT / "requirements.txt").read_text(), re.M)
    assert {pin.lower() for pin in pins} <= names
    for package in names - {"setuptools", "tzdata"}:
        assert package in locked.lower(), f"{package}: renew requirements/program.lock, see requirements/dev.txt"
    pages = [file for name in ("*.md", "docs/**/*.md", ".github/**/*.yml") for file in repository.tracked(name)]
    pages.remove(ROOT / "CHANGELOG.md")  # it has commands of earlier versions
    lines = [line for page in pages for line in page.read_text().splitlines()]
    installs = [line for line in lines if "pip install" in line and re.search(r"requirement|\.lock", line)]
    own = (ROOT / "emulator/setup/installation.py").read_text()
    installs += [line for line in own.splitlines() if '"install"' in line]
    assert len(installs) >= 3
    assert [line for line in installs if not re.search("--no-deps.*--require-hashes", line)] == []
    assert (ROOT / "components/plugin/requirements.txt").read_text() == "-r ../../requirements/program.lock\n"


def test_the_lock_has_every_package_that_another_one_needs() -> None:
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    remedy = f"renew requirements/all.lock, see requirements/dev.txt: {check}"
    assert check.stdout == "No broken requirements found.\n", remedy


def test_dependency_updates_cover_python_actions_and_every_tool_but_earlier_releases() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = {entry["package-ecosystem"]: entry["directories"] for entry in updates}
    modules = {f"/{file.parent.relative_to(ROOT)}" for file in repository.tracked("**/go.mod")}
    assert folders.keys() == {"github-actions", "pip", "gomod", "npm"}
    assert {*folders["npm"]} == {f"/{file.parent.relative_to(ROOT)}" for file in repository.tracked("**/package.json")}
    assert {*folders["gomod"], *(f"/emulator/tools/{module.name}" for module in EARLIER)} == modules
    # Of another folder than /, Dependabot reads the files that lie in it, and those of pip end in .txt:
    # https://github.com/dependabot/dependabot-core, file_fetcher.rb of github_actions and of python
    uses = [file for file in repository.tracked("**/*.yml") if re.search(r"uses: [\w-]+/", file.read_text())]
    actions = {f"/{file.parent.relative_to(ROOT)}" for file in uses} - {"/.github/workflows"}
    patterns = {re.sub("/[^/]*$", "/*", name) if "/actions/" in name else name for name in actions}
    assert patterns < {*folders["github-actions"]}
    locks = [*repository.tracked("**/*.txt"), *repository.tracked("**/*.lock")]
    hashed = [file for file in locks if "--hash=" in file.read_text()]
    of_one_release = {"/maintain/real_vllm"}  # maintain/README.md says how it is renewed
    folders_of_pip = {f"/{file.parent.relative_to(ROOT)}".rstrip(".") for file in hashed} - of_one_release
    assert {*folders["pip"]} == folders_of_pip | {"/", "/emulator"}  # their locks are in /requirements


def test_no_file_has_a_merge_conflict() -> None:
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    pages = [*repository.tracked("**/*.md"), *repository.tracked("**/*.yaml"), *repository.tracked("Makefile")]
    assert len(pages) > 50
    assert [str(page.relative_to(ROOT)) for page in pages if marker.search(page.read_text())] == []


def test_each_test_file_that_needs_a_cluster_or_the_engine_says_what_only_it_shows() -> None:
    """What a pure or graph test can show belongs there: it takes a hundredth of the time."""
    files = [
        file
        for file in repository.tracked("**/test_*.py")
        if {"cluster", "nightly"} & {*file.parts}
        or re.search(r"^pytestmark = .*\bpytest\.mark\.cluster\b", file.read_text(), re.M)
    ]
    assert len(files) > 30
    first_lines = {file.name: file.read_text().partition("\n")[0] for file in files}
    assert [name for name, line in first_lines.items() if not re.match(r'"""Only here: .{20}', line)] == []
