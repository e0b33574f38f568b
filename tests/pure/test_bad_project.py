"""Mistakes in `gcp:project`, `gcp:region`, the token, the API key and routes: each at its path, without the secret."""

from functools import partial
from typing import Any

import pytest

from gke_ai.settings import BadConfiguration, Problem, load, token_problems
from gke_ai.settings.rules.secrets import api_key_problems
from tests.support.mistakes import base, good, problems_of
from tests.support.recorder import PROJECT, TOKEN

AUTOPILOT = {"cluster": {"mode": "autopilot"}}
KEY = "0123456789abcdef"
gateway = partial(base, "gateway")


def problems(values: dict[str, Any] | None = None, project: str = PROJECT, **given: Any) -> list[Problem]:
    """Every problem of a configuration with these keys of the provider."""
    try:
        load(good() if values is None else values, project, **given)
    except BadConfiguration as bad:
        return bad.problems
    return []


@pytest.mark.parametrize("project", ["acme-1", "a23456", "a" * 30, "my-project"])
def test_id_that_a_project_can_have_is_accepted(project: str) -> None:
    assert problems(AUTOPILOT, project) == []


@pytest.mark.parametrize(
    "project",
    [
        *("acme", "a" * 31, "1project", "-project", "project-", "My-Project", "my_project", "my project"),
        *("projects/my-project", "com:my-project", "example.com:acme", "example.com:"),
    ],
)
def test_id_that_no_project_can_have_is_refused_with_the_rule(project: str) -> None:
    (problem,) = problems(project=project)
    assert problem.path == "gcp:project"
    assert "6 to 30 lowercase letters, digits and hyphens" in problem.cause
    assert "pulumi config set gcp:project" in problem.remedy


@pytest.mark.parametrize("project", ["example.com:my-project", "research.example.co.uk:ml-prod-1"])
def test_project_of_a_domain_is_refused_as_its_identities_are_not_known(project: str) -> None:
    (problem,) = problems(AUTOPILOT, project)
    assert problem.path == "gcp:project"
    assert f"{project} is an id with a domain" in problem.cause
    assert "the name of its identity pool is unknown" in problem.cause
    assert "a project without a domain" in problem.remedy


def test_number_of_a_project_is_distinguished_from_its_id() -> None:
    (problem,) = problems(project="123456789012")
    assert "the number of a project" in problem.cause
    assert "gcloud projects describe 123456789012" in problem.remedy


def test_wrong_project_in_names_is_no_second_mistake() -> None:
    values = good()
    values["buckets"][0]["name"] = "models-{project}"
    assert [problem.path for problem in problems(values, "My Project")] == ["gcp:project"]


@pytest.mark.parametrize(
    ("region", "cause", "remedy"),
    [
        ("us-central1-a", "is a zone", "Write us-central1"),
        *(("us-centrall1", "is not a region", "us-central1"), ("US", "is not a region", "us-")),
    ],
)
def test_region_that_does_not_exist_is_refused(region: str, cause: str, remedy: str) -> None:
    (problem,) = problems(region=region)
    assert problem.path == "gcp:region"
    assert cause in problem.cause
    assert remedy in problem.remedy
    for allowed in ("", "us-central1", "europe-west12"):
        assert problems(region=allowed) == []


@pytest.mark.parametrize(
    ("stated", "encrypted", "environment", "cause"),
    [
        ("hf_one two", False, None, "plain text"),
        ("hf_one two", True, None, "a space or a line break"),
        ("hf_one\nhf_two", True, None, "a space or a line break"),
        (" ", True, None, "is empty"),
        (None, False, "hf_one two", "the variable HF_TOKEN contains a space"),
    ],
)
def test_unusable_token_is_refused(stated: str | None, encrypted: bool, environment: str | None, cause: str) -> None:
    problems = list(token_problems(stated, encrypted, environment))
    assert {problem.path for problem in problems} == {"gke-ai:hfToken"}
    assert cause in problems[0].cause
    assert "hf_one" not in str(problems)


@pytest.mark.parametrize(
    ("stated", "encrypted", "environment"),
    [(TOKEN, True, None), (TOKEN, True, "unused"), (None, False, f"{TOKEN}\n"), (None, False, ""), (None, False, None)],
)
def test_token_that_can_work_is_accepted(stated: str | None, encrypted: bool, environment: str | None) -> None:
    assert list(token_problems(stated, encrypted, environment)) == []


def test_a_route_matches_64_models_and_adapters() -> None:
    values = gateway()
    adapters = [{"name": f"adapter-{number}", "source": "my-team/sql"} for number in range(64)]
    other = {**values["serving"][0], "name": "other", "model": "google/gemma-2-2b-it", "gpus": 1}
    values["serving"].append(other | {"maxLoras": 1, "loraAdapters": adapters})
    values["gateway"]["routes"].append({"name": "other", "servers": [{"server": "other"}], "host": "llm.example.com"})
    (problem,) = problems_of(values)
    assert problem.path == "gke-ai:gateway.routes[1].servers"
    assert "the route answers for 65 models and adapters, and an HTTPRoute matches 64" in problem.cause
    assert "Divide the adapters" in problem.remedy


def test_a_gateway_needs_the_key_that_it_requires_and_no_other_stack_has_one() -> None:
    (problem,) = problems(gateway(), api_key_given=False)
    assert str(problem).startswith("gke-ai:gatewayApiKey: no API key is set, and the gateway requires one")
    assert problems(gateway(), api_key_given=True) == []
    (problem,) = problems(gateway("internal") | {"gatewayApiKey": KEY}, api_key_given=True)
    assert "no gateway requires it" in str(problem)
    assert KEY not in str(problem)
    assert problems(gateway("internal"), api_key_given=True) == [], "the variable may be set for other stacks"


@pytest.mark.parametrize(
    ("stated", "encrypted", "variable", "cause"),
    [
        (KEY, False, None, "in plain text"),
        ("short", True, None, "fewer than 16 characters"),
        ("", True, None, "fewer than 16 characters"),
        (f"{KEY} {KEY}", True, None, "contains a space"),
        (None, False, "short", "the variable GATEWAY_API_KEY has fewer"),
    ],
)
def test_bad_keys_are_refused_unquoted(stated: str | None, encrypted: bool, variable: str | None, cause: str) -> None:
    (problem,) = api_key_problems(stated, encrypted, variable)
    assert cause in problem.cause
    assert KEY not in str(problem)
    assert not [*api_key_problems(KEY, True, None), *api_key_problems(None, False, KEY)]
