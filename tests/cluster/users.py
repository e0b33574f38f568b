"""Users of a stack's servers: their connections to its gateway, and what each asks for again and again."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import httpx

from tests.support.emulator import Emulator

Answer = TypeVar("Answer")


def client(emulator: Emulator) -> httpx.Client:
    """Connections to the gateway at the address in the stack's outputs, with the key that emulator/run sets."""
    (gateway,) = emulator.outputs()["gateways"]
    key = {"Authorization": f"Bearer {os.environ['GATEWAY_API_KEY']}"}
    return httpx.Client(base_url=gateway["url"], headers=key, timeout=60, trust_env=False)


@contextmanager
def repeated(*users: Callable[[], Answer]) -> Iterator[list[Answer]]:
    """Each user asks again after each answer. Their answers are known at the end, when nobody waits."""
    enough, answers = threading.Event(), list[Answer]()

    def ask_on(ask: Callable[[], Answer]) -> list[Answer]:
        seen = []
        while not enough.is_set():
            seen.append(ask())
        return seen

    with ThreadPoolExecutor(len(users)) as threads:
        asking = [threads.submit(ask_on, user) for user in users]
        try:
            yield answers
        finally:
            enough.set()
        for user in asking:
            answers += user.result()
