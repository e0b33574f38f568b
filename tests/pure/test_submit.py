"""`gke-ai submit` without a cluster: options, manifests, and a connection that breaks on the way."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gke_ai.catalog.fabric.topology import REQUIRED
from gke_ai.catalog.nodes.quota import MIN_PARALLELISM, QUEUE_LABEL
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.catalog.versions import JOBSET_API, VISIBILITY_API
from gke_ai.cli.verbs import gke_ai
from gke_ai.kube.client import Answer, client_of
from gke_ai.kube.objects import label
from gke_ai.manifests.job import DURING_SCHEDULING
from gke_ai.ops.runs import command as ops_runs
from gke_ai.ops.runs.command import Run
from gke_ai.ops.submit import checks, follow, member
from gke_ai.ops.submit.fit import Fit
from gke_ai.ops.submit.follow import Observation
from gke_ai.ops.submit.image import ImageCheck
from gke_ai.ops.submit.manifest import Manifest, notes_of, problems_of, read_manifest
from gke_ai.ops.submit.member import SUBMITTED, Member, marked
from gke_ai.ops.submit.options import Options
from gke_ai.ops.submit.refused import REFUSED
from gke_ai.ops.submit.request import Request
from gke_ai.settings.published import place
from gke_ai.terminal import Stop
from tests.support import submitted
from tests.support.local_server import answering
from tests.support.repository import ROOT
from tests.support.submitted import PUBLISHED, Object, job, kubeconfig


def test_options_are_keys_of_a_training_job_with_the_defaults_of_the_namespace() -> None:
    options = Options("first", "i:1", ("python", "train.py"), gpus_per_pod=2, max_restarts=0, cpu="4", env=("A=b=c",))
    options = replace(options, mounts=("gs://data;/data;ro",), checkpoints="gs://saved/a/b", topology="required=block")
    named = {"kind": "job", "name": "first", "namespace": "team-a", "image": "i:1", "command": ["python", "train.py"]}
    sized = {"gpusPerPod": 2, "maxRestarts": 0, "topology": {"required": "block"}, "resources": {"cpu": "4"}}
    volumes = [{"bucket": "data", "mountPath": "/data", "readOnly": True}]
    stored = {"env": {"A": "b=c"}, "volumes": volumes, "checkpoints": {"bucket": "saved", "path": "a/b"}}
    defaults = {"serviceAccount": "workload", "queue": "lq", "pool": "gpus"}
    expected: Object = {**named, **sized, **stored, **defaults}
    assert Request(options=options).run(PUBLISHED, "team-a") == ("training", expected)
    _, stated = Request(options=Options("x", "i", accelerator="nvidia-l4", queue="q")).run(PUBLISHED, "a")
    assert ("pool" in stated, stated["queue"]) == (False, "q")
    assert "queue" not in Request(options=Options("x", "i")).run(None, "team-a")[1]


SLICES_2, V5E = {"kind": "multislice", "slices": 2}, {"version": "v5e", "topology": "4x4"}


@pytest.mark.parametrize(
    ("options", "section", "keys"),
    [
        (Options("x", "i", tpu="v6e", topology="2x4"), "batch", {"tpu": {"version": "v6e", "topology": "2x4"}}),
        (Options("x", "i", pool="slice"), "batch", {"pool": "slice"}),
        (Options("x", "i", tpu="v5e", topology="4x4", slices=2), "training", {**SLICES_2, "tpu": V5E}),
        (Options("x", "i", pool="slice", slices=1), "training", {**SLICES_2, "slices": 1, "pools": ["slice"]}),
    ],
)
def test_options_of_slices_make_a_run_on_tpus(options: Options, section: str, keys: Object) -> None:
    found, item = Request(options=options).run(PUBLISHED, "team-a")
    shared = {"name": "x", "image": "i", "namespace": "team-a", "queue": "lq", "serviceAccount": "workload"}
    assert (found, item) == (section, {**shared, **keys})


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (Options("x", "i", tpu="v6e", topology="9x9"), "--topology"),
        (Options("x", "i", tpu="v9", topology="2x2"), "--tpu"),
        (Options("x", "i", topology="2x2"), "--tpu"),
        (Options("x", "i", tpu="v6e", topology="2x4", gpus_per_pod=1), "--gpus"),
        (Options("x", "i", tpu="v6e", topology="2x4", checkpoints="b"), "--checkpoints"),
        (Options("x", "i", slices=0, tpu="v6e", topology="4x4"), "--num-slices"),
        (Options("x", "i", slices=1, tpu="v6e", topology="2x4", pods=2), "--pods"),
    ],
)
def test_a_wrong_option_of_a_run_on_tpus_is_named(options: Options, option: str) -> None:
    request = Request(options=options)
    _, problems = place(None, *request.run(None, "team-a"))
    texts = [checks._in_words(problem, request) for problem in problems]
    assert any(text.startswith(f"{option}: ") for text in texts), texts


# https://github.com/GoogleCloudPlatform/cluster-toolkit: the flags of `gcluster job submit` in cmd/job/submit.go at
# 00774fd48be8acb25f51bb0cfcec1c864c30a143, those of `gcluster job` in cmd/job/job.go, and those of later releases.
OF_GCLUSTER = re.findall(
    r"--[a-z-]+",
    """
