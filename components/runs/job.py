"""What all runs share: a Job or JobSet that is created once and that no newer run replaces."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.versions import JAX_TPU_IMAGE, JOBSET_API
from gke_ai.components.arguments import Input, Refused
from gke_ai.components.base import SKIP_AWAIT, Component, custom_resource, named
from gke_ai.components.support.alone import has_outputs
from gke_ai.components.support.cluster_client import connection, in_thread, workload_of
from gke_ai.components.support.polling import Pauses, poll_until
from gke_ai.components.support.retry import kueue_hook
from gke_ai.components.support.run_owner import create_owner, owned_by
from gke_ai.components.workloads.arguments import OnGpus, WorkloadArguments
from gke_ai.manifests.job import Object, Place, headless_service, service_of
from gke_ai.manifests.network import place_on_gpus
from gke_ai.manifests.runs import place_of
from gke_ai.settings.model import FineTune, Run, TpuBatch
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed

R_co = TypeVar("R_co", bound=Run, covariant=True)

# The name of a run contains a hash of its content, and the spec of a Job is immutable: a later release of this program
# that writes the spec differently must not repeat the run.
SAME_RUN = ["spec"]
# With a fixed name: only what Kueue writes into a Job at admission and reverts at suspension. The API refuses any other
# difference.
OWNED_BY_KUEUE = {
    "Job": [
        "spec.suspend",  # false while admitted
        "spec.template.spec.nodeSelector",  # node labels of the flavor
        "spec.template.spec.tolerations",  # tolerations of the flavor
    ],
    "JobSet": [  # in the template of each child Job
        "spec.suspend",
        "spec.replicatedJobs[*].template.spec.template.spec.nodeSelector",
        "spec.replicatedJobs[*].template.spec.template.spec.tolerations",
    ],
}


class RunArguments(WorkloadArguments):
    """The arguments of every run."""

    queued_seconds: int | None = None
    """Maximum seconds of the run on nodes from queued provisioning. Default: that of the pool; 0 means that the run
    uses no such nodes."""
    last_in_queue: bool = False
    """The run is the last of its queue. If false, its creation takes one second longer."""
    owner: Input[Mapping[str, str]] | None = None
    """Name and uid of a ConfigMap that the run is deleted with. Default: that of a `WorkloadNamespace`, else one of
    this component."""

    def check_name(self, component: str) -> None:
        """Raise Refused for an output that would have to be known for the run's name, a hash of its content."""
        late = [name for name, value in self if name in ("image", "env", "labels") and has_outputs(value)]
        if not late or getattr(self, "fixed_name", False):
            return
        cause = "has the output of a resource, and the name of the run ends in a hash of its content"
        fixed = "fixed_name" in type(self).model_fields
        remedy = "Pass the value itself" + (", or fixed_name=True" if fixed else "")
        raise Refused(component, *(Problem(name, cause, remedy) for name in late))

    def nodes(self, placed: Placed[Run]) -> Place:
        """The nodes of the run, as its arguments decide them."""
        place = place_of(placed)
        seconds = place.queued_seconds if self.queued_seconds is None else self.queued_seconds or None
        return replace(place, node_selector=self.selected(placed), queued_seconds=seconds)


class GpuRunArguments(RunArguments, OnGpus):
    """The arguments of a run on GPUs."""

    claims_nics: bool = False
    """Each pod claims the NICs of its node by the template `rdma` of the namespace. On A4X, it claims them by `rdma-4`,
    and a channel of NVLink by `nvlink`. On A4X Max, it also claims the channel. Default: as `pool` has them."""
    gpudirect: str | None = None
    """`tcpx` or `tcpxo`, which the nodes have. Default: as `pool` has it."""

    def nodes(self, placed: Placed[Run]) -> Place:
        place = super().nodes(placed)
        if not self.claims_nics and self.gpudirect is None:
            return place
        stated = place_on_gpus(place.node_selector, place.queued_seconds, self.claims_nics, self.gpudirect)
        return replace(place, fabric=stated.fabric)


