"""The ledger's CronJob: its rights, its pod, and what it gets from the configuration."""

import json
from decimal import Decimal
from functools import partial
from typing import Any

import pulumi
import pytest

from gke_ai.catalog.kueue.ledger import KEY, LEDGER, NAMESPACE
from gke_ai.catalog.machines.list_prices import LIST_PRICES
from gke_ai.components import Tenant
from gke_ai.program.ledger import rate_of
from gke_ai.review.report.budgets import budgets
from gke_ai.review.report.changes import PlannedUpdate, Resource
from gke_ai.settings.model import Budget
from gke_ai.settings.resolved.needs import external_hosts, of_kueue
from gke_ai.workspace.prices import Prices
from tests.support.mistakes import base
from tests.support.recorder import Record, Registration, load_stack, shared_record

good = partial(base, "budgets")


def config(**more: Any) -> dict[str, Any]:
    return {f"gke-ai:{key}": value for key, value in {**good(), **more}.items()}


@pytest.fixture(scope="module")
def record() -> Record:
    return shared_record(config(), False)


def read_by_the_program(record: Record) -> dict[str, Any]:
    (found,) = (item for item in record.all("ConfigMap") if "budgets.json" in item.inputs.get("data", {}))
    content: dict[str, Any] = json.loads(found.inputs["data"]["budgets.json"])
    return content


def test_program_gets_budgets_hours_and_prices_with_their_date(record: Record) -> None:
    content = read_by_the_program(record)
    assert content["budgets"] == {
        "team-a": {
            "acceleratorHours": 500.0,
            "amount": 2000.0,
            "warnAt": 0.9,
            "rates": {"l4": 1.0},
            "currency": "USD",
            "date": "2026-11-20",
        }
    }
    assert content["timeZone"] == "Europe/Berlin"
    held = {(queue["namespace"], queue["name"]): len(queue["hours"]) for queue in content["queues"]}
    assert held == {("team-a", "lq"): 0, ("team-a", "night"): 2}


def named(record: Record, kind: str) -> list[Registration]:
    """The ledger's objects of a kind."""
    return [item for item in record.all(kind) if item.inputs["metadata"]["name"] == NAMESPACE]


def test_ledger_may_read_workloads_and_change_only_the_queues_that_it_holds(record: Record) -> None:
    (reads,) = record.one("ClusterRole", NAMESPACE).inputs["rules"]
    assert (reads["resources"], reads["verbs"]) == (["workloads"], ["list", "watch"])
    roles = {role.inputs["metadata"]["namespace"]: role.inputs["rules"] for role in named(record, "Role")}
    (changes,) = roles.pop("team-a")
    assert (changes["resources"], changes["verbs"]) == (["localqueues"], ["get", "patch"])
    assert changes["resourceNames"] == ["lq", "night"]
    create, own = roles.pop(NAMESPACE)
    assert (create["resources"], create["verbs"]) == (["configmaps"], ["create"])
    assert (own["verbs"], own["resourceNames"]) == (["get", "update"], [LEDGER])
    assert roles == {}
    for binding in (record.one("ClusterRoleBinding", NAMESPACE), *named(record, "RoleBinding")):
        (subject,) = binding.inputs["subjects"]
        assert (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", LEDGER, NAMESPACE)


def test_pulumi_registers_neither_the_ledger_nor_the_fields_that_it_writes(record: Record) -> None:
    assert not [item for item in record.all("ConfigMap") if item.inputs["metadata"]["name"] == LEDGER]
    assert not any(KEY in item.inputs.get("data", {}) for item in record.all("ConfigMap"))
    for queue in record.all("LocalQueue"):
        assert "stopPolicy" not in queue.inputs["spec"]
        assert "annotations" not in queue.inputs["metadata"]


def test_run_is_restricted_and_alone_and_starts_each_minute(record: Record) -> None:
    spec = record.one("CronJob").inputs["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    template = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    assert "@sha256:" in container["image"]
    assert template["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"].keys() == {"requests", "limits"}
    (space,) = (item for item in record.all("Namespace") if item.inputs["metadata"]["name"] == NAMESPACE)
    assert space.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {"LocalQueue lq", "LocalQueue night"} <= record.waits_for(record.one("CronJob"))


def test_stack_without_budgets_and_hours_has_no_ledger() -> None:
    plain = {f"gke-ai:{key}": value for key, value in base("tenants", "good").items()}
    assert not shared_record(plain, False).all("CronJob")
    assert "ledger" not in external_hosts(load_stack(plain)).values()


def test_image_and_namespace_of_the_ledger_are_among_the_needs_of_the_stack() -> None:
    stack = load_stack(config(serving=[], training=[]))
    assert external_hosts(stack)["docker.io"] == "ledger"
    assert NAMESPACE in of_kueue(stack).unqueued


def test_rate_is_the_machines_price_by_accelerator_and_the_highest_of_several_pools() -> None:
    stack = load_stack(config())
    (flavor,) = stack.flavors
    (pool,) = flavor.pools
    section = pool.section
    prices = Prices("EUR", "2026-11-20", {f"{section.node_machine_type}/{section.capacity.mode}": Decimal(3)})
    assert rate_of(flavor, prices) == (Decimal(3) / section.accelerators_per_node, "2026-11-20")


def test_amount_without_a_table_counts_by_google_s_list_prices() -> None:
    values = config()
    del values["gke-ai:prices"]
    (rates,) = {
        json.dumps(own["rates"]) for own in read_by_the_program(shared_record(values, False))["budgets"].values()
    }
    assert json.loads(rates)["l4"] == pytest.approx(
        float(LIST_PRICES["us-central1", "g2-standard-24/onDemand"].per_hour) / 2
    )


def test_flavor_without_a_price_is_refused_by_name_and_not_counted_as_nothing() -> None:
    (flavor,) = load_stack(config()).flavors
    with pytest.raises(pulumi.RunError, match=r"no price for g2-standard-24/[a-zA-Z]+, which flavor l4 has"):
        rate_of(flavor, Prices("EUR", "2026-11-20", {"g2-standard-24/reservation": Decimal(1)}))


def test_tenant_alone_refuses_a_budget_that_nothing_would_keep(build: Any) -> None:
    arguments = {"namespace": "team-a", "local_queues": ["training"]}
    with pytest.raises(pulumi.RunError, match=r"Pass it to Ledger\(budgets=…\)"):
        build(Tenant, arguments, budget=Budget(accelerator_hours=5))


def test_report_of_a_preview_says_the_budgets_before_and_after(record: Record) -> None:
    (found,) = (item for item in record.all("ConfigMap") if "budgets.json" in item.inputs.get("data", {}))
    resource = Resource(found.urn, "kubernetes:core/v1:ConfigMap", inputs=found.inputs)
    text = "`team-a`: 500 accelerator-hours and 2,000 USD at prices of 2026-11-20 a month, warning from 90%"
    assert list(budgets(PlannedUpdate("prod", {}, {"a": resource}, ()))) == [text]
    other = {"a": Resource("b", "kubernetes:core/v1:Namespace")}
    assert list(budgets(PlannedUpdate("prod", other, {"a": resource}, ()))) == [f"{text}, before: no budget"]
