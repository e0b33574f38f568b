"""Simulates GKE's Gateway controller: runs one Envoy per Gateway and writes the status of the Gateway API's objects.

Envoy reads its configuration from two files and again whenever they are replaced. Its listeners are on free local
ports; the status of the Gateway has their addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping

import httpx

from emulator.cloud.api import APPLY_PATCH, GKE, MERGE_PATCH, Refused, View, answer
from emulator.cloud.folder import Folder
from emulator.cloud.records import write
from emulator.gateway import envoy_config
from emulator.gateway.envoy_config import Picker, Place
from emulator.gateway.rollout import Rollout
from emulator.gateway.routes import (
    CLASSES,
    GATEWAY_API,
    POLICY_API,
    POOL_API,
    Key,
    Object,
    Objects,
    callout_of,
    key_of,
    ours,
)
from emulator.gateway.status import CONTROLLER, gateway_status, pool_status, route_status
from emulator.machine import egress, processes
from emulator.pods.logs import log_name
from gke_ai.catalog.selectors import matches

log = logging.getLogger(__name__)

# Seconds between two looks at what no watch reports: local processes, and listeners that Envoy opens.
LOOK_SECONDS = 0.5
# Seconds between two looks at whether the cluster has the Gateway API.
SETTING_SECONDS = 2
# How long Envoy keeps lines of its access log before it writes them.
FLUSH_MILLISECONDS = 500


class Gateways:
    """The Gateways of a cluster.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        pods: The cluster's Pods.
        services: The cluster's Services.
        slices: The cluster's EndpointSlices.
        served: Returns the local port by container port, for each pod uid with a local process.
    """

    def __init__(
        self,
        folder: Folder,
        api: httpx.AsyncClient,
        pods: View,
        services: View,
        slices: View,
        served: Callable[[], Mapping[str, Mapping[int, int]]],
    ) -> None:
        self._folder = folder
        self._api = api
        self._pods = pods
        self._services = services
        self._slices = slices
        self._served = served
        self._changed = asyncio.Event()
        self._running: dict[Key, Envoy] = {}
        self._rollout = Rollout()
        self._classes_exist = False

        def view(path: str, **selectors: str) -> View:
            return View(api, path, self._changed.set, **selectors)

        gateways = view(f"/apis/{GATEWAY_API}/gateways")
        routes = view(f"/apis/{GATEWAY_API}/httproutes")
        self._pools = view(f"/apis/{POOL_API}/inferencepools")
        policies = view(f"/apis/{POLICY_API}/gcpbackendpolicies")
        certificates = view("/api/v1/secrets", fieldSelector="type=kubernetes.io/tls")
        extensions = view(f"/apis/{POLICY_API}/gcproutingextensions")
        # In the order of `Objects`.
        self._views = (gateways, routes, self._pools, policies, certificates, view("/api/v1/namespaces"), extensions)

    async def run(self, proxy: int) -> None:
        """Reconciles at every change. `proxy` is the port of the pod proxy.

        Does nothing until the cluster has the Gateway API.
        """
        while not self._folder.record.gateway_api:
            await asyncio.sleep(SETTING_SECONDS)
        async with asyncio.TaskGroup() as group:
            for view in self._views:
                group.create_task(view.follow())
            for view in self._views:
                await view.synced.wait()
            while True:
                self._changed.clear()
                try:
                    await self._reconcile(proxy)
                except (httpx.HTTPError, Refused) as error:
                    log.warning("gateways: %s, trying again", error)
                except Exception:
                    # As in the provisioner: an unexpected error must not end the other tasks of the daemon.
                    log.exception("gateways failed, trying again")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)

    def endpoints(self, pool: str) -> list[str]:
        """The addresses of the ready pods of an InferencePool (`NAMESPACE/NAME`)."""
        namespace, _, name = pool.partition("/")
        found = self._pools.objects.get((namespace, name))
        if found is None:
            return []
        port, served = found["spec"]["targetPorts"][0]["number"], self._served()
        return [
            f"{pod['status']['podIP']}:{port}"
            for pod in self._pods.objects.values()
            if pod["metadata"]["namespace"] == namespace
            and "deletionTimestamp" not in pod["metadata"]
            and matches(found["spec"]["selector"], pod["metadata"].get("labels", {}))
            and port in served.get(pod["metadata"]["uid"], {})
        ]

    async def _reconcile(self, proxy: int) -> None:
        await self._create_classes()
        objects = Objects(*(dict(view.objects) for view in self._views))
        gateways = ours(objects.gateways.values())
        pickers = {key: list(self._pickers(pool)) for key, pool in objects.pools.items()}
        callouts = {key: list(self._servers(*callout_of(item))) for key, item in objects.extensions.items()}
        applied = await self._rollout.applied(objects, pickers, time.monotonic(), callouts)
        wanted = {key_of(gateway) for gateway in gateways}
        for key in self._running.keys() - wanted:
            self._running.pop(key).stop()
        for gateway in gateways:
            envoy = self._running.get(key_of(gateway))
            if envoy is None:
                envoy = self._running[key_of(gateway)] = Envoy(self._folder, key_of(gateway))
            ports = envoy.ports([listener["name"] for listener in gateway["spec"]["listeners"]])
            place = Place(envoy.path, ports, envoy.access_log, proxy, self._folder.pki)
            envoy.configure(envoy_config.files(gateway, applied, pickers, place, callouts))
            addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items() if await _listens(port)}
            await self._write(GATEWAY_API, "gateways", gateway, gateway_status(gateway, objects, addresses))
        for route in objects.routes.values():
            await self._write(GATEWAY_API, "httproutes", route, route_status(route, gateways, objects))
        for pool in objects.pools.values():
            status = pool_status(pool, gateways, objects, self._services.objects.keys())
            await self._write(POOL_API, "inferencepools", pool, status)

    def _pickers(self, pool: Object) -> Iterator[Picker]:
        ref = pool["spec"]["endpointPickerRef"]
        yield from self._servers((pool["metadata"]["namespace"], ref["name"]), ref["port"]["number"])

    def _servers(self, key: Key, number: int) -> Iterator[Picker]:
        """The replicas behind a port of a Service."""
        service, served = self._services.objects.get(key), self._served()
        if service is None:
            return
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods.objects.values()}
        slices = self._slices.objects.values()
        for uid, port in sorted(egress.through_service(service, number, slices, served)):
            containers = pods[uid]["spec"]["containers"] if uid in pods else []
            probes = (container.get("readinessProbe", {}).get("grpc") for container in containers)
            probe = next(filter(None, probes), None)
            if probe and (probe_port := served[uid].get(probe["port"])):
                yield Picker(port, probe_port, probe.get("service") or "")
            else:
                yield Picker(port)

    async def _create_classes(self) -> None:
        if self._classes_exist:
            return
        accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
        accepted["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for name in CLASSES:
            path = f"/apis/{GATEWAY_API}/gatewayclasses/{name}"
            item = {"apiVersion": GATEWAY_API, "kind": "GatewayClass", "metadata": {"name": name}}
            spec = {"spec": {"controllerName": CONTROLLER}}
            answer(await self._api.patch(path, params=GKE, json=item | spec, headers=APPLY_PATCH))
            status = {"status": {"conditions": [accepted]}}
            answer(await self._api.patch(f"{path}/status", json=status, headers=MERGE_PATCH))
        self._classes_exist = True

    async def _write(self, api_version: str, plural: str, item: Object, status: Object) -> None:
        if (item.get("status") or {"parents": []}) == status:
            return
        namespace, name = key_of(item)
        path = f"/apis/{api_version}/namespaces/{namespace}/{plural}/{name}/status"
        response = await self._api.patch(path, json={"status": status}, headers=MERGE_PATCH)
        if response.status_code != 404:  # it may be deleted meanwhile
            answer(response)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


class Envoy:
    """The Envoy of one Gateway. It starts with its first configuration."""

    def __init__(self, folder: Folder, gateway: Key) -> None:
        self._cluster = folder
        self._title = log_name("gateway", *gateway)
        self.path = folder.path / "gateways" / log_name(*gateway)
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)  # it has private keys of certificates
        self.access_log = folder.log / f"{self._title}_access.log"
        self._ports_file = self.path / "ports.json"
        self._ports: dict[str, int] = json.loads(self._ports_file.read_text()) if self._ports_file.exists() else {}
        self._written: dict[str, Object] = {}
        self._task: asyncio.Task[None] | None = None

    def ports(self, listeners: list[str]) -> dict[str, int]:
        """The local port of each listener; the same at every call and after a restart of the daemon."""
        missing = [name for name in listeners if name not in self._ports]
        if missing:
            self._ports |= zip(missing, processes.free_ports(len(missing)), strict=True)
            write(self._ports_file, self._ports)
        return {name: self._ports[name] for name in listeners}

    def configure(self, files: Mapping[str, Object]) -> None:
        """Replaces the files that changed, in their order."""
        for name, content in files.items():
            if self._written.get(name) != content:
                write(self.path / name, content)
                self._written[name] = content
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Ends the process."""
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        configuration = str(self.path / "bootstrap.json")
        # One worker is enough. Without hot restarts, Envoys of one machine share nothing.
        options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"]
        options += ["--file-flush-interval-msec", str(FLUSH_MILLISECONDS)]
        command = [processes.tool("envoy"), "--config-path", configuration, *options]
        environment = processes.environment(self._cluster.path)
        await processes.keep_running(
            self._title, command, self._cluster.log / f"{self._title}.log", environment, self.path
        )
