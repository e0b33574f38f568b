"""How the program asks a cluster while resources are being made: on threads of its own, over one connection."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar

import pulumi
import yaml

from catalog.versions import KUEUE_API

T = TypeVar("T")

# Pulumi's own threads are at times all taken by resources, some of which wait for the very answer: on those it would
# never be asked.
_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="asking")


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """The result of a call that blocks, from a thread that no resource can hold up."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call, *args)


@cache
def load_client() -> None:
    """Loads the Kubernetes client, half a second of work, on a thread while the engine is at work; never in a preview.

    Call it where something will be asked of the cluster once the engine has created it.
    """
    if not pulumi.runtime.is_dry_run():
        _THREADS.submit(import_module, "kubernetes.client")


class Connection:
    """A client of one cluster, shared by all threads. Connects at the first question; questions block."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self._api: Any = None
        self._connecting = Lock()

    def ask(self, question: Callable[[Any], T]) -> T:
        """What `question` finds with the client; it raises what the client raises."""
        # Half a second to import, which only an `up` that has something to ask has to spend.
        from kubernetes import client, config

        with self._connecting:
            if self._api is None:
                connect: Callable[[Any], Any] = config.new_client_from_config_dict
                self._api = connect(yaml.safe_load(self._kubeconfig))
            api = self._api
        try:
            return question(api)
        except client.ApiException as error:
            if error.status == 401:  # the plugin's token has run out: ask it again
                self._api = None
            raise


@cache
def connection(kubeconfig: str) -> Connection:
    """The connection of a kubeconfig: the same for all who ask, as each would start the exec plugin anew."""
    return Connection(kubeconfig)


def workloads(api: Any, namespace: str) -> list[Any]:
    """Kueue's workloads of a namespace."""
    from kubernetes import client

    group, version = KUEUE_API.split("/")
    listed: Any = client.CustomObjectsApi(api).list_namespaced_custom_object(group, version, namespace, "workloads")
    found: list[Any] = listed["items"]
    return found
