"""Dashboards and alerts of a stack, and the collection of Kueue's metrics."""

import json
from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from catalog import dashboards
from catalog.dashboards import Chart, MonitoredServer
from catalog.namespaces import METRICS_COLLECTORS
from catalog.versions import POD_MONITORING_API
from components.base import Component, read
from components.kueue import NAMESPACE, RELEASE
from settings.model import Monitoring

# Who scrapes, in one of the namespaces of `METRICS_COLLECTORS`.
# https://github.com/GoogleCloudPlatform/prometheus-engine, examples/inference-optimized-gateway
COLLECTOR = "collector"
METRICS_READER = "metrics-reader"
METRICS_TOKEN = "metrics-reader-token"
# ClusterRole of Kueue's chart: to get /metrics, and nothing else.
METRICS_ROLE = f"{RELEASE}-metrics-reader"
# As the chart labels the manager's pod, and names the port of its metrics.
MANAGER_LABELS = {"control-plane": "controller-manager", "app.kubernetes.io/instance": RELEASE}
METRICS_PORT = "metrics"
INTERVAL = "30s"


class MonitoredServerArgs(TypedDict):
    """A monitored server."""

    namespace: str
    name: str
    """Of its Deployment."""
    engine: NotRequired[str]
    """`tgi`, `vllm` or `jetstream`, where a PodMonitoring collects the engine's own metrics; none: nothing does."""


class SystemMonitoringArgs(TypedDict):
    """Arguments of a `SystemMonitoring`; all but the first two have defaults, and say that the stack has none."""

    project: str
    """Id of the Google Cloud project."""
    cluster: str
    """Name of the cluster, by which its metrics are told from those of others in the project."""
    queues: NotRequired[bool]
    """Kueue runs in the cluster."""
    servers: NotRequired[list[MonitoredServerArgs]]
    job_namespaces: NotRequired[list[str]]
    """Namespaces in which Jobs run."""
    jobsets: NotRequired[bool]
    accelerators: NotRequired[bool]
    tpus: NotRequired[bool]
    dashboards: NotRequired[bool]
    alerts: NotRequired[bool]
    channels: NotRequired[list[str]]
    """Notification channels: `projects/PROJECT/notificationChannels/ID`."""
    queue_stuck_minutes: NotRequired[int]
    preemptions_per_hour: NotRequired[int]
    server_down_minutes: NotRequired[int]


