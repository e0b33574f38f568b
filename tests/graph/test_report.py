"""The page for reviewers, from recorded previews: its contents, the same on each run, and without secrets."""

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
from gke_ai.review.report import changes, graph
from gke_ai.review.report.accelerators import supplies
from gke_ai.review.report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE, Change, Difference, PlannedUpdate
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
Resource = changes.Resource
each_recorded = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
TABLE: dict[str, Any] = yaml.load((ROOT / "tests/data/expected/report.yaml").read_text(), yaml.CSafeLoader)
# Tokens that were given when the previews were recorded.
CANARIES = ("hf_canary", "hf_emulator")


def written(found: Preview, **options: Any) -> str:
    """The page of a preview."""
    return page(changes.plan(found), verdict(found), Options(**options))


def test_page_equals_the_recorded_one(tmp_path: Path) -> None:
    source = previews.CHANGE.relative_to(ROOT)
    gke_ai("report", "--from", previews.CHANGE, "--output", tmp_path / "change.md")
    renew = f"If intended: emulator/run gke-ai report --from {source} --output {source.with_suffix('.md')}"
    assert (tmp_path / "change.md").read_text() == previews.CHANGE.with_suffix(".md").read_text(), renew


def test_page_counts_what_is_created_and_what_is_deleted() -> None:
    created, deleted = written(RECORDED["creation"]), written(RECORDED["deletion"])
    assert created.startswith("# Preview of `fresh`\n\n**22 created**. No running workload is interrupted.")
    assert "| onDemand | `nvidia-l4` | 0 | **6** |" in created
    assert deleted.startswith("# Preview of `mixed`\n\n**20 deleted, 2 retained**. **9 interruptions.**")
    assert "| onDemand | `nvidia-l4` | 6 | **0** |" in deleted
    assert "Run llm/finetune-gemma-l4 leaves the stack" in deleted


@each_recorded
def test_order_of_events_does_not_matter(recorded: Preview) -> None:
    mixed = random.Random(5)
    events = [event for event in recorded.events if "replacing" not in event]
    ordered = [event for event in recorded.events if "replacing" in event]
    resources, steps = (mixed.sample(items, len(items)) for items in (recorded.resources, recorded.steps))
    events = [*mixed.sample(events, len(events)), *ordered]
    other = replace(recorded, resources=tuple(resources), steps=tuple(steps), events=tuple(events))
    assert other != recorded
    assert written(other, graph=True) == written(recorded, graph=True)


@each_recorded
def test_no_secret_no_time_no_address_and_no_id_is_on_the_page(recorded: Preview) -> None:
    for text in (recorded.written(), written(recorded, graph=True, limit=0)):
        assert not [canary for canary in CANARIES if canary in text]
    text = written(recorded, limit=0)
    assert not re.search(r"\d\d:\d\d:\d\d|\b\d{1,3}(\.\d{1,3}){3}\b|[0-9a-f]{8}-[0-9a-f]{4}-|https?://", text)
    row_text = "| ± Secret llm/hf-secret | `data.hf_api_token` **forces replacement** | (secret) | (secret) |"
    assert (row_text in text) == (recorded is RECORDED["change"])


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
    assert changes.plan(trimmed_preview).after["u"].dependencies == {provider}


@pytest.mark.parametrize("limit", [COMMENT_LIMIT, 9_000, 4_000, 1_200, 400])
def test_page_fits_in_a_comment_and_lists_omitted_sections(limit: int) -> None:
    whole = written(RECORDED["change"], graph=True, limit=0)
    text = written(RECORDED["change"], graph=True, limit=limit)
    assert len(text) <= limit
    assert (SHORTENED in text) == (len(whole) > limit)
    assert text.count("<details>") == text.count("</details>")
    assert text.startswith("# Preview of `mixed`\n\n**2 replaced, 1 changed, 1 created**")


