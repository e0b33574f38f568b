"""The pure parts of the emulated kubernetes plugin, and the code that both plugins share."""

import json
from pathlib import Path
from typing import Any

import pulumi_gcp as gcp
import pytest
from pulumi.runtime.proto import provider_pb2
from pulumi_kubernetes.apps.v1.Deployment import DeploymentInitArgs
from pulumi_kubernetes.core.v1.Service import ServiceInitArgs

from emulator.commands import chart
from emulator.pulumi import plugin, sdk_types
from emulator.pulumi.kubernetes import checks, configuration, helm, kinds, kubeconfig, objects, readiness, releases
from emulator.pulumi.kubernetes.waits import kept_by
from emulator.pulumi.plugin import UNKNOWN, Refused, Secret, plain


def test_secret_and_unknown_values_are_encoded_hidden_found_and_unwrapped() -> None:
    values = {"a": [1, 2.5, "x", True, None, {"b": Secret({"c": UNKNOWN})}], "d": Secret("s")}
    assert plugin.decode(plugin.encode(values)) == values
    assert "hunter2" not in repr({"a": [Secret("hunter2")]})
    assert plugin.has_unknown({"a": [Secret({"b": UNKNOWN})]})
    assert plain({"a": Secret([Secret(1)])}) == {"a": [1]}


def test_secrecy_follows_the_inputs() -> None:
    inputs = {"data": Secret({"a": "1"}), "env": [{"value": Secret("s")}, {}], "plain": 1}
    outputs = plugin.mark_secrets({"data": {"a": "1"}, "env": [{}, {"value": "s"}], "plain": 1, "more": 2}, inputs)
    assert isinstance(outputs["data"], Secret)
    assert isinstance(outputs["env"], Secret), "a value may have moved within the list"
    assert (outputs["plain"], outputs["more"]) == (1, 2)


def test_names_come_from_the_urn_and_the_seed() -> None:
    urn = "urn:pulumi:dev::gke-ai::gke-ai:index:KueueStack$kubernetes:core/v1:Namespace::a::b"
    assert (plugin.type_of(urn), plugin.name_of(urn)) == ("kubernetes:core/v1:Namespace", "a::b")
    assert plugin.random_suffix(b"seed", 8) == plugin.random_suffix(b"seed", 8) != plugin.random_suffix(b"other", 8)


@pytest.mark.parametrize(
    ("cls", "value", "path"),
    [
        (gcp.container.ClusterArgs, {"nodeConfig": {"flexxStart": True}}, "nodeConfig.flexxStart"),
        (gcp.container.ClusterArgs, {"initialNodeCount": "3"}, "initialNodeCount"),
        (gcp.container.ClusterArgs, {"initialNodeCount": True}, "initialNodeCount"),
        (gcp.container.ClusterArgs, {"resourceLabels": {"a": 1}}, 'resourceLabels["a"]'),
        (gcp.container.ClusterArgs, {"nodeLocations": "us-central1-a"}, "nodeLocations"),
        (gcp.container.ClusterArgs, {"enableAutopilot": Secret("yes")}, "enableAutopilot"),
        (ServiceInitArgs, {"spec": {"ports": [{"port": 1}, {"prt": 1, "port": 2}]}}, "spec.ports[1].prt"),
        (ServiceInitArgs, {"spec": {"ports": [{"port": 1, "targetPort": []}]}}, "spec.ports[0].targetPort"),
        (ServiceInitArgs, {"apiVersion": "v2"}, "apiVersion"),
        (DeploymentInitArgs, {"spec": {"template": {}}}, "spec.selector"),
    ],
)
def test_a_mistake_is_reported_at_its_path(cls: type, value: dict[str, Any], path: str) -> None:
    assert [place for place, _ in sdk_types.problems(cls, value)] == [path]


