"""Runs the containers of named images as local processes, in the place of a kubelet.

A user names the images (`emulator/run program`); all other containers run nothing. KWOK starts every pod. For a pod
with a named image this module takes over from there: it marks the pod, so that KWOK leaves its end alone, starts the
processes, and writes the pod's status. A deleted pod's processes get SIGTERM and after the grace period SIGKILL; only
then its status says that it has ended, and KWOK deletes it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import math
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from catalog.workload_identity import principal
from emulator.cluster import pod_logs, processes
from emulator.cluster.api import MERGE_PATCH, Refused, View, answer
from emulator.cluster.folder import Folder
from emulator.cluster.local_spec import Names, NotStarted, Paths, bucket_of, expand, sources, variables
from emulator.cluster.local_status import (
    CANNOT_START,
    KILLED,
    ContainerState,
    backoff,
    exit_status,
    pod_status,
    restarts,
)
from emulator.cluster.rendezvous import Rendezvous
from emulator.gcp_plugin.storage import BUCKET_IAM_MEMBER
from emulator.gcp_plugin.store import Store, project_number
from emulator.program import LocalProgram, program_for

Object = dict[str, Any]
log = logging.getLogger(__name__)

# The annotation on pods whose end is ours: KWOK's stage pod-terminate excludes them.
LOCAL = "emulator.gke-ai/local-processes"
STRATEGIC_PATCH = {"content-type": "application/strategic-merge-patch+json"}
ENDED = ("Succeeded", "Failed")
TRY_AGAIN_SECONDS = 1.0
# PATH of most images, after the programs of the Python environment.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


class LocalPods:
    """Runs the pods of a cluster that have a named image.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        pods: The cluster's Pods.
        store: The cloud's resources, with the buckets.
    """

    def __init__(self, folder: Folder, api: httpx.AsyncClient, pods: View, store: Store) -> None:
        self.folder = folder
        self.api = api
        self.store = store
        self.rendezvous = Rendezvous()
        self.written: set[Path] = set()
        self._pods = pods
        self._running: dict[str, LocalPod] = {}
        self._simulated: set[str] = set()

    async def run(self, changed: asyncio.Event) -> None:
        """Starts and stops processes when pods start and end."""
        await self._pods.synced.wait()
        await asyncio.to_thread(processes.end_local_pods, self.folder.path)
        self._clean()
        # The processes of an earlier daemon ended with it. Pods that it simulated stay simulated.
        for pod in self._pods.objects.values():
            if LOCAL in pod["metadata"].get("annotations", {}) and pod["status"].get("phase") not in ENDED:
                self._running[pod["metadata"]["uid"]] = LocalPod(self, pod, lost=True)
            elif pod["status"].get("phase") == "Running":
                self._simulated.add(pod["metadata"]["uid"])
        while True:
            changed.clear()
            pods = {pod["metadata"]["uid"]: pod for pod in self._pods.objects.values()}
            for uid in self._running.keys() - pods.keys():
                self._running.pop(uid).abandon()
            self._simulated &= pods.keys()
            for uid, pod in pods.items():
                self._update(uid, pod)
            await changed.wait()

    def _update(self, uid: str, pod: Object) -> None:
        running, metadata, phase = self._running.get(uid), pod["metadata"], pod["status"].get("phase")
        if running is not None:
            if phase in ENDED:
                running.abandon()
            elif metadata.get("deletionTimestamp"):
                running.stop(metadata.get("deletionGracePeriodSeconds", 0))
        elif uid not in self._simulated and phase == "Running":
            if metadata.get("deletionTimestamp") or not _is_named(pod):
                self._simulated.add(uid)
            else:
                self._running[uid] = LocalPod(self, pod)

    def _clean(self) -> None:
        """Deletes the private folders of pods that are gone."""
        uids = {pod["metadata"]["uid"] for pod in self._pods.objects.values()}
        for folder in self.folder.local_pods.glob("*"):
            if folder.name not in uids:
                shutil.rmtree(folder, ignore_errors=True)


def _is_named(pod: Object) -> bool:
    return any(program_for(container["image"]) for container in pod["spec"]["containers"])


@dataclass(frozen=True)
class Launch:
    """What starts a container's process."""

    command: list[str]
    environment: dict[str, str]
    working_directory: str
    paths: Paths


