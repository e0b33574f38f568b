"""The emulator's stub of vLLM does what a real vLLM was recorded to do, field by field, but for listed differences."""

import fnmatch
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from emulator.machine.processes import free_ports
from gke_ai.catalog.engines import vllm
from maintain.real_vllm import environment
from maintain.real_vllm.asking import Process
from maintain.real_vllm.observing import observed, running
from maintain.real_vllm.served import FILE, WITH_FLAG, WITHOUT_FLAG, Served, command, recorded, servers

pytestmark = pytest.mark.slow

# Where the stub differs from a real vLLM, with the reason of each. A `*` stands for any part of a path.
_NULL = "Fields of vLLM beside those of OpenAI's API: null unless a request asks for them, and nothing here reads them."
_NAMES = (
    *("stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs", "prompt_text", "routed_experts"),
    *("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics", "prompt_tokens_details"),
    *("completion_tokens_details", "refusal", "annotations", "audio", "function_call", "reasoning"),
)
DIFFERENCES: dict[str, str] = {
    **{f"*/{name}": _NULL for name in _NAMES},
    "*/system_fingerprint": "The release of vLLM, which the stub is not.",
    "answers/the models/body/data/0/root": "The path of the model, which the stub does not have.",
    "answers/the models/body/data/0/parent": "The model of an adapter, which the stub does not have.",
    "answers/the models/body/data/0/permission*": "Constants that nothing here reads.",
    "answers/the metrics/type": "All stubs send the format 0.0.4, which the same readers read.",
    "burst/metrics/vllm:cache_config_info/labels/*": "The stub has the labels that the endpoint picker reads.",
}


def fields(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The fields of nested data by path. Names in a list are fields too."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = [(item if isinstance(item, str) else number, item) for number, item in enumerate(value)]
    if not items:
        yield path, value
    for key, item in items:
        yield from fields(item, f"{path}/{key}" if path else str(key))


@pytest.fixture(scope="module")
def registered() -> dict[str, Served]:
    ports = free_ports(2)
    # Long enough for a slow machine to ask in the meantime, and shorter than the longest answer of the stub.
    return servers({WITH_FLAG: ports[0], WITHOUT_FLAG: ports[1]}, 10)


@pytest.fixture(scope="module")
def stub(registered: dict[str, Served], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("stub")

    def start(server: Served) -> AbstractContextManager[Process]:
        return running(server.stub_command(folder), server.environment, folder / "log")

    return dict(observed(registered, start, 5.0, recorded()["observed"]["routes"]))


def test_the_stub_differs_from_the_recorded_vllm_only_where_the_list_says(stub: dict[str, Any]) -> None:
    subjects = recorded()["observed"]
    real, same = dict(fields(subjects)), dict(fields({name: stub[name] for name in subjects}))
    assert len(real) > 200
    differing = {path for path in real.keys() | same.keys() if real.get(path, "–") != same.get(path, "–")}
    unlisted = {path for path in differing if not any(fnmatch.fnmatch(path, pattern) for pattern in DIFFERENCES)}
    assert {path: (real.get(path, "–"), same.get(path, "–")) for path in sorted(unlisted)} == {}
    assert [pattern for pattern in DIFFERENCES if not fnmatch.filter(differing, pattern)] == [], "no longer different"


def test_the_recording_is_of_the_pinned_release() -> None:
    assert recorded()["made with"][environment.PACKAGE] == vllm.RELEASE, f"run `make test-vllm`, which writes {FILE}"
    assert environment.versions()[environment.PACKAGE] == vllm.RELEASE, "run `python -m maintain.real_vllm.lock`"


def test_the_recording_was_made_with_what_the_program_registers(registered: dict[str, Served]) -> None:
    assert recorded()["commands"] == {name: command(server) for name, server in registered.items()}
