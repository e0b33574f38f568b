"""A fine-tuning run: a Job under Kueue whose pods train one model."""

import pulumi

from gke_ai.catalog.versions import FINE_TUNE_IMAGE
from gke_ai.components.arguments import Input, takes
from gke_ai.components.runs.job import GpuRunArguments, RunComponent
from gke_ai.manifests import finetune
from gke_ai.settings.model import FineTune


class FinetuneJobArguments(GpuRunArguments, FineTune):
    image: Input[str] = FINE_TUNE_IMAGE  # type: ignore[assignment]


class FinetuneJob(RunComponent[FineTune]):
    """An Indexed Job that Kueue starts, suspends and resumes, and the headless Service through which its pods connect.

    A run happens once: the Job has no time to live, so a finished Job stays and the next update finds it. A changed run
    is a new run: the names of Job and Service contain a hash of the content, so Pulumi creates the new run beside the
    old one. The old Job stays, running or finished, until its namespace or a person deletes it.

    The run writes checkpoints to its own folder and resumes from the last one after a restart; work since that
    checkpoint is repeated. The first pod deletes incomplete checkpoints beforehand. Disruptions of pods don't count as
    failures, but failures of pods that wait for a disrupted pod do. If not all pods come back, Kueue's
    `waitForPodsReady` evicts the run and queues it again.

    With `fixed_name` the name has no hash, and a changed run needs a new `name`.

    Refused: by the API, a changed run with a fixed name.

    Sources: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral,
    https://huggingface.co/docs/accelerate/usage_guides/fsdp

    Example:
        FinetuneJob("tune", namespace=llm, pool=l4, pods=2, gpus_per_pod=1, queue="team", volume=models.volume("/data"))
    """

    job_name: pulumi.Output[str]

    @takes(FinetuneJobArguments)
    def __init__(self, name: str, args: FinetuneJobArguments) -> None:
        super().__init__(name, args, FineTune)
        self.create_job(finetune.job(self.run, self.place), self.created_once(self.create_service(self.run)))
