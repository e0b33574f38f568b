"""Envoy's configuration and the objects' status, from the objects of the Gateway API."""

import base64
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.cloud.records import write
from emulator.gateway import envoy_config
from emulator.gateway.envoy_config import Picker, Place
from emulator.gateway.routes import Key, Objects, key_of
from emulator.gateway.status import gateway_status, pool_status, route_status
from emulator.machine import processes
from emulator.tests.gateway_objects import certificate
from emulator.tests.harness import eventually

Object = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden" / "envoy_canary.json"
HTTP = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "Same"}}}
HTTPS = HTTP | {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}}
PICKERS = {("llm", "old"): [Picker(21001, 21002, "readiness"), Picker(21003, 21004, "readiness")]}
EVERY_PATH = [{"path": {"type": "PathPrefix", "value": "/"}}]


def gateway(*of_listeners: Object, namespace: str = "llm") -> Object:
    metadata = {"name": "inference-gateway", "namespace": namespace, "generation": 1}
    spec = {"gatewayClassName": "gke-l7-rilb", "listeners": list(of_listeners) or [HTTP]}
    return {"metadata": metadata, "spec": spec}


def ref(name: str, weight: int = 1, **changed: object) -> Object:
    return {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "weight": weight, **changed}


def route(*refs: Object, name: str = "chat", namespace: str = "llm", **spec: object) -> Object:
    rules = [{"matches": EVERY_PATH, "backendRefs": list(refs)}]
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway", "namespace": "llm"}
    metadata = {"name": name, "namespace": namespace, "generation": 1}
    return {"metadata": metadata, "spec": {"parentRefs": [parent], "rules": rules, **spec}}


def pool(name: str, mode: str = "FailClose") -> Object:
    picker = {"group": "", "kind": "Service", "name": f"{name}-epp", "port": {"number": 9002}, "failureMode": mode}
    spec = {"endpointPickerRef": picker, "selector": {"matchLabels": {"app": name}}, "targetPorts": [{"number": 8000}]}
    return {"metadata": {"name": name, "namespace": "llm", "generation": 1}, "spec": spec}


def extension(target: str, namespace: str = "llm") -> Object:
    reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": target}
    backend = {"group": "", "kind": "Service", "name": "router", "port": 9004}
    chain = {"name": "chain", "extensions": [{"name": "router", "authority": "router", "backendRef": backend}]}
    spec = {"targetRefs": [reference], "extensionChains": [chain]}
    return {"metadata": {"name": "router", "namespace": namespace}, "spec": spec}


def policy(target: str, seconds: int) -> Object:
    reference = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": target}
    spec = {"targetRef": reference, "default": {"timeoutSec": seconds}}
    return {"metadata": {"name": target, "namespace": "llm"}, "spec": spec}


def objects(
    routes: Iterable[Object],
    pools: Iterable[Object] = (pool("old"), pool("new")),
    policies: Iterable[Object] = (),
    certificates: Iterable[Object] = (),
    extensions: Iterable[Object] = (),
) -> Objects:
    label = "kubernetes.io/metadata.name"
    of_cluster: dict[Key, Object] = {("", name): {"metadata": {"labels": {label: name}}} for name in ("llm", "other")}
    kinds = (routes, pools, policies, certificates, extensions)
    of_routes, of_pools, of_policies, secrets, added = ({key_of(item): item for item in items} for items in kinds)
    return Objects({}, of_routes, of_pools, of_policies, secrets, of_cluster, added)


def files(
    whole: Object,
    known: Objects,
    log: Path = Path("/log"),
    pki: Path = Path("/pki"),
    folder: Path = Path("/gateway"),
    callouts: Mapping[Key, Sequence[Picker]] | None = None,
) -> dict[str, Object]:
    ports = {listener["name"]: 20000 + listener["port"] for listener in whole["spec"]["listeners"]}
    return envoy_config.files(whole, known, PICKERS, Place(folder, ports, log / "access.log", 22000, pki), callouts)


