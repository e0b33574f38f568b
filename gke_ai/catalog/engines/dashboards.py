"""Monitoring: charts and alerts as PromQL, and dashboards as Cloud Monitoring's API takes them. Pure functions.

Documentation of each group of metrics:

- `kueue_…`: https://kueue.sigs.k8s.io/docs/reference/metrics/ (0.18; `enableClusterQueueResources` enables those of
  quotas), scraped through a PodMonitoring
- `kube_…`: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/kube-state-metrics (a GKE package each, see
  `PACKAGES`; without system namespaces)
- `kubernetes_io:…`: https://docs.cloud.google.com/monitoring/api/metrics_kubernetes, GKE's system metrics, named by
  https://docs.cloud.google.com/monitoring/promql/promql-mapping
- metrics of engines: `charts` in `gke_ai.catalog.engines.engine`

Managed Service for Prometheus adds the labels `cluster`, `namespace` and `job` (the PodMonitoring) to all metrics but
`kubernetes_io:…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.kueue.namespaces import KUEUE
from gke_ai.catalog.nodes.shape import ACCELERATORS

# Metric packages of a monitored Standard cluster. A list replaces GKE's defaults for new clusters, so it contains them.
# https://docs.cloud.google.com/kubernetes-engine/docs/how-to/configure-metrics
PACKAGES = (
    *("SYSTEM_COMPONENTS", "STORAGE", "POD", "DEPLOYMENT", "STATEFULSET", "DAEMONSET", "HPA", "JOBSET"),
    *("CADVISOR", "KUBELET", "DCGM"),
)
# Metric packages of a Standard cluster without monitoring: Google charges for samples of all others.
# https://cloud.google.com/stackdriver/pricing#gke-charges
SYSTEM_PACKAGES = ("SYSTEM_COMPONENTS",)

# Window for admissions of a queue: several scrapes, and at most the shortest wait of an alert.
RECENT_MINUTES = 5
# Interval between evaluations of a rule; a multiple of 30 seconds.
# https://docs.cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies#PrometheusQueryLanguageCondition
EVALUATION_SECONDS = 60


@dataclass(frozen=True)
class Chart:
    """A chart of PromQL queries: one query, or several by name. The unit of all lines is a UCUM unit.

    The legend is Google's default, the labels of each line: no page says how legend templates name PromQL labels.
    """

    title: str
    queries: str | Mapping[str, str]
    unit: str = "1"

    def lines(self) -> list[str]:
        """Returns the queries to draw. The label `line` distinguishes several queries."""
        if isinstance(self.queries, str):
            return [self.queries]
        return [f'label_replace({query}, "line", "{name}", "", "")' for name, query in self.queries.items()]


@dataclass(frozen=True)
class MonitoredServer:
    """A model server to monitor."""

    namespace: str
    """Namespace of its Deployment."""
    name: str
    """Name of its Deployment."""
    engine: str | None = None
    """Name of the engine, if a PodMonitoring collects the engine's metrics. Default: no engine metrics."""
    sleeps: bool = False
    """Whether it has no replica while it gets no request."""


def selector(cluster: str, **labels: str) -> str:
    """Returns a PromQL selector of the cluster's series. A value with `|` matches any of its parts."""
    matchers = {"cluster": cluster, **labels}
    return "{" + ", ".join(f'{name}{"=~" if "|" in value else "="}"{value}"' for name, value in matchers.items()) + "}"


