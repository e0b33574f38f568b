"""A batch Job on one TPU slice."""

from typing import Any, NotRequired

import pulumi
import pulumi_kubernetes as k8s

from components.base import Component, read
from components.runs import (
    TpuRunArgs,
    metadata,
    options,
    outlives,
    pod_failure_policy,
    queued_annotations,
    restart_policy,
    template_metadata,
    tpu_pod,
)
from components.workload import SKIP_AWAIT, TpuSliceArgs
from settings.model import TpuBatch
from settings.plan import backoff_limit, run_name, service_name


class TpuBatchJobArgs(TpuRunArgs):
    """Arguments of a `TpuBatchJob`."""

    pool: NotRequired[str]
    """Not used by the component, which reads `node_selector`, `hosts` and `chips_per_host`."""
    tpu: NotRequired[TpuSliceArgs]
    """Not used by the component, which reads `node_selector`, `hosts` and `chips_per_host`."""
    service: NotRequired[str]
    """Name of the headless Service of a multi-host Job. Default: the run's name."""
    backoff_limit: NotRequired[int]
    """Failed pods after which the Job fails. Default: 4 per pod on a multi-host slice, else Kubernetes' default, 6."""
    max_run_duration_seconds: NotRequired[int]
    """Not used by the component, which reads `queued_seconds`."""


class TpuBatchJob(Component):
    """A Job with one pod per machine of a TPU slice, and a headless Service if the slice has several machines.

    On a multi-host slice the Job is Indexed: from its index and the headless Service, GKE tells each pod its number and
    the addresses of the others. If a pod fails, the others fail too, so failures count for all pods together.

    An update doesn't wait for the run, whose nodes may take hours. A run happens once, and Pulumi creates a changed run
    beside the old one, as in a `FinetuneJob`.

    `volume` mounts a bucket, `shared_memory` sizes /dev/shm, and `token_secret` provides the Hugging Face token.

    Refused: arguments that `settings.model.TpuBatch` refuses; by the API, a changed run with a fixed name.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu,
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """

    job_name: pulumi.Output[str]

    def __init__(self, name: str, args: TpuBatchJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        run = read(TpuBatch, name, args)
        job, hosts = run_name(run), args["hosts"]
        pod = tpu_pod(run, args)
        spec: Any = {**pod_failure_policy(run, "Ignore"), "template": {**template_metadata(run), "spec": pod}}
        services: list[pulumi.Resource] = []
        if hosts > 1:
            # The old run keeps its own Service, through which its pods find each other.
            service = service_name(run) + job.removeprefix(run.name)
            headless = k8s.core.v1.Service(
                f"{run.namespace}/{service}",
                metadata={"name": service, "namespace": run.namespace},
                spec={"cluster_ip": "None", "selector": {"job-name": job}},
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=outlives(run)),
            )
            services.append(headless)
            spec |= {"completions": hosts, "parallelism": hosts, "completionMode": "Indexed"}
            pod |= {"subdomain": service, "restartPolicy": "Never"}
        else:
            pod["restartPolicy"] = restart_policy(run, "OnFailure")
        if (failures := backoff_limit(run, hosts)) is not None:
            spec["backoffLimit"] = failures
        if run.queue is not None:
            spec["suspend"] = True  # Kueue starts it

        resource = k8s.batch.v1.Job(
            f"{run.namespace}/{job}",
            metadata=metadata(run, job, {**SKIP_AWAIT, **queued_annotations(args.get("queued_seconds"))}),
            spec=spec,
            opts=options(run, name, self, services, args.get("kubeconfig"), args.get("last_in_queue", False)),
        )

        self.job_name = resource.metadata.name.apply(lambda name: name or job)
        self.register_outputs({"jobName": self.job_name})
