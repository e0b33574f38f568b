"""The commands on one stack of the emulator: copies of configurations, and calls of the emulator's commands."""

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from emulator.cloud.store import Store
from emulator.commands import existing, ready
from gke_ai.terminal import Stop
from gke_ai.workspace import emulated
from gke_ai.workspace.stack import Stack
from tests.support import previews
from tests.support.commands import gke_ai
from tests.support.repository import ROOT

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: Patch) -> list[str]:
    """Records the calls of the emulator's commands, and answers as an emulator without resources."""
    commands: list[str] = []

    def answer(verb: str, file: str) -> str:
        commands.append(verb)
        assert verb == "ready"
        return json.dumps(ready.answer(yaml.safe_load(Path(file).read_text())["config"]))

    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path))
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path / "cloud"))
    monkeypatch.setattr(emulated, "emulator", answer)
    return commands


def write(path: Path, **config: object) -> Path:
    """A configuration file."""
    path.write_text(yaml.safe_dump({"config": config}))
    return path


def copied(name: str) -> dict[str, object]:
    """The configuration in the copy of a stack."""
    content: dict[str, object] = yaml.safe_load((emulated.copies() / f"Pulumi.{name}.yaml").read_text())["config"]
    return content


def test_edited_configuration_is_read_again_without_naming_it_again_and_never_written_to(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.yaml", size=1)
    before = source.read_text()
    stack = emulated.prepare("mine", source)
    assert stack.config_file
    assert stack.config_file != source
    assert source.read_text() == before
    write(source, size=2)
    emulated.prepare("mine", None)
    assert copied("mine")["size"] == 2
    with pytest.raises(Stop, match="There is no configuration"):
        emulated.prepare("other", tmp_path / "nowhere.yaml")


def test_secret_of_the_copy_outlives_the_next_copy(tmp_path: Path) -> None:
    stack = emulated.prepare("mine", write(tmp_path / "mine.yaml", size=1))
    assert stack.config_file
    content = yaml.safe_load(stack.config_file.read_text())
    content["encryptionsalt"] = "v1:salt"
    content["config"]["gke-ai:hfToken"] = {"secure": "v1:cipher"}
    stack.config_file.write_text(yaml.safe_dump(content))
    emulated.prepare("mine", None)
    assert copied("mine")["gke-ai:hfToken"] == {"secure": "v1:cipher"}
    assert yaml.safe_load(stack.config_file.read_text())["encryptionsalt"] == "v1:salt"


def test_secrets_and_keys_of_the_users_own_provider_stay_out_of_the_copy(tmp_path: Path) -> None:
    """The emulator can't decrypt them. It has dummy values."""
    source = tmp_path / "mine.yaml"
    config = {"gke-ai:hfToken": {"secure": "v1:cipher"}, "gcp:project": "acme"}
    keys = {"encryptionsalt": "v1:salt", "secretsprovider": "gcpkms://key", "encryptedkey": "cipher"}
    source.write_text(yaml.safe_dump({**keys, "config": config}))
    stack = emulated.prepare("mine", source)
    assert stack.config_file
    assert yaml.safe_load(stack.config_file.read_text()) == {"config": {**existing.DEFAULTS, "gcp:project": "acme"}}


def test_project_of_the_configuration_precedes_that_of_the_emulator(tmp_path: Path) -> None:
    emulated.prepare("mine", write(tmp_path / "mine.yaml", **{"gcp:project": "acme"}))
    assert copied("mine")["gcp:project"] == "acme"
    emulated.prepare("other", write(tmp_path / "other.yaml", size=1))
    assert copied("other")["gcp:project"] == existing.DEFAULTS["gcp:project"]


# Another command on the same stack, which goes on until it is killed.
DEPLOYS = """
import json, sys, time
from contextlib import contextmanager
from pathlib import Path
from emulator.commands import existing
from gke_ai.workspace import emulated
emulated.emulator = lambda *_: json.dumps({"defaults": existing.DEFAULTS, "missing": None})
emulated.prepare("mine", Path(sys.argv[1]), deploying=True)
print("deploys", flush=True)
time.sleep(600)
"""


@contextmanager
def deploying(source: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that deploys the stack `mine` with this configuration."""
    command = [sys.executable, "-c", DEPLOYS, str(source)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        try:
            assert other.stdout.readline() == "deploys\n"
            yield other
        finally:
            other.kill()


def test_an_up_refuses_a_second_one_and_its_configuration(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one.yaml", size=1), write(tmp_path / "two.yaml", size=2)
    with deploying(first) as other:
        with pytest.raises(Stop, match=r"two\.yaml is not the configuration with which another command deploys"):
            emulated.prepare("mine", second, deploying=True)
        emulated.prepare("mine", second)  # such as a status, which reads the state alone
        assert copied("mine")["size"] == 1
        emulated.prepare("mine", first, deploying=True)
        emulated.prepare("mine", None, deploying=True)
        other.kill()
        other.wait()
        emulated.prepare("mine", second, deploying=True)
    assert copied("mine")["size"] == 2


def test_an_up_with_another_file_of_a_section_is_refused_while_one_deploys(tmp_path: Path) -> None:
    (tmp_path / "buckets.yaml").write_text("[]\n")
    source = write(tmp_path / "one.yaml", **{"gke-ai:buckets": {"file": "buckets.yaml"}})
    with deploying(source):
        emulated.prepare("mine", source, deploying=True)
        (tmp_path / "buckets.yaml").write_text("[{name: other}]\n")
        with pytest.raises(Stop, match="is not the configuration with which another command deploys"):
            emulated.prepare("mine", source, deploying=True)


def test_a_copy_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: Patch) -> None:
    """On a full disk: it has the secrets that Pulumi encrypted."""
    source = write(tmp_path / "mine.yaml", size=1)
    emulated.prepare("mine", source)
    write_text = Path.write_text

    def full(path: Path, text: str, *_: object) -> int:
        write_text(path, text[: len(text) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left on device"):
        emulated.prepare("mine", source)
    assert copied("mine")["size"] == 1


def test_broken_configuration_stops_a_deployment_alone(tmp_path: Path, capsys: Capture) -> None:
    broken, source = "config: {a: [1", write(tmp_path / "mine.yaml", size=1)
    emulated.prepare("mine", source)
    copy = emulated.copies() / "Pulumi.mine.yaml"
    copy.write_text(broken)
    emulated.prepare("mine", None)
    assert copied("mine")["size"] == 1
    assert "is damaged and is written again" in capsys.readouterr().err
    source.write_text(broken)
    with pytest.raises(Stop, match=r"mine\.yaml is not valid YAML"):
        emulated.prepare("mine", None, deploying=True)
    emulated.prepare("mine", None)
    assert copied("mine")["size"] == 1
    assert "uses the configuration of the one before" in capsys.readouterr().err
    copy.write_text(broken)
    with pytest.raises(Stop, match=r"mine\.yaml is not valid YAML"):
        emulated.prepare("mine", None)


EXISTING = {"gke-ai:cluster": {"name": "team", "mode": "existing", "location": "us-east5"}}


@pytest.mark.parametrize("command", ["up", "preview", "policies", "preview-json", "report"])
def test_missing_existing_cluster_stops_before_pulumi(
    command: str, asked: list[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: pytest.fail("Pulumi was run"))
    with pytest.raises(Stop, match="emulator/run existing create team --mode standard --location us-east5\n"):
        gke_ai(command, "--config", write(tmp_path / "mine.yaml", **EXISTING))
    assert asked == ["ready"]


def test_stack_without_its_existing_cluster_can_be_deleted(
    asked: list[str], tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: subprocess.CompletedProcess((), 1))
    gke_ai("down", "--config", write(tmp_path / "mine.yaml", **EXISTING))
    assert "There is no stack mine" in capsys.readouterr().out
    assert asked == ["ready"]


def test_a_saved_preview_is_read_without_its_stack(asked: list[str], monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: pytest.fail("Pulumi was run"))
    assert gke_ai("report", "--stack", "nowhere", "--from", previews.CHANGE) == 1  # its policies are mandatory
    assert capsys.readouterr().out.startswith("# Preview of")
    assert asked == []
