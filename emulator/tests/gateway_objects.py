"""The objects of a Gateway with model servers, as a user writes them for GKE, for tests."""

import base64
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gke_ai.catalog.engines.engine import ENGINES

Object = dict[str, Any]
NAMESPACE = "llm"
KEY_SECRET = "gateway-api-key"
PICKER_IMAGE = "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0"
ROUTER, ROUTER_IMAGE = "body-based-router", "registry.k8s.io/gateway-api-inference-extension/bbr:v1.5.0"
RBAC = "rbac.authorization.k8s.io"
# Scores as the official chart configures them, without the prefix cache: a test sends each prompt once.
SCORERS = ("queue-scorer", "kv-cache-utilization-scorer")
PLUGINS = {
    "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [{"type": name} for name in SCORERS],
    "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": name, "weight": 2} for name in SCORERS]}],
}


def _object(api_version: str, kind: str, name: str, **content: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **content}


def _deployment(name: str, replicas: int, pod: Object) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def server(name: str, replicas: int, slots: int = 2, token_seconds: float = 0.002, adapter: str = "") -> Object:
    """A vLLM server that runs `slots` requests at once, with a LoRA adapter."""
    adapters = ["--lora-modules", f"{adapter}=/adapters/{adapter}", "--enable-lora"] if adapter else []
    arguments = ["--model=google/gemma-2b", "--port=8000", f"--max-num-seqs={slots}", "--shutdown-timeout=50"]
    env: list[Object] = [{"name": "GKE_AI_STUB_TOKEN_SECONDS", "value": str(token_seconds)}]
    env += [{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": KEY_SECRET, "key": "key"}}}]
    container: Object = {"name": "server", "image": ENGINES["vllm"].image, "args": [*arguments, *adapters], "env": env}
    container["ports"] = [{"containerPort": 8000}]
    return _deployment(name, replicas, {"containers": [container]})


def api_key(value: str) -> Object:
    """The Secret with the API key of the servers."""
    return _object("v1", "Secret", KEY_SECRET, stringData={"key": value})


def pool(name: str, mode: str = "FailClose", pickers: int = 1) -> list[Object]:
    """An InferencePool of the server of this name, and its endpoint picker with its permissions."""
    picker = f"{name}-epp"
    rules = [
        _rule("", "pods", *READ),
        _rule("inference.networking.k8s.io", "inferencepools", *READ),
        *(
            _rule("inference.networking.x-k8s.io", f"inference{kind}", *READ)
            for kind in ("objectives", "modelrewrites")
        ),
        _rule("coordination.k8s.io", "leases", "*"),
        _rule("", "events", "create", "patch"),
    ]
    election = ["--ha-enable-leader-election"] if pickers > 1 else []
    fields = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    container = {
        "name": "epp",
        "image": PICKER_IMAGE,
        "args": ["--pool-name", name, "--config-file", "/config/plugins.yaml", "--tracing=false", *election],
        "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()],
        "ports": [{"containerPort": port} for port in (9002, 9003, 9090)],
        "readinessProbe": {"grpc": {"port": 9003, "service": "readiness" if election else "inference-extension"}},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    volumes = [{"name": "config", "configMap": {"name": picker}}]
    service = {"selector": {"app": picker}, "ports": [{"name": "grpc-ext-proc", "port": 9002}]}
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": picker, "port": {"number": 9002}, "failureMode": mode},
    }
    return [
        *_permissions(picker, rules),
        _object("v1", "ConfigMap", picker, data={"plugins.yaml": yaml.safe_dump(PLUGINS)}),
        _object("v1", "Service", picker, spec=service),
        _object("inference.networking.k8s.io/v1", "InferencePool", name, spec=spec),
        _deployment(picker, pickers, {"serviceAccountName": picker, "containers": [container], "volumes": volumes}),
    ]


READ = ("get", "list", "watch")


def _rule(group: str, resource: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _permissions(name: str, rules: list[Object]) -> list[Object]:
    """A service account, and what it may do in its namespace."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    return [
        _object("v1", "ServiceAccount", name),
        _object(f"{RBAC}/v1", "Role", name, rules=rules),
        _object(f"{RBAC}/v1", "RoleBinding", name, subjects=[account], roleRef=role),
    ]


def gateway(*listeners: Object) -> Object:
    """A Gateway of GKE's internal class."""
    spec = {"gatewayClassName": "gke-l7-rilb", "listeners": list(listeners)}
    return _object("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", spec=spec)


def route(**weights: int) -> Object:
    """An HTTPRoute that divides all requests among pools."""
    reference = {"group": "inference.networking.k8s.io", "kind": "InferencePool"}
    refs = [reference | {"name": name, "weight": weight} for name, weight in weights.items()]
    spec = {"parentRefs": [{"name": "inference-gateway"}], "rules": [{"backendRefs": refs}]}
    return _object("gateway.networking.k8s.io/v1", "HTTPRoute", "chat", spec=spec)


def router() -> list[Object]:
    """The router of the Gateway by the model of a request, as its chart writes it."""
    env = [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
    container: Object = {"name": "bbr", "image": ROUTER_IMAGE, "args": ["--streaming", "--v", "3"], "env": env}
    container["ports"] = [{"containerPort": port} for port in (9004, 9005)]
    extension = {
        "name": "ext1",
        "authority": "myext.com",
        "timeout": "1s",
        "supportedEvents": ["RequestHeaders", "RequestBody", "RequestTrailers"],
        "requestBodySendMode": "FullDuplexStreamed",
        "backendRef": {"group": "", "kind": "Service", "name": ROUTER, "port": 9004},
    }
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway"}
    chains = {"targetRefs": [target], "extensionChains": [{"name": "chain1", "extensions": [extension]}]}
    port = {"protocol": "TCP", "port": 9004, "targetPort": 9004, "appProtocol": "HTTP2"}
    return [
        *_permissions(ROUTER, [_rule("", "configmaps", *READ)]),
        _object("v1", "Service", ROUTER, spec={"selector": {"app": ROUTER}, "ports": [port]}),
        _deployment(ROUTER, 1, {"serviceAccountName": ROUTER, "containers": [container]}),
        _object("networking.gke.io/v1", "GCPRoutingExtension", ROUTER, spec=chains),
    ]


def route_of_model(model: str, name: str) -> Object:
    """An HTTPRoute that sends requests for a model to a pool."""
    matches = [{"headers": [{"type": "Exact", "name": "X-Gateway-Model-Name", "value": model}]}]
    refs = [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "weight": 1}]
    rules = [{"matches": matches, "backendRefs": refs}]
    spec = {"parentRefs": [{"name": "inference-gateway"}], "rules": rules}
    return _object("gateway.networking.k8s.io/v1", "HTTPRoute", f"{name}-model", spec=spec)


def certificate(name: str) -> Object:
    """A Secret with a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, serial = datetime.now(UTC), x509.random_serial_number()
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), serial, now, now + timedelta(1))
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    authority = x509.BasicConstraints(ca=True, path_length=None)
    signed = builder.add_extension(addresses, critical=False).add_extension(authority, critical=True)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    files = {
        "tls.crt": signed.sign(key, hashes.SHA256()).public_bytes(pem),
        "tls.key": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
    }
    data = {file: base64.b64encode(content).decode() for file, content in files.items()}
    return _object("v1", "Secret", name, type="kubernetes.io/tls", data=data)
