"""`verify` on recorded answers of a cluster: one that fits the stack, and each kind of difference."""

import copy
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, NodeShape
from gke_ai.catalog.quantities import format_quantities
from gke_ai.catalog.versions import JOBSET_CHART, KUEUE_CHART
from gke_ai.kube.client import Answer
from gke_ai.ops.verify import command as verify
from gke_ai.ops.verify.checks import FAIL, PASS, UNCHECKED, UNSEEN, Check
from gke_ai.ops.verify.claims import Verification
from gke_ai.ops.verify.durations import measure
from gke_ai.ops.verify.live import REVIEWS, bucket_command, probes, recorded, take
from gke_ai.registered.pools import node_shape
from gke_ai.settings import calibration
from gke_ai.settings.calibration import Calibration, Duration, NodeFigures
from tests.support.recorded import FOLDER

RECORDED = FOLDER / "0.2.0"
TODAY = datetime.date(2026, 11, 21)
VERSION = "v1.34.1-gke.1829001"
BUCKET = "ai-prod-models-my-project"
TEAM = "team-a"
ROLE = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create"]},
]
SUBJECTS = [{"kind": "ServiceAccount", "name": "deployer", "namespace": TEAM}]

Object = dict[str, Any]


@dataclass
class Cluster:
    """A recorded stack, and the answers of its cluster by request: a body, or a code other than 200."""

    resources: list[Object]
    answers: dict[str, Any]
    refused_rights: frozenset[str] = frozenset()

    def ask(self, request: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Returns the recorded answer. A request without one fails the test."""
        if request == f"POST {REVIEWS}":
            assert body
            resource = body["spec"]["resourceAttributes"]["resource"]
            return Answer(201, {"status": {"allowed": resource not in self.refused_rights}})
        assert request in self.answers, f"there is no recorded answer to: {request}"
        answer = self.answers[request]
        if isinstance(answer, Answer):
            return answer
        return Answer(0 if request.startswith("gcloud") else 200, copy.deepcopy(answer))

    def objects(self, path: str) -> list[Object]:
        items: list[Object] = self.answers[f"GET {path}"]["items"]
        return items

    @property
    def node(self) -> Object:
        return self.objects("/api/v1/nodes")[-1]

    @property
    def server(self) -> Object:
        return self.objects("/api/v1/pods")[0]

    def checks(self, measured: Calibration | None = None) -> list[Check]:
        stack = recorded(self.resources)
        return Verification(stack, take(stack, self.ask), measured or Calibration()).checks()

    def measured(self) -> Calibration:
        stack = recorded(self.resources)
        return measure(stack, take(stack, self.ask), self.resources, TODAY)


def resources_of(name: str) -> list[Object]:
    resources: list[Object] = json.loads((RECORDED / f"{name}.json").read_text())["resources"]
    return resources


def node(name: str, shape: NodeShape, labels: Mapping[str, str], taints: list[Object]) -> Object:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:01:35Z"}
    sizes = format_quantities(Calibration().allocatable(shape))
    metadata = {"name": name, "labels": dict(labels), "creationTimestamp": "2026-11-21T10:00:00Z"}
    status = {"allocatable": sizes, "capacity": sizes, "conditions": [ready], "nodeInfo": {"kubeletVersion": VERSION}}
    return {"metadata": metadata, "spec": {"taints": taints}, "status": status}


def pool_shape(resources: list[Object], name: str) -> NodeShape:
    pools = recorded(resources).of_type("gcp:container/nodePool:NodePool")
    (shape,) = (node_shape(pool) for pool in pools if pool.object_name == name)
    assert shape
    return shape


def empty(*paths: str) -> dict[str, Any]:
    return {f"GET {path}": {"items": []} for path in paths}


COMMON = (
    *("/api/v1/nodes", "/api/v1/pods", "/api/v1/events"),
    *("/apis/kueue.x-k8s.io/v1beta2/clusterqueues", "/apis/kueue.x-k8s.io/v1beta2/workloads"),
)


CLUSTERS = (FOLDER.parent / "recorded_answers" / "clusters.yaml").read_text()


def answering(name: str, resources: list[Object], shape: NodeShape | None = None, image: str = "image") -> Cluster:
    """A cluster of the file. By default, its nodes are those of recorded pools."""
    cluster = yaml.load(CLUSTERS.replace("$IMAGE", image), yaml.CSafeLoader)[name]
    nodes = [
        node(node_name, shape or pool_shape(resources, about["labels"][GKE_NODEPOOL]), **about)
        for node_name, about in cluster["nodes"].items()
    ]
    answers = {"GET /version": {"gitVersion": VERSION}, "GET /api/v1/nodes": {"items": nodes}, **cluster["answers"]}
    return Cluster(resources, empty(*COMMON) | answers)


def prod() -> Cluster:
    """A Standard cluster with a pool of L4 GPUs, Kueue, a server and a tenant's RoleBinding."""
    resources = resources_of("prod")
    for resource in resources:
        if resource["type"].endswith(":ClusterQueue"):
            (group,) = resource["inputs"]["spec"]["resourceGroups"]
            quota = {"cpu": "92", "memory": "340Gi", "nvidia.com/gpu": "8", "ephemeral-storage": "400Gi"}
            group["flavors"][0]["resources"] = [{"name": key, "nominalQuota": text} for key, text in quota.items()]
            queue = {"metadata": resource["inputs"]["metadata"], "spec": copy.deepcopy(resource["inputs"]["spec"])}
        if resource["type"] == "gcp:container/cluster:Cluster":
            resource["created"] = "2026-11-21T09:50:00.123456789Z"
            (parent,) = (other for other in resources if other["urn"] == resource["parent"])
            parent["created"] = "2026-11-21T09:44:00.000000001Z"
        if resource["type"] == "kubernetes:apps/v1:Deployment":
            image = resource["inputs"]["spec"]["template"]["spec"]["containers"][0]["image"]
        if resource["type"].endswith("bucketIAMMember:BucketIAMMember"):
            grant = {"role": resource["inputs"]["role"], "members": [resource["inputs"]["member"]]}
    rbac = {"metadata": {"name": "submit", "namespace": TEAM}}
    binding = {"roleRef": {"kind": "Role", "name": "submit"}, "subjects": SUBJECTS}
    for kind, more in (("Role", {"rules": ROLE}), ("RoleBinding", binding)):
        token = f"kubernetes:rbac.authorization.k8s.io/v1:{kind}"
        inputs = {"kind": kind, **rbac, **more}
        resources.append({"urn": f"urn:pulumi:prod::gke-ai::{token}::{kind}", "type": token, "inputs": inputs})
    cluster = answering("prod", resources, image=image)
    cluster.answers |= {
        "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues": {"items": [queue]},
        bucket_command(BUCKET): {"bindings": [grant]},
    }
    return cluster


def flex_start() -> Cluster:
    """A Standard cluster with two flex-start TPU pools, of which one has a node."""
    return answering("flex_start", resources_of("flex-start-tpu"))


def compute_class() -> Cluster:
    """A cluster with a compute class that created a Spot node."""
    shape = NodeShape("", "g2-standard-24", "nvidia-l4", 2, "default", "spot", "", 100, {}, True)
    return answering("compute_class", resources_of("cost-optimized-serving"), shape)


def shown(checks: list[Check], *states: str) -> list[tuple[str, str, str, str, str]]:
    """The checks in some states, to be read in a failure."""
    return [
        (check.state, check.claim, check.subject, check.relied_on, check.found)
        for check in checks
        if not states or check.state in states
    ]


def test_clusters_as_the_stacks_rely_on_have_no_fail_and_every_kind_of_claim_is_compared() -> None:
    checks = [check for cluster in (prod(), flex_start(), compute_class()) for check in cluster.checks()]
    assert shown(checks, FAIL) == []
    kinds = {check.claim for check in checks if check.state == PASS}
    resources = ("cpu", "memory", "ephemeral-storage")
    sizes = {f"{claim} {of}" for claim in ("allocatable", "DaemonSets") for of in resources}
    assert kinds == sizes | {
        *("GKE version", "webhook", "grant", "secret", "choice", "label", "driver", "taint", "accelerators", "quota"),
        *("image", "model load"),
    }


# ---------------------------------------------------------------------------------------------------------- differences
Change = Callable[[Cluster], object]


def labeled(key: str, text: str) -> Change:
    return lambda cluster: cluster.node["metadata"]["labels"].update({key: text})


def allocatable(resource: str, text: str) -> Change:
    return lambda cluster: cluster.node["status"]["allocatable"].update({resource: text})


def status_of_server(**changes: Any) -> Change:
    return lambda cluster: cluster.server["status"]["containerStatuses"][0].update(changes)


def answered(request: str, answer: Any) -> Change:
    return lambda cluster: cluster.answers.update({request: answer})


def kubelet(version: str) -> Change:
    return lambda cluster: cluster.node["status"]["nodeInfo"].update(kubeletVersion=version)


def taints(*taints: Object) -> Change:
    return lambda cluster: cluster.node["spec"].update(taints=[*taints])


def no_endpoint(cluster: Cluster) -> None:
    cluster.objects("/apis/discovery.k8s.io/v1/endpointslices")[0]["endpoints"][0]["conditions"]["ready"] = False


def no_registration(cluster: Cluster) -> None:
    for path in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        cluster.objects(f"/apis/admissionregistration.k8s.io/v1/{path}").clear()


def lost_right(cluster: Cluster) -> None:
    cluster.refused_rights = frozenset({"jobs"})


def quota(resource: str, text: str) -> Change:
    return lambda cluster: set_quota(cluster.objects("/apis/kueue.x-k8s.io/v1beta2/clusterqueues")[0], resource, text)


def set_quota(queue: Object, resource: str, text: str) -> None:
    for entry in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        if entry["name"] == resource:
            entry["nominalQuota"] = text


def recorded_quota_too_large(cluster: Cluster) -> None:
    quota("nvidia.com/gpu", "13")(cluster)
    for resource in cluster.resources:
        if resource["type"].endswith(":ClusterQueue"):
            set_quota(resource["inputs"], "nvidia.com/gpu", "13")


def daemon_requests(cluster: Cluster) -> None:
    cluster.objects("/api/v1/pods")[1]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "5"}}


