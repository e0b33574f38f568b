"""Translates the Gateway API's objects into Envoy's configuration: one Envoy per Gateway.

Envoy asks the endpoint picker of an InferencePool which pod gets a request (ext_proc, the protocol that GKE's load
balancers speak too) and sends the request to the daemon's pod proxy, which reads the picker's answer. The settings of
ext_proc are those that the endpoint picker is tested with:
https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/test/testdata/envoy.yaml
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.gateway.routes import (
    Key,
    Object,
    Objects,
    attached,
    extension_of,
    key_of,
    pool_of,
    precedence,
    timeout_seconds,
)
from emulator.pods.proxy import DESTINATION_HEADER, POOL_HEADER
from gke_ai.catalog.engines.inference_extension import MODEL_HEADER

EXT_PROC = "envoy.filters.http.ext_proc"
# The filter of a GCPRoutingExtension. Hosts enable it.
EXTENSION = "extension"
HEADERS = "envoy.filters.http.header_mutation"
# A cluster without endpoints. The picker of routes that name none, and the backend of references without a pool.
NOWHERE = "nowhere"
# Seconds that a picker may take for each message and for its probe. Envoy's default of 0.2 s is too short on a busy
# machine. Envoy notices a standby, or a picker that has ended, without this wait.
PICKER_SECONDS = 10
PROBE_INTERVAL = "0.5s"
# Names certificates of Certificate Manager: https://cloud.google.com/kubernetes-engine/docs/how-to/secure-gateway
CERTIFICATES_OPTION = "networking.gke.io/cert-manager-certs"


@dataclass(frozen=True)
class Picker:
    """A replica of an endpoint picker: its local port, and that of its readiness probe, if it has one."""

    port: int
    probe_port: int | None = None
    probe_service: str = ""


def _type(name: str) -> str:
    return f"type.googleapis.com/envoy.{name}"


@dataclass(frozen=True)
class Place:
    """Where an Envoy runs.

    Attributes:
        folder: Folder of its files.
        ports: Its local ports, by name of the Gateway's listener.
        access_log: File to which it writes a line per request.
        proxy: Port of the pod proxy.
        pki: Folder with the cluster's certificate, in place of those of Certificate Manager.
    """

    folder: Path
    ports: Mapping[str, int]
    access_log: Path
    proxy: int
    pki: Path


def files(
    gateway: Object,
    objects: Objects,
    pickers: Mapping[Key, Sequence[Picker]],
    place: Place,
    callouts: Mapping[Key, Sequence[Picker]] | None = None,
) -> dict[str, Object]:
    """The content of Envoy's files, by name. A file refers only to those before it.

    The routes of each listener have a file of their own. Envoy replaces them for open connections too.

    Args:
        gateway: The Gateway.
        objects: The objects of the cluster.
        pickers: The endpoint pickers that run, by InferencePool.
        place: Where Envoy runs.
        callouts: The servers that GCPRoutingExtensions call, by GCPRoutingExtension. They speak the pickers' protocol.
    """
    working = [listener for listener in gateway["spec"]["listeners"] if has_certificate(gateway, listener, objects)]
    routes = {_routes_file(listener): {"resources": [_routes(gateway, listener, objects)]} for listener in working}
    watched = {"cds_config": "clusters.json", "lds_config": "listeners.json"}
    return {
        "clusters.json": {"resources": clusters(objects, place.proxy, pickers, callouts or {})},
        **routes,
        "listeners.json": {"resources": [_listener(gateway, listener, objects, place) for listener in working]},
        # Envoy's static configuration. It has no admin interface.
        "bootstrap.json": {
            "node": {"id": "gateway", "cluster": "emulator"},
            "dynamic_resources": {name: _watched(place.folder / file) for name, file in watched.items()},
        },
    }


def clusters(
    objects: Objects, proxy: int, pickers: Mapping[Key, Sequence[Picker]], callouts: Mapping[Key, Sequence[Picker]]
) -> list[Object]:
    """Envoy's clusters: for each InferencePool one of its pods and one of its endpoint picker, and one for each
    GCPRoutingExtension.
    """
    resources = [_cluster(NOWHERE, [])]
    # Also those without a route: so a change of routes needs no change of clusters, and loses no request.
    for key in sorted(objects.pools):
        http1 = {
            "explicit_http_config": {"http_protocol_options": {}},
            # The pod proxy closes each connection after one answer.
            "common_http_protocol_options": {"max_requests_per_connection": 1},
        }
        picker = _picker_cluster(_picker(key), pickers.get(key, ()))
        resources += [_cluster(_backend(key), [_endpoint(proxy)], http1), picker]
    # Also those of extensions that are not applied yet, for the same reason.
    extensions = sorted({*objects.extensions, *callouts})
    return resources + [_picker_cluster(_callout(key), callouts.get(key, ())) for key in extensions]


def _watched(file: Path) -> Object:
    return {"path_config_source": {"path": str(file)}, "resource_api_version": "V3"}


def _routes_file(listener: Object) -> str:
    return f"routes_{listener['name']}.json"


def _listener(gateway: Object, listener: Object, objects: Objects, place: Place) -> Object:
    chain: Object = {"filters": [_connection_manager(listener, place)]}
    if listener["protocol"] == "HTTPS":
        certificate = _pem(_secret(gateway, listener, objects), place.pki)
        chain["transport_socket"] = _tls("DownstreamTlsContext", tls_certificates=[certificate])
    return {
        "@type": _type("config.listener.v3.Listener"),
        "name": listener["name"],
        "address": _address(place.ports[listener["name"]]),
        "filter_chains": [chain],
    }


def _picker_cluster(name: str, pickers: Sequence[Picker]) -> Object:
    """The replicas of an endpoint picker, or of another server with its protocol.

    A standby of a picker with leader election runs, but isn't ready. The emulator's pods are always Ready, so Envoy
    itself asks each replica's readiness probe.
    """
    endpoints = [
        _endpoint(picker.port)
        | ({"health_check_config": {"port_value": picker.probe_port}} if picker.probe_port else {})
        for picker in pickers
    ]
    cluster = _cluster(name, endpoints, {"explicit_http_config": {"http2_protocol_options": {}}})
    # Its certificate is self-signed, and load balancers don't verify it:
    # https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/internal/tls/tls.go
    cluster["transport_socket"] = _tls("UpstreamTlsContext", alpn_protocols=["h2"])
    probed = [picker for picker in pickers if picker.probe_port]
    if probed:
        plain = {"@type": _type("extensions.transport_sockets.raw_buffer.v3.RawBuffer")}
        raw = {"name": "envoy.transport_sockets.raw_buffer", "typed_config": plain}
        cluster["transport_socket_matches"] = [{"name": "probe", "match": {"probe": True}, "transport_socket": raw}]
        cluster["health_checks"] = [
            {
                "timeout": f"{PICKER_SECONDS}s",
                "interval": PROBE_INTERVAL,
                "no_traffic_interval": PROBE_INTERVAL,
                "healthy_threshold": 1,
                "unhealthy_threshold": 1,
                "grpc_health_check": {"service_name": probed[0].probe_service},
                "transport_socket_match_criteria": {"probe": True},
            }
        ]
        # Never asks a standby, even if no replica is ready.
        cluster["common_lb_config"] = {"healthy_panic_threshold": {"value": 0}}
    return cluster


def has_certificate(gateway: Object, listener: Object, objects: Objects) -> bool:
    """Whether the certificate of a listener exists, if it needs one: a Secret, or one of Certificate Manager."""
    if listener["protocol"] == "HTTP":
        return True
    return CERTIFICATES_OPTION in _options(listener) or _secret(gateway, listener, objects) is not None


def _options(listener: Object) -> Object:
    return (listener.get("tls") or {}).get("options") or {}


def _secret(gateway: Object, listener: Object, objects: Objects) -> Object | None:
    namespace = gateway["metadata"]["namespace"]
    refs = (listener.get("tls") or {}).get("certificateRefs") or []
    own = [ref["name"] for ref in refs if ref.get("namespace", namespace) == namespace]
    return next((secret for name in own if (secret := objects.certificates.get((namespace, name)))), None)


def _routes(gateway: Object, listener: Object, objects: Objects) -> Object:
    hosts: dict[str, list[tuple[Object, Object]]] = {}
    for route in attached(gateway, listener, objects):
        rules = [
            (match, _route(match, rule, route, objects)) for rule in route["spec"]["rules"] for match in rule["matches"]
        ]
        for host in route["spec"].get("hostnames") or [listener.get("hostname", "*")]:
            hosts.setdefault(host, []).extend(rules)
    virtual_hosts = [
        {
            "name": host,
            "domains": [host],
            "routes": [route for _, route in sorted(rules, key=lambda rule: precedence(rule[0]))],
            **_extended(gateway, objects),
        }
        for host, rules in sorted(hosts.items())
    ]
    typed = {"@type": _type("config.route.v3.RouteConfiguration"), "name": listener["name"]}
    return typed | {"virtual_hosts": virtual_hosts}


def _extended(gateway: Object, objects: Objects) -> Object:
    """Enables the Gateway's GCPRoutingExtension for a host."""
    extension = extension_of(gateway, objects)
    if extension is None:
        return {}
    overrides = {"grpc_service": _grpc(_callout(key_of(extension)))}
    per_route = {"@type": _type("extensions.filters.http.ext_proc.v3.ExtProcPerRoute"), "overrides": overrides}
    return {"typed_per_filter_config": {EXTENSION: per_route}}


