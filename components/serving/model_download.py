"""A Job that fills a bucket with a model, and the wait until the model is there."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

import gke_ai
from gke_ai.catalog.engines import fuse, model_cache
from gke_ai.components.arguments import Input, in_sections, takes
from gke_ai.components.base import SKIP_AWAIT, Component
from gke_ai.components.bucket import ModelBucket
from gke_ai.components.cluster.connection import InCluster, kubeconfig_in
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.runs.job import SAME_RUN
from gke_ai.components.support.cluster_client import connection, in_thread, load_client
from gke_ai.components.support.polling import Pauses, log_waits, no_answer, poll_until
from gke_ai.kube.objects import holds
from gke_ai.manifests.workload import bucket_volume, variables
from gke_ai.settings.model import TokenSecret
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.resolved import Download

PROGRAMS = Path(gke_ai.__file__).parent / "pods" / "programs"
FILES = ("fill_bucket.py", "hugging_face.py")
PROGRAM_PATH = "/program"
CONTAINER = "download"
# The kubelet restarts nothing: the Job creates a new pod, and after this many failures none.
MAX_FAILURES = 4
PAUSES = Pauses(0.5, 1.2, 5.0)
QUIET_SECONDS = 2.0
REPEAT_TRIES = 30

Json = Mapping[str, Any]


class ModelDownloadArguments(InCluster):
    namespace: WorkloadNamespace | DnsLabel
    """Namespace of the Job, with the service account `model-download`, which may write to the bucket."""
    bucket: ModelBucket | str
    """Bucket to fill, or its name."""
    model: str
    """Model id on Hugging Face."""
    revision: str = "main"
    """Commit, tag or branch."""
    token_secret: TokenSecret | None = None
    """Secret with the Hugging Face token. Default: no token."""
    timeout_seconds: int = 3600
    """Time that an update waits for the model, in seconds."""
    kubeconfig: Input[str] | None = None
    """Cluster in which an update waits for the model. Default: `cluster`, else no wait."""


class ModelDownload(Component):
    """A Job that downloads a model from Hugging Face into a bucket, once, for all servers that read it there.

    Only this Job has a token. It runs on nodes without accelerators, and mounts the bucket with Cloud Storage FUSE. Its
    program checks every file, and writes a marker last: an interrupted Job continues, and a Job that is created again
    finds the marker and ends at once. A ConfigMap has the program.

    An update logs the progress, and waits until the bucket has the model. A Job that has failed is created again by the
    next update. A changed model or revision is a new Job, which fills a folder of its own.

    Refused: RunError if the Job fails, with the last line of its log, or if the bucket does not have the model in time.

    Sources: https://huggingface.co/docs/hub/api, https://kubernetes.io/docs/concepts/workloads/controllers/job/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral

    Example:
        ModelDownload("gemma-files", cluster=cluster, namespace=llm, bucket=models, model="google/gemma-3-4b-it")
    """

    job_name: pulumi.Output[str]

    @takes(ModelDownloadArguments)
    def __init__(self, name: str, args: ModelDownloadArguments) -> None:
        super().__init__(name, args)
        namespace, bucket = in_sections(args.namespace), in_sections(args.bucket)
        cluster = self.cluster = args.place()
        kubeconfig = kubeconfig_in(args.kubeconfig, cluster)
        download = Download(bucket, args.model, args.revision, args.token_secret, args.timeout_seconds)
        content = {file: (PROGRAMS / file).read_text() for file in FILES}
        # By its content: a changed program is a new ConfigMap, and a pod that starts meanwhile finds its own.
        program = f"{download.name}-{hashlib.sha256(''.join(content.values()).encode()).hexdigest()[:6]}"
        config_map = k8s.core.v1.ConfigMap(
            *self.child(f"{namespace}/{program}"), metadata={"name": program, "namespace": namespace}, data=content
        )
        # Any: checking this literal against the provider's types exhausts mypy's memory.
        spec: Any = {
            "backoffLimit": MAX_FAILURES,
            "podFailurePolicy": {"rules": failure_rules()},
            "template": {"metadata": {"annotations": annotations()}, "spec": pod(download, program)},
        }
        job = k8s.batch.v1.Job(
            *self.main_child(
                f"{namespace}/{download.name}",
                depends_on=[config_map],
                ignore_changes=SAME_RUN,  # a later release that writes the spec differently repeats nothing
                delete_before_replace=False,
            ),
            metadata={"name": download.name, "namespace": namespace, "annotations": SKIP_AWAIT},
            spec=spec,
        )
        self.job_name = job.metadata.name.apply(lambda name: name or download.name)
        # The Job, known once the bucket has the model.
        self.complete = filled(download, namespace, spec, job, kubeconfig).apply(lambda _: job)
        self.register_outputs({"jobName": self.job_name})


def annotations() -> dict[str, str]:
    """Annotations of the pod that add the FUSE sidecar."""
    limits = {f"{fuse.PREFIX}{resource}-limit": amount for resource, amount in model_cache.FILL_SIDECAR.items()}
    return {fuse.VOLUMES: "true", **limits}


def failure_rules() -> list[dict[str, Any]]:
    """The pod failure policy: a disruption is no failure, and another try does not help what the program refuses."""
    refused = {"containerName": CONTAINER, "operator": "In", "values": [model_cache.REFUSED]}
    return [
        {"action": "FailJob", "onExitCodes": refused},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def pod(download: Download, program: str) -> dict[str, Any]:
    """Spec of the pod, with the API's field names. It requests no accelerator and tolerates none of their taints."""
    stated = {
        "MODEL": download.model,
        "REVISION": download.revision,
        "MODEL_DIRECTORY": f"{model_cache.MOUNT_PATH}/{model_cache.folder_of(download.model, download.revision)}",
        "PYTHONPATH": PROGRAM_PATH,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    env: list[Any] = [*variables(stated)]
    if download.token is not None:
        reference = {"name": download.token.name, "key": download.token.key}
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    items = [{"key": file, "path": f"programs/{file}"} for file in FILES]
    return {
        "containers": [
            {
                "name": CONTAINER,
                "image": model_cache.FILL_IMAGE,
                "command": ["python3", "-m", "programs.fill_bucket"],
                "env": env,
                "resources": {"requests": dict(model_cache.FILL_REQUEST), "limits": dict(model_cache.FILL_REQUEST)},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [
                    {"name": "program", "mountPath": PROGRAM_PATH, "readOnly": True},
                    {"name": "models", "mountPath": model_cache.MOUNT_PATH, "readOnly": False},
                ],
            }
        ],
        "restartPolicy": "Never",
        "serviceAccountName": model_cache.ACCOUNT,
        "volumes": [
            {"name": "program", "configMap": {"name": program, "items": items}},
            bucket_volume("models", download.bucket, fuse.MOUNT_OPTIONS, read_only=False),
        ],
    }


def filled(
    download: Download, namespace: str, spec: Json, job: "k8s.batch.v1.Job", kubeconfig: pulumi.Input[str] | None
) -> pulumi.Output[bool]:
    """An output that is true once the bucket has the model, or false if nothing waits. Never waits in a preview."""
    if kubeconfig is None or pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input(False)
    load_client()

    async def watch(values: list[str]) -> bool:
        await wait_for(download, JobClient(values[0], namespace, download.name, spec), job)
        return True

    # The id is known once the Job exists.
    return pulumi.Output.all(kubeconfig, job.id).apply(watch)


class JobClient:
    """The Job in its cluster, and its spec in this update. Calls block: run them in a thread."""

    def __init__(self, kubeconfig: str, namespace: str, name: str, spec: Json) -> None:
        self._connection, self._namespace, self._name = connection(kubeconfig), namespace, name
        self._spec = spec

    @property
    def title(self) -> str:
        """The Job in messages."""
        return f"{self._namespace}/{self._name}"

    def look(self) -> tuple[Json, list[Json], str]:
        """The Job, its pods, and the last line of the newest pod's log."""

        def read(api: Any) -> tuple[Json, list[Json], str]:
            from kubernetes import client

            core, selector = client.CoreV1Api(api), f"batch.kubernetes.io/job-name={self._name}"
            job = client.BatchV1Api(api).read_namespaced_job(self._name, self._namespace)
            pods = api.sanitize_for_serialization(
                core.list_namespaced_pod(self._namespace, label_selector=selector).items
            )
            pods.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
            line = ""
            if pods and pods[-1].get("status", {}).get("containerStatuses"):
                name = pods[-1]["metadata"]["name"]
                try:
                    line = core.read_namespaced_pod_log(name, self._namespace, container=CONTAINER, tail_lines=1)
                except client.ApiException:
                    line = ""  # the container has not started, or its log is gone
            return api.sanitize_for_serialization(job), pods, str(line).strip()

        return self._connection.call(read)

    def repeat(self, job: Json) -> None:
        """Create a failed Job again, under the same name.

        With the spec of this update, which Pulumi ignores: a token may be what the failed Job lacked, and the ConfigMap
        of its program may be deleted.
        """

        def replace(api: Any) -> None:
            from kubernetes import client

            batch, metadata = client.BatchV1Api(api), job["metadata"]
            kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata}
            batch.delete_namespaced_job(self._name, self._namespace, propagation_policy="Background")
            body: Any = {"apiVersion": "batch/v1", "kind": "Job", "metadata": kept, "spec": self._spec}
            for _ in range(REPEAT_TRIES):
                try:
                    batch.create_namespaced_job(self._namespace, body)
                    return
                except client.ApiException as error:
                    if error.status != 409:  # the failed Job is not gone yet
                        raise
                time.sleep(1)

        self._connection.call(replace)


