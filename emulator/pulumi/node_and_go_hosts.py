"""Pulumi's language hosts for Node and Go: they run programs as the one for Python does.

`python -m emulator.pulumi.node_and_go_hosts nodejs|go` starts one. The official hosts are in Go modules that the module
proxy does not have. These neither install packages nor generate code: a program needs its `node_modules`, or its
modules in the cache of Go, and an SDK of each package that it uses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
from pulumi.runtime.proto import language_pb2 as language

from emulator.pulumi.language_host import CannotRun, LanguageHost, serve

RUN = Path("@pulumi", "pulumi", "cmd", "run")


class ProgramHost(LanguageHost):
    """A language host without a Python environment: programs alone, no plugins."""

    executable: str

    def About(self, request: language.AboutRequest, context: grpc.ServicerContext) -> language.AboutResponse:
        return language.AboutResponse(executable=shutil.which(self.executable) or "")

    def GetProgramDependencies(
        self, request: language.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language.GetProgramDependenciesResponse:
        return language.GetProgramDependenciesResponse()

    def InstallDependencies(
        self, request: language.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language.InstallDependenciesResponse]:
        yield language.InstallDependenciesResponse(stdout=b"This host installs nothing.\n")

    def RunPlugin(
        self, request: language.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language.RunPluginResponse]:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"The emulator runs no plugins with {self.executable}.")
        yield language.RunPluginResponse()


class NodeHost(ProgramHost):
    """Runs programs with the runner in their `@pulumi/pulumi`, which compiles TypeScript."""

    executable = "node"

    def program(self, request: language.RunRequest) -> tuple[list[str], dict[str, str]]:
        folders = [Path(request.info.program_directory), *Path(request.info.program_directory).parents]
        runner = next((found for it in folders if (found := it / "node_modules" / RUN).is_dir()), None)
        if runner is None:
            raise CannotRun(f"{folders[0]} has no node_modules/@pulumi/pulumi. Run `npm ci` in it.")
        options = self.run_options(request, root="root-directory")
        # A switch, which the other options are not.
        dry = ["--dry-run"] if options.pop("dry_run") == "true" else []
        arguments = [f"--{name}={value}" for name, value in options.items()]
        env = dict(os.environ) | {"PULUMI_NODEJS_TYPESCRIPT": "true"}
        return ["node", str(runner), *arguments, *dry, request.info.entry_point, *request.args], env


class GoHost(ProgramHost):
    """Builds programs with the user's Go and runs them."""

    executable = "go"

    def Run(self, request: language.RunRequest, context: grpc.ServicerContext) -> language.RunResponse:
        with TemporaryDirectory(prefix="pulumi-go-") as self._folder:
            return super().Run(request, context)

    def program(self, request: language.RunRequest) -> tuple[list[str], dict[str, str]]:
        program = str(Path(self._folder, "program"))
        build = subprocess.run(
            ["go", "build", "-o", program, request.info.entry_point],
            cwd=request.info.program_directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if build.returncode:
            raise CannotRun(f"Go could not build the program:\n{build.stderr}")
        options = self.run_options(request, root="root_directory")
        env = {f"PULUMI_{name.upper()}": value for name, value in options.items()}
        return [program, *request.args], dict(os.environ) | env


if __name__ == "__main__":
    serve({"nodejs": NodeHost, "go": GoHost}[sys.argv[1]])
