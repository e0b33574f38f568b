"""`gke-ai when` reads a run, and says what Kueue decided.

tests/nightly/test_when.py asks Kueue.
"""

from __future__ import annotations

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
from gke_ai.forecast.when.run_file import cluster_queue, read_run
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


# ------------------------------------------------------------------------------------------------------------- reading
def test_a_manifest_is_submitted_as_it_stands(file: Path) -> None:
    run = read_run(file, STACK, snapshot())
    assert run.title == "Job training/mine"
    # A scratch cluster runs no program of a stranger's image.
    assert run.content["spec"] == inert(job())["spec"]
    assert cluster_queue(run, snapshot()) == "training"


def test_the_api_server_need_not_name_the_run(file: Path) -> None:
    generated = job()
    generated["metadata"]["generateName"] = f"{generated['metadata'].pop('name')}-"
    file.write_text(yaml.safe_dump(generated))
    assert read_run(file, STACK, snapshot()).is_named


def test_booleans_are_read_as_kubectl_reads_them(file: Path) -> None:
    file.write_text(yaml.safe_dump(job()).replace("spec:\n  completions", "spec:\n  suspend: true\n  completions"))
    assert read_run(file, STACK, snapshot()).content["spec"]["suspend"] is True


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


@pytest.mark.parametrize(
    ("good", "templates"),
    [
        ("rdma.good", [claim_template("llm")]),
        ("rdma.good", []),
        (
            "nvlink.two_nodes",
            [claim_template("llm", 4), {**claim_template("llm"), "metadata": {"name": "nvlink", "namespace": "llm"}}],
        ),
    ],
)
def test_a_run_claims_devices_by_the_templates_of_its_namespace_that_the_snapshot_has(
    tmp_path: Path, good: str, templates: list[dict[str, Any]]
) -> None:
    values = base("", good)
    file, config = tmp_path / "run.yaml", tmp_path / "Pulumi.prod.yaml"
    file.write_text(yaml.safe_dump({"training": values["training"]}))
    config.write_text(
        yaml.safe_dump({"config": {"gcp:project": PROJECT, **{f"gke-ai:{key}": part for key, part in values.items()}}})
    )
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


def test_a_run_that_the_cluster_has_is_no_run_more(file: Path) -> None:
    with pytest.raises(Stop, match="the cluster has Job training/mine already"):
        read_run(file, STACK, snapshot(Job=[job()]))


# ------------------------------------------------------------------------------------------------------------ deciding
MINE = timelines.owned("Job", "mine", "job-mine")


def workload(uid: str = "mine", **more: Any) -> Object:
    item = timelines.workload(uid, MINE, **more)
    item["spec"]["podSets"] = [{"name": "main", "count": 1}]
    return item


def test_a_run_starts_at_once() -> None:
    found = answer(timelines.timeline((1, "workload", workload(flavor="l4"))), named("llm/job/mine"), "training")
    assert (found.admitted, found.starts, found.flavors, found.waits_for) == (True, True, ("l4",), "")


def test_a_run_starts_after_those_that_kueue_evicts_for_it() -> None:
    other = timelines.owned("Job", "other", "job-other")
    waits = timelines.waiting("mine", MINE)
    waits["spec"]["podSets"] = []
    observed = timelines.timeline(
        (-1, "workload", timelines.workload("other", other, 20, "l4")),
        (1, "workload", waits),
        (2, "workload", timelines.evicted("other", other, "mine", "job-mine")),
    )
    found = answer(observed, named("llm/job/mine"), "training")
    assert [str(eviction.workload) for eviction in found.preempts] == ["llm/job/other"]
    assert (found.admitted, found.starts) == (False, True)


