"""Connections from the API server to the local process of a Service or a pod."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from emulator.machine import egress

Object = dict[str, Any]


def service(ip: str = "34.118.224.9", ports: list[Object] | None = None) -> Object:
    return {
        "metadata": {"name": "hook", "namespace": "sys"},
        "spec": {"clusterIP": ip, "ports": ports or [{"port": 443, "targetPort": 9443}]},
    }


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


@pytest.mark.parametrize("host", ["34.118.224.9", "hook.sys.svc", "hook.sys.svc.cluster.local"])
def test_a_service_leads_to_the_process_behind_its_endpoint(host: str) -> None:
    assert resolve(f"{host}:443") == 21000


def test_a_pod_address_leads_to_the_pods_own_port() -> None:
    assert resolve("10.0.0.7:8443") == 21001


def test_each_port_of_a_service_leads_to_its_own_target() -> None:
    ports = [{"name": "hook", "port": 443}, {"name": "metrics", "port": 8443}]
    targets = [{"name": "hook", "port": 9443}, {"name": "metrics", "port": 8443}]
    objects = {"services": [service(ports=ports)], "slices": [endpoint_slice(ports=targets)]}
    assert (resolve("hook.sys.svc:443", **objects), resolve("hook.sys.svc:8443", **objects)) == (21000, 21001)


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


def test_bytes_go_both_ways_through_the_proxy(tmp_path: Path) -> None:
    answered = asyncio.run(_through_proxy(tmp_path / "s", b"CONNECT pod:1 HTTP/1.1\r\nHost: pod:1\r\n\r\nhello"))
    assert answered == b"HTTP/1.1 200 OK\r\n\r\necho:hello"


@pytest.mark.parametrize("target", [b"pod:2", b"pod:3"])  # refuses connections; unknown
def test_the_proxy_answers_502_for_a_target_without_a_process(tmp_path: Path, target: bytes) -> None:
    answered = asyncio.run(_through_proxy(tmp_path / "s", b"CONNECT " + target + b" HTTP/1.1\r\n\r\n"))
    assert answered.startswith(b"HTTP/1.1 502 ")


def test_the_proxy_refuses_methods_other_than_connect(tmp_path: Path) -> None:
    answered = asyncio.run(_through_proxy(tmp_path / "s", b"GET http://pod:1/ HTTP/1.1\r\n\r\n"))
    assert answered.startswith(b"HTTP/1.1 405 ")


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


def test_a_headless_service_is_found_by_its_name() -> None:
    objects = {"services": [service(ip="None")]}
    assert resolve("hook.sys.svc:443", **objects) == 21000


def test_the_path_of_a_socket_may_exceed_the_kernels_limit(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()

    async def serve() -> bool:
        async with await egress.serve(deep / "s", lambda _: None):
            return (deep / "s").is_socket()

    assert asyncio.run(serve())
