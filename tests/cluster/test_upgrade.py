"""Only here: the engine's plan for the recorded state of earlier versions: nothing is replaced or deleted.

The recorded state of each system (tests/data/recorded) is previewed with the configuration that it had then, by today's
program. See docs/upgrading.md.
"""

import pytest
import yaml

from tests.support.emulator import Emulator
from tests.support.recorded import FOLDER, systems, versions

CHANGES: dict[str, dict[str, dict[str, list[str]]]] = yaml.safe_load((FOLDER / "upgrades.yaml").read_text())
HARMLESS = {"create", "update"}


# The environment of a newcomer, from every version, and the system that an upgrade touches most.
EACH_TIME = {*((version, "dev") for version in versions()), ("0.2.0", "jetstream-autoscaling")}


@pytest.mark.parametrize(
    ("version", "system"),
    [
        pytest.param(version, system, marks=[] if (version, system) in EACH_TIME else pytest.mark.nightly)
        for version in versions()
        for system in systems(version)
    ],
)
def test_upgrade_replaces_nothing_and_has_only_the_expected_changes(
    version: str, system: str, emulator: Emulator
) -> None:
    emulator.run("python", "-m", "tests.support.recorded_stack", version, system, emulator.stack)
    plan = {operation: sorted(names) for operation, names in emulator.planned().items()}
    lost = {operation: names for operation, names in plan.items() if operation not in HARMLESS}
    assert not lost, "this version would replace or delete what an earlier one made: give it an alias, or keep its name"
    assert plan == CHANGES.get(version, {}).get(system, {})


def test_server_without_an_engine_gets_the_new_default_in_place(emulator: Emulator) -> None:
    """The server ran TGI. Its Deployment and Service keep their identity, although their component has another type."""
    emulator.run("python", "-m", "tests.support.recorded_stack", "0.2.0", "dev", emulator.stack, "--unprepared")
    recorded = [resource["type"] for resource in emulator.exported()["resources"]]
    assert "gke-ai:index:TgiServer" in recorded
    plan = {operation: sorted(names) for operation, names in emulator.planned().items()}
    assert plan == CHANGES["0.2.0"]["dev"]


def test_every_version_has_records_of_every_kind_of_system() -> None:
    for version in versions():
        assert {name.partition("-")[0] for name in systems(version)} >= {
            *("dev", "prod", "cost", "flex", "multislice", "jetstream")
        }