def test_valid_unknown_and_absent_values_pass() -> None:
    service = {"spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8081}]}}
    assert sdk_types.problems(ServiceInitArgs, service) == []
    cluster = {"initialNodeCount": UNKNOWN, "location": Secret("us-central1"), "network": None}
    assert sdk_types.problems(gcp.container.ClusterArgs, cluster) == []


def test_a_custom_resource_is_not_taken_for_a_built_in_kind() -> None:
    built_in = (
        "core/v1:Namespace",
        "scheduling.k8s.io/v1:PriorityClass",
        "rbac.authorization.k8s.io/v1:ClusterRolePatch",
    )
    assert all(kinds.input_type(f"kubernetes:{name}") for name in built_in)
    for custom in ("kueue.x-k8s.io/v1beta2:ClusterQueue", "batch.example.com/v1:Job"):
        assert kinds.input_type(f"kubernetes:{custom}") is None


def difference(old: Any, new: Any, *, typed: bool = True) -> dict[str, str]:
    differences = objects.differences(old, new, typed=typed)
    return {objects.path_text(path): kind for path, kind in differences.items()}


def test_quantities_are_compared_by_value_only_in_built_in_kinds() -> None:
    def asking(cpu: Any, memory: str) -> dict[str, Any]:
        return {"requests": {"cpu": cpu, "memory": memory}}

    assert difference(asking("1", "1Gi"), asking("1000m", "1024Mi")) == {}
    assert difference(asking("1", "1Gi"), asking("1", "1G")) == {"requests.memory": "update"}
    assert difference(asking("1", "1Gi"), asking("1000m", "1Gi"), typed=False) == {"requests.cpu": "update"}
    assert difference({"name": "1"}, {"name": "1000m"}) == {"name": "update"}


def test_an_empty_value_that_the_api_server_omits_is_no_difference() -> None:
    empty = {"hostNetwork": False, "workingDir": "", "args": [], "labels": {}, "minReadySeconds": 0}
    assert difference({}, empty) == {}
    assert difference(empty, {}) == {}
    assert set(difference({}, empty, typed=False)) == set(empty)
    items = {"volumeMounts": {"readOnly": False}, "env": {"value": ""}}
    assert difference({}, items) != {}  # new items
    assert difference({"volumeMounts": {}, "env": {}}, items) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "backoffLimit"), 0),
        (("spec", "suspend"), False),
        (("spec", "terminationGracePeriodSeconds"), 0),
        (("spec", "storageClassName"), ""),
        (("spec", "volumes", "emptyDir"), {}),
        (("spec", "volumes", "csi", "readOnly"), False),
        (("data", "hostNetwork"), ""),
    ],
)
def test_an_empty_value_that_the_api_server_keeps_is_a_difference(path: tuple[str, ...], value: object) -> None:
    def nested(content: dict[str, Any]) -> dict[str, Any]:
        for step in reversed(path[:-1]):
            content = {step: content}
        return content

    assert list(difference(nested({}), nested({path[-1]: value})).values()) == ["add"]
    assert list(difference(nested({path[-1]: value}), nested({})).values()) == ["delete"]
    assert list(difference(nested({path[-1]: 1}), nested({path[-1]: value})).values()) == ["update"]


def test_items_of_lists_are_compared_in_place() -> None:
    old = {"containers": [{"name": "a", "args": ["x", "y"]}, {"name": "b"}]}
    new = {"containers": [{"name": "a", "args": ["x"]}, {"name": "b"}, {"name": "c"}]}
    assert difference(old, new) == {"containers[0].args[1]": "delete", "containers[2]": "add"}


def test_a_refresh_ignores_other_live_fields_and_keeps_equal_values_in_the_form_of_the_inputs() -> None:
    live: dict[str, Any] = {
        "spec": {"replicas": 1, "paused": False, "containers": [{"name": "a", "pull": "Always"}]},
        "status": {},
    }
    inputs: dict[str, Any] = {"spec": {"replicas": 2, "containers": [{"name": "a"}]}}
    assert objects.pruned(live, inputs) == {"spec": {"replicas": 1, "containers": [{"name": "a"}]}}
    live = {"limits": {"cpu": "1", "memory": "2Gi"}, "replicas": 3}
    inputs = {"limits": {"cpu": "1000m", "memory": "1Gi"}, "replicas": 2, "host": "", "gone": "x"}
    expected = {"limits": {"cpu": "1000m", "memory": "2Gi"}, "replicas": 3, "host": ""}
    assert objects.live_inputs(live, inputs, typed=True) == expected


def test_a_path_is_parsed_and_covers_nested_properties_and_every_item() -> None:
    for path in (("spec", "a", 0, "b"), ("metadata", "labels", "a.b/c"), ("a", 'q"q[0]')):
        assert objects.parse_path(objects.path_text(path)) == path
    assert objects.covers(objects.parse_path("spec.containers[*].image"), ("spec", "containers", 1, "image"))
    assert objects.covers(objects.parse_path("spec"), ("spec", "replicas"))
    assert not objects.covers(objects.parse_path("spec.replicas"), ("spec",))


