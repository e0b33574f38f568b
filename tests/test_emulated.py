"""Copies of configurations: what would be ignored, lost or written where it doesn't belong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from emulator import cluster, existing, paths, stack
from emulator.gcp_plugin.secrets import make_secret
from emulator.gcp_plugin.store import Record, Store
from ops.stack import Stack, Stop


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CONFIG", tmp_path / "config")
    monkeypatch.setattr(cluster, "names", list)


def write(path: Path, **config: object) -> Path:
    """A configuration file."""
    path.write_text(yaml.safe_dump({"config": config}))
    return path


def copied(name: str) -> dict[str, object]:
    """The configuration in the copy of a stack."""
    content: dict[str, object] = yaml.safe_load((paths.CONFIG / f"Pulumi.{name}.yaml").read_text())["config"]
    return content


def test_edited_configuration_is_read_again_without_naming_it_again(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.yaml", size=1)
    stack.prepare("mine", source)
    write(source, size=2)
    stack.prepare("mine", None)
    assert copied("mine")["size"] == 2


def test_source_is_never_written_to(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.yaml", size=1)
    before = source.read_text()
    made = stack.prepare("mine", source)
    assert made.config_file
    assert made.config_file != source
    assert source.read_text() == before


def test_secret_of_the_copy_outlives_the_next_copy(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.yaml", size=1)
    made = stack.prepare("mine", source)
    assert made.config_file
    content = yaml.safe_load(made.config_file.read_text())
    content["encryptionsalt"] = "v1:salt"
    content["config"]["gke-ai:hfToken"] = {"secure": "v1:cipher"}
    made.config_file.write_text(yaml.safe_dump(content))
    stack.prepare("mine", None)
    assert copied("mine")["gke-ai:hfToken"] == {"secure": "v1:cipher"}
    assert yaml.safe_load(made.config_file.read_text())["encryptionsalt"] == "v1:salt"


def test_project_of_the_configuration_goes_before_that_of_the_emulator(tmp_path: Path) -> None:
    stack.prepare("mine", write(tmp_path / "mine.yaml", **{"gcp:project": "acme"}))
    assert copied("mine")["gcp:project"] == "acme"
    stack.prepare("other", write(tmp_path / "other.yaml", size=1))
    assert copied("other")["gcp:project"] == existing.DEFAULTS["gcp:project"]


def test_missing_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="There is no configuration"):
        stack.prepare("mine", tmp_path / "nowhere.yaml")


EXISTING = {"name": "team", "mode": "existing", "location": "us-east5"}


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({"gke-ai:cluster": EXISTING}, "emulator/run existing create team --mode standard --location us-east5"),
        (
            {"gke-ai:cluster": {**EXISTING, "existingMode": "autopilot"}, "gcp:project": "acme"},
            "emulator/run existing create team --mode autopilot --location us-east5 --project acme",
        ),
        ({"gke-ai:cluster": {**EXISTING, "mode": "standard"}}, None),
        ({"gke-ai:cluster": {"mode": "existing"}}, None),
        ({"gke-ai:cluster": "team"}, None),
        (
            {"gke-ai:cluster": EXISTING, "gke-ai:hfTokenSecret": "hf"},
            "emulator/run existing create team --mode standard --location us-east5 --secret-sync",
        ),
        (
            {"gke-ai:cluster": EXISTING, "gke-ai:tenants": [{"name": "research"}]},
            "emulator/run existing create team --mode standard --location us-east5 --dataplane-v2",
        ),
        ({}, None),
    ],
)
def test_cluster_that_a_configuration_counts_on_is_made_by_one_command(
    config: dict[str, object], command: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path))
    assert (existing.missing(config) or ("", None))[1] == command
    for place in ("us-east5", "us-west4"):  # one of the same name elsewhere is another cluster
        assert existing.missing({**config, "gke-ai:cluster": {**EXISTING, "location": place}})
    if command:
        project = str(config.get("gcp:project", existing.DEFAULTS["gcp:project"]))
        identity = f"projects/{project}/locations/us-east5/clusters/team"
        Store(tmp_path).put(Record(identity, "gcp:container/cluster:Cluster", project, {}))
        make_secret(Store(tmp_path), project, "hf")
        assert existing.missing(config) is None


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("hf", "emulator/run existing secret hf"),
        ("projects/acme/secrets/hf_2", "emulator/run existing secret hf_2 --project acme"),
        ("projects/{project}/secrets/hf", "emulator/run existing secret hf"),
        ("no/such/form", None),
        (None, None),
    ],
)
def test_secret_that_a_configuration_counts_on_is_made_by_one_command(
    named: str | None, command: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path))
    config = {"gke-ai:hfTokenSecret": named} if named else {}
    assert (existing.missing(config) or ("", None))[1] == command
    if command:
        monkeypatch.setattr("sys.argv", command.split()[1:])
        existing.main()
        assert existing.missing(config) is None
        monkeypatch.setattr("sys.argv", command.replace(" secret ", " forget ").split()[1:])
        existing.main()
        assert existing.missing(config)


@pytest.mark.parametrize("command", [stack.up, stack.preview])
def test_missing_existing_cluster_stops_before_pulumi_is_run(
    command: Callable[[Stack], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path / "cloud"))
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: pytest.fail("Pulumi was run"))
    made = stack.prepare("mine", write(tmp_path / "mine.yaml", **{"gke-ai:cluster": EXISTING}))
    with pytest.raises(Stop, match="emulator/run existing create team --mode standard --location us-east5\n"):
        command(made)
