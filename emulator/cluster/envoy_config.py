"""Translates the Gateway API's objects into Envoy's configuration: one Envoy per Gateway.

Envoy asks the endpoint picker of an InferencePool which pod gets a request (ext_proc, the protocol that GKE's load
balancers speak too) and sends the request to the daemon's pod proxy, which reads the picker's answer. The settings of
ext_proc are those that the endpoint picker is tested with:
https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.3.0/test/testdata/envoy.yaml
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path

from emulator.cluster.gateway_routes import Key, Object, Objects, attached, picker_service, pool_of, precedence
from emulator.cluster.gateway_routes import timeout_seconds
from emulator.cluster.pod_proxy import DESTINATION_HEADER, POOL_HEADER

EXT_PROC = "envoy.filters.http.ext_proc"
# A cluster without endpoints. The picker of routes that name none, and the backend of references without a pool.
NOWHERE = "nowhere"
# Seconds that a picker may take for each message. Envoy's default of 0.2 s is too short on a busy machine.
PICKER_SECONDS = 10


def _type(name: str) -> str:
    return f"type.googleapis.com/envoy.{name}"


def bootstrap(folder: Path) -> Object:
    """Envoy's static configuration: it watches two files in `folder`. It has no admin interface."""
    watched = {
        name: {"path_config_source": {"path": str(folder / f"{file}.json")}, "resource_api_version": "V3"}
        for name, file in (("cds_config", "clusters"), ("lds_config", "listeners"))
    }
    return {"node": {"id": "gateway", "cluster": "emulator"}, "dynamic_resources": watched}


def listeners(gateway: Object, objects: Objects, ports: Mapping[str, int]) -> Object:
    """The content of `listeners.json`. `ports` are the local ports by name of the Gateway's listener.

    A listener whose certificate doesn't exist is left out.
    """
    resources = []
    for listener in gateway["spec"]["listeners"]:
        chain: Object = {"filters": [_connection_manager(gateway, listener, objects)]}
        if listener["protocol"] == "HTTPS":
            if (certificate := certificate_of(gateway, listener, objects)) is None:
                continue
            chain["transport_socket"] = _tls("DownstreamTlsContext", tls_certificates=[_pem(certificate)])
        resources.append(
            {
                "@type": _type("config.listener.v3.Listener"),
                "name": listener["name"],
                "address": _address(ports[listener["name"]]),
                "filter_chains": [chain],
            }
        )
    return {"resources": resources}


def clusters(gateway: Object, objects: Objects, proxy: int, find: Callable[[str], int | None]) -> Object:
    """The content of `clusters.json`.

    Args:
        gateway: The Gateway.
        objects: The objects of the cluster.
        proxy: Port of the pod proxy.
        find: Returns the local port for a target, as `egress.resolve` does.
    """
    resources = [_cluster(NOWHERE, None)]
    for key in _pools_of(gateway, objects):
        http1 = {
            "explicit_http_config": {"http_protocol_options": {}},
            # The pod proxy closes each connection after one answer.
            "common_http_protocol_options": {"max_requests_per_connection": 1},
        }
        resources.append(_cluster(_backend(key), proxy, http1))
        http2: Object = {"explicit_http_config": {"http2_protocol_options": {}}}
        picker = _cluster(_picker(key), find(picker_service(objects.pools[key])), http2)
        # The picker's certificate is self-signed, and clients don't verify it:
        # https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.3.0/internal/tls/tls.go
        picker["transport_socket"] = _tls("UpstreamTlsContext", alpn_protocols=["h2"])
        resources.append(picker)
    return {"resources": resources}


def certificate_of(gateway: Object, listener: Object, objects: Objects) -> Object | None:
    """The Secret with the certificate of an HTTPS listener, or None."""
    for ref in (listener.get("tls") or {}).get("certificateRefs") or []:
        namespace = gateway["metadata"]["namespace"]
        if ref.get("namespace", namespace) == namespace:
            return objects.certificates.get((namespace, ref["name"]))
    return None


