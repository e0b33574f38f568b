"""Autoscaling of a server: the HPA's arithmetic, metric names in each adapter, objects and their order."""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.metrics import in_bytes, metrics_of, query, range_of, replicas
from gke_ai.catalog.quantities import GI
from gke_ai.components import JetStreamAutoscaling, MetricsAdapter, ServerAutoscaling
from gke_ai.components.arguments import Refused
from gke_ai.components.serving.metrics_adapter import explain
from tests.support.mistakes import base, problems_of
from tests.support.recorder import PROJECT, Record, configuration, shared_record

good = partial(base, "autoscaling")
WORKLOAD_POOL = f"{PROJECT}.svc.id.goog"
ADAPTER = {"adapter": "stackdriver", "project": PROJECT, "cluster": "jetstream", "workload_pool": WORKLOAD_POOL}
VLLM = {"name": "gemma", "app": "gemma", "namespace": "llm", "engine": "vllm", "metrics_port": "http"}
AUTOSCALER = {"name": "hpa", "deployment": VLLM, "cluster": "jetstream", "adapter": "stackdriver", "max_replicas": 4}
ADAPTERS = {"stackdriver": "custom-metrics-stackdriver-adapter", "prometheus": "example-release-prometheus-adapter"}
Build = Callable[..., Record]


def program(values: dict[str, Any], preview: bool = False) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()}, preview)


def rules_of(adapter: Record) -> dict[str, dict[str, Any]]:
    """The rules of prometheus-adapter, by the name of the metric."""
    rules = yaml.safe_load(adapter.one("ConfigMap").inputs["data"]["config.yaml"])["externalRules"]
    assert len({rule["name"]["as"] for rule in rules}) == len(rules), "one rule, although engines share a series"
    return {rule["name"]["as"]: rule for rule in rules}


# --- arithmetic -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("now", "value", "target", "wanted"),
    [
        *((1, "40", "10", 4), (2, "40", "10", 8), (2, "5", "10", 1), (2, "0", "10", 0)),
        *((1, "11", "10", 1), (1, "11.01", "10", 2), (2, "9", "10", 2), (8, "1", "0.95", 8)),  # 10 % are tolerated
        *((2, "8.9", "10", 2), (1, "1", "0.8", 2), (2, "1", "0.8", 3)),  # 1.78, 1.25 and 2.5 replicas
    ],
)
def test_replicas_are_those_of_the_controller(now: int, value: str, target: str, wanted: int) -> None:
    assert replicas(now, Fraction(value), Fraction(target)) == wanted


def reached(max_replicas: int, value: Fraction, target: Fraction) -> int:
    """Where an autoscaler ends that begins with one replica and sees one value on every replica."""
    now = 1
    while (then := max(1, min(max_replicas, replicas(now, value, target)))) != now:
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
    values["autoscaling"][0] |= {"adapter": adapter, "maxReplicas": max_replicas}
    known = range_of(metric, adapter, slots=32, memory=128 * GI)
    assert known.min is not None
    assert known.max is not None
    for thousandth in (1, 3, 5, 8, 9, 15, 20, 28, 29, 31, 50, 300, 800, 909, 910, 950, 1000, 1100):
        target = known.max * thousandth / 1000
        text = f"{int(target)}" if in_bytes(metric, adapter) else str(float(target))
        values["autoscaling"][0]["metrics"] = [{"metric": metric, "target": text}]
        works = reached(max_replicas, known.max, Fraction(text)) == max_replicas
        rests = replicas(1, known.min, Fraction(text)) < max_replicas
        problems = problems_of(values)
        assert (problems == []) == (works and rests), (text, problems)


@pytest.mark.parametrize(
    ("stack", "metric", "target"),
    [
        *(("good", "slotsUsed", "80"), ("good", "slotsUsed", "0.01")),
        *(("good", "tpuMemory", "127Gi"), ("good", "tpuMemory", "0.5")),
        *(("vllm", "runningRequests", 2000), ("tgi", "queuedRequests", 2000), ("tgi", "runningRequests", 2000)),
    ],
)
def test_advised_target_is_one_that_works(stack: str, metric: str, target: str | int) -> None:
    values = good(stack)
    values["autoscaling"][0]["metrics"] = [{"metric": metric, "target": target}]
    (problem,) = problems_of(values)
    values["autoscaling"][0]["metrics"][0]["target"] = problem.remedy.split()[-1]
    assert problems_of(values) == [], problem


