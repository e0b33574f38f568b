"""A token is nowhere to be read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.end_to_end.standin import StandIn
from tests.end_to_end.test_convergence import EXAMPLE

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("given", ["secret", "variable"])
def test_token_is_in_no_state_preview_log_or_output(given: str, stand_in_with: Callable[..., StandIn]) -> None:
    canary = "hf_canary-in-the-coal-mine"
    stand_in = stand_in_with(**({"HF_TOKEN": canary} if given == "variable" else {}))
    config = stand_in.configure(EXAMPLE)
    said = [stand_in.make("preview", config)]
    if given == "secret":
        stand_in.pulumi("config", "set", "--secret", "gke-ai:hfToken", canary)
    said += [stand_in.make("preview"), stand_in.pulumi("preview", "--json"), stand_in.make("up")]
    secret = stand_in.get("secrets", "-n", "llm", "--field-selector=metadata.name=hf-secret")
    assert secret[0]["data"]["hf_api_token"], "the server has its token"
    said += [json.dumps(stand_in.outputs()), json.dumps(stand_in.exported()), stand_in.make("status")]
    for number, text in enumerate(said):
        assert canary not in text, f"output {number} holds the token"
    cluster = stand_in.outputs()["clusterName"]
    for file in (path for path in stand_in.state.rglob("*") if path.is_file()):
        kept_by_kubernetes = (stand_in.state / "clusters" / cluster) in file.parents and "etcd" in str(file)
        assert kept_by_kubernetes or canary.encode() not in file.read_bytes(), f"{file.name} holds the token"
