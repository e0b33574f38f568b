"""prometheus-adapter, with a frontend that answers Prometheus queries from Cloud Monitoring."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from gke_ai.catalog.engines import metrics
from gke_ai.catalog.engines.metrics import POD_NAMESPACE, TPU_MEMORY, metrics_of, query
from gke_ai.catalog.nodes.shape import ARCH, OS
from gke_ai.catalog.project.identities import account_email, pool_name
from gke_ai.catalog.versions import PROMETHEUS_ADAPTER_IMAGE, PROMETHEUS_FRONTEND_IMAGE
from gke_ai.components.arguments import on
from gke_ai.components.serving.adapter_parts import VIEWER, WORKLOAD_USER, AdapterParts
from gke_ai.components.support.critical import on_nodes

# Namespace and names of frontend and adapter in the source document. The adapter's names are those of the Helm release
# example-release.
PROMETHEUS_NAMESPACE = "default"
FRONTEND, FRONTEND_SERVICE, FRONTEND_PORT = "frontend", "prometheus", 9090
FRONTEND_ACCOUNT = "prom-frontend-sa"
CHART, RELEASE = "prometheus-adapter", "example-release"
PROMETHEUS_NAME = f"{RELEASE}-{CHART}"
ADAPTER_PORT = 6443
# How often the adapter looks for new metrics, and how long it keeps one without samples. MAX_AGE must exceed the delay
# of Managed Service for Prometheus, or metrics would disappear and reappear.
RELIST, MAX_AGE = "15s", "5m"


def prometheus_adapter(parts: AdapterParts, engines: Sequence[str], wakes: bool) -> "k8s.apiregistration.v1.APIService":
    """Create the frontend, and prometheus-adapter for these engines. Returns the API of external metrics."""
    _frontend(parts)
    labels = {
        "app.kubernetes.io/component": "metrics",
        "app.kubernetes.io/part-of": CHART,
        "app.kubernetes.io/name": CHART,
        "app.kubernetes.io/instance": RELEASE,
    }
    selector = {key: labels[key] for key in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {
        "name": PROMETHEUS_NAME,
        "namespace": PROMETHEUS_NAMESPACE,
        "labels": labels,
    }
    account = k8s.core.v1.ServiceAccount(*parts.inside(PROMETHEUS_NAME), metadata=metadata)
    permissions = [
        *parts.reader_of_external_metrics(f"{CHART}-external-metrics", f"{CHART}-hpa-controller-external-metrics"),
        *parts.adapter_permissions(
            PROMETHEUS_NAME,
            PROMETHEUS_NAMESPACE,
            delegator=f"{CHART}-system-auth-delegator",
            auth_reader=f"{CHART}-auth-reader",
            resource_reader=f"{CHART}-resource-reader",
            resources=["namespaces", "pods", "services", "configmaps"],
        ),
    ]
    configuration = yaml.safe_dump({"externalRules": external_rules(parts.cluster, engines, wakes)}, sort_keys=False)
    rules = k8s.core.v1.ConfigMap(
        *parts.inside(PROMETHEUS_NAME), metadata=metadata, data={"config.yaml": configuration}
    )
    container: k8s.core.v1.ContainerArgsDict = {
        "name": CHART,
        "image": PROMETHEUS_ADAPTER_IMAGE,
        "args": [
            f"--secure-port={ADAPTER_PORT}",
            "--cert-dir=/tmp/cert",
            f"--prometheus-url={frontend_url()}",
            f"--metrics-relist-interval={RELIST}",
            f"--metrics-max-age={MAX_AGE}",
            "--config=/etc/adapter/config.yaml",
        ],
        "ports": [{"name": "https", "container_port": ADAPTER_PORT}],
        "readiness_probe": {"http_get": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}, "period_seconds": 5},
        "liveness_probe": {
            "http_get": {"path": "/livez", "port": "https", "scheme": "HTTPS"},
            "initial_delay_seconds": 30,
        },
        "resources": {"requests": {"cpu": "102m", "memory": "180Mi"}, "limits": {"memory": "512Mi"}},
        "security_context": {
            "allow_privilege_escalation": False,
            "capabilities": {"drop": ["ALL"]},
            "read_only_root_filesystem": True,
            "run_as_non_root": True,
            "run_as_user": 10001,
        },
        "volume_mounts": [
            {"name": "config", "mount_path": "/etc/adapter/", "read_only": True},
            {"name": "tmp", "mount_path": "/tmp"},
        ],
    }
    pod: k8s.core.v1.PodSpecArgsDict = {
        "service_account_name": PROMETHEUS_NAME,
        "security_context": {"fs_group": 10001, "seccomp_profile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "config", "config_map": {"name": PROMETHEUS_NAME}}, {"name": "tmp", "empty_dir": {}}],
    }
    deployment = k8s.apps.v1.Deployment(
        *parts.main_child(PROMETHEUS_NAME, account, rules, *permissions),
        metadata=metadata,
        spec={
            "replicas": 1,
            "selector": {"match_labels": selector},
            "template": {
                "metadata": {
                    "labels": labels,
                    # The adapter reads its rules once, so changed rules need new pods.
                    "annotations": {"checksum/config": hashlib.sha256(configuration.encode()).hexdigest()},
                },
                "spec": pod,
            },
        },
    )
    service = k8s.core.v1.Service(
        *parts.inside(PROMETHEUS_NAME),
        metadata=metadata,
        spec={
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"protocol": "TCP", "port": 443, "target_port": "https"}],
        },
    )
    served = (PROMETHEUS_NAME, PROMETHEUS_NAMESPACE)
    return parts.api_service("external.metrics.k8s.io", "v1beta1", 100, served, [deployment, service])


def _frontend(parts: AdapterParts) -> None:
    selector = {"app": FRONTEND}
    account = k8s.core.v1.ServiceAccount(
        *parts.inside(FRONTEND_ACCOUNT),
        metadata={
            "name": FRONTEND_ACCOUNT,
            "namespace": PROMETHEUS_NAMESPACE,
            "annotations": {"iam.gke.io/gcp-service-account": _frontend_identity(parts)},
        },
    )
    query: pulumi.Input[str] = on(parts.project, lambda project: f"--query.project-id={project}")
    container: k8s.core.v1.ContainerArgsDict = {
        "name": FRONTEND,
        "image": PROMETHEUS_FRONTEND_IMAGE,
        "args": [f"--web.listen-address=:{FRONTEND_PORT}", query],
        "ports": [{"name": "web", "container_port": FRONTEND_PORT}],
        "readiness_probe": {"http_get": {"path": "/-/ready", "port": "web"}},
        "liveness_probe": {"http_get": {"path": "/-/healthy", "port": "web"}},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "security_context": {
            "allow_privilege_escalation": False,
            "capabilities": {"drop": ["all"]},
            "privileged": False,
            "run_as_group": 1000,
            "run_as_non_root": True,
            "run_as_user": 1000,
        },
    }
    affinity: Any = on_nodes(
        {"key": ARCH, "operator": "In", "values": ["arm64", "amd64"]},
        {"key": OS, "operator": "In", "values": ["linux"]},
    )
    pod: k8s.core.v1.PodSpecArgsDict = {
        "automount_service_account_token": True,
        "service_account_name": FRONTEND_ACCOUNT,
        "affinity": affinity,
        "containers": [container],
    }
    k8s.apps.v1.Deployment(
        *parts.inside(FRONTEND, account),
        metadata={"name": FRONTEND, "namespace": PROMETHEUS_NAMESPACE},
        spec={
            "replicas": 2,
            "selector": {"match_labels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    )
    k8s.policy.v1.PodDisruptionBudget(
        *parts.inside(FRONTEND),
        metadata={"name": FRONTEND, "namespace": PROMETHEUS_NAMESPACE},
        spec={"max_unavailable": 1, "selector": {"match_labels": selector}},
    )
    k8s.core.v1.Service(
        *parts.inside(FRONTEND_SERVICE),
        metadata={"name": FRONTEND_SERVICE, "namespace": PROMETHEUS_NAMESPACE},
        spec={"cluster_ip": "None", "selector": selector, "ports": [{"name": "web", "port": FRONTEND_PORT}]},
    )


def _frontend_identity(parts: AdapterParts) -> pulumi.Input[str]:
    """Create the Google service account of the frontend. Returns its e-mail address."""
    project = parts.project
    account = gcp.serviceaccount.Account(
        *parts.inside(FRONTEND_ACCOUNT),
        account_id=FRONTEND_ACCOUNT,
        project=project,
        display_name="Prometheus frontend of the metrics adapter",
    )
    gcp.serviceaccount.IAMMember(
        *parts.parent.child(FRONTEND_ACCOUNT),
        service_account_id=account.name,
        role=WORKLOAD_USER,
        member=pulumi.Output.all(project, parts.workload_pool).apply(
            lambda known: f"serviceAccount:{pool_name(known[0])}[{PROMETHEUS_NAMESPACE}/{FRONTEND_ACCOUNT}]"
        ),
    )
    gcp.projects.IAMMember(*parts.parent.child(FRONTEND_ACCOUNT), project=project, role=VIEWER, member=account.member)
    email: pulumi.Input[str] = on(project, lambda project: account_email(FRONTEND_ACCOUNT, project))
    return email


def frontend_url() -> str:
    """URL at which the adapter queries the frontend."""
    return f"http://{FRONTEND_SERVICE}.{PROMETHEUS_NAMESPACE}.svc:{FRONTEND_PORT}/"


def external_rules(cluster: str, engines: Sequence[str], wakes: bool) -> list[dict[str, Any]]:
    """prometheus-adapter's rules: each metric of the engines, averaged over the series that an autoscaler selects, and
    what wakes a server without replicas.

    The adapter adds the autoscaler's namespace to the query, under the namespace label of `resources`: the server's
    metrics have `namespace`, those of its TPUs `exported_namespace`. Engines can share metrics.
    """
    own = {metric.average: metric for engine in engines for metric in metrics_of(engine).values()}

    def rule(series: str, name: str, query: str, resources: dict[str, Any] | None = None) -> dict[str, Any]:
        place = resources or {"template": "<<.Resource>>"}
        return {"seriesQuery": series, "resources": place, "name": {"matches": "", "as": name}, "metricsQuery": query}

    of_pods = {"overrides": {POD_NAMESPACE: {"resource": "namespace"}}}
    waking: dict[str, str] = {}
    if wakes:
        waking = {metrics.DEMAND: metrics.demand_query(cluster), metrics.WARM: metrics.warm_query()}
        waking |= {f"{name}{metrics.OR_ZERO}": metrics.or_zero(metric, cluster) for name, metric in own.items()}
    return [
        *(
            rule(
                metric.series, metric.average, query(metric.key, cluster), of_pods if metric.key == TPU_MEMORY else None
            )
            for metric in own.values()
        ),
        *(rule(metrics.PICKER_SERIES, name, expression) for name, expression in waking.items()),
    ]