def test_changed_contents_of_a_config_map_replace_it_unless_the_provider_allows_updates() -> None:
    for mutable, immutable, replaces in ((False, False, True), (True, False, False), (True, True, True)):
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "immutable": immutable}
        assert objects.forces_replacement(obj, ("data", "a"), configs_mutable=mutable) == replaces


@pytest.mark.parametrize(
    "manager", ["pulumi-kubernetes Update", "kubectl-edit Update", "kubectl-client-side-apply Update", "kubectl Apply"]
)
def test_fields_of_the_creator_and_of_kubectl_are_adopted(manager: str) -> None:
    name, operation = manager.split()
    managed = [
        {"manager": name, "operation": operation, "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}}}},
        {"manager": name, "operation": operation, "subresource": "scale", "fieldsV1": {"f:spec": {"f:e": {}}}},
        {"manager": "ours", "operation": "Apply", "fieldsV1": {"f:spec": {"f:c": {}}}},
        {"manager": "theirs", "operation": "Update", "fieldsV1": {"f:spec": {"f:d": {}}}},
    ]
    moved = objects.adopted_fields(managed, "ours")
    assert moved is not None
    assert moved[:2] == [managed[1], managed[3]]
    assert (moved[2]["manager"], set(moved[2]["fieldsV1"]["f:spec"])) == ("ours", {"f:a", "f:b", "f:c"})
    assert objects.adopted_fields(moved, "ours") is None


def test_an_ignored_field_is_omitted_if_another_manager_owns_it_and_kept_otherwise() -> None:
    ours = {"manager": "ours", "fieldsV1": {"f:spec": {"f:shared": {}}}}
    queue = {"manager": "queue", "fieldsV1": {"f:spec": {"f:suspend": {}, "f:shared": {}}}}
    live = {"metadata": {"managedFields": [ours, queue]}, "spec": {"suspend": False, "shared": 5}}
    wanted = {"spec": {"suspend": True, "shared": 1, "rest": 2}}
    ignored: list[objects.Path] = [("spec", "suspend"), ("spec", "shared"), ("spec", "none", "below")]
    assert objects.with_ignored(wanted, live, ignored, "ours") == {"spec": {"shared": 5, "rest": 2}}


def test_no_encoding_of_a_secret_stays_in_a_message() -> None:
    inputs = {"data": Secret({"a": "aHVudGVyMg=="}), "env": [Secret("s3cret")], "open": "shown"}
    text = objects.redacted("aHVudGVyMg== hunter2 s3cret czNjcmV0 shown", inputs)
    assert text == "[secret] [secret] [secret] [secret] shown"


def rolled(revision: str, ready: int, progressing: str = "NewReplicaSetAvailable") -> list[str]:
    meta = {"name": "d", "uid": "1", "annotations": {readiness.REVISION: revision}}
    conditions = [{"type": kind, "status": "True", "reason": progressing} for kind in ("Available", "Progressing")]
    sets = [
        {
            "metadata": {"uid": n, "ownerReferences": [{"uid": "1"}], "annotations": {readiness.REVISION: n}},
            "spec": {"replicas": 2},
            "status": {"readyReplicas": 2 if n != revision else ready},
        }
        for n in ("1", "2")
    ]
    return readiness.deployment({"metadata": meta, "status": {"conditions": conditions}}, sets, [])


def test_a_rollout_is_complete_when_its_newest_replica_set_is_ready() -> None:
    assert rolled("2", 2) == []
    assert rolled("2", 1)[0] == "1 of 2 pods of its newest ReplicaSet are ready"
    assert rolled("2", 2, "ReplicaSetUpdated"), "the old one is still being replaced"
    assert rolled("1", 2, "ReplicaSetUpdated") == [], "a first one replaces nothing"


def test_a_failed_job_and_a_claim_that_waits_for_its_pod_are_not_waited_for_but_an_uncounted_quota_is() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    with pytest.raises(readiness.Failed, match="BackoffLimitExceeded"):
        readiness.job({"status": {"conditions": [failed]}}, [])
    claim = {"status": {"phase": "Pending"}}
    assert readiness.volume_claim(claim, "WaitForFirstConsumer", created=True) == []
    assert readiness.volume_claim(claim, "Immediate", created=True)
    stated = {"spec": {"hard": {"pods": "4"}}}
    assert readiness.quota(stated) == ["pods isn't counted yet"]
    assert readiness.quota({**stated, "status": {"hard": {"pods": "5"}}})
    assert readiness.quota({**stated, "status": {"hard": {"pods": "4"}}}) == []


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("condition=Ready", True),
        ("condition=Ready=False", False),
        ("condition=Other", False),
        ("jsonpath={.status.count}=2", True),
        ("jsonpath={.status.count}=3", False),
        ("jsonpath={.status.flag}=true", True),
        ("jsonpath={.status.count}", True),
        ("jsonpath={.status.missing}", False),
        ("jsonpath={.status.conditions[?(@.type=='Ready')].status}=True", True),
        ("jsonpath={.metadata.annotations['a.b/c']}=d", True),
        ('["condition=Ready", "jsonpath={.status.count}=2"]', True),
        ('["condition=Ready", "jsonpath={.status.count}=3"]', False),
    ],
)
def test_wait_for_evaluates_the_annotation(expression: str, met: bool) -> None:
    status = {"count": 2, "flag": True, "conditions": [{"type": "Ready", "status": "True"}]}
    obj: dict[str, Any] = {"metadata": {"annotations": {"a.b/c": "d"}}, "status": status}
    assert (readiness.WaitFor(expression).missing(obj) == []) == met
    outdated = {"metadata": obj["metadata"] | {"generation": 2}, "status": status | {"observedGeneration": 1}}
    assert readiness.WaitFor(expression).missing(outdated)