def envoy_routes(whole: Object, known: Objects) -> list[Object]:
    """The routes of the first virtual host of the HTTP listener."""
    (found,) = files(whole, known)["routes_http.json"]["resources"]
    hosts: list[Object] = found["virtual_hosts"]
    return hosts[0]["routes"] if hosts else []


def shares(found: Object) -> dict[str, int]:
    return {cluster["name"]: cluster["weight"] for cluster in found["route"]["weighted_clusters"]["clusters"]}


CANARY = objects([route(ref("old", 90), ref("new", 10))], policies=[policy("old", 600), policy("new", 600)])


def test_a_canary_becomes_the_recorded_configuration() -> None:
    """Renew the file with `python -m emulator.tests.test_envoy_config`."""
    assert files(gateway(), CANARY) == json.loads(GOLDEN.read_text())


def test_envoy_accepts_the_configuration(tmp_path: Path) -> None:
    """Envoy reads the files that it watches only while it runs, so here they are part of its static configuration."""
    cert = certificate("cert")
    for key, name in {"tls.crt": "admin.crt", "tls.key": "admin.key"}.items():
        (tmp_path / name).write_bytes(base64.b64decode(cert["data"][key]))
    managed = HTTPS | {"name": "managed", "port": 444}
    managed["tls"] = {"options": {"networking.gke.io/cert-manager-certs": "c"}}
    whole = gateway(HTTP, HTTPS, managed)
    hosts = ["llm.example.com", "*.example.com"]
    routes = [route(ref("old", 90), ref("new", 10), ref("missing"), hostnames=hosts), route(ref("old", 0), name="none")]
    pools, extensions = [pool("old", "FailOpen"), pool("new")], [extension("inference-gateway")]
    known = objects(routes, pools, [policy("old", 600)], [cert], extensions)
    written = files(whole, known, tmp_path, tmp_path)
    static: Object = {"clusters": written["clusters.json"]["resources"], "listeners": []}
    for listener in written["listeners.json"]["resources"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        (routes,) = written[f"routes_{manager.pop('rds')['route_config_name']}.json"]["resources"]
        manager["route_config"] = untyped(routes) | {"validate_clusters": False}
        static["listeners"].append(untyped(listener))
    static["clusters"] = [untyped(cluster) for cluster in static["clusters"]]
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps({"static_resources": static}))
    options = ["--mode", "validate", "--config-path", str(file), "--log-level", "error"]
    checked = subprocess.run([processes.tool("envoy"), *options], capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stderr
    assert [listener["name"] for listener in static["listeners"]] == ["http", "https", "managed"]


def test_envoy_changes_routes_for_open_connections(tmp_path: Path) -> None:
    """A listener that is replaced would serve its open connections by the old routes for ten minutes."""
    (port,) = processes.free_ports(1)
    whole = gateway(HTTP | {"port": port - 20000})  # `files` adds 20000

    def configure(known: Objects) -> None:
        for name, content in files(whole, known, tmp_path, folder=tmp_path).items():
            write(tmp_path / name, content)

    configure(objects([route(ref("old", 0))]))
    options = ["--config-path", str(tmp_path / "bootstrap.json"), "--disable-hot-restart", "--concurrency", "1"]
    with (
        subprocess.Popen([processes.tool("envoy"), *options, "--log-level", "error"]) as envoy,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client,
    ):
        try:
            eventually(lambda: answers(client), "Envoy listens")
            assert answers(client) == 500  # no pool has a weight
            configure(objects([]))
            eventually(lambda: answers(client) == 404, "there is no route")
        finally:
            envoy.kill()


def answers(client: httpx.Client) -> int:
    try:
        return client.get("/").status_code
    except httpx.ConnectError:
        return 0


def untyped(resource: Object) -> Object:
    return {key: value for key, value in resource.items() if key != "@type"}


def test_each_share_asks_the_picker_of_its_pool_and_fails_as_the_pool_says() -> None:
    known = objects([route(ref("old"), ref("new"))], [pool("old", "FailOpen"), pool("new")])
    (found,) = envoy_routes(gateway(), known)
    asked = {}
    for cluster in found["route"]["weighted_clusters"]["clusters"]:
        overrides = cluster["typed_per_filter_config"]["envoy.filters.http.ext_proc"]["overrides"]
        picker = overrides["grpc_service"]["envoy_grpc"]["cluster_name"]
        asked[cluster["name"]] = (picker, overrides["failure_mode_allow"])
    assert asked == {"pool/llm/old": ("picker/llm/old", True), "pool/llm/new": ("picker/llm/new", False)}


def test_a_picker_has_as_much_time_for_its_probe_as_for_a_request() -> None:
    """Otherwise a busy machine takes the leader for a standby, and the pool answers nothing."""
    written = files(gateway(), CANARY)
    (picker,) = (cluster for cluster in written["clusters.json"]["resources"] if cluster["name"] == "picker/llm/old")
    manager = written["listeners.json"]["resources"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    request = manager["http_filters"][1]["typed_config"]["message_timeout"]
    assert [probe["timeout"] for probe in picker["health_checks"]] == [request]


def test_a_route_without_any_weight_answers_500_and_the_share_of_a_missing_pool_goes_nowhere() -> None:
    (found,) = envoy_routes(gateway(), objects([route(ref("old", 0), ref("new", 0))]))
    assert found["direct_response"] == {"status": 500}
    (found,) = envoy_routes(gateway(), objects([route(ref("old", 1), ref("gone", 1))]))
    assert shares(found) == {"pool/llm/old": 1, "no-such-pool": 1}
    assert "no-such-pool" not in {cluster["name"] for cluster in files(gateway(), CANARY)["clusters.json"]["resources"]}
    assert found["route"]["timeout"] == "30s", "without a policy: the recorded configuration has one"


@pytest.mark.parametrize(
    ("target", "namespace", "calls"),
    [("inference-gateway", "llm", True), ("other", "llm", False), ("inference-gateway", "other", False)],
)
def test_hosts_of_a_gateway_call_its_extension(target: str, namespace: str, calls: bool) -> None:
    host, clusters = host_and_clusters(objects([route(ref("old"))], extensions=[extension(target, namespace)]))
    assert ("typed_per_filter_config" in host) == calls
    if calls:
        service = host["typed_per_filter_config"]["extension"]["overrides"]["grpc_service"]
        assert service["envoy_grpc"]["cluster_name"] in clusters


def host_and_clusters(
    known: Objects, callouts: Mapping[Key, Sequence[Picker]] | None = None
) -> tuple[Object, list[str]]:
    written = files(gateway(), known, callouts=callouts)
    (host,) = written["routes_http.json"]["resources"][0]["virtual_hosts"]
    return host, [cluster["name"] for cluster in written["clusters.json"]["resources"]]


def test_the_cluster_of_an_extension_exists_before_the_extension_is_applied() -> None:
    """Envoy uses a new cluster once its servers have passed a health check, and fails requests until then."""
    host, clusters = host_and_clusters(objects([route(ref("old"))]), {("llm", "router"): [Picker(9004, 9005)]})
    assert "typed_per_filter_config" not in host
    assert "extension/llm/router" in clusters


def test_routes_that_match_a_header_come_before_those_that_match_all() -> None:
    header = {"type": "Exact", "name": "X-Gateway-Model-Name", "value": "sql"}
    of_model = route(ref("new"), name="second")
    of_model["spec"]["rules"][0]["matches"] = [{**EVERY_PATH[0], "headers": [header]}]
    first, second = envoy_routes(gateway(), objects([route(ref("old")), of_model]))
    assert first["match"]["headers"] == [{"name": "X-Gateway-Model-Name", "string_match": {"exact": "sql"}}]
    assert "headers" not in second["match"]


def test_exact_paths_come_first_and_then_the_longest_prefix() -> None:
    paths = [("PathPrefix", "/"), ("PathPrefix", "/v1"), ("PathPrefix", "/v1/chat/"), ("Exact", "/v1")]
    matches = [{"path": {"type": kind, "value": value}} for kind, value in paths]
    known = objects([route(rules=[{"matches": matches, "backendRefs": [ref("old")]}])])
    prefixes = [{"path_separated_prefix": "/v1/chat"}, {"path_separated_prefix": "/v1"}, {"prefix": "/"}]
    assert [found["match"] for found in envoy_routes(gateway(), known)] == [{"path": "/v1"}, *prefixes]


def selected(*namespaces: str) -> Object:
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    return {"from": "Selector", "selector": {"matchExpressions": [expression]}}


ALLOWED = [({"from": "Same"}, 0), ({"from": "All"}, 1), ({"from": "None"}, 0)]


@pytest.mark.parametrize(("allowed", "attached"), [*ALLOWED, (selected("llm"), 0), (selected("llm", "other"), 1)])
def test_a_route_of_another_namespace_needs_the_listeners_permission(allowed: Object, attached: int) -> None:
    listener = HTTP | {"allowedRoutes": {"namespaces": allowed}}
    elsewhere = route(ref("old"), namespace="other")
    whole, known = gateway(listener), objects([elsewhere])
    assert len(envoy_routes(whole, known)) == attached
    status = gateway_status(whole, known, {})
    assert status["listeners"][0]["attachedRoutes"] == attached
    accepted = route_status(elsewhere, [whole], known)["parents"][0]["conditions"][0]
    expected = ("True", "Accepted") if attached else ("False", "NotAllowedByListeners")
    assert (accepted["status"], accepted["reason"]) == expected


def test_a_listener_waits_for_its_certificate() -> None:
    whole, known = gateway(HTTP, HTTPS), objects([])
    assert [found["name"] for found in files(whole, known)["listeners.json"]["resources"]] == ["http"]
    (_, https) = gateway_status(whole, known, {"http": "127.0.0.1:20080"})["listeners"]
    assert conditions(https) == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("False", "Pending"),
        "ResolvedRefs": ("False", "InvalidCertificateRef"),
    }


def conditions(item: Object) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in item["conditions"]}