def test_long_page_keeps_interruptions_and_mandatory_violations_before_lists_of_names() -> None:
    whole = written(RECORDED["change"], graph=True, limit=0)
    text = written(RECORDED["change"], graph=True, limit=len(whole) - 1)
    assert "Node pool gpupool is replaced" in text
    assert "**mandatory**" in text
    assert "```mermaid" not in text


def equal_servers(count: int) -> PlannedUpdate:
    """A plan that creates so many servers, which differ only in their names."""
    names = [f"chat-{number}" for number in range(count)]
    created = [
        resource(type_, f"{kind}-{name}", {"metadata": {"name": name, "namespace": "llm"}})
        for name in names
        for kind, type_ in (("server", DEPLOYMENT), ("address", "kubernetes:core/v1:Service"))
    ]
    reads = "reads 5.2 GB by Cloud Storage at 1.00 GB/s: about 5 s, limited by Cloud Storage."
    return PlannedUpdate(
        "dev",
        {},
        {item.urn: item for item in created},
        tuple(Change(CREATE, item, after=item) for item in created),
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
    text = page(replace(equal_servers(60), cold_starts=sizes, warnings=()), Verdict(), Options(limit=12_000))
    assert text.partition("## Cold starts")[2].partition("## ")[0].count(SHORTENED) == 1
    assert SHORTENED not in text.partition("## Created")[2]


def test_failed_program_is_reported_with_its_own_errors_and_without_a_plan() -> None:
    events = ({"error": "2 problems; nothing was changed.\n"}, {"error": "an unhandled error occurred: status 1"})
    text = written(Preview("dev", RECORDED["change"].resources, (), events))
    assert "**The preview failed, so there is no plan.**" in text
    assert "```\n2 problems; nothing was changed.\n```" in text
    assert "unhandled error" not in text
    assert "Accelerators" not in text


def test_words_of_a_policy_can_not_break_the_page() -> None:
    words = "a | b\nc <script>alert()</script> [x](https://example.com) @someone *d*"
    broken = Verdict((Violation("mandatory", "p", "urn", words),), 1, 1)
    text = page(PlannedUpdate("dev", {}, {}, ()), broken, Options())
    (row,) = (line for line in text.splitlines() if line.startswith("| **mandatory**"))
    assert row.replace("\\|", "").count("|") == 5
    assert [part for part in ("<script>", "](", "@someone") if part in row] == []


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
    violations = verdict(Preview("dev", events=(result, result))).violations
    assert [violation.message for violation in violations] == ["Why."]


def test_command_fails_where_the_stack_can_not_be_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "creation.json").write_text(RECORDED["creation"].written())
    assert gke_ai("report", "--from", tmp_path / "creation.json", "--output", tmp_path / "report.md") == 0
    assert gke_ai("report", "--from", previews.CHANGE, "--output", tmp_path / "report.md") == 1
    assert "14 mandatory policy violations: the stack cannot be deployed." in capsys.readouterr().out


def test_graph_is_in_the_page_unless_it_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    gke_ai("report", "--from", previews.CHANGE)
    assert "```mermaid" in capsys.readouterr().out
    gke_ai("report", "--from", previews.CHANGE, "--graph", "none")
    assert "Graph" not in capsys.readouterr().out


def row(kind: str, machine: str = "", **inputs: Any) -> Resource:
    """A node pool."""
    config = {"machineType": machine, **inputs.pop("nodeConfig", {})}
    return resource("gcp:container/nodePool:NodePool", kind, {"name": kind, "nodeConfig": config} | inputs)


def resource(type_: str, name: str, inputs: Mapping[str, Any], **more: Any) -> Resource:
    """A resource of the stack."""
    return Resource(f"urn:pulumi:dev::gke-ai::{type_}::{name}", type_, inputs=inputs, **more)


def found_in(*given: Resource) -> list[tuple[str, str, int, int]]:
    """Capacity mode, accelerator, minimum and maximum of each place."""
    found = supplies({resource.urn: resource for resource in given})
    return [(supply.capacity, supply.accelerator, supply.min_count, supply.max_count) for supply in found]


