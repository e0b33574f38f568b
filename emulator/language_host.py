"""Pulumi's language host for Python, as far as programs, policy packs and component plugins need one.

The engine starts it by the name `pulumi-language-python`, reads the port from its output and asks it to run what is
written in Python (https://github.com/pulumi/pulumi/blob/master/proto/pulumi/language.proto). The program itself is run
by Pulumi's own `pulumi-language-python-exec`. What it writes goes out through this process's own output, which the
engine shows. It neither installs packages nor generates code. A policy pack has no stack configuration at its start:
the engine tells it (ConfigureStack).
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

from emulator.paths import ROOT
from emulator.plugin import ENDS_WITH_PARENT, MAX_MESSAGE_BYTES

EXEC = "pulumi-language-python-exec"
SHOWED_ITS_ERROR = 32  # exit status of EXEC after an error that the user has already seen
GRACE_SECONDS = 5  # between asking a cancelled program to end and ending it


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs programs and plugins for one engine.

    Args:
        engine: Address of the engine's own service, given to programs.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._cancelled = threading.Event()
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
        # None beforehand: the engine looks for each plugin when the program first names it.
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
            dependencies=[language.DependencyInfo(name=it["name"], version=it["version"]) for it in packages]
        )

    def InstallDependencies(
        self, request: language.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language.InstallDependenciesResponse]:
        said = "Nothing to install: emulator/run made the Python environment from requirements.lock.\n"
        yield language.InstallDependenciesResponse(stdout=said.encode())

    def Run(self, request: language.RunRequest, context: grpc.ServicerContext) -> language.RunResponse:
        """Runs a program to its end: what registers a stack's resources."""
        info = request.info
        runner = shutil.which(EXEC)
        if runner is None:
            return language.RunResponse(
                error=f"{EXEC} isn't on PATH. Run pulumi through emulator/run: it puts it there."
            )
        options = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root_directory": info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
        }
        # One argument each: a value may be empty or begin with a dash.
        arguments = [f"--{name}={value}" for name, value in options.items() if value]
        program = str(Path(info.program_directory, info.entry_point))
        python = python_of(info)
        env = environment_of(python) | {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        command = [python, "-u", runner, *arguments, program, *request.args]
        with self._child(command, env, request.pwd, context, stdin=subprocess.DEVNULL) as process:
            status = process.wait()
        if status == SHOWED_ITS_ERROR or self._cancelled.is_set():
            return language.RunResponse(bail=True)
        return language.RunResponse(error=_how_it_ended("the program", status) if status else "")

    def RunPlugin(
        self, request: language.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language.RunPluginResponse]:
        """Runs a policy pack or a plugin of components, and passes on what it writes until it ends."""
        folder = request.info.program_directory
        python = python_of(request.info)
        env = environment_of(python) | dict(entry.split("=", 1) for entry in request.env)
        env["PATH"] = environment_of(python)["PATH"]  # the engine's own would undo the virtual environment's
        if request.kind == "analyzer":
            command, cwd = [python, "-u", "-m", "pulumi.policy", *request.args, folder], folder
        else:
            command, cwd = [python, "-u", folder, *request.args], request.pwd
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
            for _ in ("standard output", "standard error"):  # each puts None at its end
                while (response := written.get()) is not None:
                    yield response
            yield language.RunPluginResponse(exitcode=process.wait())

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self._cancelled.set()
        for process in tuple(self._running):
            _end(process)
        return empty_pb2.Empty()

    def kill_all(self) -> None:
        """Ends every program and plugin with whatever these have started."""
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
        """A process that ends with the call that it serves, with a cancelled deployment and with this process.

        It has a process group of its own: the engine's SIGINT to this one's group must not become a traceback.
        """
        process = subprocess.Popen(
            [*ENDS_WITH_PARENT, *command],
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
        )
        self._running.add(process)
        context.add_callback(lambda: _end(process))
        try:
            yield process
        finally:
            _end(process)
            self._running.discard(process)


def python_of(info: language.ProgramInfo) -> str:
    """The interpreter of the `virtualenv` that Pulumi.yaml names, where that exists, else the one that runs this."""
    virtualenv = MessageToDict(info.options).get("virtualenv")
    if virtualenv:
        folder = Path(info.root_directory, str(virtualenv))
        if folder.exists():
            return str(folder / "bin" / "python")
    return sys.executable


def environment_of(python: str) -> dict[str, str]:
    """This process's environment with the interpreter's virtual environment active and without what made this start."""
    programs = Path(python).parent
    env = dict(os.environ)
    own = f"{ROOT}{os.pathsep}"  # put in front by emulator/bin/pulumi-language-python
    env["PYTHONPATH"] = f"{env.get('PYTHONPATH', '')}{os.pathsep}".removeprefix(own).removesuffix(os.pathsep)
    env["VIRTUAL_ENV"] = str(programs.parent)
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
    env.pop("PYTHONHOME", None)
    return env


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process before its time, with what it has started: that holds the output whose end the engine awaits."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)  # ends Python without a traceback
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _how_it_ended(what: str, status: int) -> str:
    if status < 0:
        return f"{what} was ended by {signal.Signals(-status).name}"
    return f"{what} ended with exit status {status}"


def main() -> None:
    """Serves until the engine takes leave (SIGINT) or goes itself, however it ends."""
    engine_process = os.getppid()
    host = LanguageHost(engine=sys.argv[-1])

    def leave(*_: object) -> None:
        host.kill_all()
        os._exit(0)

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    limits = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("receive", "send")]
    server = grpc.server(futures.ThreadPoolExecutor(16), options=limits)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while os.getppid() == engine_process:  # a killed engine says nothing: its child gets another parent
        time.sleep(0.2)
    leave()


if __name__ == "__main__":
    main()
