"""Resources that a configuration expects to exist are reported with the command that creates them."""

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
AUTOPILOT = EXISTING | {"existingMode": "autopilot"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The emulator's resources."""
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path))
    return Store(tmp_path)


def run(*words: str) -> None:
    """Runs a command of the emulator: `existing` or `ready`, with its arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", list(words))
        {"existing": existing, "ready": ready}[words[0]].main()


CREATE = "emulator/run existing create team --mode"


@pytest.mark.parametrize(
    ("cluster", "more", "command"),
    [
        (EXISTING, {}, f"{CREATE} standard --location us-east5"),
        (AUTOPILOT, {"gcp:project": "acme"}, f"{CREATE} autopilot --location us-east5 --project acme"),
        (EXISTING, {"gke-ai:hfTokenSecret": "hf"}, f"{CREATE} standard --location us-east5 --secret-sync"),
        (EXISTING, {"gke-ai:tenants": [{"name": "r"}]}, f"{CREATE} standard --location us-east5 --dataplane-v2"),
        (EXISTING, {"gke-ai:gateway": {"routes": []}}, f"{CREATE} standard --location us-east5 --gateway-api"),
        ({**EXISTING, "mode": "standard"}, {}, None),
        ({"mode": "existing"}, {}, None),
        ("team", {}, None),
        (None, {}, None),
    ],
)
def test_missing_cluster_is_reported_with_the_command_that_creates_it(
    cluster: object, more: dict[str, object], command: str | None, store: Store
) -> None:
    config = more | ({"gke-ai:cluster": cluster} if cluster else {})
    assert (existing.missing(config) or ("", None))[1] == command
    for place in ("us-east5", "us-west4"):  # one of the same name elsewhere is another cluster
        assert existing.missing({**config, "gke-ai:cluster": {**EXISTING, "location": place}})
    if command:
        project = str(config.get("gcp:project", existing.DEFAULTS["gcp:project"]))
        identity = f"projects/{project}/locations/us-east5/clusters/team"
        store.put(Record(identity, "gcp:container/cluster:Cluster", project, {}))
        create_secret(store, project, "hf")
        assert existing.missing(config) is None


@pytest.mark.parametrize(
    ("secret", "command"),
    [
        ("hf", "emulator/run existing secret hf"),
        ("projects/acme/secrets/hf_2", "emulator/run existing secret hf_2 --project acme"),
        ("projects/{project}/secrets/hf", "emulator/run existing secret hf"),
        ("no/such/form", None),
        (None, None),
    ],
)
@pytest.mark.usefixtures("store")
def test_missing_secret_is_reported_with_the_command_that_creates_it(secret: str | None, command: str | None) -> None:
    config = {"gke-ai:hfTokenSecret": secret} if secret else {}
    assert (existing.missing(config) or ("", None))[1] == command
    if command:
        run(*command.split()[1:])
        assert existing.missing(config) is None
        run(*command.replace(" secret ", " forget ").split()[1:])
        assert existing.missing(config)


@pytest.mark.parametrize(
    ("account", "is_missing"),
    [
        ("nodes@acme-project.iam.gserviceaccount.com", True),
        ("gke-nodes", False),  # the stack creates it
        ("123456789012-compute@developer.gserviceaccount.com", False),  # every project has it
        (None, False),
    ],
)
def test_a_missing_service_account_is_reported_with_the_command_that_creates_it(
    account: str | None, is_missing: bool, store: Store
) -> None:
    config = {"gke-ai:cluster": {"name": "c", "nodeServiceAccount": account}}
    command = f"emulator/run existing account {account}" if is_missing else None
    assert (existing.missing(config) or ("", None))[1] == command
    if command:
        run(*command.split()[1:])
        assert existing.missing(config) is None
        require_account(store, str(account))


@pytest.mark.usefixtures("store")
def test_an_account_that_is_no_email_address_is_refused() -> None:
    with pytest.raises(SystemExit, match="nodes is not the e-mail address of a service account"):
        run("existing", "account", "nodes")


@pytest.mark.usefixtures("store")
def test_ready_starts_the_clusters_and_prints_defaults_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(cluster, "names", lambda: ["one", "two"])
    monkeypatch.setattr(cluster, "start", started.append)
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"config": {"gke-ai:cluster": EXISTING}}))
    run("ready", str(file))
    assert started == ["one", "two"]
    answer = json.loads(capsys.readouterr().out)
    assert answer["defaults"].keys() == {"gcp:project", "gcp:region"}
    assert answer["missing"]["command"] == f"{CREATE} standard --location us-east5"
    assert "the emulator has no such cluster" in answer["missing"]["what"]
    file.write_text("")
    run("ready", str(file))
    assert json.loads(capsys.readouterr().out)["missing"] is None
    file.write_text("config: [")
    with pytest.raises(SystemExit, match=r"mine\.yaml is not valid YAML"):
        run("ready", str(file))