class SystemMonitoring(Component):
    """Dashboards of queues, servers, accelerators and Jobs in Cloud Monitoring, where the stack has them, and alerts.

    Alerts: a queue that has workloads waiting and admits none, or nothing heard of Kueue; many preemptions of a queue's
    workloads within an hour; a server without a replica that is ready. They are PromQL, and may name metrics that are
    not there yet: the first samples come minutes after the first `up`.

    Kueue serves its metrics by TLS to whom Kubernetes lets get `/metrics`. So a service account of its own may do that
    and nothing else; Managed Service for Prometheus reads its token, which Kubernetes makes, from a Secret. Kueue's
    certificate for this port is its own, made at each start: nobody can check it.

    Let it wait for Kueue and for the servers: then it is created after, and deleted before what it watches.

    Google names dashboards and alerts itself: after an `up` that was killed while one was being made, it may be there
    twice, and the older is a person's to delete.

    Refused: arguments that `settings.model.Monitoring` refuses; by Google, a channel that isn't there.

    Never run on Google Cloud: bodies are checked against Google's discovery documents, queries by Prometheus itself.

    Sources: https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v1/projects.dashboards,
    https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies,
    https://docs.cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://github.com/GoogleCloudPlatform/prometheus-engine/blob/main/doc/api.md#auth,
    https://kueue.sigs.k8s.io/docs/reference/metrics/
    """

    dashboard_ids: pulumi.Output[list[str]]

    def __init__(self, name: str, args: SystemMonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        watch = read(Monitoring, name, args)
        self._project, self._cluster = args["project"], args["cluster"]
        self._channels = watch.channels
        servers = [MonitoredServer(one["namespace"], one["name"], one.get("engine")) for one in args.get("servers", [])]
        queues = args.get("queues", False)

        if queues:
            self._collect_kueue()
        made = (
            [self._dashboard(topic, charts) for topic, charts in all_charts(args, servers)] if watch.dashboards else []
        )
        if watch.alerts and queues:
            self._queue_alerts(watch)
        for server in servers if watch.alerts else []:
            self._alert(
                f"{server.namespace}/{server.name}-down",
                f"{self._cluster}: server {server.namespace}/{server.name} has no ready replica",
                "CRITICAL",
                [("No ready replica", dashboards.down(self._cluster, server), watch.server_down_minutes)],
                f"Requests to {server.name} fail. Its pods say why:\n\n"
                f"    kubectl get pods -n {server.namespace}\n"
                f"    kubectl describe deployment -n {server.namespace} {server.name}\n\n"
                "Pods that are Pending or SchedulingGated wait for nodes or for quota: see the dashboard of queues. "
                "Where pods are ready, the cluster doesn't send metrics of Deployments: turn on the package "
                "DEPLOYMENT of kube state metrics.",
            )

        self.dashboard_ids = pulumi.Output.all(*(one.id for one in made)).apply(list)
        self.register_outputs({"dashboardIds": self.dashboard_ids})

    def _dashboard(self, topic: str, charts: list[Chart]) -> "gcp.monitoring.Dashboard":
        body = dashboards.dashboard(f"{self._cluster}: {topic}", charts)
        return gcp.monitoring.Dashboard(
            topic,
            project=self._project,
            dashboard_json=json.dumps(body, sort_keys=True),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _queue_alerts(self, watch: Monitoring) -> None:
        minutes = watch.queue_stuck_minutes
        self._alert(
            "queue-stuck",
            f"{self._cluster}: a queue does not move",
            "ERROR",
            [
                ("Workloads wait and none is admitted", dashboards.stuck(self._cluster), minutes),
                ("Nothing is heard of Kueue", dashboards.silent(self._cluster), minutes),
            ],
            f"For {minutes} minutes workloads have waited in a cluster queue that admitted none, or Kueue has sent no "
            "metrics. Why each one waits:\n\n"
            "    kubectl get workloads -A\n"
            "    kubectl describe clusterqueue\n"
            f"    kubectl logs -n {NAMESPACE} -l control-plane=controller-manager\n\n"
            "Often something holds the quota that should have ended, or asks for more than the queue ever has.",
        )
        self._alert(
            "preemption-storm",
            f"{self._cluster}: many preemptions",
            "WARNING",
            [
                (
                    f"{watch.preemptions_per_hour} preemptions or more in an hour",
                    dashboards.preempted(self._cluster, watch.preemptions_per_hour),
                    0,
                )
            ],
            "Workloads of a queue are preempted again and again, and lose what they did since their last checkpoint. "
            "The dashboard of queues says which queue preempts; raise the quota, or bring the priorities of what "
            "competes closer together.",
        )

    def _alert(
        self, name: str, title: str, severity: str, conditions: list[tuple[str, str, int]], advice: str
    ) -> "gcp.monitoring.AlertPolicy":
        """An alert that fires when one of the conditions has been true for its minutes."""
        return gcp.monitoring.AlertPolicy(
            name,
            project=self._project,
            display_name=title,
            combiner="OR",
            severity=severity,
            conditions=[
                {
                    "display_name": condition,
                    "condition_prometheus_query_language": {
                        "query": query,
                        "duration": f"{60 * minutes}s",
                        "evaluation_interval": f"{dashboards.EVALUATION_SECONDS}s",
                        "disable_metric_validation": True,  # the metric comes with its first sample
                    },
                }
                for condition, query, minutes in conditions
            ],
            documentation={"content": advice, "mime_type": "text/markdown"},
            notification_channels=self._channels,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _collect_kueue(self) -> None:
        """A credential for Kueue's metrics that only their collector reads, and the PodMonitoring that uses it."""
        inside = pulumi.ResourceOptions(parent=self)
        account = k8s.core.v1.ServiceAccount(
            METRICS_READER,
            metadata={"name": METRICS_READER, "namespace": NAMESPACE},
            automount_service_account_token=False,
            opts=inside,
        )
        binding = k8s.rbac.v1.ClusterRoleBinding(
            METRICS_ROLE,
            metadata={"name": METRICS_ROLE},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": METRICS_ROLE},
            subjects=[{"kind": "ServiceAccount", "name": METRICS_READER, "namespace": NAMESPACE}],
            opts=inside,
        )
        # Kubernetes fills it, and empties it with its account; so it comes after.
        token = k8s.core.v1.Secret(
            METRICS_TOKEN,
            metadata={
                "name": METRICS_TOKEN,
                "namespace": NAMESPACE,
                "annotations": {
                    "kubernetes.io/service-account.name": METRICS_READER,
                    "pulumi.com/waitFor": "jsonpath={.data.token}",
                },
            },
            type="kubernetes.io/service-account-token",
            opts=pulumi.ResourceOptions(parent=self, depends_on=[account]),
        )
        role = k8s.rbac.v1.Role(
            METRICS_TOKEN,
            metadata={"name": METRICS_TOKEN, "namespace": NAMESPACE},
            rules=[
                {
                    "api_groups": [""],
                    "resources": ["secrets"],
                    "resource_names": [METRICS_TOKEN],
                    "verbs": ["get", "list", "watch"],
                }
            ],
            opts=inside,
        )
        reading = k8s.rbac.v1.RoleBinding(
            METRICS_TOKEN,
            metadata={"name": METRICS_TOKEN, "namespace": NAMESPACE},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": METRICS_TOKEN},
            subjects=[
                {"kind": "ServiceAccount", "name": COLLECTOR, "namespace": namespace}
                for namespace in METRICS_COLLECTORS
            ],
            opts=inside,
        )
        k8s.apiextensions.CustomResource(
            f"{NAMESPACE}/{RELEASE}",
            api_version=POD_MONITORING_API,
            kind="PodMonitoring",
            metadata={"name": RELEASE, "namespace": NAMESPACE},
            spec={
                "selector": {"matchLabels": MANAGER_LABELS},
                "endpoints": [
                    {
                        "port": METRICS_PORT,
                        "path": "/metrics",
                        "scheme": "https",
                        "interval": INTERVAL,
                        "authorization": {
                            "type": "Bearer",
                            "credentials": {"secret": {"name": METRICS_TOKEN, "key": "token"}},
                        },
                        "tls": {"insecureSkipVerify": True},
                    }
                ],
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[token, role, reading, binding]),
        )


def all_charts(args: SystemMonitoringArgs, servers: list[MonitoredServer]) -> list[tuple[str, list[Chart]]]:
    """The charts of each dashboard, by topic: of what there is, and of nothing else."""
    cluster, queues = args["cluster"], args.get("queues", False)
    topics: list[tuple[str, list[Chart]]] = []
    if queues:
        topics.append(("queues", dashboards.queue_charts(cluster)))
    if servers:
        topics.append(("servers", dashboards.server_charts(cluster, servers)))
    if args.get("accelerators"):
        topics.append(("accelerators", dashboards.accelerator_charts(cluster, args.get("tpus", False))))
    if namespaces := args.get("job_namespaces"):
        topics.append(("jobs", dashboards.job_charts(cluster, namespaces, queues, args.get("jobsets", False))))
    return topics
