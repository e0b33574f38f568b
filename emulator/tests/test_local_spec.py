"""How a container becomes a local process, and the status that its pod then has."""

from pathlib import Path
from typing import Any

import pytest

from emulator.pods.local_spec import Names, NotStarted, Paths, bucket_of, expand, sources, variables
from emulator.pods.local_status import ContainerState, backoff, exit_status, pod_status, restarts

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"


def pod(**spec: object) -> Object:
    metadata: Object = {"namespace": "llm", "name": "run-0-x7", "uid": "u1", "labels": {"app": "a"}}
    metadata["annotations"] = {INDEX: "0"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", **spec}, "status": {"podIP": "10.0.0.7"}}


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("/data", "/m/bucket"),
        ("/data/run/1", "/m/bucket/run/1"),
        ("--out=/data/run", "--out=/m/bucket/run"),
        ("/data/scratch/x", "/m/scratch/x"),
        ("cd /data && python train.py --out '/data/run'", "cd /m/bucket && python train.py --out '/m/bucket/run'"),
        ("/data:/data/scratch", "/m/bucket:/m/scratch"),
        ("/database", "/database"),
        ("/data-old", "/data-old"),
        ("gs://bucket/data", "gs://bucket/data"),
        ("${HOME}/data", "${HOME}/data"),
        ("../data", "../data"),
        ("data", "data"),
    ],
)
def test_a_path_under_a_mount_becomes_a_folder_of_this_machine(text: str, local: str) -> None:
    paths = Paths()
    paths.add("/data", Path("/m/bucket"))
    paths.add("/data/scratch/", Path("/m/scratch"))
    assert paths.local(text) == local


def test_a_log_shows_the_paths_of_the_container() -> None:
    paths = Paths()
    paths.add("/data", Path("/m/bucket"))
    paths.add("/tmp", Path("/m"))
    assert paths.shown(b"saved /m/bucket/step-1 and /m/x") == b"saved /data/step-1 and /tmp/x"


def fuse(**attributes: str) -> Object:
    return {"name": "v", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}


def test_a_fuse_volume_is_a_bucket_or_a_folder_of_it_and_needs_its_annotation() -> None:
    annotated = pod()
    annotated["metadata"]["annotations"]["gke-gcsfuse/volumes"] = "true"
    assert bucket_of(fuse(bucketName="b"), annotated) == ("b", "")
    assert bucket_of(fuse(bucketName="b", mountOptions="implicit-dirs,only-dir=runs/1"), annotated) == ("b", "runs/1")
    assert bucket_of({"name": "v", "emptyDir": {}}, annotated) is None
    with pytest.raises(NotStarted, match="gke-gcsfuse/volumes"):
        bucket_of(fuse(bucketName="b"), pod())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "run-0-x7"),
        ("metadata.namespace", "llm"),
        (f"metadata.annotations['{INDEX}']", "0"),
        ("metadata.labels['app']", "a"),
        ("metadata.labels['missing']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.0.0.7"),
    ],
)
def test_a_variable_may_be_a_field_of_the_pod(path: str, value: str) -> None:
    field = {"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert variables({"env": [field]}, pod(), {}) == {"V": value}


def test_variables_come_from_config_maps_and_secrets() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "C_"}, {"secretRef": {"name": "lost", "optional": True}}],
        "env": [
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": True}}},
        ],
    }
    required = [("configmaps", "c", True), ("secrets", "lost", False), ("secrets", "s", True), ("secrets", "s", False)]
    assert list(sources(container)) == required
    values = {("configmaps", "c"): {"a": "1"}, ("secrets", "s"): {"token": "$(C_a)"}}
    assert variables(container, pod(), values) == {"C_a": "1", "TOKEN": "$(C_a)"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"secretKeyRef": {"name": "s", "key": "token"}}, "couldn't find key token in secret s"),
        ({"fieldRef": {"fieldPath": "spec.unknown"}}, "unsupported fieldPath spec.unknown"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "doesn't set V from resourceFieldRef"),
    ],
)
def test_a_variable_without_a_value_starts_no_container(source: Object, message: str) -> None:
    with pytest.raises(NotStarted, match=message) as refused:
        variables({"env": [{"name": "V", "valueFrom": source}]}, pod(), {})
    assert refused.value.reason == "CreateContainerConfigError"


