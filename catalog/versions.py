"""Every version of a chart, an image and an API that the product deploys. A version changes here and nowhere else."""

from __future__ import annotations

# https://kueue.sigs.k8s.io/docs/installation/#install-by-helm
KUEUE_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
KUEUE_VERSION = "0.18.2"
# The chart of the release names this image; the chart in the source repository names a staging one.
KUEUE_IMAGE = "registry.k8s.io/kueue/kueue"
KUEUE_IMAGE_TAG = f"v{KUEUE_VERSION}"
# The version that Kueue stores since 0.16: https://github.com/kubernetes-sigs/kueue, apis/kueue/v1beta2
KUEUE_API = "kueue.x-k8s.io/v1beta2"
KUEUE_CONFIG_API = "config.kueue.x-k8s.io/v1beta2"

# https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
POD_MONITORING_API = "monitoring.googleapis.com/v1"

# https://github.com/huggingface/text-generation-inference: in maintenance mode; the port's variable is PORT
TGI_IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.5"
# https://github.com/GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/mix-train-and-inference
FINE_TUNE_IMAGE = "us-docker.pkg.dev/google-samples/containers/gke/gemma-fine-tuning:v1.0.0"
