"""Mistakes in `gcp:project`, `gcp:region` and the token: reported with all others, by their path, without the token."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import BadConfiguration, Problem, load, token_problems
from tests.support.mistakes import good
from tests.support.recorder import PROJECT, TOKEN


def problems(values: dict[str, Any] | None = None, project: str = PROJECT, region: str = "") -> list[Problem]:
    """Every problem of a configuration with these keys of the provider."""
    try:
        load(good() if values is None else values, project, region=region)
    except BadConfiguration as bad:
        return bad.problems
    return []


@pytest.mark.parametrize("project", ["acme-1", "a23456", "a" * 30, "my-project"])
def test_id_that_a_project_can_have_is_accepted(project: str) -> None:
    assert problems({"cluster": {"mode": "autopilot"}}, project=project) == []


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
    (problem,) = problems({"cluster": {"mode": "autopilot"}}, project=project)
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
    assert [problem.path for problem in problems(values, project="My Project")] == ["gcp:project"]


@pytest.mark.parametrize("region", ["", "us-central1", "europe-west12"])
def test_region_that_exists_or_none_is_accepted(region: str) -> None:
    assert problems(region=region) == []


@pytest.mark.parametrize(
    ("region", "cause", "remedy"),
    [
        ("us-central1-a", "is a zone", "Write us-central1"),
        ("us-centrall1", "is not a region", "us-central1"),
        ("US", "is not a region", "us-"),
    ],
)
def test_region_that_does_not_exist_is_refused(region: str, cause: str, remedy: str) -> None:
    (problem,) = problems(region=region)
    assert problem.path == "gcp:region"
    assert cause in problem.cause
    assert remedy in problem.remedy


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
