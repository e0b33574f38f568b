"""The daemon beside a cluster's control plane: `python -m emulator.cluster.daemon NAME`.

Its whole state is in the API server: after a restart it continues from there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from emulator.cloud.api import View, async_client
from emulator.cloud.folder import Folder, try_lock
from emulator.cloud.store import Store
from emulator.gateway.controller import Gateways
from emulator.machine import egress
from emulator.nodes.compute_domains import ComputeDomains
from emulator.nodes.provisioner import Provisioner, Views
from emulator.nodes.requests import REQUEST_API
from emulator.pods import proxy as pod_proxy
from emulator.pods.controllers import Controllers
from emulator.pods.hub import Hub
from emulator.pods.local_pods import LocalPods
from emulator.pods.logs import KUBELET_PORT, LogServer
from emulator.pods.secret_sync import SecretSyncs
from emulator.pods.volumes import Volumes
from gke_ai.catalog.versions import COMPUTE_CLASS_API, POD_MONITORING_API

log = logging.getLogger("daemon")


async def run(folder: Folder) -> None:
    """Runs the proxies, the controllers, local pods, gateways, the provisioner, disks and secrets until canceled."""
    async with async_client(folder) as api:
        for_controllers, for_provisioner, for_local_pods = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def changed() -> None:
            for_controllers.set()
            for_provisioner.set()
            for_local_pods.set()

        def ignored() -> None:
            """Does nothing: the proxy reads its objects at each connection."""

        pods = View(api, "/api/v1/pods", changed)
        nodes = View(api, "/api/v1/nodes", for_provisioner.set)
        services = View(api, "/api/v1/services", ignored)
        slices = View(api, "/apis/discovery.k8s.io/v1/endpointslices", ignored)
        classes = View(api, f"/apis/{COMPUTE_CLASS_API}/computeclasses", for_provisioner.set)
        requests = View(api, f"/apis/{REQUEST_API}/provisioningrequests", for_provisioner.set)
        monitorings = View(api, f"/apis/{POD_MONITORING_API}/podmonitorings", for_controllers.set)
        of_accounts = "type=kubernetes.io/service-account-token"
        tokens = View(api, "/api/v1/secrets", for_controllers.set, fieldSelector=of_accounts)
        provisioner = Provisioner(folder, api, Views(nodes, pods, classes, requests))
        volumes, secrets, domains = Volumes(api), SecretSyncs(folder, api, Store()), ComputeDomains(api, nodes)
        local_pods = LocalPods(folder, api, pods, Store(), Hub().url)
        logs = LogServer(folder, lambda namespace, name: pods.objects.get((namespace, name)), local_pods.written)
        await logs.start()

        def find(target: str) -> int | None:
            host, _, port = target.rpartition(":")
            if port == str(KUBELET_PORT) and ("", host) in nodes.objects:
                return logs.port
            return egress.resolve(
                target, services.objects.values(), slices.objects.values(), pods.objects.values(), controllers.served()
            )

        controllers = Controllers(folder, api, pods, monitorings, tokens, find)
        gateways = Gateways(folder, api, pods, services, slices, controllers.served)
        proxy = await pod_proxy.serve(find, gateways.endpoints)
        proxy_port = proxy.sockets[0].getsockname()[1]
        folder.pod_proxy.write_text(f"127.0.0.1:{proxy_port}")
        server = await egress.serve(folder.socket, find)
        log.info("serving %s", folder.socket)
        async with server, proxy, asyncio.TaskGroup() as group:
            for view in (
                pods,
                nodes,
                services,
                slices,
                classes,
                requests,
                monitorings,
                tokens,
                *volumes.views,
                *secrets.views,
                *domains.views,
            ):
                group.create_task(view.follow())
            group.create_task(controllers.run(for_controllers))
            group.create_task(local_pods.run(for_local_pods))
            group.create_task(gateways.run(proxy_port))
            group.create_task(provisioner.run(for_provisioner))
            group.create_task(volumes.run())
            group.create_task(secrets.run())
            group.create_task(domains.run())


async def _run_until_signal(folder: Folder) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await run(folder)


def main() -> int:
    """Runs the daemon of the cluster on the command line.

    Ends silently if the cluster already has one.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder = Folder(sys.argv[1])
    # The lock is held until this process ends.
    if try_lock(folder.path) is None:
        return 0
    try:
        asyncio.run(_run_until_signal(folder))
    except asyncio.CancelledError:
        log.info("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
