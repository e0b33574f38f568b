"""The programs that a load balancer asks behind a gateway: one release of the Gateway API Inference Extension.

The endpoint picker chooses a pod for each request, and the router finds the model that a request names. The project
gets no new code and will be archived, and llm-d's router follows it: README.md of its repository. A successor changes
this file, `picker_pod` in components/gateway/inference_pool.py, and `router_pod` in components/gateway/model_router.py.

Sources, in https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/v1.5.0: pkg/epp/server/options.go,
pkg/epp/metadata/consts.go, cmd/bbr/runner/runner.go and pkg/bbr/handlers/request.go. The next release has no endpoint
picker of this kind.
"""

from __future__ import annotations

RELEASE = "v1.5.0"
_IMAGES = "registry.k8s.io/gateway-api-inference-extension"

PICKER_IMAGE = f"{_IMAGES}/epp:{RELEASE}"
# Label of its pods with the picker's name. Network policies select it, and no tenant may set it.
PICKER_LABEL = "gke-ai/endpoint-picker"
# The format of its configuration: apix/config/v1alpha1
PICKER_CONFIG_API = "inference.networking.x-k8s.io/v1alpha1"
# Ports: requests of the load balancer (Envoy's ext_proc), health, metrics.
PICKER_PORT, PICKER_HEALTH_PORT, PICKER_METRICS_PORT = 9002, 9003, 9090

ROUTER_IMAGE = f"{_IMAGES}/bbr:{RELEASE}"
ROUTER_PORT, ROUTER_HEALTH_PORT = 9004, 9005
# Header with the `model` of a request, which routes match.
MODEL_HEADER = "X-Gateway-Model-Name"
# Headers by which the picker orders requests: the name of an InferenceObjective, and whose flow it is. No client may
# set them. site-src/guides/flow-control.md
OBJECTIVE_HEADER, FAIRNESS_HEADER = "x-gateway-inference-objective", "x-gateway-inference-fairness-id"
# Requests that a replica gets at once where its limit is unknown: the default of the picker's `concurrency-detector`.
UNKNOWN_REQUESTS = 100
# Bytes of held requests: a quarter of a picker's memory.
HELD_BYTES = "256Mi"
