"""Mistakes in a gateway: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

import pytest

from gke_ai.settings import BadConfiguration, load
from gke_ai.settings.rules.secrets import api_key_problems
from tests.support.mistakes import PROJECT, Configuration, base, problems_of

KEY = "0123456789abcdef"


good = partial(base, "gateway")


def adapters(count: int) -> list[dict[str, str]]:
    return [{"name": f"adapter-{number}", "source": "my-team/sql"} for number in range(count)]


def test_a_route_matches_64_models_and_adapters() -> None:
    values = good()
    other = {**values["serving"][0], "name": "other", "model": "google/gemma-2-2b-it", "gpus": 1}
    values["serving"].append(other | {"maxLoras": 1, "loraAdapters": adapters(64)})
    values["gateway"]["routes"].append({"name": "other", "servers": [{"server": "other"}], "host": "llm.example.com"})
    (problem,) = problems_of(values)
    assert problem.path == "gke-ai:gateway.routes[1].servers"
    assert "the route answers for 65 models and adapters, and an HTTPRoute matches 64" in problem.cause
    assert "Divide the adapters" in problem.remedy


# --- the key itself ---------------------------------------------------------------------------------------------------


def key_problems(values: Configuration, *, given: bool) -> list[str]:
    """The problems of a configuration whose API key is set or not, as text."""
    try:
        load(values, PROJECT, api_key_given=given)
    except BadConfiguration as bad:
        return [str(problem) for problem in bad.problems]
    return []


def test_gateway_that_requires_a_key_needs_one() -> None:
    (problem,) = key_problems(good(), given=False)
    assert problem.startswith("gke-ai:gatewayApiKey: no API key is set, and the gateway requires one")
    assert key_problems(good(), given=True) == []


def test_key_that_nothing_requires_is_refused() -> None:
    (problem,) = key_problems(good("internal") | {"gatewayApiKey": KEY}, given=True)
    assert "no gateway requires it" in problem
    assert KEY not in problem
    assert key_problems(good("internal"), given=True) == [], "the variable may be set for other stacks"


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


def test_good_keys_are_accepted() -> None:
    assert not [*api_key_problems(KEY, True, None), *api_key_problems(None, False, KEY)]
