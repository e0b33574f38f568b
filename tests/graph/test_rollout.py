"""An update of Kueue ends when the manager runs with its new configuration."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pulumi
import pytest

from gke_ai.components.queues import kueue
from tests.support.recorder import configuration, run_program

Hook = Callable[[], None]


def deployment(generation: int = 2, observed: int = 2, **replicas: int | None) -> Any:
    """A Deployment with one replica, as the client returns it."""
    counts = {"replicas": 1, "updated_replicas": 1, "available_replicas": 1, **replicas}
    status = SimpleNamespace(observed_generation=observed, **counts)
    metadata, spec = SimpleNamespace(generation=generation), SimpleNamespace(replicas=1)
    return SimpleNamespace(metadata=metadata, spec=spec, status=status)


@pytest.mark.parametrize(
    ("call", "over"),
    [
        pytest.param(lambda _: deployment(), True, id="new pod alone"),
        pytest.param(lambda _: deployment(observed=1), False, id="change not seen yet"),
        pytest.param(lambda _: deployment(replicas=2), False, id="earlier pod still there"),
        pytest.param(lambda _: deployment(updated_replicas=None), False, id="no new pod"),
        pytest.param(lambda _: deployment(available_replicas=None), False, id="new pod not ready"),
        pytest.param(mock.Mock(side_effect=ConnectionError("refused")), False, id="no answer of the cluster"),
    ],
)
def test_a_rollout_is_over_when_only_new_pods_run(call: Any, over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kueue, "connection", lambda _: SimpleNamespace(call=call))
    assert kueue.rolled_out("kubeconfig", "kueue-system", "manager") is over


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Call the hook as the engine does after an update."""
    bound: list[Callable[[pulumi.ResourceHookArgs], Any]] = []
    monkeypatch.setattr(pulumi, "ResourceHook", lambda _, call: bound.append(call))
    kueue.wait_for_rollout("kueue", "kueue-system", "manager", "kubeconfig")
    return lambda: asyncio.run(bound[0](pulumi.ResourceHookArgs("urn", "id", "kueue", "t")))


def test_an_update_ends_when_the_new_manager_has_rolled_out(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, False, True]
    monkeypatch.setattr(kueue, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(kueue, "rolled_out", lambda *_: answers.pop(0))
    hook()
    assert not answers


def test_a_manager_that_does_not_roll_out_fails_the_update(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kueue, "PATIENCE_SECONDS", -1)
    monkeypatch.setattr(kueue, "rolled_out", lambda *_: False)
    with pytest.raises(pulumi.RunError, match="kubectl -n kueue-system get pods"):
        hook()


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_objects_of_a_new_namespace_wait_until_kueue_knows_it(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = mock.Mock(return_value=pulumi.ResourceHookBinding())
    monkeypatch.setattr(kueue, "wait_for_rollout", wait)
    run_program(configuration("Pulumi.dev.yaml"), preview, monkeypatch)
    assert [call.args[1:3] for call in wait.call_args_list] == [("kueue-system", "kueue-controller-manager")]
