"""The endpoint picker of an InferencePool, as a local process.

https://github.com/kubernetes-sigs/gateway-api-inference-extension
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.cluster import processes

if TYPE_CHECKING:
    from emulator.cluster.sandbox import Container

# https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.3.0/pkg/epp/server/options.go
PORTS = {"--grpc-port": 9002, "--grpc-health-port": 9003, "--metrics-port": 9090}
FLAGS = (
    *(
        "--pool-group",
        "--pool-name",
        "--pool-namespace",
        "--config-file",
        "--config-text",
        "--ha-enable-leader-election",
    ),
    *("--zap-encoder", "--zap-log-level", "--v", "--tracing", "--enable-pprof", "--metrics-endpoint-auth"),
    *("--model-server-metrics-path", "--model-server-metrics-port", "--model-server-metrics-scheme"),
    *("--total-queued-requests-metric", "--total-running-requests-metric", "--kv-cache-usage-percentage-metric"),
    *("--lora-info-metric", "--cache-info-metric", "--metrics-staleness-threshold"),
)
# How often it reads the metrics of each pod. Its default of 50 ms would keep this machine busy.
REFRESH = "--refresh-metrics-interval"
REFRESH_MILLISECONDS = 200


async def endpoint_picker(container: Container) -> list[str]:
    """The command of a container. It listens on all addresses of this machine, because no flag changes that."""
    ports = {flag: container.argument(flag) or default for flag, default in PORTS.items()}
    own = [f"{flag}={container.sandbox.port(int(port))}" for flag, port in ports.items()]  # the last value counts
    if container.argument(REFRESH) is None:
        own.append(f"{REFRESH}={REFRESH_MILLISECONDS}ms")
    variables = {
        # In a pod it finds the API server by the ServiceAccount's folder.
        "KUBECONFIG": str(container.kubeconfig),
        # Pods' addresses lead nowhere on this machine.
        "HTTP_PROXY": f"http://{container.folder.pod_proxy.read_text()}",
    }
    settings = [f"{name}={value}" for name, value in variables.items()]
    return ["/usr/bin/env", *settings, processes.tool("epp"), *container.kept(*FLAGS, *PORTS, REFRESH), *own]