# -------------------------------------------------------------------------------------------------------------- charts
def queue_charts(cluster: str) -> list[Chart]:
    """Returns charts of cluster queues: waiting, admitted and evicted workloads, and used quota."""
    here = selector(cluster)
    wait = f"sum by (cluster_queue, le) (rate(kueue_admission_wait_time_seconds_bucket{here}[1h]))"

    def hourly(counter: str, by: str) -> str:
        return f"sum by ({by}) (increase({counter}{here}[1h]))"

    def quota(gauge: str) -> str:
        return f"max by (cluster_queue, flavor, resource) ({gauge}{here})"

    used = f"{quota('kueue_cluster_queue_resource_usage')} / ({quota('kueue_cluster_queue_nominal_quota')} > 0)"
    admitted = f"max by (cluster_queue) (kueue_admitted_active_workloads{here})"
    quantiles = {name: f"histogram_quantile({part}, {wait})" for name, part in (("median", 0.5), ("95 %", 0.95))}
    return [
        Chart("Waiting workloads", pending(cluster, "cluster_queue, status")),
        Chart("Admitted workloads", admitted),
        Chart("Admissions in the last hour", hourly("kueue_admitted_workloads_total", "cluster_queue")),
        Chart("Wait for admission", quantiles, "s"),
        Chart("Evictions in the last hour", hourly("kueue_evicted_workloads_total", "cluster_queue, reason")),
        Chart(
            "Preemptions in the last hour, by preempting queue",
            hourly("kueue_preempted_workloads_total", "preempting_cluster_queue, reason"),
        ),
        Chart("Used quota", used, "10^2.%"),
    ]


def share_charts(cluster: str, fair_sharing: bool, past_usage: bool) -> list[Chart]:
    """Returns charts of what queues borrow and lend, and of their shares and past usage where Kueue counts them.

    Kueue states the share of whoever borrows with weight 0 as NaN or infinite: it has no line.
    """
    usage, nominal, limit = (
        _of_queue(cluster, metric, resource="|".join(ACCELERATORS))
        for metric in ("resource_usage", "nominal_quota", "lending_limit")
    )
    left = f"({nominal} - {usage})"
    charts = [
        Chart("Accelerators borrowed", f"{usage} - {nominal} > 0"),
        Chart("Unused accelerators that a queue lends", f"({left} < {limit} or {limit}) > 0"),
    ]
    if fair_sharing:
        members = ("cluster_queue", "cohort")
        shares = {of: f"max by ({of}) (kueue_{of}_weighted_share{selector(cluster)}) < Inf" for of in members}
        charts.append(Chart("Share: thousandths of the lendable quota that are borrowed, by weight", shares))
    if past_usage:
        by = "cluster_queue, exported_namespace, name"
        usage = f"max by ({by}) (kueue_local_queue_admission_fair_sharing_usage{selector(cluster)})"
        charts.append(Chart("Past usage of local queues, by weight", usage))
    return charts


def server_charts(cluster: str, servers: Sequence[MonitoredServer]) -> list[Chart]:
    """Returns charts of servers: replicas, and the load of each engine."""
    every = selector(
        cluster,
        namespace="|".join(dict.fromkeys(server.namespace for server in servers)),
        deployment="|".join(dict.fromkeys(server.name for server in servers)),
    )
    replicas = {
        "available": _replicas("kube_deployment_status_replicas_available", every),
        "wanted": _replicas("kube_deployment_spec_replicas", every),
    }
    charts = [Chart("Replicas", replicas)]
    for engine in ENGINES.values():
        namespaces = dict.fromkeys(server.namespace for server in servers if server.engine == engine.name)
        if namespaces:
            here = selector(cluster, namespace="|".join(namespaces))
            charts += [Chart(title, query.replace("{}", here), unit) for title, query, unit in engine.charts]
    return charts


