"""A batch Job on one TPU slice."""

import pulumi

from gke_ai.components.arguments import takes
from gke_ai.components.runs.job import RunComponent, TpuRunArguments
from gke_ai.components.workloads.arguments import OnTpus, WithToken
from gke_ai.manifests import tpu_batch
from gke_ai.settings.model import TpuBatch


class TpuBatchJobArguments(TpuRunArguments, OnTpus, WithToken, TpuBatch):
    """The arguments of a `TpuBatchJob`."""


class TpuBatchJob(RunComponent[TpuBatch]):
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

    Example:
        TpuBatchJob("bench", namespace=llm, pool=v5e, command=["python", "bench.py"])
    """

    job_name: pulumi.Output[str]

    @takes(TpuBatchJobArguments)
    def __init__(self, name: str, args: TpuBatchJobArguments) -> None:
        super().__init__(name, args, TpuBatch)
        services = [self.create_service(self.run)] if self.place.hosts > 1 else []
        self.create_job(tpu_batch.job(self.run, self.place), self.created_once(*services))
