"""Hashed names: no name and no uid of another team stays, and every reference still matches."""

import hashlib
import json
import uuid
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gke_ai.forecast.snapshot import command
from gke_ai.forecast.snapshot.format import Snapshot, build, read
from gke_ai.forecast.snapshot.names import hash_names, stack_names, used_names
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack

KEY = b"k" * 32
OWN = "gemma"
PRIVATE = "atlantis"


def uid(letter: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, letter))


def meta(name: str, letter: str, owner: tuple[str, str] | None = None, namespace: str = PRIVATE, **labels: str) -> Any:
    owners = [{"kind": "Job", "name": owner[0], "uid": uid(owner[1]), "controller": True}] if owner else []
    return {"name": name, "namespace": namespace, "uid": uid(letter), "ownerReferences": owners, "labels": labels}


def taken() -> Snapshot:
    """A JobSet of another team with what belongs to it, a server of the stack, and an agent of GKE."""
    run, job, pod = f"{PRIVATE}-run", f"{PRIVATE}-run-workers-0", f"{PRIVATE}-run-workers-0-1-x7k2p"
    queue = {"kueue.x-k8s.io/queue-name": f"{PRIVATE}-queue"}
    of_job = {"job-name": job, "jobset.sigs.k8s.io/jobset-name": run, "team": PRIVATE}
    selector = {"matchLabels": {"team": PRIVATE}}
    assignment = {"name": "workers", "flavors": {"nvidia.com/gpu": f"{PRIVATE}-flavor"}}
    admission = {"clusterQueue": f"{PRIVATE}-queue", "podSetAssignments": [assignment]}
    admitted = {"spec": {"queueName": f"{PRIVATE}-queue"}, "status": {"admission": admission}}
    quota = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": f"{PRIVATE}-flavor"}]}
    placed = {"nodeName": "gke-node-1", "nodeSelector": {"pool": PRIVATE, "cloud.google.com/gke-nodepool": "l4"}}
    own = {"nodeSelector": {"pool": "shared"}, "priorityClassName": "system-node-critical"}
    objects: dict[str, list[Any]] = {
        "Namespace": [{"metadata": {"name": PRIVATE, "labels": {"kubernetes.io/metadata.name": PRIVATE}}}],
        "Node": [{"metadata": {"name": "gke-node-1", "labels": {"pool": PRIVATE}}}],
        "ResourceFlavor": [{"metadata": {"name": f"{PRIVATE}-flavor"}, "spec": {"nodeLabels": {"pool": PRIVATE}}}],
        "ClusterQueue": [{"metadata": {"name": f"{PRIVATE}-queue"}, "spec": {"resourceGroups": [quota]}}],
        "LocalQueue": [{"metadata": meta(f"{PRIVATE}-queue", "q"), "spec": {"clusterQueue": f"{PRIVATE}-queue"}}],
        "JobSet": [{"metadata": meta(run, "s", None, **queue), "spec": {"replicatedJobs": [{"name": "workers"}]}}],
        "Job": [{"metadata": meta(job, "j", (run, "s"), **of_job)}],
        "Pod": [
            {"metadata": meta(pod, "p", (job, "j"), **of_job), "spec": placed},
            {"metadata": meta(f"{OWN}-1", "g", None, OWN, app=OWN), "spec": own},
            {"metadata": meta("fluentbit-1", "f", None, "kube-system"), "spec": {}},
        ],
        "Workload": [{"metadata": meta(f"jobset-{run}-12345", "w", (run, "s")), **admitted}],
        "Deployment": [{"metadata": meta(OWN, "d", None, OWN), "spec": {"selector": {"matchLabels": {"app": OWN}}}}],
        "PodDisruptionBudget": [{"metadata": meta(f"{PRIVATE}-budget", "b"), "spec": {"selector": selector}}],
    }
    return build("prod", objects, datetime(2026, 11, 22, tzinfo=UTC))


@pytest.fixture
def hashed() -> Snapshot:
    return hash_names(taken(), {OWN, "shared"}, KEY)


