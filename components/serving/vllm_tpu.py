"""A model server: vLLM on a TPU slice, behind a Service."""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.serving.server import ModelServer, container_of
from gke_ai.settings.model import VllmTpu


class VllmTpuServer(ModelServer[VllmTpu]):
    """A Deployment of vLLM and its Service, with one single-host TPU slice per replica. See `ModelServer`.

    `model` is a model id on Hugging Face. The devices of the slice share the model. At its first start, vLLM compiles
    the model for the slice, which takes minutes.

    Refused: RunError if no replica is ready in time.

    Sources: https://docs.vllm.ai/projects/tpu/en/latest/,
    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-vllm-tpu
    """

    # A Service named vllm would give every pod a VLLM_PORT, which vLLM would read as its own setting.
    service_links = False

    def __init__(
        self,
        name: str,
        args: VllmTpu,
        opts: pulumi.ResourceOptions | None = None,
        *,
        chips: int,
        devices: int | None = None,
        node_selector: Mapping[str, str] | None = None,
        kubeconfig: pulumi.Input[str] | None = None,
        autoscaled: bool = False,
        api_key: bool = False,
    ) -> None:
        """Create the server.

        Args:
            chips: TPU chips of one replica: all chips of its slice.
            devices: Devices of these chips: two per chip of tpu7x. Default: one per chip.
            node_selector: Labels of the nodes to run on.
            kubeconfig: Cluster in which an update waits for the first replica. Default: no wait.
            autoscaled: An autoscaler sets the number of replicas, so the Deployment omits it.
            api_key: Require the API key in the Secret `gateway-api-key` of the namespace from clients.
        """
        self._chips, self._devices = chips, devices or chips
        super().__init__(
            name, args, opts, node_selector=node_selector, kubeconfig=kubeconfig, autoscaled=autoscaled, api_key=api_key
        )

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        server = self.server
        container = container_of(server, self._chips, server.command_line.variables, "HF_TOKEN")
        # The recipes for tpu7x count devices: https://github.com/AI-Hypercomputer/tpu-recipes, inference/ironwood/vLLM
        parallel = f"--tensor-parallel-size={self._devices}"
        container["command"] = ["vllm", "serve"]
        container["args"] = [server.model_location, *server.command_line.flags, parallel, *server.arguments]
        return [container]
