"""The page for reviewers, from recorded previews: its contents, the same on each run, and without secrets."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.formats.markdown import block, code
from gke_ai.registered.types import DEPLOYMENT
from gke_ai.review.report import graph
from gke_ai.review.report.accelerators import supplies
from gke_ai.review.report.changes import (
    CREATE,
    DELETE,
    LEAVE,
    REPLACE,
    UPDATE,
    Change,
    Difference,
    PlannedUpdate,
    Resource,
    plan,
)
from gke_ai.review.report.interruptions import OUTAGE, interruptions
from gke_ai.review.report.page import COMMENT_LIMIT, SHORTENED, Options, page
from gke_ai.review.report.policies import Verdict, Violation, verdict
from gke_ai.review.report.preview import SECRET, SECRET_KEY, Preview, trimmed
from gke_ai.workspace import prices
from tests.support import previews, repository
from tests.support.commands import gke_ai
from tests.support.recorder import ROOT, configuration, shared_record
from tests.support.registered import resources

RECORDED = {"creation": previews.creation(), "change": previews.change(), "deletion": previews.deletion()}
TABLE: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/report.yaml").read_text(), yaml.CSafeLoader)
# Tokens that were given when the previews were recorded.
CANARIES = ("hf_canary", "hf_emulator")


def preview(name: str) -> Preview:
    """A preview of three."""
    return RECORDED[name]


def written(found: Preview, **options: Any) -> str:
    """The page of a preview."""
    return page(plan(found), verdict(found), Options(**options))


# Pages of recorded previews


def test_page_equals_the_recorded_one(tmp_path: Path) -> None:
    source = previews.CHANGE.relative_to(ROOT)
    gke_ai("report", "--from", previews.CHANGE, "--output", tmp_path / "change.md")
    renew = f"If intended: emulator/run gke-ai report --from {source} --output {source.with_suffix('.md')}"
    assert (tmp_path / "change.md").read_text() == previews.CHANGE.with_suffix(".md").read_text(), renew


def test_page_counts_what_is_created_and_what_is_deleted() -> None:
    created, deleted = written(preview("creation")), written(preview("deletion"))
    assert created.startswith("# Preview of `fresh`\n\n**22 created**. No running workload is interrupted.")
    assert "| onDemand | `nvidia-l4` | 0 | **6** |" in created
    assert deleted.startswith("# Preview of `mixed`\n\n**20 deleted, 2 retained**. **9 interruptions.**")
    assert "| onDemand | `nvidia-l4` | 6 | **0** |" in deleted
    assert "Run llm/finetune-gemma-l4 leaves the stack" in deleted


@pytest.mark.parametrize("name", RECORDED)
def test_order_of_events_does_not_matter(name: str) -> None:
    recorded_preview = preview(name)
    mixed = random.Random(5)
    events = [event for event in recorded_preview.events if "replacing" not in event]
    ordered = [event for event in recorded_preview.events if "replacing" in event]
    other = replace(
        recorded_preview,
        resources=tuple(mixed.sample(recorded_preview.resources, len(recorded_preview.resources))),
        steps=tuple(mixed.sample(recorded_preview.steps, len(recorded_preview.steps))),
        events=(*mixed.sample(events, len(events)), *ordered),
    )
    assert other != recorded_preview
    assert written(other, graph=True) == written(recorded_preview, graph=True)


@pytest.mark.parametrize("name", RECORDED)
def test_no_secret_is_on_the_page_or_in_a_saved_preview(name: str) -> None:
    recorded_preview = preview(name)
    for text in (recorded_preview.written(), written(recorded_preview, graph=True, limit=0)):
        assert not [canary for canary in CANARIES if canary in text]
    if name == "change":
        row_text = "| ± Secret llm/hf-secret | `data.hf_api_token` **forces replacement** | (secret) | (secret) |"
        assert row_text in written(recorded_preview)


def test_secrets_of_the_recorded_state_are_masked() -> None:
    secret = {SECRET_KEY: "1b47061264138c4ac30d75fd1eb44270", "plaintext": '"hf_canary"'}
    state = {"urn": "u", "type": "t", "inputs": {"a": [{"b": secret}]}, "outputs": {"b": secret}}
    step = {"op": "update", "urn": "u", "oldState": state, "newState": state}
    trimmed_preview = trimmed("dev", [state], [step], [])
    assert trimmed_preview.resources[0]["inputs"] == {"a": [{"b": SECRET}]}
    assert "hf_canary" not in trimmed_preview.written()


def test_objects_of_a_provider_wait_for_its_cluster() -> None:
    provider = "urn:pulumi:dev::gke-ai::pulumi:providers:kubernetes::main"
    state = {"urn": "u", "type": "t", "provider": f"{provider}::9b2f0c1e-0000-4000-8000-000000000000"}
    trimmed_preview = trimmed("dev", [{"urn": "u", "type": "t", "delete": True}, state], [], [])
    assert trimmed_preview.resources[0]["provider"] == provider
    assert plan(trimmed_preview).after["u"].dependencies == {provider}


@pytest.mark.parametrize("name", RECORDED)
def test_page_holds_no_time_no_address_and_no_id(name: str) -> None:
    text = written(preview(name), limit=0)
    assert not re.search(r"\d\d:\d\d:\d\d|\b\d{1,3}(\.\d{1,3}){3}\b|[0-9a-f]{8}-[0-9a-f]{4}-|https?://", text)


@pytest.mark.parametrize("limit", [COMMENT_LIMIT, 9_000, 4_000, 1_200, 400])
def test_page_fits_in_a_comment_and_lists_omitted_sections(limit: int) -> None:
    whole = written(preview("change"), graph=True, limit=0)
    text = written(preview("change"), graph=True, limit=limit)
    assert len(text) <= limit
    assert (SHORTENED in text) == (len(whole) > limit)
    assert text.count("<details>") == text.count("</details>")
    assert text.startswith("# Preview of `mixed`\n\n**2 replaced, 1 changed, 1 created**")


def test_long_page_keeps_interruptions_and_mandatory_violations_before_lists_of_names() -> None:
    whole = written(preview("change"), graph=True, limit=0)
    text = written(preview("change"), graph=True, limit=len(whole) - 1)
    assert "Node pool gpupool is replaced" in text
    assert "**mandatory**" in text
    assert "```mermaid" not in text


def equal_servers(count: int) -> PlannedUpdate:
    """A plan that creates so many servers, which differ only in their names."""
    names = [f"chat-{number}" for number in range(count)]
    created = {
        f"urn:pulumi:dev::gke-ai::{type_}::{kind}-{name}": Resource(
            f"urn:pulumi:dev::gke-ai::{type_}::{kind}-{name}",
            type_,
            inputs={"metadata": {"name": name, "namespace": "llm"}},
        )
        for name in names
        for kind, type_ in (("server", DEPLOYMENT), ("address", "kubernetes:core/v1:Service"))
    }
    changes = tuple(Change(CREATE, found, after=found) for found in created.values())
    reads = "reads 5.2 GB by Cloud Storage at 1.00 GB/s: about 5 s, limited by Cloud Storage."
    return PlannedUpdate(
        "dev",
        {},
        created,
        changes,
        warnings=tuple(f"gke-ai:serving[{n}].engine: llm/{name} is in maintenance." for n, name in enumerate(names)),
        cold_starts=tuple(f"llm/{name} {reads} On a new node, its container starts in about 230 s." for name in names),
    )


def test_many_equal_servers_are_one_line_with_their_number_and_leave_room_for_the_policies() -> None:
    equal = equal_servers(200)
    urns = [urn for urn in equal.after if "server" in urn]
    broken = [
        Violation(level, policy, urn, f"Deployment {equal.after[urn].name}: it has no budget.")
        for level, policy in (("mandatory", "must"), ("advisory", "should"))
        for urn in urns
    ]
    text = page(equal, Verdict(tuple(broken), 2, 200), Options())
    assert len(text) < COMMENT_LIMIT
    assert SHORTENED not in text.partition("## Created")[0]
    assert text.count("reads 5.2 GB") == text.count("is in maintenance") == 1
    assert text.count("**And 199 alike.**") == 4, "cold starts, warnings, and the violations of two policies"
    assert "200 mandatory, 200 advisory." in text


@pytest.mark.parametrize("count", [1, 3])
def test_few_equal_servers_have_a_line_each(count: int) -> None:
    text = page(equal_servers(count), Verdict(), Options())
    assert text.count("reads 5.2 GB") == count
    assert "alike" not in text


def test_lines_that_differ_in_more_than_names_stay() -> None:
    different = [f"llm/chat-{number} reads {number}.0 GB." for number in range(9)]
    text = page(replace(equal_servers(9), cold_starts=tuple(different)), Verdict(), Options())
    assert all(line in text for line in different)


def test_cold_starts_are_omitted_before_what_changes() -> None:
    sizes = tuple(f"llm/chat-{number} reads {number}.5 GB. {'x' * 400}" for number in range(60))
    plan = replace(equal_servers(60), cold_starts=sizes, warnings=())
    text = page(plan, Verdict(), Options(limit=12_000))
    assert text.partition("## Cold starts")[2].partition("## ")[0].count(SHORTENED) == 1
    assert SHORTENED not in text.partition("## Created")[2]


def test_failed_program_is_reported_with_its_own_errors_and_without_a_plan() -> None:
    recorded_before = preview("change").resources
    events = ({"error": "2 problems; nothing was changed.\n"}, {"error": "an unhandled error occurred: status 1"})
    text = written(Preview("dev", recorded_before, (), events))
    assert "**The preview failed, so there is no plan.**" in text
    assert "```\n2 problems; nothing was changed.\n```" in text
    assert "unhandled error" not in text
    assert "Accelerators" not in text


def test_words_of_a_policy_can_not_break_the_page() -> None:
    message = Violation(
        "mandatory", "p", "urn", "a | b\nc <script>alert()</script> [x](https://example.com) @someone *d*"
    )
    text = page(PlannedUpdate("dev", {}, {}, ()), Verdict((message,), 1, 1), Options())
    (row,) = (line for line in text.splitlines() if line.startswith("| **mandatory**"))
    assert row.replace("\\|", "").count("|") == 5
    assert "<script>" not in row
    assert "](" not in row
    assert "@someone" not in row


@pytest.mark.parametrize("ticks", range(1, 7))
def test_no_text_ends_the_block_or_the_code_that_it_is_in(ticks: int) -> None:
    hostile = f"a\n{'`' * ticks}\n# Approved ](http://x)"
    fence, *lines, end = block(hostile).splitlines()
    assert fence == end
    assert not [line for line in lines if line.startswith(fence)]
    inline = code(hostile)
    opening = inline[: len(inline) - len(inline.lstrip("`"))]
    assert opening not in inline.strip("`")
    assert "\n" not in inline


def test_repeated_violation_is_reported_once() -> None:
    result = {"policyEvent": {"message": "What for.\nWhy.\n", "policyName": "p", "enforcementLevel": "advisory"}}
    result_verdict = verdict(Preview("dev", events=(result, result)))
    assert [violation.message for violation in result_verdict.violations] == ["Why."]


# The command


def run(*arguments: str) -> int:
    """The command on a recorded preview."""
    return gke_ai("report", *arguments)


def test_command_fails_where_the_stack_can_not_be_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "report.md")
    (tmp_path / "creation.json").write_text(preview("creation").written())
    assert run("--from", str(tmp_path / "creation.json"), "--output", output) == 0
    assert run("--from", str(previews.CHANGE), "--output", output) == 1
    assert "14 mandatory policy violations: the stack cannot be deployed." in capsys.readouterr().out


def test_graph_is_in_the_page_unless_it_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    run("--from", str(previews.CHANGE))
    assert "```mermaid" in capsys.readouterr().out
    run("--from", str(previews.CHANGE), "--graph", "none")
    assert "Graph" not in capsys.readouterr().out


# Capacity and cost


def row(kind: str, machine: str = "", **inputs: Any) -> Resource:
    """A node pool."""
    config = {"machineType": machine, **inputs.pop("nodeConfig", {})}
    return resource("gcp:container/nodePool:NodePool", kind, {"name": kind, "nodeConfig": config} | inputs)


def resource(type_: str, name: str, inputs: Mapping[str, Any], **more: Any) -> Resource:
    """A resource of the stack."""
    return Resource(f"urn:pulumi:dev::gke-ai::{type_}::{name}", type_, inputs=inputs, **more)


def found_in(*given: Resource) -> list[tuple[str, str, int, int]]:
    """Capacity mode, accelerator, minimum and maximum of each place."""
    return [
        (supply.capacity, supply.accelerator, supply.min_count, supply.max_count)
        for supply in supplies({resource.urn: resource for resource in given})
    ]


@pytest.mark.parametrize("case", TABLE["pools"], ids=lambda case: case["machine"])
def test_pool_counts_by_its_bounds_and_its_kind_of_capacity(case: dict[str, Any]) -> None:
    assert found_in(row("a", case["machine"], **case["inputs"])) == [tuple(case["counts"])]


def test_pool_keeps_its_name_when_a_new_one_comes_first() -> None:
    pools = [row("l4", "g2-standard-24", nodeCount=1, name=f"l4-{digits}") for digits in ("1a2b3c", "4d5e6f")]
    assert {pool.title for pool in pools} == {"node pool l4"}


def test_pool_without_accelerators_is_none_of_the_accelerators() -> None:
    assert found_in(row("system", "e2-standard-4", nodeCount=3)) == []


@pytest.mark.parametrize("name", TABLE["examples"])
def test_accelerators_of_each_example_are_counted_once(name: str) -> None:
    record = shared_record(configuration(f"examples/{name}.yaml"), True)
    assert sorted(found_in(*resources(record))) == sorted(map(tuple, TABLE["examples"][name]))


def test_every_example_has_its_accelerators_counted() -> None:
    assert {path.stem for path in repository.examples()} == TABLE["examples"].keys()


def test_autoscaled_server_counts_by_the_bounds_of_its_autoscaler() -> None:
    pod = {"containers": [{"resources": {"limits": {"google.com/tpu": "8"}}}], "nodeSelector": {}}
    metadata = {"name": "server", "namespace": "llm"}
    server = resource("kubernetes:apps/v1:Deployment", "s", {"metadata": metadata, "spec": {"template": {"spec": pod}}})
    scaler = resource(
        "kubernetes:autoscaling/v2:HorizontalPodAutoscaler",
        "h",
        {
            "metadata": {"name": "h", "namespace": "llm"},
            "spec": {"scaleTargetRef": {"name": "server"}, "minReplicas": 2, "maxReplicas": 5},
        },
    )
    ((_, _, min_count, max_count),) = found_in(server, scaler)
    assert (min_count, max_count) == (16, 40)


def priced(**per_hour: Any) -> prices.Prices:
    """A price table."""
    return prices.parse({"currency": "EUR", "date": "2026-11-20", "perHour": per_hour})


def test_cost_is_a_range_of_the_minimum_and_maximum_machines() -> None:
    pool = row("a", "g2-standard-24", nodeConfig={"spot": True}, autoscaling={"totalMaxNodeCount": 3})
    (supply,) = supplies({pool.urn: pool})
    assert supply.cost(priced(**{"g2-standard-24/spot": 1.25})) == (Decimal(0), Decimal("3.75"))


def test_compute_class_costs_between_its_cheapest_and_its_dearest_choice() -> None:
    record = shared_record(configuration("examples/cost-optimized-serving.yaml"), True)
    (supply,) = supplies({resource.urn: resource for resource in resources(record)})
    table = priced(**{"g2-standard-24/spot": 1, "g2-standard-24/flexStart": 2})
    assert supply.cost(table) == (Decimal(1), Decimal(2))
    assert supply.cost(priced(**{"g2-standard-24/spot": 1})) is None


def test_machine_without_a_price_is_named_and_not_free() -> None:
    text = written(preview("change"), prices=priced(**{"g2-standard-24/onDemand": 2}))
    assert "Not in the sums, because they have no price:** `g2-standard-48/onDemand`" in text
    assert "| onDemand | `nvidia-l4` | 6 | **8** | 6.00 | ? |" in text
    both = {"g2-standard-24/onDemand": 2, "g2-standard-48/onDemand": 4}
    assert "| 6.00 | 8.00 |" in written(preview("change"), prices=priced(**both))


@pytest.mark.parametrize(("content", "message"), TABLE["prices"])
def test_price_table_with_a_mistake_is_refused_with_the_remedy(content: object, message: str) -> None:
    with pytest.raises(prices.BadPrices) as refused:
        prices.parse(content)
    assert message in str(refused.value)


# Interruptions

POOL = row("l4", "g2-standard-24", nodeCount=3, nodeLocations=["z"])


def deployment(replicas: int, surge: int, image: str = "a") -> Resource:
    """A server on the pool."""
    containers = [{"image": image, "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    spec = {
        "replicas": replicas,
        "strategy": {"rollingUpdate": {"maxSurge": surge}},
        "template": {"spec": {"containers": containers}},
    }
    inputs = {"metadata": {"name": "gemma", "namespace": "llm"}, "spec": spec}
    return resource("kubernetes:apps/v1:Deployment", "llm/gemma", inputs, dependencies=frozenset([POOL.urn]))


def job(name: str, retained: bool = True) -> Resource:
    """A run on the pool."""
    containers = [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    spec = {"parallelism": 2, "template": {"spec": {"containers": containers}}}
    inputs = {"metadata": {"name": name, "namespace": "llm"}, "spec": spec}
    return resource(
        "kubernetes:batch/v1:Job",
        name,
        inputs,
        parent="urn:component",
        retained=retained,
        dependencies=frozenset([POOL.urn]),
    )


def record_of(pool: str) -> Resource:
    """The record of a training job on a pool."""
    inputs = {"metadata": {"name": "pretrain", "namespace": "llm", "annotations": {"gke-ai/nodes": pool}}}
    return resource("kubernetes:core/v1:ConfigMap", "llm/pretrain", inputs)


SERVER, RUN, RECORD = deployment(1, 1), job("tune-1"), record_of("a")
ACCOUNT = resource(
    "gcp:serviceaccount/account:Account",
    "main/gke-nodes",
    {"accountId": "gke-nodes"},
    parent="urn:pulumi:dev::gke-ai::gke-ai:index:GkeCluster$gke-ai:index:NodeAccount::gke-nodes",
)
CLUSTER = resource("gcp:container/cluster:Cluster", "main", {"name": "main"})
BUCKET = resource("gcp:storage/bucket:Bucket", "data", {"name": "data", "softDeletePolicy": {}})
SPACE = resource("kubernetes:core/v1:Namespace", "llm", {"metadata": {"name": "llm"}})
KUEUE = resource("kubernetes:helm.sh/v3:Release", "kueue", {"name": "kueue"})
QUEUE = resource("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "gpus", {"metadata": {"name": "gpus"}})
IMAGE = Difference("spec.template.spec.containers[0].image", "a", "b")
MACHINE = Difference("nodeConfig.machineType", "a", "b", replaces=True)


def messages(*changes: Change) -> list[str]:
    """The interruptions of these changes, in a stack with a pool, a server and a run."""
    before = {resource.urn: resource for resource in (POOL, SERVER, RUN, CLUSTER, BUCKET, SPACE)}
    after = {**before, **{change.after.urn: change.after for change in changes if change.after}}
    return [interruption.text for interruption in interruptions(PlannedUpdate("dev", before, after, changes))]


def changed(operation: str, before: Resource, *differences: Difference, after: Resource | None = None) -> Change:
    """A change of one resource."""
    new = None if operation in (DELETE, LEAVE) else after or before
    return Change(operation, before, before, new, differences)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            changed(REPLACE, CLUSTER, MACHINE),
            ["Everything in it stops and is recreated", "server llm/gemma", "run llm/tune-1"],
        ),
        (changed(DELETE, CLUSTER), ["Cluster main is deleted with everything in it"]),
        (
            changed(REPLACE, POOL, MACHINE),
            [
                "because of nodeConfig.machineType",
                "deletes the old pool first",
                "Workloads on it: server llm/gemma and run llm/tune-1",
            ],
        ),
        (
            replace(changed(REPLACE, POOL, MACHINE), create_before_delete=True),
            ["creates the new pool first", "disruption budgets", "You pay for both", "server llm/gemma"],
        ),
        (
            changed(
                REPLACE,
                replace(POOL, inputs={**POOL.inputs, "networkConfig": {"acceleratorNetworkProfile": "auto"}}),
                after=POOL,
            ),
            ["deletes the old pool first", "It loses its network", "it has no `rdma: true`"],
        ),
        (changed(DELETE, POOL), ["is deleted with its nodes", "server llm/gemma"]),
        (
            changed(UPDATE, POOL, after=replace(POOL, inputs={**POOL.inputs, "nodeCount": 1})),
            ["shrinks from 3 to 1 nodes"],
        ),
        (
            changed(UPDATE, POOL, Difference("nodeConfig.labels.a", "–", "b")),
            ["nodeConfig.labels.a", "recreate them one by one"],
        ),
        (changed(DELETE, BUCKET), ["is deleted with its data", "Its objects cannot be restored"]),
        (changed(LEAVE, BUCKET), ["keeps its data (onDestroy: keep)"]),
        (changed(UPDATE, SERVER, IMAGE), ["with one extra pod", "2 nvidia.com/gpu free"]),
        (changed(UPDATE, SERVER, IMAGE, after=deployment(1, 0, "b")), ["does not answer until the new replica"]),
        (changed(UPDATE, SERVER, IMAGE, after=deployment(2, 0, "b")), ["scaled from 1 to 2", "one replica fewer"]),
        (changed(UPDATE, SERVER, after=deployment(0, 1)), ["from 1 to 0 replicas"]),
        (changed(DELETE, SERVER), ["Server llm/gemma is deleted"]),
        (changed(LEAVE, RUN), ["Run llm/tune-1 leaves the stack and continues"]),
        (changed(DELETE, job("tune-1", retained=False)), ["since the last checkpoint is lost"]),
        (changed(UPDATE, RECORD, after=record_of("b")), ["Run llm/pretrain moves to other nodes", "newest checkpoint"]),
        (changed(DELETE, SPACE), ["including those of other users"]),
        (changed(UPDATE, KUEUE), ["kueue restarts", "queued workloads stay queued"]),
        (
            changed(UPDATE, QUEUE, Difference("spec.x[0].nominalQuota", "6", "4")),
            ["The quota of", "changes", "running workloads continue"],
        ),
    ],
)
def test_interruptions_of_a_change_are_in_plain_words(change: Change, words: list[str]) -> None:
    text = " ".join(messages(change))
    for word in words:
        assert word in text


def test_download_that_ends_leaves_what_it_stored() -> None:
    inputs = {"metadata": {"name": "gemma-1a2b3c", "namespace": "model-cache"}}
    download = replace(RUN, urn="urn:download", inputs=inputs, retained=False)
    (text,) = messages(changed(DELETE, download))
    assert text.endswith("ends. What it has stored in its bucket stays there.")


def test_a_run_that_stays_without_its_owner_is_deleted() -> None:
    metadata = {"namespace": "llm", "annotations": {"gke-ai/owner": "of runs"}}
    inputs = {"kind": "ConfigMap", "metadata": {**metadata, "name": "runs-of-gke-ai-dev"}}
    owner = resource("kubernetes:core/v1:ConfigMap", "llm/runs-of-gke-ai-dev", inputs)
    reference = {"kind": "ConfigMap", "name": "runs-of-gke-ai-dev"}
    owned = replace(RUN, inputs={**RUN.inputs, "metadata": {**RUN.inputs["metadata"], "ownerReferences": [reference]}})
    (text,) = messages(changed(LEAVE, owned), changed(DELETE, owner))
    assert text == "Run llm/tune-1 is deleted. Its work since the last checkpoint is lost."
    (text,) = messages(changed(LEAVE, owned))
    assert "leaves the stack and continues" in text


def test_new_run_beside_the_old_one_is_reported() -> None:
    (text,) = messages(changed(LEAVE, RUN), Change(CREATE, job("tune-2"), None, job("tune-2")))
    assert text == "Run llm/tune-1 changed. llm/tune-2 is a new run beside it, and the old run continues to its end."


def test_harmless_changes_interrupt_nothing() -> None:
    labels = Difference("resourceLabels.team", "–", "research")
    assert messages(changed(UPDATE, CLUSTER, labels), Change(CREATE, POOL, None, POOL)) == []
    assert messages(changed(UPDATE, SERVER, Difference("metadata.labels.a", "–", "b"))) == []
    assert messages(changed(UPDATE, RECORD, after=record_of("a"))) == []


def test_worst_comes_first() -> None:
    interruptions_found = interruptions(
        PlannedUpdate(
            "dev",
            {},
            {},
            (changed(LEAVE, RUN), changed(DELETE, BUCKET), changed(UPDATE, KUEUE), changed(DELETE, SPACE)),
        )
    )
    assert interruptions_found[0].severity == OUTAGE
    assert "Namespace" in interruptions_found[0].text
    assert "Bucket" in interruptions_found[1].text


# The graph


def test_changes_have_a_symbol_besides_the_color() -> None:
    drawn = graph.of_plan(plan(preview("change")))
    marks = {box.name: box.operation for box in drawn.boxes.values()}
    assert marks["gpupool"] == REPLACE
    assert marks["tgi-gemma-deployment"] == UPDATE
    assert marks["datasets-emulator-project"] == CREATE
    assert marks["kueue"] is None
    for text in ("± gpupool<br/>GpuNodePool", "~ tgi-gemma-deployment<br/>TgiServer", "+ datasets-emulator-project"):
        assert text in graph.mermaid(drawn)


def test_edges_that_follow_from_others_are_not_drawn() -> None:
    assert graph.reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
    assert graph.acyclic({("a", "b"), ("b", "a")}) == {("a", "b")}


# What the cloud keeps


def test_warnings_of_the_program_are_on_the_page_and_those_of_plugins_are_not() -> None:
    kept = "gke-ai:cluster.authorizedNetworks is empty, but only 8.8.8.0/24 can still reach the control plane."
    events = [
        {"diagnosticEvent": {"severity": "warning", "message": f"{text}\n"}}
        for text in (kept, "unable to detect an upgrade")
    ]
    shown = written(trimmed("dev", [], [], events))
    assert f"## Warnings\n\n- {kept}" in shown.replace("\\", "")
    assert "detect" not in shown
    assert "## Warnings" not in written(trimmed("dev", [], [], []))


def test_removed_account_is_reported_if_gke_created_nodes() -> None:
    change = changed(DELETE, ACCOUNT)
    assert messages(change) == [], "node pools of the stack are replaced before their account goes"
    autopilot = resource("gcp:container/cluster:Cluster", "main", {"name": "main", "enableAutopilot": True})
    (text,) = (
        interruption.text
        for interruption in interruptions(PlannedUpdate("dev", {"c": autopilot}, {"c": autopilot}, (change,)))
    )
    assert "Service account gke-nodes is deleted. Nodes that GKE created itself keep running as it" in text
    assert interruptions(PlannedUpdate("dev", {"c": autopilot}, {}, (change,))) == [], "the cluster goes too"


def test_zones_that_only_the_cluster_knows_count_as_those_that_gke_takes() -> None:
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    pool = row("a", "g2-standard-8", nodeCount=1, location="us-central1", nodeLocations=unknown)
    assert found_in(pool) == [("onDemand", "nvidia-l4", 3, 3)]


def test_pool_that_leaves_a_zone_loses_its_nodes_in_it() -> None:
    after = row("l4", "g2-standard-24", nodeCount=3, nodeLocations=["y"])
    (text,) = (message for message in messages(changed(UPDATE, POOL, after=after)) if "leaves" in message)
    assert text == (
        "Node pool l4 leaves z. GKE deletes its nodes there, and pods move. Workloads on it: server llm/gemma and run "
        "llm/tune-1."
    )
