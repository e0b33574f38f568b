"""Dashboards and alerts in Cloud Monitoring, and the collection of Kueue's metrics."""

import json
from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines import dashboards
from gke_ai.catalog.engines.dashboards import Chart, MonitoredServer
from gke_ai.catalog.kueue.namespaces import METRICS_COLLECTORS
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.arguments import Input, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.connection import OfCluster, project_in
from gke_ai.components.queues.kueue import NAMESPACE, RELEASE
from gke_ai.settings.model import Monitoring

# The service account that scrapes, in one of the namespaces of `METRICS_COLLECTORS`.
# https://github.com/GoogleCloudPlatform/prometheus-engine, examples/inference-optimized-gateway
COLLECTOR = "collector"
METRICS_READER = "metrics-reader"
METRICS_TOKEN = "metrics-reader-token"
# ClusterRole of Kueue's chart that allows only GET /metrics.
METRICS_ROLE = f"{RELEASE}-metrics-reader"
# The chart's labels of the manager's pod, and its name for the metrics port.
MANAGER_LABELS = {"control-plane": "controller-manager", "app.kubernetes.io/instance": RELEASE}
METRICS_PORT = "metrics"
INTERVAL = "30s"
# How long pods that end may have what Kueue no longer counts, before an alert. By default they take half a minute.
UNCOUNTED_MINUTES = 1


