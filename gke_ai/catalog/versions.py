"""Versions of charts, images and APIs that the product deploys. Images of engines are in `engines`."""

from __future__ import annotations

# Version of this project. It changes with a release; tests/data/recorded has a state of each: docs/upgrading.md.
PROJECT_VERSION = "0.4.0"
# Version of the stack outputs that this program writes: that of gke_ai_outputs, a package of its own.
OUTPUTS_VERSION = "1.4"

# https://kueue.sigs.k8s.io/docs/installation/#install-by-helm
KUEUE_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
KUEUE_VERSION = "0.19.2"
# The released chart uses this image; the chart in the source repository uses a staging image.
KUEUE_IMAGE = "registry.k8s.io/kueue/kueue"
# The storage version since Kueue 0.16: https://github.com/kubernetes-sigs/kueue, apis/kueue/v1beta2
KUEUE_API = "kueue.x-k8s.io/v1beta2"
VISIBILITY_API = "visibility.kueue.x-k8s.io/v1beta2"  # of Kueue
KUEUE_CONFIG_API = "config.kueue.x-k8s.io/v1beta2"

# https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
POD_MONITORING_API = "monitoring.googleapis.com/v1"

# https://cloud.google.com/secret-manager/docs/sync-k8-secrets: GKE 1.34 and newer
SECRET_PROVIDER_CLASS_API = "secrets-store.csi.x-k8s.io/v1"
SECRET_SYNC_API = "secret-sync.gke.io/v1"

# Gateway API and InferencePool, whose CRDs GKE installs. HealthCheckPolicy and GCPBackendPolicy are GKE's own.
# https://cloud.google.com/kubernetes-engine/docs/how-to/deploy-gke-inference-gateway
GATEWAY_API = "gateway.networking.k8s.io/v1"
INFERENCE_POOL_API = "inference.networking.k8s.io/v1"
GATEWAY_POLICY_API = "networking.gke.io/v1"

# https://github.com/GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/mix-train-and-inference
FINE_TUNE_IMAGE = "us-docker.pkg.dev/google-samples/containers/gke/gemma-fine-tuning:v1.0.0"
# JAX 0.9.0 Revision 1 of https://docs.cloud.google.com/ai-hypercomputer/docs/images#jax-ai-images (there is no 0.6.2)
JAX_TPU_IMAGE = "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu:jax0.9.0-rev1"
# https://jobset.sigs.k8s.io/docs/installation/#helm
JOBSET_CHART = "oci://registry.k8s.io/jobset/charts/jobset"
JOBSET_VERSION = "0.12.0"
JOBSET_IMAGE = "registry.k8s.io/jobset/jobset"
# Earlier releases, oldest first: those of clusters that are rehearsed, and from which upgrades are tested and
# rehearsed. The emulator builds one when it is named: emulator/setup/toolchain.py.
EARLIER_KUEUE_VERSIONS, EARLIER_JOBSET_VERSION = ("0.16.2", "0.18.4"), "0.11.1"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
JOBSET_CRD = f"jobsets.{JOBSET_API.partition('/')[0]}"
# https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
COMPUTE_CLASS_API = "cloud.google.com/v1"
# https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream
JETSTREAM_HTTP_IMAGE = "us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http:v0.2.2"
# https://github.com/GoogleCloudPlatform/k8s-stackdriver, custom-metrics-stackdriver-adapter/deploy/production
STACKDRIVER_ADAPTER_IMAGE = "gcr.io/gke-release/custom-metrics-stackdriver-adapter:v0.16.9-gke.0"
# https://cloud.google.com/stackdriver/docs/managed-prometheus/query-api-ui#ui-prometheus
PROMETHEUS_FRONTEND_IMAGE = "gke.gcr.io/prometheus-engine/frontend:v0.8.0-gke.4"
# https://github.com/kubernetes-sigs/prometheus-adapter/releases
PROMETHEUS_ADAPTER_IMAGE = "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
