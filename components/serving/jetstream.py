"""A model server: JetStream with MaxText on a TPU slice, behind a Service."""

from typing import Literal

import pulumi_kubernetes as k8s

from gke_ai.catalog.engines.engine import (
    HTTP_PORT,
    JETSTREAM_GRPC_PORT,
    JETSTREAM_HTTP_PORT,
    JETSTREAM_HTTP_REQUEST,
    MAXTEXT_SETTINGS,
    METRICS_PORT,
)
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.versions import JETSTREAM_HTTP_IMAGE
from gke_ai.components.arguments import takes
from gke_ai.components.serving.server import ModelServer, ServerArguments, add_probes, engine_of, scratch_mount
from gke_ai.components.workloads.arguments import OnTpus
from gke_ai.manifests.workload import resources, variables
from gke_ai.settings.model import JetStream


class JetStreamServerArguments(ServerArguments, OnTpus, JetStream):
    engine: Literal["jetstream"] = "jetstream"
    """The engine, which the component says."""


class JetStreamServer(ModelServer[JetStream]):
    """Serves a MaxText checkpoint on TPUs with JetStream, one single-host slice a replica: Deployment and Service.

    For checkpoints that JetStream serves today. It is archived since 2026-02-01: for others, use `VllmTpuServer`.

    A pod has two containers: the model server, which speaks gRPC, and an HTTP server in front of it. `model` is
    MaxText's name of a model, such as `gemma-7b`. The pod reads the checkpoint as its service account, which needs a
    grant on the bucket.

    Refused: RunError if no replica is ready in time.

    Sources: https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream,
    https://github.com/AI-Hypercomputer/JetStream/blob/main/docs/observability-prometheus-metrics-in-jetstream-server.md

    Example:
        JetStreamServer("maxengine", namespace=llm, pool=v5e, model="gemma-7b", checkpoint="gs://my-models/gemma-7b")
    """

    @takes(JetStreamServerArguments)
    def __init__(self, name: str, args: JetStreamServerArguments) -> None:
        super().__init__(name, args, JetStream)

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        return [model_server(self.server, self.placed.accelerators), http_front(self.server)]

    def service_ports(self) -> "list[k8s.core.v1.ServicePortArgsDict]":
        return [
            {"name": HTTP_PORT, "protocol": "TCP", "port": self.server.port, "target_port": JETSTREAM_HTTP_PORT},
            {"name": "grpc", "protocol": "TCP", "port": JETSTREAM_GRPC_PORT, "target_port": JETSTREAM_GRPC_PORT},
        ]


def model_server(server: JetStream, chips: int) -> "k8s.core.v1.ContainerArgsDict":
    """The container with the model. It opens its gRPC port once the model is loaded."""
    settings = {**MAXTEXT_SETTINGS, **server.command_line.variables, **server.arguments}
    container: k8s.core.v1.ContainerArgsDict = {
        "name": server.container,
        "image": engine_of(server).image if server.image is None else server.image,
        "args": [f"{name}={value}" for name, value in settings.items() if value is not None],
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
