"""What all runs have in common: a Job or JobSet that is made once, never again, and never killed by a newer one."""

from typing import Any, NotRequired, TypedDict

import pulumi

from catalog.capacity import MODES
from catalog.nodes import GKE_NODEPOOL
from catalog.tpus import GOOGLE_TPU
from components.base import TokenSecretArgs
from components.queue_order import wait_for_workload
from components.retry import kueue_hook
from components.workload import (
    SHARED_MEMORY_MOUNT,
    WorkloadArgs,
    environment,
    queue_label,
    resources,
    shared_memory,
)
from settings.model import FineTune, FuseVolume, Multislice, TpuBatch
from settings.plan import DEFAULT_NAMESPACE, grace_period, ignores_disruptions

Run = FineTune | Multislice | TpuBatch

# A run's content is in its name, and the spec of a Job can't be changed anyway: what a later release of this program
# would write differently must not make the same run again.
SAME_RUN = ["spec"]
# With a fixed name only what Kueue writes into a Job that it admits, and takes back when it suspends it; a difference
# in the rest is for the API to refuse.
OWNED_BY_KUEUE = [
    "spec.suspend",  # false while admitted
    "spec.template.spec.nodeSelector",  # node labels of the flavor
    "spec.template.spec.tolerations",  # tolerations of the flavor
]
# The same in a JobSet, whose child Jobs have a template each.
OWNED_BY_KUEUE_IN_JOBSETS = [
    "spec.suspend",
    "spec.replicatedJobs[*].template.spec.template.spec.nodeSelector",
    "spec.replicatedJobs[*].template.spec.template.spec.tolerations",
]

# https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/
MAX_RUN_DURATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"


class ContainerPortArgs(TypedDict):
    """A port of a container, in Kubernetes' own words."""

    containerPort: int


class FuseVolumeArgs(TypedDict):
    """The bucket as a folder, through the Cloud Storage FUSE CSI driver."""

    bucket: str
    """Name of the bucket."""
    mount_path: NotRequired[str]
    mount_options: NotRequired[str]
    logging_severity: NotRequired[str]
    """`trace`, `debug`, `info`, `warning` or `error`."""
    sidecar_memory_limit: NotRequired[str]
    """Bytes, as a Kubernetes quantity."""
    sidecar_cpu: NotRequired[str]
    """Cores, as a Kubernetes quantity; request and limit."""


class TpuRunArgs(WorkloadArgs):
    """Arguments that every run on TPUs has."""

    chips_per_host: int
    """TPU chips of one pod, all of its machine's: `settings.plan.workload_slice` has them."""
    hosts: int
    """Machines of one slice, each with a pod."""
    image: NotRequired[str]
    container: NotRequired[str]
    command: NotRequired[list[str]]
    """None: the image's."""
    args: NotRequired[list[str]]
    ports: NotRequired[list[int]]
    """Ports that TPU workers listen on."""
    privileged: NotRequired[bool]
    volume: NotRequired[FuseVolumeArgs]
    """Bucket to mount; none: no bucket."""
    shared_memory: NotRequired[str]
    """Size of /dev/shm in bytes, as a Kubernetes quantity; none: 64 MiB."""
    token_secret: NotRequired[TokenSecretArgs]
    """Secret with the Hugging Face token, which the container has as HF_TOKEN; none: no token."""
    ignore_disruptions: NotRequired[bool]
    """Disruptions of pods don't count as failures; none: true, unless the name is fixed."""
    termination_grace_period_seconds: NotRequired[int]
    """None: 60, or Kubernetes' own where the name is fixed."""
    fixed_name: NotRequired[bool]
    """The run is called exactly `name`; else a hash of its content follows."""
    only_pools: NotRequired[list[str]]
    """Node pools to stay on where others have the same labels; none: any with the labels."""
    queued_seconds: NotRequired[int]
    """Bound of the run in seconds on nodes that queued provisioning brings; none: not on such nodes."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """By which a run's place in its queue is awaited; none: runs made within a second are admitted in any order."""
    last_in_queue: NotRequired[bool]
    """No other run is made after it in its queue; else its creation ends a second later."""


