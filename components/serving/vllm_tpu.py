"""A model server: vLLM on a TPU slice, behind a Service."""

from typing import Literal

import pulumi_kubernetes as k8s

from gke_ai.components.arguments import takes
from gke_ai.components.serving.server import ModelServer, ServerArguments, container_of
from gke_ai.components.workloads.arguments import OnTpus, WithToken
from gke_ai.settings.model import VllmTpu


class VllmTpuServerArguments(ServerArguments, OnTpus, WithToken, VllmTpu):
    engine: Literal["vllm-tpu"] = "vllm-tpu"
    """The engine, which the component says."""


class VllmTpuServer(ModelServer[VllmTpu]):
    """Serves a Hugging Face model on TPUs with vLLM, one single-host slice a replica: a Deployment, and its Service.

    `model` is a model id on Hugging Face. The devices of the slice share the model. At its first start, vLLM compiles
    the model for the slice, which takes minutes.

    Refused: RunError if no replica is ready in time.

    Sources: https://docs.vllm.ai/projects/tpu/en/latest/,
    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-vllm-tpu

    Example:
        VllmTpuServer("llama", namespace=llm, pool=v5e, model="meta-llama/Llama-3.1-8B-Instruct", max_model_len=4096)
    """

    # A Service named vllm would give every pod a VLLM_PORT, which vLLM would read as its own setting.
    service_links = False

    @takes(VllmTpuServerArguments)
    def __init__(self, name: str, args: VllmTpuServerArguments) -> None:
        super().__init__(name, args, VllmTpu)

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        server = self.server
        container = container_of(server, self.placed.accelerators, server.command_line.variables, "HF_TOKEN")
        # The recipes for tpu7x count devices: https://github.com/AI-Hypercomputer/tpu-recipes, inference/ironwood/vLLM
        parallel = f"--tensor-parallel-size={server.shards(self.placed.nodes)}"
        container["command"] = ["vllm", "serve"]
        container["args"] = [server.model_location, *server.command_line.flags, parallel, *server.arguments]
        return [container]
