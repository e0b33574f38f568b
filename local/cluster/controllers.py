"""Real controllers as local processes, in place of the simulated pods of their Deployments.

A pod on a simulated node runs nothing. For a pod whose image is a known controller, its real program is started here
with the container's own arguments and environment, the files of its ConfigMap and Secret volumes (kept up to date, as a
kubelet does), and a token of the pod's ServiceAccount: so it has the permissions that its chart gives it and no others.
Paths move into a private folder, ports to free ones of this machine. The pod is Ready at once, as KWOK makes it, while
the program is still starting: on real clusters, too, Kueue is Ready seconds before its webhook answers (kueue#13036).
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from local.cluster import processes
from local.cluster.api import Refused, View, answer, kubeconfig
from local.cluster.folder import Folder

Object = dict[str, Any]
log = logging.getLogger(__name__)

# A further wait, in seconds, before a controller starts: lengthens the time in which its pod is Ready and its webhook
# doesn't answer.
DELAY_VARIABLE = "GKE_AI_WEBHOOK_DELAY"
TOKEN_SECONDS = 3600
STOP_SECONDS = 5
LONGEST_BACKOFF = 10.0


@dataclass
class Sandbox:
    """What one container sees in place of its image's file system and network."""

    root: Path
    namespace: str
    mounts: list[str] = field(default_factory=list)
    ports: dict[int, int] = field(default_factory=dict)

    def inside(self, path: str) -> Path:
        """Where a path of the container is on this machine."""
        return self.root / path.lstrip("/")

    def port(self, number: int) -> int:
        """The local port in place of a container's; the same one at every call."""
        if number not in self.ports:
            self.ports[number] = processes.free_ports(1)[0]
        return self.ports[number]

    def address(self, text: str) -> str:
        """A listening address (`:8443`) moved to its local port; `0` stays, it means not to listen."""
        port = text.rpartition(":")[2]
        return f"127.0.0.1:{self.port(int(port))}" if port.isdigit() and int(port) else text

    def rewrite(self, argument: str) -> str:
        """An argument with the mounted path in it, if any, moved to where it is on this machine."""
        flag, equals, value = argument.rpartition("=")
        for mount in self.mounts:
            if value == mount or value.startswith(mount.rstrip("/") + "/"):
                return f"{flag}{equals}{self.inside(value)}"
        return argument


@dataclass(frozen=True)
class Controller:
    """A program known to run as a local process: its image's prefix, its name on PATH, and how its own configuration is
    made to fit: called with the sandbox, the arguments and the kubeconfig, returns the arguments to start it with."""

    image: str
    program: str
    adapt: Callable[[Sandbox, list[str], Path], list[str]]


def _kueue(sandbox: Sandbox, arguments: list[str], config: Path) -> list[str]:
    """Kueue's manager: its ports are in its configuration file.

    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/
    """
    file = Path(next(a.partition("=")[2] for a in arguments if a.startswith("--config=")))
    settings = yaml.safe_load(file.read_text())
    webhook = settings.setdefault("webhook", {})
    webhook["port"] = sandbox.port(webhook.get("port") or 9443)
    webhook["host"] = "127.0.0.1"
    webhook["certDir"] = str(sandbox.inside(webhook.get("certDir") or "/tmp/k8s-webhook-server/serving-certs"))
    health = settings.setdefault("health", {})
    health["healthProbeBindAddress"] = sandbox.address(health.get("healthProbeBindAddress") or ":8081")
    metrics = settings.setdefault("metrics", {})
    metrics["bindAddress"] = sandbox.address(metrics.get("bindAddress") or ":8443")
    visibility = settings.setdefault("visibilityServer", {})
    visibility["bindPort"] = sandbox.port(visibility.get("bindPort") or 8082)
    visibility["bindAddress"] = "127.0.0.1"
    # In a pod, both come from the ServiceAccount's folder.
    settings.setdefault("namespace", sandbox.namespace)
    settings.setdefault("leaderElection", {}).setdefault("resourceNamespace", sandbox.namespace)
    adapted = sandbox.root / "kueue.yaml"
    adapted.write_text(yaml.safe_dump(settings))
    others = [argument for argument in arguments if not argument.startswith("--config=")]
    return [f"--config={adapted}", f"--kubeconfig={config}", *others]


