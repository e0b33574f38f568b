"""A model server: JetStream with MaxText on a TPU slice, behind a Service."""

from typing import NotRequired

import pulumi
import pulumi_kubernetes as k8s

from catalog.engines import JETSTREAM_GRPC_PORT, JETSTREAM_HTTP_PORT, JETSTREAM_HTTP_REQUEST, MAXTEXT_SETTINGS
from catalog.tpus import GOOGLE_TPU
from catalog.versions import JETSTREAM_HTTP_IMAGE
from components.base import read
from components.server import HTTP_PORT, METRICS_PORT, ModelServer, ServerArgs, add_probes, engine_of, scratch_mount
from components.workload import TpuSliceArgs, resources, variables
from settings.model import JetStream


class JetStreamServerArgs(ServerArgs):
    """Arguments of a `JetStreamServer`."""

    chips: int
    """TPU chips of one replica: all chips of its slice."""
    checkpoint: str
    """gs:// address of the converted checkpoint."""
    pool: NotRequired[str]
    """Not used by the component, which reads `node_selector` and `chips`."""
    tpu: NotRequired[TpuSliceArgs]
    """Not used by the component, which reads `node_selector` and `chips`."""
    tokenizer: NotRequired[str]
    """Path of the tokenizer in the image."""
    batch_size: NotRequired[int]
    """Decoding slots per chip."""
    max_prefill_length: NotRequired[int]
    """Maximum length of a prompt, in tokens."""
    max_target_length: NotRequired[int]
    """Maximum length of prompt and answer together, in tokens."""
    http_image: NotRequired[str]
    """Image of the HTTP server. Default: the pinned image."""
    metrics_port: NotRequired[int]
    arguments: NotRequired[dict[str, str]]
    """Additional settings of MaxText."""


class JetStreamServer(ModelServer):
    """A Deployment of JetStream and its Service, with one single-host TPU slice per replica. See `ModelServer`.

    A pod has two containers: the model server, which speaks gRPC, and an HTTP server in front of it. `model` is
    MaxText's name of a model, such as `gemma-7b`. The pod reads the checkpoint as its service account, which needs a
    grant on the bucket.

    Refused: arguments that `settings.model.JetStream` refuses; RunError if no replica is ready in time.

    Sources: https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream,
    https://github.com/AI-Hypercomputer/JetStream/blob/main/docs/observability-prometheus-metrics-in-jetstream-server.md
    """

    def __init__(self, name: str, args: JetStreamServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        server = read(JetStream, name, args)
        ports: list[k8s.core.v1.ServicePortArgsDict] = [
            {"name": HTTP_PORT, "protocol": "TCP", "port": server.port, "target_port": JETSTREAM_HTTP_PORT},
            {"name": "grpc", "protocol": "TCP", "port": JETSTREAM_GRPC_PORT, "target_port": JETSTREAM_GRPC_PORT},
        ]
        containers = [model_server(server, args["chips"]), http_front(server)]
        super().__init__(name, server, args, containers, opts, service_ports=ports)


def model_server(server: JetStream, chips: int) -> "k8s.core.v1.ContainerArgsDict":
    """The container with the model. It opens its gRPC port once the model is loaded."""
    fields = server.model_dump()
    settings = {argument: value.format(**fields) for argument, value in MAXTEXT_SETTINGS.items()} | server.arguments
    container: k8s.core.v1.ContainerArgsDict = {
        "name": server.container,
        "image": server.image or engine_of(server).image,
        "args": [f"{argument}={value}" for argument, value in settings.items()],
        "ports": [
            {"container_port": JETSTREAM_GRPC_PORT},
            {"name": METRICS_PORT, "container_port": server.metrics_port},
        ],
        "resources": resources(server, chips, GOOGLE_TPU),
    }
    if server.scratch:
        container["volume_mounts"] = scratch_mount(server)
    if server.env:
        container["env"] = variables(server.env)
    if server.probes:
        add_probes(container, server, {"tcp_socket": {"port": JETSTREAM_GRPC_PORT}})
    return container


def http_front(server: JetStream) -> "k8s.core.v1.ContainerArgsDict":
    """The container that translates HTTP to gRPC."""
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "jetstream-http",
        "image": server.http_image or JETSTREAM_HTTP_IMAGE,
        "ports": [{"container_port": JETSTREAM_HTTP_PORT}],
    }
    server_request = server.resources.model_dump(exclude_none=True)
    # Only resources that the model server requests too: Kueue admits no pod whose queue lacks quota for a resource.
    if request := {name: amount for name, amount in JETSTREAM_HTTP_REQUEST.items() if name in server_request}:
        container["resources"] = {"requests": request, "limits": request}
    if server.probes:
        path = engine_of(server).health_path
        container["readiness_probe"] = {"http_get": {"path": path, "port": JETSTREAM_HTTP_PORT}}
    return container