@pytest.mark.parametrize(
    "expression", ["Ready", "jsonpath=.status", "jsonpath='{.status}'=1", "jsonpath={.status[}", "[]", "jsonpath={.a}="]
)
def test_a_wait_for_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(Refused, match="waitFor"):
        readiness.WaitFor(expression)


CONFIG = {
    "current-context": "a",
    "contexts": [{"name": n, "context": {"cluster": n, "user": "u", "namespace": f"in-{n}"}} for n in "ab"],
    "clusters": [{"name": n, "cluster": {"server": f"https://{n}"}} for n in "ab"],
    "users": [{"name": "u", "user": {"token": "t0ken"}}],
}


def test_a_kubeconfig_is_read_as_text_or_path_for_a_context_and_its_namespace(tmp_path: Path) -> None:
    text = json.dumps(CONFIG)
    (tmp_path / "config").write_text(text)
    assert kubeconfig.load(text).cluster["server"] == "https://a"
    assert kubeconfig.load(str(tmp_path / "config"), context="b").namespace == "in-b"
    assert kubeconfig.load(text, cluster="b").cluster["server"] == "https://b"
    assert configuration.read({"kubeconfig": text}).namespace == "in-a"
    assert configuration.read({"kubeconfig": text, "namespace": "n"}).namespace == "n"
    assert configuration.read({"kubeconfig": UNKNOWN}).kubeconfig is None


@pytest.mark.parametrize("text", ["{", "no kubeconfig", json.dumps(CONFIG | {"current-context": "c"})])
def test_a_kubeconfig_that_cannot_be_read_is_refused_without_its_contents(text: str) -> None:
    with pytest.raises(Refused) as refused:
        kubeconfig.load(text)
    assert "t0ken" not in str(refused.value)


def test_another_server_is_another_cluster_and_another_login_is_not() -> None:
    old = {"kubeconfig": json.dumps(CONFIG)}
    login = CONFIG | {"users": [{"name": "u", "user": {"token": "new"}}]}
    assert configuration.differences(old, {"kubeconfig": json.dumps(login)}) == (["kubeconfig"], [])
    server = CONFIG | {"clusters": [{"name": "a", "cluster": {"server": "https://c"}}]}
    assert configuration.differences(old, {"kubeconfig": json.dumps(server)}) == (["kubeconfig"], ["kubeconfig"])