def test_no_name_of_another_team_stays_but_those_of_the_stack_of_gke_and_of_nodes(hashed: Snapshot) -> None:
    assert PRIVATE in taken().to_json()
    assert PRIVATE not in hashed.to_json()
    assert hashed.hashed
    text = hashed.to_json()
    for name in (f'"{OWN}"', "fluentbit-1", "kube-system", "gke-node-1", "workers", '"l4"', "system-node-critical"):
        assert name in text, name
    own = next(pod for pod in hashed.of("Pod") if pod["metadata"]["namespace"] == OWN)
    assert (own["metadata"]["labels"], own["spec"]["nodeSelector"]) == ({"app": OWN}, {"pool": "shared"})


def test_every_reference_still_matches(hashed: Snapshot) -> None:
    (namespace,), (run,), (job,), (workload,), (queue,), (flavor,), (local,) = (
        hashed.of(kind)
        for kind in ("Namespace", "JobSet", "Job", "Workload", "ClusterQueue", "ResourceFlavor", "LocalQueue")
    )
    pod = next(pod for pod in hashed.of("Pod") if pod["metadata"]["ownerReferences"])
    names = [item["metadata"]["name"] for item in (namespace, run, job, local, queue, flavor)]
    of_namespace, of_run, of_job, of_local, of_queue, of_flavor = names
    metadata, labels = pod["metadata"], pod["metadata"]["labels"]
    assert namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] == of_namespace
    assert (run["metadata"]["namespace"], of_job) == (of_namespace, f"{of_run}-workers-0")
    assert (metadata["name"], metadata["ownerReferences"][0]["name"]) == (f"{of_job}-1-x7k2p", of_job)
    assert (labels["job-name"], labels["jobset.sigs.k8s.io/jobset-name"]) == (of_job, of_run)
    assert workload["metadata"]["ownerReferences"][0]["name"] == of_run
    assert workload["spec"]["queueName"] == of_local == run["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    admission = workload["status"]["admission"]
    assert (admission["clusterQueue"], queue["spec"]["resourceGroups"][0]["flavors"][0]["name"]) == (
        of_queue,
        of_flavor,
    )
    assert admission["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"] == of_flavor
    assert pod["spec"]["nodeSelector"]["pool"] == hashed.of("Node")[0]["metadata"]["labels"]["pool"]
    budget = hashed.of("PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"]
    assert budget == {"team": labels["team"]}


def changed(own: Collection[str] = (OWN,), **objects: list[Any]) -> Snapshot:
    return read(hash_names(build("prod", objects, datetime(2026, 11, 22, tzinfo=UTC)), own, KEY).to_json())


def test_labels_of_kubernetes_whose_values_a_user_chooses_are_hashed() -> None:
    labels = {f"app.kubernetes.io/{key}": PRIVATE for key in ("name", "instance", "part-of")} | {"app": PRIVATE}
    budget = {"metadata": meta("b", "b"), "spec": {"selector": {"matchLabels": labels}}}
    expression = {"key": "team.cloud.google.com/x", "operator": "In", "values": [PRIVATE]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    pod = {"metadata": meta("p", "p", None, **labels), "spec": {"affinity": affinity}}
    hashed = changed(Pod=[pod], PodDisruptionBudget=[budget])
    assert PRIVATE not in hashed.to_json()
    assert len({*hashed.of("Pod")[0]["metadata"]["labels"].values()}) == 1


@pytest.mark.parametrize("prefix", ["gke-", "kube-", "gmp-", "system-", "gke-managed-"])
def test_a_prefix_of_the_system_keeps_no_name_of_a_team(prefix: str) -> None:
    name = f"{prefix}{PRIVATE}"
    queue = {"metadata": meta(name, "q", namespace="default"), "spec": {"clusterQueue": name}}
    pod = {"metadata": meta(PRIVATE, "p", namespace="default"), "spec": {"priorityClassName": name}}
    of_team = {"metadata": meta(f"{PRIVATE}-1", "o", None, name, team=PRIVATE), "spec": {}}
    namespace = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
    cluster_queue = {"metadata": {"name": name}, "spec": {}}
    hashed = changed(LocalQueue=[queue], ClusterQueue=[cluster_queue], Pod=[pod, of_team], Namespace=[namespace])
    assert PRIVATE not in hashed.to_json()
    assert "default" in [pod["metadata"]["namespace"] for pod in hashed.of("Pod")]


def test_uids_are_hashed_and_still_match() -> None:
    uids = {"controller-uid": uid("j"), "batch.kubernetes.io/controller-uid": uid("j")}
    pod = {"metadata": meta("run-x7k2p", "p", ("run", "j"), **uids), "spec": {}}
    status = {"uncountedTerminatedPods": {"succeeded": [uid("p")], "failed": [uid("p")]}, "succeeded": 1}
    metadata = meta("run", "j", None, **{"jobset.sigs.k8s.io/jobset-uid": uid("s")})
    job = {"metadata": metadata, "spec": {}, "status": status}
    hashed = changed(Job=[job], Pod=[pod])
    assert not [letter for letter in "jps" if uid(letter) in hashed.to_json()]
    (job,), (pod,) = hashed.of("Job"), hashed.of("Pod")
    of_job, of_pod = job["metadata"]["uid"], pod["metadata"]["uid"]
    assert {*pod["metadata"]["labels"].values(), pod["metadata"]["ownerReferences"][0]["uid"]} == {of_job}
    counted = {"succeeded": [of_pod], "failed": [of_pod]}
    assert job["status"] == {"uncountedTerminatedPods": counted, "succeeded": 1}


def test_names_in_and_of_provisioning_requests_are_hashed_and_kueue_finds_them_again() -> None:
    workload, check = f"job-{PRIVATE}-1a2b3", f"{PRIVATE}-check"
    request, template = f"{workload}-{check}-2", f"ppt-{workload}-{check}-2-main"
    details = {"NodeGroupName": f"https://x/{PRIVATE}/1", "ResizeRequestName": f"gke-{PRIVATE}-1", "SelectedZone": "z"}
    parameters = {"maxRunDurationSeconds": "3600", "team": PRIVATE}
    consumed = {"autoscaling.x-k8s.io/consume-provisioning-request": request}
    selector = "autoscaling.gke.io/provisioning-request"
    metadata = {**meta(f"{PRIVATE}-1", "p"), "annotations": consumed}
    pod = {"metadata": metadata, "spec": {"nodeSelector": {selector: f"gke-{PRIVATE}-1"}}}
    pod_sets = [{"podTemplateRef": {"name": template}, "count": 1}]
    update = {"key": selector, "valueFromProvisioningClassDetail": "ResizeRequestName"}
    spec = {"parameters": parameters, "podSetUpdates": {"nodeSelector": [update]}}
    asks = {"spec": {"parameters": parameters, "podSets": pod_sets}, "status": {"provisioningClassDetails": details}}
    hashed = changed(
        AdmissionCheck=[{"metadata": {"name": check}, "spec": {"parameters": {"kind": "K", "name": PRIVATE}}}],
        Workload=[{"metadata": meta(workload, "w"), "spec": {}}],
        PodTemplate=[{"metadata": meta(template, "t", (workload, "w"))}],
        ProvisioningRequestConfig=[{"metadata": {"name": PRIVATE}, "spec": spec}],
        ProvisioningRequest=[{"metadata": meta(request, "r", (workload, "w")), **asks}],
        Pod=[pod],
    )
    assert PRIVATE not in hashed.to_json()
    (asked,), (config,) = hashed.of("ProvisioningRequest"), hashed.of("ProvisioningRequestConfig")
    owner, admission = hashed.of("Workload")[0]["metadata"]["name"], hashed.of("AdmissionCheck")[0]
    assert asked["metadata"]["name"] == f"{owner}-{admission['metadata']['name']}-2"
    assert admission["spec"]["parameters"] == {"kind": "K", "name": config["metadata"]["name"]}
    assert asked["spec"]["podSets"][0]["podTemplateRef"]["name"] == hashed.of("PodTemplate")[0]["metadata"]["name"]
    assert config["spec"]["podSetUpdates"]["nodeSelector"] == [update]
    answered = asked["status"]["provisioningClassDetails"]
    assert (asked["spec"]["parameters"]["maxRunDurationSeconds"], answered["SelectedZone"]) == ("3600", "z")
    (waits,) = hashed.of("Pod")
    assert waits["spec"]["nodeSelector"][selector] == answered["ResizeRequestName"]
    assert {*waits["metadata"]["annotations"].values()} == {asked["metadata"]["name"]}


def test_labels_by_which_services_find_controllers_stay() -> None:
    """Without them, the webhooks of Kueue and JobSet do not answer in a rehearsal."""
    labels = {"control-plane": "controller-manager", "app.kubernetes.io/instance": "kueue"}
    placed = {"template": {"metadata": {"labels": labels}, "spec": {"nodeSelector": {"team": PRIVATE}}}}
    selector = {"selector": {"matchLabels": labels}}
    manager = {"metadata": meta("kueue-controller-manager", "d", None, "kueue-system"), "spec": {**selector, **placed}}
    pod = {"metadata": meta("kueue-controller-manager-1", "p", None, "kueue-system", **labels), "spec": {}}
    hashed = changed(Deployment=[manager], Pod=[pod])
    spec = hashed.of("Deployment")[0]["spec"]
    of_manager = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
    assert [hashed.of("Pod")[0]["metadata"]["labels"], *of_manager] == [labels] * 3
    assert PRIVATE not in hashed.to_json()


def test_names_of_classes_gates_metrics_and_schedulers_are_hashed() -> None:
    taint = {"key": "cloud.google.com/compute-class", "value": PRIVATE, "effect": "NoSchedule"}
    gates = [{"name": f"{PRIVATE}/gate"}, {"name": "kueue.x-k8s.io/admission"}]
    selector = {f"cloud.google.com/{key}": PRIVATE for key in ("compute-class", "reservation-name")}
    spec = {"schedulerName": PRIVATE, "schedulingGates": gates, "nodeSelector": selector, "tolerations": [taint]}
    metric = {"type": "Pods", "pods": {"metric": {"name": f"{PRIVATE}_depth"}}}
    failures = {"failurePolicy": {"rules": [{"name": PRIVATE, "action": "FailJobSet"}]}}
    hashed = changed(
        ComputeClass=[{"metadata": {"name": PRIVATE}}],
        Node=[{"metadata": {"name": "n", "labels": {}}, "spec": {"taints": [taint]}}],
        JobSet=[{"metadata": meta("s", "s"), "spec": failures}],
        Pod=[{"metadata": meta("p", "p"), "spec": spec}],
        HorizontalPodAutoscaler=[{"metadata": meta("h", "h"), "spec": {"metrics": [metric]}}],
    )
    assert PRIVATE not in hashed.to_json()
    selected = hashed.of("Pod")[0]["spec"]
    name = hashed.of("ComputeClass")[0]["metadata"]["name"]
    assert selected["nodeSelector"]["cloud.google.com/compute-class"] == name == selected["tolerations"][0]["value"]
    assert selected["schedulingGates"][1]["name"] == "kueue.x-k8s.io/admission"


def test_claims_and_classes_are_hashed_and_the_scheduler_finds_them_again() -> None:
    selects = f'device.attributes["dra.net"].team == "{PRIVATE}"'
    rdma = 'device.attributes["dra.net"].rdma'
    exactly = {"deviceClassName": PRIVATE, "selectors": [{"cel": {"expression": selects}}]}
    spec = {"devices": {"requests": [{"name": "nics", "exactly": exactly}]}}
    claimed = {"name": "nics", "resourceClaimTemplateName": PRIVATE}
    status = {"resourceClaimStatuses": [{"name": "nics", "resourceClaimName": f"{PRIVATE}-1-nics-x7k2p"}]}
    reserved = {"reservedFor": [{"resource": "pods", "name": f"{PRIVATE}-1", "uid": uid("p")}]}
    classes = {PRIVATE: selects, "mrdma.google.com": rdma}
    selectors = {name: {"selectors": [{"cel": {"expression": text}}]} for name, text in classes.items()}
    hashed = changed(
        DeviceClass=[{"metadata": {"name": name}, "spec": selectors[name]} for name in classes],
        ResourceClaimTemplate=[{"metadata": meta(PRIVATE, "t"), "spec": {"spec": spec}}],
        Pod=[{"metadata": meta(f"{PRIVATE}-1", "p"), "spec": {"resourceClaims": [claimed]}, "status": status}],
        ResourceClaim=[{"metadata": meta(f"{PRIVATE}-1-nics-x7k2p", "c"), "spec": spec, "status": reserved}],
    )
    assert PRIVATE not in hashed.to_json()
    (pod,), (claim,) = hashed.of("Pod"), hashed.of("ResourceClaim")
    assert pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == claim["metadata"]["name"]
    (reserved_for,) = claim["status"]["reservedFor"]
    assert (reserved_for["name"], reserved_for["uid"]) == (pod["metadata"]["name"], pod["metadata"]["uid"])
    template = hashed.of("ResourceClaimTemplate")[0]["metadata"]["name"]
    assert pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == template
    by_name = {item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"] for item in hashed.of("DeviceClass")}
    request = claim["spec"]["devices"]["requests"][0]["exactly"]
    assert by_name == {"mrdma.google.com": {"expression": rdma}, request["deviceClassName"]: {"expression": "false"}}


def test_the_same_key_gives_the_same_hashes_also_in_the_configuration_of_kueue(hashed: Snapshot) -> None:
    assert hash_names(taken(), {OWN, "shared"}, KEY) == hashed
    other = hash_names(taken(), {OWN, "shared"}, b"x" * 32)
    assert other.of("Job")[0]["metadata"]["name"] != hashed.of("Job")[0]["metadata"]["name"]
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [PRIVATE, "kube-system"]}
    kueue = {"managedJobsNamespaceSelector": {"matchExpressions": [expression]}}
    hashed = hash_names(taken().model_copy(update={"kueue": kueue}), {OWN}, KEY)
    assert hashed.kueue is not None
    (stated,) = hashed.kueue["managedJobsNamespaceSelector"]["matchExpressions"]
    assert stated["values"] == [hashed.of("Namespace")[0]["metadata"]["name"], "kube-system"]


def test_a_stack_uses_the_texts_of_its_objects_but_not_those_of_secrets_and_those_of_its_outputs() -> None:
    resources = [
        {"type": "kubernetes:core/v1:Namespace", "inputs": {"metadata": {"name": "serving", "labels": {"a": "b"}}}},
        {"type": "kubernetes:core/v1:Secret", "inputs": {"metadata": {"name": "hidden"}}},
        {"type": "gcp:storage/bucket:Bucket", "inputs": {"name": "bucket"}},
    ]
    assert set(stack_names(resources)) == {"serving", "b"}
    queue = {"localQueue": "team", "namespace": "llm", "clusterQueue": "research", "quota": []}
    outputs = {"queues": [queue], "priorityClasses": [{"name": "high", "value": 10}], "kubeconfig": "secret"}
    assert set(used_names(outputs)) == {"team", "llm", "research", "high"}
    assert set(used_names({})) == set()


def test_the_command_prints_hashed_names_and_refuses_a_short_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    monkeypatch.setattr(Stack, "cluster", lambda _: object())
    monkeypatch.setattr(Stack, "resources", [])
    monkeypatch.setattr(command, "take", lambda *_: taken())
    file.write_text("secret")
    with pytest.raises(Stop, match="has 6 bytes"):
        command.show(Stack("prod"), True, file)
    file.write_bytes(KEY)
    command.show(Stack("prod"), True, file)
    printed = capsys.readouterr().out
    assert json.loads(printed)["hashed"]
    assert PRIVATE not in printed


def test_the_workload_of_a_stateful_set_keeps_the_form_by_which_kueue_finds_it() -> None:
    """Kueue hashes kind, group, name and uid of the owner: pkg/controller/jobframework/workload_names.go."""
    name = f"statefulset-{PRIVATE}-web-a1b2c"
    labels = {f"kueue.x-k8s.io/{key}": name for key in ("pod-group-name", "prebuilt-workload-name")}
    labels["controller-revision-hash"] = f"{PRIVATE}-web-5d8f"
    web = f"{PRIVATE}-web"
    result = changed(
        (),
        StatefulSet=[{"metadata": meta(web, "s"), "spec": {"replicas": 1}}],
        Pod=[{"metadata": meta(f"{web}-0", "p", (web, "s"), **labels), "spec": {}}],
        Workload=[{"metadata": meta(name, "w", (web, "s")), "spec": {"podSets": []}}],
    )
    assert PRIVATE not in result.to_json()
    (owner,), (pod,), (workload,) = (
        [item["metadata"] for item in result.of(kind)] for kind in ("StatefulSet", "Pod", "Workload")
    )
    assert pod["name"] == f"{owner['name']}-0"
    digest = hashlib.sha1(f"StatefulSet\napps\n{owner['name']}\n{owner['uid']}".encode()).hexdigest()
    assert workload["name"] == f"statefulset-{owner['name']}-{digest[:5]}"
    assert pod["labels"]["kueue.x-k8s.io/pod-group-name"] == workload["name"]
