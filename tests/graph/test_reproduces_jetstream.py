"""Both JetStream examples register the objects of their source document, except for these differences."""

from typing import Any

import pytest
import yaml

from gke_ai.catalog.engines.metrics import metrics_of
from gke_ai.components.serving.server_autoscaling import metric
from gke_ai.settings.model import ScaledMetric
from tests.support.recorder import PROJECT, PROJECT_NUMBER, ROOT, Record, configuration, in_camel_case, shared_record
from tests.support.reproduced import Object, are_equal, identity

SOURCE: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/jetstream.yaml").read_text(), yaml.CSafeLoader)
PROJECT_VALUES = {"PROJECT_ID": PROJECT, "PROJECT_NUMBER": PROJECT_NUMBER, "CLUSTER_NAME": "jetstream"}
BOUNDS = {"MIN_REPLICAS": 1, "MAX_REPLICAS": 2, "TARGET": "10", "EXTERNAL_METRIC_TARGET": "800m"}
METRIC = {"PROMETHEUS_PORT": "metrics", "METRIC": "prefill_backlog_size"}
CHOSEN: dict[str, Any] = {**PROJECT_VALUES, **METRIC, **BOUNDS}
CONTAINERS = {"key": "container", "operator": "In", "values": ["maxengine-server", "jetstream-http"]}


def averages_are_compared(entry: Object) -> None:
    """Through Prometheus the value is already an average, so the target applies to it and not to each replica.

    What the TPUs' query selects by, the document has in the query, for one container of one namespace.
    """
    external = entry["external"]
    if "|" not in external["metric"]["name"]:
        external["target"] = {"type": "Value", "value": external["target"]["averageValue"]}
        if external["metric"]["name"] == "memory_used_percentage":
            external["metric"]["selector"] = {"matchExpressions": [CONTAINERS]}


def chips_of_either_container_in_this_cluster(entry: Object) -> None:
    """The document selects TPU memory of jetstream-http, which has no chips, in all clusters of the project."""
    selector = entry["external"]["metric"].get("selector", {})
    if selector.get("matchLabels", {}).pop("metric.labels.container", None):
        selector["matchLabels"]["resource.labels.cluster"] = "jetstream"
        selector["matchExpressions"] = [{**CONTAINERS, "key": "metric.labels.container"}]


