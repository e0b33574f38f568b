"""A training run over several TPU slices: a JobSet with a child Job on each."""

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
# The replicated Job of a JobSet, or the stem of their names where each slice has one.
SLICE = "slice"


class MultisliceJobArgs(TpuRunArgs):
    """Arguments of a `MultisliceJob`."""

    slices: int
    kind: NotRequired[str]
    pools: NotRequired[list[str]]
    """What the configuration says of it; `node_selector`, `only_pools` and `pool_of_slice` are what counts."""
    tpu: NotRequired[TpuSliceArgs]
    """What the configuration says of it; `node_selector`, `hosts` and `chips_per_host` are what counts."""
    host_network: NotRequired[bool]
    max_restarts: NotRequired[int]
    """Restarts of the JobSet after a failed slice."""
    pool_of_slice: NotRequired[list[str]]
    """The node pool of each slice, which the pods then ask for by name; none: JobSet finds a free one for each."""


class MultisliceJob(Component):
    """A JobSet with one child Job a TPU slice, each with a node pool, and so a slice, to itself.

    JobSet's exclusive placement gives each child Job a pool: its first pod is put first, the others follow it to its
    pool. Pools that grow from zero deadlock on that: the first pod waits for a node, and the pods whose demand would
    bring the whole slice are not let in before it has one. There `pool_of_slice` names the pools, each slice is a
    replicated Job of its own, and environment variables tell the pods that the slices are one run. Which pool is free
    only Kueue could say then: where several runs share such pools, give each pool a flavor of its own, so that Kueue
    counts each by itself.

    A pod that fails fails its slice; a slice that fails restarts the whole JobSet, `max_restarts` times. A disruption
    of a pod, such as node maintenance, restarts it without counting, where its slice fails before the others do.

    An update doesn't wait for the run. A run is never run again, and a changed one is made beside the old, as in a
    `FinetuneJob`. A deletion is awaited until the pods have gone and Kueue has let go of the quota.

    `volume` mounts a bucket, `shared_memory` sizes /dev/shm, and `token_secret` brings the Hugging Face token.
    With `host_network` pods have the network of their node, and no workload identity, so no bucket.

    Refused: arguments that `settings.model.Multislice` refuses; by JobSet's webhook, a changed run of a fixed name.

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

        made = k8s.apiextensions.CustomResource(
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

        # As `made` carries it, so that it is known in a preview and waits for the JobSet in an update.
        self.job_name = cast(Any, made).metadata.apply(lambda found: str(found["name"]))
        self.register_outputs({"jobName": self.job_name})


def ignored_failures(run: Multislice) -> dict[str, Any]:
    """The part of a JobSet's failure policy by which a disruption restarts it without counting.

    https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/keps/262-ConfigurableFailurePolicy
    """
    if not ignores_disruptions(run):
        return {}
    rule = {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}
    return {"rules": [{"name": "disruptions", **rule}]}


def slice_variables(jobset: str) -> list[dict[str, Any]]:
    """What tells a pod which slice of how many it is in, where each slice is a replicated Job of its own.

    Counted by the Jobs of a replicated Job, each slice would be a run by itself. These count the Jobs of the JobSet, by
    the labels that JobSet gives pods; the first pod of the first slice is where all meet. JAX reads the variables:
    https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cloud_tpu_cluster.py. That GKE leaves variables alone that
    a pod has already was never tried; xpk relies on it (src/xpk/templates/pathways_workload_create.yaml.j2).
    """

    def label(name: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": f"metadata.labels['jobset.sigs.k8s.io/{name}']"}}

    return [
        {"name": "MEGASCALE_NUM_SLICES", "valueFrom": label("global-replicas")},
        {"name": "MEGASCALE_SLICE_ID", "valueFrom": label("job-global-index")},
        # What the label `coordinator` would say; as a label it would be too long for a name of more than 25 characters.
        {"name": "MEGASCALE_COORDINATOR_ADDRESS", "value": f"{jobset}-{SLICE}-0-0-0.{jobset}"},
    ]


def replicated_job(
    name: str, replicas: int, run: Multislice, args: MultisliceJobArgs, pool: str | None = None
) -> dict[str, Any]:
    """Child Jobs of one template: a pod on each machine of a slice, on the pool named if there is one."""
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