def _connection_manager(listener: Object, place: Place) -> Object:
    # Routes enable it and name their picker.
    ext_proc: Object = {
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
    requests_only = {"response_header_mode": "SKIP", "response_body_mode": "NONE", "response_trailer_mode": "SKIP"}
    extension = {**ext_proc, "processing_mode": {**ext_proc["processing_mode"], **requests_only}}
    removed = {
        "@type": _type("extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"),
        "mutations": [{"remove": header} for header in (DESTINATION_HEADER, POOL_HEADER)],
    }
    router = {"@type": _type("extensions.filters.http.router.v3.Router")}
    manager = {
        "@type": _type("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": listener["name"],
        "use_remote_address": True,
        "access_log": [{"name": "envoy.access_loggers.file", "typed_config": _access_log(place.access_log)}],
        # A client must not pick its pod.
        "early_header_mutation_extensions": [
            {"name": "envoy.http.early_header_mutation.header_mutation", "typed_config": removed}
        ],
        "strip_any_host_port": True,
        "rds": {
            "route_config_name": listener["name"],
            "config_source": _watched(place.folder / _routes_file(listener)),
        },
        "http_filters": [
            {
                "name": HEADERS,
                "typed_config": {"@type": _type("extensions.filters.http.header_mutation.v3.HeaderMutation")},
            },
            {"name": EXTENSION, "disabled": True, "typed_config": extension},
            {"name": EXT_PROC, "disabled": True, "typed_config": ext_proc},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}


def _access_log(file: Path) -> Object:
    line = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "path": "%REQ(:PATH)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "backend": "%UPSTREAM_CLUSTER%",
        "userAgent": "%REQ(USER-AGENT)%",
        "pod": f"%REQ({DESTINATION_HEADER})%",
        "model": f"%REQ({MODEL_HEADER})%",
        "milliseconds": "%DURATION%",
    }
    typed = {"@type": _type("extensions.access_loggers.file.v3.FileAccessLog"), "path": str(file)}
    return typed | {"log_format": {"json_format": line}}


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
    changed = _header_changes(rule)
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
        **({"typed_per_filter_config": {HEADERS: changed}} if changed else {}),
    }


def _header_changes(rule: Object) -> Object:
    """The header modifiers of a rule, for a filter before the endpoint picker's, as on GKE. Empty for none."""
    mutations = {
        f"{way}_mutations": [change for item in modifiers for change in _mutations(item)]
        for way in ("request", "response")
        if (modifiers := [item[key] for item in rule.get("filters") or [] if (key := f"{way}HeaderModifier") in item])
    }
    if not mutations:
        return {}
    per_route = {"@type": _type("extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute")}
    return {**per_route, "mutations": mutations}


def _mutations(modifier: Object) -> Iterator[Object]:
    for key, action in (("set", "OVERWRITE_IF_EXISTS_OR_ADD"), ("add", "APPEND_IF_EXISTS_OR_ADD")):
        for header in modifier.get(key) or []:
            written = {"key": header["name"], "value": header["value"]}
            yield {"append": {"header": written, "append_action": action}}
    yield from ({"remove": name} for name in modifier.get("remove") or [])


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


def _endpoint(port: int) -> Object:
    return {"address": _address(port)}


def _cluster(name: str, endpoints: list[Object], options: Object | None = None) -> Object:
    assigned = [{"lb_endpoints": [{"endpoint": endpoint} for endpoint in endpoints]}]
    cluster: Object = {
        "@type": _type("config.cluster.v3.Cluster"),
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": assigned if endpoints else []},
    }
    if options:
        http = {"@type": _type("extensions.upstreams.http.v3.HttpProtocolOptions"), **options}
        cluster["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http}
    return cluster


def _backend(pool: Key) -> str:
    return f"pool/{pool[0]}/{pool[1]}"


def _picker(pool: Key) -> str:
    return f"picker/{pool[0]}/{pool[1]}"


def _callout(extension: Key) -> str:
    return f"extension/{extension[0]}/{extension[1]}"


def _grpc(cluster: str) -> Object:
    return {"envoy_grpc": {"cluster_name": cluster}}


def _address(port: int) -> Object:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _tls(context: str, **common: object) -> Object:
    typed = {"@type": _type(f"extensions.transport_sockets.tls.v3.{context}"), "common_tls_context": common}
    return {"name": "envoy.transport_sockets.tls", "typed_config": typed}


def _pem(secret: Object | None, pki: Path) -> Object:
    if secret is None:
        files = {"certificate_chain": "admin.crt", "private_key": "admin.key"}
        return {name: {"filename": str(pki / file)} for name, file in files.items()}
    keys = {"certificate_chain": "tls.crt", "private_key": "tls.key"}
    return {name: {"inline_string": base64.b64decode(secret["data"][key]).decode()} for name, key in keys.items()}
