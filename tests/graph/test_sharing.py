"""Cohorts, weights and fair sharing as they are registered, alone, in a stack, and beside a Kueue of somebody else."""

from fractions import Fraction
from typing import Any

import pytest
import yaml

from gke_ai.catalog.kueue.cohort_tree import Member
from gke_ai.catalog.kueue.configuration import Demand
from gke_ai.components import ClusterQueue, GkeCluster, GpuNodePool, KueueStack
from gke_ai.components.arguments import Refused
from gke_ai.kube.kueue import ExistingKueue
from gke_ai.settings.model import Cohort, FairSharing, Preemption, Weight
from gke_ai.settings.resolved import needs
from tests.support.recorder import Record, configuration, load_stack, record, shared_record

NEVER = Preemption(within_cluster_queue="Never")
FLEET = "examples/shared-fleet.yaml"


@pytest.fixture(scope="module")
def fleet() -> Record:
    return shared_record(configuration(FLEET))


def specs(fleet: Record, kind: str) -> dict[str, dict[str, Any]]:
    return {item.object_name: dict(item.inputs["spec"]) for item in fleet.all(kind)}


def manager(fleet: Record) -> dict[str, Any]:
    values = fleet.one("Release", "kueue").inputs["values"]
    content: dict[str, Any] = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    return content


def test_cohorts_have_their_parent_weight_and_quota(fleet: Record) -> None:
    cohorts = specs(fleet, "Cohort")
    assert cohorts["research"] == {"parentName": "company", "fairSharing": {"weight": "3"}}
    (group,) = cohorts["company"].pop("resourceGroups")
    assert group["flavors"][0]["name"] == "l4"
    assert group["flavors"][0]["resources"][0] == {"name": "nvidia.com/gpu", "nominalQuota": "12"}
    assert cohorts["company"] == {}


def test_a_cohort_follows_its_parent_and_its_queues_follow_it(fleet: Record) -> None:
    assert {"Cohort company", "ResourceFlavor l4"} <= fleet.waits_for(fleet.one("Cohort", "research"))
    assert {"Cohort company", "Cohort research"} <= fleet.waits_for(fleet.one("ClusterQueue", "vision"))


def test_kueue_shares_by_weight_and_by_past_usage(fleet: Record) -> None:
    assert manager(fleet)["fairSharing"] == {"preemptionStrategies": ["LessThanInitialShare"]}
    usage = manager(fleet)["admissionFairSharing"]
    assert (usage["usageHalfLifeTime"], usage["usageSamplingInterval"]) == ("604800s", "300s")
    weights = {"nvidia.com/gpu": 1, "cpu": 0, "memory": 0, "ephemeral-storage": 0}
    assert usage["resourceWeights"] == weights, "a byte of memory would count as much as a GPU"
    plain = manager(shared_record(configuration("examples/training-job.yaml")))
    assert not {"fairSharing", "admissionFairSharing"} & plain.keys()


def test_queues_have_their_weight_and_their_order(fleet: Record) -> None:
    queues = specs(fleet, "ClusterQueue")
    assert queues["visitors"]["fairSharing"] == {"weight": "0"}
    assert queues["language"]["admissionScope"] == {"admissionMode": "UsageBasedAdmissionFairSharing"}
    assert "fairSharing" not in queues["vision"]
    local = {item.inputs["spec"]["clusterQueue"]: item for item in fleet.all("LocalQueue")}
    assert len(local) == 4
    assert fleet.one("LocalQueue", "evaluation").inputs["spec"]["fairSharing"] == {"weight": "0.5"}


def test_a_program_over_pools_has_cohorts_and_the_rules_of_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(parent: str) -> None:
        cluster = GkeCluster("c", name="c", mode="standard", location="us-central1", project="p")
        zones = ["us-central1-a"]
        pool = GpuNodePool("l4", cluster=cluster, machine_type="g2-standard-24", zones=zones, nodes_per_zone=3)
        KueueStack(
            "queue",
            cluster=cluster,
            queues=[ClusterQueue("a", pools=[pool], cohort="team", preemption=NEVER, fair_sharing=Weight(weight="2"))],
            cohorts=[Cohort(name="team", parent=parent), Cohort(name="all")],
            fair_sharing=FairSharing(),
        )

    recorded = record(lambda: program("all"), False, monkeypatch)
    assert recorded.one("Cohort", "team").inputs["spec"] == {"parentName": "all"}
    assert recorded.one("ClusterQueue", "a").inputs["spec"]["fairSharing"] == {"weight": "2"}
    with pytest.raises(Refused, match=r"cohort al does not exist.*Did you mean all\?"):
        record(lambda: program("al"), False, monkeypatch)


def amounts(**by_resource: int) -> dict[tuple[str, str], Fraction]:
    return {("f", name): Fraction(amount) for name, amount in by_resource.items()}


def test_a_queue_may_use_what_limits_on_the_way_to_the_root_let_it_use() -> None:
    root, team = Member("root", nominal=amounts(gpu=8)), Member("team", borrowing=amounts(gpu=3))
    own, other = Member("own", True, amounts(gpu=2)), Member("other", True, amounts(gpu=4), lending=amounts(gpu=1))
    far = Member("far", True, amounts(gpu=6))
    for child, parent in ((team, root), (own, team), (other, team), (far, root)):
        child.join(parent)
    cell = ("f", "gpu")
    assert [team.quota(cell), other.lends(cell), other.kept(cell)] == [3, 1, 3]
    assert root.quota(cell) == 8 + 3 + 6
    assert own.most(cell) == 3 + 3, "what the team has, and what it may borrow"
    assert other.most(cell) == 3 + 6, "what it keeps, too"
    assert far.most(cell) == 17


THEIRS = ExistingKueue("0.19.2", "kueue-system", "m", {}, cluster_queues={}, parents={"company": "lab", "lab": ""})


@pytest.mark.parametrize(
    ("demand", "cause"),
    [
        pytest.param(
            {"parents": {"lab": "company"}}, "would close a cycle: lab → company → lab", id="a cycle by theirs"
        ),
        pytest.param(
            {"parents": {"own": "labs"}}, "has cohort labs: Kueue would take it for one without", id="no parent"
        ),
        pytest.param({"parents": {"own": "company"}}, "", id="a parent of theirs"),
        pytest.param({"parents": {"company": "", "lab": "company"}}, "", id="ours replaces theirs"),
        pytest.param({"weights": "team"}, "does not share by weight: the weight of team", id="weights for nothing"),
        pytest.param({"by_usage": "team"}, "counts no past usage: team would order", id="usage for nothing"),
    ],
)
def test_a_kueue_of_somebody_else_is_asked_for_its_cohorts_and_shares(demand: dict[str, Any], cause: str) -> None:
    causes = [
        refusal.cause for refusal in THEIRS.refusals(Demand({}, (), **demand), {}) if "not ready" not in refusal.cause
    ]
    assert [cause in found for found in causes] == ([True] if cause else []), causes


def test_a_stack_beside_an_existing_kueue_states_its_cohorts_and_configures_nothing() -> None:
    values = configuration(FLEET)
    values["gke-ai:cluster"] = {"name": "lab", "mode": "existing", "location": "us-central1"}
    queues = values["gke-ai:queues"]
    queues["kueue"] = "existing"
    del queues["fairSharing"], queues["admissionFairSharing"]
    demand = needs.of_kueue(load_stack(values))
    assert demand.parents == {"company": "", "research": "company", "products": "company"}
    assert (demand.weights, demand.by_usage) == ("visitors", "language")
