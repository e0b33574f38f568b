"""A server that sleeps: its autoscaler, its picker, its route, and what the preview and the library say of it."""

import re
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai import components as gke
from gke_ai.catalog.engines import dashboards, metrics
from gke_ai.catalog.engines.inference_extension import FAIRNESS_HEADER, OBJECTIVE_HEADER
from gke_ai.catalog.machines.features import SCALE_TO_ZERO
from gke_ai.components.arguments import Refused
from gke_ai.components.serving.readiness import waits_for
from gke_ai.ops.doctor.needs import gke_features
from gke_ai.ops.status.autoscalers import autoscaler_rows
from gke_ai.registered.workloads import replica_bounds
from gke_ai.settings.estimates import cold_start
from gke_ai.settings.model import Autoscaler, HeldRequests, Hours, ScaledMetric
from gke_ai.settings.resolved import ScaledServer, needs
from tests.support.examples import gateway_example
from tests.support.recorder import (
    PROJECT,
    Cloud,
    Record,
    configuration,
    load_stack,
    plain,
    record,
    run_program,
    shared_record,
)

EXAMPLE = "examples/sleeping-server.yaml"


def scaler_of(record: Record) -> dict[str, Any]:
    spec: dict[str, Any] = plain(record.one("HorizontalPodAutoscaler").inputs["spec"])
    return spec


# --- objects ----------------------------------------------------------------------------------------------------------
def test_the_autoscaler_wakes_for_requests_at_the_picker_and_for_each_warm_window() -> None:
    spec = scaler_of(shared_record(configuration(EXAMPLE)))
    assert spec["minReplicas"] == 0
    own, demand, *windows = [item["external"] for item in spec["metrics"]]
    assert own["metric"]["name"] == "vllm_num_requests_waiting_or_zero"
    assert demand["metric"] == {"name": metrics.DEMAND, "selector": {"matchLabels": {"job": "gemma-epp"}}}
    assert demand["target"] == {"type": "AverageValue", "averageValue": "256"}, "vLLM's default on L4"
    labels = [window["metric"]["selector"]["matchLabels"] for window in windows]
    assert labels == [{"begin": str(1440 * day + 420), "end": str(1440 * day + 480)} for day in range(1, 6)]


def test_the_picker_holds_as_many_requests_for_as_long_as_stated_and_sends_no_more_than_a_replica_runs() -> None:
    record = shared_record(configuration(EXAMPLE))
    config = yaml.safe_load(record.one("ConfigMap", "gemma-epp").inputs["data"]["plugins.yaml"])
    assert config["featureGates"] == ["flowControl"]
    assert config["flowControl"] == {"maxRequests": 100, "maxBytes": "256Mi", "defaultRequestTTL": "240s"}
    (detector,) = [item for item in config["plugins"] if item["type"] == config["saturationDetector"]["pluginRef"]]
    assert detector["parameters"] == {"maxConcurrency": 256}
    (container,) = record.one("Deployment", "gemma-epp").inputs["spec"]["template"]["spec"]["containers"]
    assert "--disable-endpoint-subset-filter" in container["args"]
    (policy,) = [item for item in record.all("GCPBackendPolicy") if item.inputs.get("kind")]
    assert plain(policy.inputs["spec"])["default"]["timeoutSec"] == 600 + 240
    scraped = {item.inputs["metadata"]["name"] for item in record.all("PodMonitoring") if item.inputs.get("kind")}
    assert scraped == {"gemma-epp", "gemma-autoscaling"}


def test_a_changed_bound_restarts_the_picker() -> None:
    changed = configuration(EXAMPLE)
    changed["gke-ai:serving"][0]["held"]["requests"] = 50
    pods = [shared_record(config).one("Deployment", "gemma-epp") for config in (configuration(EXAMPLE), changed)]
    annotations = [pod.inputs["spec"]["template"]["metadata"]["annotations"] for pod in pods]
    assert annotations[0] != annotations[1]


def test_a_picker_of_a_server_that_holds_nothing_is_as_before() -> None:
    record = shared_record(gateway_example())
    config = yaml.safe_load(record.one("ConfigMap", "gemma-epp").inputs["data"]["plugins.yaml"])
    assert config.keys() == {"apiVersion", "kind", "plugins", "schedulingProfiles"}


@pytest.mark.parametrize("config", [configuration(EXAMPLE), gateway_example()], ids=["sleeping", "gateway"])
def test_every_route_takes_the_order_of_requests_from_its_clients(config: dict[str, Any]) -> None:
    routes = [route for route in shared_record(config).all("HTTPRoute") if route.inputs.get("kind")]
    assert routes
    for route in routes:
        for rule in plain(route.inputs["spec"])["rules"]:
            modifier, *later = rule["filters"]
            namespace = route.inputs["metadata"]["namespace"]
            assert modifier["requestHeaderModifier"] == {
                "set": [{"name": FAIRNESS_HEADER, "value": namespace}],
                "remove": [OBJECTIVE_HEADER],
            }
            retry = {"responseHeaderModifier": {"set": [{"name": "Retry-After", "value": "5"}]}}
            expected = [{"type": "ResponseHeaderModifier", **retry}] if config == configuration(EXAMPLE) else []
            assert later == expected


