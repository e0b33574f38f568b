"""The metrics adapter, which serves metrics of Cloud Monitoring to the HorizontalPodAutoscaler."""

import hashlib
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from catalog.metrics import METRICS, POD_NAMESPACE, PROMETHEUS, STACKDRIVER, SYSTEM_SCRAPE_SECONDS, TPU_MEMORY, query
from catalog.namespaces import STACKDRIVER_ADAPTER
from catalog.nodes import ARCH, OS
from catalog.versions import (
    POD_MONITORING_API,
    PROMETHEUS_ADAPTER_IMAGE,
    PROMETHEUS_FRONTEND_IMAGE,
    STACKDRIVER_ADAPTER_IMAGE,
)
from catalog.workload_identity import pool_name, principal
from components.base import Component
from components.identity import after_workload_pool, project_number

VIEWER, WORKLOAD_USER = "roles/monitoring.viewer", "roles/iam.workloadIdentityUser"
HPA_CONTROLLER: "k8s.rbac.v1.SubjectArgsDict" = {
    "kind": "ServiceAccount",
    "name": "horizontal-pod-autoscaler",
    "namespace": "kube-system",
}
EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"

STACKDRIVER_NAMESPACE, STACKDRIVER_NAME = STACKDRIVER_ADAPTER, "custom-metrics-stackdriver-adapter"

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


class MetricsAdapterArgs(TypedDict):
    """Arguments of a `MetricsAdapter`."""

    adapter: str
    """`stackdriver` or `prometheus`."""
    project: str
    """Id of the Google Cloud project."""
    cluster: str
    """Name of the cluster, which selects the metrics."""
    workload_pool: pulumi.Input[str]
    """The project's workload identity pool, an output of the cluster. Grants wait for it."""
    tpu_metrics: NotRequired[bool]
    """Also collect the metrics of the TPU device plugin."""


