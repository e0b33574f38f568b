"""Calls to a cluster's API while Pulumi creates resources: on our own threads, over one connection per cluster."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar

import pulumi
import yaml

from gke_ai.catalog.versions import KUEUE_API

T = TypeVar("T")

# Use our own threads: Pulumi's may all be blocked waiting for this reply.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="cluster-client")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run a blocking function on one of our own threads and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *args)


@cache
def load_client() -> None:
    """Load the Kubernetes client on a thread while the engine works, except in a preview: it takes half a second.

    Call it where a later step will call the cluster that the engine creates.
    """
    if not pulumi.runtime.is_dry_run():
        _THREADS.submit(import_module, "kubernetes.client")


class Connection:
    """A client of one cluster, shared by all threads. It connects at the first call; calls block."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self._api: Any = None
        self._connecting = Lock()

    def call(self, request: Callable[[Any], T]) -> T:
        """Return `request(client)`. Raises what the client raises."""
        # The import takes half a second: only an `up` that calls the cluster pays for it.
        from kubernetes import client, config

        with self._connecting:
            if self._api is None:
                connect: Callable[[Any], Any] = config.new_client_from_config_dict
                self._api = connect(yaml.safe_load(self._kubeconfig))
            api = self._api
        try:
            return request(api)
        except client.ApiException as error:
            if error.status == 401:  # the token has expired: connect again for a new one
                self._api = None
            raise


@cache
def connection(kubeconfig: str) -> Connection:
    """The shared connection of a kubeconfig: each new connection would run the exec plugin again."""
    return Connection(kubeconfig)


def workloads(api: Any, namespace: str) -> list[Any]:
    """Kueue's workloads of a namespace."""
    from kubernetes import client

    group, version = KUEUE_API.split("/")
    response: Any = client.CustomObjectsApi(api).list_namespaced_custom_object(group, version, namespace, "workloads")
    items: list[Any] = response["items"]
    return items


def workload_of(api: Any, namespace: str, uid: str) -> dict[str, Any] | None:
    """The Workload that Kueue has created for the object with this uid, if any."""
    for workload in workloads(api, namespace):
        if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", [])):
            found: dict[str, Any] = workload
            return found
    return None
