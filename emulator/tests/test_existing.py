"""Resources that a configuration expects to exist are reported with the command that creates them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from emulator import cluster
from emulator.cloud.store import Record, Store
from emulator.commands import existing, ready
from emulator.google.iam import require_account
from emulator.google.secrets import create_secret

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
        (
            {"gke-ai:cluster": EXISTING, "gke-ai:gateway": {"routes": []}},
            "emulator/run existing create team --mode standard --location us-east5 --gateway-api",
        ),
        ({}, None),
    ],
)
def test_missing_cluster_is_reported_with_the_command_that_creates_it(
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
        create_secret(Store(tmp_path), project, "hf")
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
def test_missing_secret_is_reported_with_the_command_that_creates_it(
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


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ("nodes@acme-project.iam.gserviceaccount.com", True),
        ("gke-nodes", False),  # the stack creates it
        ("123456789012-compute@developer.gserviceaccount.com", False),  # every project has it
        (None, False),
    ],
)
def test_a_missing_service_account_is_reported_with_the_command_that_creates_it(
    account: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path))
    config = {"gke-ai:cluster": {"name": "c", "nodeServiceAccount": account}}
    command = f"emulator/run existing account {account}" if expected else None
    assert (existing.missing(config) or ("", None))[1] == command
    if command:
        monkeypatch.setattr("sys.argv", command.split()[1:])
        existing.main()
        assert existing.missing(config) is None
        require_account(Store(tmp_path), str(account))


def test_an_account_that_is_no_email_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path))
    monkeypatch.setattr("sys.argv", ["existing", "account", "nodes"])
    with pytest.raises(SystemExit, match="nodes is not the e-mail address of a service account"):
        existing.main()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters that are started, of an emulator that has two."""
    names: list[str] = []
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path / "cloud"))
    monkeypatch.setattr(cluster, "names", lambda: ["one", "two"])
    monkeypatch.setattr(cluster, "start", names.append)
    return names


def run_ready(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`emulator/run ready FILE`."""
    monkeypatch.setattr("sys.argv", ["ready", str(file)])
    ready.main()


def test_ready_starts_the_clusters_and_prints_defaults_and_what_is_missing(
    started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"config": {"gke-ai:cluster": EXISTING}}))
    run_ready(file, monkeypatch)
    assert started == ["one", "two"]
    answer = json.loads(capsys.readouterr().out)
    assert answer["defaults"].keys() == {"gcp:project", "gcp:region"}
    command = "emulator/run existing create team --mode standard --location us-east5"
    assert answer["missing"]["command"] == command
    assert "the emulator has no such cluster" in answer["missing"]["what"]

    file.write_text("")
    run_ready(file, monkeypatch)
    assert json.loads(capsys.readouterr().out)["missing"] is None


@pytest.mark.usefixtures("started")
def test_ready_names_the_file_that_is_not_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("config: [")
    with pytest.raises(SystemExit, match=r"mine\.yaml is not valid YAML"):
        run_ready(file, monkeypatch)
