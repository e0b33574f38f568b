"""Runs the containers of named images as local processes, in the place of a kubelet.

A user names the images (`emulator/run program`). Besides them, only Jobs that fill buckets with models and runs of the
ledger run. KWOK starts every pod. For such a pod this module takes over from there: it marks the pod, so that KWOK
leaves its end alone, starts the processes, and writes the pod's status. A deleted pod's processes get SIGTERM and after
the grace period SIGKILL; only then its status says that it has ended, and KWOK deletes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from emulator.cloud.api import MERGE_PATCH, Refused, View, answer
from emulator.cloud.folder import Folder
from emulator.cloud.program import program_for
from emulator.cloud.store import Store
from emulator.machine import processes
from emulator.machine.folders import Outside, folder_name
from emulator.pods import ledger, model_cache
from emulator.pods import logs as pod_logs
from emulator.pods.local_launch import Launch, Launcher
from emulator.pods.local_spec import NotStarted
from emulator.pods.local_status import CANNOT_START, KILLED, ContainerState, backoff, exit_status, pod_status, restarts
from emulator.pods.rendezvous import Rendezvous
from emulator.pods.termination import ANNOTATION, ENDED

Object = dict[str, Any]
log = logging.getLogger(__name__)

# The value of the annotation on the pods here.
LOCAL = "true"
STRATEGIC_PATCH = {"content-type": "application/strategic-merge-patch+json"}
TRY_AGAIN_SECONDS = 1.0


class LocalPods:
    """Runs the pods of a cluster that have a named image.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        pods: The cluster's Pods.
        store: The cloud's resources, with the buckets.
        hub: URL of the stub of Hugging Face.
    """

    def __init__(self, folder: Folder, api: httpx.AsyncClient, pods: View, store: Store, hub: str = "") -> None:
        self.folder = folder
        self.hub = hub
        self.api = api
        self.store = store
        self.rendezvous = Rendezvous()
        self.written: set[Path] = set()
        self._pods = pods
        self._running: dict[str, LocalPod] = {}
        self._simulated: set[str] = set()
        # The start of a pod is in whole seconds.
        self._began = datetime.now(UTC).replace(microsecond=0)

    async def run(self, changed: asyncio.Event) -> None:
        """Starts and stops processes when pods start and end."""
        await self._pods.synced.wait()
        await asyncio.to_thread(processes.end_local_pods, self.folder.path)
        self._clean()
        # The processes of an earlier daemon ended with it. Pods that it simulated stay simulated.
        for pod in self._pods.objects.values():
            claimed = pod["metadata"].get("annotations", {}).get(ANNOTATION) == LOCAL
            if claimed and pod["status"].get("phase") not in ENDED:
                # Of a pending pod no process had started.
                lost = pod["status"].get("phase") == "Running"
                self._running[pod["metadata"]["uid"]] = LocalPod(self, pod, lost)
            elif pod["status"].get("phase") == "Running" and self._is_earlier(pod):
                self._simulated.add(pod["metadata"]["uid"])
        while True:
            changed.clear()
            pods = {pod["metadata"]["uid"]: pod for pod in self._pods.objects.values()}
            for uid in self._running.keys() - pods.keys():
                self._running.pop(uid).abandon()
            self._simulated &= pods.keys()
            try:
                for uid, pod in pods.items():
                    self._update(uid, pod)
            except Exception:
                # As in the provisioner: an unexpected error must not end the other tasks of the daemon.
                log.exception("local pods failed")
            await changed.wait()

    def _update(self, uid: str, pod: Object) -> None:
        running, metadata, phase = self._running.get(uid), pod["metadata"], pod["status"].get("phase")
        if running is not None:
            if phase in ENDED:
                running.abandon()
            elif metadata.get("deletionTimestamp"):
                running.stop(metadata.get("deletionGracePeriodSeconds", 0))
        elif uid not in self._simulated and phase == "Running":
            if metadata.get("deletionTimestamp") or not self._runs(pod):
                self._simulated.add(uid)
            else:
                self._running[uid] = LocalPod(self, pod)

    def _is_earlier(self, pod: Object) -> bool:
        """Whether a pod started before this daemon, which may see its first pods only after it listens."""
        start = pod["status"].get("startTime")
        return start is None or datetime.fromisoformat(start) < self._began

    def _runs(self, pod: Object) -> bool:
        return any(_is_local(pod, container) for container in pod["spec"]["containers"])

    def _clean(self) -> None:
        """Deletes the private folders of pods that are gone."""
        names = {folder_name(pod["metadata"]["uid"]) for pod in self._pods.objects.values()}
        for folder in self.folder.local_pods.glob("*"):
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)


def _is_local(pod: Object, container: Object) -> bool:
    """Whether a container runs as a local process."""
    own = model_cache.fills(pod, container) or ledger.keeps(pod, container)
    return own or program_for(container["image"]) is not None


class LocalPod:
    """The processes of one pod. `lost`: its processes ended with an earlier daemon."""

    def __init__(self, pods: LocalPods, pod: Object, lost: bool = False) -> None:
        self._pods = pods
        self._pod = pod
        self._lost = lost
        metadata, status = pod["metadata"], pod["status"]
        self._title = f"{metadata['namespace']}/{metadata['name']}"
        self._private: Path = pods.folder.local_pods / folder_name(metadata["uid"])
        restarts_before = {item["name"]: item["restartCount"] for item in status.get("containerStatuses", [])}
        self._states = {
            spec["name"]: ContainerState(spec["name"], spec["image"], restarts=restarts_before.get(spec["name"], 0))
            for spec in pod["spec"]["containers"]
        }
        self._local = [spec for spec in pod["spec"]["containers"] if _is_local(pod, spec)]
        self._programs = {spec["name"]: program_for(spec["image"]) for spec in self._local}
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
        return await self._patch("", {"metadata": {"annotations": {ANNOTATION: LOCAL}}}, MERGE_PATCH)

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
        if launches and not self._stopping.is_set():
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
            state.end(KILLED, "ContainerStatusUnknown", "The container could not be located when the pod ended.")

    async def _run_container(self, state: ContainerState, launch: Launch) -> None:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        first = state.restarts
        lost = self._lost
        if lost:
            state.end(KILLED, "ContainerStatusUnknown", "The emulator stopped, and the process ended with it.")
        while lost or not self._stopping.is_set():
            code = KILLED if lost else await self._run_process(state, launch)
            lost = False
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
                preexec_fn=processes.end_with_parent_and_give_way,
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
        launcher = Launcher(self._pods.folder, self._pods.api, self._pods.store, self._pod, self._member, self._private)
        while True:
            try:
                return {spec["name"]: await self._launch(launcher, spec) for spec in self._local}
            except NotStarted as error:
                for state in self._states.values():
                    state.wait(error.reason, str(error))
            except Outside as outside:
                for state in self._states.values():
                    state.wait("CreateContainerConfigError", f"{outside}. Nothing was started")
            except (OSError, KeyError) as error:
                for state in self._states.values():
                    state.wait("CreateContainerError", f"a volume can't be written: {error!r}")
            except (httpx.HTTPError, Refused) as error:
                log.warning("%s: %s, trying again", self._title, error)
            await self._publish()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TRY_AGAIN_SECONDS)
                return {}

    async def _launch(self, launcher: Launcher, spec: Object) -> Launch:
        program = self._programs[spec["name"]]
        if program is None and ledger.keeps(self._pod, spec):
            return await launcher.keep_ledger(spec)
        return await (launcher.launch(spec, program) if program else launcher.fill(spec, self._pods.hub))
