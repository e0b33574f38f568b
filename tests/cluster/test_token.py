"""Only here: after previews and an `up`, no file of the emulator, state or log has the token in plain text."""

import base64
import json
from collections.abc import Iterator

import pytest

from tests.support.emulator import Emulator, fresh
from tests.support.examples import EXAMPLE

VARIABLE, SECRET = "hf_canary-in-the-coal-mine", "hf_canary-in-the-configuration"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """An emulator with the token in its environment. The tests below use it in order."""
    with fresh(EMULATOR_HF_TOKEN=VARIABLE) as started:
        # The files of its control plane are searched too, so it has no spare one outside its state.
        (started.state / "spare").unlink()
        yield started


@pytest.mark.parametrize(
    "token", [pytest.param(VARIABLE, marks=pytest.mark.nightly), SECRET], ids=["variable", "secret"]
)
def test_token_is_in_no_state_preview_log_or_output(token: str, emulator: Emulator) -> None:
    config = emulator.configure(EXAMPLE)
    if token == SECRET:
        emulator.make("preview", config)  # creates the stack
        emulator.pulumi("config", "set", "--secret", "gke-ai:hfToken", token)
    outputs = [emulator.make("preview", config), emulator.pulumi("preview", "--json"), emulator.make("up")]
    (secret,) = emulator.get("secrets", "-n", "llm", "--field-selector=metadata.name=hf-secret")
    assert base64.b64decode(secret["data"]["hf_api_token"]).decode() == token, "the server has its token"
    outputs += [json.dumps(emulator.outputs()), json.dumps(emulator.exported()), emulator.make("status")]
    cluster = emulator.outputs()["clusterName"]
    for canary in (VARIABLE, SECRET):
        for number, text in enumerate(outputs):
            assert canary not in text, f"output {number} holds the token"
        for file in (path for path in emulator.state.rglob("*") if path.is_file()):
            kept_by_kubernetes = (emulator.state / "clusters" / cluster) in file.parents and "etcd" in str(file)
            assert kept_by_kubernetes or canary.encode() not in file.read_bytes(), f"{file.name} holds the token"