def accelerator_charts(cluster: str, tpus: bool) -> list[Chart]:
    """Returns charts of GPUs and TPUs: allocation and utilization, and for TPUs memory bandwidth."""
    held = f'{{monitored_resource="k8s_container", cluster_name="{cluster}"}}'

    def by_model(function: str, metric: str) -> str:
        return f"{function} by (namespace_name, model) (kubernetes_io:container_accelerator_{metric}{held})"

    requested = f"sum by (namespace_name, resource_name) (kubernetes_io:container_accelerator_request{held})"
    charts = [
        Chart("Accelerators requested by containers", requested),
        Chart("Busy", by_model("avg", "duty_cycle"), "%"),
        Chart("Memory in use", f"{by_model('sum', 'memory_used')} / {by_model('sum', 'memory_total')}", "10^2.%"),
    ]
    if tpus:
        nodes = f'{{monitored_resource="k8s_node", cluster_name="{cluster}"}}'
        charts += [
            Chart(title, f"avg by (model) (kubernetes_io:node_accelerator_{metric}{nodes})", "%")
            for title, metric in (
                ("TPU: TensorCores in use", "tensorcore_utilization"),
                ("TPU: memory bandwidth in use", "memory_bandwidth_utilization"),
            )
        ]
    return charts


def job_charts(cluster: str, namespaces: Sequence[str], queues: bool, jobsets: bool) -> list[Chart]:
    """Returns charts of Jobs: their pods by phase, unschedulable pods, finished workloads and JobSets."""
    here = selector(cluster, namespace="|".join(namespaces))
    charts = [
        Chart("Pods", f"sum by (namespace, phase) (kube_pod_status_phase{here}) > 0"),
        Chart("Unschedulable pods", f"sum by (namespace) (kube_pod_status_unschedulable{here})"),
    ]
    if queues:
        finished = f"sum by (cluster_queue) (increase(kueue_finished_workloads_total{selector(cluster)}[1h]))"
        charts.append(Chart("Workloads finished in the last hour", finished))
    if jobsets:

        def jobset(metric: str) -> str:
            return f"sum by (namespace, jobset_name) (kube_jobset_{metric}{here})"

        slices = {"ready": jobset("ready_replicas"), "wanted": jobset("specified_replicas")}
        charts += [Chart("JobSets: slices", slices), Chart("JobSets: restarts", jobset("restarts"))]
    return charts


def pending(cluster: str, by: str) -> str:
    """Returns the query for waiting workloads. It counts each queue and status once, because series of a former
    manager pod may remain."""
    counted = f"max by (cluster_queue, status) (kueue_pending_workloads{selector(cluster)})"
    return counted if by == "cluster_queue, status" else f"sum by ({by}) ({counted})"


def _replicas(metric: str, here: str) -> str:
    return f"max by (namespace, deployment) ({metric}{here})"


# -------------------------------------------------------------------------------------------------------------- alerts
def stuck(cluster: str) -> str:
    """Returns the query for queues with waiting workloads and no admission in the last minutes.

    A new counter also counts as an admission, although `increase` does not see it.
    """
    admitted = f"kueue_admitted_workloads_total{selector(cluster)}"
    moved = f"sum by (cluster_queue) (increase({admitted}[{RECENT_MINUTES}m])) > 0"
    first = f"sum by (cluster_queue) ({admitted} unless {admitted} offset {RECENT_MINUTES}m)"
    return f"{pending(cluster, 'cluster_queue')} > 0 unless on (cluster_queue) ({moved} or {first})"


def starved(cluster: str) -> str:
    """Returns the query for queues with waiting workloads and unused quota of which others use a part.

    What is free at the root of the tree is less than what the queue has left. Counts what queues do not lend, but not
    the lending limits of cohorts. `kueue_cohort_subtree_quota` and `kueue_cluster_queue_info` have the gate
    MetricsForCohorts, on by default since 0.18.
    """
    used, nominal, limit = (
        _of_queue(cluster, metric) for metric in ("resource_reservation", "nominal_quota", "lending_limit")
    )
    root = f"max by (cluster_queue, root_cohort) (kueue_cluster_queue_info{selector(cluster)})"
    in_root = f"* on (cluster_queue) group_left (root_cohort) {root}"
    shared = f"clamp_min({used} - clamp_min({nominal} - {limit}, 0), 0)"
    quota = f"max by (cohort, flavor, resource) (kueue_cohort_subtree_quota{selector(cluster)})"
    total = f'label_replace({quota}, "root_cohort", "$1", "cohort", "(.*)")'
    cells = "(root_cohort, flavor, resource)"
    free = f"(sum by {cells} ({total}) - sum by {cells} ({shared} {in_root}))"
    waits = f"sum by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{selector(cluster)}) > 0"
    left = f"({nominal} - {used} > 0) {in_root}"
    return f"({left} > on {cells} group_left () {free}) and on (cluster_queue, resource) ({waits})"


