"""Mistakes in a gateway: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import BadConfiguration, load
from gke_ai.settings.model import Gateway, Route, RoutedServer
from gke_ai.settings.rules.api_key import api_key_problems
from tests.mistakes import PROJECT, Configuration, Mistake, both, of_subject, problems_of, put
from tests.mistakes import good as standard

PATH = "gke-ai:gateway"
KEY = "0123456789abcdef"


def good() -> Configuration:
    """Two versions of a server behind a public gateway; nothing is wrong."""
    values = standard()
    values["cluster"] |= {"vpc": {}}
    values["gpuPools"][0]["nodesPerZone"] = 9
    server = {**values["serving"][0], "engine": "vllm", "gpus": 2}
    values["serving"] = [server, {**server, "name": "gemma-next"}]
    values["gateway"] = {
        "public": True,
        "certificate": "llm",
        "apiKey": True,
        "routes": [
            {
                "name": "gemma",
                "host": "llm.example.com",
                "servers": [{"server": "gemma", "weight": 90}, {"server": "gemma-next", "weight": 10}],
            }
        ],
    }
    return values


def internal() -> Configuration:
    """The same inside the network, without a certificate and a key."""
    values = good()
    gateway = values["gateway"]
    del gateway["public"], gateway["certificate"], gateway["apiKey"]
    gateway["plainHttp"] = True
    return values


def other(**keys: Any) -> dict[str, Any]:
    """A server of another model."""
    server = {**good()["serving"][0], "name": "other", "model": "google/gemma-2-2b-it", "gpus": 1}
    return {**server, **keys}


def adapters(count: int) -> list[dict[str, str]]:
    return [{"name": f"adapter-{number}", "source": "my-team/sql"} for number in range(count)]


OTHER: dict[str, Any] = {"name": "other", "servers": [{"server": "other"}]}
SECOND: dict[str, Any] = {"name": "second", "servers": [{"server": "gemma"}]}

MISTAKES = [
    Mistake(
        "more adapters than a route matches",
        both(
            put("serving.+", other(maxLoras=1, loraAdapters=adapters(64))),
            put("gateway.routes.+", {**OTHER, "host": "llm.example.com"}),
        ),
        f"{PATH}.routes[1].servers",
        "the route answers for 65 models and adapters, and an HTTPRoute matches 64",
        "Divide the adapters",
        good,
    ),
]


@pytest.mark.parametrize("base", [good, internal])
def test_good_gateways_have_no_problem(base: Any) -> None:
    assert problems_of(base()) == []


def test_every_key_of_a_gateway_has_a_mistake() -> None:
    paths = {mistake.path.rpartition(".")[2].partition("[")[0] for mistake in of_subject("gateway")}
    keys = {field.alias for section in (Gateway, Route, RoutedServer) for field in section.model_fields.values()}
    assert keys <= paths


def test_routes_of_one_host_may_have_different_models() -> None:
    values = good()
    values["serving"].append(other(loraAdapters=adapters(2)))
    values["gateway"]["routes"].append({**OTHER, "host": "llm.example.com"})
    assert problems_of(values) == []


def test_servers_of_two_models_may_serve_one_name() -> None:
    values = good()
    values["serving"][1]["model"] = "google/gemma-2-2b-it"
    for server in values["serving"]:
        server["arguments"] = ["--served-model-name=gemma"]
    assert problems_of(values) == []


@pytest.mark.parametrize(
    "gateway",
    [
        {"tlsSecret": "llm-tls", "certificate": None},
        {"tlsSecret": "t", "certificate": None, "namespace": "gateways"},
        {},
    ],
)
def test_gateway_of_a_tenants_servers_is_accepted_where_the_tenant_reads_no_key(gateway: dict[str, Any]) -> None:
    values = good()
    values["tenants"] = [{"name": "llm", "priorityClasses": ["high", "low"]}]
    values["gateway"] |= gateway
    assert problems_of(values) == []


def test_server_with_weight_zero_may_have_no_replicas() -> None:
    values = good()
    values["serving"][1]["replicas"] = 0
    values["gateway"]["routes"][0]["servers"][1]["weight"] = 0
    assert problems_of(values) == []


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
    (problem,) = key_problems(internal() | {"gatewayApiKey": KEY}, given=True)
    assert "no gateway requires it" in problem
    assert KEY not in problem
    assert key_problems(internal(), given=True) == [], "the variable may be set for other stacks"


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
def test_bad_keys_are_refused_without_a_quote(
    stated: str | None, encrypted: bool, variable: str | None, cause: str
) -> None:
    (problem,) = api_key_problems(stated, encrypted, variable)
    assert cause in problem.cause
    assert KEY not in str(problem)


def test_good_keys_are_accepted() -> None:
    assert not [*api_key_problems(KEY, True, None), *api_key_problems(None, False, KEY)]