def test_a_run_waits_for_a_stopped_queue_and_for_the_head_of_its_queue_as_in_a_rehearsal() -> None:
    local = (-1, "local", timelines.local_queue())
    queue = timelines.cluster_queue("cluster-queue", "4", "4")
    head = timelines.waiting("head", timelines.owned("Job", "head", "job-head"), 10)
    head["spec"]["podSets"] = []
    mine = timelines.workload("mine", MINE)
    mine["spec"]["podSets"] = []
    for stated, expected in (
        ({"stopPolicy": "Hold"}, "ClusterQueue cluster-queue, which is stopped"),
        (
            {"queueingStrategy": "StrictFIFO"},
            "llm/job/head, which is before it in ClusterQueue cluster-queue (StrictFIFO)",
        ),
    ):
        stopped = {**queue, "spec": {**queue["spec"], **stated}}
        observed = timelines.timeline(local, (-1, "queue", stopped), (-1, "workload", head), (1, "workload", mine))
        found = answer(observed, named("llm/job/mine"), "cluster-queue")
        assert (found.waits_for, found.starts) == (expected, False)


def test_a_run_waits_for_what_kueue_says() -> None:
    item = timelines.waiting("mine", MINE)
    item["spec"]["podSets"] = []
    found = answer(timelines.timeline((1, "workload", item)), named("llm/job/mine"), "training")
    assert (found.starts, found.waits_for) == (False, "2 more GPUs in flavor l4")


def test_cohorts_within_a_cohort_share_quota() -> None:
    def queue(name: str, cohort: str) -> Object:
        return {"metadata": {"name": name}, "spec": {"cohortName": cohort}}

    queues = [queue("a", "left"), queue("b", "right"), queue("c", "other"), queue("d", ""), queue("e", "")]
    cohorts = [{"metadata": {"name": name}, "spec": {"parentName": "root"}} for name in ("left", "right")]
    found, _ = roots(queues, cohorts)
    assert sharing("a", found) == ["a", "b"]
    assert sharing("d", found) == ["d"]


def test_cohorts_in_a_circle_end() -> None:
    cohorts = [{"metadata": {"name": one}, "spec": {"parentName": other}} for one, other in (("x", "y"), ("y", "x"))]
    assert roots([{"metadata": {"name": "a"}, "spec": {"cohortName": "x"}}], cohorts)[0].keys() == {"a"}


def test_holders_are_those_of_the_flavors_that_the_run_could_have() -> None:
    def held(name: str, flavor: str, queue: str = "training", gpus: str = "2") -> Object:
        item = timelines.workload(name, timelines.owned("Job", name, name), 20, flavor)
        assignment = {"name": "main", "flavors": {NVIDIA_GPU: flavor}, "resourceUsage": {NVIDIA_GPU: gpus}}
        item["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": [assignment]}
        return item

    found = [
        *holders(
            [held("small", "l4"), held("large", "l4", gpus="4"), held("spot", "spot"), held("far", "l4", "far")],
            ["training"],
            {("l4", NVIDIA_GPU)},
            datetime.fromisoformat(timelines.LONG_BEFORE) + timedelta(hours=1),
        )
    ]
    assert [run.name for run in found] == ["llm/job/large", "llm/job/small"]
    assert [run.requests[NVIDIA_GPU] for run in found] == [4, 2]
    assert {run.seconds for run in found} == {3600}


def test_the_requests_of_a_waiting_run_are_those_that_kueue_counts() -> None:
    item = timelines.waiting("mine", MINE, 20)
    item["status"]["resourceRequests"] = [{"name": name, "resources": {NVIDIA_GPU: "2"}} for name in ("a", "b")]
    assert waiting(item, "training") == Run("llm/job/mine", "training", 20, {NVIDIA_GPU: Fraction(4)})


def test_copies_of_queues_name_copies_of_flavors_and_cohorts() -> None:
    spec = {
        "cohortName": "all",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "l4", "resources": []}]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["l4"]}, {"name": "every"}]},
    }
    copied = renamed(spec)
    assert copied["cohortName"] == f"{PREFIX}all"
    assert copied["resourceGroups"][0]["flavors"][0]["name"] == f"{PREFIX}l4"
    assert copied["admissionChecksStrategy"]["admissionChecks"] == [
        {"name": "check", "onFlavors": [f"{PREFIX}l4"]},
        {"name": "every"},
    ]