@pytest.mark.parametrize(
    ("stack", "metric", "target", "more"),
    [
        pytest.param("good", "slotsUsed", 0.95, {"minReplicas": 2}, id="bounds that leave nothing to decide"),
        pytest.param("existing", "tpuMemory", "900Gi", {"adapter": "stackdriver"}, id="a Deployment of unknown size"),
        pytest.param("vllm", "queuedRequests", 2000, {}, id="a queue without a limit"),
    ],
)
def test_a_target_that_cannot_be_judged_is_allowed(stack: str, metric: str, target: object, more: Any) -> None:
    values = good(stack)
    values["autoscaling"][0] |= {"metrics": [{"metric": metric, "target": target}], **more}
    assert problems_of(values) == []


# --- the adapter ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted({name for engine in ENGINES for name in metrics_of(engine)}))
def test_every_query_selects_by_cluster_and_by_what_the_adapter_adds(name: str) -> None:
    text = query(name, "c")
    assert text.count("avg(") == text.count('{<<.LabelMatchers>>,cluster="c"}') == (2 if name == "tpuMemory" else 1)


def test_adapter_queries_the_frontend_by_rules_whose_change_restarts_it(build: Build) -> None:
    first, same, changed = (build(MetricsAdapter, ADAPTER, adapter="prometheus", cluster=name) for name in "aab")
    resources = {name: rule["resources"] for name, rule in rules_of(first).items()}
    # Each metric has the namespace of the autoscaler in a label of its own.
    assert resources["memory_used_percentage"] == {"overrides": {"exported_namespace": {"resource": "namespace"}}}
    assert resources["jetstream_prefill_backlog_size"] == {"template": "<<.Resource>>"}
    name = ADAPTERS["prometheus"]
    pods = [built.one("Deployment", name).inputs["spec"]["template"] for built in (first, same, changed)]
    service = first.one("Service", "prometheus").inputs
    url = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:9090/"
    (container,) = pods[0]["spec"]["containers"]
    assert {f"--prometheus-url={url}", "--metrics-relist-interval=15s"} <= {*container["args"]}
    assert service["spec"]["ports"][0]["port"] == 9090
    annotations = [pod["metadata"]["annotations"] for pod in pods]
    assert annotations[0] == annotations[1] != annotations[2]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_apis_are_registered_after_their_servers_and_tpu_metrics_on_request(build: Build, adapter: str) -> None:
    built = build(MetricsAdapter, ADAPTER, adapter=adapter)
    apis = built.all("APIService")
    assert {api.object_name for api in apis} >= {"v1beta1.external.metrics.k8s.io"}
    for api in apis:
        assert api.hooked
        assert {f"Deployment {ADAPTERS[adapter]}", f"Service {ADAPTERS[adapter]}"} <= built.waits_for(api)
        assert api.inputs["spec"]["service"]["name"] == ADAPTERS[adapter]
    assert built.all("PodMonitoring") == []
    monitoring = build(MetricsAdapter, ADAPTER, adapter=adapter, tpu_metrics=True).one("PodMonitoring")
    assert monitoring.inputs["spec"]["endpoints"] == [{"port": 2112, "interval": "15s"}]


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
    assert [said in text for text in texts] == [True] * bool(said)


# --- the autoscaler ---------------------------------------------------------------------------------------------------
OF_VLLM = {
    "queuedRequests": "vllm:num_requests_waiting",
    "runningRequests": "vllm:num_requests_running",
    "kvCacheUsage": "vllm:kv_cache_usage_perc",
}
SERIES = [
    *((engine, *series) for engine in ("vllm", "vllm-tpu") for series in OF_VLLM.items()),
    *(("tgi", "queuedRequests", "tgi_queue_size"), ("tgi", "runningRequests", "tgi_batch_current_size")),
]


