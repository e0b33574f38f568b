"""Requests to pods through the daemon's HTTP proxy."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from emulator.pods import proxy as pod_proxy

POOL = ["10.0.0.7:8000"]


def endpoints(pool: str) -> list[str]:
    return {"llm/gemma": POOL, "llm/late": ["10.0.0.9:1"]}.get(pool, [])


PICKED = "x-gateway-destination-endpoint: 10.0.0.8:1"
POOLED = "x-emulator-inference-pool: llm/gemma"


@pytest.mark.parametrize(
    ("head", "targets", "first"),
    [
        ("GET http://10.0.0.7:8000/metrics?a=b HTTP/1.1\r\n", "10.0.0.7:8000", "GET /metrics?a=b HTTP/1.1"),
        ("GET http://10.0.0.7 HTTP/1.1\r\n", "10.0.0.7:80", "GET / HTTP/1.1"),
        ("POST /v1 HTTP/1.1\r\nX-Gateway-Destination-Endpoint: 10.0.0.8:1\r\n", "10.0.0.8:1", "POST /v1 HTTP/1.1"),
        (f"GET / HTTP/1.1\r\n{PICKED}, 10.0.0.9:1\r\n", "10.0.0.8:1 10.0.0.9:1", "GET / HTTP/1.1"),
        (f"GET / HTTP/1.1\r\n{POOLED}\r\n", "10.0.0.7:8000", "GET / HTTP/1.1"),
        ("GET / HTTP/1.1\r\nx-emulator-inference-pool: llm/empty\r\n", "", "GET / HTTP/1.1"),
        (f"GET / HTTP/1.1\r\n{PICKED}\r\n{POOLED}\r\n", "10.0.0.8:1 10.0.0.7:8000", "GET / HTTP/1.1"),
    ],
)
def test_a_request_names_its_pods_by_address_picker_and_pool(head: str, targets: str, first: str) -> None:
    found, request = pod_proxy.rewrite(f"{head}Accept: x\r\nConnection: keep-alive\r\n\r\n", endpoints)
    assert found() == targets.split()
    lines = request.split("\r\n")
    assert lines[0] == first
    assert lines[-4:] == ["Accept: x", "Connection: close", "", ""]
    assert "inference-pool" not in request


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def port_of(target: str, port: int) -> int | None:
    return {"10.0.0.7:8000": port, "10.0.0.8:8000": 1}.get(target)


async def exchange(
    pod: Handler,
    request: bytes,
    endpoints: Callable[[str], list[str]] = endpoints,
    find: Callable[[str, int], int | None] = port_of,
) -> bytes:
    """Sends a request through the proxy to a pod, whose port `find` gets, and returns all that comes back."""
    async with await asyncio.start_server(pod, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with await pod_proxy.serve(lambda target: find(target, port), endpoints) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.sockets[0].getsockname()[1])
            writer.write(request)
            await writer.drain()
            answered = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return answered


def test_an_answer_streams_while_the_request_is_open() -> None:
    async def pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for word in (b"one ", b"two"):
            writer.write(word)
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.close()

    assert asyncio.run(exchange(pod, b"GET http://10.0.0.7:8000/ HTTP/1.1\r\n\r\n")) == b"one two"


def test_a_long_body_reaches_the_pod() -> None:
    async def pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"%d" % len(await reader.readexactly(1_000_000)))
        writer.close()

    head = b"POST http://10.0.0.7:8000/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n"
    assert asyncio.run(exchange(pod, head + b"x" * 1_000_000)) == b"1000000"


@pytest.mark.parametrize("target", ["10.0.0.8:8000", "10.0.0.9:8000"])  # refuses connections; unknown
def test_a_pod_without_a_process_answers_503(target: str) -> None:
    answered = asyncio.run(exchange(answers(b""), f"GET http://{target}/ HTTP/1.1\r\n\r\n".encode()))
    assert answered.startswith(b"HTTP/1.1 503 ")
    assert target.encode() in answered


def answers(text: bytes) -> Handler:
    async def pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        writer.close()

    return pod


def test_a_request_waits_for_a_pod_whose_process_starts() -> None:
    looks: list[str] = []

    def find(target: str, port: int) -> int | None:
        looks.append(target)
        return port if len(looks) > 2 else None

    request = b"GET / HTTP/1.1\r\nx-emulator-inference-pool: llm/late\r\n\r\n"
    assert asyncio.run(exchange(answers(b"started"), request, find=find)) == b"started"
    assert looks == ["10.0.0.9:1"] * 3


def test_a_request_whose_pod_has_ended_waits_for_the_next_pod_of_its_pool() -> None:
    looks: list[str] = []

    def replaced(pool: str) -> list[str]:
        looks.append(pool)
        return POOL if len(looks) > 2 else []

    head = f"GET / HTTP/1.1\r\nx-gateway-destination-endpoint: 10.0.0.9:1\r\n{POOLED}\r\n\r\n"
    assert asyncio.run(exchange(answers(b"next"), head.encode(), replaced)) == b"next"