def options(
    run: Run,
    name: str,
    parent: pulumi.Resource,
    depends_on: list[pulumi.Resource],
    kubeconfig: pulumi.Input[str] | None,
    last_in_queue: bool,
) -> pulumi.ResourceOptions:
    """Options of the run's Job or JobSet, by which it is made once and outlives a change of its configuration.

    With a kubeconfig its creation ends when it has its place in its queue.
    """
    binding = hooks(run, name)
    if run.queue is not None and kubeconfig is not None:
        kind = "jobset" if isinstance(run, Multislice) else "job"
        order = wait_for_workload(f"{kind} {name}", run.namespace, kubeconfig, last_in_queue)
        binding = pulumi.ResourceHookBinding.merge(binding, order)
    by_kueue = OWNED_BY_KUEUE_IN_JOBSETS if isinstance(run, Multislice) else OWNED_BY_KUEUE
    return pulumi.ResourceOptions(
        parent=parent,
        depends_on=depends_on,
        retain_on_delete=outlives(run),
        # A changed run of the same name is refused by the API. Were the old one deleted first, Pulumi would
        # forget it, and make even the unchanged run anew.
        delete_before_replace=False,
        ignore_changes=by_kueue if run.fixed_name else SAME_RUN,
        hooks=binding,
    )


def outlives(run: Run) -> bool:
    """Whether the run stays when its configuration goes: one that was replaced goes on, one that finished stays.

    Its namespace takes it along in the end. The default namespace never goes; so what runs there goes with its stack.
    """
    return run.namespace != DEFAULT_NAMESPACE


def hooks(run: Run, name: str) -> pulumi.ResourceHookBinding:
    """Waits for who must admit the run, and explains why the API refuses a changed run of a fixed name."""
    kind = "JobSet" if isinstance(run, Multislice) else "Job"

    def explain(args: pulumi.ErrorHookArgs) -> bool:
        if run.fixed_name and any(refusal in args.errors[0] for refusal in ("already exists", "immutable")):
            pulumi.log.error(
                f"There is a {kind} {run.namespace}/{run.name} already, and a {kind} can't be changed. To run the "
                "changed one beside it, give it another `name`, or leave `fixedName` out; to run it instead, delete "
                f"the old one first: kubectl -n {run.namespace} delete {kind.lower()} {run.name}"
            )
        return False

    binding = pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{kind.lower()} {name}: explain", explain)])
    # Kueue looks at every Job and JobSet in the namespaces that it manages, under a queue or not.
    return pulumi.ResourceHookBinding.merge(binding, kueue_hook(f"{kind.lower()} {name}"))