@pytest.mark.parametrize("case", TABLE["pools"], ids=lambda case: case["machine"])
def test_pool_counts_by_its_bounds_and_its_kind_of_capacity(case: dict[str, Any]) -> None:
    system = row("system", "e2-standard-4", nodeCount=3)  # has no accelerators
    assert found_in(row("a", case["machine"], **case["inputs"]), system) == [tuple(case["counts"])]


def test_pool_keeps_its_name_when_a_new_one_comes_first() -> None:
    pools = [row("l4", "g2-standard-24", nodeCount=1, name=f"l4-{digits}") for digits in ("1a2b3c", "4d5e6f")]
    assert {pool.title for pool in pools} == {"node pool l4"}


@pytest.mark.parametrize("name", [path.stem for path in repository.examples()])
def test_accelerators_of_each_example_are_counted_once(name: str) -> None:
    record = shared_record(configuration(f"examples/{name}.yaml"), True)
    assert sorted(found_in(*resources(record))) == sorted(map(tuple, TABLE["examples"][name]))


def test_autoscaled_server_counts_by_the_bounds_of_its_autoscaler() -> None:
    pod = {"containers": [{"resources": {"limits": {"google.com/tpu": "8"}}}], "nodeSelector": {}}
    server, scaler = ({"metadata": {"name": name, "namespace": "llm"}} for name in ("server", "h"))
    bounds = {"spec": {"scaleTargetRef": {"name": "server"}, "minReplicas": 2, "maxReplicas": 5}}
    ((_, _, min_count, max_count),) = found_in(
        resource("kubernetes:apps/v1:Deployment", "s", server | {"spec": {"template": {"spec": pod}}}),
        resource("kubernetes:autoscaling/v2:HorizontalPodAutoscaler", "h", scaler | bounds),
    )
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
    text = written(RECORDED["change"], prices=priced(**{"g2-standard-24/onDemand": 2}))
    assert "- Not in the sums: no price for g2-standard-48/onDemand in us-central1." in text
    assert "| onDemand | `nvidia-l4` | 6 | **8** | 6.00 | no price |" in text
    both = priced(**{"g2-standard-24/onDemand": 2, "g2-standard-48/onDemand": 4})
    assert "| 6.00 | 8.00 |" in written(RECORDED["change"], prices=both)


@pytest.mark.parametrize(("content", "message"), TABLE["prices"])
def test_price_table_with_a_mistake_is_refused_with_the_remedy(content: object, message: str) -> None:
    with pytest.raises(prices.BadPrices) as refused:
        prices.parse(content)
    assert message in str(refused.value)


POOL = row("l4", "g2-standard-24", nodeCount=3, nodeLocations=["z"])


