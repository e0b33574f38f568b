"""What a stack may ask for: typed, checked, and every mistake of a configuration reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from settings import calibration
from settings.model import Settings
from settings.plan import token_workloads
from settings.problems import BadConfiguration, Problem
from settings.reading import PREFIX, read
from settings.rules import check
from settings.rules.provider import project_problems, region_problems
from settings.rules.token import token_problems

__all__ = ["BadConfiguration", "Problem", "Settings", "load", "token_problems"]

# Keys of the program's configuration that are no section: the program reads the token as a secret, past this module.
_NOT_SECTIONS = ("hfToken",)


def load(
    values: Mapping[str, object],
    project: str,
    token_given: bool = True,
    region: str = "",
    token_problems: Iterable[Problem] = (),
) -> Settings:
    """The settings of a stack.

    `values` are the `gke-ai:` keys of the configuration without that prefix, already parsed; `project` is the id of the
    Google Cloud project, which `{project}` stands for in any text; `token_given` says whether there is a Hugging Face
    token, and `token_problems` what is wrong with it (`settings.rules.token`), as its text does not come here; `region`
    is the provider's default region. Raises BadConfiguration with every problem found; its messages never quote a
    token.
    """
    wrong_project = list(project_problems(project))
    # Without a project, names are still checked as if there were one.
    shown = "project-id" if wrong_project else project
    sections = {key: _substitute(value, shown) for key, value in values.items() if key not in _NOT_SECTIONS}
    settings, problems = read(sections)
    problems += wrong_project
    problems += region_problems(region)
    problems += token_problems
    problems += _calibrate(settings)
    problems += _token_problems(settings, "hfToken" in values, token_given)
    problems += check(settings)
    if problems:
        order = [f"{PREFIX}{field.alias}" for field in Settings.model_fields.values()]
        raise BadConfiguration(sorted(problems, key=lambda problem: _section_index(problem.path, order)))
    return settings


def _calibrate(settings: Settings) -> Iterator[Problem]:
    """Reads the calibration file that the settings name; a problem for each mistake in it."""
    if settings.calibration is None:
        return
    try:
        settings._measured = calibration.read(Path(settings.calibration))
    except calibration.BadCalibration as bad:
        for where, cause, remedy in bad.mistakes:
            yield Problem(f"{PREFIX}calibration", f"{where}: {cause}" if where else cause, remedy)


def _token_problems(settings: Settings, token_stated: bool, token_given: bool) -> Iterator[Problem]:
    """Two tokens where there is place for one, or none where one is needed."""
    named = settings.hf_token_secret is not None or settings.unparsed.overlaps(f"{PREFIX}hfTokenSecret")
    if named and token_stated:
        yield Problem(
            f"{PREFIX}hfTokenSecret",
            "hfToken is given too, and a Secret holds one token — nobody could say which",
            "Leave one of them out: pulumi config rm gke-ai:hfToken",
        )
    needed = token_workloads(settings) or settings.unparsed.overlaps(f"{PREFIX}serving")
    if needed and not named and not token_given:
        yield Problem(
            f"{PREFIX}hfToken",
            "no Hugging Face token is given, and servers and runs download their models with one",
            "Run pulumi config set --secret gke-ai:hfToken, set the variable HF_TOKEN, or name a secret of Secret "
            "Manager in gke-ai:hfTokenSecret",
        )


def _substitute(value: object, project: str) -> object:
    if isinstance(value, str):
        return value.replace("{project}", project)
    if isinstance(value, list):
        return [_substitute(item, project) for item in value]
    if isinstance(value, Mapping):
        return {key: _substitute(item, project) for key, item in value.items()}
    return value


def _section_index(path: str, order: list[str]) -> int:
    section = path.split(".")[0].split("[")[0]
    return order.index(section) if section in order else -1
