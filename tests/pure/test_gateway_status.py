"""What the status shows of gateways: addresses, shares of servers, and what does not work."""

from __future__ import annotations

from typing import Any

from gke_ai.ops.status.gateways import gateway_rows


def gateway(*conditions: dict[str, Any], addresses: tuple[str, ...] = ("10.0.0.5",)) -> dict[str, Any]:
    return {
        "metadata": {"name": "main", "namespace": "edge"},
        "status": {"addresses": [{"value": address} for address in addresses], "conditions": list(conditions)},
    }


def route(*weights: int, hosts: tuple[str, ...] = (), conditions: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    refs = [{"name": name, "weight": weight} for name, weight in zip(("gemma", "gemma-next"), weights, strict=False)]
    return {
        "metadata": {"name": "gemma", "namespace": "llm"},
        "spec": {
            "parentRefs": [{"name": "main", "namespace": "edge"}],
            "hostnames": list(hosts),
            "rules": [{"backendRefs": refs}],
        },
        "status": {"parents": [{"conditions": list(conditions)}]},
    }


def unmet(condition_type: str, message: str) -> dict[str, Any]:
    return {"type": condition_type, "status": "False", "message": message}


def test_route_is_shown_with_the_share_of_each_server() -> None:
    (row,) = gateway_rows([gateway()], [route(90, 10, hosts=("llm.example.com",))])
    assert row == ("edge/main", "10.0.0.5", "llm.example.com", "gemma 90 %, gemma-next 10 %", "")
    ((*_, shares, _),) = gateway_rows([gateway()], [route(1, 2)])
    assert shares == "gemma 33 %, gemma-next 67 %"
    ((*_, shares, _),) = gateway_rows([gateway()], [route(100, 0)])
    assert shares == "gemma 100 %, gemma-next 0 %"


def test_routes_of_other_gateways_are_not_shown() -> None:
    other = route(1)
    other["spec"]["parentRefs"] = [{"name": "main"}]  # in the route's own namespace
    assert list(gateway_rows([gateway()], [other])) == [("edge/main", "10.0.0.5", "–", "no route", "")]


def test_what_does_not_work_is_shown_with_its_reason() -> None:
    waits = gateway(unmet("Programmed", "no proxy-only subnetwork"), addresses=())
    refused = unmet("ResolvedRefs", "InferencePool gemma does not exist")
    ((_, address, *_, why),) = gateway_rows([waits], [route(1, conditions=(refused,))])
    assert address == "none yet"
    assert why == "Programmed: no proxy-only subnetwork; ResolvedRefs: InferencePool gemma does not exist"
