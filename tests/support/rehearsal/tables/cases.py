"""Cases of Kueue's test tables: the objects of a cluster with the state of a case, and what Kueue should decide."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from gke_ai.catalog.fabric.topology import is_supported
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.snapshot.format import shift
from tests.support.rehearsal.fates import conditions
from tests.support.rehearsal.scenario import make
from tests.support.rehearsal.tables import topology
from tests.support.rehearsal.tables.configuration import Configuration, configuration
from tests.support.rehearsal.tables.decisions import Decision, admission, eviction, is_preempted, preemption
from tests.support.rehearsal.tables.source import Table, tables

Object = dict[str, Any]
# Those of earlier releases are not compared: the program uses no topology with them.
TOPOLOGY = ("TestScheduleForTAS", "TestScheduleForTASPreemption", "TestScheduleForTASCohorts", topology.PLACEMENT)
# The tables whose cases have a state that a cluster can have, and a cycle that it can run.
COMPARED = (
    *("TestPreemption", "TestHierarchicalPreemptions", "TestFairPreemptions", "TestSchedule"),
    *("TestScheduleForFairSharing", "TestScheduleForAFS", "TestScheduleConcurrentAdmission", *TOPOLOGY),
)
# The label `dep` of the namespaces in runScheduleTestCases: pkg/scheduler/scheduler_test.go in Kueue's module.
DEPARTMENTS = {"eng-alpha": "eng", "eng-beta": "eng", "eng-gamma": "eng", "sales": "sales", "lend": "lend"}
# A cluster queue with a missing flavor is inactive. Each case has such a flavor, so that its queues become active at
# the same time, and one cycle of the scheduler sees all its workloads.
GATE = "gate"
GATE_RESOURCE = "example.com/gate"
# With it, and without that Job, Kueue finishes a workload.
JOB_LABEL = "kueue.x-k8s.io/job-uid"
# Parts of names of cases of topology with a pass of the scheduler that runs disagree about. Kueue delays that of the
# last, so the contender is alone in its cycle. Each still gets a node of its own.
DISAGREED = (
    *("second pass; slices", "second pass; podspec constraints", "gets QuotaReserved only"),
    "second pass replacement must not",
)
# Objects without a time of creation are the oldest in the tables.
OLDEST = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class TableCase:
    """A case. Names of objects in a cluster begin with `id`, so that cases share a cluster without meeting.

    Attributes:
        table: Name of the Go test.
        name: Name of the case in its table.
        id: A short name.
        configuration: Configuration of Kueue.
        printed: When the table was printed, which is "now" in its times.
        queues: Flavors, cohorts, cluster queues and local queues. Nothing can be admitted until `gate` opens.
        workloads: The Workloads, with uid, times and status.
        nodes: The nodes of its flavors with topology, and the pods that use them.
        expected: What Kueue decides in its next cycle, as the table says.
        later: Workloads that this cycle leaves in a queue. They may be decided on in the next one.
        names: Names of the workloads in the table, by uid.
        reason: Why the case can't be compared. Empty if it can.
    """

    table: str
    name: str
    id: str
    configuration: Configuration
    printed: datetime
    queues: tuple[Object, ...] = field(repr=False)
    workloads: tuple[Object, ...] = field(repr=False)
    nodes: tuple[Object, ...] = field(repr=False)
    expected: frozenset[Decision]
    later: frozenset[str]
    names: Mapping[str, str] = field(repr=False)
    reason: str = ""
    usage: Mapping[str, Object] = field(default_factory=dict, repr=False)
    """What local queues consumed in the past, by their names in the cluster."""

    @property
    def title(self) -> str:
        return f"{self.table}: {self.name}"

    @property
    def gate(self) -> Object:
        """What opens the case: the flavor that activates its queues, or the end of the Workload that fills them.

        Kueue reads past usage from local queues of active cluster queues alone: localqueue_controller.go, Reconcile.
        """
        if self.usage:
            return make("Workload", f"{self.id}-{GATE}", "table-default")
        return make("ResourceFlavor", f"{self.id}-{GATE}", spec={})


@cache
def cases(release: str = KUEUE_VERSION) -> tuple[TableCase, ...]:
    """The cases of the compared tables of a release."""
    compared = {*COMPARED} - {*(() if is_supported(release) else TOPOLOGY)}
    chosen = sorted((table for table in tables(release) if table["test"] in compared), key=lambda it: str(it["test"]))
    numbered = enumerate((table, name) for table in chosen for name in sorted(table["cases"]))
    return tuple(_Reader(f"t{number:03}", table, name).case() for number, (table, name) in numbered)


def left_out(release: str = KUEUE_VERSION) -> Counter[str]:
    """How many cases of a release are not compared, by reason."""
    found = Counter(case.reason for case in cases(release) if case.reason)
    for table in tables(release):
        if table["test"] in TOPOLOGY and not is_supported(release):
            found["topology in a release with which the program uses none"] += len(table["cases"])
    return found


def namespaces() -> Iterator[Object]:
    for name in ("default", *DEPARTMENTS):
        labels = {"dep": DEPARTMENTS[name]} if name in DEPARTMENTS else {}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"table-{name}", "labels": labels}}


def _plain(name: str) -> str:
    """A name as Kubernetes accepts it. The tests of a table need no API server that checks names."""
    return name.lower().replace("_", "-")


def key_of(workload: Object) -> str:
    """Namespace and name of a workload in a table, as `workload.Key` in Kueue writes them."""
    return f"{workload['metadata'].get('namespace', '')}/{workload['metadata']['name']}"


def is_refused_workload(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue's API refuses a workload of a table, whose test has no API: pkg/webhooks/workload_webhook.go.

    Several pod sets have a minimum, or one has a slice with its level or its size alone.
    """
    pod_sets = workload["spec"]["podSets"]
    asked = [pod_set.get("topologyRequest") or {} for pod_set in pod_sets]
    half = any(("podSetSliceRequiredTopology" in item) != ("podSetSliceSize" in item) for item in asked)
    return half or sum("minCount" in pod_set for pod_set in pod_sets) > 1


