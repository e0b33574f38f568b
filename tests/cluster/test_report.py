"""Only here: the page for reviewers from live previews: the same twice, without a secret, and of a change."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.emulator import Emulator
from tests.support.examples import EXAMPLE, section

CANARY = "hf_canary_of_the_report"


def page(emulator: Emulator, config: Path) -> str:
    """The page that `make report` writes. No policy stops these stacks."""
    emulator.make("report", config)
    return (emulator.state / "reports" / "test.md").read_text()


def cluster_with(emulator: Emulator, pool: dict[str, Any]) -> Path:
    """The configuration of a cluster with a pool, and nothing in it."""
    path = emulator.state / "pool.yaml"
    path.write_text(yaml.safe_dump({"config": {"gke-ai:cluster": section("cluster"), "gke-ai:gpuPools": [pool]}}))
    return path


def test_report_is_the_same_twice_and_contains_no_secret(emulator: Emulator) -> None:
    whole = Emulator(emulator.state, extra=(("EMULATOR_HF_TOKEN", CANARY),))
    config = whole.configure(EXAMPLE)
    first = page(whole, config)
    assert "| + Secret | `llm/hf-secret` |" in first
    assert "| onDemand | `nvidia-l4` | 0 | **6** |" in first
    assert "advisory" in first  # the policy pack was asked
    assert CANARY not in first
    assert page(whole, config) == first

    (pool,) = section("gpuPools")
    emulator.make("up", cluster_with(emulator, pool))
    text = page(emulator, cluster_with(emulator, {**pool, "machineType": "g2-standard-48", "gpusPerNode": 4}))
    assert "**1 replaced**" in text
    assert "Node pool gpupool is replaced" in text
    assert "| `nodeConfig.machineType` | `g2-standard-24` | `g2-standard-48` |" in text.replace(" **replaces it**", "")
    assert "| onDemand | `nvidia-l4` | 6 | **12** |" in text
