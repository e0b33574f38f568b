"""Each mistake of tests/refused is reported alone, with its path, cause and remedy, by the rule that is about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gke_ai.settings import Problem
from gke_ai.settings.rules import MODULES
from gke_ai.settings.rules.common import Rule
from gke_ai.settings.stack import ResolvedStack
from tests.mistakes import FOLDER, Mistake, is_reported_alone, of_subject

SUBJECTS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
MISTAKES = {subject: of_subject(subject) for subject in SUBJECTS}
NAMES = {
    id(rule): f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in MODULES
    for name, rule in vars(module).items()
    if isinstance(rule, Rule)
}

# Rules that need another input than a configuration, or tables of their own: measured memory, tokens, dates.
ELSEWHERE = {
    *("autoscaling.names_are_unique", "gateway.routes_match_their_models", "gpu_workloads.pools_can_serve"),
    *("maintenance.maintenance_leaves_time_for_upgrades", "model_memory.engines_have_kernels"),
    *("model_memory.flags_exist", "model_memory.gpus_are_those_of_the_parallelism"),
    *("model_memory.latent_attention_runs", "model_memory.lengths_are_within_the_context"),
    *("model_memory.models_are_known", "model_memory.models_are_shared_evenly", "model_memory.shapes_are_consistent"),
    *("pools.create_before_delete_is_possible", "pools.secondary_boot_disk_is_possible"),
    *("token.token_secret_is_a_name", "versions.kueue_knows_the_objects"),
}


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The rules that find problems, each with the path of its problem."""
    found: list[tuple[str, str]] = []
    check = Rule.check

    def record(rule: Rule, stack: ResolvedStack) -> Iterator[Problem]:
        for problem in check(rule, stack):
            found.append((NAMES[id(rule)], problem.path))
            yield problem

    monkeypatch.setattr(Rule, "check", record)
    return found


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(mistake, id=f"{subject}: {mistake.id}") for subject in SUBJECTS for mistake in MISTAKES[subject]],
)
def test_mistake_is_reported_alone_by_its_rule(mistake: Mistake, rules: list[tuple[str, str]]) -> None:
    is_reported_alone(mistake, mistake.base())
    if mistake.rule:
        assert (mistake.rule, mistake.path) in rules


def test_every_rule_has_a_mistake_here_or_tests_of_its_own() -> None:
    here = {mistake.rule for mistakes in MISTAKES.values() for mistake in mistakes}
    assert {*NAMES.values()} - here == ELSEWHERE


@pytest.mark.parametrize("subject", SUBJECTS)
def test_names_of_the_mistakes_of_a_subject_are_unique(subject: str) -> None:
    names = [mistake.id for mistake in MISTAKES[subject]]
    assert len({*names}) == len(names) > 0
