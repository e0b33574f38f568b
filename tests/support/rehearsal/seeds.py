"""Random scenarios, each with a random valid change: pure, and the same for the same seed."""

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from tests.support.rehearsal.scenario import Change, Pool, Run, Scenario
from tests.support.rehearsal.stack import problems

GPUS = NVIDIA_GPU
PRIORITIES = ("low", "middle", "high")
WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")
Section = dict[str, Any]
# Settings of Kueue's manager. Kueue writes past usage into the status of local queues once in an interval: until then a
# snapshot does not have what was admitted since.
_BY_USAGE = {"admissionFairSharing": {"usageHalfLifeSeconds": 600, "usageSamplingSeconds": 1}}
_FAIR: Section = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
SHARING: Mapping[str, Section] = {"tree": {}, "fair": _FAIR, "usage": _BY_USAGE, "both": {**_FAIR, **_BY_USAGE}}
COHORTS = ("c", "left", "right")


@dataclass(frozen=True)
class SeededCase(Change):
    """A change of a seed, in words."""

    seed: int
    text: str

    @property
    def is_configured(self) -> bool:
        """Whether the change is one of the configuration. Tenants submit and delete runs by themselves."""
        old, new = ([run for run in scenario.runs if run.kind == "Job"] for scenario in (self.scenario, self.changed))
        return old == new


def generate(seed: int) -> SeededCase:
    """The scenario and the change of a seed. The rules of the program allow both."""
    dice = random.Random(f"rehearsal {seed}")
    while True:
        scenario = _scenario(dice)
        if case := _allowed(f"seed-{seed}", seed, scenario, *_change(dice, scenario)):
            return case


def generate_shared(seed: int, sharing: str) -> SeededCase:
    """The same with a tree of cohorts, weights, and a Kueue that shares by `sharing`: a key of SHARING."""
    dice = random.Random(f"{sharing} {seed}")
    while True:
        scenario = _shared(dice, _scenario(dice), SHARING[sharing])
        change = dice.choice((_change, _change, _change_weight, _change_cohort, _move_queue))
        if case := _allowed(f"{sharing}-{seed}", seed, scenario, *change(dice, scenario)):
            return case


def _allowed(namespace: str, seed: int, scenario: Scenario, changed: Scenario, text: str) -> SeededCase | None:
    case = SeededCase(namespace, scenario, changed, seed, text)
    refused = changed == scenario or any(problems([(namespace, stage)]) for stage in (scenario, changed))
    return None if refused else case


random_case = cache(generate)
shared_case = cache(generate_shared)


def _scenario(dice: random.Random) -> Scenario:
    flavors = ["l4", "spot"][: dice.choice((1, 2))]
    pools = tuple(Pool(flavor, dice.randint(3, 8), "spot" if flavor == "spot" else "onDemand") for flavor in flavors)
    cohort = {"cohort": "c"} if dice.random() < 0.75 else {}
    names = ["serving", "training", "research"][: dice.choice((2, 2, 3))]
    queues = [_queue(dice, name, flavors, cohort) for name in names]
    section: Section = {
        "flavors": [{"name": flavor} for flavor in flavors],
        "priorityClasses": [{"name": name, "value": 10 * (level + 1)} for level, name in enumerate(PRIORITIES)],
        "clusterQueues": queues,
    }
    servers = [_server(dice, number) for number in range(dice.choice((1, 1, 2)))]
    runs = [_run(dice, number, names) for number in range(dice.randint(3, 6))]
    submitted = [*servers, *runs]
    dice.shuffle(submitted)
    return Scenario(section, tuple(submitted), pools=pools)


def _shared(dice: random.Random, scenario: Scenario, sharing: Section) -> Scenario:
    """A scenario whose queues are in a tree of cohorts, each with a second local queue."""
    section = copy.deepcopy(dict(scenario.queues))
    fair, by_usage = "fairSharing" in sharing, "admissionFairSharing" in sharing
    for queue in section["clusterQueues"]:
        queue |= {"cohort": dice.choice(COHORTS), **(_weight(dice) if fair else {})}
        queue |= {"admissionMode": "UsageBasedAdmissionFairSharing"} if by_usage else {}
    # The rules refuse a cohort without members.
    used = [name for name in COHORTS[1:] if any(queue["cohort"] == name for queue in section["clusterQueues"])]
    root = [_quota(dice, flavor["name"], False) for flavor in section["flavors"] if dice.random() < 0.5]
    below = [{"name": name, "parent": COHORTS[0], **(_weight(dice) if fair else {})} for name in used]
    section["cohorts"] = [{"name": COHORTS[0], "flavors": root}, *below]
    section["localQueues"] = [
        {"name": f"{name}-two", "namespace": "any", "clusterQueue": name, **(_weight(dice) if by_usage else {})}
        for name in _queues(scenario)
    ]
    runs = tuple(
        replace(run, queue=f"{run.queue}-two") if run.kind == "Job" and dice.random() < 0.5 else run
        for run in scenario.runs
    )
    return replace(scenario, queues={**section, **sharing}, runs=runs)


