"""A fine-tuning run: a Job under Kueue whose pods train one model."""

from collections.abc import Mapping

import pulumi

from gke_ai.components.runs.job import RunComponent
from gke_ai.manifests import finetune, network
from gke_ai.settings.model import FineTune


class FinetuneJob(RunComponent):
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
    """

    job_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: FineTune,
        opts: pulumi.ResourceOptions | None = None,
        *,
        node_selector: Mapping[str, str] | None = None,
        queued_seconds: int | None = None,
        claims_nics: bool = False,
        gpudirect: str | None = None,
        kubeconfig: pulumi.Input[str] | None = None,
        last_in_queue: bool = False,
        owner: pulumi.Input[Mapping[str, str]] | None = None,
    ) -> None:
        """Create the run.

        Args:
            node_selector: Labels of the nodes to run on.
            queued_seconds: Maximum seconds of the run on nodes from queued provisioning. Default: the run uses no such
                nodes.
            claims_nics: Each pod claims the NICs of its node by the template `rdma` of the namespace.
            gpudirect: `tcpx` or `tcpxo`, which the nodes have. Default: pods communicate over the default network.
            kubeconfig: Cluster in which the run waits for its place in the queue. Default: no wait, so Kueue may admit
                runs that are created within a second in any order.
            last_in_queue: The run is the last of its queue. If false, its creation takes one second longer.
            owner: Name and uid of a ConfigMap that the run is deleted with: `run_owner()` of its `WorkloadNamespace`.
                Default: a ConfigMap of this component.
        """
        super().__init__(name, args, opts, owner)
        created = self.created_once(args, [self.create_service(args)], kubeconfig, last_in_queue)
        place = network.place_on_gpus(node_selector or {}, queued_seconds, claims_nics, gpudirect)
        self.create_job(finetune.job(args, place), created)
