"""Autoscaling of a server: the HPA's arithmetic, metric names in each adapter, objects and their order."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.metrics import TOLERANCE, in_bytes, metrics_of, query, range_of, replicas
from gke_ai.catalog.quantities import GI
from gke_ai.components import JetStreamAutoscaling, MetricsAdapter, ServerAutoscaling
from gke_ai.components.arguments import Refused
from gke_ai.components.serving.metrics_adapter import explain
from tests.support.mistakes import Configuration, base, problems_of
from tests.support.recorder import PROJECT, Record, configuration, run_program

good = partial(base, "autoscaling")


def server(name: str, pool: str, **more: Any) -> Configuration:
    return {
        "name": name,
        "engine": "jetstream",
        "model": "gemma-7b",
        "checkpoint": "gs://bucket/checkpoint",
        "pool": pool,
        **more,
    }


def scaler(of: str, **more: Any) -> Configuration:
    return {
        "name": f"{of}-hpa",
        "server": of,
        "adapter": "stackdriver",
        "maxReplicas": 2,
        "metrics": [{"metric": "prefillBacklog", "target": 10}],
        **more,
    }


ADAPTER: dict[str, Any] = {
    "adapter": "stackdriver",
    "project": PROJECT,
    "cluster": "jetstream",
    "workload_pool": f"{PROJECT}.svc.id.goog",
}
AUTOSCALER: dict[str, Any] = {
    "name": "hpa",
    "deployment": {"name": "maxengine-server", "app": "maxengine", "namespace": "llm", "metrics_port": "metrics"},
    "cluster": "jetstream",
    "adapter": "stackdriver",
    "max_replicas": 4,
    "metrics": [{"metric": "prefillBacklog", "target": "10"}],
}
ADAPTERS = ("stackdriver", "prometheus")
Build = Callable[..., Record]


def program(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, preview: bool = False) -> Record:
    return run_program({f"gke-ai:{key}": value for key, value in values.items()}, preview, monkeypatch)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "value", "target", "wanted"),
    [
        (1, "40", "10", 4),
        (2, "40", "10", 8),
        (1, "11", "10", 1),  # 10 % are tolerated
        (1, "11.1", "10", 2),
        (2, "9", "10", 2),
        (2, "8.9", "10", 2),  # 1.78 replicas
        (2, "5", "10", 1),
        (2, "0", "10", 0),
        (1, "1", "0.8", 2),
        (2, "1", "0.8", 3),
        (8, "1", "0.95", 8),
    ],
)
def test_replicas_are_those_of_the_controller(now: int, value: str, target: str, wanted: int) -> None:
    assert replicas(now, Fraction(value), Fraction(target)) == wanted


def reached(min_replicas: int, max_replicas: int, value: Fraction, target: Fraction) -> int:
    """Where an autoscaler ends that begins with the minimum and sees one value on every replica."""
    now = min_replicas
    while (then := max(min_replicas, min(max_replicas, replicas(now, value, target)))) != now:
        now = then
    return now


@pytest.mark.parametrize("max_replicas", [2, 3, 8])
@pytest.mark.parametrize("metric", ["slotsUsed", "tpuMemory"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_target_is_refused_exactly_if_it_never_or_always_calls_for_the_maximum(
    adapter: str, metric: str, max_replicas: int
) -> None:
    values = good()
    values["tpuPools"][0]["nodesPerZone"] = 8
    values["autoscaling"] = [scaler("jetstream", adapter=adapter, maxReplicas=max_replicas)]
    known = range_of(metric, adapter, slots=32, memory=128 * GI)
    assert known.min is not None
    assert known.max is not None
    for thousandth in (1, 3, 5, 8, 9, 15, 20, 28, 29, 31, 50, 300, 800, 909, 910, 950, 1000, 1100):
        target = known.max * thousandth / 1000
        text = f"{int(target)}" if in_bytes(metric, adapter) else str(float(target))
        values["autoscaling"][0]["metrics"] = [{"metric": metric, "target": text}]
        works = reached(1, max_replicas, known.max, Fraction(text)) == max_replicas
        rests = replicas(1, known.min, Fraction(text)) < max_replicas
        problems = problems_of(values)
        assert (problems == []) == (works and rests), (text, problems)


def test_advised_target_is_one_that_works() -> None:
    for metric, target in (("slotsUsed", "80"), ("slotsUsed", "0.01"), ("tpuMemory", "127Gi"), ("tpuMemory", "0.5")):
        values = good()
        values["autoscaling"][0]["metrics"] = [{"metric": metric, "target": target}]
        (problem,) = problems_of(values)
        values["autoscaling"][0]["metrics"][0]["target"] = problem.remedy.split()[-1]
        assert problems_of(values) == [], problem


def test_bounds_that_leave_nothing_to_decide_need_no_target_that_works() -> None:
    values = good()
    values["autoscaling"][0] |= {"minReplicas": 2, "metrics": [{"metric": "slotsUsed", "target": 0.95}]}
    assert problems_of(values) == []


def test_existing_deployment_of_unknown_size_is_taken_at_its_word() -> None:
    values = good("existing")
    values["autoscaling"][0] |= {"adapter": "stackdriver", "metrics": [{"metric": "tpuMemory", "target": "900Gi"}]}
    assert problems_of(values) == []


def test_tolerance_is_ten_percent() -> None:
    assert Fraction(1, 10) == TOLERANCE


# --- the adapter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({name for engine in ENGINES for name in metrics_of(engine)}))
def test_every_query_selects_by_cluster_and_by_what_the_adapter_adds(name: str) -> None:
    text = query(name, "c")
    assert text.count("avg(") == text.count('{<<.LabelMatchers>>,cluster="c"}') == (2 if name == "tpuMemory" else 1)


def test_namespace_of_the_autoscaler_is_matched_by_the_label_that_each_metric_has_it_in(build: Build) -> None:
    rules = yaml.safe_load(
        build(MetricsAdapter, ADAPTER, adapter="prometheus").one("ConfigMap").inputs["data"]["config.yaml"]
    )
    labels = {rule["name"]["as"]: rule["resources"] for rule in rules["externalRules"]}
    assert labels["memory_used_percentage"] == {"overrides": {"exported_namespace": {"resource": "namespace"}}}
    assert labels["jetstream_prefill_backlog_size"] == {"template": "<<.Resource>>"}


def test_adapter_queries_the_frontend_at_short_intervals(build: Build) -> None:
    built = build(MetricsAdapter, ADAPTER, adapter="prometheus")
    (container,) = built.one("Deployment", "example-release-prometheus-adapter").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    service = built.one("Service", "prometheus").inputs
    url = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{9090}/"
    assert f"--prometheus-url={url}" in container["args"]
    assert service["spec"]["ports"][0]["port"] == 9090
    assert "--metrics-relist-interval=15s" in container["args"]


def test_changed_rules_restart_the_adapter(build: Build) -> None:
    def annotations(cluster: str) -> Any:
        built = build(MetricsAdapter, ADAPTER, adapter="prometheus", cluster=cluster)
        deployment = built.one("Deployment", "example-release-prometheus-adapter")
        return deployment.inputs["spec"]["template"]["metadata"]["annotations"]

    assert annotations("a") == annotations("a")
    assert annotations("a") != annotations("b")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_apis_are_registered_after_their_servers_and_tpu_metrics_on_request(build: Build, adapter: str) -> None:
    built = build(MetricsAdapter, ADAPTER, adapter=adapter)
    name = {"stackdriver": "custom-metrics-stackdriver-adapter", "prometheus": "example-release-prometheus-adapter"}
    apis = built.all("APIService")
    assert {api.object_name for api in apis} >= {"v1beta1.external.metrics.k8s.io"}
    for api in apis:
        assert api.hooked
        assert {f"Deployment {name[adapter]}", f"Service {name[adapter]}"} <= built.waits_for(api)
        assert api.inputs["spec"]["service"]["name"] == name[adapter]
    assert built.all("PodMonitoring") == []
    monitoring = build(MetricsAdapter, ADAPTER, adapter=adapter, tpu_metrics=True).one("PodMonitoring")
    assert monitoring.inputs["spec"]["endpoints"] == [{"port": 2112, "interval": "15s"}]


def test_unknown_adapter_is_refused(build: Build) -> None:
    with pytest.raises(Refused, match=r"adapter: \"keda\" is not a value of adapter\. Write 'stackdriver' or 'prom"):
        build(MetricsAdapter, ADAPTER, adapter="keda")


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        (
            "kubernetes:apiregistration.k8s.io/v1:APIService",
            'apiservices "x" already exists',
            "a cluster can have only one",
        ),
        ("gcp:serviceaccount/account:Account", "Error 409: Already exists: sa., alreadyExists", "Another stack"),
        ("kubernetes:apps/v1:Deployment", "connection refused", ""),
    ],
)
def test_existing_object_is_explained_once_and_not_retried(
    kind: str, error: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    monkeypatch.setattr(pulumi.log, "error", texts.append)
    args = pulumi.ErrorHookArgs(urn="u", id="", name="x", type=kind, failed_operation="create", errors=[error])
    assert explain(args) is False
    assert bool(texts) == bool(said)
    assert said in "".join(texts)


# --- the autoscaler ---------------------------------------------------------------------------------------------------


SERIES = {
    ("vllm", "queuedRequests"): "vllm:num_requests_waiting",
    ("vllm", "runningRequests"): "vllm:num_requests_running",
    ("vllm", "kvCacheUsage"): "vllm:kv_cache_usage_perc",
    ("vllm-tpu", "queuedRequests"): "vllm:num_requests_waiting",
    ("vllm-tpu", "runningRequests"): "vllm:num_requests_running",
    ("vllm-tpu", "kvCacheUsage"): "vllm:kv_cache_usage_perc",
    ("tgi", "queuedRequests"): "tgi_queue_size",
    ("tgi", "runningRequests"): "tgi_batch_current_size",
}


@pytest.mark.parametrize(("engine", "metric"), SERIES)
def test_each_metric_of_an_engine_is_one_of_its_pods_through_stackdriver(
    build: Build, engine: str, metric: str
) -> None:
    deployment = {"name": "gemma", "app": "gemma", "namespace": "llm", "engine": engine, "metrics_port": "http"}
    scaled = {"deployment": deployment, "metrics": [{"metric": metric, "target": "0.8"}]}
    built = build(ServerAutoscaling, AUTOSCALER, **scaled)
    assert built.one("HorizontalPodAutoscaler").inputs["spec"]["metrics"] == [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": f"prometheus.googleapis.com|{SERIES[engine, metric]}|gauge"},
                "target": {"type": "AverageValue", "averageValue": "800m"},
            },
        }
    ]


@pytest.mark.parametrize(("engine", "metric"), SERIES)
def test_each_metric_of_an_engine_is_that_of_its_podmonitoring_through_prometheus(
    build: Build, engine: str, metric: str
) -> None:
    deployment = {"name": "gemma", "app": "gemma", "namespace": "llm", "engine": engine, "metrics_port": "http"}
    scaled = {"deployment": deployment, "metrics": [{"metric": metric, "target": "5"}], "adapter": "prometheus"}
    name = SERIES[engine, metric].replace(":", "_")
    for monitored, job in ((False, "gemma-autoscaling"), (True, "gemma")):
        built = build(ServerAutoscaling, AUTOSCALER, **scaled, monitored=monitored)
        assert [monitoring.object_name for monitoring in built.all("PodMonitoring")] == ([] if monitored else [job])
        (written,) = built.one("HorizontalPodAutoscaler").inputs["spec"]["metrics"]
        assert written["external"] == {
            "metric": {"name": name, "selector": {"matchLabels": {"job": job}}},
            "target": {"type": "Value", "value": "5"},
        }
    rules = yaml.safe_load(
        build(MetricsAdapter, ADAPTER, adapter="prometheus", engines=["jetstream", engine])
        .one("ConfigMap")
        .inputs["data"]["config.yaml"]
    )["externalRules"]
    assert {rule["name"]["as"]: rule["seriesQuery"] for rule in rules}[name] == SERIES[engine, metric]
    assert all(":" not in rule["name"]["as"] for rule in rules)


def test_one_queue_means_one_rule_although_engines_share_its_series(build: Build) -> None:
    built = build(MetricsAdapter, ADAPTER, adapter="prometheus", engines=["vllm", "vllm-tpu"])
    rules = yaml.safe_load(built.one("ConfigMap").inputs["data"]["config.yaml"])["externalRules"]
    assert len(rules) == 3


def test_metric_or_engine_that_is_not_there_is_refused(build: Build) -> None:
    deployment = {"name": "gemma", "app": "gemma", "engine": "tgi"}
    with pytest.raises(Refused, match=r"metrics\[0\].metric: tgi has no metric kvCacheUsage"):
        build(
            ServerAutoscaling, AUTOSCALER, deployment=deployment, metrics=[{"metric": "kvCacheUsage", "target": "0.8"}]
        )
    with pytest.raises(Refused, match=r"deployment\.engine: engine triton is unknown"):
        build(ServerAutoscaling, AUTOSCALER, deployment={**deployment, "engine": "triton"})


def test_autoscaler_without_a_deployment_is_refused(build: Build) -> None:
    """The name of a server is not enough."""
    with pytest.raises(Refused, match="server: is missing, and nothing else says what to scale"):
        build(JetStreamAutoscaling, AUTOSCALER, deployment=None, server="s")


# --- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_grants_wait_for_the_cluster_that_brings_the_identity_pool(
    adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = good()
    values["autoscaling"][0]["adapter"] = adapter
    built = program(values, monkeypatch, preview=True)
    pool = f"{PROJECT}.svc.id.goog"
    (grant,) = (member for member in built.all("IAMMember") if pool in str(member.inputs.get("member", pool)))
    assert "Cluster jetstream" in built.waits_for(grant)


def test_one_adapter_serves_every_autoscaler(monkeypatch: pytest.MonkeyPatch) -> None:
    values = good()
    values["serving"].append(server("second", "other", namespace="second"))
    memory = [{"metric": "tpuMemory", "target": "50Gi"}]
    values["autoscaling"].append(scaler("second", maxReplicas=1, metrics=memory))
    built = program(values, monkeypatch)
    assert len(built.all("MetricsAdapter")) == 1
    assert len(built.all("HorizontalPodAutoscaler")) == 2
    assert {monitoring.object_name for monitoring in built.all("PodMonitoring")} == {
        "jetstream-podmonitoring",
        "tpu-metrics-exporter",
    }


def test_servers_of_one_namespace_are_scaled_each_by_its_own_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    values = good("vllm")
    values["gpuPools"][0]["nodesPerZone"] = 4
    values["serving"].append({**values["serving"][0], "name": "second", "podMonitoring": True})
    metrics = [{"metric": "queuedRequests", "target": 5}]
    values["autoscaling"] = [
        scaler(name, adapter="prometheus", maxReplicas=1, metrics=metrics) for name in ("gemma", "second")
    ]
    built = program(values, monkeypatch)
    jobs = [
        hpa.inputs["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]["job"]
        for hpa in built.all("HorizontalPodAutoscaler")
    ]
    assert sorted(jobs) == ["gemma-autoscaling", "second"]
    assert {monitoring.object_name for monitoring in built.all("PodMonitoring")} == {*jobs}


def test_image_of_ones_own_has_no_known_default_but_a_known_limit() -> None:
    values = good("vllm")
    values["serving"][0]["image"] = "vllm/vllm-openai:v0.8.0"
    values["autoscaling"][0]["metrics"] = [{"metric": "runningRequests", "target": 900}]
    assert problems_of(values) == []
    values["serving"][0]["arguments"] = ["--max_num_seqs=900"]
    (problem,) = problems_of(values)
    assert "runningRequests is at most 900 on a replica" in problem.cause
    values["serving"][0]["arguments"] = ["--max-num-seqs=many"]
    assert problems_of(values) == []


@pytest.mark.parametrize("name", ["vllm", "tgi"])
def test_advised_number_of_requests_is_one_that_works(name: str) -> None:
    values = good(name)
    for metric in ("queuedRequests", "runningRequests"):
        values["autoscaling"][0]["metrics"] = [{"metric": metric, "target": 2000}]
        for problem in problems_of(values):
            values["autoscaling"][0]["metrics"][0]["target"] = problem.remedy.split()[-1]
        assert problems_of(values) == []


@pytest.mark.parametrize("example", ["jetstream-autoscaling", "jetstream-autoscaling-prometheus"])
def test_preview_shows_every_object(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = configuration(f"examples/{example}.yaml")
    assert (
        run_program(values, True, monkeypatch).resources.keys()
        == run_program(values, False, monkeypatch).resources.keys()
    )
