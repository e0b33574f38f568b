"""Google Cloud APIs that a project must enable, with the reason for each.

Names are from https://cloud.google.com/apis/docs/overview and from the page in the comment above each reason.
"""

from __future__ import annotations

from collections.abc import Mapping

CONTAINER = "container.googleapis.com"
COMPUTE = "compute.googleapis.com"
IAM = "iam.googleapis.com"
IAM_CREDENTIALS = "iamcredentials.googleapis.com"
LOGGING = "logging.googleapis.com"
MONITORING = "monitoring.googleapis.com"
STORAGE = "storage.googleapis.com"
SECRET_MANAGER = "secretmanager.googleapis.com"
NETWORK_SERVICES = "networkservices.googleapis.com"
CERTIFICATE_MANAGER = "certificatemanager.googleapis.com"
CONTAINER_FILE_SYSTEM = "containerfilesystem.googleapis.com"

# Each API that a stack may need, with the reason.
REASONS: Mapping[str, str] = {
    # https://cloud.google.com/kubernetes-engine/docs/how-to/creating-a-regional-cluster#before_you_begin
    CONTAINER: "clusters and node pools",
    COMPUTE: "machines and disks of the nodes, and their network",
    # https://cloud.google.com/iam/docs/service-accounts-create#before-you-begin
    IAM: "service accounts",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#before_you_begin
    IAM_CREDENTIALS: "tokens of workloads, through Workload Identity Federation",
    # https://cloud.google.com/kubernetes-engine/docs/concepts/observability
    LOGGING: "logs of nodes and workloads",
    MONITORING: "metrics, dashboards and alerts",
    # https://cloud.google.com/storage/docs/enable
    STORAGE: "buckets",
    # https://cloud.google.com/secret-manager/docs/configuring-secret-manager
    SECRET_MANAGER: "the Hugging Face token in Secret Manager",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/deploy-gke-inference-gateway
    NETWORK_SERVICES: "the endpoint pickers of the gateway",
    # https://cloud.google.com/certificate-manager/docs/overview
    CERTIFICATE_MANAGER: "the certificate of the gateway",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements
    CONTAINER_FILE_SYSTEM: "streaming of container images",
}

# APIs that a cluster needs before it is created; only other resources need the rest.
OF_CLUSTERS = (CONTAINER, COMPUTE, IAM, IAM_CREDENTIALS, LOGGING, MONITORING)

# APIs that must be enabled by hand, because the provider enables the others with them: it reads the project through the
# first and enables an API through the second (google/services/resourcemanager/resource_google_project_service.go).
BEFOREHAND: Mapping[str, str] = {
    "cloudresourcemanager.googleapis.com": "the project's number and its roles",
    "serviceusage.googleapis.com": "enabling the other APIs",
}
