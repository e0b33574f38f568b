"""Two servers as the program registers them, and the file with what a real vLLM did in their place.

One has `--shutdown-timeout`, and one a grace period that is too short.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import yaml

from emulator.pods.local_spec import variables
from emulator.pods.programs import known
from emulator.pods.sandbox import Container, Sandbox
from gke_ai.ops.smoke.routes import ModelRoute, checked_routes
from tests.support.recorder import GATEWAY_KEY, Record, configuration, shared_record

FILE = Path(__file__).with_name("recorded.yaml")
HEAD = """\
# Written by `make test-vllm`: what a real vLLM did, started with the commands and variables that the program registers.
# It had a tiny model with random weights, on the CPU. The field `made with` has the versions.
"""
EXAMPLE, KEY = "examples/inference-gateway.yaml", GATEWAY_KEY
WITH_FLAG, WITHOUT_FLAG = "gemma", "gemma-next"
MAX_MODEL_LEN, MAX_REQUESTS = 16_384, 8
# Of the grace period, the program leaves the rest to `--shutdown-timeout`: preStop, and the time to end.
BESIDE_SHUTDOWN = 15 + 10
# Listens on this machine alone, and compiles nothing.
ARGUMENTS = ["--host=127.0.0.1", f"--max-num-seqs={MAX_REQUESTS}", "--enforce-eager"]


@dataclass(frozen=True)
class Served:
    """A server of the program: its pod, and what its clients know."""

    pod: Mapping[str, Any]
    secrets: Mapping[tuple[str, str], Mapping[str, str]]
    route: ModelRoute
    port: int
    shutdown_seconds: int

    @property
    def container(self) -> dict[str, Any]:
        container: dict[str, Any] = self.pod["spec"]["containers"][0]
        return container

    @property
    def command(self) -> list[str]:
        return [*self.container["command"], *self.container["args"]]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the container, with the values of the stack's Secrets."""
        return variables(self.container, {"metadata": {}, **self.pod}, self.secrets)

    def stub_command(self, folder: Path) -> list[str]:
        """The command that the emulator runs in place of the container."""
        program = known(self.container["image"])
        assert program is not None
        pod = {"metadata": {"name": "p", "namespace": "llm", "uid": "u"}, "spec": {"nodeName": "n"}, "status": {}}
        sandbox = Sandbox(folder, {self.port: self.port})
        return asyncio.run(program.command(Container(Mock(), pod, self.container, sandbox, Mock(), self.environment)))


def servers(ports: Mapping[str, int], shutdown_seconds: int) -> dict[str, Served]:
    """The servers of the example by name, on these ports."""
    stack = configuration(EXAMPLE)
    seconds = {WITH_FLAG: shutdown_seconds, WITHOUT_FLAG: 0}
    stack["gke-ai:serving"] = [server for server in stack["gke-ai:serving"] if server["name"] in ports]
    gateway = stack["gke-ai:gateway"]
    gateway["routes"] = [route for route in gateway["routes"] if route["servers"][0]["server"] in ports]
    for server in stack["gke-ai:serving"]:
        server |= {"port": ports[server["name"]], "maxModelLen": MAX_MODEL_LEN, "arguments": ARGUMENTS}
        server["terminationGracePeriodSeconds"] = BESIDE_SHUTDOWN + seconds[server["name"]]
    record = shared_record(stack)
    (route,) = checked_routes(record.outputs)
    secrets = secrets_of(record)
    return {
        name: Served(
            record.one("Deployment", name).inputs["spec"]["template"],
            secrets,
            ModelRoute(*(name, route.namespace, f"http://127.0.0.1:{port}", "", route.model, (name,), route.engine)),
            port,
            seconds[name],
        )
        for name, port in ports.items()
    }


def secrets_of(record: Record) -> dict[tuple[str, str], dict[str, str]]:
    return {("secrets", secret.object_name): secret.inputs["stringData"]["value"] for secret in record.all("Secret")}


def recorded() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def dumped(content: object) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=120)


def command(server: Served) -> str:
    """The command of a server, without the port and the time that a recording and a test choose for themselves."""
    return re.sub(r"--(port|shutdown-timeout)=\d+", r"--\1=N", " ".join(server.command))
