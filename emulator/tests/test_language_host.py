"""The language host under the real engine: programs and plugins run correctly and never outlive it."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from emulator.tests.harness import Project

pytestmark = pytest.mark.engine

WAITS = """
import json, os, subprocess, time
started = subprocess.Popen(["sleep", "600"])
with open("running.part", "w") as file:
    json.dump([os.getpid(), started.pid], file)
os.rename("running.part", "running")
time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "a project", tmp_path / "state")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def survivors(pids: list[int], seconds: float = 60) -> list[int]:
    """The processes that still run after a grace period."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def test_the_output_and_the_resources_of_a_program_reach_the_user(project: Project) -> None:
    project.write(
        "__main__.py",
        "import sys, pulumi\n"
        "print('on standard output')\n"
        "print('on standard error', file=sys.stderr)\n"
        "pulumi.export('greeting', pulumi.Config().require('greeting'))\n",
    )
    project.pulumi("config", "set", "greeting", "good morning")
    status, output = project.up()
    assert status == 0, output
    assert "on standard output" in output
    assert "on standard error" in output
    assert "warning" not in output  # such as of a plugin taken from PATH
    assert project.output("greeting") == "good morning"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise ValueError('the moon is full')", "ValueError: the moon is full"),
        ("import os\nos._exit(7)", "exit status 7"),
        ("import gke_ai", "No module named 'gke_ai'"),  # the modules of this project
    ],
)
def test_a_program_that_fails_shows_its_own_error_and_no_other(project: Project, program: str, error: str) -> None:
    project.write("__main__.py", f"{program}\n")
    status, output = project.up()
    assert status != 0
    assert error in output
    assert "language_host" not in output


def test_the_virtualenv_of_the_project_is_used_unless_it_is_missing(project: Project) -> None:
    environment = project.folder / "venv"
    project.write("Pulumi.yaml", "name: sample\nruntime: {name: python, options: {virtualenv: venv}}\n")
    project.write("__main__.py", "import sys, pulumi\npulumi.export('prefix', sys.prefix)\n")
    status, output = project.up()
    assert status == 0, output
    assert project.output("prefix") == sys.prefix
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    status, output = project.up()
    assert status == 0, output
    assert project.output("prefix") == str(environment)


@pytest.mark.parametrize("forked", [True, False])
@pytest.mark.parametrize("victim", ["engine", "host"])
def test_no_process_outlives_a_killed_engine_or_host(
    project: Project, victim: str, forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not forked:
        monkeypatch.setenv("GKE_AI_WARM", "")
    project.write("__main__.py", WAITS)
    engine = project.start("up", "--yes", "--skip-preview")
    host, program, started = project.running()
    if victim == "engine":
        engine.kill()
        expected = [host, program, started]
    else:
        os.kill(host, signal.SIGKILL)
        expected = [host, program]  # the kernel ends the program; what that started has lost who would know it
    try:
        assert survivors(expected) == []
    finally:
        for pid in survivors([started, program, host], 0):
            os.kill(pid, signal.SIGKILL)
    engine.communicate(timeout=60)
    assert engine.returncode != 0


def test_an_interrupted_up_ends_without_a_traceback(project: Project) -> None:
    project.write("__main__.py", WAITS)
    engine = project.start("up", "--yes", "--skip-preview")
    pids = project.running()
    engine.send_signal(signal.SIGINT)
    output, _ = engine.communicate(timeout=60)
    assert engine.returncode != 0
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output
    assert survivors(pids) == []


def test_a_plugin_of_components_runs_and_ends_with_the_engine(project: Project) -> None:
    project.write(
        "Pulumi.yaml", "name: sample\nruntime: python\nplugins: {providers: [{name: parts, path: ./parts}]}\n"
    )
    project.write("parts/PulumiPlugin.yaml", "name: parts\nruntime: python\n")
    project.write(
        "parts/__main__.py",
        "import os, pathlib, typing, pulumi\n"
        "from pulumi.provider.experimental import component_provider_host\n"
        "pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "class PartArgs(typing.TypedDict):\n"
        "    size: pulumi.Input[int]\n"
        "class Part(pulumi.ComponentResource):\n"
        "    doubled: pulumi.Output[int]\n"
        "    def __init__(self, name: str, args: PartArgs, opts: typing.Optional[pulumi.ResourceOptions] = None):\n"
        "        super().__init__('parts:index:Part', name, {}, opts)\n"
        "        self.doubled = pulumi.Output.from_input(args['size']).apply(lambda size: size * 2)\n"
        "        self.register_outputs({'doubled': self.doubled})\n"
        "component_provider_host([Part], 'parts')\n",
    )
    project.write(
        "__main__.py",
        "import pulumi\n"
        "class Part(pulumi.ComponentResource):\n"
        "    doubled: pulumi.Output[int]\n"
        "    def __init__(self, name, size):\n"
        "        super().__init__('parts:index:Part', name, {'size': size, 'doubled': None}, None, True)\n"
        "pulumi.export('doubled', Part('one', 21).doubled)\n",
    )
    status, output = project.up()
    assert status == 0, output
    assert project.output("doubled") == "42"
    assert survivors([int((project.folder / "parts" / "pid").read_text())]) == []


def test_a_policy_pack_refuses_a_violation(project: Project, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "PulumiPolicy.yaml").write_text("name: strict\nruntime: python\nversion: 0.0.1\n")
    (pack / "__main__.py").write_text(
        "from concurrent import futures\n"
        "import grpc\n"
        "from pulumi.runtime.proto import analyzer_pb2 as messages, analyzer_pb2_grpc as service, plugin_pb2\n"
        "class Pack(service.AnalyzerServicer):\n"
        "    def GetAnalyzerInfo(self, request, context):\n"
        "        return messages.AnalyzerInfo(name='strict', version='0.0.1')\n"
        "    def GetPluginInfo(self, request, context):\n"
        "        return plugin_pb2.PluginInfo(version='0.0.1')\n"
        "    def Analyze(self, request, context):\n"
        "        if 'forbidden' not in request.urn:\n"
        "            return messages.AnalyzeResponse()\n"
        "        return messages.AnalyzeResponse(diagnostics=[messages.AnalyzeDiagnostic(\n"
        "            policyName='no-forbidden', policyPackName='strict', policyPackVersion='0.0.1', urn=request.urn,\n"
        "            message='this name is forbidden', enforcementLevel=messages.MANDATORY)])\n"
        "    def AnalyzeStack(self, request, context):\n"
        "        return messages.AnalyzeResponse()\n"
        "server = grpc.server(futures.ThreadPoolExecutor())\n"
        "service.add_AnalyzerServicer_to_server(Pack(), server)\n"
        "print(server.add_insecure_port('127.0.0.1:0'), flush=True)\n"
        "server.start()\n"
        "server.wait_for_termination()\n"
    )
    program = "import pulumi\npulumi.ComponentResource('sample:index:Thing', '{}')\n"
    project.write("__main__.py", program.format("allowed"))
    status, output = project.pulumi("preview", "--policy-pack", str(pack))
    assert status == 0, output
    project.write("__main__.py", program.format("forbidden"))
    status, output = project.pulumi("preview", "--policy-pack", str(pack))
    assert status != 0
    assert "this name is forbidden" in output
