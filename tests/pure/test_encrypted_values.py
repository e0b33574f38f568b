"""A value that Pulumi encrypted is refused wherever the program would write it in plain text."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from gke_ai import settings
from gke_ai.settings.secrets import SECRETS
from tests.support.mistakes import places, put
from tests.support.recorder import PROJECT, configuration, run_program

CANARY = "hf_canary-of-a-leaf"
EXAMPLE = "examples/mixed-training-inference.yaml"


def is_leaf(value: Any, steps: tuple[str | int, ...]) -> bool:
    """Whether a place has no object and no list."""
    for step in steps:
        value = value[step]
    return not isinstance(value, Mapping | list)


def test_each_encrypted_leaf_is_refused_at_its_path_and_nothing_else_is() -> None:
    config = {key.removeprefix("gke-ai:"): value for key, value in configuration(EXAMPLE).items() if "gke-ai:" in key}
    config["serving"][0]["env"] = {"API_TOKEN": "x"}
    known = {secret.key for secret in SECRETS}
    leaves = [steps for steps in places(config) if steps[0] not in known and is_leaf(config, steps)]
    assert ("serving", 0, "env", "API_TOKEN") in leaves
    for steps in leaves:
        values = deepcopy(config)
        put(".".join(map(str, steps)), {"secure": CANARY})(values)
        with pytest.raises(settings.BadConfiguration) as refused:
            settings.load(values, PROJECT)
        at = [problem.path for problem in refused.value.problems if "encrypted value" in problem.cause]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[1:]
        assert at == [f"gke-ai:{path}"]
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