def test_the_adapter_serves_requests_that_never_were_as_zero() -> None:
    record = shared_record(configuration(EXAMPLE))
    rules = yaml.safe_load(record.one("ConfigMap", "example-release-prometheus-adapter").inputs["data"]["config.yaml"])
    by_name = {rule["name"]["as"]: rule for rule in rules["externalRules"]}
    assert {metrics.DEMAND, metrics.WARM} < by_name.keys()
    assert {by_name[name]["seriesQuery"] for name in (metrics.DEMAND, metrics.WARM)} == {metrics.PICKER_SERIES}
    query = by_name[metrics.DEMAND]["metricsQuery"]
    assert query.count('{<<.LabelMatchers>>,cluster="sleeping"}') == query.count("or vector(0)") == 2


# --- warm hours -------------------------------------------------------------------------------------------------------
def warm(moment: datetime, begin: int, end: int) -> bool:
    """What Prometheus answers, with the query's own arithmetic."""
    text = metrics.warm_query().replace('<<index .LabelValuesByName "begin">>', str(begin))
    text = text.replace('<<index .LabelValuesByName "end">>', str(end))
    found = re.fullmatch(r"\((.+) >= bool (\d+)\) \* \((.+) < bool (\d+)\)", text)
    assert found is not None
    day = (moment.weekday() + 1) % 7  # Prometheus begins with Sunday
    values = {"day_of_week()": str(day), "hour()": str(moment.hour), "minute()": str(moment.minute)}

    def now(expression: str) -> int:
        for name, value in values.items():
            expression = expression.replace(name, value)
        terms = [list(map(int, re.findall(r"\d+", term))) for term in expression.strip("()").split("+")]
        return sum(term[0] * (term[1] if len(term) > 1 else 1) for term in terms)

    return now(found[1]) >= int(found[2]) and now(found[3]) < int(found[4])


@pytest.mark.parametrize(
    "hours",
    [
        [Hours(days=["mon", "fri"], start="07:00", end="19:00")],
        [Hours(days=["sat"], start="20:00", end="06:00")],
        [Hours(days=["sun"]), Hours(days=["mon"], end="02:00")],
    ],
)
def test_windows_are_the_stated_hours_of_each_minute_of_the_week(hours: list[Hours]) -> None:
    load = ScaledMetric(metric="queuedRequests", target="5")
    autoscaler = Autoscaler(name="a", adapter="prometheus", max_replicas=1, metrics=[load], warm_hours=hours)
    windows = ScaledServer(autoscaler, None).warm_windows
    stated = {minute for own in hours for minute in own.minutes()}
    monday = datetime(2026, 11, 23, tzinfo=UTC)
    for minute in range(0, 7 * 24 * 60, 7):
        moment = monday + timedelta(minutes=minute)
        assert any(warm(moment, *window) for window in windows) == (minute in stated), moment


# --- what the program says --------------------------------------------------------------------------------------------
def test_preview_adds_up_how_long_a_waking_takes() -> None:
    stack = load_stack(configuration(EXAMPLE))
    (waking,) = cold_start.wakings(stack.scaled, stack.placed)
    assert str(waking) == (
        "Cold start: llm/gemma wakes within about 635 s if there is capacity: the autoscaler 20 s, a node 180 s, its "
        "container 230 s, the weights 94 s, the engine's processes 41 s, compilation 58 s, CUDA graphs 12 s. "
        "The gateway holds a request for 240 s, then answers 503: clients have to try again."
    )


def test_a_waking_that_preempts_waits_for_the_longest_grace_period() -> None:
    config = configuration(EXAMPLE)
    run: dict[str, object] = {
        "name": "run",
        "namespace": "llm",
        "queue": "team",
        "priorityClass": "training",
        "pool": "l4",
    }
    run |= {
        "image": "us-docker.pkg.dev/my-project/training/run:1",
        "gpusPerPod": 2,
        "terminationGracePeriodSeconds": 90,
    }
    config["gke-ai:training"] = [{**run, "kind": "job"}]
    stack = load_stack(config)
    (waking,) = cold_start.wakings(stack.scaled, stack.placed)
    assert ("preemption", 90) in waking.parts


def test_an_update_does_not_wait_for_a_server_that_sleeps() -> None:
    deployment: dict[str, Any] = {
        "metadata": {"generation": 2, "uid": "d", "annotations": {"deployment.kubernetes.io/revision": "2"}},
        "spec": {"replicas": 0},
        "status": {"observedGeneration": 2},
    }
    owner = [{"uid": "d"}]
    current = {"metadata": {"uid": "r", "ownerReferences": owner, "annotations": deployment["metadata"]["annotations"]}}
    assert waits_for(deployment, [current], [], [], sleeps=True) is None
    assert waits_for(deployment, [current], [], []) == "its pods to be created"
    assert waits_for({**deployment, "status": {}}, [current], [], [], sleeps=True) == "its Deployment to be rolled out"


