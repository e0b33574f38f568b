"""A training run over several TPU slices: a JobSet with one child Job per slice."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gke_ai.catalog.nodes import GKE_NODEPOOL
from gke_ai.components.runs.job import (
    RunComponent,
    SliceNodes,
    metadata,
    options,
    pod_failure_policy,
    queued_annotations,
    template_metadata,
    tpu_pod,
)
from gke_ai.settings.model import Multislice, TrainingRun
from gke_ai.settings.runs import ignores_disruptions

# https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": GKE_NODEPOOL}
# Name of the JobSet's replicated Job, or the prefix if each slice has its own.
SLICE = "slice"


class MultisliceJob(RunComponent):
    """A JobSet with one child Job per TPU slice. Each child Job has a node pool, and so a slice, to itself.

    JobSet's exclusive placement gives each child Job a pool: the first pod is scheduled first, and the others follow it
    to its pool. For pools that scale from zero, `pool_of_slice` names the pools, so all pods ask for their slices at
    once: each slice is its own replicated Job, and environment variables tell the pods that the slices form one run.
    JobSet then no longer picks a free pool: if several runs share such pools, give each pool its own flavor, so that
    Kueue counts each pool.

    If a pod fails, its slice fails; if a slice fails, the whole JobSet restarts, up to `max_restarts` times. After a
    disruption of a pod, such as node maintenance, the restart does not count, if its slice fails before the others.

    An update doesn't wait for the run. A run happens once, and Pulumi creates a changed run beside the old one, as in a
    `FinetuneJob`. A deletion waits until the pods are gone and Kueue has released the quota.

    `volume` mounts a bucket, `shared_memory` sizes /dev/shm, and `token_secret` provides the Hugging Face token.
    With `host_network` pods use the network of their node. They then have no workload identity, so no bucket.

    Refused: by JobSet's webhook, a changed run with a fixed name.

    Sources: https://cloud.google.com/kubernetes-engine/docs/tutorials/tpu-multislice-kueue,
    https://jobset.sigs.k8s.io/docs/concepts/, https://kueue.sigs.k8s.io/docs/tasks/run/jobsets/
    """

    job_name: pulumi.Output[str]
    """Name of the JobSet."""

    def __init__(
        self,
        name: str,
        args: Multislice,
        opts: pulumi.ResourceOptions | None = None,
        *,
        hosts: int,
        chips_per_host: int,
        node_selector: Mapping[str, str] | None = None,
        only_pools: Sequence[str] = (),
        pool_of_slice: Sequence[str] = (),
        queued_seconds: int | None = None,
        kubeconfig: pulumi.Input[str] | None = None,
        last_in_queue: bool = False,
    ) -> None:
        """Create the run.

        Args:
            hosts: Machines of one slice. Each runs one pod.
            chips_per_host: TPU chips of one pod, which are all chips of its machine. See
                `gke_ai.settings.stack.Placed.slice`.
            node_selector: Labels of the nodes to run on.
            only_pools: Node pools that the pods may use, if other pools have the same labels. Default: any pool with
                the labels.
            pool_of_slice: Node pool of each slice, which its pods select by name. Default: JobSet picks a free pool for
                each slice.
            queued_seconds: Maximum seconds of the run on nodes from queued provisioning. Default: the run uses no such
                nodes.
            kubeconfig: Cluster in which the run waits for its place in the queue. Default: no wait, so Kueue may admit
                runs that are created within a second in any order.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
        """
        super().__init__(name, opts)
        run = args
        jobset = run.object_name
        nodes = SliceNodes(chips_per_host, node_selector or {}, only_pools, queued_seconds)
        annotations = {**({} if pool_of_slice else EXCLUSIVE), **queued_annotations(queued_seconds)}

        spec = {
            "failurePolicy": {**ignored_failures(run), "maxRestarts": run.max_restarts},
            "replicatedJobs": [
                replicated_job(f"{SLICE}-{index}", 1, run, hosts, nodes, pool)
                for index, pool in enumerate(pool_of_slice)
            ]
            or [replicated_job(SLICE, run.slices, run, hosts, nodes)],
        }
        created = options(run, name, self, [], kubeconfig, last_in_queue)
        self.create_jobset(metadata(run, jobset, annotations), spec, created)


def ignored_failures(run: Multislice | TrainingRun) -> dict[str, Any]:
    """The rule of a JobSet's failure policy that restarts it after a disruption without counting.

    https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/keps/262-ConfigurableFailurePolicy
    """
    if not ignores_disruptions(run):
        return {}
    rule = {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}
    return {"rules": [{"name": "disruptions", **rule}]}


def slice_variables(jobset: str) -> list[dict[str, Any]]:
    """Environment variables with a pod's slice and the number of slices, if each slice is a replicated Job.

    GKE's variables count the Jobs of a replicated Job, so each slice would be its own run. These count the Jobs of the
    JobSet, from the labels that JobSet adds to pods. All pods connect to the first pod of the first slice. JAX reads
    the variables: https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cloud_tpu_cluster.py. Never tried: that GKE
    keeps variables that a pod already has. xpk relies on it (src/xpk/templates/pathways_workload_create.yaml.j2).
    """

    def label(name: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": f"metadata.labels['jobset.sigs.k8s.io/{name}']"}}

    return [
        {"name": "MEGASCALE_NUM_SLICES", "valueFrom": label("global-replicas")},
        {"name": "MEGASCALE_SLICE_ID", "valueFrom": label("job-global-index")},
        # The value of the label `coordinator`. As a label it is too long if the name exceeds 25 characters.
        {"name": "MEGASCALE_COORDINATOR_ADDRESS", "value": f"{jobset}-{SLICE}-0-0-0.{jobset}"},
    ]


def replicated_job(
    name: str, replicas: int, run: Multislice, hosts: int, nodes: SliceNodes, pool: str | None = None
) -> dict[str, Any]:
    """Child Jobs of one template, with a pod on each machine of a slice. `pool` fixes the node pool."""
    pod = tpu_pod(run, nodes)
    if ignores_disruptions(run):
        pod["restartPolicy"] = "Never"
    if pool is not None:
        container = pod["containers"][0]
        container["env"] = [*slice_variables(run.object_name), *container.get("env", [])]
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), GKE_NODEPOOL: pool}
    if run.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            "spec": {
                **pod_failure_policy(run, "FailJob"),
                "parallelism": hosts,
                "completions": hosts,
                "backoffLimit": 0,
                "template": {**template_metadata(run), "spec": pod},
            }
        },
    }