def placed(type_: str, name: str, spec: Mapping[str, Any], image: str | None = None, **more: Any) -> Resource:
    """A workload on the pool."""
    containers = [{"image": image, "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    template = {"template": {"spec": {"containers": containers}}}
    inputs = {"metadata": {"name": name, "namespace": "llm"}, "spec": {**spec, **template}}
    return resource(type_, f"llm/{name}", inputs, dependencies=frozenset([POOL.urn]), **more)


def deployment(replicas: int, surge: int, image: str = "a") -> Resource:
    """A server on the pool."""
    spec = {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": surge}}}
    return placed("kubernetes:apps/v1:Deployment", "gemma", spec, image)


def job(name: str, retained: bool = True) -> Resource:
    """A run on the pool."""
    return placed("kubernetes:batch/v1:Job", name, {"parallelism": 2}, parent="urn:component", retained=retained)


def record_of(pool: str) -> Resource:
    """The record of a training job on a pool."""
    inputs = {"metadata": {"name": "pretrain", "namespace": "llm", "annotations": {"gke-ai/nodes": pool}}}
    return resource("kubernetes:core/v1:ConfigMap", "llm/pretrain", inputs)


SERVER, RUN, RECORD = deployment(1, 1), job("tune-1"), record_of("a")
NODE_ACCOUNT = "urn:pulumi:dev::gke-ai::gke-ai:index:GkeCluster$gke-ai:index:NodeAccount::gke-nodes"
IDENTITY = {"accountId": "gke-nodes"}
ACCOUNT = resource("gcp:serviceaccount/account:Account", "main/gke-nodes", IDENTITY, parent=NODE_ACCOUNT)
CLUSTER = resource("gcp:container/cluster:Cluster", "main", {"name": "main"})
BUCKET = resource("gcp:storage/bucket:Bucket", "data", {"name": "data", "softDeletePolicy": {}})
SPACE = resource("kubernetes:core/v1:Namespace", "llm", {"metadata": {"name": "llm"}})
KUEUE = resource("kubernetes:helm.sh/v3:Release", "kueue", {"name": "kueue"})
QUEUE = resource("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "gpus", {"metadata": {"name": "gpus"}})
IMAGE = Difference("spec.template.spec.containers[0].image", "a", "b")
MACHINE = Difference("nodeConfig.machineType", "a", "b", replaces=True)


def interrupted(before: Mapping[str, Any], after: Mapping[str, Any], *made: Change) -> list[str]:
    return [interruption.text for interruption in interruptions(PlannedUpdate("dev", before, after, made))]


def messages(*made: Change) -> list[str]:
    """The interruptions of these changes, in a stack with a pool, a server and a run."""
    before = {resource.urn: resource for resource in (POOL, SERVER, RUN, CLUSTER, BUCKET, SPACE)}
    return interrupted(before, {**before, **{change.after.urn: change.after for change in made if change.after}}, *made)


def changed(operation: str, before: Resource, *differences: Difference, after: Resource | None = None) -> Change:
    """A change of one resource."""
    new = None if operation in (DELETE, LEAVE) else after or before
    return Change(operation, before, before, new, differences)


WITH_RDMA = replace(POOL, inputs={**POOL.inputs, "networkConfig": {"acceleratorNetworkProfile": "auto"}})
LOSES_NETWORK = changed(REPLACE, WITH_RDMA, after=POOL)
SMALLER = replace(POOL, inputs={**POOL.inputs, "nodeCount": 1})
LABEL, QUOTA = Difference("nodeConfig.labels.a", "–", "b"), Difference("spec.x[0].nominalQuota", "6", "4")
FIRST_CREATED = replace(changed(REPLACE, POOL, MACHINE), create_before_delete=True)
# The changes, and parts of the message.
INTERRUPTIONS: list[tuple[Change, str]] = [
    (changed(REPLACE, CLUSTER, MACHINE), "Everything in it stops and is recreated … server llm/gemma … run llm/tune-1"),
    (changed(DELETE, CLUSTER), "Cluster main is deleted with everything in it"),
    (changed(REPLACE, POOL, MACHINE), "because of nodeConfig.machineType … deletes the old pool first"),
    (changed(REPLACE, POOL, MACHINE), "Workloads on it: server llm/gemma and run llm/tune-1"),
    (FIRST_CREATED, "creates the new pool first … disruption budgets … You pay for both … server llm/gemma"),
    (LOSES_NETWORK, "deletes the old pool first … It loses its network … it has no `rdma: true`"),
    (changed(DELETE, POOL), "is deleted with its nodes … server llm/gemma"),
    (changed(UPDATE, POOL, after=SMALLER), "shrinks from 3 to 1 nodes"),
    (changed(UPDATE, POOL, LABEL), "nodeConfig.labels.a … recreate them one by one"),
    (changed(DELETE, BUCKET), "is deleted with its data … Its objects cannot be restored"),
    (changed(LEAVE, BUCKET), "keeps its data (onDestroy: keep)"),
    (changed(UPDATE, SERVER, IMAGE), "with one extra pod … 2 nvidia.com/gpu free"),
    (changed(UPDATE, SERVER, IMAGE, after=deployment(1, 0, "b")), "does not answer until the new replica"),
    (changed(UPDATE, SERVER, IMAGE, after=deployment(2, 0, "b")), "scaled from 1 to 2 … one replica fewer"),
    (changed(UPDATE, SERVER, after=deployment(0, 1)), "from 1 to 0 replicas"),
    (changed(DELETE, SERVER), "Server llm/gemma is deleted"),
    (changed(LEAVE, RUN), "Run llm/tune-1 leaves the stack and continues"),
    (changed(DELETE, job("tune-1", retained=False)), "since the last checkpoint is lost"),
    (changed(UPDATE, RECORD, after=record_of("b")), "Run llm/pretrain moves to other nodes … newest checkpoint"),
    (changed(DELETE, SPACE), "including those of other users"),
    (changed(UPDATE, KUEUE), "kueue restarts … queued workloads stay queued"),
    (changed(UPDATE, QUEUE, QUOTA), "The quota of … changes … running workloads continue"),
]


@pytest.mark.parametrize(("change", "parts"), INTERRUPTIONS, ids=[parts for _, parts in INTERRUPTIONS])
def test_interruptions_of_a_change_are_in_plain_words(change: Change, parts: str) -> None:
    text = " ".join(messages(change))
    assert [part for part in parts.split(" … ") if part not in text] == []


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
    made = (changed(LEAVE, RUN), changed(DELETE, BUCKET), changed(UPDATE, KUEUE), changed(DELETE, SPACE))
    worst, second, *_ = interruptions(PlannedUpdate("dev", {}, {}, made))
    assert worst.severity == OUTAGE
    assert "Namespace" in worst.text
    assert "Bucket" in second.text


def test_changes_have_a_symbol_besides_the_color() -> None:
    drawn = graph.of_plan(changes.plan(RECORDED["change"]))
    marks = {box.name: box.operation for box in drawn.boxes.values()}
    expected = {"gpupool": REPLACE, "tgi-gemma-deployment": UPDATE, "datasets-emulator-project": CREATE, "kueue": None}
    assert {name: marks[name] for name in expected} == expected
    for text in ("± gpupool<br/>GpuNodePool", "~ tgi-gemma-deployment<br/>TgiServer", "+ datasets-emulator-project"):
        assert text in graph.mermaid(drawn)


def test_edges_that_follow_from_others_are_not_drawn() -> None:
    assert graph.reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
    assert graph.acyclic({("a", "b"), ("b", "a")}) == {("a", "b")}


def test_warnings_of_the_program_are_on_the_page_and_those_of_plugins_are_not() -> None:
    kept = "gke-ai:cluster.authorizedNetworks is empty, but only 8.8.8.0/24 can still reach the control plane."
    texts = (kept, "unable to detect an upgrade")
    events = [{"diagnosticEvent": {"severity": "warning", "message": f"{text}\n"}} for text in texts]
    shown = written(trimmed("dev", [], [], events))
    assert f"## Warnings\n\n- {kept}" in shown.replace("\\", "")
    assert "detect" not in shown
    assert "## Warnings" not in written(trimmed("dev", [], [], []))


def test_removed_account_is_reported_if_gke_created_nodes() -> None:
    change = changed(DELETE, ACCOUNT)
    assert messages(change) == [], "node pools of the stack are replaced before their account goes"
    autopilot = {"c": resource("gcp:container/cluster:Cluster", "main", {"name": "main", "enableAutopilot": True})}
    (text,) = interrupted(autopilot, autopilot, change)
    assert "Service account gke-nodes is deleted. Nodes that GKE created itself keep running as it" in text
    assert interrupted(autopilot, {}, change) == [], "the cluster goes too"


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
