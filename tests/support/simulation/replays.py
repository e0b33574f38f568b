"""Traces replayed against the real Kueue: its Workloads alone, or real Jobs on the whole emulator."""

from collections.abc import Iterable, Iterator

from emulator.cloud.api import MERGE_PATCH
from emulator.cluster.jobs import FINISH
from emulator.tests.harness import eventually
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.kueue import Counts, Log, started
from gke_ai.forecast.simulate.objects import Object, Queues
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.kube.objects import holds
from tests.support.emulator import fresh
from tests.support.rehearsal.cluster import QueueCluster, connect, create, set_pools
from tests.support.rehearsal.scenario import make

# A node of 8 GPUs, which holds all quota of the traces.
POOL = {"name": "l4", "machine_type": "g2-standard-96", "nodes_per_zone": 1}
# Kueue's release tries waiting workloads again after a second.
QUIET_SECONDS, SETTLES_SECONDS = 3.0, 120.0


def replayed(queues: Queues, trace: Iterable[Submission]) -> Replay:
    """Replays submissions as Workloads alone, and returns what became of them."""
    with fresh() as emulator, started(Scratch(emulator.state), queues) as kueue:
        replay = Replay(kueue, queues, in_order(trace))
        replay.run()
        return replay


def replayed_as_jobs(queues: Queues, trace: Iterable[Submission]) -> Replay:
    """Replays submissions as Jobs whose pods run on a node, with Kueue's release, and returns what became of them."""
    with fresh() as emulator:
        create(emulator)
        set_pools(emulator, [POOL])
        with connect(emulator) as cluster:
            replay = Replay(Jobs(cluster, queues), queues, in_order(trace))
            replay.run()
            return replay


def _job_of(workload: Object) -> str:
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def in_order(trace: Iterable[Submission]) -> tuple[Submission, ...]:
    """The submissions by time, as a replay expects them."""
    return tuple(sorted(trace, key=lambda row: row.time))


class Jobs:
    """Kueue as a replay needs it, on a cluster where each run is a Job with pods."""

    def __init__(self, cluster: QueueCluster, queues: Queues) -> None:
        self._cluster = cluster
        self._queues = queues
        self._seen: dict[str, str] = {}
        self._read: list[Object] = []
        self._reads = 0
        for path, item in queues.objects():
            cluster.send("POST", path, json=item)
        for name, value in queues.priorities.items():
            if name:
                cluster.apply([make("PriorityClass", name, value=value)])

    def write(self, puts: Iterable[Object], deletes: Iterable[Object]) -> None:
        """Ends Jobs, then submits others. What happens to an evicted Job is left to Kueue's own controller."""
        ended = {item["metadata"]["name"]: item["metadata"]["namespace"] for item in deletes}
        for name, namespace in ended.items():
            self._finish(namespace, name)
        eventually(lambda: not ended.keys() & {_job_of(item) for item in self._workloads()}, "the Jobs end")
        for item in puts:
            if "status" not in item:
                self._cluster.apply([self._job(item)])
        self._cluster.recorder.begin()

    def log(self) -> Log:
        """As if Kueue tried all that wait each time before the cluster settles."""
        return Log(dict.fromkeys(self._queues.trees.values(), self._reads))

    def counts(self) -> Counts:
        """The counts of the Workloads that `changes` has read last."""
        waiting = dict.fromkeys(self._queues.cluster_queues, 0)
        reserving = dict.fromkeys(self._queues.cluster_queues, 0)
        for item in self._read:
            name = self._queues.by_local[f"{item['metadata']['namespace']}/{item['spec']['queueName']}"]
            (reserving if holds(item, "QuotaReserved") else waiting)[name] += 1
        return Counts({}, waiting, reserving, self._reads)

    def sample(self, second: float, interval: float) -> None:
        """The clock of Kueue's release is not set."""

    def changes(self, _seconds: float) -> Iterator[Object]:
        """The Workloads that changed until the cluster has settled: Kueue has tried all that wait.

        Each has the name of its Job.
        """
        self._cluster.settle(QUIET_SECONDS, SETTLES_SECONDS)
        self._read, self._reads = self._workloads(), self._reads + 1
        for item in self._read:
            metadata = item["metadata"]
            if self._seen.get(metadata["name"]) != metadata["resourceVersion"]:
                self._seen[metadata["name"]] = metadata["resourceVersion"]
                yield {**item, "metadata": {**metadata, "name": _job_of(item)}}

    def _workloads(self) -> list[Object]:
        return [item for item in self._cluster.workloads() if not holds(item, "Finished")]

    def _job(self, item: Object) -> Object:
        """The Job whose Workload would be this one."""
        metadata, (pods,) = item["metadata"], item["spec"]["podSets"]
        (container,) = pods["template"]["spec"]["containers"]
        requests = container["resources"]["requests"]
        # Kubernetes takes GPUs only as limits.
        limits = {key: value for key, value in requests.items() if key == NVIDIA_GPU}
        names = {value: name for name, value in self._queues.priorities.items() if name}
        priority = names.get(item["spec"]["priority"])
        containers = [{**container, "resources": {"requests": requests, "limits": limits}}]
        pod = {"containers": containers, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        pod |= {"priorityClassName": priority} if priority else {}
        size = {"parallelism": pods["count"], "completions": pods["count"], "backoffLimit": 100}
        job = make("Job", metadata["name"], metadata["namespace"], spec={**size, "template": {"spec": pod}})
        job["metadata"]["labels"] = {QUEUE_LABEL: item["spec"]["queueName"]}
        return job

    def _finish(self, namespace: str, job: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        pods = self._cluster.send("GET", path, params={"labelSelector": f"batch.kubernetes.io/job-name={job}"})["items"]
        assert pods, f"{job} has no pods"
        for pod in pods:
            annotation = {"metadata": {"annotations": {FINISH: "Succeeded"}}}
            self._cluster.send("PATCH", f"{path}/{pod['metadata']['name']}", json=annotation, headers=MERGE_PATCH)