def slow_load(cluster: Cluster) -> None:
    cluster.server["status"]["conditions"][1]["lastTransitionTime"] = "2026-11-21T12:03:30Z"


def lost_condition(cluster: Cluster) -> None:
    """The role was on a folder, and now is on the whole bucket."""
    for resource in cluster.resources:
        if resource["type"].endswith("bucketIAMMember:BucketIAMMember"):
            resource["inputs"]["condition"] = {"title": "folder", "expression": "resource.name.startsWith('x/')"}


KUEUE_JOB = "POST /apis/batch/v1/namespaces/llm/jobs?dryRun=All"
NO_WEBHOOK = Answer(500, {}, 'failed calling webhook "mjob.kb.io": connection refused')
SECRET = "GET /api/v1/namespaces/llm/secrets/hf-secret"
T4 = labeled(GKE_ACCELERATOR, "nvidia-tesla-t4")
DRIVER = labeled("cloud.google.com/gke-gpu-driver-version", "default")
NO_SPOT, NO_MACHINE = labeled("cloud.google.com/gke-spot", "false"), labeled("node.kubernetes.io/instance-type", "g9-x")
NO_ROLE, RENAMED = answered(bucket_command(BUCKET), {"bindings": []}), answered(SECRET, {"data": {"token": "eA=="}})
NO_PULL = status_of_server(state={"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}, imageID="")
RESTARTS, CHOICES = status_of_server(restartCount=3, ready=False), "g2-standard-24 spot, g2-standard-24 flexStart"
TAINT = "nvidia.com/gpu=present:NoSchedule"
OLDER = answered("GET /version", {"gitVersion": "v1.32.9-gke.1"})
OLDER_NODE, NO_TAINT = kubelet("v1.32.9-gke.1"), taints()
OWN_TAINT = taints(*({"key": key, "value": "x", "effect": "NoSchedule"} for key in ("nvidia.com/gpu", "own")))


@pytest.mark.parametrize(
    ("name", "cluster_of", "plant", "claim", "relied_on", "found"),
    [
        ("control plane too old", flex_start, OLDER, "GKE version", "1.33.0-gke.1712000", "v1.32.9-gke.1"),
        ("node too old", flex_start, OLDER_NODE, "GKE version", "1.33.0-gke.1712000", "v1.32.9-gke.1"),
        ("webhook without endpoint", prod, no_endpoint, "webhook", "answers", "kueue-webhook-service"),
        ("webhook not registered", prod, no_registration, "webhook", "answers", "no webhook is registered"),
        ("webhook refuses", prod, answered(KUEUE_JOB, NO_WEBHOOK), "webhook", "answers", "connection refused"),
        ("Kueue is passed by", prod, answered(KUEUE_JOB, {"spec": {}}), "webhook", "answers", "not suspended"),
        ("right is lost", prod, lost_right, "grant", "2 rights", "may not create jobs"),
        ("role on the bucket is lost", prod, NO_ROLE, "grant", "roles/storage.objectUser for principal://", "no role"),
        ("role without its condition", prod, lost_condition, "grant", "on a condition", "roles/storage.objectUser"),
        ("Secret is gone", prod, answered(SECRET, Answer(404)), "secret", "hf_api_token", "no such Secret"),
        ("key has another name", prod, RENAMED, "secret", "hf_api_token", "keys token"),
        ("other accelerator", prod, T4, "label", "nvidia-l4", "nvidia-tesla-t4"),
        ("other topology", flex_start, labeled("cloud.google.com/gke-tpu-topology", "2x4"), "label", "2x2", "2x4"),
        ("accelerator of a class", compute_class, T4, "label", "nvidia-l4", "nvidia-tesla-t4"),
        ("capacity that no priority has", compute_class, NO_SPOT, "choice", CHOICES, "g2-standard-24 onDemand"),
        ("unknown machine", compute_class, NO_MACHINE, "machine", "a machine of the catalog", "g9-x"),
        ("other driver", prod, DRIVER, "driver", "latest", "default"),
        ("taint that no pod tolerates", prod, OWN_TAINT, "taint", TAINT, "own=x:NoSchedule"),
        ("no taint", prod, NO_TAINT, "taint", TAINT, "none"),
        ("no device plugin", prod, allocatable("nvidia.com/gpu", "0"), "accelerators", "2 a node", "0"),
        ("chip is missing", flex_start, allocatable("google.com/tpu", "3"), "accelerators", "4 a node", "3"),
        ("less CPU", prod, allocatable("cpu", "20"), "allocatable cpu", "23.", "20"),
        ("less memory", prod, allocatable("memory", "70Gi"), "allocatable memory", "Gi", "70Gi"),
        ("disk", prod, allocatable("ephemeral-storage", "80Gi"), "allocatable ephemeral-storage", "Gi", "80Gi"),
        ("DaemonSets take more", prod, daemon_requests, "DaemonSets cpu", "at most", "5"),
        ("quota is smaller", prod, quota("nvidia.com/gpu", "4"), "quota", "8", "4"),
        ("quota past the nodes", prod, recorded_quota_too_large, "quota", "at least 13", "12"),
        ("no pull", prod, NO_PULL, "image", "text-generation-inference", "ErrImagePull: manifest unknown"),
        ("model loads too slowly", prod, slow_load, "model load", "ready within 3600 s", "7200 s"),
        ("server restarts", prod, RESTARTS, "model load", "ready within 3600 s", "not ready after 3 restarts"),
    ],
)
def test_difference_is_one_fail_that_names_both_values(
    name: str, cluster_of: Callable[[], Cluster], plant: Change, claim: str, relied_on: str, found: str
) -> None:
    cluster = cluster_of()
    plant(cluster)
    ((_, failed, _, relied_on_there, found_there),) = shown(cluster.checks(), FAIL)
    assert (failed, relied_on in relied_on_there, found in found_there) == (claim, True, True), name


def test_pinned_image_runs_under_its_digest() -> None:
    cluster, kind = prod(), "kubernetes:apps/v1:Deployment"
    (deployment,) = (resource["inputs"] for resource in cluster.resources if resource["type"] == kind)
    pinned = f"ghcr.io/huggingface/text-generation-inference@sha256:{'b' * 64}"
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = pinned
    cluster.server["spec"]["containers"][0]["image"] = pinned
    ((*_, relied_on, found),) = shown(cluster.checks(), FAIL)
    assert relied_on == pinned
    assert found.endswith("a" * 64)


def test_pool_without_a_ready_node_is_not_seen_yet() -> None:
    cluster = flex_start()
    (unseen,) = [check for check in cluster.checks() if check.state == UNSEEN and check.claim == "nodes"]
    assert (unseen.subject, "a pod for it" in unseen.step) == ("pool multi-host", True)
    cluster.node["status"]["conditions"][0]["status"] = "False"
    allocatable("google.com/tpu", "0")(cluster)
    checks = cluster.checks()
    assert shown(checks, FAIL) == []
    assert {check.subject for check in checks if check.claim == "nodes"} == {"pool single-host", "pool multi-host"}


def test_server_that_loads_its_model_is_not_seen_yet_and_the_webhook_of_jobset_gets_a_jobset() -> None:
    cluster = prod()
    cluster.server["status"]["conditions"][1]["status"] = "False"
    status_of_server(ready=False)(cluster)
    assert ("model load", UNSEEN) in {(check.claim, check.state) for check in cluster.checks()}
    assert shown(cluster.checks(), FAIL) == []
    assert set(probes(recorded(resources_of("multislice-training")))) == {KUEUE_CHART, JOBSET_CHART}


@pytest.mark.parametrize(
    ("request_", "answer", "claim"),
    [
        *((bucket_command(BUCKET), answer, "grant") for answer in (Answer(1, "", "403"), Answer(127))),
        (SECRET, Answer(403, {}, "secrets is forbidden"), "secret"),
        (KUEUE_JOB, Answer(403, {}, "jobs is forbidden"), "webhook"),
    ],
)
def test_unreadable_policy_is_not_checked_and_names_the_command(request_: str, answer: Answer, claim: str) -> None:
    cluster = prod()
    cluster.answers[request_] = answer
    (unchecked,) = [check for check in cluster.checks() if check.state == UNCHECKED]
    assert (unchecked.claim, bool(unchecked.step)) == (claim, True)
    assert shown(cluster.checks(), FAIL) == []


# ------------------------------------------------------------------------------------------------------------ measuring
def test_durations_are_measured() -> None:
    durations = {f"{duration.step} {duration.of}": duration.seconds for duration in prod().measured().durations}
    nodes = {"clusterReady ai-prod": 361, "nodeReady e2-standard-4": 95, "nodeReady g2-standard-24": 95}
    pods = {"admission llm/team": 4, "imagePull ghcr.io/huggingface/text-generation-inference:3.3.5": 73}
    assert durations == {**nodes, **pods, "containerStart llm/gemma": 90, "modelLoad llm/gemma": 210}


def test_minimum_allocatable_and_maximum_daemon_requests_of_a_node_type_are_measured() -> None:
    cluster = prod()
    second = copy.deepcopy(cluster.node)
    second["metadata"]["name"] = "l4-2"
    second["status"]["allocatable"]["cpu"] = "23"
    cluster.objects("/api/v1/nodes").append(second)
    daemon_requests(cluster)
    (figures,) = [node for node in cluster.measured().nodes if node.machine_type == "g2-standard-24"]
    assert (figures.allocatable["cpu"], figures.daemon_sets, figures.nodes) == ("23", {"cpu": "5"}, 2)
    assert (figures.disk_size_gb, figures.gke_version) == (200, VERSION)
    # Requests that a quantity rounds are no less than they are.
    cluster = prod()
    requests = {"cpu": "100100u", "memory": "36M"}  # neither whole thousandths of a core nor whole KiB
    cluster.objects("/api/v1/pods")[1]["spec"]["containers"][0]["resources"] = {"requests": requests}
    measured = cluster.measured()
    (figures,) = [node for node in measured.nodes if node.machine_type == "g2-standard-24"]
    assert figures.daemon_sets == {"cpu": "101m", "memory": "35157Ki"}
    assert shown(cluster.checks(measured), FAIL) == []


def test_next_comparison_relies_on_the_measured_figures() -> None:
    cluster = prod()
    allocatable("cpu", "22")(cluster)
    daemon_requests(cluster)
    measured = cluster.measured()
    assert {check.claim for check in cluster.checks() if check.state == FAIL} == {"allocatable cpu", "DaemonSets cpu"}
    assert shown(cluster.checks(measured), FAIL) == []
    allocatable("cpu", "21")(cluster)
    ((_, claim, _, relied_on, found),) = shown(cluster.checks(measured), FAIL)
    assert (claim, relied_on, found) == ("allocatable cpu", "at least 22", "21")


def test_command_prints_fails_ends_with_1_and_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, cluster = tmp_path / "calibration" / "prod.yaml", prod()
    assert verify.compare("prod", cluster.resources, cluster.ask, None, file, TODAY) == 0
    assert " 0 fail, 1 not seen yet, 0 not checked." in capsys.readouterr().out
    first = file.read_text()
    later = TODAY + datetime.timedelta(days=1)
    assert verify.compare("prod", cluster.resources, cluster.ask, file, file, later) == 0
    assert file.read_text() == first, "the same figures on another day leave the file as it is"
    capsys.readouterr()
    T4(cluster)
    assert verify.compare("prod", cluster.resources, cluster.ask, None, file, TODAY) == 1
    printed = capsys.readouterr().out
    assert ("1 fail" in printed, "nvidia-tesla-t4" in printed) == (True, True)
    for text in (printed, first):
        assert "c2VjcmV0LXZhbHVl" not in text, "the value of a Secret"


def test_later_run_keeps_earlier_figures() -> None:
    when: Any = {"measured_on": TODAY, "gke_version": "v1"}

    def figures(machine_type: str, cpu: str) -> NodeFigures:
        return NodeFigures(machine_type=machine_type, allocatable={"cpu": cpu}, nodes=1, **when)

    def duration(step: Any, seconds: int) -> Duration:
        return Duration(step=step, of="x", seconds=seconds, max_seconds=seconds, count=1, **when)

    nodes = [figures("e2-standard-8", "7"), figures("e2-standard-4", "3")]
    later = Calibration(nodes=[figures("e2-standard-4", "2")], durations=[duration("imagePull", 2)])
    merged = Calibration(nodes=nodes, durations=[duration("nodeReady", 1)]).merged(later)
    measured = {node.machine_type: node.allocatable["cpu"] for node in merged.nodes}
    assert [*measured.items()] == [("e2-standard-4", "2"), ("e2-standard-8", "7")]
    assert [duration.step for duration in merged.durations] == ["imagePull", "nodeReady"]
    assert merged.duration("imagePull", "x") == later.durations[0]
    assert calibration.Calibration().duration("imagePull", "x") is None
