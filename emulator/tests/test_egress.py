"""Connections from the API server to the local process of a Service or a pod."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from emulator.machine import egress

Object = dict[str, Any]


def service(ip: str = "34.118.224.9", ports: list[Object] | None = None) -> Object:
    spec = {"clusterIP": ip, "ports": ports or [{"port": 443, "targetPort": 9443}]}
    return {"metadata": {"name": "hook", "namespace": "sys"}, "spec": spec}


def endpoint_slice(uid: str = "u1", ports: list[Object] | None = None, ready: bool = True) -> Object:
    return {
        "metadata": {"name": "hook-x", "namespace": "sys", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": ports or [{"name": "", "port": 9443}],
        "endpoints": [{"targetRef": {"kind": "Pod", "uid": uid}, "conditions": {"ready": ready}}],
    }


POD = {"metadata": {"uid": "u1", "name": "p", "namespace": "sys"}, "status": {"podIP": "10.0.0.7"}}
SERVED = {"u1": {9443: 21000, 8443: 21001}}


def resolve(target: str, **changed: Any) -> int | None:
    objects = {"services": [service()], "slices": [endpoint_slice()], "pods": [POD], "served": SERVED} | changed
    return egress.resolve(target, **objects)


def test_a_service_or_pod_leads_to_the_process_behind_its_port() -> None:
    for host in ("34.118.224.9", "hook.sys.svc", "hook.sys.svc.cluster.local"):
        assert resolve(f"{host}:443") == 21000
    assert resolve("hook.sys.svc:443", services=[service(ip="None")]) == 21000, "a headless Service"
    assert resolve("10.0.0.7:8443") == 21001
    ports = [{"name": "hook", "port": 443}, {"name": "metrics", "port": 8443}]
    targets = [{"name": "hook", "port": 9443}, {"name": "metrics", "port": 8443}]
    objects = {"services": [service(ports=ports)], "slices": [endpoint_slice(ports=targets)]}
    assert [resolve(f"hook.sys.svc:{port}", **objects) for port in (443, 8443)] == [21000, 21001]


@pytest.mark.parametrize(
    ("target", "objects"),
    [
        ("34.118.224.9:80", {}),  # the Service has no such port
        ("34.118.224.10:443", {}),  # nobody's address
        ("10.0.0.7:9999", {}),  # the process doesn't listen there
        ("10.0.0.7:", {}),
        ("34.118.224.9:443", {"slices": []}),  # no endpoint yet
        ("34.118.224.9:443", {"slices": [endpoint_slice(ready=False)]}),
        ("34.118.224.9:443", {"slices": [endpoint_slice(uid="simulated-only")]}),
        ("34.118.224.9:443", {"served": {}}),  # the pod is Ready, its process hasn't started
    ],
)
def test_a_target_without_a_local_process_has_no_port(target: str, objects: dict[str, Any]) -> None:
    assert resolve(target, **objects) is None


async def _ask(path: Path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(request)
    await writer.drain()
    answered = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answered


async def _through_proxy(path: Path, request: bytes) -> bytes:
    async def echo_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo:" + await reader.read(100))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo_once, "127.0.0.1", 0) as pod:
        ports = {"pod:1": pod.sockets[0].getsockname()[1], "pod:2": 1}
        async with await egress.serve(path, ports.get):
            return await _ask(path, request)


@pytest.mark.parametrize(
    ("request_line", "pattern"),
    [
        (b"CONNECT pod:1 HTTP/1.1\r\nHost: pod:1", rb"HTTP/1\.1 200 OK\r\n\r\necho:hello"),
        (b"CONNECT pod:2 HTTP/1.1", rb"HTTP/1\.1 502 .*"),
        (b"CONNECT pod:3 HTTP/1.1", rb"HTTP/1\.1 502 .*"),
        (b"GET http://pod:1/ HTTP/1.1", rb"HTTP/1\.1 405 .*"),
    ],
    ids=["bytes go both ways", "a process refuses connections", "no process", "another method"],
)
def test_the_proxy_connects_to_the_process_of_a_target(tmp_path: Path, request_line: bytes, pattern: bytes) -> None:
    answer = asyncio.run(_through_proxy(tmp_path / "s", request_line + b"\r\n\r\nhello"))
    assert re.fullmatch(pattern, answer, re.DOTALL)


def test_a_local_port_forwards_to_the_current_process_of_a_target() -> None:
    async def through() -> list[bytes]:
        async def name(writer: asyncio.StreamWriter, text: bytes) -> None:
            writer.write(text)
            writer.close()

        async def said(port: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answered = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return answered

        old = await asyncio.start_server(lambda _, w: name(w, b"old"), "127.0.0.1", 0)
        new = await asyncio.start_server(lambda _, w: name(w, b"new"), "127.0.0.1", 0)
        ports: dict[str, int] = {}
        async with old, new:
            waiting = asyncio.create_task(egress.forward("pod:1", ports.get))
            await asyncio.sleep(0.3)
            assert not waiting.done()  # nothing is there yet
            ports["pod:1"] = old.sockets[0].getsockname()[1]
            async with await asyncio.wait_for(waiting, 5) as server:
                port = server.sockets[0].getsockname()[1]
                first = await said(port)
                ports["pod:1"] = new.sockets[0].getsockname()[1]
                return [first, await said(port)]

    assert asyncio.run(through()) == [b"old", b"new"]


def test_the_path_of_a_socket_may_exceed_the_kernels_limit(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()

    async def serve() -> bool:
        async with await egress.serve(deep / "s", lambda _: None):
            return (deep / "s").is_socket()

    assert asyncio.run(serve())
