"""The gateway: its objects, the order of changes in a canary and a rollback, its API key, and routes by model."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gke_ai.catalog.engines.gateways import tenant_api_key
from gke_ai.catalog.engines.inference_extension import MODEL_HEADER, PICKER_LABEL
from gke_ai.components import InferencePool, TgiServer, VllmServer
from gke_ai.components.arguments import Refused
from gke_ai.components.gateway.gateway_address import address_of
from gke_ai.settings.resolved import needs
from tests.support.examples import GATEWAY, gateway_example, of_tenants
from tests.support.network_policies import Pod, Source, allows
from tests.support.recorder import (
    GATEWAY_KEY,
    ROOT,
    Monitor,
    Record,
    configuration,
    load_stack,
    plain,
    run_program,
    shared_record,
)


# --- the objects ------------------------------------------------------------------------------------------------------
def test_pool_has_the_pods_of_its_server() -> None:
    record = shared_record(gateway_example())
    pools = {pool.name.rpartition("/llm/")[2]: pool for pool in record.all("InferencePool") if pool.inputs.get("kind")}
    assert pools.keys() == {"gemma", "gemma-next"}
    for name, pool in pools.items():
        spec = plain(pool.inputs["spec"])
        template = record.one("Deployment", name).inputs["spec"]["template"]
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        service = record.one("Service", spec["endpointPickerRef"]["name"]).inputs["spec"]
        assert spec["endpointPickerRef"]["port"]["number"] in [port["port"] for port in service["ports"]]
        picker = record.one("Deployment", f"{name}-epp").inputs["spec"]["template"]
        assert service["selector"].items() <= picker["metadata"]["labels"].items()
        assert spec["targetPorts"] == [{"number": 8000}]


def test_endpoint_picker_has_a_standby_and_reads_only_its_namespace() -> None:
    record = shared_record(gateway_example())
    picker = record.one("Deployment", "gemma-epp")
    assert picker.inputs["spec"]["replicas"] == 2
    (container,) = picker.inputs["spec"]["template"]["spec"]["containers"]
    scrapes = "--refresh-metrics-interval=250ms"
    assert {"--pool-name=gemma", "--pool-namespace=llm", "--ha-enable-leader-election", scrapes} <= {*container["args"]}
    assert picker.inputs["metadata"]["annotations"] == {"pulumi.com/waitFor": "jsonpath={.status.readyReplicas}"}
    rules = record.one("Role", "gemma-epp").inputs["rules"]
    kinds = {"pods", "inferencepools", "inferenceobjectives", "inferencemodelrewrites", "leases", "events"}
    assert {resource for rule in rules for resource in rule["resources"]} == kinds
    assert not record.all("ClusterRole")


def test_load_balancer_drains_pods_no_longer_than_google_allows() -> None:
    config = gateway_example()
    for server in config["gke-ai:serving"]:
        server["terminationGracePeriodSeconds"] = 7200
    specs = [plain(policy.inputs["spec"]["default"]) for policy in shared_record(config).all("GCPBackendPolicy")]
    assert {spec["connectionDraining"]["drainingTimeoutSec"] for spec in specs} == {3600}


def test_only_a_stack_with_a_gateway_has_its_parts_and_downloads_the_endpoint_picker() -> None:
    config = gateway_example()
    assert needs.external_hosts(load_stack(config))["registry.k8s.io"] == "endpoint picker"
    del config["gke-ai:gateway"]
    assert "registry.k8s.io" not in needs.external_hosts(load_stack(config))
    record = shared_record(config)
    assert "gatewayApiConfig" not in record.one("Cluster").inputs
    assert len(record.all("Subnetwork")) == 1
    assert not [resource for kind in ("Gateway", "HTTPRoute", "InferencePool") for resource in record.all(kind)]
    assert record.outputs["gateways"] == []


def test_outputs_have_the_address_and_the_weights() -> None:
    expected = yaml.safe_load((ROOT / "tests/data/expected/outputs.yaml").read_text())["gateways"]
    assert plain(shared_record(gateway_example()).outputs["gateways"]) == expected
    assert shared_record(gateway_example(), preview=True).outputs == {}, "the address is not known yet"


def test_public_gateway_of_tenants_is_in_a_namespace_of_its_own_and_each_has_its_own_key() -> None:
    """The members of a tenant could read the TLS key in their namespace, and pose as the gateway to the others."""
    public = {"public": True, "plainHttp": False, "tlsSecret": "llm-tls", "namespace": None}
    record = shared_record(of_tenants("team-a", "team-b", **public))
    gateway = record.one("Gateway")
    assert gateway.inputs["metadata"]["namespace"] == "inference-gateway"
    assert "Namespace inference-gateway" in record.waits_for(gateway)
    (listener,) = gateway.inputs["spec"]["listeners"]
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
    assert listener["allowedRoutes"]["namespaces"]["selector"] == {"matchExpressions": [expression]}
    for route in record.all("HTTPRoute"):
        (parent,) = route.inputs["spec"]["parentRefs"]
        assert (parent["name"], parent["namespace"]) == ("inference-gateway", "inference-gateway")
    bindings = {binding.inputs["metadata"]["namespace"] for binding in record.all("RoleBinding")}
    assert {"team-a", "team-b"} <= bindings
    assert "inference-gateway" not in bindings, "tenants may not write there"
    secrets = [secret.inputs for secret in record.all("Secret") if secret.object_name == "gateway-api-key"]
    keys = {secret["metadata"]["namespace"]: secret["stringData"]["value"]["key"] for secret in secrets}
    assert keys == {name: tenant_api_key(GATEWAY_KEY, name) for name in ("team-a", "team-b")}
    assert len({*keys.values(), GATEWAY_KEY}) == 3, "nobody has the key of another team, or of the stack"


# --- canary and rollback ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_route_waits_for_servers_and_their_endpoint_pickers(preview: bool) -> None:
    record = shared_record(gateway_example(), preview)
    waits_for = record.waits_for(record.one("HTTPRoute"))
    for server in ("gemma", "gemma-next"):
        assert {f"Deployment {server}", f"Deployment {server}-epp", f"InferencePool {server}"} <= waits_for
    assert "Gateway inference-gateway" in waits_for


class Replicas:
    """Replaces the wait for the first replica, and notes what is registered before it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.registered_before: set[str] = set()
        registered: list[str] = []
        register = Monitor.RegisterResource

        def listed(monitor: Monitor, request: Any) -> Any:
            registered.append(f"{request.type.rpartition(':')[2]} {request.name}")
            return register(monitor, request)

        async def wait(server: Any = None, *_: object) -> None:
            name = getattr(server, "name", None)
            if name is not None:
                self.asked.append(name)
                await asyncio.sleep(1.0)  # enough to register all that waits for nothing
                self.registered_before |= {*registered}

        monkeypatch.setattr(Monitor, "RegisterResource", listed)
        monkeypatch.setattr("tests.support.recorder.ready_at_once", wait)