CONTROLLERS = (Controller("registry.k8s.io/kueue/kueue", "kueue", _kueue),)


def known(image: str) -> Controller | None:
    """The controller that an image is, whatever its tag or digest."""
    return next((c for c in CONTROLLERS if image == c.image or image.startswith((f"{c.image}:", f"{c.image}@"))), None)


class Controllers:
    """Keeps one local process for each container of a running pod that is a known controller."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, pods: View) -> None:
        self._folder = folder
        self._api = api
        self._pods = pods
        self._running: dict[str, list[Standin]] = {}

    def served(self) -> dict[str, dict[int, int]]:
        """For each pod's uid, container port → local port."""
        return {
            uid: {port: local for standin in standins for port, local in standin.sandbox.ports.items()}
            for uid, standins in self._running.items()
        }

    async def run(self, changed: asyncio.Event) -> None:
        """Start and stop processes as pods come and go."""
        await self._pods.synced.wait()
        # Processes of a daemon before this one have ended with it; their files haven't.
        shutil.rmtree(self._folder.sandboxes, ignore_errors=True)
        while True:
            changed.clear()
            wanted = {pod["metadata"]["uid"]: pod for pod in self._pods.objects.values() if _runs(pod)}
            for uid in self._running.keys() - wanted.keys():
                for standin in self._running.pop(uid):
                    standin.stop()
            for uid, pod in wanted.items():
                if uid not in self._running:
                    self._running[uid] = [
                        Standin(self._folder, self._api, pod, container, controller)
                        for container in pod["spec"]["containers"]
                        if (controller := known(container["image"]))
                    ]
            await changed.wait()


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