class SystemMonitoringArguments(OfCluster, Monitoring):
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the cluster."""
    channels: Sequence[Input[str]] = ()  # type: ignore[assignment]
    queues: bool = False
    """Kueue runs in the cluster."""
    cohorts: bool = False
    """Its queues share quota in cohorts."""
    fair_sharing: bool = False
    """They share it by weight."""
    past_usage: bool = False
    """Kueue orders workloads by the past usage of their local queues."""
    servers: Sequence[MonitoredServer] = ()
    """Model servers to monitor."""
    job_namespaces: Sequence[str] = ()
    """Namespaces in which Jobs run."""
    jobsets: bool = False
    """JobSets run in the cluster."""
    accelerators: bool = False
    """The cluster has accelerators."""
    tpus: bool = False
    """The cluster has TPUs."""
    tenants: Sequence[str] = ()
    """Namespaces of tenants, whose accelerators Kueue counts."""


class SystemMonitoring(Component):
    """Dashboards of the stack's queues, servers, accelerators and Jobs in Cloud Monitoring, and alerts.

    The alerts: a queue has waiting workloads and admits none, or Kueue sends no metrics; a queue waits while others use
    its quota; a queue's workloads are preempted many times within an hour; a server has no ready replica; a tenant has
    accelerators that Kueue does not count. The queries are PromQL and may name metrics that do not exist yet: the first
    samples arrive minutes after the first `up`.

    Kueue serves its metrics over TLS to clients that Kubernetes allows to get `/metrics`. A service account has only
    this permission, and Managed Service for Prometheus reads its token from a Secret that Kubernetes fills. Kueue
    creates a self-signed certificate for this port at each start, so no client can verify it.

    Let the component depend on Kueue and on the servers: Pulumi then creates it after them and deletes it before them.

    Google chooses the ids of dashboards and alerts. If an `up` is killed while it creates one, the next `up` may create
    a second one; delete the older one yourself.

    Refused: by Google, a channel that doesn't exist.

    Never run on Google Cloud. Tests check the bodies against Google's discovery documents, and the queries with
    Prometheus.

    Sources: https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v1/projects.dashboards,
    https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies,
    https://docs.cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://github.com/GoogleCloudPlatform/prometheus-engine/blob/main/doc/api.md#auth,
    https://kueue.sigs.k8s.io/docs/reference/metrics/

    Example:
        SystemMonitoring("monitoring", cluster=cluster, queues=True, accelerators=True)
    """

    dashboard_ids: pulumi.Output[list[str]]

    @takes(SystemMonitoringArguments)
    def __init__(self, name: str, args: SystemMonitoringArguments) -> None:
        super().__init__(name, args)
        title = f"SystemMonitoring {name}"
        monitoring, queues, tenants, servers = args.section(Monitoring), args.queues, args.tenants, args.servers
        cluster, project = args.cluster_name(title), project_in(args.project, args.place(), title)
        self._project, self._cluster = project, cluster
        self._channels = monitoring.channels
        charts_by_topic = all_charts(
            cluster, queues, servers, args.job_namespaces, args.jobsets, args.accelerators, args.tpus
        )
        if queues and (args.cohorts or args.past_usage):
            charts_by_topic += [("shares", dashboards.share_charts(cluster, args.fair_sharing, args.past_usage))]

        if queues:
            self._collect_kueue()
        bodies = {topic: dashboards.dashboard(f"{cluster}: {topic}", charts) for topic, charts in charts_by_topic}
        created = [
            gcp.monitoring.Dashboard(
                *self.child(topic), project=project, dashboard_json=json.dumps(body, sort_keys=True)
            )
            for topic, body in (bodies.items() if monitoring.dashboards else ())
        ]
        if monitoring.alerts and queues:
            self._queue_alerts(monitoring)
        if monitoring.alerts and queues and args.cohorts:
            minutes = monitoring.queue_stuck_minutes
            self._alert(
                "queue-starved",
                f"{cluster}: a queue is starved",
                "WARNING",
                [("Workloads wait and others use the queue's quota", dashboards.starved(cluster), minutes)],
                f"For {minutes} minutes workloads have waited in a cluster queue of whose own quota others use a part. "
                "Its `preemption.reclaimWithinCohort`, or the priority of its workloads, keeps it from taking the "
                "quota back. The dashboard of shares shows since when. To see who borrows it, and what comes back:\n\n"
                "    gke-ai status --stack STACK --shares",
            )
        if monitoring.alerts and queues and tenants:
            self._alert(
                "uncounted-accelerators",
                f"{self._cluster}: a tenant has accelerators that Kueue does not count",
                "ERROR",
                [("More than Kueue counts", dashboards.uncounted(self._cluster, tenants), UNCOUNTED_MINUTES)],
                "Pods of a tenant have more accelerators than its queues admitted: pods that end slowly, or pods that "
                "no queue admitted. The quota of the namespace limits both. To see which pods:\n\n"
                "    gke-ai status --stack STACK --namespace TENANT\n"
                "    kubectl get pods,workloads -n TENANT",
            )
        for server in servers if monitoring.alerts else []:
            self._alert(
                f"{server.namespace}/{server.name}-down",
                f"{self._cluster}: server {server.namespace}/{server.name} has no ready replica",
                "CRITICAL",
                [("No ready replica", dashboards.down(self._cluster, server), monitoring.server_down_minutes)],
                f"Requests to {server.name} fail. Its pods say why:\n\n"
                f"    kubectl get pods -n {server.namespace}\n"
                f"    kubectl describe deployment -n {server.namespace} {server.name}\n\n"
                "Pods that are Pending or SchedulingGated wait for nodes or for quota: see the dashboard of queues. "
                "If pods are ready, the cluster does not send metrics of Deployments: turn on the package "
                "DEPLOYMENT of kube state metrics.",
            )

        self.dashboard_ids = pulumi.Output.all(*(dashboard.id for dashboard in created)).apply(list)
        self.register_outputs({"dashboardIds": self.dashboard_ids})

    def _queue_alerts(self, monitoring: Monitoring) -> None:
        minutes, most = monitoring.queue_stuck_minutes, monitoring.preemptions_per_hour
        self._alert(
            "queue-stuck",
            f"{self._cluster}: a queue is stuck",
            "ERROR",
            [
                ("Workloads wait and Kueue admits none", dashboards.stuck(self._cluster), minutes),
                ("Kueue sends no metrics", dashboards.silent(self._cluster), minutes),
            ],
            f"For {minutes} minutes workloads have waited in a cluster queue that admitted none, or Kueue has sent no "
            "metrics. To see why each workload waits:\n\n"
            "    kubectl get workloads -A\n"
            "    kubectl describe clusterqueue\n"
            f"    kubectl logs -n {NAMESPACE} -l control-plane=controller-manager\n\n"
            "Often a workload that should have ended holds the quota, or a workload requests more than all of it.",
        )
        self._alert(
            "preemption-storm",
            f"{self._cluster}: many preemptions",
            "WARNING",
            [(f"{most} preemptions or more in an hour", dashboards.preempted(self._cluster, most), 0)],
            "Workloads of a queue are preempted repeatedly, and lose their work since the last checkpoint. The "
            "dashboard of queues shows which queue preempts. Raise the quota, or bring the priorities closer together.",
        )

    def _alert(
        self, name: str, title: str, severity: str, conditions: list[tuple[str, str, int]], advice: str
    ) -> "gcp.monitoring.AlertPolicy":
        """An alert that fires when one of the conditions has been true for its minutes."""
        return gcp.monitoring.AlertPolicy(
            *self.child(name),
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
                        "disable_metric_validation": True,  # the metric exists only after its first sample
                    },
                }
                for condition, query, minutes in conditions
            ],
            documentation={"content": advice, "mime_type": "text/markdown"},
            notification_channels=self._channels,
        )

    def _collect_kueue(self) -> None:
        """Create a credential for Kueue's metrics, readable only by the collector, and its PodMonitoring."""
        account = k8s.core.v1.ServiceAccount(
            *self.child(METRICS_READER),
            metadata={"name": METRICS_READER, "namespace": NAMESPACE},
            automount_service_account_token=False,
        )
        binding = k8s.rbac.v1.ClusterRoleBinding(
            *self.child(METRICS_ROLE),
            metadata={"name": METRICS_ROLE},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": METRICS_ROLE},
            subjects=[{"kind": "ServiceAccount", "name": METRICS_READER, "namespace": NAMESPACE}],
        )
        # Kubernetes fills it only if the account exists.
        token = k8s.core.v1.Secret(
            *self.child(METRICS_TOKEN, depends_on=[account]),
            metadata={
                "name": METRICS_TOKEN,
                "namespace": NAMESPACE,
                "annotations": {
                    "kubernetes.io/service-account.name": METRICS_READER,
                    "pulumi.com/waitFor": "jsonpath={.data.token}",
                },
            },
            type="kubernetes.io/service-account-token",
        )
        rule: k8s.rbac.v1.PolicyRuleArgsDict = {
            "api_groups": [""],
            "resources": ["secrets"],
            "resource_names": [METRICS_TOKEN],
            "verbs": ["get", "list", "watch"],
        }
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": METRICS_TOKEN, "namespace": NAMESPACE}
        role = k8s.rbac.v1.Role(*self.child(METRICS_TOKEN), metadata=metadata, rules=[rule])
        reading = k8s.rbac.v1.RoleBinding(
            *self.child(METRICS_TOKEN),
            metadata=metadata,
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": METRICS_TOKEN},
            subjects=[
                {"kind": "ServiceAccount", "name": COLLECTOR, "namespace": namespace}
                for namespace in METRICS_COLLECTORS
            ],
        )
        endpoint = {
            "port": METRICS_PORT,
            "path": "/metrics",
            "scheme": "https",
            "interval": INTERVAL,
            "authorization": {"type": "Bearer", "credentials": {"secret": {"name": METRICS_TOKEN, "key": "token"}}},
            "tls": {"insecureSkipVerify": True},
        }
        scrape = {"selector": {"matchLabels": MANAGER_LABELS}, "endpoints": [endpoint]}
        after = pulumi.ResourceOptions(parent=self, depends_on=[token, role, reading, binding])
        custom_object(POD_MONITORING_API, "PodMonitoring", RELEASE, scrape, after, namespace=NAMESPACE)


def all_charts(
    cluster: str,
    queues: bool,
    servers: Sequence[MonitoredServer],
    job_namespaces: Sequence[str],
    jobsets: bool,
    accelerators: bool,
    tpus: bool,
) -> list[tuple[str, list[Chart]]]:
    """The charts of each dashboard, by topic, for the parts that the stack has."""
    topics: list[tuple[str, list[Chart]]] = []
    if queues:
        topics.append(("queues", dashboards.queue_charts(cluster)))
    if servers:
        topics.append(("servers", dashboards.server_charts(cluster, list(servers))))
    if accelerators:
        topics.append(("accelerators", dashboards.accelerator_charts(cluster, tpus)))
    if job_namespaces:
        topics.append(("jobs", dashboards.job_charts(cluster, list(job_namespaces), queues, jobsets)))
    return topics