REFERENCE = "oci://registry.example/charts/app"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a chart of version 1.2.3."""
    monkeypatch.setenv(helm.CHARTS, str(tmp_path))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "Chart.yaml").write_text("{name: app, version: 1.2.3}")
    return tmp_path / "app"


def test_a_charts_folder_has_its_recorded_version(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (app / "Chart.yaml").write_text("{name: app, version: 0.0.0-staging}")
    assert helm.chart(REFERENCE, None).version == "0.0.0-staging"
    (app / ".version").write_text("1.2.3\n")
    assert helm.chart(REFERENCE, "1.2.3").version == "1.2.3"
    with pytest.raises(Refused, match=r"staging is requested, but the folder has version 1\.2\.3"):
        helm.chart(REFERENCE, "0.0.0-staging")
    monkeypatch.delenv(helm.CHARTS)
    with pytest.raises(Refused, match="has no registry"):
        helm.chart(REFERENCE, None)


def test_the_command_chart_prints_the_folder_of_the_pinned_or_an_earlier_version(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(version: str) -> str:
        monkeypatch.setattr("sys.argv", ["chart", REFERENCE, version])
        chart.main()
        return capsys.readouterr().out

    earlier = {version: app.parent / version / "app" for version in ("1.0.0", "1.1.0")}
    for version, folder in earlier.items():
        folder.mkdir(parents=True)
        (folder / "Chart.yaml").write_text(f"{{name: app, version: {version}}}")
    folders = [*(str(folder.parent) for folder in earlier.values()), str(app / "not-built")]
    monkeypatch.setenv("GKE_AI_OTHER_CHARTS", ":".join(folders))
    assert printed("1.2.3") == f"{app}\n"
    for version, folder in earlier.items():
        assert printed(f"v{version}") == f"{folder}\n"
    with pytest.raises(SystemExit, match=r"version 2\.0\.0 is requested, but the folder has version 1\.2\.3"):
        printed("2.0.0")


def test_the_names_of_a_releases_objects_are_listed_by_kind() -> None:
    services = (f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: n}}}}" for name in "ba")
    manifest = ["# nothing", *services, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}"]
    expected = {"Deployment.apps/apps/v1": ["d"], "Service/v1": ["n/a", "n/b"]}
    assert helm.resource_names("\n---\n".join(manifest)) == expected


def test_a_release_is_recorded_with_the_defaults_of_the_official_plugin() -> None:
    stated = {"name": "kueue", "chart": UNKNOWN, "timeout": 300}
    request = provider_pb2.CheckRequest(urn=f"urn:pulumi:s::p::{releases.TYPE}::kueue")
    recorded = releases.checked(request, {}, stated, "kueue-system")
    assert stated.items() <= recorded.items()
    assert (recorded["atomic"], recorded["allowNullValues"], recorded["description"]) == (False, False, "")
    arguments = sdk_types.load("pulumi_kubernetes.helm.v3.Release", "ReleaseArgs")
    assert recorded.keys() <= sdk_types.properties(arguments).keys()
    recorded["chart"] = "kueue"
    without_defaults = stated | {"namespace": "kueue-system", "chart": "kueue"}
    assert ("atomic",) in releases.changes({"__inputs": Secret(without_defaults)}, recorded)
    assert releases.changes({"__inputs": Secret(recorded)}, recorded | {"atomic": True}) == {("atomic",): "update"}


@pytest.mark.parametrize(
    ("stated", "timeout"),
    [({}, 300), ({"skipAwait": True}, 0), ({"skipAwait": True, "timeout": 60}, 60), ({"timeout": 0}, 0)],
)
def test_a_release_records_the_arguments_that_the_official_plugin_knows(stated: dict[str, Any], timeout: int) -> None:
    recorded = releases.completed({"name": "kueue", "compat": "true", "resourceNames": {}, "keyring": None, **stated})
    assert recorded["timeout"] == timeout
    assert not {"compat", "resourceNames"} & recorded.keys()
    assert (recorded["values"], recorded["keyring"]) == ({}, "")


def test_what_the_api_server_omits_of_a_built_in_kind_is_not_recorded() -> None:
    mount = {"name": "v", "mountPath": "/v", "readOnly": False}
    pod = {"hostNetwork": False, "containers": [{"name": "c", "volumeMounts": [mount], "args": []}], "priority": 0}
    inputs = {"metadata": {"name": "p", "namespace": "n", "labels": {}, "annotations": {"a": ""}}, "spec": pod}
    request = provider_pb2.CheckRequest(urn="urn:pulumi:s::p::kubernetes:core/v1:Pod::p")
    recorded, failures = checks.checked_object(request, "kubernetes:core/v1:Pod", {}, inputs, "n", lambda _: True)
    assert failures == []
    assert recorded["metadata"] == {"name": "p", "namespace": "n", "annotations": {"a": ""}}
    kept = {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}], "priority": 0}
    assert recorded["spec"] == kept


def test_wait_for_a_deletion_names_finalizers_or_what_a_namespace_still_has() -> None:
    assert kept_by({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}) == (
        "Finalizers that block it: example.com/a, example.com/b"
    )
    remaining = "Some resources are remaining: pods. has 1 resource instances"
    conditions = [{"status": "True", "message": remaining}, {"status": "False", "message": "All content deleted"}]
    assert kept_by({"metadata": {}, "status": {"conditions": conditions}}) == remaining
    assert kept_by({"metadata": {}}) == ""
