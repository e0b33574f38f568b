"""A controller whose liveness probe fails is restarted, as by a kubelet. KWOK's kubelets run no probe."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from emulator.cloud.folder import Folder
from emulator.machine import paths, processes
from emulator.pods.controllers import ContainerProcess
from emulator.pods.programs import Program
from emulator.pods.sandbox import Container

Object = dict[str, Any]
PROBE = {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 0.1, "failureThreshold": 2}
PORTS = [{"name": "health", "containerPort": 8081}]
# As a Kueue whose first manager has ended: the program runs on, and nothing listens any more.
HANGS = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2]))
        self.end_headers()
print("started", flush=True)
with http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    for _ in range(int(sys.argv[3])):
        server.handle_request()
time.sleep(600)
"""


async def starts(folder: Folder, seconds: float, answers: int, status: int, **spec: Any) -> int:
    """Runs a controller that answers some probes. Returns how often it was started: at most twice, after a time."""

    async def command(container: Container) -> list[str]:
        return [sys.executable, "-c", HANGS, str(container.sandbox.port(8081)), str(status), str(answers)]

    def api(_: httpx.Request) -> httpx.Response:
        return httpx.Response(201, json={"status": {"token": "t"}})

    metadata = {"namespace": "kueue-system", "name": "p", "uid": "u"}
    pod = {"metadata": metadata, "spec": {"serviceAccountName": "k", "nodeName": "n"}, "status": {}}
    container = {"name": "manager", "ports": PORTS, **spec}
    log = folder.log / "kueue-system_p_manager.log"
    deadline = time.monotonic() + seconds
    async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://c") as client:
        program = Program("i", command, managed=True)
        process = ContainerProcess(folder, client, Mock(), pod, container, program, {}, Mock())
        while (count := log.read_text().count("started") if log.exists() else 0) < 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await process.end(1)
    assert processes.of(folder.path) == []
    return count


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    folder.log.mkdir(parents=True)
    folder.pki.mkdir(parents=True)
    (folder.pki / "ca.crt").write_text("ca")
    (folder.path / "cluster.json").write_text('{"host": "127.0.0.1:1"}')
    return folder


@pytest.mark.parametrize(("answers", "status"), [(3, 200), (1000, 500)], ids=["hangs", "is unhealthy"])
def test_a_controller_that_hangs_or_is_unhealthy_is_restarted(folder: Folder, answers: int, status: int) -> None:
    assert asyncio.run(starts(folder, 60, answers, status, livenessProbe=PROBE)) == 2


@pytest.mark.parametrize(
    ("answers", "spec"),
    [(1000, {"livenessProbe": PROBE}), (0, {}), (0, {"livenessProbe": {"exec": {"command": ["true"]}}})],
    ids=["healthy", "without a probe", "another probe"],
)
def test_another_controller_runs_on(folder: Folder, answers: int, spec: Object) -> None:
    assert asyncio.run(starts(folder, 3, answers, 200, **spec)) == 1
