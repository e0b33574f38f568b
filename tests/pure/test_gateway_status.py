"""What the status shows of gateways: addresses, shares of servers, and what does not work."""

from typing import Any

from gke_ai.ops.status.gateways import gateway_rows


def gateway(*conditions: dict[str, Any], addresses: tuple[str, ...] = ("10.0.0.5",)) -> dict[str, Any]:
    return {
        "metadata": {"name": "main", "namespace": "edge"},
        "status": {"addresses": [{"value": address} for address in addresses], "conditions": list(conditions)},
    }


def route(*weights: int, **parts: Any) -> dict[str, Any]:
    refs = [{"name": name, "weight": weight} for name, weight in zip(("gemma", "gemma-next"), weights, strict=False)]
    gateways = parts.get("gateways", [{"name": "main", "namespace": "edge"}])
    return {
        "metadata": {"name": "gemma", "namespace": "llm"},
        "spec": {"parentRefs": gateways, "hostnames": parts.get("hosts", []), "rules": [{"backendRefs": refs}]},
        "status": {"parents": [{"conditions": parts.get("conditions", [])}]},
    }


def unmet(condition_type: str, message: str) -> dict[str, Any]:
    return {"type": condition_type, "status": "False", "message": message}


def test_route_of_the_gateway_is_shown_with_the_share_of_each_server() -> None:
    (row,) = gateway_rows([gateway()], [route(90, 10, hosts=["llm.example.com"])])
    assert row == ("edge/main", "10.0.0.5", "llm.example.com", "gemma 90 %, gemma-next 10 %", "")
    for weights, expected in (((1, 2), "gemma 33 %, gemma-next 67 %"), ((100, 0), "gemma 100 %, gemma-next 0 %")):
        ((*_, shares, _),) = gateway_rows([gateway()], [route(*weights)])
        assert shares == expected
    other = route(1, gateways=[{"name": "main"}])  # in the route's own namespace
    assert list(gateway_rows([gateway()], [other])) == [("edge/main", "10.0.0.5", "–", "no route", "")]


def test_what_does_not_work_is_shown_with_its_reason() -> None:
    waits = gateway(unmet("Programmed", "no proxy-only subnetwork"), addresses=())
    refused = unmet("ResolvedRefs", "InferencePool gemma does not exist")
    ((_, address, *_, why),) = gateway_rows([waits], [route(1, conditions=[refused])])
    assert address == "none yet"
    assert why == "Programmed: no proxy-only subnetwork; ResolvedRefs: InferencePool gemma does not exist"
