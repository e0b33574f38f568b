"""A training run over several TPU slices: a JobSet with one child Job per slice."""

from typing import Any, NotRequired, cast

import pulumi
import pulumi_kubernetes as k8s

from catalog.nodes import GKE_NODEPOOL
from catalog.versions import JOBSET_API
from components.base import Component, read
from components.runs import (
    TpuRunArgs,
    metadata,
    options,
    pod_failure_policy,
    queued_annotations,
    template_metadata,
    tpu_pod,
)
from components.workload import TpuSliceArgs
from settings.model import Multislice
from settings.plan import ignores_disruptions, run_name

# https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": GKE_NODEPOOL}
# Name of the JobSet's replicated Job, or the prefix if each slice has its own.
SLICE = "slice"


class MultisliceJobArgs(TpuRunArgs):
    """Arguments of a `MultisliceJob`."""

    slices: int
    kind: NotRequired[str]
    pools: NotRequired[list[str]]
    """Not used by the component, which reads `node_selector`, `only_pools` and `pool_of_slice`."""
    tpu: NotRequired[TpuSliceArgs]
    """Not used by the component, which reads `node_selector`, `hosts` and `chips_per_host`."""
    host_network: NotRequired[bool]
    max_restarts: NotRequired[int]
    """Maximum number of restarts of the JobSet after a slice fails."""
    pool_of_slice: NotRequired[list[str]]
    """Node pool of each slice, which its pods select by name. Default: JobSet picks a free pool for each slice."""


class MultisliceJob(Component):
    """A JobSet with one child Job per TPU slice. Each child Job has a node pool, and so a slice, to itself.

    JobSet's exclusive placement gives each child Job a pool: the first pod is scheduled first, and the others follow it
    to its pool. With pools that scale from zero this deadlocks: the first pod waits for a node, and JobSet holds back
    the pods whose demand would create the whole slice. For those pools, `pool_of_slice` names the pools, each slice is
    its own replicated Job, and environment variables tell the pods that the slices form one run. JobSet then no longer
    picks a free pool: if several runs share such pools, give each pool its own flavor, so that Kueue counts each pool.

    If a pod fails, its slice fails; if a slice fails, the whole JobSet restarts, up to `max_restarts` times. After a
    disruption of a pod, such as node maintenance, the restart does not count, if its slice fails before the others.

    An update doesn't wait for the run. A run happens once, and Pulumi creates a changed run beside the old one, as in a
    `FinetuneJob`. A deletion waits until the pods are gone and Kueue has released the quota.

    `volume` mounts a bucket, `shared_memory` sizes /dev/shm, and `token_secret` provides the Hugging Face token.
    With `host_network` pods use the network of their node. They then have no workload identity, so no bucket.

    Refused: arguments that `settings.model.Multislice` refuses; by JobSet's webhook, a changed run with a fixed name.

    Sources: https://cloud.google.com/kubernetes-engine/docs/tutorials/tpu-multislice-kueue,
    https://jobset.sigs.k8s.io/docs/concepts/, https://kueue.sigs.k8s.io/docs/tasks/run/jobsets/
    """

    job_name: pulumi.Output[str]
    """Name of the JobSet."""

    def __init__(self, name: str, args: MultisliceJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        run = read(Multislice, name, args)
        jobset = run_name(run)
        pools = args.get("pool_of_slice", [])
        annotations = {**({} if pools else EXCLUSIVE), **queued_annotations(args.get("queued_seconds"))}

        resource = k8s.apiextensions.CustomResource(
            f"{run.namespace}/{jobset}",
            api_version=JOBSET_API,
            kind="JobSet",
            metadata=metadata(run, jobset, annotations),
            spec={
                "failurePolicy": {**ignored_failures(run), "maxRestarts": run.max_restarts},
                "replicatedJobs": [
                    replicated_job(f"{SLICE}-{index}", 1, run, args, pool) for index, pool in enumerate(pools)
                ]
                or [replicated_job(SLICE, run.slices, run, args)],
            },
            opts=options(run, name, self, [], args.get("kubeconfig"), args.get("last_in_queue", False)),
        )

        # Read from the resource: known in a preview, and after the JobSet in an update.
        self.job_name = cast(Any, resource).metadata.apply(lambda metadata: str(metadata["name"]))
        self.register_outputs({"jobName": self.job_name})


def ignored_failures(run: Multislice) -> dict[str, Any]:
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
    name: str, replicas: int, run: Multislice, args: MultisliceJobArgs, pool: str | None = None
) -> dict[str, Any]:
    """Child Jobs of one template, with a pod on each machine of a slice. `pool` fixes the node pool."""
    pod = tpu_pod(run, args)
    if ignores_disruptions(run):
        pod["restartPolicy"] = "Never"
    if pool is not None:
        container = pod["containers"][0]
        container["env"] = [*slice_variables(run_name(run)), *container.get("env", [])]
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), GKE_NODEPOOL: pool}
    if run.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    hosts = args["hosts"]
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
