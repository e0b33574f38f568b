"""Which pods and addresses reach servers behind a gateway, by the NetworkPolicies of the graph."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.catalog.engines.inference_extension import PICKER_LABEL
from tests.support.examples import gateway_example, of_tenants
from tests.support.network_policies import Pod, Source, allows
from tests.support.recorder import plain, shared_record

PORT, PICKER_PORTS = 8000, (9002, 9003)
AGENT = {"k8s-app": "konnectivity-agent"}
PICKER = {"app": "gemma-epp", PICKER_LABEL: "gemma-epp"}
PROXY, HEALTH_CHECKS = "10.9.0.5", ("35.191.0.1", "130.211.0.1")
# They reach every server behind the gateway, in a namespace of the stack or of a tenant.
COLLECTOR, API_SERVER = Pod("gmp-system", {"app": "collector"}), Pod("kube-system", AGENT)
ALWAYS: tuple[Source, ...] = (PROXY, *HEALTH_CHECKS, COLLECTOR, API_SERVER)
# They reach none.
IN_WEB: tuple[Source, ...] = (Pod("web", {"app": "client"}), Pod("web", PICKER), Pod("web", AGENT))
NEVER: tuple[Source, ...] = (*IN_WEB, Pod("kube-system", {"k8s-app": "kube-dns"}), "10.0.0.9", "203.0.113.7")


def policies(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    """The NetworkPolicies of a configuration."""
    return [plain(policy.inputs) for policy in shared_record(configuration).all("NetworkPolicy")]


@pytest.mark.parametrize("source", [*ALWAYS, Pod("llm", PICKER)], ids=str)
def test_server_with_a_key_is_reached_at_one_port_by_its_gateway_metrics_and_the_api_server(source: Source) -> None:
    server = Pod("llm", {"app": "gemma"})
    assert [allows(policies(gateway_example()), source, server, PORT + more) for more in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    "source",
    [
        *(*NEVER, Pod("llm", {"app": "client"}), Pod("llm", {"app": "gemma"}), Pod("llm", {"app": "gemma-epp"})),
        *(Pod("llm", {"app": "gemma-next-epp", PICKER_LABEL: "gemma-next-epp"}), Pod("llm", AGENT)),
    ],
    ids=str,
)
def test_server_with_a_key_is_kept_from_all_other_pods_and_addresses(source: Source) -> None:
    """vLLM answers inference at other paths than /v1 without a key."""
    assert not allows(policies(gateway_example()), source, Pod("llm", {"app": "gemma"}), PORT)


@pytest.mark.parametrize("source", [*ALWAYS, Pod("team-a", {"app": "client"}), Pod("team-a", PICKER)], ids=str)
def test_server_of_a_tenant_is_reached_by_its_gateway_metrics_the_api_server_and_its_team(source: Source) -> None:
    assert allows(policies(of_tenants("team-a", "team-b")), source, Pod("team-a", {"app": "gemma"}), PORT)


@pytest.mark.parametrize("source", [*NEVER, Pod("team-b", {"app": "gemma-next"}), Pod("team-b", AGENT)], ids=str)
def test_server_of_a_tenant_is_kept_from_all_others(source: Source) -> None:
    assert not allows(policies(of_tenants("team-a", "team-b")), source, Pod("team-a", {"app": "gemma"}), PORT)


def test_ingress_from_reaches_other_pods_of_a_tenant_but_no_server_with_a_key() -> None:
    configuration = of_tenants("llm")
    configuration["gke-ai:tenants"][0]["ingressFrom"] = ["web"]
    client, server = Pod("web", {"app": "client"}), Pod("llm", {"app": "gemma"})
    assert not allows(policies(configuration), client, server, PORT)
    assert allows(policies(configuration), client, Pod("llm", {"app": "other"}), PORT)
    for source in (*ALWAYS, Pod("llm", {"app": "client"})):
        assert allows(policies(configuration), source, server, PORT)
    configuration["gke-ai:gateway"]["apiKey"] = False
    assert allows(policies(configuration), client, server, PORT)
    assert not policies(gateway_example({"apiKey": False})), "without a key no policy is needed"


def test_load_balancer_reaches_the_picker_of_a_tenant_and_that_the_api_server() -> None:
    record, picker = shared_record(of_tenants("llm")), Pod("llm", PICKER)
    for port in PICKER_PORTS:
        for source in (PROXY, *HEALTH_CHECKS):
            assert allows(policies(of_tenants("llm")), source, picker, port)
        assert not allows(policies(of_tenants("llm")), "203.0.113.7", picker, port)
    spec = record.one("NetworkPolicy", "gemma-epp-egress").inputs["spec"]
    assert spec["podSelector"] == {"matchLabels": {PICKER_LABEL: "gemma-epp"}}
    assert record.one("Deployment", "gemma-epp").inputs["spec"]["template"]["metadata"]["labels"] == PICKER


def test_only_the_platform_gives_pods_the_rights_of_a_picker() -> None:
    spec = shared_record(of_tenants("llm")).one("ValidatingAdmissionPolicy").inputs["spec"]
    (of_picker,) = (variable for variable in spec["variables"] if variable["name"] == "ofPicker")
    assert PICKER_LABEL in of_picker["expression"]
    assert '"gemma-epp"' in of_picker["expression"]
    rule, entered = (rule for rule in spec["validations"] if "endpoint picker" in rule["message"])
    assert '!["gemma-epp", "gemma-next-epp"].exists(picker, request.name.startsWith' in entered["expression"]
    assert "set serviceAccountName to workload or default" in rule["message"]


def test_an_address_that_a_policy_excludes_is_kept_out() -> None:
    block = {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"ipBlock": block}]}]}
    policy = {"metadata": {"namespace": "llm"}, "spec": spec}
    assert allows([policy], "10.2.0.1", Pod("llm", {}), PORT)
    assert not allows([policy], "10.1.0.1", Pod("llm", {}), PORT)
    assert not allows([policy], Pod("llm", {}), Pod("llm", {}), PORT)
    assert allows([policy], "10.1.0.1", Pod("other", {}), PORT), "the policy is of another namespace"