def _of_queue(cluster: str, metric: str, **labels: str) -> str:
    here = selector(cluster, **labels)
    return f"max by (cluster_queue, flavor, resource) (kueue_cluster_queue_{metric}{here})"


def silent(cluster: str) -> str:
    """Returns the query for missing metrics of Kueue: its manager does not run, or nothing collects its metrics."""
    return f"absent(kueue_pending_workloads{selector(cluster)})"


def preempted(cluster: str, an_hour: int) -> str:
    """Returns the query for queues with at least that many preempted workloads in an hour."""
    here = selector(cluster, reason="Preempted")
    return f"round(sum by (cluster_queue) (increase(kueue_evicted_workloads_total{here}[1h]))) >= {an_hour}"


def uncounted(cluster: str, tenants: Sequence[str]) -> str:
    """Returns the query for tenants whose containers request more accelerators than Kueue counts.

    Kueue's own namespace is named, because a tenant can serve metrics of the same name. Its label of the queue's
    namespace becomes `exported_namespace`: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config
    """
    names = "|".join(tenants)
    has = f'{{monitored_resource="k8s_container", cluster_name="{cluster}", namespace_name=~"{names}"}}'
    requested = f"sum by (namespace_name) (kubernetes_io:container_accelerator_request{has})"
    here = selector(cluster, namespace=KUEUE, exported_namespace=names, resource="|".join(ACCELERATORS))
    each = f"max by (exported_namespace, name, flavor, resource) (kueue_local_queue_resource_usage{here})"
    of_tenant = f'label_replace({each}, "namespace_name", "$1", "exported_namespace", "(.*)")'
    return f"{requested} > (sum by (namespace_name) ({of_tenant}) or 0 * {requested})"


def down(cluster: str, server: MonitoredServer) -> str:
    """Returns the query for a server without a ready replica. A server without a series has none.

    One that sleeps has none either, until its autoscaler wants one.
    """
    here = selector(cluster, namespace=server.namespace, deployment=server.name)
    asleep = f" unless max(kube_deployment_spec_replicas{here}) == 0" if server.sleeps else ""
    return f"(max(kube_deployment_status_replicas_available{here}) or vector(0)) < 1{asleep}"


# ---------------------------------------------------------------------------------------------------------- dashboards
COLUMNS, WIDTH, HEIGHT = 12, 6, 4


def dashboard(title: str, charts: Iterable[Chart]) -> dict[str, Any]:
    """Returns a dashboard with two charts per row.

    Fields with default values are left out: Google does not return them, so the provider would see a change.
    https://github.com/hashicorp/terraform-provider-google/issues/7242
    """
    return {"displayName": title, "mosaicLayout": {"columns": COLUMNS, "tiles": list(_tiles(charts))}}


def _tiles(charts: Iterable[Chart]) -> Iterator[dict[str, Any]]:
    for index, chart in enumerate(charts):
        row, column = divmod(index, COLUMNS // WIDTH)
        place = {"xPos": column * WIDTH, "yPos": row * HEIGHT}
        yield {
            **{name: at for name, at in place.items() if at},
            "width": WIDTH,
            "height": HEIGHT,
            "widget": {
                "title": chart.title,
                "xyChart": {"dataSets": [_drawn(query, chart.unit) for query in chart.lines()]},
            },
        }


def _drawn(query: str, unit: str) -> dict[str, Any]:
    return {"plotType": "LINE", "targetAxis": "Y1", "timeSeriesQuery": {"prometheusQuery": query, "unitOverride": unit}}
