"""Dashboards and alerts: Google accepts them, and alerts fire in a real Prometheus."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from pulumi.runtime.proto import provider_pb2 as proto

from emulator.cloud.store import Store
from emulator.google.clusters import LocalClusters
from emulator.google.monitoring import ALERT_POLICY, DASHBOARD
from emulator.google.plugin import RESOURCES, Gcp
from emulator.google.resource import Cloud
from emulator.pulumi.plugin import decode, encode
from gke_ai.catalog.engines import dashboards
from gke_ai.catalog.engines.dashboards import MonitoredServer
from gke_ai.components.monitoring import SystemMonitoring, all_charts
from gke_ai.settings import load
from gke_ai.settings.resolved import needs
from tests.support.mistakes import base
from tests.support.prometheus import Prometheus, Series, running
from tests.support.recorder import PROJECT, Record, configuration, construct, load_stack, record, shared_record

CHANNEL = "projects/my-project/notificationChannels/1"
SERVERS: list[dict[str, Any]] = [
    {"namespace": "llm", "name": "gemma", "engine": "tgi"},
    {"namespace": "chat", "name": "mixtral", "engine": "vllm"},
    {"namespace": "chat", "name": "maxengine-server", "engine": "jetstream"},
    {"namespace": "llm", "name": "quiet"},
]
EVERYTHING: Any = {"project": PROJECT, "cluster": "ai", "channels": [CHANNEL]}
EVERYTHING |= {"servers": SERVERS, "job_namespaces": ["llm", "train"]}
EVERYTHING |= dict.fromkeys(("queues", "jobsets", "accelerators", "tpus"), True)
EVERYTHING |= dict.fromkeys(("cohorts", "fair_sharing", "past_usage"), True)
Monitor = Callable[..., Record]


@pytest.fixture
def monitor(build: Callable[..., Record]) -> Monitor:
    """Builds the monitoring of a stack with everything that can be monitored, or with changes to that."""
    return partial(build, SystemMonitoring, EVERYTHING)


@pytest.fixture(scope="module")
def monitored() -> Record:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(lambda: construct(SystemMonitoring, "monitoring", EVERYTHING), False, monkeypatch)


def inputs_of(built: Record, kind: str) -> list[dict[str, Any]]:
    return [decode(encode(resource.inputs)) for resource in built.all(kind)]


def boards(built: Record) -> dict[str, dict[str, Any]]:
    """The dashboards, by title."""
    read = [json.loads(dashboard["dashboardJson"]) for dashboard in inputs_of(built, "Dashboard")]
    return {dashboard["displayName"]: dashboard for dashboard in read}


def condition_of(built: Record, name: str) -> dict[str, Any]:
    """The PromQL condition whose name, after that of its alert, contains this."""
    (condition,) = (condition for key, condition in conditions(built).items() if name in key)
    return condition


def conditions(built: Record) -> dict[str, dict[str, Any]]:
    """The PromQL conditions of all alerts, by alert and condition."""
    return {
        f"{policy['displayName']}: {condition['displayName']}": condition["conditionPrometheusQueryLanguage"]
        for policy in inputs_of(built, "AlertPolicy")
        for condition in policy["conditions"]
    }


def queries_of(built: Record, title: str) -> list[list[str]]:
    """The queries of each chart of a dashboard."""
    charts = [tile["widget"]["xyChart"] for tile in boards(built)[title]["mosaicLayout"]["tiles"]]
    return [[line["timeSeriesQuery"]["prometheusQuery"] for line in chart["dataSets"]] for chart in charts]


# --------------------------------------------------------------------------------------------------- what Google takes
def problems(token: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
    return list(RESOURCES[token](Cloud(Store(), LocalClusters(), PROJECT)).problems(inputs))


def walk(value: Any) -> Iterator[Any]:
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)


def test_google_takes_dashboards_and_alerts_and_gives_back_all_of_a_dashboard(monitored: Record) -> None:
    bodies = [(DASHBOARD, dashboard) for dashboard in inputs_of(monitored, "Dashboard")]
    bodies += [(ALERT_POLICY, policy) for policy in inputs_of(monitored, "AlertPolicy")]
    assert len(bodies) == 5 + 3 + 4
    for token, inputs in bodies:
        assert problems(token, inputs) == []
    for board in boards(monitored).values():
        assert not [value for value in walk(board) if value in (0, "", False, [], {}, None)], "that is a default"


def test_an_unknown_field_of_a_dashboard_does_not_pass(monitored: Record) -> None:
    board = boards(monitored)["ai: queues"]
    board["mosaicLayout"]["tiles"][0]["widget"]["xyChart"]["dataSets"][0]["timeSeriesQuery"]["promQl"] = "up"
    ((path, text),) = problems(DASHBOARD, {"dashboardJson": json.dumps(board)})
    assert path == "dashboardJson"
    assert 'Unknown name "promQl"' in text
    assert "dashboard.mosaic_layout.tiles[0].widget.xy_chart.data_sets[0].time_series_query" in text


def querying(**query: str) -> dict[str, Any]:
    """An alert with one condition, on a query of Prometheus."""
    return {"conditions": [{"displayName": "c", "conditionPrometheusQueryLanguage": query}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"combiner": "EITHER"}, "AND, OR, AND_WITH_MATCHING_RESOURCE"),
        ({"severity": "BAD"}, "CRITICAL, ERROR, WARNING"),
        ({"notificationChannels": ["oncall@example.com"]}, "notification_channels[0] had an invalid value"),
        ({"conditions": []}, "1 to 6 conditions"),
        ({"displayName": ""}, "displayName is required"),
        (querying(query="up", duration="1h"), 'seconds with an "s"'),
        (querying(query="up", evaluationInterval="45s"), "positive multiple of 30 seconds"),
        (querying(query=""), "query is required"),
    ],
)
def test_invalid_alert_is_refused_as_google_does(monitored: Record, change: dict[str, Any], message: str) -> None:
    good = inputs_of(monitored, "AlertPolicy")[0]
    assert message in " ".join(text for _, text in problems(ALERT_POLICY, good | change))


OVERLAPPING = [{"width": 4, "height": 1}, {"width": 1, "height": 2, "xPos": 3}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "invalid JSON"),
        ('{"mosaicLayout": {"columns": 12}}', "displayName is required"),
        ('{"displayName": "d", "mosaicLayout": {"columns": 49}}', "from 1 to 48"),
        (
            json.dumps({"displayName": "d", "mosaicLayout": {"columns": 4, "tiles": OVERLAPPING}}),
            "tiles[1] is empty, outside the grid, or on another tile",
        ),
    ],
)
def test_invalid_dashboard_is_refused_as_google_does(text: str, message: str) -> None:
    assert message in " ".join(problem for _, problem in problems(DASHBOARD, {"dashboardJson": text}))


@pytest.mark.parametrize(("kind", "token"), [("Dashboard", DASHBOARD), ("AlertPolicy", ALERT_POLICY)])
def test_a_refresh_of_dashboards_and_alerts_changes_nothing(
    monitored: Record, kind: str, token: str, tmp_path: Path
) -> None:
    plugin, context = Gcp(Store(tmp_path)), mock.Mock()
    plugin.Configure(proto.ConfigureRequest(args=encode({"project": PROJECT})), context)
    for number, inputs in enumerate(map(encode, inputs_of(monitored, kind))):
        urn = f"urn:pulumi:test::gke-ai::{token}::{number}"
        created = plugin.Create(proto.CreateRequest(urn=urn, properties=inputs), context)
        state = proto.ReadRequest(urn=urn, id=created.id, properties=created.properties, inputs=inputs)
        read = plugin.Read(state, context)
        assert read.id == created.id
        for old in (inputs, read.inputs):
            request = proto.DiffRequest(urn=urn, id=created.id, old_inputs=old, news=inputs)
            assert plugin.Diff(request, context).changes == proto.DiffResponse.DIFF_NONE
        again = plugin.Create(proto.CreateRequest(urn=urn, properties=inputs), context)
        assert again.id != created.id, "Google makes a second one of the same title"
    if token == DASHBOARD:
        returned = json.loads(decode(read.inputs)["dashboardJson"])
        assert returned["etag"]
        assert returned["name"] == created.id


# ------------------------------------------------------------------------------------------------------ what they show
@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(tmp_path_factory.mktemp("prometheus")) as started:
        yield started


def test_every_query_is_understood_and_of_this_cluster_alone(monitored: Record, prometheus: Prometheus) -> None:
    of_charts = [line for title in boards(monitored) for chart in queries_of(monitored, title) for line in chart]
    queries = [*of_charts, *(condition["query"] for condition in conditions(monitored).values())]
    assert len(queries) > 30
    for query in queries:
        prometheus.query(query)
        named = re.findall(r"\b(?:kueue_|kube_|kubernetes_io:|tgi_|vllm:|jetstream_)[a-z_]+(\{[^}]*\})?", query)
        assert named
        assert all('cluster="ai"' in query or 'cluster_name="ai"' in query for query in named), query
    # A monitored cluster sends the metrics of GKE's packages.
    packages = {"kube_pod": "POD", "kube_deployment": "DEPLOYMENT", "kube_jobset": "JOBSET"}
    assert {*re.findall(r"kube_[a-z]+", " ".join(queries))} == {*packages}
    assert {*packages.values(), "SYSTEM_COMPONENTS"} <= {*dashboards.PACKAGES}


def test_lines_of_a_chart_are_distinct(monitored: Record, prometheus: Prometheus) -> None:
    here = {"cluster": "ai", "namespace": "llm", "deployment": "gemma"}
    names = ("kube_deployment_status_replicas_available", "kube_deployment_spec_replicas")
    prometheus.take(Series(name, here, [2.0] * 3) for name in names)
    (replicas,) = (queries for queries in queries_of(monitored, "ai: servers") if len(queries) == 2)
    metrics = [prometheus.query(query)[0]["metric"] for query in replicas]
    assert [metric.pop("line") for metric in metrics] == ["available", "wanted"]
    assert metrics == [{"namespace": "llm", "deployment": "gemma"}] * 2


def test_dashboards_cover_only_the_parts_of_the_stack(monitor: Monitor) -> None:
    nothing = {"servers": [], "job_namespaces": [], "queues": False, "accelerators": False}
    empty = monitor(**nothing)
    assert (empty.all("Dashboard"), empty.all("AlertPolicy")) == ([], [])
    assert sorted(boards(monitor(**{**nothing, "queues": True}))) == ["ai: queues", "ai: shares"]
    assert list(boards(monitor(**{**nothing, "job_namespaces": ["llm"]}))) == ["ai: jobs"]
    for part, metrics in (("jobsets", "kube_jobset"), ("tpus", "tensorcore"), ("queues", "kueue_")):
        assert metrics not in json.dumps(boards(monitor(**{part: False})))
    quiet = boards(monitor(servers=SERVERS[-1:]))["ai: servers"]
    assert len(quiet["mosaicLayout"]["tiles"]) == 1, "nothing collects its engine's metrics"
    assert not monitor(dashboards=False).all("Dashboard")
    silent = monitor(alerts=False, channels=[])
    assert silent.all("Dashboard")
    assert not silent.all("AlertPolicy")


# --------------------------------------------------------------------------------------------------- when alerts fire
def kueue(pending: Sequence[float | None], admitted: Sequence[float | None]) -> list[Series]:
    here = {"cluster": "ai", "cluster_queue": "gpus"}
    return [
        Series("kueue_pending_workloads", {**here, "status": "inadmissible"}, pending),
        Series("kueue_pending_workloads", {**here, "status": "active"}, [0.0] * len(pending)),
        Series("kueue_admitted_workloads_total", {**here, "priority_class": "low"}, admitted),
    ]


def test_alerts_wait_for_a_fixed_time_and_have_all_notification_channels(monitored: Record) -> None:
    durations = {name.partition(": ")[2]: condition["duration"] for name, condition in conditions(monitored).items()}
    assert durations["a queue is stuck: Workloads wait and Kueue admits none"] == "3600s"
    assert durations["server llm/gemma has no ready replica: No ready replica"] == "300s"
    # The metrics come after the alerts.
    assert all(condition["disableMetricValidation"] for condition in conditions(monitored).values())
    for policy in inputs_of(monitored, "AlertPolicy"):
        assert policy["notificationChannels"] == [CHANNEL]
        assert "kubectl" in policy["documentation"]["content"] or "dashboard" in policy["documentation"]["content"]


N = 80  # minutes
NOW_AND_THEN = [5.0 + index // 20 for index in range(N)]


@pytest.mark.parametrize(
    ("pending", "admitted", "fires"),
    [
        pytest.param([2.0] * N, [5.0] * N, True, id="waits and admits none"),
        pytest.param([2.0] * N, NOW_AND_THEN, False, id="waits and admits one now and then"),
        pytest.param([0.0] * N, [5.0] * N, False, id="nobody waits"),
        pytest.param([0.0] * 50 + [2.0] * 30, [5.0] * N, False, id="began to wait half an hour ago"),
        pytest.param([2.0] * N, [None] * 50 + [1.0] * 30, False, id="admitted its first ever half an hour ago"),
        pytest.param([2.0] * N, [None] * N, True, id="has never admitted any"),
        pytest.param([2.0] * N, [5.0] * 10 + [0.0] * 70, True, id="Kueue restarted, and has admitted none since"),
    ],
)
def test_alert_fires_for_a_stuck_queue(
    pending: list[float], admitted: list[float | None], fires: bool, monitored: Record, tmp_path: Path
) -> None:
    condition = condition_of(monitored, "a queue is stuck: Workloads wait and Kueue admits none")
    with running(tmp_path) as prometheus:
        prometheus.take(kueue(pending, admitted))
        assert prometheus.fires(condition) == fires


def test_alert_fires_when_kueue_sends_no_metrics(monitored: Record, tmp_path: Path) -> None:
    condition = condition_of(monitored, "a queue is stuck: Kueue sends no metrics")
    with running(tmp_path) as prometheus:
        assert prometheus.fires(condition)
        prometheus.take(kueue([0.0] * N, [None] * N))
        assert not prometheus.fires(condition)


def evicted(values: Sequence[float | None], **labels: str) -> Series:
    series_labels = {"cluster": "ai", "cluster_queue": "gpus", "reason": "Preempted", **labels}
    return Series("kueue_evicted_workloads_total", series_labels, values)


def test_alert_fires_for_many_preemptions_but_not_other_evictions(monitor: Monitor, tmp_path: Path) -> None:
    condition = condition_of(monitor(preemptions_per_hour=10), "many preemptions")
    ten = [0.0] * 30 + [float(index // 4) for index in range(50)]
    many = [value * 9 for value in ten]
    with running(tmp_path) as prometheus:
        prometheus.take(
            [
                evicted(ten, priority_class="low"),
                evicted([value / 4 for value in ten], cluster_queue="calm"),
                evicted(many, cluster_queue="broken", reason="PodsReadyTimeout"),
                evicted(many, cluster="other", cluster_queue="elsewhere"),
            ]
        )
        assert prometheus.fires(condition)
        (series,) = prometheus.query(condition["query"])
        assert series["metric"]["cluster_queue"] == "gpus"


def counted(gpus: float, **labels: str) -> Series:
    here = {"cluster": "ai", "namespace": "kueue-system", "exported_namespace": "team-a", "resource": "nvidia.com/gpu"}
    values = {**here, "name": "training", "flavor": "gpus", **labels}
    return Series("kueue_local_queue_resource_usage", values, [gpus] * 5)


@pytest.mark.parametrize(
    ("requested", "kueue", "fires"),
    [
        *(([6.0] * 5, [counted(3)], True), ([3.0] * 5, [counted(3)], False), ([2.0] * 5, [counted(3)], False)),
        ([3.0] * 5, [], True),  # Kueue counts nothing of the tenant
        ([6.0] * 5, [counted(3), counted(3, name="serving")], False),
        ([6.0] * 5, [counted(3), counted(3, exported_namespace="team-b")], True),
        ([6.0] * 5, [counted(3), counted(9, namespace="team-a")], True),  # what a tenant says of itself
        ([3.0] * 4 + [6.0], [counted(3)], False),  # for less than a minute
    ],
)
def test_alert_fires_for_accelerators_of_a_tenant_that_kueue_does_not_count(
    requested: list[float | None], kueue: list[Series], fires: bool, monitor: Monitor, tmp_path: Path
) -> None:
    condition = condition_of(monitor(tenants=["team-a", "team-b"]), "a tenant")
    labels = {"monitored_resource": "k8s_container", "cluster_name": "ai", "namespace_name": "team-a"}
    with running(tmp_path) as prometheus:
        prometheus.take([Series("kubernetes_io:container_accelerator_request", labels, requested), *kueue])
        assert prometheus.fires(condition) == fires


@pytest.mark.parametrize(
    ("available", "fires"),
    [([2.0] * 9, False), ([1.0] * 9, False), ([1.0] * 3 + [0.0] * 6, True), ([1.0] * 6 + [0.0] * 3, False)],
)
def test_alert_fires_for_a_server_without_a_ready_replica(
    available: list[float | None], fires: bool, monitored: Record, tmp_path: Path
) -> None:
    condition = condition_of(monitored, "server llm/gemma has no ready replica: No ready replica")
    here = {"cluster": "ai", "namespace": "llm", "deployment": "gemma"}
    name, others = "kube_deployment_status_replicas_available", ({"deployment": "quiet"}, {"cluster": "other"})
    with running(tmp_path) as prometheus:
        assert prometheus.fires(condition), "a server that nothing is known of is not well"
        prometheus.take([Series(name, here, available), *(Series(name, here | other, [1.0] * 9) for other in others)])
        assert prometheus.fires(condition) == fires


# ----------------------------------------------------------------------------------------------------- in the program
MIXED = "examples/mixed-training-inference.yaml"


@pytest.mark.parametrize("preview", [True, False])
def test_a_monitored_stack_collects_metrics_and_creates_alerts_after_their_targets(preview: bool) -> None:
    built = shared_record({**configuration(MIXED), "gke-ai:monitoring": {"channels": [CHANNEL]}}, preview)
    assert set(boards(built)) == {f"llm-cluster: {topic}" for topic in ("queues", "servers", "accelerators", "jobs")}
    config_text = built.one("Release", "kueue").inputs["values"]["managerConfig"]["controllerManagerConfigYaml"]
    assert yaml.safe_load(config_text)["metrics"]["enableClusterQueueResources"] is True
    expected = {"managedPrometheus": {"enabled": True}, "enableComponents": list(dashboards.PACKAGES)}
    assert built.one("Cluster").inputs["monitoringConfig"] == expected
    for alert in built.all("AlertPolicy"):
        waits = built.waits_for(alert)
        assert {"KueueStack kueue", "Deployment tgi-gemma-deployment"} <= waits, waits
    collector = built.waits_for(built.one("PodMonitoring", "kueue"))
    assert {"Secret metrics-reader-token", "Role metrics-reader-token"} <= collector


# ----------------------------------------------------------------------------------------------- what there is to watch


def monitored_servers(path: str, **sections: Any) -> list[MonitoredServer]:
    config = configuration(path) | {f"gke-ai:{name}": value for name, value in sections.items()}
    return needs.monitored_servers(load_stack(config))


def test_a_server_s_own_metrics_are_charted_where_they_are_collected() -> None:
    example = "examples/jetstream-autoscaling.yaml"
    # The PodMonitoring of its autoscaler collects them.
    assert [server.engine for server in monitored_servers(example)] == ["jetstream"]
    assert [server.engine for server in monitored_servers(example, autoscaling=[])] == [None]
    assert [server.engine for server in monitored_servers(MIXED)] == [None]
    (server,) = configuration(MIXED)["gke-ai:serving"]
    assert monitored_servers(MIXED, serving=[{**server, "replicas": 0}]) == [], "no alert"
    existing = base("autoscaling", "existing")
    existing["autoscaling"][0]["deployment"]["namespace"] = "serve"
    expected = [MonitoredServer("serve", "maxengine-server", "jetstream")]
    assert needs.monitored_servers(load(existing, PROJECT)) == expected
    # Two servers of one name are monitored separately.
    (server,) = configuration("Pulumi.dev.yaml")["gke-ai:serving"]
    alone = {key: value for key, value in server.items() if key not in ("queue", "priorityClass")}
    serving = [server, {**alone, "namespace": "trial", "podMonitoring": True}]
    expected = [MonitoredServer("llm", "gemma"), MonitoredServer("trial", "gemma", "vllm")]
    assert monitored_servers("Pulumi.dev.yaml", serving=serving) == expected


def test_all_charts_of_everything_have_a_title_of_their_own() -> None:
    servers = [MonitoredServer(**server) for server in SERVERS]
    everything = all_charts("ai", True, servers, EVERYTHING["job_namespaces"], True, True, True)
    assert len(everything) == 4
    for _, charts in everything:
        assert len({chart.title for chart in charts}) == len(charts)