async def wait_for(download: Download, client: JobClient, resource: pulumi.Resource) -> None:
    """Return once the bucket has the model. Raises RunError if the Job fails, or after the download's timeout."""
    last: tuple[Json, list[Json], str] | None = None

    async def check() -> str | None:
        nonlocal last
        first = last is None
        try:
            last = await in_thread(client.look)
            if first and holds(last[0], "Failed"):
                await in_thread(client.repeat, last[0])
                return "a Job that failed before is repeated"
        except Exception as error:  # noqa: BLE001
            if getattr(error, "status", None) == 404:
                raise pulumi.RunError(
                    f"The Job {client.title} was deleted. Run refresh, then up: a new Job finds what the bucket has."
                ) from None
            return no_answer(error)
        return None if holds(last[0], "Failed") else waits_for(*last)

    log = log_waits(client.title, resource, QUIET_SECONDS)
    reason = await poll_until(check, download.timeout_seconds, PAUSES, log)
    if reason is not None:
        raise pulumi.RunError(
            f"{client.title} has not filled bucket {download.bucket} after {download.timeout_seconds} s: it waits for "
            f"{reason}.\nThe Job continues. Run up again, or allow more time with `modelCache.timeoutSeconds`."
        )
    if last is not None and holds(last[0], "Failed"):
        said = last[2].removeprefix("error: ") or "its pods left no log"
        raise pulumi.RunError(
            f"{client.title} could not fill bucket {download.bucket} with {download.model}: {said}\n"
            "Nothing that is complete was changed. Run up again to continue the download."
        )


def waits_for(job: Json, pods: Sequence[Json], line: str) -> str | None:
    """What the model waits for, in words. None once the bucket has it."""
    if holds(job, "Complete"):
        return None
    if not pods:
        return "its pod to be created"
    status = pods[-1].get("status", {})
    states = [entry.get("state", {}) for entry in status.get("containerStatuses") or []]
    if waiting := next((state["waiting"] for state in states if "waiting" in state), None):
        return f"its container to start: {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    if not states:
        return "its container to start" if holds(pods[-1], "PodScheduled") else "a node"
    return f"the download: {line or 'it begins'}"
