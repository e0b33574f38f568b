"""A model server: Text Generation Inference behind a Service."""

from typing import NotRequired

import pulumi

from components.base import read
from components.server import GpuServerArgs, ModelServer, gpu_container
from settings.model import Tgi


class TgiServerArgs(GpuServerArgs):
    """Arguments of a `TgiServer`."""

    port_variable: NotRequired[str]
    """Environment variable that tells the image its port."""


class TgiServer(ModelServer):
    """A Deployment of Text Generation Inference and its Service; all else as every `ModelServer`.

    `model` is an id on Hugging Face, `quantize` TGI's `--quantize`, such as `bitsandbytes-nf4`.

    Refused: arguments that `settings.model.Tgi` refuses; RunError when no replica is ready in time.

    Source: https://huggingface.co/docs/text-generation-inference/reference/launcher
    """

    def __init__(self, name: str, args: TgiServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        server = read(Tgi, name, args)
        variables = {server.port_variable: str(server.port), "NUM_SHARD": str(server.gpus), "MODEL_ID": server.model}
        if server.quantize:
            variables["QUANTIZE"] = server.quantize
        if server.max_model_len:
            variables["MAX_TOTAL_TOKENS"] = str(server.max_model_len)
        super().__init__(name, server, args, [gpu_container(server, variables, "HUGGING_FACE_HUB_TOKEN")], opts)