def change(item: Object) -> None:
    """The differences from the document."""
    spec, metadata, kind = item.get("spec", {}), item["metadata"], item["kind"]
    # The document has the server's selector outside the spec, where the API refuses it.
    if "selector" in item:
        spec["selector"] = item.pop("selector")
    # The document's commands run in the default namespace.
    if kind in ("PodMonitoring", "Deployment", "Service"):
        metadata.setdefault("namespace", "default")
    # The document creates prom-frontend-sa, but binds and grants to jetstream-iam-sa, which it never creates.
    annotations = metadata.get("annotations", {})
    for key, value in annotations.items():
        annotations[key] = value.replace("jetstream-iam-sa", "prom-frontend-sa")
    # 443 is the default.
    if kind == "APIService":
        spec["service"]["port"] = 443
    # Kubernetes' defaults, set explicitly because they are a choice. One pod at a time, so open answers can finish.
    if kind == "HorizontalPodAutoscaler":
        slowly = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
        windows = {"scaleUp": (0, {}), "scaleDown": (300, slowly)}
        spec["behavior"] = {way: {"stabilizationWindowSeconds": time, **how} for way, (time, how) in windows.items()}
    # The document has targets outside `target`, and uses one metric of each adapter.
    if metadata["name"] == "jetstream-hpa-multiple-metrics":
        for entry in spec["metrics"]:
            entry["external"] = entry.pop("pods", None) or entry["external"]
            entry["type"] = "External"
            entry["external"]["target"]["averageValue"] = entry.pop("averageValue")
            averages_are_compared(entry)
    # The document leaves the frontend's resources to the node.
    if identity(item) == ("Deployment", "frontend"):
        (container,) = spec["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


# The server is taken for granted by the document, as is its disruption budget; and prometheus-adapter is installed by
# its chart there: its rules are compared below, its names with those of the chart.
NOT_IN_THE_SOURCE = {
    ("Service", "jetstream-svc"),
    *((kind, "maxengine-server") for kind in ("Deployment", "PodDisruptionBudget")),
}
OF_THE_CHART = {
    ("PodDisruptionBudget", "frontend"),  # of the frontend's two replicas; the document has none
    *(
        (kind, "example-release-prometheus-adapter")
        for kind in ("ServiceAccount", "ConfigMap", "Deployment", "Service")
    ),
    ("APIService", "v1beta1.external.metrics.k8s.io"),
    ("RoleBinding", "prometheus-adapter-auth-reader"),
    *((kind, "prometheus-adapter-resource-reader") for kind in ("ClusterRole", "ClusterRoleBinding")),
    ("ClusterRole", "prometheus-adapter-external-metrics"),
    ("ClusterRoleBinding", "prometheus-adapter-hpa-controller-external-metrics"),
    ("ClusterRoleBinding", "prometheus-adapter-system-auth-delegator"),
}


@pytest.fixture
def records() -> dict[str, Record]:
    examples = {"stackdriver": "jetstream-autoscaling", "prometheus": "jetstream-autoscaling-prometheus"}
    return {adapter: shared_record(configuration(f"examples/{name}.yaml")) for adapter, name in examples.items()}


def test_kubernetes_objects_are_those_of_the_source(records: dict[str, Record]) -> None:
    for adapter, further in (("stackdriver", []), ("prometheus", SOURCE["tpu"])):
        expected = {}
        for item in filled([*SOURCE["both"], *further, *SOURCE[adapter]]):
            change(item)
            expected[identity(item)] = item
        resources = records[adapter].resources.values()
        objects = [resource.inputs for resource in resources if resource.type.startswith("kubernetes:")]
        registered = {identity(item): item for item in objects}
        others = NOT_IN_THE_SOURCE | (OF_THE_CHART if adapter == "prometheus" else set())
        are_equal({key: item for key, item in registered.items() if key not in others}, expected)
        assert others <= registered.keys()


def test_rules_of_prometheus_adapter_are_those_of_the_source(records: dict[str, Record]) -> None:
    wanted = filled(SOURCE["rules"])
    # The document writes namespace and container of one server into the query; here the adapter adds the namespace of
    # the autoscaler that asks, under the label that TPU metrics have it in, and its selector the container.
    memory = wanted[-1]
    memory["resources"] = {"overrides": {"exported_namespace": {"resource": "namespace"}}}
    query = memory["metricsQuery"]
    selected = 'cluster="jetstream",exported_namespace="default",container="jetstream-http"'
    memory["metricsQuery"] = query.replace(selected, '<<.LabelMatchers>>,cluster="jetstream"')
    rules = records["prometheus"].one("ConfigMap").inputs["data"]["config.yaml"]
    assert yaml.safe_load(rules) == {"externalRules": wanted}


@pytest.mark.parametrize("key", SOURCE["metrics"])
def test_autoscalers_of_one_metric_are_those_of_the_source(key: str) -> None:
    adapter, name = key.split()
    wanted = filled(SOURCE["metrics"][key])
    averages_are_compared(wanted)
    chips_of_either_container_in_this_cluster(wanted)
    scaled = ScaledMetric.model_validate({"metric": name, "target": "10Ki" if key == "stackdriver tpuMemory" else "10"})
    if scaled.target == "10Ki":
        wanted["external"]["target"]["averageValue"] = "10Ki"  # bytes
    described, containers = metrics_of("jetstream")[name], [*CONTAINERS["values"]]
    assert in_camel_case(metric(described, scaled, adapter, "jetstream", "default", containers)) == wanted


@pytest.mark.parametrize("adapter", ["stackdriver", "prometheus"])
def test_server_matches_the_one_that_the_source_assumes(adapter: str, records: dict[str, Record]) -> None:
    wanted, record = filled(SOURCE["server"]), records[adapter]
    deployment = record.one("Deployment", "maxengine-server").inputs
    assert deployment["spec"]["replicas"] == 1, "and the autoscaler decides from then on"
    spec = deployment["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == wanted["nodeSelector"]
    assert {container["name"] for container in spec["containers"]} == wanted["containers"].keys()
    for container in spec["containers"]:
        expected = wanted["containers"][container["name"]]
        assert container["image"] == expected["image"]
        assert container.get("args") == expected.get("args")
        assert [port["containerPort"] for port in container["ports"]] == expected["ports"]
        assert container.get("resources", {}).get("limits", {}).get("google.com/tpu") == expected.get("chips")
    for name, ports in wanted["services"].items():
        assert [port["port"] for port in record.one("Service", name).inputs["spec"]["ports"]] == ports
    pool = record.one("NodePool").inputs
    assert (pool["nodeCount"], pool["nodeConfig"]["machineType"]) == (2, "ct5lp-hightpu-8t")
    roles = {member.inputs["role"] for member in record.all("BucketIAMMember")}
    assert roles == {"roles/storage.objectUser", "roles/storage.insightsCollectorService"}


def filled(value: Any) -> Any:
    """The document with its variables filled in."""
    if isinstance(value, str):
        if value in CHOSEN:
            return CHOSEN[value]
        for variable in ("PROJECT_ID", "PROJECT_NUMBER", "CLUSTER_NAME"):
            value = value.replace(variable, CHOSEN[variable])
        return value.replace("jetstream_METRIC", f"jetstream_{CHOSEN['METRIC']}")
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    return value
