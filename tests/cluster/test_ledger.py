"""Only here: the ledger's CronJob holds and releases queues of the real Kueue, and neither Pulumi nor a member does.

The month's budget is a few accelerator-seconds, so it runs out within a minute.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from gke_ai.catalog.kueue.ledger import BUDGET, HELD, LEDGER, NAMESPACE
from gke_ai.kube.objects import condition
from tests.support.emulator import Emulator, deployed, eventually
from tests.support.ledger import local_queue, stored
from tests.support.tenants import AUTOPILOT, OTHERS, OWN, TWO, Credential, created, job, running, spec

Object = dict[str, Any]
# What one GPU uses in 100 seconds.
HOURS = 0.028
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def sections(hours: float = HOURS) -> Object:
    """Two teams: a budget for one, and for the other a queue that is closed for all but one minute of the week."""
    content = deepcopy(TWO)
    content["training"] = []
    content["tenants"][0]["budget"] = {"acceleratorHours": hours, "warnAt": 0.3}
    closed = {"name": "closed", "namespace": "team-b", "clusterQueue": "team-b"}
    content["queues"]["localQueues"].append({**closed, "hours": [{"days": ["sun"], "start": "23:59", "end": "24:00"}]})
    return content


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    """The deployed stack. The tests below use it in order."""
    with deployed(AUTOPILOT, sections()) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def team_a(shared: Emulator) -> Credential:
    return Credential(shared, "team-a")


def notes(shared: Emulator, name: str = OWN, namespace: str = "team-a") -> dict[str, str]:
    found: dict[str, str] = local_queue(shared, name, namespace)["metadata"].get("annotations", {})
    return {key: found[key] for key in (BUDGET, HELD) if key in found}


def policy(shared: Emulator, name: str = OWN, namespace: str = "team-a") -> str:
    return str(local_queue(shared, name, namespace)["spec"]["stopPolicy"])


def reason(team: Credential, name: str) -> str:
    """Why the Workload of a Job waits."""
    found = [item for item in team.read("Workload").content["items"] if f"job-{name}-" in item["metadata"]["name"]]
    return str(condition(found[0], "QuotaReserved").get("message", "")) if found else ""


def test_budget_warns_with_the_date_then_holds_new_work_and_never_ends_what_runs(
    shared: Emulator, team_a: Credential
) -> None:
    created(team_a.create(job(spec(), OWN, "first")))
    eventually(lambda: running(team_a, "job-name=first"), "the first Job runs")
    (before,) = (pod["metadata"]["uid"] for pod in team_a.read("Pod").content["items"])
    warned = eventually(
        lambda: (text := notes(shared).get(BUDGET, "")).startswith("warning: used 0.0") and text, "it warns", 150
    )
    assert re.search(r"of 0\.028 accelerator-hours; at this rate exhausted on \d+ [A-Z][a-z]+$", warned), warned
    assert policy(shared) == "None"
    eventually(lambda: HELD in notes(shared), "the queue is held", 200)
    assert policy(shared) == "Hold"
    created(team_a.create(job(spec(), OWN, "second")))
    eventually(lambda: reason(team_a, "second").startswith(f"LocalQueue {OWN} is "), "the second Job waits")
    pods = team_a.read("Pod").content["items"]
    assert [pod["metadata"]["uid"] for pod in pods] == [before], "nothing was killed, nothing started"
    assert running(team_a, "job-name=first")


def test_status_says_what_is_used_and_why_the_run_waits(shared: Emulator) -> None:
    printed = " ".join(shared.run("env", "COLUMNS=400", "gke-ai", "status", "--stack", "test").split())
    assert re.search(r"held by budget used 0\.\d+ of 0\.028 accelerator-hours; new work waits until 1 [A-Z]", printed)
    assert "the ledger is current" in printed


def test_second_up_changes_nothing_while_a_hold_is_on(shared: Emulator) -> None:
    assert shared.planned() == {}
    shared.make("up", shared.configure(AUTOPILOT, **sections()))
    assert (policy(shared), HELD in notes(shared)) == ("Hold", True)
    shared.pulumi("refresh", "--yes")
    assert shared.planned() == {}


def test_member_neither_releases_the_hold_nor_reaches_a_ledger(team_a: Credential) -> None:
    kueue = "apis/kueue.x-k8s.io/v1beta2/namespaces/team-a"
    writes: list[Object] = [
        {"spec": {"stopPolicy": "None"}},
        {"metadata": {"annotations": {BUDGET: "used 0", HELD: None}}},
        {"metadata": {"managedFields": [{}]}},
    ]
    for change in writes:
        assert team_a.change("LocalQueue", OWN, change).status == 403
    assert team_a.ask("DELETE", f"{kueue}/localqueues/{OWN}").status == 403
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "mine"}}
    assert team_a.create({**body, "spec": {"clusterQueue": "team-a"}}).status == 403
    (workload, *_) = (item["metadata"]["name"] for item in team_a.read("Workload").content["items"])
    statuses: list[Object] = [{"accumulatedPastExecutionTimeSeconds": 0}, {"conditions": []}]
    for status in statuses:
        assert team_a.ask("PATCH", f"{kueue}/workloads/{workload}/status", {"status": status}).status == 403
        assert team_a.change("Workload", workload, {"status": status}).status == 403
    for method, path in (
        ("GET", f"api/v1/namespaces/{NAMESPACE}/configmaps"),
        ("GET", f"api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER}"),
        ("PATCH", f"api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER}"),
        ("DELETE", f"api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER}"),
        ("PATCH", f"apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{LEDGER}"),
        ("POST", f"api/v1/namespaces/{NAMESPACE}/serviceaccounts/{LEDGER}/token"),
        ("POST", f"api/v1/namespaces/{NAMESPACE}/pods"),
        ("GET", f"apis/kueue.x-k8s.io/v1beta2/namespaces/team-b/localqueues/{OTHERS}"),
    ):
        assert team_a.ask(method, path, {} if method in ("PATCH", "POST") else None).status == 403, (method, path)


def test_member_finds_no_way_around_a_held_queue(team_a: Credential) -> None:
    for queue, words in ((None, "without a queue"), (OTHERS, "uses a queue that team-a does not have")):
        assert words in team_a.create(job(spec(), queue, "around"), try_only=True).message
    label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": OTHERS}}}
    assert team_a.change("Job", "second", label).status >= 400


def test_ledgers_account_may_do_nothing_else(shared: Emulator) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{LEDGER}"
    for verb, kind, namespace in (
        ("patch", "localqueues", "team-b"),
        ("delete", "localqueues", "team-a"),
        ("update", "workloads", "team-a"),
        ("delete", "workloads", "team-a"),
        ("patch", "clusterqueues", "default"),
        ("get", "secrets", "team-a"),
        ("get", "secrets", NAMESPACE),
        ("delete", "configmaps", NAMESPACE),
        ("update", "configmaps", NAMESPACE),
        ("create", "pods", NAMESPACE),
    ):
        place = ("-n", namespace, account)
        asked = ("kubectl", "--kubeconfig", shared.kubeconfig(), "auth", "can-i", verb, kind, *place)
        assert shared.run(*asked, fails=True).strip().endswith("no"), (verb, kind, namespace)


def test_queue_outside_its_hours_holds_new_work_and_says_when_it_opens(shared: Emulator) -> None:
    eventually(lambda: policy(shared, "closed", "team-b") == "Hold", "the queue is held", 100)
    assert notes(shared, "closed", "team-b") == {HELD: "hours: new work waits until Sunday 23:59 (UTC)"}
    assert policy(shared, OTHERS, "team-b") == "None"


def test_larger_budget_releases_the_ledgers_hold_and_not_that_of_a_person(shared: Emulator, team_a: Credential) -> None:
    shared.make("up", shared.configure(AUTOPILOT, **sections(hours=500)))
    eventually(lambda: policy(shared) == "None", "the queue is released", 150)
    eventually(lambda: running(team_a, "job-name=second"), "the second Job runs")
    assert HELD not in notes(shared)
    hold = '{"spec":{"stopPolicy":"HoldAndDrain"}}'
    shared.kubectl("patch", "localqueue", OWN, "-n", "team-a", "--type=merge", "-p", hold)
    at = stored(shared)["at"]
    eventually(lambda: stored(shared)["at"] > at + 60, "two runs later", 200)
    assert policy(shared) == "HoldAndDrain"


def test_while_the_ledger_is_down_nothing_changes_and_status_says_since_when(
    shared: Emulator, team_a: Credential
) -> None:
    shared.kubectl("patch", "localqueue", OWN, "-n", "team-a", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    shared.kubectl("patch", "cronjob", LEDGER, "-n", NAMESPACE, "-p", '{"spec":{"suspend":true}}')
    shared.kubectl("delete", "jobs", "--all", "-n", NAMESPACE, "--wait=true")
    eventually(lambda: running(team_a, "job-name=second"), "work is admitted without the ledger")
    content = stored(shared) | {"at": stored(shared)["at"] - 7200}
    data = json.dumps({"data": {"ledger.json": json.dumps(content)}})
    shared.kubectl("patch", "configmap", LEDGER, "-n", NAMESPACE, "--type=merge", "-p", data)
    printed = " ".join(shared.run("env", "COLUMNS=400", "gke-ai", "status", "--stack", "test").split())
    assert re.search(r"is old: last read 2 h ago, at \d{4}-\d\d-\d\d \d\d:\d\d UTC", printed), printed
