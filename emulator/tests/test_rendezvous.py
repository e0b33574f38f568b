"""Local processes find each other by the stable names of their pods."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from emulator.pods.rendezvous import Member, Rendezvous

Object = dict[str, Any]


def pod(host: str, uid: str, namespace: str = "llm", subdomain: str = "svc") -> Object:
    metadata = {"namespace": namespace, "name": f"{host}-{uid}", "uid": uid}
    return {"metadata": metadata, "spec": {"hostname": host, "subdomain": subdomain}}


@asynccontextmanager
async def serving(member: Member, name: str, port: int = 1234) -> AsyncIterator[None]:
    """A process of a pod that answers each connection with `name`."""

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", member.own_port(port))
    try:
        yield
    finally:
        server.close()


async def answer(member: Member, host: str, port: int = 1234) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", member.port(host, port))
    text = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return text.decode()


def run(scenario: Callable[[Rendezvous], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(Rendezvous()), 60))


def test_a_pod_reaches_another_one_by_name() -> None:
    async def scenario(rendezvous: Rendezvous) -> None:
        zero, one = rendezvous.join(pod("run-0", "a")), rendezvous.join(pod("run-1", "b"))
        async with serving(zero, "zero"):
            assert await answer(one, "run-0") == "zero"
            assert await answer(zero, "run-0") == "zero"
            assert one.port("run-0", 1234) == one.port("run-0", 1234)

    run(scenario)


def test_a_connection_waits_for_a_pod_that_starts_later() -> None:
    async def scenario(rendezvous: Rendezvous) -> None:
        one = rendezvous.join(pod("run-1", "b"))
        waiting = asyncio.create_task(answer(one, "run-0"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with serving(rendezvous.join(pod("run-0", "a")), "zero"):
            assert await waiting == "zero"

    run(scenario)


def test_a_name_leads_to_the_new_pod_while_the_one_before_it_ends() -> None:
    async def scenario(rendezvous: Rendezvous) -> None:
        before, one = pod("run-0", "a"), rendezvous.join(pod("run-1", "b"))
        old = rendezvous.join(before)
        async with serving(old, "old"):
            assert await answer(one, "run-0") == "old"
            rendezvous.leave(before)
            async with serving(rendezvous.join(pod("run-0", "c")), "new"):
                assert await answer(one, "run-0") == "new"

    run(scenario)


@pytest.mark.parametrize("other", [{"namespace": "default"}, {"subdomain": "other"}])
def test_the_same_name_elsewhere_is_another_pod(other: dict[str, str]) -> None:
    async def scenario(rendezvous: Rendezvous) -> None:
        here, there = rendezvous.join(pod("run-0", "a")), rendezvous.join(pod("run-0", "b", **other))
        beside = rendezvous.join(pod("run-1", "c")), rendezvous.join(pod("run-1", "d", **other))
        async with serving(here, "here"), serving(there, "there"):
            assert [await answer(member, "run-0") for member in beside] == ["here", "there"]

    run(scenario)


def test_a_pods_connections_end_with_it() -> None:
    async def scenario(rendezvous: Rendezvous) -> None:
        one = rendezvous.join(pod("run-1", "b"))
        port = one.port("run-0", 1234)
        await asyncio.sleep(0.1)
        one.close()
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(scenario)
