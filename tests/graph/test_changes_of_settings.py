"""Each optional setting of clusters and pools, turned on and off again: what an `up` does to each resource.

The program runs as a whole on both configurations. The emulated gcp plugin, which decides by the measured table of the
provider, compares what they register.
"""

import contextlib
import copy
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from gke_ai.settings import model
from tests.support import planning, recorded
from tests.support.mistakes import drop, put
from tests.support.planning import operations
from tests.support.recorder import ROOT, Record, run_program

Config = dict[str, Any]
Plan = dict[str, str]

TABLE: dict[str, Any] = yaml.load((ROOT / "tests/data/changes_of_settings.yaml").read_text(), yaml.CSafeLoader)


def row(entry: dict[str, Any]) -> tuple[Config, Config, Plan, Plan]:
    """A configuration in which a setting is off, another in which it is on, and what either step does."""
    base = changed(TABLE["bases"][entry.get("base", "standard")], entry.get("with", {}))
    on = plan(**entry["turned_on"])
    return base, changed(base, entry["put"]), on, plan(**entry["turned_off"]) if "turned_off" in entry else on


def plan(**operations: str | list[str]) -> Plan:
    """What happens to each resource, by the names that have an operation."""
    named = {operation: [names] if isinstance(names, str) else names for operation, names in operations.items()}
    return {name: operation for operation, names in named.items() for name in names}


def changed(config: Config, change: Config) -> Config:
    """The configuration with the keys at these paths set; None removes one that is there."""
    result = copy.deepcopy(config)
    for path, value in change.items():
        with contextlib.suppress(KeyError):
            (drop(path) if value is None else put(path, value))(result)
    return result


RECORDS: dict[str, Record] = {}
"""What each configuration registers: most rows have the same base."""
CASES = [
    *(pytest.param(*row(entry), id=f"{key}: {entry['put']}") for key, rows in TABLE["keys"].items() for entry in rows),
    *(pytest.param(*row(entry), id=name) for name, entry in TABLE["further"].items()),
]


@pytest.mark.parametrize(("off", "on", "turned_on", "turned_off"), CASES)
def test_a_setting_is_turned_on_and_off_as_the_provider_plans_it(
    off: Config, on: Config, turned_on: Plan, turned_off: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An existing cluster has what the stack expects.
    monkeypatch.setattr("gke_ai.program.cluster.check_content", lambda *_: None)

    def run(config: Config) -> Record:
        text = json.dumps(config)
        if text not in RECORDS:
            keys = {f"gke-ai:{key}": value for key, value in config.items()}
            RECORDS[text] = run_program(keys, False, monkeypatch)
        return RECORDS[text]

    without, having = run(off), run(on)
    assert operations(planning.known(without), having, tmp_path / "on") == turned_on
    assert operations(planning.known(having), without, tmp_path / "off") == turned_off


def optional_keys(section: type[BaseModel], path: str) -> Iterator[str]:
    """Every key under a section that may be left out."""
    for name, info in section.model_fields.items():
        key = f"{path}.{info.alias or name}"
        if not info.is_required():
            yield key
        for part in (info.annotation, *typing.get_args(info.annotation)):
            for nested in (part, *typing.get_args(part)):
                if isinstance(nested, type) and issubclass(nested, BaseModel):
                    yield from optional_keys(nested, key)


def test_every_optional_key_of_clusters_and_pools_is_in_the_table() -> None:
    sections = (("cluster", model.Cluster), ("gpuPools", model.GpuPool), ("tpuPools", model.TpuPool))
    keys = {key for path, section in sections for key in optional_keys(section, path)}
    assert "gpuPools.capacity.maxRunDurationSeconds" in keys, "sections within sections count"
    assert keys == TABLE["keys"].keys()


# --- upgrades -----------------------------------------------------------------------------------------------------
# As docs/upgrading.md lists them: newly stated off forms, and the label of pools, all in place.
UPGRADES = {"dev": "Cluster ai-dev", "prod": "Cluster ai-prod", "multislice-training": "Cluster multislice-cluster"}


@pytest.mark.parametrize("system", recorded.systems("0.2.0"))
def test_an_upgrade_replaces_no_cluster_and_no_pool(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, resources = recorded.read("0.2.0", system, "test")
    state = {
        (old["type"], old["urn"].split("::", 3)[3]): planning.Known(old.get("inputs", {}), old.get("outputs", {}))
        for old in resources
        # A member is named by the project's number, which this recorder makes up.
        if not old["type"].endswith("IAMMember")
    }
    after = run_program({"gcp:project": "stand-in-project", **config}, False, monkeypatch)
    planned = {name: plan for name, plan in operations(state, after, tmp_path).items() if "IAMMember" not in name}
    # Each pool gets its label.
    pools = {"gke-ai:index:GpuNodePool", "gke-ai:index:TpuNodePool", "gke-ai:index:FlexStartTpuPool"}
    labeled = [f"NodePool {pool.name}" for pool in after.resources.values() if pool.type in pools]
    assert planned == plan(update=[*labeled, *([UPGRADES[system]] if system in UPGRADES else [])])