class MetricsAdapter(Component):
    """A metrics adapter that reads Cloud Monitoring, with its permissions and those of the HPA controller.

    `stackdriver` installs the Custom Metrics Stackdriver Adapter, which reads with its workload identity. `prometheus`
    installs a frontend that answers Prometheus queries from Cloud Monitoring, and prometheus-adapter with a rule for
    each metric of a JetStream server. The frontend reads as its own Google service account, which the component
    creates and binds. Every query selects the cluster and the namespace of the autoscaler.

    A cluster has only one adapter, because each registers the same APIs.

    Refused: ValueError for an unknown adapter; RunError in a project that can't be read; by the API, a second adapter,
    which the component explains in an error.

    Sources: https://github.com/GoogleCloudPlatform/k8s-stackdriver/tree/master/custom-metrics-stackdriver-adapter,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/hpa,
    https://github.com/kubernetes-sigs/prometheus-adapter/blob/v0.12.0/docs/externalmetrics.md
    """

    external_api: pulumi.Output[str]
    """Name of the APIService of external metrics, known once it exists."""

    def __init__(self, name: str, args: MetricsAdapterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        if args["adapter"] not in (STACKDRIVER, PROMETHEUS):
            raise ValueError(f"{name}: unknown adapter {args['adapter']}. Use {STACKDRIVER} or {PROMETHEUS}")
        self._args = args
        self._hooks = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}: explain", explain)])

        api = self._stackdriver() if args["adapter"] == STACKDRIVER else self._prometheus()
        if args.get("tpu_metrics"):
            self._tpu_metrics()
        self.external_api = api.metadata.name.apply(lambda registered: registered or EXTERNAL_METRICS)
        self.register_outputs({"externalApi": self.external_api})

    def _inside(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(after), hooks=self._hooks)

    # ---------------------------------------------------------------------------------------------------- stackdriver
    def _stackdriver(self) -> k8s.apiregistration.v1.APIService:
        namespace = k8s.core.v1.Namespace(
            STACKDRIVER_NAMESPACE, metadata={"name": STACKDRIVER_NAMESPACE}, opts=self._inside()
        )
        account = k8s.core.v1.ServiceAccount(
            STACKDRIVER_NAME,
            metadata={"name": STACKDRIVER_NAME, "namespace": STACKDRIVER_NAMESPACE},
            opts=self._inside(namespace),
        )
        self._grant_to_principal()
        permissions = [
            *self._reader_of_external_metrics("external-metrics-reader", "external-metrics-reader"),
            *self._adapter_permissions(
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
            "command": [
                "/adapter",
                "--use-new-resource-model=true",
                "--fallback-for-container-metrics=true",
            ],
            "resources": {"requests": amounts, "limits": amounts},
            "readiness_probe": {
                "http_get": {"path": "/healthz", "port": 443, "scheme": "HTTPS"},
                "initial_delay_seconds": 5,
                "period_seconds": 5,
            },
        }
        pod: k8s.core.v1.PodSpecArgsDict = {
            "service_account_name": STACKDRIVER_NAME,
            "containers": [container],
        }
        deployment = k8s.apps.v1.Deployment(
            STACKDRIVER_NAME,
            metadata={"name": STACKDRIVER_NAME, "namespace": STACKDRIVER_NAMESPACE, "labels": selector},
            spec={
                "replicas": 1,
                "selector": {"match_labels": selector},
                "template": {
                    "metadata": {"labels": {**selector, **in_system}},
                    "spec": pod,
                },
            },
            opts=self._inside(account, *permissions),
        )
        service = k8s.core.v1.Service(
            STACKDRIVER_NAME,
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
            opts=self._inside(namespace),
        )
        served = (STACKDRIVER_NAME, STACKDRIVER_NAMESPACE)
        for version, priority in (("v1beta1", 100), ("v1beta2", 200)):
            self._api_service("custom.metrics.k8s.io", version, priority, served, [deployment, service])
        return self._api_service("external.metrics.k8s.io", "v1beta1", 100, served, [deployment, service])

    def _grant_to_principal(self) -> None:
        project = self._args["project"]
        number = project_number(project, "The metrics adapter's permission needs", self)
        member = principal(number, project, STACKDRIVER_NAMESPACE, STACKDRIVER_NAME)
        gcp.projects.IAMMember(
            STACKDRIVER_NAME,
            project=project,
            role=VIEWER,
            member=after_workload_pool(member, self._args["workload_pool"]),
            opts=pulumi.ResourceOptions(parent=self),
        )

    # ----------------------------------------------------------------------------------------------------- prometheus
    def _prometheus(self) -> k8s.apiregistration.v1.APIService:
        self._frontend()
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
        account = k8s.core.v1.ServiceAccount(PROMETHEUS_NAME, metadata=metadata, opts=self._inside())
        permissions = [
            *self._reader_of_external_metrics(f"{CHART}-external-metrics", f"{CHART}-hpa-controller-external-metrics"),
            *self._adapter_permissions(
                PROMETHEUS_NAME,
                PROMETHEUS_NAMESPACE,
                delegator=f"{CHART}-system-auth-delegator",
                auth_reader=f"{CHART}-auth-reader",
                resource_reader=f"{CHART}-resource-reader",
                resources=["namespaces", "pods", "services", "configmaps"],
            ),
        ]
        configuration = yaml.safe_dump({"externalRules": external_rules(self._args["cluster"])}, sort_keys=False)
        rules = k8s.core.v1.ConfigMap(
            PROMETHEUS_NAME, metadata=metadata, data={"config.yaml": configuration}, opts=self._inside()
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
            "readiness_probe": {
                "http_get": {"path": "/readyz", "port": "https", "scheme": "HTTPS"},
                "period_seconds": 5,
            },
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
            "volumes": [
                {"name": "config", "config_map": {"name": PROMETHEUS_NAME}},
                {"name": "tmp", "empty_dir": {}},
            ],
        }
        deployment = k8s.apps.v1.Deployment(
            PROMETHEUS_NAME,
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
            opts=self._inside(account, rules, *permissions),
        )
        service = k8s.core.v1.Service(
            PROMETHEUS_NAME,
            metadata=metadata,
            spec={
                "type": "ClusterIP",
                "selector": selector,
                "ports": [{"protocol": "TCP", "port": 443, "target_port": "https"}],
            },
            opts=self._inside(),
        )
        served = (PROMETHEUS_NAME, PROMETHEUS_NAMESPACE)
        return self._api_service("external.metrics.k8s.io", "v1beta1", 100, served, [deployment, service])

    def _frontend(self) -> None:
        selector = {"app": FRONTEND}
        account = k8s.core.v1.ServiceAccount(
            FRONTEND_ACCOUNT,
            metadata={
                "name": FRONTEND_ACCOUNT,
                "namespace": PROMETHEUS_NAMESPACE,
                "annotations": {"iam.gke.io/gcp-service-account": self._frontend_identity()},
            },
            opts=self._inside(),
        )
        container: k8s.core.v1.ContainerArgsDict = {
            "name": FRONTEND,
            "image": PROMETHEUS_FRONTEND_IMAGE,
            "args": [
                f"--web.listen-address=:{FRONTEND_PORT}",
                f"--query.project-id={self._args['project']}",
            ],
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
        pod: k8s.core.v1.PodSpecArgsDict = {
            "automount_service_account_token": True,
            "service_account_name": FRONTEND_ACCOUNT,
            "affinity": {
                "node_affinity": {
                    "required_during_scheduling_ignored_during_execution": {
                        "node_selector_terms": [
                            {
                                "match_expressions": [
                                    {"key": ARCH, "operator": "In", "values": ["arm64", "amd64"]},
                                    {"key": OS, "operator": "In", "values": ["linux"]},
                                ]
                            }
                        ]
                    }
                }
            },
            "containers": [container],
        }
        k8s.apps.v1.Deployment(
            FRONTEND,
            metadata={"name": FRONTEND, "namespace": PROMETHEUS_NAMESPACE},
            spec={
                "replicas": 2,
                "selector": {"match_labels": selector},
                "template": {
                    "metadata": {"labels": selector},
                    "spec": pod,
                },
            },
            opts=self._inside(account),
        )
        k8s.policy.v1.PodDisruptionBudget(
            FRONTEND,
            metadata={"name": FRONTEND, "namespace": PROMETHEUS_NAMESPACE},
            spec={"max_unavailable": 1, "selector": {"match_labels": selector}},
            opts=self._inside(),
        )
        k8s.core.v1.Service(
            FRONTEND_SERVICE,
            metadata={"name": FRONTEND_SERVICE, "namespace": PROMETHEUS_NAMESPACE},
            spec={"cluster_ip": "None", "selector": selector, "ports": [{"name": "web", "port": FRONTEND_PORT}]},
            opts=self._inside(),
        )

    def _frontend_identity(self) -> str:
        """Create the Google service account of the frontend. Returns its e-mail address."""
        project = self._args["project"]
        opts = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            FRONTEND_ACCOUNT,
            account_id=FRONTEND_ACCOUNT,
            project=project,
            display_name="Prometheus frontend of the metrics adapter",
            opts=self._inside(),
        )
        gcp.serviceaccount.IAMMember(
            FRONTEND_ACCOUNT,
            service_account_id=account.name,
            role=WORKLOAD_USER,
            member=after_workload_pool(
                f"serviceAccount:{pool_name(project)}[{PROMETHEUS_NAMESPACE}/{FRONTEND_ACCOUNT}]",
                self._args["workload_pool"],
            ),
            opts=opts,
        )
        gcp.projects.IAMMember(FRONTEND_ACCOUNT, project=project, role=VIEWER, member=account.member, opts=opts)
        return f"{FRONTEND_ACCOUNT}@{project}.iam.gserviceaccount.com"

    # ----------------------------------------------------------------------------------------------------------- both
    def _reader_of_external_metrics(self, role: str, binding: str) -> list[pulumi.Resource]:
        """Let the HPA controller read external metrics."""
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["list", "get", "watch"]}
        ]
        return self._cluster_role(role, rules, binding, HPA_CONTROLLER)

    def _adapter_permissions(
        self, account: str, namespace: str, delegator: str, auth_reader: str, resource_reader: str, resources: list[str]
    ) -> list[pulumi.Resource]:
        """Let the adapter authenticate and authorize callers, and read the objects that its metrics describe."""
        subject: k8s.rbac.v1.SubjectArgsDict = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}
        ]
        return [
            self._bind("system:auth-delegator", delegator, subject),
            k8s.rbac.v1.RoleBinding(
                auth_reader,
                metadata={"name": auth_reader, "namespace": "kube-system"},
                role_ref={
                    "api_group": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": "extension-apiserver-authentication-reader",
                },
                subjects=[subject],
                opts=self._inside(),
            ),
            *self._cluster_role(resource_reader, rules, resource_reader, subject),
        ]

    def _cluster_role(
        self,
        name: str,
        rules: "list[k8s.rbac.v1.PolicyRuleArgsDict]",
        binding: str,
        subject: "k8s.rbac.v1.SubjectArgsDict",
    ) -> list[pulumi.Resource]:
        role = k8s.rbac.v1.ClusterRole(name, metadata={"name": name}, rules=rules, opts=self._inside())
        return [role, self._bind(name, binding, subject, role)]

    def _bind(
        self, role: str, binding: str, subject: "k8s.rbac.v1.SubjectArgsDict", *after: pulumi.Resource
    ) -> pulumi.Resource:
        return k8s.rbac.v1.ClusterRoleBinding(
            binding,
            metadata={"name": binding},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            subjects=[subject],
            opts=self._inside(*after),
        )

    def _api_service(
        self, group: str, version: str, priority: int, service: tuple[str, str], after: Sequence[pulumi.Resource]
    ) -> k8s.apiregistration.v1.APIService:
        # Created after its server and deleted before it: an API without a server blocks the deletion of namespaces.
        return k8s.apiregistration.v1.APIService(
            f"{version}.{group}",
            metadata={"name": f"{version}.{group}"},
            spec={
                "group": group,
                "version": version,
                "group_priority_minimum": 100,
                "version_priority": priority,
                # The adapter signs its own certificate.
                "insecure_skip_tls_verify": True,
                "service": {"name": service[0], "namespace": service[1], "port": 443},
            },
            opts=self._inside(*after),
        )

    def _tpu_metrics(self) -> None:
        plugin = {"k8s-app": "tpu-device-plugin"}
        k8s.apiextensions.CustomResource(
            "tpu-metrics-exporter",
            api_version=POD_MONITORING_API,
            kind="PodMonitoring",
            metadata={"name": "tpu-metrics-exporter", "namespace": "kube-system", "labels": plugin},
            spec={
                "selector": {"matchLabels": plugin},
                "endpoints": [{"port": 2112, "interval": f"{SYSTEM_SCRAPE_SECONDS}s"}],
            },
            opts=self._inside(),
        )


