"""A training run over several TPU slices: a JobSet with one child Job per slice."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pulumi

from gke_ai.components.arguments import takes
from gke_ai.components.pools.tpu_pool import TpuPoolComponent
from gke_ai.components.runs.job import RunComponent, TpuRunArguments
from gke_ai.components.workloads.arguments import WithToken
from gke_ai.manifests import multislice
from gke_ai.manifests.job import Place
from gke_ai.settings.model import Multislice, Run
from gke_ai.settings.resolved import Placed


class MultisliceJobArguments(TpuRunArguments, WithToken, Multislice):
    kind: Literal["multislice"] = "multislice"
    """The kind of the run, which the component says."""
    pools: Sequence[TpuPoolComponent | str] = ()  # type: ignore[assignment]
    """TPU pools, at least one for each slice, or their names, beside which `tpu` says the slice."""
    pools_of_slices: Sequence[str] | None = None
    """Node pool of each slice, which its pods select by name. Default: of pools that grow, one for each slice; of
    others, JobSet picks a free pool for each slice."""

    def nodes(self, placed: Placed[Run]) -> Place:
        place = super().nodes(placed)
        named = [pool for pool in self.pools if isinstance(pool, str)]
        if named and self.placed is None and self.only_pools is None:
            place = replace(place, only_pools=named)
        return place if self.pools_of_slices is None else replace(place, pool_of_slice=self.pools_of_slices)


class MultisliceJob(RunComponent[Multislice]):
    """A JobSet with one child Job per TPU slice. Each child Job has a node pool, and so a slice, to itself.

    JobSet's exclusive placement gives each child Job a pool: the first pod is scheduled first, and the others follow it
    to its pool. For pools that scale from zero, `pools_of_slices` names the pools, so all pods ask for their slices at
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

    Example:
        MultisliceJob("pretrain", namespace=llm, slices=2, pools=[first, second], command=["python", "train.py"])
    """

    job_name: pulumi.Output[str]
    """Name of the JobSet."""

    @takes(MultisliceJobArguments)
    def __init__(self, name: str, args: MultisliceJobArguments) -> None:
        super().__init__(name, args, Multislice)
        self.needs_jobset(args)
        self.create_jobset(multislice.jobset(self.run, self.place), self.created_once())