def _weight(dice: random.Random) -> Section:
    return {"fairSharing": {"weight": dice.choice(("1", "2", "3"))}}


def _queue(dice: random.Random, name: str, flavors: list[str], cohort: Section) -> Section:
    quotas = [_quota(dice, flavor, bool(cohort)) for flavor in flavors]
    strategy = {"queueingStrategy": "StrictFIFO"} if dice.random() < 0.2 else {}
    preemption = {"withinClusterQueue": dice.choice(WITHIN), "reclaimWithinCohort": dice.choice(RECLAIM)}
    return {"name": name, **cohort, **strategy, "preemption": preemption, "flavors": quotas}


def _quota(dice: random.Random, flavor: str, in_cohort: bool) -> Section:
    nominal = dice.randint(1, 6)
    limits: Section = {}
    if in_cohort and dice.random() < 0.3:
        limits["borrowingLimit"] = {GPUS: dice.randint(0, 3)}
    if in_cohort and dice.random() < 0.3:
        limits["lendingLimit"] = {GPUS: dice.randint(0, nominal)}
    return {"flavor": flavor, "quota": {GPUS: nominal}, **limits}


def _run(dice: random.Random, number: int, queues: list[str]) -> Run:
    return Run(f"run-{number}", dice.choice(queues), dice.choice((1, 1, 2, 2, 2)), dice.choice(PRIORITIES))


def _server(dice: random.Random, number: int) -> Run:
    gpus, replicas = dice.choice((1, 2)), dice.choice((1, 2, 3))
    return Run(f"server-{number}", "serving", gpus, dice.choice(("middle", "high")), "Deployment", replicas)


