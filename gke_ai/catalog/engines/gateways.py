"""GKE's gateways: classes, TLS options, and the address ranges of their load balancers.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/about-gke-inference-gateway,
https://cloud.google.com/kubernetes-engine/docs/how-to/deploy-gke-inference-gateway
"""

from __future__ import annotations

import hashlib

# The classes that can have an InferencePool behind them: a regional internal and a regional external Application Load
# Balancer. https://cloud.google.com/kubernetes-engine/docs/how-to/gatewayclass-capabilities
INTERNAL_CLASS, EXTERNAL_CLASS = "gke-l7-rilb", "gke-l7-regional-external-managed"

# The option of a listener that names Certificate Manager certificates of the region. A certificate map, an annotation
# of the Gateway, is only for global classes. https://cloud.google.com/kubernetes-engine/docs/how-to/secure-gateway
CERTIFICATES_OPTION = "networking.gke.io/cert-manager-certs"

# Envoy proxies of both classes have addresses of this subnetwork. A /26 is the smallest, Google recommends a /23.
# https://cloud.google.com/load-balancing/docs/proxy-only-subnets
PROXY_PURPOSE, PROXY_ROLE = "REGIONAL_MANAGED_PROXY", "ACTIVE"
LONGEST_PROXY_PREFIX = 26

# Health checks of load balancers: https://cloud.google.com/load-balancing/docs/health-check-concepts#ip-ranges
HEALTH_CHECK_RANGES = ("130.211.0.0/22", "35.191.0.0/16")

# Weights of a URL map are 0 to 1000.
# https://cloud.google.com/compute/docs/reference/rest/v1/regionUrlMaps
MAX_WEIGHT = 1000

# An HTTPRoute matches up to this many names of models in a rule:
# https://gateway-api.sigs.k8s.io/reference/api-spec/main/spec/#httprouterule
MAX_MATCHES = 64

# Maximum of a backend service: https://cloud.google.com/load-balancing/docs/enabling-connection-draining
MAX_DRAIN_SECONDS = 3600

# vLLM checks an API key only below /v1, and answers inference, administration and metrics at other paths without one.
# So a gateway forwards /v1 alone. https://docs.vllm.ai/en/stable/usage/security/
API_PATH = "/v1"

# Kubernetes Secret with the API key, in each namespace with servers behind a gateway that checks one.
API_KEY_SECRET, API_KEY = "gateway-api-key", "key"
# Iterations of PBKDF2-HMAC-SHA256: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
_ITERATIONS = 600_000

# GKE installs the CRDs of the Gateway API in clusters with this channel. https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways#enable-gateway
GATEWAY_API_CHANNEL = "CHANNEL_STANDARD"


def tenant_api_key(key: str, namespace: str) -> str:
    """API key of the servers in a tenant's namespace, derived from the stack's.

    The tenant can read the Secrets of its namespace. It learns neither the stack's key from it nor another tenant's,
    and guessing a weak key takes long.
    """
    return hashlib.pbkdf2_hmac("sha256", key.strip().encode(), namespace.encode(), _ITERATIONS).hex()