@pytest.mark.parametrize(("engine", "metric", "series"), SERIES)
def test_each_metric_of_an_engine_is_read_by_either_adapter(
    build: Build, engine: str, metric: str, series: str
) -> None:
    scaled = {"deployment": {**VLLM, "engine": engine}, "metrics": [{"metric": metric, "target": "0.8"}]}
    (written,) = build(ServerAutoscaling, AUTOSCALER, **scaled).one("HorizontalPodAutoscaler").inputs["spec"]["metrics"]
    pods = {
        "metric": {"name": f"prometheus.googleapis.com|{series}|gauge"},
        "target": {"type": "AverageValue", "averageValue": "800m"},
    }
    assert written == {"type": "Pods", "pods": pods}
    scaled |= {"metrics": [{"metric": metric, "target": "5"}], "adapter": "prometheus"}
    name = series.replace(":", "_")
    for monitored, job in ((False, "gemma-autoscaling"), (True, "gemma")):
        built = build(ServerAutoscaling, AUTOSCALER, **scaled, monitored=monitored)
        assert [monitoring.object_name for monitoring in built.all("PodMonitoring")] == ([] if monitored else [job])
        (written,) = built.one("HorizontalPodAutoscaler").inputs["spec"]["metrics"]
        assert written["external"] == {
            "metric": {"name": name, "selector": {"matchLabels": {"job": job}}},
            "target": {"type": "Value", "value": "5"},
        }
    rules = rules_of(build(MetricsAdapter, ADAPTER, adapter="prometheus", engines=["jetstream", engine, "vllm"]))
    assert rules[name]["seriesQuery"] == series
    assert not any(":" in name for name in rules)


METRICS = [{"metric": "kvCacheUsage", "target": "0.8"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deployment": {**VLLM, "engine": "tgi"}}, "metrics[0].metric: tgi has no metric kvCacheUsage"),
        ({"deployment": {**VLLM, "engine": "triton"}}, "deployment.engine: engine triton is unknown"),
        # The name of a server is not enough.
        ({"deployment": None, "server": "s"}, "server: is missing, and nothing else says what to scale"),
    ],
)
def test_unknown_metric_engine_or_target_is_refused(build: Build, change: dict[str, Any], message: str) -> None:
    component = JetStreamAutoscaling if "server" in change else ServerAutoscaling
    with pytest.raises(Refused, match=re.escape(message)):
        build(component, AUTOSCALER, metrics=METRICS, **change)


def test_unknown_adapter_is_refused(build: Build) -> None:
    with pytest.raises(Refused, match=r"adapter: \"keda\" is not a value of adapter\. Write 'stackdriver' or 'prom"):
        build(MetricsAdapter, ADAPTER, adapter="keda")


# --- the program ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_grants_wait_for_the_cluster_that_brings_the_identity_pool(adapter: str) -> None:
    values = good()
    values["autoscaling"][0]["adapter"] = adapter
    built = program(values, preview=True)
    members = built.all("IAMMember")
    (grant,) = (member for member in members if WORKLOAD_POOL in str(member.inputs.get("member", WORKLOAD_POOL)))
    assert "Cluster jetstream" in built.waits_for(grant)


def test_one_adapter_serves_every_autoscaler_each_by_the_metrics_of_its_server() -> None:
    values = good("two")
    values["autoscaling"][1]["metrics"] = [{"metric": "tpuMemory", "target": "50Gi"}]
    built = program(values)
    assert (len(built.all("MetricsAdapter")), len(built.all("HorizontalPodAutoscaler"))) == (1, 2)
    names = {monitoring.object_name for monitoring in built.all("PodMonitoring")}
    assert names == {"jetstream-podmonitoring", "tpu-metrics-exporter"}
    # Also if both servers are in one namespace.
    values = good("vllm")
    values["gpuPools"][0]["nodesPerZone"] = 4
    values["serving"].append({**values["serving"][0], "name": "second", "podMonitoring": True})
    (first,) = values["autoscaling"]
    first |= {"adapter": "prometheus", "maxReplicas": 1}
    values["autoscaling"].append({**first, "name": "second-hpa", "server": "second"})
    built = program(values)
    metrics = [hpa.inputs["spec"]["metrics"][0]["external"]["metric"] for hpa in built.all("HorizontalPodAutoscaler")]
    jobs = sorted(metric["selector"]["matchLabels"]["job"] for metric in metrics)
    assert jobs == ["gemma-autoscaling", "second"]
    assert sorted(monitoring.object_name for monitoring in built.all("PodMonitoring")) == jobs


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


@pytest.mark.parametrize("example", ["jetstream-autoscaling", "jetstream-autoscaling-prometheus"])
def test_preview_shows_every_object(example: str) -> None:
    previewed, updated = (
        shared_record(configuration(f"examples/{example}.yaml"), preview) for preview in (True, False)
    )
    assert previewed.resources.keys() == updated.resources.keys()
