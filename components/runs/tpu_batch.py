"""A batch Job on one TPU slice."""

from collections.abc import Mapping, Sequence

import pulumi

from gke_ai.components.runs.job import RunComponent
from gke_ai.manifests import tpu_batch
from gke_ai.manifests.job import Place
from gke_ai.settings.model import TpuBatch


class TpuBatchJob(RunComponent):
    """A Job with one pod per machine of a TPU slice, and a headless Service if the slice has several machines.

    On a multi-host slice the Job is Indexed: from its index and the headless Service, GKE tells each pod its number and
    the addresses of the others. If a pod fails, the others fail too, so failures count for all pods together.

    An update doesn't wait for the run, whose nodes may take hours. A run happens once, and Pulumi creates a changed run
    beside the old one, as in a `FinetuneJob`.

    `volume` mounts a bucket, `shared_memory` sizes /dev/shm, and `token_secret` provides the Hugging Face token.

    Refused: by the API, a changed run with a fixed name.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu,
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """

    job_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: TpuBatch,
        opts: pulumi.ResourceOptions | None = None,
        *,
        hosts: int,
        chips_per_host: int,
        node_selector: Mapping[str, str] | None = None,
        only_pools: Sequence[str] = (),
        queued_seconds: int | None = None,
        kubeconfig: pulumi.Input[str] | None = None,
        last_in_queue: bool = False,
        owner: pulumi.Input[Mapping[str, str]] | None = None,
    ) -> None:
        """Create the run.

        Args:
            hosts: Machines of one slice. Each runs one pod.
            chips_per_host: TPU chips of one pod, which are all chips of its machine. See
                `gke_ai.settings.resolved.Placed.slice`.
            node_selector: Labels of the nodes to run on.
            only_pools: Node pools that the pods may use, if other pools have the same labels. Default: any pool with
                the labels.
            queued_seconds: Maximum seconds of the run on nodes from queued provisioning. Default: the run uses no such
                nodes.
            kubeconfig: Cluster in which the run waits for its place in the queue. Default: no wait, so Kueue may admit
                runs that are created within a second in any order.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
            owner: Name and uid of a ConfigMap that the run is deleted with: `run_owner()` of its `WorkloadNamespace`.
                Default: a ConfigMap of this component.
        """
        super().__init__(name, args, opts, owner)
        place = Place(node_selector or {}, queued_seconds, hosts, chips_per_host, only_pools)
        services = [self.create_service(args)] if hosts > 1 else []
        self.create_job(tpu_batch.job(args, place), self.created_once(args, services, kubeconfig, last_in_queue))
