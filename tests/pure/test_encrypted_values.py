"""A value that Pulumi encrypted is refused wherever the program would write it in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest

from gke_ai import settings
from gke_ai.settings.secrets import SECRETS
from tests.support.recorder import PROJECT, configuration, run_program

CANARY = "hf_canary-of-a-leaf"
EXAMPLE = "examples/mixed-training-inference.yaml"


def leaves(value: Any, *steps: str | int) -> Iterator[tuple[str | int, ...]]:
    """Places of all values that are no objects and no lists."""
    if isinstance(value, Mapping | list):
        for step, inside in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(inside, *steps, step)
    else:
        yield steps


def with_leaf(config: Mapping[str, Any], steps: tuple[str | int, ...], leaf: Any) -> dict[str, Any]:
    """A copy of the configuration with another value at a place."""
    changed: dict[str, Any] = deepcopy(dict(config))
    at: Any = changed
    for step in steps[:-1]:
        at = at[step]
    at[steps[-1]] = leaf
    return changed


def written(steps: tuple[str | int, ...]) -> str:
    """A place as a path in the configuration."""
    return "gke-ai:" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[1:]


def test_each_encrypted_leaf_is_refused_at_its_path_and_nothing_else_is() -> None:
    config = {key.removeprefix("gke-ai:"): value for key, value in configuration(EXAMPLE).items() if "gke-ai:" in key}
    config["serving"][0]["env"] = {"API_TOKEN": "x"}
    known = {secret.key for secret in SECRETS}
    places = [steps for key, value in config.items() if key not in known for steps in leaves(value, key)]
    assert ("serving", 0, "env", "API_TOKEN") in places
    for steps in places:
        with pytest.raises(settings.BadConfiguration) as refused:
            settings.load(with_leaf(config, steps, {"secure": CANARY}), PROJECT)
        at = [problem.path for problem in refused.value.problems if "encrypted value" in problem.cause]
        assert at == [written(steps)]
        assert CANARY not in str(refused.value)


def test_program_refuses_a_key_with_a_value_that_pulumi_has_decrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(EXAMPLE)
    config["gke-ai:serving"][0]["env"] = {"API_TOKEN": CANARY, "misspelt": [CANARY]}
    with pytest.raises(Exception, match=r"gke-ai:serving: this has an encrypted value.*config rm --path") as refused:
        run_program(config, True, monkeypatch, secret_keys=("gke-ai:serving", "gke-ai:hfToken"))
    assert CANARY not in str(refused.value)


def test_no_rule_of_another_section_quotes_a_decrypted_value(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(EXAMPLE)
    config["gke-ai:queues"]["localQueues"][0]["clusterQueue"] = CANARY
    config["gke-ai:serving"][0]["queue"] = "no-such-queue"
    with pytest.raises(Exception, match=r"gke-ai:queues: this has an encrypted value") as refused:
        run_program(config, True, monkeypatch, secret_keys=("gke-ai:queues",))
    assert CANARY not in str(refused.value)