def frontend_url() -> str:
    """URL at which the adapter queries the frontend."""
    return f"http://{FRONTEND_SERVICE}.{PROMETHEUS_NAMESPACE}.svc:{FRONTEND_PORT}/"


def external_rules(cluster: str) -> list[dict[str, Any]]:
    """prometheus-adapter's rules: each metric of METRICS, averaged over the autoscaler's namespace.

    The adapter adds the autoscaler's namespace to the query, under the namespace label of `resources`: the server's
    metrics have `namespace`, those of its TPUs `exported_namespace`.
    """
    return [
        {
            "seriesQuery": metric.series,
            "resources": {"overrides": {POD_NAMESPACE: {"resource": "namespace"}}}
            if name == TPU_MEMORY
            else {"template": "<<.Resource>>"},
            "name": {"matches": "", "as": metric.average},
            "metricsQuery": query(name, cluster),
        }
        for name, metric in METRICS.items()
    ]


def explain(args: pulumi.ErrorHookArgs) -> bool:
    """Explain an object that already exists. Never retry: it would not help."""
    latest = args.errors[0]
    if args.type.startswith("gcp:") and "lready exists" in latest:
        pulumi.log.error(
            f"The project already has a Google service account {args.name} that this stack did not "
            "create. Another stack of the project may scale through prometheus. Destroy that stack first, or give this "
            "stack a project of its own."
        )
    elif "already exists" in latest:
        pulumi.log.error(
            f"The cluster already has a {args.type.rpartition(':')[2]} {args.name} that this stack did not "
            "create. Another metrics adapter is installed, and a cluster can have only one. Find it with kubectl get "
            f"apiservice {EXTERNAL_METRICS} -o jsonpath={{.spec.service}}. Remove it, or remove `autoscaling` from "
            "this stack."
        )
    return False