# ------------------------------------------------------------------------------------------------------------ printing
STARTS = Answer("llm/job/mine", "training", admitted=True, flavors=("l4",), pods=2, requested=2)
WAITS = Answer("llm/job/mine", "training", requested=2, waits_for="2 more GPUs in flavor l4")
VICTIM = Eviction(named("llm/job/other"), "gpus", 20, "Preempted", "InClusterQueue", named("llm/job/mine"), "l4")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (STARTS, "llm/job/mine starts at once, on flavor l4 of cluster queue training."),
        (
            replace(STARTS, pods=1),
            "llm/job/mine starts at once with 1 of its 2 pods, on flavor l4 of cluster queue training.",
        ),
        (
            replace(STARTS, preempts=(VICTIM,)),
            "llm/job/mine starts once 1 preempted run has ended, on flavor l4 of cluster queue training.",
        ),
        (
            replace(STARTS, lacks="room in ResourceQuota pods (pods: 1 more, 1 of 1 used)"),
            "llm/job/mine is admitted, on flavor l4 of cluster queue training, but not all of its pods run: they wait "
            "for room in ResourceQuota pods (pods: 1 more, 1 of 1 used).",
        ),
        (WAITS, "llm/job/mine waits in cluster queue training, for 2 more GPUs in flavor l4."),
        (
            replace(WAITS, never="9 GPUs in flavor l4, which never has more than 8"),
            "llm/job/mine never starts in cluster queue training: alone, it would wait for 9 GPUs in flavor l4, which "
            "never has more than 8.",
        ),
    ],
)
def test_the_answer_is_one_sentence(found: Answer, text: str) -> None:
    assert when.headline(found) == text


def test_reasons_name_who_is_preempted_and_who_is_ahead() -> None:
    assert [*when.reasons(replace(STARTS, preempts=(VICTIM,)), with_nodes=True)] == [
        "Kueue preempts llm/job/other of local queue gpus, priority 20."
    ]
    ahead = (Run("llm/job/a", "training", 0, {}), Run("llm/job/b", "other", 0, {}))
    assert [*when.reasons(replace(WAITS, ahead=ahead), with_nodes=True)] == [
        "1 waiting run of its queue is ahead of it."
    ]


def test_missing_nodes_are_named_only_if_the_snapshot_has_the_pools() -> None:
    found = replace(STARTS, no_node="a node: 0/1 nodes are available")
    assert [*when.reasons(found, with_nodes=False)] == []
    assert "No node fits its pods." in "".join(when.reasons(found, with_nodes=True))


def test_tables_show_a_part_of_many_runs() -> None:
    many = tuple(Run(f"llm/job/{number}", "training", 0, {NVIDIA_GPU: Fraction(1)}) for number in range(10))
    ahead, held = when.tables(replace(WAITS, ahead=many, holders=many[:1]))
    assert (ahead.row_count, held.row_count) == (when.SHOWN + 1, 1)
    assert [*when.tables(STARTS)] == []


def test_the_answer_is_plain_data_too() -> None:
    data = when.as_json(replace(WAITS, holders=(Run("llm/job/a", "training", 20, {NVIDIA_GPU: Fraction(2)}),)))
    assert data["waitsFor"] == "2 more GPUs in flavor l4"
    assert data["holders"] == [
        {"run": "llm/job/a", "clusterQueue": "training", "priority": 20, "requests": {NVIDIA_GPU: "2"}}
    ]


def test_amounts_are_those_of_accelerators_if_there_are_any() -> None:
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
    flavors = [
        {"metadata": {"name": name}, "spec": spec} for name, spec in (("b200", {"topologyName": "levels"}), ("l4", {}))
    ]
    assert [*when.unplaced(snapshot(ResourceFlavor=flavors))] == [
        "The replays count the quota of b200, not where pods fit together: a run that requires one block can wait "
        "longer."
    ]
    assert [*when.unplaced(snapshot(ResourceFlavor=flavors[1:]))] == []
