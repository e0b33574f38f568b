"""Only here: after previews and an `up`, no file of the emulator, state or log has the token in plain text."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.end_to_end.emulator import Emulator
from tests.end_to_end.test_convergence import EXAMPLE

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("given", ["secret", "variable"])
def test_token_is_in_no_state_preview_log_or_output(given: str, emulator_with: Callable[..., Emulator]) -> None:
    canary = "hf_canary-in-the-coal-mine"
    emulator = emulator_with(**({"EMULATOR_HF_TOKEN": canary} if given == "variable" else {}))
    config = emulator.configure(EXAMPLE)
    outputs = [emulator.make("preview", config)]
    if given == "secret":
        emulator.pulumi("config", "set", "--secret", "gke-ai:hfToken", canary)
    outputs += [emulator.make("preview"), emulator.pulumi("preview", "--json"), emulator.make("up")]
    secret = emulator.get("secrets", "-n", "llm", "--field-selector=metadata.name=hf-secret")
    assert secret[0]["data"]["hf_api_token"], "the server has its token"
    outputs += [json.dumps(emulator.outputs()), json.dumps(emulator.exported()), emulator.make("status")]
    for number, text in enumerate(outputs):
        assert canary not in text, f"output {number} holds the token"
    cluster = emulator.outputs()["clusterName"]
    for file in (path for path in emulator.state.rglob("*") if path.is_file()):
        kept_by_kubernetes = (emulator.state / "clusters" / cluster) in file.parents and "etcd" in str(file)
        assert kept_by_kubernetes or canary.encode() not in file.read_bytes(), f"{file.name} holds the token"