def test_references_expand_as_in_kubernetes() -> None:
    texts = {"$(A)/$(B)": "1/$(B)", "$$(A)": "$(A)", "$A ${A}": "$A ${A}", "$$$(A)": "$1", "100$": "100$"}
    assert {text: expand(text, {"A": "1"}) for text in texts} == texts
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"}]
    assert variables({"env": env}, pod(), {})["B"] == "1$(C)", "a variable may use those before it"


def names() -> Names:
    return Names("svc", "llm", lambda host, port: {("run-0", 1234): 20000, ("run-0", 29500): 20001}[host, port])


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("run-0.svc:1234", "127.0.0.1:20000"),
        ("run-0.svc.llm:1234", "127.0.0.1:20000"),
        ("run-0.svc.llm.svc:1234", "127.0.0.1:20000"),
        ("run-0.svc.llm.svc.cluster.local:1234", "127.0.0.1:20000"),
        ("tcp://run-0.svc:1234/x", "tcp://127.0.0.1:20000/x"),
        ("--coordinator=run-0.svc:1234", "--coordinator=127.0.0.1:20000"),
        ("run-0.svc,run-1.svc", "127.0.0.1,127.0.0.1"),
        ("run-0.svc.other:1234", "run-0.svc.other:1234"),
        ("run-0.svc2:1234", "run-0.svc2:1234"),
        ("svc:1234", "svc:1234"),
        ("example.com:1234", "example.com:1234"),
    ],
)
def test_a_name_of_the_service_becomes_a_local_address(text: str, local: str) -> None:
    assert names().local(text) == local


def test_an_address_may_be_in_two_variables_and_a_pod_without_a_service_knows_no_names() -> None:
    given = {"MASTER_ADDR": "run-0.svc", "MASTER_PORT": "29500", "OTHER_PORT": "29500", "COORDINATOR": "run-0.svc:1234"}
    local = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "20001", "COORDINATOR": "127.0.0.1:20000"}
    assert names().variables(given) == given | local
    assert Names("", "llm", lambda *_: 1).variables(given) == given


def test_the_restart_policy_decides_whether_a_container_starts_again_after_a_growing_pause() -> None:
    again = {policy: [restarts(policy, code) for code in (0, 1, 3)] for policy in ("Always", "OnFailure", "Never")}
    assert again == {"Always": [True] * 3, "OnFailure": [False, True, True], "Never": [False] * 3}
    assert [backoff(restart) for restart in (*range(7), 5000)] == [0.5, 1, 2, 4, 8, 10, 10, 10]
    assert [exit_status(code) for code in (0, 3, -15, -9)] == [0, 3, 143, 137], "a signal is one above 128"


def ended(code: int) -> ContainerState:
    state = ContainerState("c", "image")
    state.start()
    state.end(code)
    return state


def test_a_pod_fails_if_one_of_its_containers_does() -> None:
    assert pod_status([ended(0), ended(0)], ended=True)["phase"] == "Succeeded"
    failed = pod_status([ended(0), ended(3)], ended=True)
    terminated = [status["state"]["terminated"] for status in failed["containerStatuses"]]
    assert [(end["exitCode"], end["reason"]) for end in terminated] == [(0, "Completed"), (3, "Error")]
    conditions = {condition["type"]: condition["status"] for condition in failed["conditions"]}
    assert (failed["phase"], conditions) == ("Failed", {"ContainersReady": "False", "Ready": "False"})


def test_a_restarted_container_waits_and_keeps_its_last_end() -> None:
    state = ended(3)
    state.restart(0.5)
    status = pod_status([state], ended=False)
    (container,) = status["containerStatuses"]
    assert status["phase"] == "Running"
    assert (container["restartCount"], container["ready"]) == (1, False)
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 3
    state.start()
    assert pod_status([state], ended=False)["containerStatuses"][0]["ready"] is True


def test_a_container_that_can_not_start_says_why() -> None:
    waiting = {"reason": "FailedMount", "message": "the bucket b doesn't exist"}
    state = ContainerState("c", "image")
    state.wait(*waiting.values())
    status = pod_status([state], ended=False)
    assert (status["phase"], status["containerStatuses"][0]["state"]) == ("Pending", {"waiting": waiting})