def _connection_manager(gateway: Object, listener: Object, objects: Objects) -> Object:
    hosts: dict[str, list[tuple[Object, Object]]] = {}
    for route in attached(gateway, listener, objects.routes.values()):
        rules = [(match, _route(match, rule, route, objects)) for rule in route["spec"]["rules"] for match in rule["matches"]]
        for host in route["spec"].get("hostnames") or [listener.get("hostname", "*")]:
            hosts.setdefault(host, []).extend(rules)
    virtual_hosts = [
        {
            "name": host,
            "domains": [host] if host == "*" else [host, f"{host}:*"],
            "routes": [route for _, route in sorted(rules, key=lambda rule: precedence(rule[0]))],
        }
        for host, rules in sorted(hosts.items())
    ]
    # Routes enable it and name their picker.
    ext_proc = {
        "@type": _type("extensions.filters.http.ext_proc.v3.ExternalProcessor"),
        "grpc_service": _grpc(NOWHERE),
        "message_timeout": f"{PICKER_SECONDS}s",
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SEND",
            "response_body_mode": "FULL_DUPLEX_STREAMED",
            "response_trailer_mode": "SEND",
        },
    }
    removed = {
        "@type": _type("extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"),
        "mutations": [{"remove": header} for header in (DESTINATION_HEADER, POOL_HEADER)],
    }
    router = {"@type": _type("extensions.filters.http.router.v3.Router")}
    manager = {
        "@type": _type("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": listener["name"],
        "use_remote_address": True,
        # A client must not pick its pod.
        "early_header_mutation_extensions": [
            {"name": "envoy.http.early_header_mutation.header_mutation", "typed_config": removed}
        ],
        "route_config": {"name": listener["name"], "validate_clusters": False, "virtual_hosts": virtual_hosts},
        "http_filters": [
            {"name": EXT_PROC, "disabled": True, "typed_config": ext_proc},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}


def _route(match: Object, rule: Object, route: Object, objects: Objects) -> Object:
    path = match["path"]
    if path["type"] == "Exact":
        envoy_match: Object = {"path": path["value"]}
    elif path["value"] == "/":
        envoy_match = {"prefix": "/"}
    else:
        envoy_match = {"path_separated_prefix": path["value"].rstrip("/")}
    if match.get("headers"):
        envoy_match["headers"] = [
            {"name": header["name"], "string_match": {"exact": header["value"]}} for header in match["headers"]
        ]
    backends = [(ref, pool_of(ref, route)) for ref in rule.get("backendRefs") or []]
    pools = [pool for _, pool in backends if pool in objects.pools]
    if not any(ref["weight"] for ref, _ in backends):
        return {"match": envoy_match, "direct_response": {"status": 500}}
    weighted = [_weighted(ref["weight"], pool if pool in objects.pools else None, objects) for ref, pool in backends]
    timeout = min((timeout_seconds(pool, objects.policies.values()) for pool in pools if pool), default=0)
    return {
        "match": envoy_match,
        "route": {
            "weighted_clusters": {"clusters": weighted},
            "timeout": f"{timeout}s",
            # The Gateway API demands 500 for a share without a backend.
            "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
        },
    }


def _weighted(weight: int, pool: Key | None, objects: Objects) -> Object:
    if pool is None:
        return {"name": "no-such-pool", "weight": weight}
    fails_open = objects.pools[pool]["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen"
    overrides = {"grpc_service": _grpc(_picker(pool)), "failure_mode_allow": fails_open}
    per_route = {"@type": _type("extensions.filters.http.ext_proc.v3.ExtProcPerRoute"), "overrides": overrides}
    header = {"key": POOL_HEADER, "value": "/".join(pool)}
    return {
        "name": _backend(pool),
        "weight": weight,
        "typed_per_filter_config": {EXT_PROC: per_route},
        "request_headers_to_add": [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
    }


def _pools_of(gateway: Object, objects: Objects) -> list[Key]:
    found = {
        pool
        for listener in gateway["spec"]["listeners"]
        for route in attached(gateway, listener, objects.routes.values())
        for rule in route["spec"]["rules"]
        for ref in rule.get("backendRefs") or []
        if (pool := pool_of(ref, route)) in objects.pools
    }
    return sorted(pool for pool in found if pool)


def _cluster(name: str, port: int | None, options: Object | None = None) -> Object:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}] if port else []
    cluster: Object = {
        "@type": _type("config.cluster.v3.Cluster"),
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
    }
    if options:
        http = {"@type": _type("extensions.upstreams.http.v3.HttpProtocolOptions"), **options}
        cluster["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http}
    return cluster


def _backend(pool: Key) -> str:
    return f"pool/{pool[0]}/{pool[1]}"


def _picker(pool: Key) -> str:
    return f"picker/{pool[0]}/{pool[1]}"


def _grpc(cluster: str) -> Object:
    return {"envoy_grpc": {"cluster_name": cluster}}


def _address(port: int) -> Object:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _tls(context: str, **common: object) -> Object:
    typed = {"@type": _type(f"extensions.transport_sockets.tls.v3.{context}"), "common_tls_context": common}
    return {"name": "envoy.transport_sockets.tls", "typed_config": typed}


def _pem(secret: Object) -> Object:
    def inline(key: str) -> Object:
        return {"inline_string": base64.b64decode(secret["data"][key]).decode()}

    return {"certificate_chain": inline("tls.crt"), "private_key": inline("tls.key")}
