"""A model server: Text Generation Inference behind a Service."""

from typing import NotRequired

import pulumi

from components.base import read
from components.server import GpuServerArgs, ModelServer, gpu_container
from settings.model import Tgi

# The launcher reads only HF_TOKEN, and guesses the model's configuration without it. Images before 3.0 read the other.
# https://github.com/huggingface/text-generation-inference/blob/v3.3.7/launcher/src/main.rs#L101
TOKEN_VARIABLES = ("HUGGING_FACE_HUB_TOKEN", "HF_TOKEN")


class TgiServerArgs(GpuServerArgs):
    """Arguments of a `TgiServer`."""

    port_variable: NotRequired[str]
    """Environment variable of the image that sets its port."""


class TgiServer(ModelServer):
    """A Deployment of Text Generation Inference and its Service. See `ModelServer`.

    `model` is a model id on Hugging Face. `quantize` is TGI's `--quantize`, such as `bitsandbytes-nf4`.

    Refused: arguments that `settings.model.Tgi` refuses; RunError if no replica is ready in time.

    Source: https://huggingface.co/docs/text-generation-inference/reference/launcher
    """

    def __init__(self, name: str, args: TgiServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        server = read(Tgi, name, args)
        variables = {server.port_variable: str(server.port), "NUM_SHARD": str(server.gpus), "MODEL_ID": server.model}
        if server.quantize:
            variables["QUANTIZE"] = server.quantize
        if server.max_model_len:
            variables["MAX_TOTAL_TOKENS"] = str(server.max_model_len)
        container = gpu_container(server, variables, *TOKEN_VARIABLES)
        super().__init__(name, server, args, [container], opts)
