"""Several models and adapters behind one address: the routes by model, and the router that they need."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.catalog.engines.inference_extension import MODEL_HEADER
from tests.support.examples import GATEWAY, gateway_example
from tests.support.recorder import Record, configuration, plain, shared_record

LLAMA = "meta-llama/Llama-3.2-3B-Instruct"
ADAPTERS = [{"name": name, "source": f"my-team/{name}"} for name in ("sql", "support")]


def rules(record: Record, route: str) -> list[tuple[list[str], dict[str, int]]]:
    """The models of each rule of a route, and the weights of its servers. No models: all requests."""
    found = []
    for rule in plain(record.one("HTTPRoute", route).inputs["spec"]["rules"]):
        assert all(match["path"] == {"type": "PathPrefix", "value": "/v1"} for match in rule["matches"])
        headers = [header for match in rule["matches"] for header in match.get("headers", [])]
        assert {header["name"] for header in headers} <= {MODEL_HEADER}
        assert len(headers) in (0, len(rule["matches"]))
        weights = {ref["name"]: ref["weight"] for ref in rule["backendRefs"]}
        found.append(([header["value"] for header in headers], weights))
    return found


def routers(record: Record) -> list[str]:
    return [extension.object_name for extension in record.all("GCPRoutingExtension")]


def canary(weights: tuple[int, int], *adapters: list[Any]) -> dict[str, Any]:
    """Two versions of a server with these weights and adapters."""
    versions = zip(("gemma", "gemma-next"), weights, strict=True)
    servers = [{"server": name, "weight": weight} for name, weight in versions]
    config = gateway_example({"routes": [{"name": "gemma", "servers": servers}]})
    for server, own in zip(config["gke-ai:serving"], adapters, strict=True):
        server["loraAdapters"] = own
    return config


def test_second_route_of_a_host_matches_its_model_and_adapters() -> None:
    record = shared_record(configuration(GATEWAY))
    assert rules(record, "gemma") == [([], {"gemma": 90, "gemma-next": 10})], "requests that no other route matches"
    assert rules(record, "llama") == [([LLAMA, "sql", "reports"], {"llama": 100})]
    models = [route["models"] for route in record.outputs["gateways"][0]["routes"]]
    assert models == [["google/gemma-3-4b-it"], [LLAMA, "sql", "reports"]]


def test_routes_of_two_namespaces_share_an_address_and_those_of_different_hosts_need_no_router() -> None:
    config = configuration(GATEWAY)
    config["gke-ai:serving"][2]["namespace"] = "other"
    record = shared_record(config)
    assert record.one("HTTPRoute", "llama").inputs["metadata"]["namespace"] == "other"
    assert rules(record, "llama") == [([LLAMA, "sql", "reports"], {"llama": 100})]
    config["gke-ai:gateway"]["routes"][1]["host"] = "llama.example.com"
    record = shared_record(config)
    assert rules(record, "llama") == [([], {"llama": 100})]
    assert routers(record) == []
    assert not [each for each in record.all("Deployment") if each.object_name.endswith("-router")]


@pytest.mark.parametrize(
    ("weights", "adapters", "adapters_next", "expected"),
    [
        ((90, 10), ADAPTERS[:1], ADAPTERS[:1], []),  # it is divided as the model is
        ((90, 10), ADAPTERS[:1], ADAPTERS, [(["support"], {"gemma-next": 10})]),  # all requests go to the new version
        ((90, 10), ADAPTERS, [], [(["sql", "support"], {"gemma": 90})]),
        ((100, 0), ADAPTERS[:1], ADAPTERS, []),  # the new version gets no requests: nobody answers for its adapter
    ],
)
def test_an_adapter_goes_to_the_versions_that_have_it(
    weights: tuple[int, int], adapters: list[Any], adapters_next: list[Any], expected: list[Any]
) -> None:
    record = shared_record(canary(weights, adapters, adapters_next))
    every, *further = rules(record, "gemma")
    assert every == ([], dict(zip(("gemma", "gemma-next"), weights, strict=True)))
    assert further == expected
    assert bool(routers(record)) == bool(expected)


def test_load_balancer_sends_the_router_every_request_with_its_body() -> None:
    record = shared_record(configuration(GATEWAY))
    spec = plain(record.one("GCPRoutingExtension").inputs["spec"])
    name = record.one("Gateway").object_name
    assert spec["targetRefs"] == [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}]
    ((callout,),) = [chain["extensions"] for chain in spec["extensionChains"]]
    assert callout["supportedEvents"] == ["RequestHeaders", "RequestBody", "RequestTrailers"]
    assert callout["requestBodySendMode"] == "FullDuplexStreamed"
    assert "failOpen" not in callout, "requests without their model would reach the wrong server"
    service = record.one("Service", callout["backendRef"]["name"])
    (port,) = plain(service.inputs["spec"]["ports"])
    assert (port["port"], port["appProtocol"]) == (callout["backendRef"]["port"], "HTTP2")
    pod = record.one("Deployment", "inference-gateway-router").inputs["spec"]["template"]
    assert service.inputs["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    check = record.one("HealthCheckPolicy", "inference-gateway-router").inputs["spec"]
    port = {"portSpecification": "USE_FIXED_PORT", "port": 9005}
    assert plain(check["default"]["config"]) == {"type": "GRPC", "grpcHealthCheck": port}
    assert check["targetRef"] == {"group": "", "kind": "Service", "name": "inference-gateway-router"}