def pod_failure_policy(run: Run, action: str) -> dict[str, Any]:
    """The part of a Job's spec that says what a pod's disruption does to it; none where it counts as a failure.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    if not ignores_disruptions(run):
        return {}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": disrupted}]}}


def restart_policy(run: Run, otherwise: str) -> str:
    """Who starts a failed pod again. A pod failure policy leaves it to the Job: containers are not restarted."""
    return "Never" if ignores_disruptions(run) else otherwise


def queued_annotations(seconds: int | None) -> dict[str, str]:
    """Annotations of a run on nodes that queued provisioning brings: Kueue passes the bound on with its request."""
    return {MAX_RUN_DURATION: str(seconds)} if seconds else {}


def queued_tolerations(seconds: int | None) -> list[Any]:
    """Tolerations of such nodes' taints, which keep everything off that didn't ask for them."""
    taints = MODES["queuedFlexStart"].taints if seconds else ()
    return [{"key": one.key, "operator": "Equal", "value": one.value, "effect": one.effect} for one in taints]


def tpu_pod(run: TpuBatch | Multislice, args: TpuRunArgs) -> dict[str, Any]:
    """Spec of a TPU run's pods, in the API's own words: a JobSet's fields have no others in the SDK."""
    container: dict[str, Any] = {
        "name": run.container,
        "image": run.image,
        "resources": resources(run, args["chips_per_host"], GOOGLE_TPU),
    }
    ports: list[ContainerPortArgs] = [{"containerPort": port} for port in run.ports]
    volumes: list[Any] = []
    mounts: list[Any] = []
    if run.shared_memory is not None:
        volumes.append(shared_memory(run.shared_memory))
        mounts.append(SHARED_MEMORY_MOUNT)
    if run.volume is not None:
        volumes.append(fuse_volume(run.volume))
        mounts.append(fuse_mount(run.volume))
    optional = {
        "ports": ports,
        "command": run.command,
        "args": run.args,
        "env": environment(run, {}, ["HF_TOKEN"]),
        "volumeMounts": mounts,
    }
    container |= {key: value for key, value in optional.items() if value}
    if run.privileged:
        container["securityContext"] = {"privileged": True}

    pod: dict[str, Any] = {"containers": [container]}
    if args.get("node_selector"):
        pod["nodeSelector"] = args["node_selector"]
    if args.get("only_pools"):
        pod["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [of_pools(args["only_pools"])]}}}
    if args.get("queued_seconds"):
        pod["tolerations"] = queued_tolerations(args["queued_seconds"])
    if run.priority_class:
        pod["priorityClassName"] = run.priority_class
    if run.service_account != "default":
        pod["serviceAccountName"] = run.service_account
    if (grace := grace_period(run)) is not None:
        pod["terminationGracePeriodSeconds"] = grace
    if volumes:
        pod["volumes"] = volumes
    return pod


def template_metadata(run: TpuBatch | Multislice) -> dict[str, Any]:
    """The part of a pod template with the labels and annotations of a TPU run's pods; none where there are none."""
    optional = {"labels": run.labels, "annotations": fuse_annotations(run.volume) if run.volume else {}}
    known = {key: value for key, value in optional.items() if value}
    return {"metadata": known} if known else {}


FUSE_VOLUME = "gcs-fuse-csi-ephemeral"


def fuse_annotations(volume: FuseVolume) -> dict[str, str]:
    """Annotations of pods that bring the FUSE sidecar; a limit alone is its request too."""
    limits = {"memory-limit": volume.sidecar_memory_limit, "cpu-limit": volume.sidecar_cpu}
    return {
        "gke-gcsfuse/volumes": "true",
        **{f"gke-gcsfuse/{limit}": amount for limit, amount in limits.items() if amount},
    }


def fuse_volume(volume: FuseVolume) -> Any:
    """The bucket as a volume of a pod, in the API's own words."""
    bucket = {
        "bucketName": volume.bucket,
        "mountOptions": volume.mount_options,
        "gcsfuseLoggingSeverity": volume.logging_severity,
    }
    return {"name": FUSE_VOLUME, "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": bucket}}


def fuse_mount(volume: FuseVolume) -> Any:
    """Where a container has the bucket, in the API's own words."""
    return {"name": FUSE_VOLUME, "mountPath": volume.mount_path, "readOnly": False}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def of_pools(names: list[str]) -> dict[str, Any]:
    """The node selector term of any of these pools."""
    return {"matchExpressions": [{"key": GKE_NODEPOOL, "operator": "In", "values": names}]}


def metadata(run: Run, name: str, annotations: dict[str, str]) -> Any:
    """Metadata of a run's Job or JobSet; the label by which Kueue takes it is on itself, not on its pods."""
    optional = {"labels": queue_label(run), "annotations": annotations}
    return {"name": name, "namespace": run.namespace, **{key: value for key, value in optional.items() if value}}
