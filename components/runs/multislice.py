"""A training run over several TPU slices: a JobSet with one child Job per slice."""

from collections.abc import Mapping, Sequence

import pulumi

from gke_ai.components.runs.job import RunComponent
from gke_ai.manifests import multislice
from gke_ai.manifests.job import Place
from gke_ai.settings.model import Multislice


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
            pool_of_slice: Node pool of each slice, which its pods select by name. Default: JobSet picks a free pool for
                each slice.
            queued_seconds: Maximum seconds of the run on nodes from queued provisioning. Default: the run uses no such
                nodes.
            kubeconfig: Cluster in which the run waits for its place in the queue. Default: no wait, so Kueue may admit
                runs that are created within a second in any order.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
            owner: Name and uid of a ConfigMap that the run is deleted with: `run_owner()` of its `WorkloadNamespace`.
                Default: a ConfigMap of this component.
        """
        super().__init__(name, args, opts, owner)
        place = Place(node_selector or {}, queued_seconds, hosts, chips_per_host, only_pools, pool_of_slice)
        created = self.created_once(args, [], kubeconfig, last_in_queue)
        self.create_jobset(multislice.jobset(args, place), created)
