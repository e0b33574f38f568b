"""A model server: Text Generation Inference behind a Service."""

from typing import Literal

import pulumi_kubernetes as k8s

from gke_ai.components.arguments import takes
from gke_ai.components.serving.server import ModelServer, ServerArguments, container_of
from gke_ai.components.workloads.arguments import OnGpus
from gke_ai.settings.model import Tgi

# The launcher reads only HF_TOKEN, and guesses the model's configuration without it. Images before 3.0 read the other.
# https://github.com/huggingface/text-generation-inference/blob/v3.3.7/launcher/src/main.rs#L101
TOKEN_VARIABLES = ("HUGGING_FACE_HUB_TOKEN", "HF_TOKEN")


class TgiServerArguments(ServerArguments, OnGpus, Tgi):
    engine: Literal["tgi"] = "tgi"
    """The engine, which the component says."""


class TgiServer(ModelServer[Tgi]):
    """Serves a Hugging Face model on GPUs with Text Generation Inference: a Deployment, and its Service.

    For models that run on TGI today. Since 2025-12-11, TGI is in maintenance mode and gets no new models: for those,
    use `VllmServer`.

    `model` is a model id on Hugging Face. `quantize` is TGI's `--quantize`, such as `bitsandbytes-nf4`.

    Refused: RunError if no replica is ready in time.

    Source: https://huggingface.co/docs/text-generation-inference/reference/launcher

    Example:
        TgiServer("gemma-2", namespace=llm, pool=l4, gpus=2, model="google/gemma-2-9b-it", queue="team")
    """

    @takes(TgiServerArguments)
    def __init__(self, name: str, args: TgiServerArguments) -> None:
        super().__init__(name, args, Tgi)

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        return [container_of(self.server, self.server.gpus, self.server.command_line.variables, *TOKEN_VARIABLES)]