def _change(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    changes: list[tuple[int, Callable[[random.Random, Scenario], tuple[Scenario, str]]]] = [
        (4, _change_quota),
        (2, _change_limit),
        (2, _change_preemption),
        (1, _change_strategy),
        (1, _change_priority),
        (1, _swap_flavors),
        (1, _leave_cohort),
        (3, _add_run),
        (2, _add_server),
        (1, _remove_workload),
        (2, _scale_server),
        (1, _resize_server),
        (2, _change_pool),
    ]
    (change,) = dice.choices([change for _, change in changes], [weight for weight, _ in changes])
    return change(dice, scenario)


def _with(scenario: Scenario, queue: int, **keys: Any) -> Scenario:
    """The scenario with other keys of a cluster queue. None removes a key."""
    section = copy.deepcopy(dict(scenario.queues))
    own = section["clusterQueues"][queue] | keys
    section["clusterQueues"][queue] = {key: value for key, value in own.items() if value is not None}
    return replace(scenario, queues=section)


def _with_flavor(scenario: Scenario, queue: int, flavor: int, **keys: Any) -> Scenario:
    """The scenario with other keys of a flavor of a cluster queue. None removes a key."""
    flavors = copy.deepcopy(scenario.queues["clusterQueues"][queue]["flavors"])
    flavors[flavor] = {key: value for key, value in {**flavors[flavor], **keys}.items() if value is not None}
    return _with(scenario, queue, flavors=flavors)


def _pick(dice: random.Random, scenario: Scenario) -> tuple[int, int]:
    queues = scenario.queues["clusterQueues"]
    queue = dice.randrange(len(queues))
    return queue, dice.randrange(len(queues[queue]["flavors"]))


def _change_quota(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    (queue, flavor), quota = _pick(dice, scenario), dice.randint(0, 8)
    lent = scenario.queues["clusterQueues"][queue]["flavors"][flavor].get("lendingLimit")
    # Kueue refuses to lend more than the quota.
    limit = {"lendingLimit": {GPUS: min(quota, lent[GPUS])}} if lent else {}
    changed = _with_flavor(scenario, queue, flavor, quota={GPUS: quota}, **limit)
    return changed, f"{_name(scenario, queue)}: quota {_old(scenario, queue, flavor)} becomes {quota}"


def _change_limit(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    (queue, flavor), kind = _pick(dice, scenario), dice.choice(("borrowingLimit", "lendingLimit"))
    own = scenario.queues["clusterQueues"][queue]
    if "cohort" not in own:
        return _change_quota(dice, scenario)
    most = 4 if kind == "borrowingLimit" else own["flavors"][flavor]["quota"][GPUS]
    limit = dice.choice((None, *range(most + 1)))
    changed = _with_flavor(scenario, queue, flavor, **{kind: None if limit is None else {GPUS: limit}})
    return changed, f"{own['name']}: {kind} becomes {limit}"


def _change_preemption(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    queue, _ = _pick(dice, scenario)
    key, values = dice.choice((("withinClusterQueue", WITHIN), ("reclaimWithinCohort", RECLAIM)))
    value = dice.choice(values)
    preemption = {**scenario.queues["clusterQueues"][queue]["preemption"], key: value}
    return _with(scenario, queue, preemption=preemption), f"{_name(scenario, queue)}: {key} becomes {value}"


def _change_strategy(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    queue, _ = _pick(dice, scenario)
    strict = scenario.queues["clusterQueues"][queue].get("queueingStrategy") == "StrictFIFO"
    strategy = "BestEffortFIFO" if strict else "StrictFIFO"
    return _with(scenario, queue, queueingStrategy=strategy), f"{_name(scenario, queue)} becomes {strategy}"


def _change_priority(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    """A class gets another value, and a new run uses it. Submitted workloads keep the old value."""
    name, value = dice.choice(PRIORITIES), dice.choice((5, 15, 25, 35))
    classes = [
        {**entry, "value": value} if entry["name"] == name else entry for entry in scenario.queues["priorityClasses"]
    ]
    run = replace(_run(dice, 90, _queues(scenario)), priority=name)
    changed = replace(scenario, queues={**scenario.queues, "priorityClasses": classes}, runs=(*scenario.runs, run))
    return changed, f"priority class {name} becomes {value}, and {run.name} is submitted with it to {run.queue}"


def _swap_flavors(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    queue, _ = _pick(dice, scenario)
    flavors = scenario.queues["clusterQueues"][queue]["flavors"][::-1]
    return _with(scenario, queue, flavors=flavors), f"{_name(scenario, queue)}: the flavors change their order"


def _leave_cohort(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    queue, _ = _pick(dice, scenario)
    own = scenario.queues["clusterQueues"][queue]
    flavors = [{key: flavor[key] for key in ("flavor", "quota")} for flavor in own["flavors"]]
    changed = _with(scenario, queue, cohort=None if "cohort" in own else "c", flavors=flavors)
    return changed, f"{_name(scenario, queue)} {'leaves' if 'cohort' in own else 'joins'} the cohort"


def _change_weight(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    (queue, _), weight = _pick(dice, scenario), _weight(dice)
    return _with(
        scenario, queue, **weight
    ), f"{_name(scenario, queue)}: weight becomes {weight['fairSharing']['weight']}"


def _move_queue(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    (queue, _), cohort = _pick(dice, scenario), dice.choice(COHORTS)
    return _with(scenario, queue, cohort=cohort), f"{_name(scenario, queue)} moves to cohort {cohort}"


def _change_cohort(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    root, *others = scenario.queues["cohorts"]
    flavors = [_quota(dice, flavor["name"], False) for flavor in scenario.queues["flavors"]]
    changed = {**scenario.queues, "cohorts": [{**root, "flavors": flavors}, *others]}
    amounts = ", ".join(f"{quota['quota'][GPUS]} of {quota['flavor']}" for quota in flavors)
    return replace(scenario, queues=changed), f"the quota of the outermost cohort becomes {amounts}"


def _add_run(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    run = _run(dice, 91, _queues(scenario))
    return replace(scenario, runs=(*scenario.runs, run)), f"new run of {run.gpus} GPUs in {run.queue}, {run.priority}"


def _add_server(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    server = _server(dice, 92)
    text = f"new server of {server.replicas} × {server.gpus} GPUs, {server.priority}"
    return replace(scenario, runs=(*scenario.runs, server)), text


def _remove_workload(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    gone = dice.choice(scenario.runs)
    return replace(scenario, runs=tuple(run for run in scenario.runs if run != gone)), f"{gone.name} is removed"


def _scale_server(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    server, replicas = dice.choice([run for run in scenario.runs if run.kind == "Deployment"]), dice.randint(0, 4)
    changed = _with_run(scenario, server, replace(server, replicas=replicas))
    return changed, f"{server.name}: {server.replicas} replicas become {replicas}"


def _resize_server(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    server, gpus = dice.choice([run for run in scenario.runs if run.kind == "Deployment"]), dice.choice((1, 2))
    return _with_run(scenario, server, replace(server, gpus=gpus)), f"{server.name}: {server.gpus} GPUs become {gpus}"


def _change_pool(dice: random.Random, scenario: Scenario) -> tuple[Scenario, str]:
    pool, nodes = dice.choice(scenario.pools), dice.randint(1, 8)
    changed = replace(pool, max_nodes=nodes)
    pools = tuple(changed if other == pool else other for other in scenario.pools)
    return replace(scenario, pools=pools), f"pool {pool.name}: at most {pool.max_nodes} nodes become {nodes}"


def _with_run(scenario: Scenario, old: Run, new: Run) -> Scenario:
    return replace(scenario, runs=tuple(new if run == old else run for run in scenario.runs))


def _queues(scenario: Scenario) -> list[str]:
    return [queue["name"] for queue in scenario.queues["clusterQueues"]]


def _name(scenario: Scenario, queue: int) -> str:
    return _queues(scenario)[queue]


def _old(scenario: Scenario, queue: int, flavor: int) -> str:
    own = scenario.queues["clusterQueues"][queue]["flavors"][flavor]
    return f"{own['quota'][GPUS]} of {own['flavor']}"