class TpuRunArguments(RunArguments):
    """The arguments of a run on TPUs."""

    image: Input[str] = JAX_TPU_IMAGE
    only_pools: Sequence[str] | None = None
    """Node pools that the pods may use, if other pools have the same labels. Default: any pool with the labels."""

    def nodes(self, placed: Placed[Run]) -> Place:
        place = super().nodes(placed)
        return place if self.only_pools is None else replace(place, only_pools=self.only_pools)


class RunComponent(Component, Generic[R_co]):
    """What the components of runs share: a Job or a JobSet, and the Service through which the pods of a Job connect.

    A run that a newer one replaces goes on, and so does one that leaves the program. It ends with its namespace or, if
    the program does not delete that, with its owner: a ConfigMap of the component or of the `WorkloadNamespace`.
    """

    job_name: pulumi.Output[str]

    @property
    def title(self) -> str:
        """What no other component of the program is called."""
        return f"{type(self).__name__} {self._name}"

    def __init__(self, name: str, args: RunArguments, kind: type[R_co]) -> None:
        """Create the owner of the run, if it gets none. An empty one stands for its namespace."""
        title = f"{type(self).__name__} {name}"
        args.check_name(title)
        placed = args.workload(kind, title)
        super().__init__(name, args)
        self.cluster = args.place()
        self.run, self.place, self._parts = placed.section, args.nodes(placed), args.pod
        self._kubeconfig, self._last_in_queue = args.watched(), args.last_in_queue
        owner = args.owner
        if owner is None and args.space:
            owner = args.space.run_owner()
        if owner is None:
            owner = create_owner(self.run.namespace, f"{self.run.name}-owner", self)
        self._owned = owned_by(owner)

    @property
    def called(self) -> str:
        return self.run.name

    def created_once(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of the run's Job or JobSet, which is created once and outlives a change of its configuration.

        With a kubeconfig, its creation ends once the run has its place in its queue.
        """
        run = self.run
        # Kueue's webhook sees every Job and JobSet in its namespaces, with or without a queue.
        binding = pulumi.ResourceHookBinding.merge(explained(run, self.title), kueue_hook(self.title))
        if run.queue is not None and self._kubeconfig is not None:
            order = wait_for_workload(self.title, run.namespace, self._kubeconfig, self._last_in_queue)
            binding = pulumi.ResourceHookBinding.merge(binding, order)
        return self.main_options(
            depends_on=list(depends_on),
            retain_on_delete=True,
            # The API refuses a changed run with the same name. If Pulumi deleted the old run first, it would forget
            # it, and repeat even an unchanged run.
            delete_before_replace=False,
            ignore_changes=OWNED_BY_KUEUE[run.object_kind] if run.fixed_name else SAME_RUN,
            hooks=binding,
        )

    def create_service(self, run: FineTune | TpuBatch) -> pulumi.Resource:
        """The headless Service of a Job. A replaced run keeps its own."""
        service = headless_service(run)
        name = service["metadata"]["name"]
        metadata: Any = {**service["metadata"], **self._owned}
        return k8s.core.v1.Service(
            *self.child(
                f"{run.namespace}/{name}", retain_on_delete=True, hooks=explained(run, f"{self.title} service")
            ),
            metadata=metadata,
            spec=service["spec"],
        )

    def create_job(self, job: Object, opts: pulumi.ResourceOptions) -> None:
        """The Job."""
        annotations = {**SKIP_AWAIT, **job["metadata"].get("annotations", {})}
        metadata: Any = {**job["metadata"], "annotations": annotations, **self._owned}
        name, template = metadata["name"], job["spec"]["template"]
        template["spec"] = self._parts.added_to(template["spec"])
        created = k8s.batch.v1.Job(*named(f"{metadata['namespace']}/{name}", opts), metadata=metadata, spec=job["spec"])
        self.job_name = created.metadata.name.apply(lambda known: known or name)
        self.register_outputs({"jobName": self.job_name})

    def needs_jobset(self, args: RunArguments) -> None:
        """Raise Refused if the namespace's Kueue comes without JobSet."""
        kueue = args.space.kueue if args.space else None
        if kueue is not None and not kueue.has_jobset:
            cause = f"its {kueue.called} installs no JobSet, so the cluster would not know the run"
            raise Refused(self.title, Problem("namespace", cause, "Pass jobset=True to the KueueStack"))

    def create_jobset(self, manifest: Object, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """The JobSet."""
        metadata: Any = {**manifest["metadata"], **self._owned}
        spec = manifest["spec"]
        for job in spec["replicatedJobs"]:
            template = job["template"]["spec"]["template"]
            template["spec"] = self._parts.added_to(template["spec"])
        name = f"{metadata['namespace']}/{metadata['name']}"
        jobset = custom_resource(named(name, opts), api_version=JOBSET_API, kind="JobSet", metadata=metadata, spec=spec)
        # Read from the resource: known in a preview, and after the JobSet in an update.
        self.job_name = cast(Any, jobset).metadata["name"].apply(str)
        self.register_outputs({"jobName": self.job_name})
        return jobset


def explained(run: Run, title: str) -> pulumi.ResourceHookBinding:
    """A hook that says what to do about a run that is still in the cluster, or whose fixed name was changed."""

    def explain(args: pulumi.ErrorHookArgs) -> bool:
        refusals = ("already exists", "immutable") if run.fixed_name else ("already exists",)
        if any(refusal in args.errors[0] for refusal in refusals):
            pulumi.log.error(_still_there(run))
        return False

    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{title}: explain", explain)])


def _still_there(run: Run) -> str:
    kind, job = run.object_kind, run.object_name
    objects = f"{kind.lower()}/{job}"
    if isinstance(run, FineTune | TpuBatch):
        objects += f" service/{service_of(run)}"
    delete = f"delete the old one first: kubectl -n {run.namespace} delete --ignore-not-found {objects}"
    if run.fixed_name:
        return (
            f"The {kind} {run.namespace}/{job} already exists, and a {kind} can't be changed. To run the changed one "
            f"beside it, change its `name` or remove `fixedName`. To replace it, {delete}"
        )
    return (
        f"The {kind} {run.namespace}/{job} is still in the cluster: a run stays when it leaves the configuration. To "
        f"let it go on, remove {run.name} from the configuration again. To start it again, {delete}"
    )


# Kueue may be starting. After this time a run without a Workload continues without its place in the queue.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.3


def wait_for_workload(
    name: str, namespace: str, kubeconfig: pulumi.Input[str], last: bool = False
) -> pulumi.ResourceHookBinding:
    """The hook with which a new queued run waits for its Workload, so that no later run overtakes it.

    Of Workloads of the same priority Kueue admits the oldest first, by creation time in whole seconds
    (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#queueing-strategy). So there is a pause of a second, except
    after the `last` run of a queue. `name` is unique in the program.
    """

    async def wait(args: pulumi.ResourceHookArgs) -> None:
        known = await pulumi.Output.from_input(kubeconfig).future()
        uid = (args.new_outputs or {}).get("metadata", {}).get("uid")
        if not known or not uid:
            return

        async def check() -> str | None:
            return None if await in_thread(has_workload, known, namespace, uid) else "no Workload"

        if await poll_until(check, PATIENCE_SECONDS, Pauses(PAUSE_SECONDS)):
            pulumi.log.warn(f"Kueue has created no Workload for {args.name} yet. Later runs may be admitted first.")
            return
        if not last:
            await asyncio.sleep(1)  # the next Workload then has a later creation time

    return pulumi.ResourceHookBinding(after_create=[pulumi.ResourceHook(f"{name}: order of creation", wait)])


def has_workload(kubeconfig: str, namespace: str, uid: str) -> bool:
    """Whether Kueue has created a Workload for the object with this uid. False while the cluster doesn't answer."""
    try:
        return connection(kubeconfig).call(lambda api: workload_of(api, namespace, uid)) is not None
    except Exception:  # noqa: BLE001  whatever the API or the plugin says, it may be over at the next try
        return False
