"""The JobSet of a training run over several TPU slices."""

from __future__ import annotations

from typing import Any

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.manifests import job as jobs
from gke_ai.settings.model import Multislice, TrainingRun

# https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": GKE_NODEPOOL}


# Name of the JobSet's replicated Job, or the prefix if each slice has its own.
SLICE = "slice"


def jobset(run: Multislice, place: jobs.Place) -> jobs.Object:
    """The JobSet of a Multislice run."""
    exclusive = {} if place.pool_of_slice else EXCLUSIVE
    spec = {
        "failurePolicy": {**ignored_failures(run), "maxRestarts": run.max_restarts},
        "replicatedJobs": [
            replicated_job(f"{SLICE}-{index}", 1, run, place, pool) for index, pool in enumerate(place.pool_of_slice)
        ]
        or [replicated_job(SLICE, run.slices, run, place)],
    }
    return jobs.jobset_of(
        jobs.metadata(run, run.object_name, {**exclusive, **jobs.queued_annotations(place.queued_seconds)}), spec
    )


def ignored_failures(run: Multislice | TrainingRun) -> dict[str, Any]:
    """The rule of a JobSet's failure policy that restarts it after a disruption without counting.

    https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/keps/262-ConfigurableFailurePolicy
    """
    if not run.ignores_disruptions:
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
    name: str, replicas: int, run: Multislice, place: jobs.Place, pool: str | None = None
) -> dict[str, Any]:
    """Child Jobs of one template, with a pod on each machine of a slice. `pool` fixes the node pool."""
    pod = jobs.tpu_pod(run, place)
    if run.ignores_disruptions:
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
                **jobs.pod_failure_policy(run, "FailJob"),
                "parallelism": place.hosts,
                "completions": place.hosts,
                "backoffLimit": 0,
                "template": {**jobs.template_metadata(run), "spec": pod},
            }
        },
    }
