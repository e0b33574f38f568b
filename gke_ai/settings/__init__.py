"""The configuration of a stack as typed, checked settings. All mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gke_ai.catalog import section_files
from gke_ai.catalog.section_files import PREFIX
from gke_ai.settings import calibration
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import Settings, Unresolved
from gke_ai.settings.problems import BadConfiguration, Problem
from gke_ai.settings.reading import read, with_project
from gke_ai.settings.resolved import ResolvedStack, needs
from gke_ai.settings.rules import check
from gke_ai.settings.rules.provider import project_problems, region_problems
from gke_ai.settings.rules.secrets import (
    api_key_problems,
    encrypted_problem,
    encrypted_values,
    missing_api_key,
    token_problems,
)
from gke_ai.settings.secrets import API_KEY, HF_TOKEN, SECRETS

__all__ = ["BadConfiguration", "Problem", "ResolvedStack", "Settings", "api_key_problems", "load", "token_problems"]


def load(
    values: Mapping[str, object],
    project: str,
    token_given: bool = True,
    region: str = "",
    token_problems: Iterable[Problem] = (),
    api_key_given: bool = True,
    folder: Path = Path(),
    encrypted: Collection[str] = (),
) -> ResolvedStack:
    """Parses, resolves and checks the configuration of a stack.

    Raises BadConfiguration with every problem. Its messages never quote a token.

    Args:
        values: The `gke-ai:` keys of the configuration without that prefix, parsed.
        project: The id of the Google Cloud project. It replaces `{project}` in any text.
        token_given: Whether a Hugging Face token is set. The token itself is never passed to this package.
        region: The provider's default region.
        token_problems: Problems of the token and of the API key, by `gke_ai.settings.rules.secrets`.
        api_key_given: Whether an API key of the gateway is set.
        encrypted: Keys in which Pulumi has decrypted a value. It does not tell which.
        folder: The folder of the files that sections name. Default: the current one, which is the program's project.
    """
    wrong_project = list(project_problems(project))
    # Without a valid project, check names with a substitute.
    project_id = "project-id" if wrong_project else project
    secrets = {secret.key for secret in SECRETS}
    plain = {key: value for key, value in values.items() if key not in secrets}
    hidden = [path for key, value in plain.items() for path in encrypted_values(value, f"{PREFIX}{key}")]
    hidden += [f"{PREFIX}{key}" for key in encrypted if key in plain]
    stated = section_files.read({key: value for key, value in plain.items() if key not in encrypted}, folder)
    sections = {key: with_project(value, project_id) for key, value in stated.values.items()}
    settings, unresolved, problems = read(sections)
    problems += [Problem(*mistake) for mistake in stated.mistakes]
    unresolved = replace(unresolved, paths=unresolved.paths.union(hidden, (path for path, *_ in stated.mistakes)))
    measured, bad_calibration = _calibrated(settings)
    stack = ResolvedStack(settings, measured, unresolved)
    problems += wrong_project
    problems += region_problems(region)
    problems += token_problems
    problems += bad_calibration
    problems += _token_problems(stack, HF_TOKEN.key in values, token_given)
    if not unresolved.overlaps(f"{PREFIX}gateway"):
        problems += missing_api_key(settings.gateway, API_KEY.key in values, api_key_given)
    problems += check(stack)
    if hidden:
        # What else is wrong there is wrong with the encrypted text.
        there = Unresolved(frozenset(hidden))
        problems = [problem for problem in problems if not there.overlaps(problem.path)]
        problems += map(encrypted_problem, hidden)
    if problems:
        order = [f"{PREFIX}{field.alias}" for field in Settings.model_fields.values()]
        problems.sort(key=lambda problem: _section_index(problem.path, order))
        raise BadConfiguration([replace(problem, path=stated.located(problem.path)) for problem in problems])
    return stack


def _calibrated(settings: Settings) -> tuple[Calibration, list[Problem]]:
    """Reads the calibration file of the settings; also returns its mistakes."""
    if settings.calibration is None:
        return Calibration(), []
    try:
        return calibration.read(Path(settings.calibration)), []
    except calibration.BadCalibration as bad:
        path = f"{PREFIX}calibration"
        return Calibration(), [
            Problem(path, f"{where}: {cause}" if where else cause, remedy) for where, cause, remedy in bad.mistakes
        ]


def _token_problems(stack: ResolvedStack, token_stated: bool, token_given: bool) -> Iterator[Problem]:
    """Reports a token that is set twice, or that is missing."""
    settings = stack.settings
    named = settings.hf_token_secret is not None or stack.unresolved.overlaps(f"{PREFIX}hfTokenSecret")
    if named and token_stated:
        cause = "hfTokenSecret and hfToken are both set, and a Secret holds one token"
        yield Problem(f"{PREFIX}hfTokenSecret", cause, "Remove one of them: pulumi config rm gke-ai:hfToken")
    needed = needs.token_workloads(stack) or stack.unresolved.overlaps(f"{PREFIX}serving")
    if needed and not named and not token_given:
        yield Problem(
            f"{PREFIX}hfToken",
            "no Hugging Face token is set, and servers and runs need one to download their models",
            "Run pulumi config set --secret gke-ai:hfToken, set the variable HF_TOKEN, or name a secret of Secret "
            "Manager in gke-ai:hfTokenSecret",
        )


def _section_index(path: str, order: list[str]) -> int:
    section = path.split(".")[0].split("[")[0]
    return order.index(section) if section in order else -1