class LocalPod:
    """The processes of one pod. `lost`: its processes ended with an earlier daemon."""

    def __init__(self, pods: LocalPods, pod: Object, lost: bool = False) -> None:
        self._pods = pods
        self._pod = pod
        self._lost = lost
        metadata, status = pod["metadata"], pod["status"]
        self._title = f"{metadata['namespace']}/{metadata['name']}"
        self._private = pods.folder.local_pods / metadata["uid"]
        restarts_before = {item["name"]: item["restartCount"] for item in status.get("containerStatuses", [])}
        self._states = {
            spec["name"]: ContainerState(spec["name"], spec["image"], restarts=restarts_before.get(spec["name"], 0))
            for spec in pod["spec"]["containers"]
        }
        self._member = pods.rendezvous.join(pod)
        self._stopping = asyncio.Event()
        self._deadline = math.inf
        self._abandoned = False
        self._publishing = asyncio.Lock()
        self._published: list[Object] = []
        self._task = asyncio.create_task(self._run())

    def stop(self, grace: float) -> None:
        """Ends the processes with SIGTERM, and after `grace` seconds with SIGKILL. A later call may shorten it."""
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self._pods.rendezvous.leave(self._pod)
        self._stopping.set()

    def abandon(self) -> None:
        """Kills the processes: the pod is gone, or something else ended it."""
        self._abandoned = True
        self.stop(0)

    async def _run(self) -> None:
        try:
            if await self._claim():
                launches = await self._prepare()
                await self._run_containers(launches)
                await self._publish(ended=True)
        except Exception:
            log.exception("%s: failed", self._title)
        finally:
            self._pods.rendezvous.leave(self._pod)
            self._member.close()
            shutil.rmtree(self._private, ignore_errors=True)

    async def _claim(self) -> bool:
        """Marks the pod. Whether it still exists."""
        return await self._patch("", {"metadata": {"annotations": {LOCAL: "true"}}}, MERGE_PATCH)

    # -------------------------------------------------------------------------------------------------------- status
    async def _publish(self, ended: bool = False) -> None:
        async with self._publishing:
            status = pod_status(self._states.values(), ended)
            if ended or status["containerStatuses"] != self._published:
                self._published = status["containerStatuses"]
                await self._patch("/status", {"status": status}, STRATEGIC_PATCH)

    async def _patch(self, subresource: str, patch: Object, headers: Mapping[str, str]) -> bool:
        """Changes the pod. Tries again until it succeeds or the pod is gone; whether the pod exists."""
        metadata = self._pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"
        # The API server refuses the change of another pod with the same name.
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
        while not self._abandoned:
            try:
                answer(await self._pods.api.patch(path, json=body, headers=dict(headers)))
            except (httpx.HTTPError, Refused) as error:
                if isinstance(error, Refused) and error.status in (404, 409):
                    self.abandon()
                else:
                    log.warning("%s: %s, trying again", self._title, error)
                    await asyncio.sleep(TRY_AGAIN_SECONDS)
            else:
                return True
        return False

    # ----------------------------------------------------------------------------------------------------- containers
    async def _run_containers(self, launches: Mapping[str, Launch]) -> None:
        """Runs the containers of named images. The pod's other containers are simulated, and end with them."""
        beside = [state for name, state in self._states.items() if name not in launches]
        if not self._stopping.is_set():
            for state in beside:
                state.start()
        await asyncio.gather(*(self._run_container(self._states[name], launch) for name, launch in launches.items()))
        for state in self._states.values():
            if state.terminated is None:
                self._end_unstarted(state)

    def _end_unstarted(self, state: ContainerState) -> None:
        if state.last is not None:
            state.waiting, state.terminated = None, state.last
        elif state.running:
            state.end(0)
        else:
            state.end(KILLED, "ContainerStatusUnknown", "The container could not be located when the pod was deleted.")

    async def _run_container(self, state: ContainerState, launch: Launch) -> None:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        first = state.restarts
        if self._lost:
            state.end(KILLED, "ContainerStatusUnknown", "The emulator stopped, and the process ended with it.")
        while self._lost or not self._stopping.is_set():
            code = KILLED if self._lost else await self._run_process(state, launch)
            self._lost = False
            if self._stopping.is_set() or not restarts(policy, code):
                return
            pause = backoff(state.restarts - first)
            state.restart(pause)
            await self._publish()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _run_process(self, state: ContainerState, launch: Launch) -> int:
        """Runs a container's process once, and returns its exit status."""
        mark = f"{self._pod['metadata']['uid']}/{state.name}"
        environment = {**launch.environment, processes.POD_MARK: mark}
        log.info("%s: starting %s", self._title, launch.command[0])
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                cwd=launch.working_directory,
                start_new_session=True,
                preexec_fn=processes.end_with_parent,
            )
        except OSError as error:
            state.end(CANNOT_START, "StartError", f"{launch.command[0]}: {error.strerror}")
            await self._publish()
            return CANNOT_START
        state.start()
        file = pod_logs.file_of(self._pods.folder, self._pod, state.name, state.restarts)
        assert process.stdout is not None
        self._pods.written.add(file)
        recording = asyncio.create_task(pod_logs.record(process.stdout, file, launch.paths.shown))
        try:
            await self._publish()
            code = await self._ended(process)
        finally:
            # As in a container, no process outlives the first one.
            await asyncio.to_thread(processes.end_local_pods, self._pods.folder.path, mark)
            await asyncio.wait({recording}, timeout=5)
            recording.cancel()
            self._pods.written.discard(file)
        log.info("%s: %s ended with %s", self._title, launch.command[0], code)
        state.end(code)
        if not self._stopping.is_set():
            await self._publish()
        return code

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Waits for a process's end, and ends it when the pod stops. Returns its exit status."""
        end, stop = asyncio.create_task(process.wait()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait({end, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        signaled = False
        while not end.done():
            left = self._deadline - time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                if left <= 0:
                    process.kill()
                elif not signaled:
                    process.terminate()
                    signaled = True
            await asyncio.wait({end}, timeout=min(max(left, 0.1), 0.5))
        return exit_status(end.result())

    # -------------------------------------------------------------------------------------------------------- launch
    async def _prepare(self) -> dict[str, Launch]:
        """What starts each container of a named image, once its volumes and variables exist."""
        while True:
            try:
                return {
                    spec["name"]: await self._launch(spec, program)
                    for spec in self._pod["spec"]["containers"]
                    if (program := program_for(spec["image"]))
                }
            except NotStarted as error:
                for state in self._states.values():
                    state.wait(error.reason, str(error))
            except httpx.HTTPError as error:
                log.warning("%s: %s, trying again", self._title, error)
            await self._publish()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TRY_AGAIN_SECONDS)
                return {}

    async def _launch(self, spec: Object, program: LocalProgram) -> Launch:
        values = {}
        for collection, name, required in sources(spec):
            content = await self._read(collection, name, required)
            values[collection, name] = {key: value.decode(errors="replace") for key, value in content.items()}
        environment = variables(spec, self._pod, values)
        words = [*spec.get("command", program.command), *spec.get("args", [])]
        if not words:
            raise NotStarted("CreateContainerError", "no command specified. Add one to the image: emulator/run program")
        words = [expand(word, environment) for word in words]
        paths = await self._mounted(spec, program)
        names = Names(self._pod["spec"].get("subdomain", ""), self._pod["metadata"]["namespace"], self._member.port)
        environment = {name: paths.local(value) for name, value in names.variables(environment).items()}
        working_directory = paths.local(spec.get("workingDir", "")) or program.folder
        if not Path(working_directory).is_dir():
            raise NotStarted("CreateContainerError", f"the working directory {spec['workingDir']} doesn't exist")
        return Launch(
            [paths.local(names.local(word)) for word in words],
            self._base(program) | environment | program.env,
            working_directory,
            paths,
        )

    def _base(self, program: LocalProgram) -> dict[str, str]:
        """The environment before the container's own."""
        home = self._private / "home"
        home.mkdir(parents=True, exist_ok=True)
        return processes.environment(
            self._pods.folder.path,
            PATH=os.pathsep.join([str(Path(program.python) / "bin"), SYSTEM_PATH]),
            HOME=str(home),
            TMPDIR=str(self._private / "tmp"),
            HOSTNAME=self._member.name[2],
        )

    async def _mounted(self, spec: Object, program: LocalProgram) -> Paths:
        """The folders of a container's mounts, which exist."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        paths = Paths()
        paths.add("/tmp", self._private / "tmp")
        (self._private / "tmp").mkdir(parents=True, exist_ok=True)
        paths.add(program.at, Path(program.folder))
        for mount in spec.get("volumeMounts", []):
            if mount["mountPath"] == SERVICE_ACCOUNT_FOLDER:
                continue  # for clients of the API server, which have no credentials here
            folder = await self._volume(volumes[mount["name"]])
            target = folder / expand(
                mount.get("subPathExpr") or mount.get("subPath", ""), variables(spec, self._pod, {})
            )
            if not target.exists():
                target.mkdir(parents=True, exist_ok=True)
            paths.add(mount["mountPath"], target)
        return paths

    async def _volume(self, volume: Object) -> Path:
        if bucket := bucket_of(volume, self._pod):
            return self._bucket(*bucket)
        folder = self._private / "volumes" / str(volume["name"])
        folder.mkdir(parents=True, exist_ok=True)
        for collection, kind, key in (("configmaps", "configMap", "name"), ("secrets", "secret", "secretName")):
            if kind in volume:
                source = volume[kind]
                files = await self._read(collection, source[key], not source.get("optional"))
                items = source.get("items") or [{"key": name, "path": name} for name in files]
                for item in items:
                    file = folder / item["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.touch(mode=0o600)
                    file.write_bytes(files[item["key"]])
                return folder
        if "emptyDir" not in volume:
            kind = next((key for key in volume if key != "name"), "of no kind")
            raise NotStarted("FailedMount", f"the emulator has no files for the volume {volume['name']} ({kind})")
        return folder

    def _bucket(self, bucket: str, only_folder: str) -> Path:
        """The folder of a bucket, on which the pod's service account needs a role."""
        project, namespace = self._pods.folder.record.project, self._pod["metadata"]["namespace"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        member = principal(project_number(project), project, namespace, account)
        try:
            folder = self._pods.store.bucket_folder(bucket)
        except FileNotFoundError:
            raise NotStarted("FailedMount", f"the bucket {bucket} doesn't exist") from None
        grants = self._pods.store.all(BUCKET_IAM_MEMBER, under=f"b/{bucket}/")
        if not any(grant.inputs["member"] == member for grant in grants):
            text = f"the service account {namespace}/{account} has no role on the bucket {bucket}"
            raise NotStarted("FailedMount", text)
        return folder / only_folder

    async def _read(self, collection: str, name: str, required: bool) -> dict[str, bytes]:
        """The content of a ConfigMap or a Secret."""
        namespace = self._pod["metadata"]["namespace"]
        response = await self._pods.api.get(f"/api/v1/namespaces/{namespace}/{collection}/{name}")
        if response.status_code == 404:
            if required:
                raise NotStarted("CreateContainerConfigError", f'{collection.removesuffix("s")} "{name}" not found')
            return {}
        content = answer(response)
        data = content.get("data") or {}
        if collection == "secrets":
            return {key: base64.b64decode(value) for key, value in data.items()}
        binary = content.get("binaryData") or {}
        return {key: value.encode() for key, value in data.items()} | {
            key: base64.b64decode(value) for key, value in binary.items()
        }
