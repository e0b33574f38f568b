"""`gke-ai when` reads a run, and says what Kueue decided.

tests/nightly/test_when.py asks Kueue.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.fabric.rdma import claim_template
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.forecast.rehearse.manifests import inert
from gke_ai.forecast.result.forecast import Eviction
from gke_ai.forecast.snapshot.format import build
from gke_ai.forecast.when import command as when
from gke_ai.forecast.when.alone import PREFIX, renamed
from gke_ai.forecast.when.answer import Answer, Run, answer, holders, in_order, roots, sharing, waiting
from gke_ai.forecast.when.run_file import cluster_queue, read_run, read_server
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support import timelines
from tests.support.mistakes import PROJECT, base
from tests.support.repository import ENVIRONMENTS
from tests.support.snapshots import TAKEN, snapshot
from tests.support.timelines import named

Object = dict[str, Any]
PROD = ENVIRONMENTS / "Pulumi.prod.yaml"
STACK = Stack("prod", PROD)


def job(**more: Any) -> Object:
    """A Job of two pods with 2 GPUs each."""
    container = {"name": "main", "image": "x", "resources": {"limits": {NVIDIA_GPU: "2"}}}
    metadata = {"name": "mine", "namespace": "training", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container], **more}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(job()))
    return path


def test_a_manifest_is_submitted_as_it_stands(file: Path) -> None:
    run = read_run(file, STACK, snapshot())
    assert run.title == "Job training/mine"
    # A scratch cluster runs no program of a stranger's image.
    assert run.content["spec"] == inert(job())["spec"]
    assert cluster_queue(run, snapshot()) == "training"
    generated = job()
    generated["metadata"]["generateName"] = f"{generated['metadata'].pop('name')}-"
    file.write_text(yaml.safe_dump(generated))
    assert read_run(file, STACK, snapshot()).is_named
    file.write_text(yaml.safe_dump(job()).replace("spec:\n  completions", "spec:\n  suspend: true\n  completions"))
    assert read_run(file, STACK, snapshot()).content["spec"]["suspend"] is True
    with pytest.raises(Stop, match="the cluster has Job training/mine already"):
        read_run(file, STACK, snapshot(Job=[job()]))


@pytest.mark.parametrize(
    "wrap", [lambda run: run, lambda run: {"training": [run]}, lambda run: {"gke-ai:training": [run]}]
)
def test_a_run_is_read_as_it_stands_in_the_configuration(file: Path, wrap: Any) -> None:
    finetune, _ = yaml.safe_load(PROD.read_text())["config"]["gke-ai:training"]
    file.write_text(yaml.safe_dump(wrap(finetune)))
    run = read_run(file, STACK, snapshot())
    (pods,) = run.content["spec"]["podSets"]
    (container,) = pods["template"]["spec"]["containers"]
    assert (run.kind, run.namespace, run.content["spec"]["queueName"]) == ("Workload", "training", "gpus")
    assert run.content["spec"]["priority"] == 20
    assert pods["count"] * int(container["resources"]["requests"][NVIDIA_GPU]) == 8
    assert run.name.startswith("finetune-")


SLEEPING = Stack("dev", Path("examples/sleeping-server.yaml"))
TEAM = {"metadata": {"name": "team", "namespace": "llm"}, "spec": {"clusterQueue": "gpus"}}


def test_a_server_that_sleeps_is_asked_about_as_one_more_replica() -> None:
    replica, waking = read_server("gemma", SLEEPING, snapshot(LocalQueue=[TEAM]))
    (pods,) = replica.content["spec"]["podSets"]
    (container,) = pods["template"]["spec"]["containers"]
    assert (replica.title, pods["count"]) == ("Workload llm/gemma-replica", 1)
    assert int(container["resources"]["requests"][NVIDIA_GPU]) >= 1
    assert str(waking).startswith("Cold start: llm/gemma wakes within about 635 s")


@pytest.mark.parametrize(
    ("stack", "name", "why"),
    [
        (SLEEPING, "gema", "has no server gema. Write one of: llm/gemma"),
        (SLEEPING, "gemma", "The cluster has no local queue llm/team. Deploy first: up"),
        (
            Stack("dev", Path("examples/model-cache.yaml")),
            "gemma",
            "Server llm/gemma has no queue: it wakes as soon as",
        ),
    ],
)
def test_a_question_about_no_server_says_why(stack: Stack, name: str, why: str) -> None:
    with pytest.raises(Stop, match=why):
        read_server(name, stack, snapshot(LocalQueue=[]))


def test_a_waking_waits_for_the_runs_that_it_preempts(tmp_path: Path) -> None:
    config = yaml.safe_load(SLEEPING.file.read_text())
    run: dict[str, Any] = {
        "name": "run",
        "kind": "job",
        "namespace": "llm",
        "queue": "team",
        "priorityClass": "training",
        "pool": "l4",
    }
    run |= {"image": "us-docker.pkg.dev/my-project/training/run:1", "gpusPerPod": 2}
    config["config"]["gke-ai:training"] = [{**run, "terminationGracePeriodSeconds": 90}]
    (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump(config))
    _, waking = read_server("llm/gemma", Stack("dev", tmp_path / "Pulumi.dev.yaml"), snapshot(LocalQueue=[TEAM]))
    assert "preemption 90 s" in str(waking)


NVLINK = {**claim_template("llm"), "metadata": {"name": "nvlink", "namespace": "llm"}}


@pytest.mark.parametrize(
    ("good", "templates"),
    [
        *(("rdma.good", [claim_template("llm")]), ("rdma.good", [])),
        ("nvlink.two_nodes", [claim_template("llm", 4), NVLINK]),
    ],
)
def test_a_run_claims_devices_by_the_templates_that_the_snapshot_has(
    tmp_path: Path, good: str, templates: list[dict[str, Any]]
) -> None:
    values = base("", good)
    file, config = tmp_path / "run.yaml", tmp_path / "Pulumi.prod.yaml"
    file.write_text(yaml.safe_dump({"training": values["training"]}))
    sections = {f"gke-ai:{key}": part for key, part in values.items()}
    config.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **sections}}))
    run = values["training"][0]
    queue = {"metadata": {"name": run["queue"], "namespace": "llm"}, "spec": {"clusterQueue": "gpus"}}
    state = build("prod", {"LocalQueue": [queue], "ResourceClaimTemplate": templates}, TAKEN)
    (pods,) = read_run(file, Stack("prod", config), state).content["spec"]["podSets"]
    pod = pods["template"]["spec"]
    claims = pod.get("resourceClaims", []), pod["containers"][0]["resources"].get("claims", [])
    names = [template["metadata"]["name"] for template in templates]
    named = [{"name": name, "resourceClaimTemplateName": name} for name in names]
    assert claims == (named, [{"name": name} for name in names])


def test_a_run_on_tpus_is_read_from_the_configuration(file: Path) -> None:
    _, pretrain = yaml.safe_load(PROD.read_text())["config"]["gke-ai:training"]
    file.write_text(yaml.safe_dump(pretrain))
    (pods,) = read_run(file, STACK, snapshot()).content["spec"]["podSets"]
    (container,) = pods["template"]["spec"]["containers"]
    assert pods["count"] * int(container["resources"]["requests"][GOOGLE_TPU]) == 32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: x}", "has 0 Jobs"),
        (yaml.safe_dump({**job(), "metadata": {"name": "x"}}), "metadata.labels has no kueue.x-k8s.io/queue-name"),
        (yaml.safe_dump({**job(), "metadata": {"name": "x", "labels": []}}), "has no kueue.x-k8s.io/queue-name"),
        (yaml.safe_dump({**job(), "metadata": {**job()["metadata"], "namespace": "x"}}), "no local queue x/gpus"),
        (yaml.safe_dump_all([job(), {**job(), "kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2"}]), "has 2"),
        ("training: []", "is not a list with one run"),
        ("name: mine\nvolume: {bucket: none}\npods: many", "run.yaml.pods: "),
    ],
)
def test_a_file_without_a_run_is_refused(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(Stop, match=message):
        read_run(file, STACK, snapshot())


MINE = timelines.owned("Job", "mine", "job-mine")


def workload(uid: str = "mine", **more: Any) -> Object:
    item = timelines.workload(uid, MINE, **more)
    item["spec"]["podSets"] = [{"name": "main", "count": 1}]
    return item


def waiting_run(uid: str = "mine", owner: list[Object] = MINE, *priority: int) -> Object:
    item = timelines.waiting(uid, owner, *priority)
    item["spec"]["podSets"] = []
    return item


def answer_of(*observed: Any, queue: str = "training") -> Answer:
    return answer(timelines.timeline(*observed), named("llm/job/mine"), queue)


def test_a_run_starts_at_once_or_after_those_that_kueue_evicts_for_it() -> None:
    found = answer_of((1, "workload", workload(flavor="l4")))
    assert (found.admitted, found.starts, found.flavors, found.waits_for) == (True, True, ("l4",), "")
    other = timelines.owned("Job", "other", "job-other")
    found = answer_of(
        (-1, "workload", timelines.workload("other", other, 20, "l4")),
        (1, "workload", waiting_run()),
        (2, "workload", timelines.evicted("other", other, "mine", "job-mine")),
    )
    assert [str(eviction.workload) for eviction in found.preempts] == ["llm/job/other"]
    assert (found.admitted, found.starts) == (False, True)


def test_a_run_waits_for_what_kueue_says_a_stopped_queue_or_the_head_of_its_queue() -> None:
    found = answer_of((1, "workload", waiting_run()))
    assert (found.starts, found.waits_for) == (False, "2 more GPUs in flavor l4")
    queue = timelines.cluster_queue("cluster-queue", "4", "4")
    head = waiting_run("head", timelines.owned("Job", "head", "job-head"), 10)
    mine = timelines.workload("mine", MINE)
    mine["spec"]["podSets"] = []
    before = "llm/job/head, which is before it in ClusterQueue cluster-queue (StrictFIFO)"
    for stated, expected in (
        ({"stopPolicy": "Hold"}, "ClusterQueue cluster-queue, which is stopped"),
        ({"queueingStrategy": "StrictFIFO"}, before),
    ):
        stopped = {**queue, "spec": {**queue["spec"], **stated}}
        queues = (-1, "local", timelines.local_queue()), (-1, "queue", stopped)
        found = answer_of(*queues, (-1, "workload", head), (1, "workload", mine), queue="cluster-queue")
        assert (found.waits_for, found.starts) == (expected, False)


def test_cohorts_within_a_cohort_share_quota_and_those_in_a_circle_end() -> None:
    def queue(name: str, cohort: str) -> Object:
        return {"metadata": {"name": name}, "spec": {"cohortName": cohort}}

    def cohort(name: str, parent: str) -> Object:
        return {"metadata": {"name": name}, "spec": {"parentName": parent}}

    queues = [queue("a", "left"), queue("b", "right"), queue("c", "other"), queue("d", ""), queue("e", "")]
    found, _ = roots(queues, [cohort("left", "root"), cohort("right", "root")])
    assert sharing("a", found) == ["a", "b"]
    assert sharing("d", found) == ["d"]
    assert roots([queue("a", "x")], [cohort("x", "y"), cohort("y", "x")])[0].keys() == {"a"}


def test_holders_are_those_of_the_flavors_that_the_run_could_have_and_requests_those_that_kueue_counts() -> None:
    def held(name: str, flavor: str, queue: str = "training", gpus: str = "2") -> Object:
        item = timelines.workload(name, timelines.owned("Job", name, name), 20, flavor)
        assignment = {"name": "main", "flavors": {NVIDIA_GPU: flavor}, "resourceUsage": {NVIDIA_GPU: gpus}}
        item["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": [assignment]}
        return item

    items = [held("small", "l4"), held("large", "l4", gpus="4"), held("spot", "spot"), held("far", "l4", "far")]
    now = datetime.fromisoformat(timelines.LONG_BEFORE) + timedelta(hours=1)
    found = holders(items, ["training"], {("l4", NVIDIA_GPU)}, now)
    shown = [f"{run.name}: {run.requests[NVIDIA_GPU]} for {run.seconds:g} s" for run in found]
    assert shown == ["llm/job/large: 4 for 3600 s", "llm/job/small: 2 for 3600 s"]
    item = timelines.waiting("mine", MINE, 20)
    item["status"]["resourceRequests"] = [{"name": name, "resources": {NVIDIA_GPU: "2"}} for name in ("a", "b")]
    assert waiting(item, "training") == Run("llm/job/mine", "training", 20, {NVIDIA_GPU: Fraction(4)})


def test_copies_of_queues_name_copies_of_flavors_and_cohorts() -> None:
    def spec(prefix: str) -> Object:
        checks = [{"name": "check", "onFlavors": [f"{prefix}l4"]}, {"name": "every"}]
        flavors = [{"name": f"{prefix}l4", "resources": []}]
        return {
            "cohortName": f"{prefix}all",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "admissionChecksStrategy": {"admissionChecks": checks},
        }

    assert renamed(spec("")) == spec(PREFIX)


STARTS = Answer("llm/job/mine", "training", admitted=True, flavors=("l4",), pods=2, requested=2)
WAITS = Answer("llm/job/mine", "training", requested=2, waits_for="2 more GPUs in flavor l4")
VICTIM = Eviction(named("llm/job/other"), "gpus", 20, "Preempted", "InClusterQueue", named("llm/job/mine"), "l4")
ON_L4 = "on flavor l4 of cluster queue training"
ROOM, NINE = (
    "room in ResourceQuota pods (pods: 1 more, 1 of 1 used)",
    "9 GPUs in flavor l4, which never has more than 8",
)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (STARTS, f"starts at once, {ON_L4}."),
        (replace(STARTS, pods=1), f"starts at once with 1 of its 2 pods, {ON_L4}."),
        (replace(STARTS, preempts=(VICTIM,)), f"starts once 1 preempted run has ended, {ON_L4}."),
        (replace(STARTS, lacks=ROOM), f"is admitted, {ON_L4}, but not all of its pods run: they wait for {ROOM}."),
        (WAITS, "waits in cluster queue training, for 2 more GPUs in flavor l4."),
        (replace(WAITS, never=NINE), f"never starts in cluster queue training: alone, it would wait for {NINE}."),
    ],
)
def test_the_answer_is_one_sentence(found: Answer, text: str) -> None:
    assert when.headline(found) == f"llm/job/mine {text}"


def test_reasons_name_who_is_preempted_who_is_ahead_and_missing_nodes_of_pools_of_the_snapshot() -> None:
    evicts = "Kueue preempts llm/job/other of local queue gpus, priority 20."
    assert [*when.reasons(replace(STARTS, preempts=(VICTIM,)), with_nodes=True)] == [evicts]
    ahead = (Run("llm/job/a", "training", 0, {}), Run("llm/job/b", "other", 0, {}))
    of_queue = "1 waiting run of its queue is ahead of it."
    assert [*when.reasons(replace(WAITS, ahead=ahead), with_nodes=True)] == [of_queue]
    found = replace(STARTS, no_node="a node: 0/1 nodes are available")
    assert [*when.reasons(found, with_nodes=False)] == []
    assert "No node fits its pods." in "".join(when.reasons(found, with_nodes=True))


def test_tables_show_a_part_of_many_runs_and_the_answer_is_plain_data_too() -> None:
    many = tuple(Run(f"llm/job/{number}", "training", 0, {NVIDIA_GPU: Fraction(1)}) for number in range(10))
    ahead, held = when.tables(replace(WAITS, ahead=many, holders=many[:1]))
    assert (ahead.row_count, held.row_count) == (when.SHOWN + 1, 1)
    assert [*when.tables(STARTS)] == []
    data = when.as_json(replace(WAITS, holders=(Run("llm/job/a", "training", 20, {NVIDIA_GPU: Fraction(2)}),)))
    holder = {"run": "llm/job/a", "clusterQueue": "training", "priority": 20, "requests": {NVIDIA_GPU: "2"}}
    assert (data["waitsFor"], data["holders"]) == ("2 more GPUs in flavor l4", [holder])
    assert when.amounts({NVIDIA_GPU: Fraction(2), "cpu": Fraction(8)}) == "2 GPUs"
    assert when.amounts({"cpu": Fraction(1, 2), "memory": Fraction(2**31)}) == "0.5 cpu, 2Gi memory"


def test_the_order_of_workloads_is_by_priority_then_by_age_or_by_when_they_queued_again() -> None:
    def workload(name: str, second: int, queue: str = "gpus", **more: Any) -> Object:
        metadata = {"namespace": "training", "name": name, "uid": name}
        metadata["creationTimestamp"] = f"2026-11-25T10:00:{second:02}Z"
        spec = {"queueName": queue, **more.pop("spec", {})}
        return {"metadata": metadata, "spec": spec, "status": {"conditions": more.pop("conditions", [])}}

    def condition(kind: str, reason: str = "") -> Object:
        return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-11-25T11:00:00Z"}

    workloads = [
        workload("again", 1, conditions=[condition("Evicted", "PodsReadyTimeout")]),
        workload("preempted", 2, conditions=[condition("Evicted", "Preempted")]),
        workload("younger", 9),
        workload("urgent", 30, spec={"priority": 5}),
        workload("admitted", 0, conditions=[condition("QuotaReserved")]),
        workload("ended", 0, conditions=[condition("Finished")]),
        workload("inactive", 0, spec={"active": False}),
        workload("elsewhere", 0, queue="slices"),
    ]
    found = in_order(workloads, snapshot().of("LocalQueue"), "training")
    assert [name for _, name in found] == ["urgent", "preempted", "younger", "again"]


def test_the_replays_say_that_they_leave_out_topology() -> None:
    levels = {"metadata": {"name": "b200"}, "spec": {"topologyName": "levels"}}
    plain: Object = {"metadata": {"name": "l4"}, "spec": {}}
    (note,) = when.unplaced(snapshot(ResourceFlavor=[levels, plain]))
    room = "a run that requires one block can wait longer."
    assert note == f"The replays count the quota of b200, not where pods fit together: {room}"
    assert [*when.unplaced(snapshot(ResourceFlavor=[plain]))] == []