class Standin:
    """One container's process, from its start to its stop."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, pod: Object, container: Object, controller: Controller):
        metadata = pod["metadata"]
        self._title = f"{metadata['namespace']}/{metadata['name']}/{container['name']}"
        self._folder = folder
        self._api = api
        self._pod = pod
        self._container = container
        self._controller = controller
        self._tasks: list[asyncio.Task[None]] = []
        self.sandbox = Sandbox(folder.sandboxes / metadata["uid"] / container["name"], metadata["namespace"])
        self._main = asyncio.create_task(self._run())

    def stop(self) -> None:
        """End the process and forget its files."""
        self._main.cancel()

    async def _run(self) -> None:
        try:
            await asyncio.sleep(float(os.environ.get(DELAY_VARIABLE) or 0))
            self.sandbox.root.mkdir(parents=True)
            config = await self._credentials()
            await self._volumes()
            arguments = [self.sandbox.rewrite(a) for a in self._container.get("args", [])]
            arguments = self._container.get("command", [])[1:] + arguments
            arguments = self._controller.adapt(self.sandbox, arguments, config)
            await self._keep_running([processes.tool(self._controller.program), *arguments])
        except asyncio.CancelledError:
            log.info("%s: stopped", self._title)
        except Exception:
            log.exception("%s: can't be started", self._title)
        finally:
            for task in self._tasks:
                task.cancel()
            shutil.rmtree(self.sandbox.root.parent, ignore_errors=True)

    async def _keep_running(self, command: list[str]) -> None:
        """Start the program; whenever it ends, start it again, later each time it ends soon."""
        output = self._folder.log / (self._title.replace("/", "_") + ".log")
        backoff = 0.5
        while True:
            log.info("%s: starting %s", self._title, " ".join(command))
            begun = time.monotonic()
            with output.open("ab") as sink:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    env=processes.environment(self._folder.path, **self._environment()),
                    # Programs that write beside themselves (Kueue's visibility server) do so in here.
                    cwd=self.sandbox.root,
                    preexec_fn=_end_with_parent,
                )
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    await _end(process)
            log.warning("%s: ended with %s (see %s)", self._title, code, output)
            backoff = 0.5 if time.monotonic() - begun > 60 else min(backoff * 2, LONGEST_BACKOFF)
            await asyncio.sleep(backoff)

    def _environment(self) -> dict[str, str]:
        metadata, status = self._pod["metadata"], self._pod["status"]
        fields = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": self._pod["spec"]["nodeName"],
            "spec.serviceAccountName": self._pod["spec"]["serviceAccountName"],
            "status.podIP": status.get("podIP", ""),
        }
        temporary = self.sandbox.inside("/tmp")
        temporary.mkdir(exist_ok=True)
        result = {"TMPDIR": str(temporary), "HOSTNAME": metadata["name"]}
        for variable in self._container.get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            result[variable["name"]] = fields.get(path, "") if path else str(variable.get("value", ""))
        return result

    async def _credentials(self) -> Path:
        """A kubeconfig for the pod's ServiceAccount; the token in a file beside it, which clients read again as it is
        renewed."""
        token_file = self.sandbox.root / "token"
        await self._renew_token(token_file)
        self._keep(self._renew_for_ever(token_file))
        config = self.sandbox.root / "kubeconfig"
        ca = (self._folder.pki / "ca.crt").read_bytes()
        config.write_text(kubeconfig(self._folder.host, ca, {"tokenFile": str(token_file)}))
        return config

    async def _renew_for_ever(self, file: Path) -> None:
        while True:
            await asyncio.sleep(TOKEN_SECONDS * 0.8)
            await self._renew_token(file)

    async def _renew_token(self, file: Path) -> None:
        metadata = self._pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        request = {"spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}}
        account = self._pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        token = answer(await self._api.post(path, json=request))["status"]["token"]
        fresh = file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(token)
        os.replace(fresh, file)

    async def _volumes(self) -> None:
        """Lay out the container's volumes; returns when each ConfigMap and Secret that must be there is."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        for mount in self._container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                source = volume["configMap"]
                await self._mount(mount, source, f"configmaps/{source['name']}", _config_map_files)
            elif "secret" in volume:
                source = volume["secret"]
                await self._mount(mount, source, f"secrets/{source['secretName']}", _secret_files)
            elif "emptyDir" in volume:
                self.sandbox.mounts.append(mount["mountPath"])
                self.sandbox.inside(mount["mountPath"]).mkdir(parents=True, exist_ok=True)

    async def _mount(
        self, mount: Object, source: Object, path: str, files: Callable[[Object], dict[str, bytes]]
    ) -> None:
        self.sandbox.mounts.append(mount["mountPath"])
        target = self.sandbox.inside(mount["mountPath"])
        kind, _, name = path.partition("/")
        arrived = asyncio.Event()
        laid_out: dict[str, bytes] = {}

        def lay_out() -> None:
            nonlocal laid_out
            found = next(iter(view.objects.values()), None)
            content = _items(files(found), source.get("items")) if found is not None else {}
            if found is None and not source.get("optional"):
                return
            if "subPath" in mount:
                # As with a kubelet, such a file stays as it was when the container started.
                if not arrived.is_set():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content[mount["subPath"]])
            elif content != laid_out or not arrived.is_set():
                _replace_files(target, content)
            laid_out = content
            arrived.set()

        collection = f"/api/v1/namespaces/{self.sandbox.namespace}/{kind}"
        view = View(self._api, collection, lay_out, fieldSelector=f"metadata.name={name}")
        self._keep(view.follow())
        await arrived.wait()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except (httpx.HTTPError, Refused, OSError, KeyError) as error:
                log.error("%s: %r", self._title, error)

        self._tasks.append(asyncio.create_task(guarded()))


def _config_map_files(item: Object) -> dict[str, bytes]:
    text = {name: content.encode() for name, content in item.get("data", {}).items()}
    return text | {name: base64.b64decode(content) for name, content in item.get("binaryData", {}).items()}


def _secret_files(item: Object) -> dict[str, bytes]:
    return {name: base64.b64decode(content) for name, content in (item.get("data") or {}).items()}


def _items(files: dict[str, bytes], items: list[Object] | None) -> dict[str, bytes]:
    return files if items is None else {item["path"]: files[item["key"]] for item in items if item["key"] in files}


def _replace_files(folder: Path, files: dict[str, bytes]) -> None:
    """Change all files of a folder at one moment, by the kubelet's way: links through `..data`, which is switched over.

    A certificate that is read between its two files would not fit its key.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    before = data.resolve() if data.is_symlink() else None
    content = folder / f"..{time.time_ns()}"
    content.mkdir()
    for name, value in files.items():
        (content / name).touch(mode=0o600)
        (content / name).write_bytes(value)
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


async def _end(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(process.wait()), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Let the kernel kill this process when the daemon ends, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
