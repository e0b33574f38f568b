"""The Custom Metrics Stackdriver Adapter."""

import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from gke_ai.catalog.kueue.namespaces import STACKDRIVER_ADAPTER
from gke_ai.catalog.versions import STACKDRIVER_ADAPTER_IMAGE
from gke_ai.components.serving.adapter_parts import VIEWER, AdapterParts
from gke_ai.components.support.identity import member_of, project_number

STACKDRIVER_NAMESPACE, STACKDRIVER_NAME = STACKDRIVER_ADAPTER, "custom-metrics-stackdriver-adapter"


def stackdriver_adapter(parts: AdapterParts) -> "k8s.apiregistration.v1.APIService":
    """Create the Custom Metrics Stackdriver Adapter. Returns the API of external metrics."""
    namespace = k8s.core.v1.Namespace(*parts.inside(STACKDRIVER_NAMESPACE), metadata={"name": STACKDRIVER_NAMESPACE})
    account = k8s.core.v1.ServiceAccount(
        *parts.inside(STACKDRIVER_NAME, namespace),
        metadata={"name": STACKDRIVER_NAME, "namespace": STACKDRIVER_NAMESPACE},
    )
    _grant_to_principal(parts)
    permissions = [
        *parts.reader_of_external_metrics("external-metrics-reader", "external-metrics-reader"),
        *parts.adapter_permissions(
            STACKDRIVER_NAME,
            STACKDRIVER_NAMESPACE,
            delegator="custom-metrics:system:auth-delegator",
            auth_reader="custom-metrics-auth-reader",
            resource_reader="custom-metrics-resource-reader",
            resources=["pods", "nodes", "nodes/stats"],
        ),
    ]
    selector = {"run": STACKDRIVER_NAME, "k8s-app": STACKDRIVER_NAME}
    in_system = {"kubernetes.io/cluster-service": "true"}
    amounts = {"cpu": "250m", "memory": "200Mi"}
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "pod-custom-metrics-stackdriver-adapter",
        "image": STACKDRIVER_ADAPTER_IMAGE,
        "image_pull_policy": "Always",
        "command": ["/adapter", "--use-new-resource-model=true", "--fallback-for-container-metrics=true"],
        "resources": {"requests": amounts, "limits": amounts},
        "readiness_probe": {
            "http_get": {"path": "/healthz", "port": 443, "scheme": "HTTPS"},
            "initial_delay_seconds": 5,
            "period_seconds": 5,
        },
    }
    pod: k8s.core.v1.PodSpecArgsDict = {"service_account_name": STACKDRIVER_NAME, "containers": [container]}
    deployment = k8s.apps.v1.Deployment(
        *parts.main_child(STACKDRIVER_NAME, account, *permissions),
        metadata={"name": STACKDRIVER_NAME, "namespace": STACKDRIVER_NAMESPACE, "labels": selector},
        spec={
            "replicas": 1,
            "selector": {"match_labels": selector},
            "template": {"metadata": {"labels": {**selector, **in_system}}, "spec": pod},
        },
    )
    service = k8s.core.v1.Service(
        *parts.inside(STACKDRIVER_NAME, namespace),
        metadata={
            "name": STACKDRIVER_NAME,
            "namespace": STACKDRIVER_NAMESPACE,
            "labels": {**selector, **in_system, "kubernetes.io/name": "Adapter"},
        },
        spec={
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"protocol": "TCP", "port": 443, "target_port": 443}],
        },
    )
    served = (STACKDRIVER_NAME, STACKDRIVER_NAMESPACE)
    for version, priority in (("v1beta1", 100), ("v1beta2", 200)):
        parts.api_service("custom.metrics.k8s.io", version, priority, served, [deployment, service])
    return parts.api_service("external.metrics.k8s.io", "v1beta1", 100, served, [deployment, service])


def _grant_to_principal(parts: AdapterParts) -> None:
    project = parts.project
    number = project_number(project, "The metrics adapter's permission needs", parts.parent)
    member = member_of(number, project, STACKDRIVER_NAMESPACE, STACKDRIVER_NAME, parts.workload_pool)
    gcp.projects.IAMMember(*parts.parent.child(STACKDRIVER_NAME), project=project, role=VIEWER, member=member)