def test_a_gateway_is_programmed_once_each_listener_works_and_keeps_the_time_of_its_last_change() -> None:
    waiting = gateway_status(gateway(), CANARY, {})
    assert conditions(waiting)["Programmed"] == ("False", "Pending")
    for condition in waiting["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    done = gateway_status(gateway() | {"status": waiting}, CANARY, {"http": "127.0.0.1:20080"})
    assert conditions(done)["Programmed"] == ("True", "Programmed")
    assert [address["value"] for address in done["addresses"]] == ["127.0.0.1:20080"]
    times = {condition["type"]: condition["lastTransitionTime"] for condition in done["conditions"]}
    assert times["Programmed"] > times["Accepted"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (ref("old"), "ResolvedRefs"),
        (ref("gone"), "BackendNotFound"),
        (ref("old", group="", kind="Service"), "InvalidKind"),
        (ref("old", namespace="other"), "InvalidKind"),
    ],
)
def test_a_route_says_whether_its_pools_exist(reference: Object, reason: str) -> None:
    known = objects([of := route(reference)])
    (parent,) = route_status(of, [gateway()], known)["parents"]
    assert conditions(parent)["ResolvedRefs"] == ("True" if reason == "ResolvedRefs" else "False", reason)


def test_a_pool_says_whether_its_picker_exists() -> None:
    for services, status in (([("llm", "old-epp")], "True"), ([], "False")):
        (parent,) = pool_status(pool("old"), [gateway()], CANARY, services)["parents"]
        assert conditions(parent)["ResolvedRefs"][0] == status
        assert pool_status(pool("unused"), [gateway()], CANARY, services) == {"parents": []}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(files(gateway(), CANARY), indent=1, sort_keys=True) + "\n")
