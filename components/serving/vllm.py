"""A model server: vLLM behind a Service."""

from typing import Literal

import pulumi_kubernetes as k8s

from gke_ai.components.arguments import takes
from gke_ai.components.serving.server import ModelServer, ServerArguments, container_of
from gke_ai.components.workloads.arguments import OnGpus
from gke_ai.settings.model import Vllm

# GKE mounts the driver there, and the image of vLLM 0.9 and later does not look for it:
# https://github.com/vllm-project/vllm/issues/18859
LIBRARY_PATH, DRIVER_LIBRARIES = "LD_LIBRARY_PATH", "/usr/local/nvidia/lib64:/usr/local/cuda/lib64"


class VllmServerArguments(ServerArguments, OnGpus, Vllm):
    engine: Literal["vllm"] = "vllm"
    """The engine, which the component says."""


class VllmServer(ModelServer[Vllm]):
    """Serves a Hugging Face model on GPUs with vLLM and its OpenAI-compatible API: a Deployment, and its Service.

    `model` is a model id on Hugging Face, and the name of the model for clients. `quantize` is vLLM's `--quantization`,
    such as `awq_marlin`.

    Refused: RunError if no replica is ready in time.

    Sources: https://docs.vllm.ai/en/stable/cli/serve.html, https://docs.vllm.ai/en/stable/configuration/env_vars.html

    Example:
        VllmServer("chat", namespace=llm, pool=l4, gpus=2, model="google/gemma-3-4b-it", queue="team")
    """

    # A Service named vllm would give every pod a VLLM_PORT, which vLLM would read as its own setting.
    service_links = False

    @takes(VllmServerArguments)
    def __init__(self, name: str, args: VllmServerArguments) -> None:
        super().__init__(name, args, Vllm)

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        server = self.server
        paths = {} if LIBRARY_PATH in server.env else {LIBRARY_PATH: DRIVER_LIBRARIES}
        container = container_of(server, server.gpus, paths, "HF_TOKEN")
        container["command"] = ["vllm", "serve"]
        container["args"] = [server.model_location, *server.command_line.flags, *server.arguments]
        return [container]