--project --cluster --cluster-location --location --image --base-image --build-context --command --compute-type
--dry-run-out --platform --mount --name --queue --num-nodes --num-slices --restarts --gke-ttl-after-finished
--grace-period --gke-disable-parallel-containers --placement-policy --node-constraint --cpu-affinity
--restart-on-exit-codes --image-pull-secret --service-account --topology --gke-scheduler --await-job-completion
--timeout --priority --verbose --gke-nap-provisioning --gke-nap-reservation --gke-mtc-enabled --env --pathways
--pathways-proxy-server-image --pathways-server-image --pathways-worker-image --pathways-headless
--pathways-gcs-location --pathways-elastic-slices --pathways-max-slice-restarts --pathways-proxy-args
--pathways-server-args --pathways-worker-args --pathways-colocated-python-sidecar-image --pathways-head-np
""",
)


def test_each_option_of_gcluster_exists_or_is_refused() -> None:
    existing = {name for option in gke_ai.commands["submit"].params for name in option.opts} - REFUSED.keys()
    assert sorted(existing & {*OF_GCLUSTER}) == [
        *("--env", "--grace-period", "--image", "--mount", "--num-slices", "--priority", "--queue", "--restarts"),
        *("--service-account", "--topology"),
    ]
    assert {*OF_GCLUSTER} - existing == REFUSED.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("x", "i", env=("A",)), "--env A has no value"),
        (Options("x", "i", mounts=("data",)), "is not 'BUCKET;PATH'"),
        (Options("x", "i", mounts=("data;/d;rx",)), "is not 'BUCKET;PATH'"),
        (Options("x", "i", topology="block"), "is not required=LEVEL or preferred=LEVEL"),
    ],
)
def test_a_text_that_no_key_takes_is_refused(options: Options, message: str) -> None:
    with pytest.raises(Stop, match=message):
        options.run(None)


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_of_gcluster_without_a_key_is_refused_by_name_with_its_reason(name: str) -> None:
    for value in ([], ["x"]):
        result = CliRunner().invoke(gke_ai, ["submit", "first", "--image", "i:1", name, *value])
        assert (result.exit_code, f"{name} is an option of gcluster job submit" in result.output) == (2, True)
        assert REFUSED[name] in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "State the run once"),
        (["first", "--file", "x"], "State the run once"),
        (["first"], "--image is missing"),
        (["--file", "x", "--gpus", "2"], "the file says what the run is"),
    ],
)
def test_a_run_is_stated_once(arguments: list[str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig("http://127.0.0.1:1"))
    result = CliRunner().invoke(gke_ai, ["submit", "--kubeconfig", str(file), *arguments])
    assert (result.exit_code, message in result.output) == (2, True), result.output


GOOD = {"cpu": "2", "nvidia.com/gpu": "1"}
A100 = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}
LIMITED, BLOCK = job({"cpu": "2"}), job(GOOD)
LIMITED["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = GOOD
for in_block in (LIMITED, BLOCK):
    in_block["spec"]["template"]["metadata"] = {"annotations": {REQUIRED: "cloud.google.com/gce-topology-block"}}
SETS = {"apiVersion": JOBSET_API, "kind": "JobSet", "metadata": {"name": "m"}}
SLICES = {"replicatedJobs": [{"name": "slice", "replicas": [2]}]}


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (job({**GOOD, "memory": "1Gi"}), "queue lq has no quota for memory"),
        (job(GOOD, pods=3), "the 3 pods of a set request 3 of nvidia.com/gpu, and queue lq has 2 in flavor l4"),
        (job({"cpu": "8", "nvidia.com/gpu": "3"}), "a pod requests 3 of nvidia.com/gpu, and a node of pool gpus"),
        (job({"cpu": "30", "nvidia.com/gpu": "1"}), "a node of pool gpus (g2-standard-24) has 23"),
        (job(GOOD, queue="", nodeSelector=A100), "the pods select nodes that no flavor of any queue has"),
        (job(GOOD, schedulerName="volcano"), "the stack has no scheduler volcano, so the pods would stay pending"),
        (job(GOOD, nodeSelector=A100), "topology, that no flavor of queue lq has: cloud.google.com/gke-accelerator="),
    ],
)
def test_a_manifest_is_checked_by_what_the_stack_publishes(item: Object, problem: str) -> None:
    fit = Fit.of_queue(PUBLISHED, label(item, QUEUE_LABEL))
    assert [text for text in problems_of(Path("job.yaml"), item, PUBLISHED, fit) if problem in text]


@pytest.mark.parametrize(
    ("item", "note"),
    [
        (job(GOOD), "Container main requests no memory: quota does not count it"),
        (job({"nvidia.com/gpu": "1"}), "Container main requests no cpu and no memory"),
        (LIMITED, "Container main has limits of nvidia.com/gpu and no requests: after a restart, Kueue counts it"),
    ],
)
def test_what_kubectl_would_bring_to_run_is_noted_and_not_refused(item: Object, note: str) -> None:
    assert [text for text in notes_of(item) if note in text]
    if item is not LIMITED:  # the queue has no topology
        assert [*problems_of(Path("job.yaml"), item, PUBLISHED, Fit.of_queue(PUBLISHED, "lq"))] == []


# Flavors with their pools and quotas, and sets of pods: GPUs of each pod, pods, and the pool that they select.
A, B = ("a", {"cpu": "4", "nvidia.com/gpu": "1"}), ("b", {"cpu": "4", "nvidia.com/gpu": "1"})
TWO = ("b", {"cpu": "4", "nvidia.com/gpu": "2"})


@pytest.mark.parametrize(
    ("flavors", "sets", "problem"),
    [
        ([A, B], [(1, 2, "")], "the 2 pods of a set request 2 of nvidia.com/gpu, and queue lq has 1 in flavor a0"),
        *(([A, TWO], [(1, 2, "")], ""), ([A, B], [(1, 1, ""), (1, 1, "")], "")),
        ([A, B], [(1, 1, ""), (1, 1, "a")], ""),  # Kueue tries the next flavor of the first set
        ([A, B], [(1, 1, "a"), (1, 1, "a")], "beside the sets before it, a pod requests 1 of nvidia.com/gpu"),
        ([A, B], [(1, 1, ""), (1, 1, ""), (1, 1, "")], "beside the sets before it"),
        ([A, B], [(1, 1, "c")], "that no flavor of queue lq has: cloud.google.com/gke-nodepool=c"),
        ([A, B], [(0, 0, ""), (1, 1, "b")], ""),
        ([A], [(1, 1, "")] * 18, "beside the sets before it"),
        ([A], [(1, 1, "")] * 1000, "the run has 1000 sets of pods, and Kueue takes at most 18"),
        ([A, B, TWO], [(0, 1, "")] * 12, ""),
    ],
)
def test_each_set_of_pods_gets_one_flavor(
    flavors: list[tuple[str, Object]], sets: list[tuple[int, int, str]], problem: str
) -> None:
    named = [f"{pool}{index}" for index, (pool, _) in enumerate(flavors)]
    quotas = [{"flavor": name, "quota": quota} for name, (_, quota) in zip(named, flavors, strict=True)]
    pools = [{**PUBLISHED.sections["gpuPools"][0], "name": pool} for pool in ("a", "b")]
    with_pools = [{"name": name, "pools": [pool]} for name, (pool, _) in zip(named, flavors, strict=True)]
    queues = {"flavors": with_pools, "clusterQueues": [{"name": "cq", "flavors": quotas}]}
    sections = {**PUBLISHED.sections, "gpuPools": pools, "queues": {**PUBLISHED.sections["queues"], **queues}}
    jobs = []
    for gpus, pods, pool in sets:
        container = {"name": "main", "resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": str(gpus)}}}
        spec = {"containers": [container], **({"nodeSelector": {GKE_NODEPOOL: pool}} if pool else {})}
        jobs.append({"replicas": 1, "template": {"spec": {"parallelism": pods, "template": {"spec": spec}}}})
    item = {"kind": "JobSet", "metadata": {"name": "m"}, "spec": {"replicatedJobs": jobs}}
    found = Fit.of_queue(replace(PUBLISHED, sections=sections), "lq").never_admitted(item)
    assert (problem in found, bool(found)) == (True, bool(problem)), found


TAINTED = "the pods request no nvidia.com/gpu, and the taint nvidia.com/gpu keeps others off the nodes of flavor l4"
SPOT, SMALL = {"cloud.google.com/gke-spot": "true"}, {"cpu": "1"}
PARTIAL = job(SMALL, pods=20)
PARTIAL["metadata"]["annotations"] = {MIN_PARALLELISM: "2"}
IS_SPOT = {"key": "cloud.google.com/gke-spot", "operator": "Exists"}
ON_SPOT = {"nodeAffinity": {DURING_SCHEDULING: {"nodeSelectorTerms": [{"matchExpressions": [IS_SPOT]}]}}}


@pytest.mark.parametrize(
    ("item", "quotas", "problem"),
    [
        (job(SMALL), {"l4": "8"}, TAINTED),
        (job(SMALL, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), {"l4": "8"}, ""),
        (job(SMALL), {"cpu": "8", "l4": "8"}, ""),
        (job({"cpu": "3"}), {"cpu": "2", "l4": "8"}, f"flavor l4 alone has quota for 3 of cpu, and {TAINTED}"),
        (PARTIAL, {"cpu": "2", "l4": "8"}, f"flavor l4 alone has quota for 8 of cpu, and {TAINTED}"),
        (job({}, nodeSelector={GKE_NODEPOOL: "default-pool"}), {"l4": "8"}, ""),  # it gets no flavor
        (job(SMALL, affinity=ON_SPOT), {"cpu": "8"}, "the pods select nodes that flavor cpu has not"),
        (job(SMALL, queue="absent", nodeSelector=A100), {"cpu": "8"}, "the pods select nodes that flavor cpu has not"),
        (job(SMALL, queue="absent"), {"cpu": "8"}, ""),
        (job({}, queue="", nodeSelector=SPOT), {"cpu": "8"}, "the pods select nodes that flavor cpu has not"),
        (job({}, queue="", nodeSelector={GKE_NODEPOOL: "gpus"}), {"cpu": "8"}, ""),
        (job({**SMALL, "nvidia.com/gpu": "1"}), {"cpu": "8"}, "which the nodes of flavor cpu have not"),
        (job(SMALL, nodeSelector=SPOT), {"cpu": "8"}, "the pods select nodes that flavor cpu has not: cloud.google"),
        (job(SMALL, nodeSelector={"kubernetes.io/arch": "amd64"}), {"cpu": "8"}, ""),
        (job({**SMALL, "nvidia.com/gpu": "1"}, nodeSelector=SPOT), {"l4": "8"}, "no pool of flavor l4 has: cloud.goo"),
        (job({**SMALL, "nvidia.com/gpu": "2"}, pods=4), {"l4": "99"}, "4 pods run at once, and pool gpus has nodes"),
        (job({**SMALL, "nvidia.com/gpu": "1"}, pods=6), {"l4": "99"}, ""),
        (BLOCK, {"l4": "8"}, "no flavor of queue lq has: kueue.x-k8s.io/podset-required-topology. Kueue would never"),
    ],
)
def test_a_run_needs_a_flavor_with_quota_and_nodes(item: Object, quotas: dict[str, str], problem: str) -> None:
    flavors = [{"name": name, **({"pools": ["gpus"]} if name == "l4" else {})} for name in quotas]
    queues: Object = {**PUBLISHED.sections["queues"], "flavors": flavors}
    of_each = [{"flavor": name, "quota": {"cpu": cpu, "nvidia.com/gpu": "8"}} for name, cpu in quotas.items()]
    of_another = [{"flavor": name, "quota": {"google.com/tpu": "8"}} for name in quotas]
    queues["clusterQueues"] = [{"name": "cq", "flavors": of_each}, {"name": "other", "flavors": of_another}]
    cluster = {**PUBLISHED.sections["cluster"], "mode": "standard"}
    published = replace(PUBLISHED, sections={**PUBLISHED.sections, "queues": queues, "cluster": cluster})
    found = [*Fit.of_queue(published, label(item, QUEUE_LABEL)).problems(item)]
    assert (len(found), problem in "".join(found)) == (bool(problem), True), found


def manifest(folder: Path, *contents: object) -> Manifest:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(contents))
    return read_manifest(file)


def test_a_manifest_may_be_a_list_and_have_empty_fields_other_objects_and_a_generated_name(tmp_path: Path) -> None:
    assert manifest(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [job(GOOD)]}).content == job(GOOD)
    generated = {**job(GOOD), "metadata": {"generateName": "mine-"}}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
    config_map, run = manifest(tmp_path, code, generated).inside("team-a")
    assert (config_map["metadata"], run["metadata"]["namespace"]) == ({"name": "code", "namespace": "team-a"}, "team-a")
    assert re.fullmatch(r"mine-[0-9a-f]{5}", run["metadata"]["name"])
    again = manifest(tmp_path, code, generated).inside("team-a")[-1]
    assert again == run, "a repeated submission finds its own run"
    item = {**job(GOOD), "metadata": {"name": "mine", "labels": None, "annotations": None}}
    (run,) = manifest(tmp_path, item).inside("team-a")
    assert SUBMITTED in marked(run)["metadata"]["annotations"]
    assert [*notes_of(run)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({**job(GOOD), "kind": "RayJob", "apiVersion": "ray.io/v1alpha1"}, r"has a RayJob \(ray.io/v1alpha1\)"),
        ({**job(GOOD), "kind": "Deployment", "apiVersion": "apps/v1"}, "has a Deployment"),
        ({**job(GOOD), "metadata": {}}, "metadata.name of the Job is missing"),
        ([1, 2], "has text"),
        (None, "has 0 runs"),
        ({**job(GOOD), "metadata": {"name": "mine", "labels": "x"}}, "metadata.labels is no map of texts"),
        ({**job(GOOD), "metadata": {"name": "mine", "annotations": {"a": 1}}}, "metadata.annotations is no map"),
        ({**job(GOOD), "metadata": {"name": ["mine"], "namespace": 1}}, "metadata.name is no text"),
        ({**job(GOOD), "spec": {"parallelism": "many"}}, "spec.parallelism is no number"),
        ({**SETS, "spec": SLICES}, r"spec.replicatedJobs\[0\].replicas is no number"),
    ],
)
def test_a_manifest_that_submit_can_not_check_is_refused(content: object, problem: str, tmp_path: Path) -> None:
    with pytest.raises(Stop, match=problem):
        manifest(tmp_path, content)


def test_an_image_has_a_name_and_a_registry_that_does_not_answer_is_named() -> None:
    problems, left_out = ImageCheck(["Not An Image", "127.0.0.1:1/a/b:c"]).result()
    assert problems == ['"Not An Image" is not the name of an image. Write REGISTRY/PATH:TAG']
    assert left_out == ["image 127.0.0.1:1/a/b:c (its registry does not answer)"]


# --- a connection that breaks -----------------------------------------------------------------------------------------


QUOTA_CHANGES = "Operation cannot be fulfilled on resourcequotas"


class Cluster(submitted.Cluster):
    """A cluster with a quota of one object, which something else may change at the same time."""

    def answer(self, method: str, path: str, query: str, body: Object) -> tuple[int, Object] | None:
        if method == "POST" and self.breaks[:1] != ["before"]:
            changes = self.breaks[:1] == ["quota changes"]
            if changes or self.created:
                self.breaks = self.breaks[1:]
                return (409, {"message": QUOTA_CHANGES}) if changes else (403, {"message": "exceeded quota"})
        return super().answer(method, path, query, body)


@contextmanager
def serve(cluster: Cluster) -> Iterator[Member]:
    with answering(cluster.answer) as address:
        yield Member(client_of(kubeconfig(f"http://{address}"), 1), "team-a")


NAMED = {**job(GOOD), "metadata": {"name": "mine", "namespace": "team-a"}}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "breaks",
    [[], ["before"], ["after"], ["before", "after"], ["after", "before", "before"], ["quota changes", "before"]],
)
def test_a_connection_lost_on_the_way_leaves_one_run_also_the_last_of_a_quota(breaks: list[str]) -> None:
    cluster = Cluster(breaks)
    with serve(cluster) as user:
        assert user.create(marked(NAMED))["metadata"]["name"] == "mine"
        assert user.create(marked(NAMED))["metadata"]["name"] == "mine"  # the whole command again
    assert len(cluster.created) == 1


@pytest.mark.usefixtures("quick")
def test_a_quota_that_changes_at_every_try_is_named() -> None:
    with serve(Cluster(["quota changes"] * 4)) as user, pytest.raises(Stop, match=f"Job team-a/mine: {QUOTA_CHANGES}"):
        user.create(marked(NAMED))


# --- following --------------------------------------------------------------------------------------------------------

RUN = Run("mine", "team-a", "Job", item={"metadata": {"labels": {QUEUE_LABEL: "lq"}}, "spec": {"parallelism": 2}})


def workload(*conditions: Object, **status: Any) -> Object:
    return {"metadata": {"name": "job-mine"}, "spec": {}, "status": {"conditions": list(conditions), **status}}


WAITS = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota."}
ADMITTED = {"type": "Admitted", "status": "True"}
ASSIGNED = {"podSetAssignments": [{"flavors": {"cpu": "l4", "nvidia.com/gpu": "l4"}}]}


@pytest.mark.parametrize(
    ("found", "position", "state"),
    [
        (None, "", "Queue lq: Kueue has not seen the run yet."),
        (workload(WAITS), "; place 1 of 3", "Queue lq: waiting, insufficient unused quota; place 1 of 3."),
        (workload(ADMITTED, admission=ASSIGNED), "", "Queue lq: admitted on flavor l4."),
    ],
)
def test_the_state_of_a_run_is_one_sentence(found: Object | None, position: str, state: str) -> None:
    assert Observation(RUN, found, [], position).state == state


def pod(phase: str, node: str = "", **status: Any) -> Object:
    return {"metadata": {"name": node}, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def test_pods_are_counted_with_their_nodes_or_with_what_they_wait_for() -> None:
    def progress(*pods: Object) -> str:
        return Observation(RUN, None, list(pods)).progress

    assert progress() == ""
    assert progress(pod("Running", "b"), pod("Running", "a")) == "2 of 2 pods run on a, b."
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "none"}}}]}
    assert progress(pod("Running", "a"), pod("Pending", "b", **waiting)) == "1 of 2 pods run: ErrImagePull none."
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}
    assert progress(pod("Pending", "", **unscheduled)) == "0 of 2 pods run: 0/3 nodes are available."


PATH = "/apis/batch/v1/namespaces/team-a/jobs/mine"
QUEUE_PATH = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads"
PENDING = f"/apis/{VISIBILITY_API}/namespaces/team-a/localqueues/lq/pendingworkloads"


def answers(number: int, place: Answer) -> dict[str, Answer]:
    item = {"metadata": {"uid": "u", "name": "mine", "labels": {QUEUE_LABEL: "lq"}}, "spec": {"parallelism": 1}}
    own: Object = workload(WAITS) if number < 2 else workload(ADMITTED, admission=ASSIGNED)
    own["metadata"] |= {"namespace": "team-a", "ownerReferences": [{"uid": "u"}]}
    own["spec"] = {"queueName": "lq"}
    runs: Object = pod("Running", "node-a")
    runs["metadata"]["namespace"], runs["spec"]["containers"] = "team-a", [{"name": "main"}]
    done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}} if number > 3 else {}
    pods = {"items": [runs] if number in (2, 3) else []}
    lists = {QUEUE_PATH: Answer(200, {"items": [own]}), "/api/v1/namespaces/team-a/pods": Answer(200, pods)}
    return {PATH: Answer(200, {**item, **done}), **lists, PENDING: place}


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Answer(200, {"items": [{"metadata": {"name": "job-mine"}, "positionInLocalQueue": 0}]}), "place 1 of 1"),
        (Answer(403, {}), "its place in the queue is not known (HTTP 403)"),
    ],
)
def test_changes_of_a_run_are_shown_until_it_ends(place: Answer, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(9))
    now: dict[str, Answer] = {}

    def ask(_: object, __: str, path: str, *___: object) -> Answer:
        if path == PATH:
            now.update(answers(next(moments), place))
        return now[path]

    monkeypatch.setattr(follow, "request", ask)
    for module in (follow, ops_runs):
        monkeypatch.setattr(module, "list_objects", lambda api, path, **_: ask(api, "GET", path).body["items"])
    monkeypatch.setattr(follow, "send", lambda *_: Answer(200, "step 0\nstep 1\n"))
    monkeypatch.setattr(follow, "PAUSE", 0.0)
    lines: list[str] = []
    unused: Any = None
    assert follow.follow(unused, Run("mine", "team-a", "Job"), lines.append) == 0
    waits, *others = lines
    assert waits.startswith("Queue lq: waiting, insufficient unused quota; ")
    assert shown in waits
    runs = ["Queue lq: admitted on flavor l4.", "1 of 1 pods run on node-a.", "First log line of node-a: step 0"]
    assert others == [*runs, "Completed: team-a/mine."]


@pytest.mark.parametrize("command", ["ops.submit.command", "forecast.simulate.command"])
def test_submit_and_simulate_load_nothing_of_pulumi(command: str) -> None:
    program = f"import sys, gke_ai.cli.verbs, gke_ai.{command}\nprint([m for m in sys.modules if 'pulumi' in m])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