def is_refused_queue(queue: Mapping[str, Any]) -> bool:
    """Whether Kueue's API refuses a cluster queue: pkg/webhooks/clusterqueue_webhook.go, and its CRD.

    It borrows by preemption but never reclaims, or a resource is in two groups.
    """
    stated = queue["spec"].get("preemption") or {}
    borrows = (stated.get("borrowWithinCohort") or {}).get("policy", "Never") != "Never"
    groups = queue["spec"].get("resourceGroups") or ()
    resources = [resource for group in groups for resource in group.get("coveredResources") or ()]
    repeated = len(set(resources)) < len(resources)
    return repeated or bool(borrows and stated.get("reclaimWithinCohort", "Never") == "Never")


class _Reader:
    def __init__(self, id_: str, table: Table, name: str) -> None:
        self._id, self._table, self._name = id_, str(table["test"]), name
        self._shared: Object = table["shared"].get("cfg") or table["shared"]
        case: Object = table["cases"][name]
        self._case = topology.scheduled(case) if self._table == topology.PLACEMENT else case
        self._printed = datetime.fromisoformat(table["printed"])
        self._incoming = self._case.get("incoming")
        self._before: list[Object] = [*(self._case.get("admitted") or self._case.get("workloads") or ())]
        self._whole = [*self._before, *([self._incoming] if self._incoming else [])]
        self._local_queues = [*(self._shared.get("queues") or ()), *(self._case.get("additionalLocalQueues") or ())]
        self._cluster_queues = self._used_queues()
        self._usage = {self._named(name): used for name, used in (self._case.get("initialUsage") or {}).items()}
        ordered = sorted(
            self._whole, key=lambda item: (item["metadata"].get("uid") or item["metadata"]["name"], key_of(item))
        )
        self._nodes = topology.nodes(self._case, id_, self._named)
        # Kueue orders equal workloads by uid. A uid in a cluster is a UUID: these have the order of the table's.
        number = int(id_[1:])
        self._uids = {key_of(item): str(uuid.UUID(int=number << 96 | at)) for at, item in enumerate(ordered, 1)}

    def case(self) -> TableCase:
        nodes = (*self._nodes.values(), *topology.pods(self._case, self._id, "table-default", self._nodes))
        later = frozenset(key for keys in (self._case.get("wantLeft") or {}).values() for key in keys)
        names = {uid: key for key, uid in self._uids.items()}
        stated = self._table, self._name, self._id, self._configuration(), self._printed
        state = tuple(self._queues()), tuple(self._workloads()), nodes
        return TableCase(*stated, *state, frozenset(self._expected()), later, names, self._reason(), self._usage)

    def _reason(self) -> str:
        if self._case.get("objects"):
            return "an object that no snapshot has"
        if reason := self._case.get("reason"):
            return str(reason)
        if self._case.get("deleteQueue"):
            return "a local queue that only Kueue's memory has"
        if self._case.get("admissionError") or self._case.get("patchStatusErr"):
            return "an error of the API that the table injects"
        if any(item["metadata"].get("ownerReferences") for item in self._before):
            return "owners that are not in the table"
        if self._nodes and any(queue["spec"].get("admissionChecksStrategy") for queue in self._cluster_queues):
            return "an admission check whose state the table hands in"
        if any(map(is_refused_workload, self._before)) or any(map(is_refused_queue, self._cluster_queues)):
            return "a workload or queue that the API refuses"
        if self._table in TOPOLOGY and any(part in self._name for part in DISAGREED):
            return "a pass of the scheduler that runs disagree about"
        if ("TopologyAwareScheduling", False) in self._configuration().gates:
            return "topology that is off, which no run has compared yet"
        return ""

    def _configuration(self) -> Configuration:
        gates = self._case.get("featureGates") or {}
        by_usage = bool(self._usage) and gates.get("AdmissionFairSharing", self._case.get("enableFairSharing"))
        fair = bool(self._case.get("enableFairSharing")) or by_usage or self._table == "TestFairPreemptions"
        return configuration(self._case, fair, bool(by_usage))

    # ------------------------------------------------------------------------------------------------------- queues
    def _used_queues(self) -> list[Object]:
        """The cluster queues of workloads, and those of the same trees of cohorts."""
        whole = self._case.get("clusterQueues") or [
            *(self._shared.get("clusterQueues") or ()),
            *(self._case.get("additionalClusterQueues") or ()),
        ]
        used = {of(workload) for workload in self._whole for of in (self._queue_of, self._target)}
        trees = {self._tree(item) for item in whole if item["metadata"]["name"] in used}
        return [item for item in whole if self._tree(item) in trees]

    def _tree(self, queue: Object) -> str:
        """The root of a queue's tree of cohorts, or the queue if it has no cohort."""
        parents = {item["metadata"]["name"]: item["spec"].get("parentName") for item in self._case.get("cohorts") or ()}
        seen = [queue["spec"].get("cohortName")]
        while (parent := parents.get(seen[-1])) and parent not in seen:
            seen.append(parent)
        return f"cohort {min(seen) if parent else seen[-1]}" if seen[0] else f"queue {queue['metadata']['name']}"

    def _queues(self) -> Iterator[Object]:
        for item in self._case.get("topologies") or ():
            yield make("Topology", self._named(item["metadata"]["name"]), spec=item["spec"])
        stated = self._case.get("flavors") or self._case.get("resourceFlavors")
        for flavor in stated or self._shared.get("flavors") or self._shared["resourceFlavors"]:
            spec = {**flavor.get("spec", {})}
            if spec.get("topologyName"):
                spec["topologyName"] = self._named(spec["topologyName"])
                spec["nodeLabels"] = {**(spec.get("nodeLabels") or {}), topology.CASE_LABEL: self._id}
            yield make("ResourceFlavor", self._named(flavor["metadata"]["name"]), spec=spec)
        for cohort in self._case.get("cohorts") or ():
            spec = {**cohort["spec"], "resourceGroups": self._groups(cohort["spec"])}
            if spec.get("parentName"):
                spec["parentName"] = self._named(spec["parentName"])
            yield make("Cohort", self._named(cohort["metadata"]["name"]), spec=spec)
        for queue in self._cluster_queues:
            gate = {"name": f"{self._id}-{GATE}", "resources": [{"name": GATE_RESOURCE, "nominalQuota": "0"}]}
            groups = self._groups(queue["spec"], bool(queue["spec"].get("cohortName")))
            if not self._usage:
                groups.append({"coveredResources": [GATE_RESOURCE], "flavors": [gate]})
            spec = {**queue["spec"], "resourceGroups": groups}
            if spec.get("cohortName"):
                spec["cohortName"] = self._named(spec["cohortName"])
            yield make("ClusterQueue", self._named(queue["metadata"]["name"]), spec=spec)
        kept = {queue["metadata"]["name"] for queue in self._cluster_queues}
        for queue in self._local_queues:
            if queue["spec"]["clusterQueue"] not in kept:
                continue
            spec = {**queue["spec"], "clusterQueue": self._named(queue["spec"]["clusterQueue"])}
            name, namespace = queue["metadata"]["name"], queue["metadata"]["namespace"]
            yield make("LocalQueue", self._named(name), f"table-{namespace}", spec=spec)
        for namespace, queue_name in sorted(self._entrances()):
            spec = {"clusterQueue": self._named(queue_name)}
            yield make("LocalQueue", self._entrance(queue_name), namespace, spec=spec)

    def _groups(self, spec: Object, in_cohort: bool = True) -> list[Object]:
        """Resource groups as the API accepts them.

        A flavor without resources has a quota of 0 of all that is requested. A queue outside a cohort has no limits of
        borrowing and lending, where they mean nothing.
        """
        kept = ("name", "nominalQuota", *(("borrowingLimit", "lendingLimit") if in_cohort else ()))
        groups = []
        for group in spec.get("resourceGroups") or ():
            resources = group.get("coveredResources") or sorted(self._requested())
            empty = [{"name": name, "nominalQuota": "0"} for name in resources]
            flavors = []
            for flavor in group.get("flavors") or ():
                stated = flavor.get("resources") or empty
                quotas = [{key: value for key, value in quota.items() if key in kept} for quota in stated]
                flavors.append({"name": self._named(flavor["name"]), "resources": quotas})
            if flavors:
                groups.append({"coveredResources": resources, "flavors": flavors})
        return groups

    def _requested(self) -> set[str]:
        return {
            resource
            for workload in self._whole
            for pod_set in workload["spec"]["podSets"]
            for container in pod_set["template"]["spec"]["containers"]
            for resource in container.get("resources", {}).get("requests", {})
        }

    def _entrances(self) -> set[tuple[str, str]]:
        """Namespace and cluster queue of workloads for which the table has no local queue."""
        filled = {("table-default", queue["metadata"]["name"]) for queue in self._cluster_queues if self._usage}
        return filled | {
            (_namespace(workload), queue)
            for workload in self._whole
            if not workload["spec"].get("queueName") and (queue := self._queue_of(workload))
        }

    def _queue_of(self, workload: Object) -> str:
        if workload is self._incoming:
            return str(self._case["targetCQ"])
        return str((workload["status"].get("admission") or {}).get("clusterQueue", ""))

    def _target(self, workload: Object) -> str:
        """The cluster queue of a workload's local queue, or that of its quota."""
        place = workload["metadata"].get("namespace", ""), workload["spec"].get("queueName", "")
        queues = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in self._local_queues}
        return str(queues[place]["spec"]["clusterQueue"]) if place in queues else self._queue_of(workload)

    def _entrance(self, queue: str) -> str:
        return self._named(f"to-{queue}")

    # ---------------------------------------------------------------------------------------------------- workloads
    def _workloads(self) -> Iterator[Object]:
        for workload in self._before:
            yield self._workload(workload, self._status(workload))
        if self._incoming:
            yield self._workload(self._incoming, {})
        if self._usage:
            yield self._filling(*self._cluster_queues)

    def _filling(self, queue: Object) -> Object:
        """A workload that holds the whole quota of a cluster queue with one flavor, of a local queue of its own."""
        ((flavor,),) = ([*group["flavors"]] for group in queue["spec"]["resourceGroups"])
        quota = {item["name"]: item["nominalQuota"] for item in flavor["resources"]}
        container = {"name": "c", "image": "example.com/pause", "resources": {"requests": quota}}
        pod = {"restartPolicy": "Never", "containers": [container]}
        pod_set = {"name": "main", "count": 1, "template": {"spec": pod}}
        spec = {"podSets": [pod_set], "queueName": self._entrance(queue["metadata"]["name"])}
        held = {"name": "main", "count": 1, "resourceUsage": quota, "flavors": dict.fromkeys(quota, flavor["name"])}
        since = self._printed.isoformat().replace("+00:00", "Z")
        status = {
            "admission": self._in_cluster({"clusterQueue": queue["metadata"]["name"], "podSetAssignments": [held]}),
            "conditions": [
                {"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": since}
                for name in ("QuotaReserved", "Admitted")
            ],
        }
        filling = make("Workload", self._named(GATE), "table-default", spec=spec, status=status)
        uid = str(uuid.UUID(int=int(self._id[1:]) << 96))
        filling["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": OLDEST}
        return filling

    def _workload(self, workload: Object, status: Object) -> Object:
        metadata, spec = workload["metadata"], topology.in_cluster(workload["spec"], self._named)
        queue = spec.get("queueName")
        spec["queueName"] = self._named(queue) if queue else self._entrance(self._queue_of(workload))
        made = make("Workload", self._named(metadata["name"]), _namespace(workload), spec=spec, status=status)
        labels = {key: value for key, value in metadata.get("labels", {}).items() if key != JOB_LABEL}
        made["metadata"] |= {
            "labels": labels,
            "annotations": metadata.get("annotations", {}),
            "uid": self._uids[key_of(workload)],
            "generation": 1,
            "creationTimestamp": metadata.get("creationTimestamp") or OLDEST,
        }
        return made

    def _status(self, workload: Object) -> Object:
        stated: Object = workload["status"]
        status: Object = topology.in_cluster({key: stated[key] for key in stated if key != "admission"}, self._named)
        if "conditions" in status:
            # The API demands a reason.
            status["conditions"] = [{**item, "reason": item["reason"] or "Unknown"} for item in status["conditions"]]
        if "admission" in stated:
            status["admission"] = self._in_cluster(stated["admission"])
        return status

    def _in_cluster(self, admitted: Object) -> Object:
        sets: list[Object] = topology.in_cluster(admitted["podSetAssignments"], self._named)
        for item in sets:
            item["flavors"] = {name: self._named(flavor) for name, flavor in (item.get("flavors") or {}).items()}
        return {**admitted, "clusterQueue": self._named(admitted["clusterQueue"]), "podSetAssignments": sets}

    def _named(self, name: str) -> str:
        return f"{self._id}-{_plain(name)}"

    # ---------------------------------------------------------------------------------------------------- decisions
    def _expected(self) -> Iterator[Decision]:
        if self._table == "TestFairPreemptions":
            for target in self._case["wantPreempted"]:
                key, _, reason = target.rpartition(":")
                yield Decision(key, "preempted", reason=reason, preemptor=key_of(self._case["incoming"]))
            return
        already = {key_of(item): item for item in self._before}
        for key, want in (self._case.get("wantAssignments") or self._case.get("wantNewAssignments") or {}).items():
            had = already[key]["status"].get("admission") if key in already else None
            decision = admission(key, self._in_cluster(want))
            # A second pass replaces nodes. What it leaves as it was is no decision.
            if not had or decision != admission(key, self._in_cluster(had)):
                yield decision
        for workload in (self._case.get("wantWorkloads") or ()) if self._usage else ():
            if admitted := workload["status"].get("admission"):
                yield admission(key_of(workload), self._in_cluster(admitted))
        for event in self._case.get("wantEvents") or ():
            if event["Reason"] == "EvictedDueToNodeFailures":
                yield eviction(f"{event['Key']['Namespace']}/{event['Key']['Name']}")
        for workload in self._case.get("wantWorkloads") or ():
            key = key_of(workload)
            if is_preempted(workload) and not (key in already and is_preempted(already[key])):
                yield preemption(key, workload, self._preemptors(conditions(workload)["Preempted"]["message"]))

    def _preemptors(self, message: str) -> dict[str, str]:
        """Workloads by uid. Of those that share a uid in a table, the one in the queue that a message names."""
        path = re.search(r"preemptor path: /(?:[^;]*/)?([^;/]+)", message)
        of_queue = [item for item in self._whole if path and self._target(item) == path[1]]
        return {item["metadata"].get("uid", ""): key_of(item) for item in (*self._whole, *of_queue)}


def _namespace(workload: Object) -> str:
    return f"table-{workload['metadata'].get('namespace') or 'default'}"


def at(case: TableCase, now: datetime) -> list[Object]:
    """The workloads of a case, with times as if its table had been printed now."""
    return [shift(workload, now - case.printed) for workload in case.workloads]
