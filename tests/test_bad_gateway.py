"""Mistakes in a gateway: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import BadConfiguration, load
from gke_ai.settings.model import Gateway, Route, RoutedServer
from gke_ai.settings.rules.api_key import api_key_problems
from tests.test_bad_configuration import (
    PROJECT,
    Configuration,
    Mistake,
    both,
    drop,
    is_reported_alone,
    problems_of,
    put,
)
from tests.test_bad_configuration import good as standard

PATH = "gke-ai:gateway"
SERVERS = f"{PATH}.routes[0].servers"
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
    # Form
    Mistake(
        "a name that begins with a digit",
        put("gateway.name", "1-gateway"),
        f"{PATH}.name",
        '"1-gateway" is not a valid name. Kubernetes or Google Cloud would refuse it',
        "Begin with a letter",
        good,
    ),
    Mistake(
        "a namespace with an underscore",
        put("gateway.namespace", "my_llm"),
        f"{PATH}.namespace",
        '"my_llm" is not a valid name. Kubernetes or Google Cloud would refuse it',
        "lowercase letters",
        good,
    ),
    Mistake(
        "a word for public",
        put("gateway.public", "internet"),
        f"{PATH}.public",
        '"internet" is not true or false',
        "Write true or false",
        internal,
    ),
    Mistake(
        "a number as address",
        put("gateway.address", "10.0.0.5"),
        f"{PATH}.address",
        '"10.0.0.5" is not a valid name. Kubernetes or Google Cloud would refuse it',
        "Begin with a letter",
        good,
    ),
    Mistake(
        "a weight of more than a load balancer has",
        put("gateway.routes.0.servers.0.weight", 1001),
        f"{SERVERS}[0].weight",
        "1001 is above the maximum, 1000",
        "Set it to 1000 or less",
        good,
    ),
    Mistake(
        "a weight below zero",
        put("gateway.routes.0.servers.0.weight", -1),
        f"{SERVERS}[0].weight",
        "-1 is below the minimum, 0",
        "Set it to 0 or more",
        good,
    ),
    Mistake(
        "a route without a name",
        drop("gateway.routes.0.name"),
        f"{PATH}.routes[0].name",
        "name is missing, and a route needs it",
        "Name of the HTTPRoute",
        good,
    ),
    Mistake(
        "a route without servers",
        put("gateway.routes.0.servers", []),
        SERVERS,
        "servers is empty, and a route needs at least one entry",
        "Add an entry",
        good,
    ),
    # Address and certificate
    Mistake(
        "no certificate and no word of it",
        drop("gateway.certificate"),
        f"{PATH}.certificate",
        "the gateway has no certificate",
        "Set certificate or tlsSecret",
        good,
    ),
    Mistake(
        "two certificates",
        put("gateway.tlsSecret", "llm-tls"),
        f"{PATH}.tlsSecret",
        "certificate, tlsSecret are set, and the gateway has one listener",
        "Keep one of them",
        good,
    ),
    Mistake(
        "a certificate and plain HTTP",
        put("gateway.certificate", "llm"),
        f"{PATH}.plainHttp",
        "certificate, plainHttp are set",
        "Keep one of them",
        internal,
    ),
    Mistake(
        "plain HTTP on the Internet",
        both(put("gateway.public", True), put("gateway.apiKey", True)),
        f"{PATH}.plainHttp",
        "the gateway is public. Everyone on the way could read prompts and answers",
        "set certificate",
        internal,
    ),
    Mistake(
        "a public gateway without a key",
        put("gateway.apiKey", False),
        f"{PATH}.apiKey",
        "the gateway is public and requires no API key. Everyone on the Internet could use the servers",
        "Set apiKey: true",
        good,
    ),
    # Routes
    Mistake(
        "a gateway without routes",
        put("gateway.routes", []),
        f"{PATH}.routes",
        "the gateway has no route",
        "Add a route",
        good,
    ),
    Mistake(
        "two routes of one name",
        put("gateway.routes.+", {**SECOND, "name": "gemma"}),
        f"{PATH}.routes[1].name",
        "route gemma is defined twice",
        "Rename one",
        good,
    ),
    Mistake(
        "a host with a scheme",
        put("gateway.routes.0.host", "https://llm.example.com"),
        f"{PATH}.routes[0].host",
        '"https://llm.example.com" is not a host name',
        "without scheme, port and path",
        good,
    ),
    Mistake(
        "an address as host",
        put("gateway.routes.0.host", "10.0.0.5"),
        f"{PATH}.routes[0].host",
        '"10.0.0.5" is not a host name',
        "DNS name",
        good,
    ),
    Mistake(
        "two routes for one host",
        put("gateway.routes.+", {**SECOND, "host": "llm.example.com"}),
        f"{PATH}.routes[1].host",
        "routes gemma and second both match requests of host llm.example.com for google/gemma-2-9b-it",
        "a host or models of its own",
        good,
    ),
    Mistake(
        "two routes for all hosts",
        both(drop("gateway.routes.0.host"), put("gateway.routes.+", SECOND)),
        f"{PATH}.routes[1].host",
        "routes gemma and second both match requests of all hosts for google/gemma-2-9b-it",
        "a host or models of its own",
        good,
    ),
    Mistake(
        "an adapter with the name of another route's model",
        both(
            put("serving.+", other(loraAdapters=[{"name": "google/gemma-2-9b-it", "source": "my-team/sql"}])),
            put("gateway.routes.+", {**OTHER, "host": "llm.example.com"}),
        ),
        f"{PATH}.routes[1].host",
        "routes gemma and other both match requests of host llm.example.com for google/gemma-2-9b-it",
        "a host or models of its own",
        good,
    ),
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
    # Servers
    Mistake(
        "a server that does not exist",
        put("gateway.routes.0.servers.1.server", "gemma-nex"),
        f"{SERVERS}[1].server",
        "server gemma-nex does not exist. Its share would fail",
        "Did you mean gemma-next?",
        good,
    ),
    Mistake(
        "a server twice in a route",
        put("gateway.routes.0.servers.1.server", "gemma"),
        f"{SERVERS}[1].server",
        "gemma is named twice in this route",
        "Add up",
        good,
    ),
    Mistake(
        "a server whose name another namespace has too",
        both(
            put("serving.1", {**good()["serving"][0], "namespace": "other", "queue": None, "priorityClass": None}),
            put("gateway.routes.0.servers", [{"server": "gemma"}]),
        ),
        f"{SERVERS}[0].server",
        "several servers are named gemma. Requests could reach the wrong one",
        "Rename",
        good,
    ),
    Mistake(
        "an engine without metrics for the picker",
        both(put("serving.1.engine", "tgi"), drop("gateway.apiKey"), drop("gateway.public")),
        f"{SERVERS}[1].server",
        "gemma-next runs Text Generation Inference, whose metrics an endpoint picker cannot read",
        "Use vLLM",
        good,
    ),
    Mistake(
        "servers in two namespaces",
        both(
            put("serving.1.namespace", "other"),
            put("queues.localQueues.+", {"name": "lq", "namespace": "other", "clusterQueue": "gpus"}),
        ),
        SERVERS,
        "its servers are in namespaces llm, other, and a route is in one",
        "one namespace",
        good,
    ),
    Mistake(
        "servers of two models",
        put("serving.1.model", "google/gemma-2-2b-it"),
        SERVERS,
        "its servers answer to google/gemma-2-9b-it, google/gemma-2-2b-it, and a request names one model",
        "--served-model-name",
        good,
    ),
    Mistake(
        "no weight at all",
        both(put("gateway.routes.0.servers.0.weight", 0), put("gateway.routes.0.servers.1.weight", 0)),
        SERVERS,
        "all weights of the route are 0",
        "Set a weight above 0",
        good,
    ),
    Mistake(
        "a weight of a server without replicas",
        put("serving.1.replicas", 0),
        f"{SERVERS}[1].weight",
        "gemma-next has replicas: 0 and a weight of 10",
        "Set the weight to 0",
        good,
    ),
    Mistake(
        "two servers with the same pods",
        put("serving.1.app", "gemma"),
        "gke-ai:serving[1].app",
        "label app llm/gemma is defined twice. Each InferencePool would have the pods of both",
        "Rename one",
        good,
    ),
    Mistake(
        "a name too long for an endpoint picker",
        both(
            put("serving.1.name", "g" * 60),
            put("serving.1.service", "gemma-next"),
            put("gateway.routes.0.servers.1.server", "g" * 60),
        ),
        "gke-ai:serving[1].name",
        "is the Service of its endpoint picker and not a valid name",
        "Use up to 59 characters",
        good,
    ),
    Mistake(
        "a tenant's servers in a network that others own",
        both(drop("cluster.vpc"), put("tenants", [{"name": "llm", "priorityClasses": ["high", "low"]}])),
        SERVERS,
        "namespace llm belongs to a tenant, whose NetworkPolicy lets in no load balancer",
        "Set cluster.vpc",
        good,
    ),
    Mistake(
        "a certificate's key that a tenant can read",
        both(
            put("gateway.tlsSecret", "llm-tls"),
            drop("gateway.certificate"),
            put("tenants", [{"name": "llm", "priorityClasses": ["high", "low"]}]),
            put("gateway.namespace", "llm"),
        ),
        f"{PATH}.namespace",
        "the Gateway would be in namespace llm, whose tenant can read and replace the private key in Secret llm-tls",
        "Choose a namespace without a tenant",
        good,
    ),
    Mistake(
        "a router whose requests a tenant can read",
        both(
            put("serving.+", other()),
            put("gateway.routes.+", {**OTHER, "host": "llm.example.com"}),
            put("tenants", [{"name": "llm", "priorityClasses": ["high", "low"]}]),
            put("gateway.namespace", "llm"),
        ),
        f"{PATH}.namespace",
        "the router of the gateway would be in namespace llm, whose tenant could read all requests there",
        "Choose a namespace without a tenant",
        good,
    ),
    Mistake(
        "a gateway in a namespace of the cluster",
        put("gateway.namespace", "kube-system"),
        f"{PATH}.namespace",
        "namespace kube-system belongs to the cluster",
        "Choose another namespace",
        good,
    ),
    # Addresses of the proxies
    Mistake(
        "proxies in the range of nodes",
        put("cluster.vpc.proxyCidr", "10.0.0.0/23"),
        "gke-ai:cluster.vpc.proxyCidr",
        "10.0.0.0/23 overlaps with nodesCidr, 10.0.0.0/20",
        "Move one",
        good,
    ),
    Mistake(
        "too few addresses for proxies",
        put("cluster.vpc.proxyCidr", "10.9.0.0/27"),
        "gke-ai:cluster.vpc.proxyCidr",
        "10.9.0.0/27 is smaller than a /26. Google Cloud would refuse the subnetwork",
        "Write a /23",
        good,
    ),
    # API keys
    Mistake(
        "a key in an argument",
        put("serving.0.arguments", ["--api-key=0123456789abcdef"]),
        "gke-ai:serving[0].arguments",
        "this is an API key in plain text",
        "set gateway.apiKey: true",
        good,
    ),
    Mistake(
        "a key in a variable",
        put("serving.0.env", {"VLLM_API_KEY": "0123456789abcdef"}),
        "gke-ai:serving[0].env",
        "this is an API key in plain text",
        "set gateway.apiKey: true",
        good,
    ),
]


@pytest.mark.parametrize("base", [good, internal])
def test_good_gateways_have_no_problem(base: Any) -> None:
    assert problems_of(base()) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_each_mistake_is_reported_alone_with_its_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_every_key_of_a_gateway_has_a_mistake() -> None:
    paths = {mistake.path.rpartition(".")[2].partition("[")[0] for mistake in MISTAKES}
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
