"""Pulumi's language host for Python: runs programs, policy packs and component plugins.

The engine starts it as `pulumi-language-python`, reads the port from its output and calls it to run Python code
(https://github.com/pulumi/pulumi/blob/master/proto/pulumi/language.proto). Pulumi's own `pulumi-language-python-exec`
runs the program. The program writes to this process's output, which the engine shows. This host neither installs
packages nor generates code. A policy pack starts without the stack's configuration: the engine sends it later
(ConfigureStack).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import grpc
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import language_pb2 as language
from pulumi.runtime.proto import language_pb2_grpc, plugin_pb2

from emulator.machine.paths import ROOT
from emulator.pulumi.plugin import ENDS_WITH_PARENT, MAX_MESSAGE_BYTES

EXEC = "pulumi-language-python-exec"
SHOWED_ITS_ERROR = 32  # exit status of EXEC after an error that the user has already seen
GRACE_SECONDS = 5  # between SIGTERM and SIGKILL for a canceled program


class CannotRun(Exception):
    """A program cannot be run. The text says why, and what to change."""


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs programs and plugins for one engine.

    Args:
        engine: Address of the engine's service, which programs receive.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._canceled = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    def Handshake(
        self, request: language.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language.LanguageHandshakeResponse:
        self._engine = request.engine_address
        return language.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo()

    def GetRequiredPackages(
        self, request: language.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language.GetRequiredPackagesResponse:
        # The engine looks for a plugin when the program first uses it.
        return language.GetRequiredPackagesResponse()

    def GetRequiredPlugins(
        self, request: language.GetRequiredPluginsRequest, context: grpc.ServicerContext
    ) -> language.GetRequiredPluginsResponse:
        return language.GetRequiredPluginsResponse()

    def RuntimeOptionsPrompts(
        self, request: language.RuntimeOptionsRequest, context: grpc.ServicerContext
    ) -> language.RuntimeOptionsResponse:
        return language.RuntimeOptionsResponse()

    def About(self, request: language.AboutRequest, context: grpc.ServicerContext) -> language.AboutResponse:
        python = python_of(request.info)
        version = platform.python_version() if python == sys.executable else _output(python, "-V").split()[-1]
        return language.AboutResponse(executable=python, version=version)

    def GetProgramDependencies(
        self, request: language.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language.GetProgramDependenciesResponse:
        top_only = [] if request.transitiveDependencies else ["--not-required"]
        packages = json.loads(_output(python_of(request.info), "-m", "pip", "list", "--format=json", *top_only))
        return language.GetProgramDependenciesResponse(
            dependencies=[language.DependencyInfo(name=entry["name"], version=entry["version"]) for entry in packages]
        )

    def InstallDependencies(
        self, request: language.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language.InstallDependenciesResponse]:
        message = "Nothing to install: emulator/run created the Python environment from requirements/all.lock.\n"
        yield language.InstallDependenciesResponse(stdout=message.encode())

    def Run(self, request: language.RunRequest, context: grpc.ServicerContext) -> language.RunResponse:
        """Runs a program, which registers the stack's resources, to its end."""
        try:
            command, env = self.program(request)
        except CannotRun as reason:
            return language.RunResponse(error=str(reason))
        env |= {
            # As small as that of the official host.
            "PULUMI_CONFIG": json.dumps(dict(request.config), ensure_ascii=False, separators=(",", ":")),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        with self._child(command, env, request.pwd, context, stdin=subprocess.DEVNULL) as process:
            status = process.wait()
        if status == SHOWED_ITS_ERROR or self._canceled.is_set():
            return language.RunResponse(bail=True)
        return language.RunResponse(error=_exit_message("the program", status) if status else "")

    def program(self, request: language.RunRequest) -> tuple[list[str], dict[str, str]]:
        """The command that runs a program, and its environment without the configuration. Raises CannotRun."""
        runner = shutil.which(EXEC)
        if runner is None:
            raise CannotRun(f"{EXEC} isn't on PATH. Run pulumi through emulator/run, which sets PATH.")
        info, python = request.info, python_of(request.info)
        # In the form --name=value, because a value may begin with a dash.
        arguments = [f"--{name}={value}" for name, value in self.run_options(request, root="root_directory").items()]
        path = str(Path(info.program_directory, info.entry_point))
        return [*interpreter(python), "-u", runner, *arguments, path, *request.args], environment_of(python)

    def run_options(self, request: language.RunRequest, root: str) -> dict[str, str]:
        """What a program must know of its run. `root` is the name of the folder of Pulumi.yaml."""
        options = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            root: request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
        }
        return {name: value for name, value in options.items() if value}

    def RunPlugin(
        self, request: language.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language.RunPluginResponse]:
        """Runs a policy pack or a component plugin and forwards its output until it ends."""
        folder = request.info.program_directory
        python = python_of(request.info)
        env = environment_of(python) | dict(entry.split("=", 1) for entry in request.env)
        env["PATH"] = environment_of(python)["PATH"]  # the engine's PATH would deactivate the virtual environment
        if request.kind == "analyzer":
            command, cwd = [*interpreter(python), "-u", "-m", "pulumi.policy", *request.args, folder], folder
        else:
            command, cwd = [*interpreter(python), "-u", folder, *request.args], request.pwd
        pipe = subprocess.PIPE
        with self._child(command, env, cwd, context, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            written: SimpleQueue[language.RunPluginResponse | None] = SimpleQueue()

            def pump(stream: IO[bytes], is_error: bool) -> None:
                while chunk := os.read(stream.fileno(), 65536):
                    written.put(
                        language.RunPluginResponse(stderr=chunk)
                        if is_error
                        else language.RunPluginResponse(stdout=chunk)
                    )
                written.put(None)

            for stream, is_error in ((process.stdout, False), (process.stderr, True)):
                threading.Thread(target=pump, args=(stream, is_error), daemon=True).start()
            for _ in ("standard output", "standard error"):  # None marks the end of each stream
                while (response := written.get()) is not None:
                    yield response
            yield language.RunPluginResponse(exitcode=process.wait())

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self._canceled.set()
        for process in tuple(self._running):
            _end(process)
        return empty_pb2.Empty()

    def kill_all(self) -> None:
        """Kills all programs and plugins with their child processes."""
        for process in tuple(self._running):
            _signal_group(process, signal.SIGKILL)

    @contextmanager
    def _child(
        self,
        command: list[str],
        env: dict[str, str],
        cwd: str,
        context: grpc.ServicerContext,
        *,
        stdin: int,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Starts a process that ends with its call, when the deployment is canceled, or with this process.

        The process has its own process group: the engine's SIGINT to this group would cause a traceback in it.
        """
        process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, process_group=0
        )
        self._running.add(process)
        context.add_callback(lambda: _end(process))
        try:
            yield process
        finally:
            _end(process)
            self._running.discard(process)


def python_of(info: language.ProgramInfo) -> str:
    """Returns the interpreter of the `virtualenv` in Pulumi.yaml if that folder exists, else this process's."""
    virtualenv = MessageToDict(info.options).get("virtualenv")
    if virtualenv:
        folder = Path(info.root_directory, str(virtualenv))
        if folder.exists():
            return str(folder / "bin" / "python")
    return sys.executable


def interpreter(python: str) -> list[str]:
    """Returns how to start an interpreter that ends with this process, forked from the warm one if it is the same."""
    if python == sys.executable:
        return [python, "-I", "-S", str(ROOT / "emulator" / "pulumi" / "warm.py"), "--ends-with-parent"]
    return [*ENDS_WITH_PARENT, python]


def environment_of(python: str) -> dict[str, str]:
    """Returns this process's environment with the virtual environment active and without the emulator's PYTHONPATH."""
    programs = Path(python).parent
    env = dict(os.environ)
    own = f"{ROOT}{os.pathsep}"  # prepended by emulator/bin/pulumi-language-python
    env["PYTHONPATH"] = f"{env.get('PYTHONPATH', '')}{os.pathsep}".removeprefix(own).removesuffix(os.pathsep)
    env["VIRTUAL_ENV"] = str(programs.parent)
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
    env.pop("PYTHONHOME", None)
    return env


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a running process and its children, which hold open the output that the engine reads to its end."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)  # ends Python without a traceback
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _exit_message(program: str, status: int) -> str:
    if status < 0:
        return f"{program} was ended by {signal.Signals(-status).name}"
    return f"{program} ended with exit status {status}"


def serve(kind: type[LanguageHost]) -> None:
    """Serves until the engine takes leave (SIGINT) or goes itself, however it ends."""
    engine_process = os.getppid()
    host = kind(engine=sys.argv[-1])

    def stop(*_: object) -> None:
        host.kill_all()
        os._exit(0)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    limits = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("receive", "send")]
    server = grpc.server(futures.ThreadPoolExecutor(16), options=limits)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while os.getppid() == engine_process:  # after the engine is killed, this process gets another parent
        time.sleep(0.2)
    stop()


if __name__ == "__main__":
    serve(LanguageHost)