def test_no_alert_while_it_sleeps() -> None:
    (server,) = needs.monitored_servers(load_stack(configuration(EXAMPLE)))
    assert server.sleeps
    awake = dashboards.MonitoredServer("llm", "gemma")
    here = dashboards.selector("c", namespace="llm", deployment="gemma")
    assert (
        dashboards.down("c", server)
        == f"{dashboards.down('c', awake)} unless max(kube_deployment_spec_replicas{here}) == 0"
    )


def test_its_autoscaler_counts_from_zero_and_needs_a_new_cluster() -> None:
    server = {"kind": "Deployment", "metadata": {"name": "gemma", "namespace": "llm"}, "spec": {"replicas": 1}}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "gemma"}, "minReplicas": 0, "maxReplicas": 2}
    assert replica_bounds(server, [{"metadata": {"namespace": "llm"}, "spec": spec}]) == (0, 2)
    assert SCALE_TO_ZERO in gke_features(load_stack(configuration(EXAMPLE)))
    assert SCALE_TO_ZERO not in gke_features(load_stack(gateway_example()))


def test_status_shows_no_number_for_an_average_of_no_replica() -> None:
    external = {"metric": {"name": "gke_ai_requests"}, "current": {"averageValue": "-9223372036854775808m"}}
    target = {"metric": {"name": "gke_ai_requests"}, "target": {"type": "AverageValue", "averageValue": "256"}}
    scaler = {
        "metadata": {"name": "gemma", "namespace": "llm"},
        "spec": {"scaleTargetRef": {"name": "gemma"}, "minReplicas": 0, "maxReplicas": 2}
        | {"metrics": [{"type": "External", "external": target}]},
        "status": {"currentMetrics": [{"type": "External", "external": external}], "currentReplicas": 0},
    }
    ((_, _, _, compared, replicas, bounds, _),) = autoscaler_rows([scaler])
    assert (compared, replicas, bounds) == ("– / 256", "0", "0 to 2")


def test_an_older_existing_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(EXAMPLE)
    config["gke-ai:cluster"] = {"name": "shared", "mode": "existing", "location": "us-central1"}
    further = {"gatewayApiConfigs": [{"channel": "CHANNEL_STANDARD"}], "masterVersion": "1.35.3-gke.1000000"}
    monkeypatch.setattr(Cloud, "further", further)
    message = "has GKE 1.35.3-gke.1000000, and minReplicas: 0 needs 1.37.0-gke.0. Its API server would refuse"
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run_program(config, True, monkeypatch)


@pytest.mark.parametrize(("version", "refused"), [("1.36.4-gke.9", True), ("1.37.0-gke.1", False)])
def test_a_cluster_of_the_stack_whose_channel_is_older_is_refused_with_the_command(
    version: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cloud, "further", {"masterVersion": version})
    message = (
        f"has GKE {version}, and minReplicas: 0 needs 1.37.0-gke.0. Its API server would refuse the autoscaler. Run:"
    )
    expected = pytest.raises(pulumi.RunError, match=re.escape(message)) if refused else nullcontext()
    with expected:
        run_program(configuration(EXAMPLE), False, monkeypatch)


# --- the library ------------------------------------------------------------------------------------------------------
def program(monkeypatch: pytest.MonkeyPatch, server: dict[str, Any], adapter: dict[str, Any]) -> Record:
    """Records a program with a server, a metrics adapter and an autoscaler without a minimum."""

    def run() -> None:
        cluster = gke.GkeCluster("ml", location="us-central1", mode="standard")
        pool = gke.GpuNodePool(
            "l4", cluster=cluster, machine_type="g2-standard-24", zones=["us-central1-a"], nodes_per_zone=2
        )
        metrics_adapter = gke.MetricsAdapter("adapter", cluster=cluster, **adapter)
        own = gke.VllmServer(
            "gemma", namespace="llm", pool=pool, model="google/gemma-2-9b-it", gpus=2, autoscaled=True, **server
        )
        scaled = [ScaledMetric(metric="queuedRequests", target="5")]
        gke.ServerAutoscaling(
            "gemma",
            server=own,
            adapter=metrics_adapter,
            metrics=scaled,
            min_replicas=0,
            max_replicas=2,
            scale_in_window_seconds=900,
        )

    pulumi.runtime.set_all_config({"gcp:project": PROJECT})
    return record(run, False, monkeypatch)


@pytest.mark.parametrize(
    ("server", "adapter", "path"),
    [
        ({}, {"adapter": "prometheus", "wakes": True}, "min_replicas"),
        ({"held": HeldRequests()}, {"adapter": "stackdriver"}, "adapter"),
        ({"held": HeldRequests()}, {"adapter": "prometheus"}, "adapter"),
    ],
)
def test_the_library_refuses_a_server_that_nothing_would_wake(
    monkeypatch: pytest.MonkeyPatch, server: dict[str, Any], adapter: dict[str, Any], path: str
) -> None:
    with pytest.raises(Refused, match=path):
        program(monkeypatch, server, adapter)


def test_the_library_builds_a_server_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = {"adapter": "prometheus", "wakes": True}
    assert scaler_of(program(monkeypatch, {"held": HeldRequests()}, adapter))["minReplicas"] == 0
