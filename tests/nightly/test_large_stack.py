"""Only here: a preview of a stack that is too large for one configuration of Pulumi, in files of its teams."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.section_files import oversize
from gke_ai.workspace.configuration_file import read_sections
from tests.support.emulator import Emulator
from tests.support.scale import sections

EMPTY = "tests/data/empty.yaml"


def test_100_pools_50_queues_and_800_servers_and_runs_are_previewed(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path / "state")
    stack = sections(50, each=8)
    emulator.state.mkdir()
    named: dict[str, Any] = {}
    for key in ("serving", "training", "batch"):
        teams = defaultdict(list)
        for entry in stack[key]:
            teams[f"{entry['namespace']}/{key}.yaml"].append(entry)
        for name, entries in teams.items():
            (emulator.state / name).parent.mkdir(exist_ok=True)
            (emulator.state / name).write_text(yaml.safe_dump(entries))
        named[key] = {"files": [*teams]}
    for key in ("queues", "gpuPools", "tpuPools"):
        (emulator.state / f"{key}.yaml").write_text(yaml.safe_dump(stack[key]))
        named[key] = {"file": f"{key}.yaml"}
    file = emulator.configure(EMPTY, **{**stack, **named})
    sizes = {key: len(value) for key, value in read_sections(file).items() if isinstance(value, list)}
    assert sizes["gke-ai:gpuPools"] + sizes["gke-ai:tpuPools"] == 100
    assert sizes["gke-ai:serving"] + sizes["gke-ai:training"] == 800
    ((_, cause, _),) = oversize(stack)
    assert "bytes" in cause
    found = re.search(r"\+ (\d+) to create", emulator.make("preview", file))
    assert found
    assert int(found[1]) > 3000
