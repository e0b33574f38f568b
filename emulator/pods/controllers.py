"""Runs local processes in place of the simulated containers of pods: real controllers, and stubs of servers.

A pod on a simulated node runs nothing. If the image of a container is a known program, this module starts the program
with the container's arguments and environment. A controller also gets the files of its ConfigMap and Secret volumes,
updated as a kubelet does, and a token of the pod's ServiceAccount. So it has exactly the permissions of its chart.
KWOK makes the pod Ready immediately, while the program is still starting. Real clusters behave similarly: Kueue is
Ready seconds before its webhook answers (kueue#13036).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from emulator.cloud.api import Refused, View, answer, files_of, kubeconfig
from emulator.cloud.folder import Folder
from emulator.cloud.program import program_for
from emulator.cloud.records import write
from emulator.machine import egress, processes
from emulator.machine.folders import Outside, folder_name, inside
from emulator.pods import liveness, scraping, termination
from emulator.pods.logs import log_name
from emulator.pods.programs import Program, known
from emulator.pods.sandbox import Container, Sandbox

Object = dict[str, Any]
log = logging.getLogger(__name__)

# Seconds of additional delay before a controller starts, while its pod is Ready and its webhook doesn't answer.
WEBHOOK_DELAY_VARIABLE = "GKE_AI_WEBHOOK_DELAY"
TOKEN_SECONDS = 3600
API_PAUSE_SECONDS = 0.5


class Controllers:
    """Runs one local process per container with a known program, and configures Prometheus to scrape them.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        pods: The cluster's Pods.
        monitorings: The cluster's PodMonitorings.
        tokens: The cluster's Secrets with tokens of service accounts.
        find: Returns the local port for a target, as `egress.resolve` does.
    """

    def __init__(
        self,
        folder: Folder,
        api: httpx.AsyncClient,
        pods: View,
        monitorings: View,
        tokens: View,
        find: Callable[[str], int | None],
    ) -> None:
        self._folder = folder
        self._api = api
        self._pods = pods
        self._monitorings = monitorings
        self._tokens = tokens
        self._find = find
        self._running: dict[str, list[ContainerProcess]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._holding: set[asyncio.Task[None]] = set()
        self._ports: dict[str, dict[int, int]] = {}
        self._scraped: Object | None = None

    def served(self) -> dict[str, dict[int, int]]:
        """The local port by container port, for each pod uid."""
        return self._ports

    async def run(self, changed: asyncio.Event) -> None:
        """Starts and stops processes when pods start and end."""
        await self._pods.synced.wait()
        # The processes of an earlier daemon ended with it. Their files still exist.
        shutil.rmtree(self._folder.sandboxes, ignore_errors=True)
        while True:
            changed.clear()
            pods = {pod["metadata"]["uid"]: pod for pod in self._pods.objects.values()}
            for uid in self._running.keys() - pods.keys():
                self._stop(uid)
            for uid, pod in pods.items():
                self._update(uid, pod, changed)
            self._scrape()
            await changed.wait()

    def _update(self, uid: str, pod: Object, changed: asyncio.Event) -> None:
        deleted, phase = "deletionTimestamp" in pod["metadata"], pod["status"].get("phase")
        if deleted and phase not in termination.ENDED and termination.is_held(pod):
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._end(uid, pod))
        elif deleted or phase != "Running":
            self._stop(uid)
        elif uid not in self._running:
            self._running[uid] = self._start(pod, changed)

    async def _end(self, uid: str, pod: Object) -> None:
        """Ends the processes of a deleted pod, and then the pod. After a restart of the daemon, it has none."""
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        try:
            await asyncio.gather(*(process.end(grace) for process in self._running.get(uid, [])))
            await termination.release(self._api, pod)
        finally:
            self._stop(uid)
            self._ending.pop(uid)

    def _stop(self, uid: str) -> None:
        """Ends the processes of a pod that has ended or is gone."""
        self._ports.pop(uid, None)
        for process in self._running.pop(uid, []):
            process.stop()

    def _start(self, pod: Object, changed: asyncio.Event) -> list[ContainerProcess]:
        programs = [
            (spec, program)
            for spec in pod["spec"]["containers"]
            if (program := known(spec["image"])) and not program_for(spec["image"])
        ]
        if not programs:
            return []
        if not any(program.managed for _, program in programs):
            holding = asyncio.create_task(termination.hold(self._api, pod))
            self._holding.add(holding)
            holding.add_done_callback(self._holding.discard)
        # The containers of a pod share a network.
        ports = self._ports.setdefault(pod["metadata"]["uid"], {})
        return [
            ContainerProcess(self._folder, self._api, self._find, pod, spec, program, ports, changed.set)
            for spec, program in programs
        ]

    def _scrape(self) -> None:
        monitorings, pods = self._monitorings.objects.values(), self._pods.objects.values()
        for namespace, name, key in scraping.wanted_secrets(monitorings):
            if (secret := self._tokens.objects.get((namespace, name))) and key in (secret.get("data") or {}):
                file = self._folder.path / scraping.credential(namespace, name, key)
                file.parent.mkdir(mode=0o700, exist_ok=True)
                file.touch(mode=0o600)
                file.write_bytes(base64.b64decode(secret["data"][key]))
        wanted = scraping.configuration(self._folder.record, monitorings, pods, self._ports)
        if wanted != self._scraped:
            write(self._folder.scraping, wanted)
            self._scraped = wanted


class ContainerProcess:
    """The process of one container. `placed` is called once its ports are known."""

    def __init__(
        self,
        folder: Folder,
        api: httpx.AsyncClient,
        find: Callable[[str], int | None],
        pod: Object,
        spec: Object,
        program: Program,
        ports: dict[int, int],
        placed: Callable[[], None],
    ) -> None:
        metadata = pod["metadata"]
        self._title = f"{metadata['namespace']}/{metadata['name']}/{spec['name']}"
        self._folder = folder
        self._api = api
        self._find = find
        self._pod = pod
        self._program = program
        self._placed = placed
        self._tasks: list[asyncio.Task[None]] = []
        self._forwards: list[asyncio.Server] = []
        self._grace: float = processes.STOP_SECONDS
        self.sandbox = Sandbox(folder.sandboxes / folder_name(metadata["uid"]) / folder_name(spec["name"]), ports)
        self._container = Container(folder, pod, spec, self.sandbox, self._forward)
        self._main = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Ends the process of a pod that has ended or is gone: at once, but managed ones as if the pod still existed.

        KWOK ends their pods without a grace period.
        """
        grace = self._pod["spec"].get("terminationGracePeriodSeconds", processes.STOP_SECONDS)
        self._ending = asyncio.create_task(self.end(grace if self._program.managed else 0))

    async def end(self, grace: float) -> None:
        """Runs the preStop hook, and ends the process within the grace period in seconds. Deletes its files."""
        hook: Object = self._container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        self._grace = await termination.after_pre_stop(float(hook.get("seconds", 0)), grace)
        self._main.cancel()
        await asyncio.wait({self._main})

    async def _run(self) -> None:
        try:
            self.sandbox.inside("/tmp").mkdir(parents=True)
            if self._program.managed:
                await asyncio.sleep(float(os.environ.get(WEBHOOK_DELAY_VARIABLE) or 0))
                await self._credentials()
                await self._volumes()
            await self._secrets()
            command = await self._program.command(self._container)
            self._placed()
            output = self._folder.log / f"{log_name(*self._title.split('/'))}.log"
            environment = processes.environment(self._folder.path, **self._environment())
            # Kueue's visibility server writes into the working directory.
            cwd = self.sandbox.root
            probe = partial(liveness.failed, self._container) if self._program.managed else None
            await processes.keep_running(self._title, command, output, environment, cwd, lambda: self._grace, probe)
        except asyncio.CancelledError:
            log.info("%s: stopped", self._title)
        except Exception:
            log.exception("%s: can't be started", self._title)
        finally:
            for task in self._tasks:
                task.cancel()
            for server in self._forwards:
                server.close()
            shutil.rmtree(self.sandbox.root, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.sandbox.root.parent.rmdir()  # fails while another container of the pod exists

    async def _forward(self, target: str) -> int:
        server = await egress.forward(target, self._find)
        self._forwards.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _environment(self) -> dict[str, str]:
        own = {"TMPDIR": str(self.sandbox.inside("/tmp")), "HOSTNAME": self._pod["metadata"]["name"]}
        # Any other variable could make the program run other code.
        stated = self._container.variables()
        return own | {name: stated[name] for name in self._program.variables if name in stated}

    async def _credentials(self) -> None:
        """Writes a kubeconfig for the pod's ServiceAccount.

        The token is in a file beside it, which clients read again after each renewal.
        """
        token_file = self.sandbox.root / "token"
        await self._renew_token(token_file)
        self._run_in_background(self._renew_forever(token_file))
        ca = (self._folder.pki / "ca.crt").read_bytes()
        self._container.kubeconfig.write_text(kubeconfig(self._folder.host, ca, {"tokenFile": str(token_file)}))

    async def _renew_forever(self, file: Path) -> None:
        while True:
            await asyncio.sleep(TOKEN_SECONDS * 0.8)
            await self._renew_token(file)

    async def _renew_token(self, file: Path) -> None:
        metadata = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        request = {"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}}
        account = self._pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        token = answer(await self._request("POST", path, json=request))["status"]["token"]
        fresh = file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(token)
        os.replace(fresh, file)

    async def _secrets(self) -> None:
        """Reads the variables that come from Secrets. As a kubelet, it waits until the Secrets exist."""
        for variable in self._container.spec.get("env", []):
            source = variable.get("valueFrom", {}).get("secretKeyRef")
            if source is None:
                continue
            path = f"/api/v1/namespaces/{self._container.namespace}/secrets/{source['name']}"
            while (value := await self._secret_key(path, source["key"])) is None and not source.get("optional"):
                await asyncio.sleep(API_PAUSE_SECONDS)
            if value is not None:
                self._container.secrets[variable["name"]] = value

    async def _secret_key(self, path: str, key: str) -> str | None:
        response = await self._request("GET", path)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        value = files_of("secrets", answer(response)).get(key)
        return None if value is None else value.decode()

    async def _request(self, method: str, path: str, **content: Any) -> httpx.Response:
        """The API's response. As a kubelet, it tries again while the API server fails."""
        while True:
            try:
                response = await self._api.request(method, path, **content)
                if not response.is_server_error:
                    return response
                error: object = response.status_code
            except httpx.HTTPError as failed:
                error = failed
            log.warning("%s: %s %s: %r, trying again", self._title, method, path, error)
            await asyncio.sleep(API_PAUSE_SECONDS)

    async def _volumes(self) -> None:
        """Writes the container's volumes.

        Returns once all required ConfigMaps and Secrets exist.
        """
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        for mount in self._container.spec.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                source = volume["configMap"]
                await self._mount(mount, source, "configmaps", source["name"])
            elif "secret" in volume:
                source = volume["secret"]
                await self._mount(mount, source, "secrets", source["secretName"])
            elif "emptyDir" in volume:
                self.sandbox.mounts.append(mount["mountPath"])
                self.sandbox.inside(mount["mountPath"]).mkdir(parents=True, exist_ok=True)

    async def _mount(self, mount: Object, source: Object, collection: str, name: str) -> None:
        self.sandbox.mounts.append(mount["mountPath"])
        target = self.sandbox.inside(mount["mountPath"])
        mounted = asyncio.Event()
        current: dict[str, bytes] = {}

        def write_files() -> None:
            nonlocal current
            obj = next(iter(view.objects.values()), None)
            content = _items(files_of(collection, obj), source.get("items")) if obj is not None else {}
            if obj is None and not source.get("optional"):
                return
            if "subPath" in mount:
                # As with a kubelet, such a file never changes after the start of the container.
                if not mounted.is_set():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content[mount["subPath"]])
            elif content != current or not mounted.is_set():
                _replace_files(target, content)
            current = content
            mounted.set()

        path = f"/api/v1/namespaces/{self._container.namespace}/{collection}"
        view = View(self._api, path, write_files, fieldSelector=f"metadata.name={name}")
        self._run_in_background(view.follow())
        await mounted.wait()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except (httpx.HTTPError, Refused, OSError, KeyError, Outside) as error:
                log.error("%s: %r", self._title, error)

        self._tasks.append(asyncio.create_task(guarded()))


def _items(files: dict[str, bytes], items: list[Object] | None) -> dict[str, bytes]:
    return files if items is None else {item["path"]: files[item["key"]] for item in items if item["key"] in files}


def _replace_files(folder: Path, files: dict[str, bytes]) -> None:
    """Replaces all files of a folder at the same time, as a kubelet does: links through `..data`, which is replaced.

    Otherwise a program could read a certificate that doesn't match its key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    before = data.resolve() if data.is_symlink() else None
    content = folder / f"..{time.time_ns()}"
    content.mkdir()
    for name, value in files.items():
        file = inside(content, name)
        file.touch(mode=0o600)
        file.write_bytes(value)
    switch = folder / "..data_new"
    switch.symlink_to(content.name)
    os.replace(switch, data)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in files:
            link.unlink()
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
