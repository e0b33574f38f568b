"""Each mistake of tests/data/refused is reported alone, with its path, cause and remedy, by the rule that is about it.

What is allowed there has no problem.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.settings import Problem
from gke_ai.settings.model import Gateway, LoraAdapter, Route, RoutedServer, Section, TrainingRun
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules import MODULES
from gke_ai.settings.rules.common import Rule
from tests.support.mistakes import FOLDER, Mistake, base, changed, of_subject, problems_of, subject_of

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
    *("workloads.pools_can_serve", "autoscaling.names_are_unique", "gateway.routes_match_their_models"),
    *("maintenance.maintenance_leaves_time_for_upgrades", "model_memory.gpus_are_those_of_the_parallelism"),
    *("model_memory.latent_attention_runs", "model_memory.lengths_are_within_the_context"),
    "model_memory.models_are_known",
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
    problems = problems_of(mistake.values)
    assert [problem.path for problem in problems] == [mistake.path], "\n".join(map(str, problems))
    # Cells of a table are padded.
    assert mistake.cause in " ".join(f"{problems[0].cause} {problems[0].table}".split())
    assert mistake.remedy in problems[0].remedy
    if mistake.rule:
        assert (mistake.rule, mistake.path) in rules


@pytest.mark.parametrize("subject", SUBJECTS)
def test_good_configurations_and_allowed_changes_have_no_problem(subject: str) -> None:
    rows = subject_of(subject)
    values = {name: base(subject, name) for name in rows.get("good", ())}
    without_token = {row["id"] for row in rows.get("allowed", ()) if not row.get("token", True)}
    values |= {row["id"]: changed(subject, row) for row in rows.get("allowed", ())}
    problems = {name: problems_of(stack, token_given=name not in without_token) for name, stack in values.items()}
    assert {name: found for name, found in problems.items() if found} == {}


@pytest.mark.parametrize(
    ("subject", "row"),
    [
        pytest.param(subject, row, id=f"{subject}: {row['id']}")
        for subject in SUBJECTS
        for row in subject_of(subject).get("together", ())
    ],
)
def test_mistakes_are_reported_together_and_nothing_that_follows_from_them(subject: str, row: dict[str, Any]) -> None:
    problems = problems_of(changed(subject, row), token_given=row.get("token", True))
    assert [problem.path for problem in problems] == row["paths"]
    assert row.get("cause", "") in "".join(problem.cause for problem in problems)


def keys_of(*sections: type[Section]) -> set[str]:
    return {str(field.alias) for section in sections for field in section.model_fields.values()}


@pytest.mark.parametrize(
    ("subject", "keys"), [("gateway", keys_of(Gateway, Route, RoutedServer)), ("lora", keys_of(LoraAdapter))]
)
def test_every_key_of_these_sections_has_a_mistake(subject: str, keys: set[str]) -> None:
    assert keys <= {mistake.path.rpartition(".")[2].partition("[")[0] for mistake in of_subject(subject)}


def test_every_key_of_a_training_job_and_every_rule_has_a_mistake_here_or_tests_of_its_own() -> None:
    paths = (mistake.path.removeprefix("gke-ai:training[0].") for mistake in of_subject("training"))
    keys = {field.alias for name, field in TrainingRun.model_fields.items() if name in TrainingRun.__annotations__}
    assert keys <= {path.partition("[")[0].partition(".")[0] for path in paths}
    here = {mistake.rule for mistakes in MISTAKES.values() for mistake in mistakes}
    assert {*NAMES.values()} - here == ELSEWHERE


@pytest.mark.parametrize("subject", SUBJECTS)
def test_names_of_the_mistakes_of_a_subject_are_unique(subject: str) -> None:
    names = [row["id"] for kind in ("mistakes", "allowed", "together") for row in subject_of(subject).get(kind, ())]
    assert len({*names}) == len(names) > 0