def test_route_changes_once_the_canary_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(monkeypatch)
    record = run_program(gateway_example(), False, monkeypatch)
    assert "Deployment llm/gemma-next" in replicas.registered_before
    assert "HTTPRoute llm/gemma" not in replicas.registered_before, "until then, the route stays as it was"
    assert record.one("HTTPRoute")


def test_rollback_does_not_wait_for_the_broken_server(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(monkeypatch)
    record = run_program(canary(100, 0), False, monkeypatch)
    assert replicas.asked == ["gemma"]
    refs = record.one("HTTPRoute").inputs["spec"]["rules"][0]["backendRefs"]
    assert [ref["weight"] for ref in refs] == [100, 0]
    assert record.one("Deployment", "gemma-next"), "it keeps running"


def test_promotion_changes_the_route_alone_and_the_old_server_can_be_removed() -> None:
    before, after = (shared_record(canary(*share)).resources for share in ((90, 10), (0, 100)))
    assert before.keys() == after.keys()
    changed = [(old.type, old.name) for urn, old in before.items() if old.inputs != after[urn].inputs]
    assert changed == [("kubernetes:gateway.networking.k8s.io/v1:HTTPRoute", "inference-gateway/llm/gemma")]
    # Pulumi deletes what the program no longer registers at the end of an update, after the route has changed.
    gemma, _ = gateway_example()["gke-ai:serving"]
    routes = [{"name": "gemma", "servers": [{"server": "gemma"}]}]
    record = shared_record(gateway_example({"routes": routes}, serving=[gemma]))
    assert [ref["name"] for ref in record.one("HTTPRoute").inputs["spec"]["rules"][0]["backendRefs"]] == ["gemma"]
    assert not [resource for resource in record.resources.values() if "gemma-next" in resource.object_name]


# --- the API key ------------------------------------------------------------------------------------------------------
def test_key_is_only_in_its_secret() -> None:
    record = shared_record(gateway_example())
    others = [resource for resource in record.resources.values() if resource.object_name != "gateway-api-key"]
    assert not [resource.name for resource in others if GATEWAY_KEY in str(resource.inputs)]
    assert GATEWAY_KEY not in str(record.outputs)


def test_engine_that_checks_no_key_is_refused_and_a_pool_is_a_component(build: Callable[..., Record]) -> None:
    server = {"name": "s", "namespace": "llm", "model": "google/gemma-3-4b-it", "accelerator": "nvidia-l4"}
    assert "VLLM_API_KEY" in str(build(VllmServer, server, apiKey=True).one("Deployment").inputs)
    with pytest.raises(Refused, match="api_key: Text Generation Inference cannot require an API key"):
        build(TgiServer, server, apiKey=True)
    record = build(InferencePool, {"name": "gemma", "namespace": "llm", "app": "gemma-app", "port": 9000})
    (pool,) = (pool for pool in record.all("InferencePool") if pool.inputs.get("kind"))
    assert plain(pool.inputs["spec"])["targetPorts"] == [{"number": 9000}]


# --- the address ------------------------------------------------------------------------------------------------------
ADDRESSES = [{"type": "IPAddress", "value": "10.0.0.5"}]
PROGRAMMED = {"type": "Programmed", "status": "True", "observedGeneration": 1}
NO_SUBNETWORK = {"type": "Programmed", "status": "False", "message": "no active proxy-only subnetwork"}


@pytest.mark.parametrize(
    ("generation", "status", "expected"),
    [
        (1, {"conditions": [PROGRAMMED], "addresses": ADDRESSES}, ("10.0.0.5", None)),
        (2, {"conditions": [PROGRAMMED], "addresses": ADDRESSES}, ("", "its load balancer")),
        (1, {"conditions": [PROGRAMMED]}, ("", "its load balancer")),
        (1, {}, ("", "its load balancer")),
        (1, {"conditions": [NO_SUBNETWORK]}, ("", "its load balancer: no active proxy-only subnetwork")),
    ],
)
def test_address_is_known_once_the_gateway_is_programmed(
    generation: int, status: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    assert address_of({"metadata": {"generation": generation}, "status": status}) == expected


def test_gateway_needs_the_apis_of_its_parts() -> None:
    def apis(**gateway: Any) -> list[str]:
        return needs.apis(load_stack(gateway_example(gateway)))

    assert "networkservices.googleapis.com" in apis()
    assert "certificatemanager.googleapis.com" not in apis()
    assert "certificatemanager.googleapis.com" in apis(plainHttp=False, certificate="llm")


# --- several models and adapters behind one address -------------------------------------------------------------------
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


def canary(gemma: int, gemma_next: int, *adapters: list[Any]) -> dict[str, Any]:
    """Two versions of a server with these weights and, if stated, adapters."""
    servers = [{"server": "gemma", "weight": gemma}, {"server": "gemma-next", "weight": gemma_next}]
    config = gateway_example({"routes": [{"name": "gemma", "servers": servers}]})
    for server, own in zip(config["gke-ai:serving"], adapters, strict=False):
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
    record = shared_record(canary(*weights, adapters, adapters_next))
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


# --- who reaches the servers, by NetworkPolicies ----------------------------------------------------------------------
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
