"""emulator/run works with each Python of the project's range and in any folder, or says at once what to change."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.machine.paths import CACHE, ROOT

RUN = ROOT / "emulator" / "run"
# A Python that claims a version, and that prints it in place of a set-up.
PYTHON = """\
#!/bin/sh
case $1 in
--version) echo 'Python {version}' ;;
-c) exec '{python}' -c "import sys; sys.version_info = ({numbers}); $2" ;;
-m) echo 'set up by {version}' >&2 && exit 1 ;;
esac
"""
SHIM = "#!/bin/sh\necho 'pyenv: python: command not found' >&2\nexit 127\n"  # of a version that isn't installed


def run(*command: str, run: Path = RUN, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    own = os.environ | {name: str(value) for name, value in environment.items()}
    return subprocess.run([run, *command], env=own, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder for PATH with what `emulator/run` uses before there is a Python, and no Python."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("sh", "cat", "chmod", "dirname", "head", "id", "mkdir", "sed", "seq", "sha256sum", "tr"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def script(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


def python(file: Path, version: str) -> Path:
    numbers = ", ".join(version.split(".")[:3])
    return script(file, PYTHON.format(version=version, python=sys.executable, numbers=numbers))


@pytest.mark.parametrize(
    ("on_path", "chosen"),
    [
        ({"python3.11": "3.11.7", "python3": "3.13.0"}, "3.11.7"),
        ({"python3": "3.13.0", "python3.12": "3.12.1"}, "3.13.0"),
        ({"python3": "3.10.13", "python3.12": "3.12.1", "python3.14": "3.14.2"}, "3.12.1"),
        ({"python3": "3.15.0", "python3.14": "3.14.2"}, "3.14.2"),
        ({"python3.11": "", "python3": "3.14.2"}, "3.14.2"),
    ],
)
def test_the_environment_has_the_first_python_of_the_range(
    path: Path, tmp_path: Path, on_path: dict[str, str], chosen: str
) -> None:
    for name, version in on_path.items():
        python(path / name, version) if version else script(path / name, SHIM)
    done = run("true", PATH=path, GKE_AI_CACHE=tmp_path / "cache", GKE_AI_INTERPRETER="")
    assert (done.returncode, done.stderr) == (1, f"set up by {chosen}\n")


@pytest.mark.parametrize("version", ["2.7.18", "3.10.13", "3.15.0", ""])
def test_a_python_out_of_the_range_is_refused_with_a_remedy(path: Path, tmp_path: Path, version: str) -> None:
    if version:
        python(path / "python3", version)
    done = run("true", PATH=path, GKE_AI_CACHE=tmp_path / "cache", GKE_AI_INTERPRETER="")
    found = f"Python {version}" if version else "not found"
    message = f"Python 3.11 to 3.14 is needed, and PATH has none (python3: {found}). "
    remedy = "Install one with its venv module, or set GKE_AI_INTERPRETER to the path of one.\n"
    assert (done.returncode, done.stderr) == (1, message + remedy)


def test_a_stated_python_that_does_not_run_or_is_out_of_the_range_is_refused(path: Path, tmp_path: Path) -> None:
    python(path / "python3", "3.11.7")  # not taken in its place
    reasons = {
        python(path / "python3.15", "3.15.0"): "Python 3.15.0",
        script(path / "python3.13", SHIM): "pyenv: python: command not found",
        path / "python3.99": "not found",
    }
    for stated, reason in reasons.items():
        done = run("true", PATH=path, GKE_AI_CACHE=tmp_path / "cache", GKE_AI_INTERPRETER=stated)
        message = f"GKE_AI_INTERPRETER={stated} is not Python 3.11 to 3.14: {reason}. Set it to the path of one.\n"
        assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize("sign", [":", "%", "?", "#", "\\"])
def test_a_folder_with_a_sign_that_the_tools_give_a_meaning_is_refused(tmp_path: Path, sign: str) -> None:
    folder = tmp_path / f"a{sign}b"
    (folder / "emulator").mkdir(parents=True)
    copy = Path(shutil.copy(RUN, folder / "emulator" / "run"))
    for done in (run("true", run=copy), run("true", GKE_AI_CACHE=folder), run("true", GKE_AI_STATE=folder)):
        assert done.returncode == 1
        assert done.stderr.startswith(f"The folder {folder} has one of the signs : % ? # \\ in its path")


def test_a_cache_that_can_not_be_written_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """Below /dev/null not even root may write."""
    done = run("true", GKE_AI_STATE=tmp_path, GKE_AI_CACHE="", XDG_CACHE_HOME="", HOME="/dev/null")
    assert done.returncode == 1
    assert "\nSet-up can't use /dev/null/.cache/gke-ai" in done.stderr
    assert done.stderr.endswith(": Not a directory. Set GKE_AI_CACHE to another folder.\n")


def test_a_home_that_can_not_be_written_is_enough_with_a_cache_elsewhere(tmp_path: Path) -> None:
    done = run("gke-ai", "--help", GKE_AI_STATE=tmp_path, GKE_AI_CACHE=CACHE, HOME="/dev/null")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_state_folder_that_can_not_be_written_is_refused_with_a_remedy() -> None:
    done = run("true", GKE_AI_STATE="/dev/null/state")
    assert done.returncode == 1
    remedy = "The emulator keeps its state there. Set GKE_AI_STATE to a folder that you may write to.\n"
    assert done.stderr.endswith(remedy)


def test_a_user_without_a_home_is_told_to_set_one(path: Path) -> None:
    """As in a container that runs as a number."""
    (path / "id").unlink()
    script(path / "id", "#!/bin/sh\n[ $1 = -u ] && echo 1234\n")
    done = run("true", PATH=path, HOME="")
    message = (
        "HOME is not set, and user 1234 has none in the user database. Set HOME to a folder that you may write to."
    )
    assert (done.returncode, done.stderr) == (1, f"{message}\n")


def test_an_installed_emulator_is_run_by_the_command_that_names_its_python(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    for name in ("run", "requirements.lock"):
        (packages / "emulator").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "emulator" / name, packages / "emulator" / name)
    done = run("true", run=packages / "emulator" / "run", GKE_AI_CACHE=tmp_path / "cache", GKE_AI_INTERPRETER="")
    assert done.returncode != 0
    assert "Run gke-ai-emulator in place of" in done.stderr
    named = python(tmp_path / "python", "3.12.1")
    done = run("true", run=packages / "emulator" / "run", GKE_AI_CACHE=tmp_path / "cache", GKE_AI_INTERPRETER=named)
    assert done.stderr.endswith("set up by 3.12.1\n")
