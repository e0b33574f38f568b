"""The endpoint picker of an InferencePool, and the router of a Gateway by models, as local processes.

https://github.com/kubernetes-sigs/gateway-api-inference-extension
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emulator.machine import processes

if TYPE_CHECKING:
    from emulator.pods.sandbox import Container

# https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/pkg/epp/server/options.go
PORTS = {"--grpc-port": 9002, "--grpc-health-port": 9003, "--metrics-port": 9090}
FLAGS = (
    *("--pool-group", "--pool-name", "--pool-namespace", "--config-file", "--config-text"),
    *("--ha-enable-leader-election", "--disable-endpoint-subset-filter"),
    *("--zap-encoder", "--zap-log-level", "--v", "--tracing", "--enable-pprof", "--metrics-endpoint-auth"),
    *("--model-server-metrics-path", "--model-server-metrics-port", "--model-server-metrics-scheme"),
    *("--total-queued-requests-metric", "--total-running-requests-metric", "--kv-cache-usage-percentage-metric"),
    *("--lora-info-metric", "--cache-info-metric", "--metrics-staleness-threshold"),
)
# https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/cmd/bbr/runner/runner.go
ROUTER_PORTS = {"--grpc-port": 9004, "--grpc-health-port": 9005, "--metrics-port": 9090}
ROUTER_FLAGS = ("--streaming", "--zap-encoder", "--zap-log-level", "--v", "--tracing")
# How often it reads the metrics of each pod. Its default of 50 ms would keep this machine busy.
REFRESH = "--refresh-metrics-interval"
REFRESH_MILLISECONDS = 200


async def endpoint_picker(container: Container) -> list[str]:
    """The command of a container. It listens on all addresses of this machine, because no flag changes that."""
    own = _ports(container, PORTS)
    if container.argument(REFRESH) is None:
        own.append(f"{REFRESH}={REFRESH_MILLISECONDS}ms")
    # Pods' addresses lead nowhere on this machine.
    proxy = f"HTTP_PROXY=http://{container.folder.pod_proxy.read_text()}"
    return [*_program(container, "epp-v1.5.0-proxied", proxy), *container.kept(*FLAGS, *PORTS, REFRESH), *own]


async def model_router(container: Container) -> list[str]:
    """The command of a container. It listens on all addresses too."""
    return [*_program(container, "bbr"), *container.kept(*ROUTER_FLAGS), *_ports(container, ROUTER_PORTS)]


def _ports(container: Container, defaults: Mapping[str, int]) -> list[str]:
    """The ports of a container's sandbox, as flags. The last value of a flag counts."""
    ports = {flag: container.argument(flag) or default for flag, default in defaults.items()}
    return [f"{flag}={container.sandbox.port(int(port))}" for flag, port in ports.items()]


def _program(container: Container, name: str, *settings: str) -> list[str]:
    """The program with its environment. In a pod it finds the API server by the ServiceAccount's folder."""
    return ["/usr/bin/env", f"KUBECONFIG={container.kubeconfig}", *settings, processes.tool(name)]
