"""A Pulumi stack as the commands of this folder use it: the CLI, the recorded state, and the API of its cluster."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from gke_ai.catalog.section_files import FOLDER, folder_of
from gke_ai.kube.client import ApiClient, client_of, client_of_context
from gke_ai.registered.types import NAMESPACE, PROVIDER, STACK
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import COMMAND, INSTALLED, PACKAGES, on_emulator

# The project: the checkout, or for an installed package the folder in which its command runs.
ROOT = Path.cwd() if INSTALLED else PACKAGES
# Variable with the stack of the command, in whose organization Pulumi opens the environments of a configuration.
ENVIRONMENTS_OF = "GKE_AI_STACK_OF_ENVIRONMENTS"


@dataclass(frozen=True)
class Stack:
    """A stack by name, with the configuration file of its commands. Default: Pulumi.<name>.yaml."""

    name: str
    config_file: Path | None = None

    def next(self, verb: str) -> str:
        """Returns the command that a user should run next: on the emulator of a checkout, the alias of make."""
        if on_emulator() and not INSTALLED:
            return f"make {verb} STACK={shlex.quote(self.name)}"
        return f"gke-ai {verb}{' --emulator' if on_emulator() else ''} --stack {shlex.quote(self.name)}"

    @property
    def kubectl(self) -> str:
        """The kubectl command for a user, on the stack's cluster."""
        return kubectl()

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.config_file or ROOT / f"Pulumi.{self.name}.yaml"

    def pulumi(
        self, *arguments: str, configured: bool = False, quiet: bool = False, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `pulumi ARGUMENTS` on this stack. With `configured`, Pulumi reads the configuration file. With `quiet`,
        the output is captured. `stdin` is the standard input."""
        command = self.command(*arguments, configured=configured, quiet=quiet)
        try:
            return subprocess.run(command, cwd=ROOT, text=True, capture_output=quiet, input=stdin, check=False)
        except FileNotFoundError:
            raise Stop(
                f"pulumi is not on PATH, so the state of {self.name} cannot be read. Install it: "
                "https://www.pulumi.com/docs/install/. A cluster alone is read with --context."
            ) from None

    def preview(
        self, *arguments: str, quiet: bool = False
    ) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        """Runs `pulumi preview ARGUMENTS`. Returns the ended process, and the events; none if it wrote no valid log."""
        os.environ["PULUMI_DEBUG_COMMANDS"] = "1"  # --event-log is among the CLI's options for debugging
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "events"
            done = self.pulumi("preview", *arguments, "--event-log", str(log), configured=True, quiet=quiet)
            try:
                return done, [json.loads(line) for line in log.read_text().splitlines()]
            except (ValueError, OSError):
                return done, []

    def command(self, *arguments: str, configured: bool = False, quiet: bool = False) -> list[str]:
        """Returns the command `pulumi ARGUMENTS` for this stack, as `pulumi` runs it."""
        command = ["pulumi", *arguments, "--stack", self.name]
        os.environ[FOLDER] = str(folder_of(self.file))  # for the program, which Pulumi starts
        if quiet or not sys.stdout.isatty():
            command.append("--non-interactive")  # no redrawing display in a log
        if configured and self.config_file:
            command += ["--config-file", str(self.config_file)]
        return command

    def read(self, *arguments: str) -> Any:
        """Returns the JSON that `pulumi ARGUMENTS` prints. Stops with Pulumi's message if the command fails."""
        done = self.pulumi(*arguments, quiet=True)
        if done.returncode:
            self.refuse_damaged()
        if "no stack named" in done.stderr:
            raise Stop(f"There is no stack {self.name} yet. Next: {self.next('up')}")
        if done.returncode:
            raise Stop(done.stderr.strip() or f"pulumi {' '.join(arguments)} failed")
        return json.loads(done.stdout)

    def refuse_damaged(self) -> None:
        """Stops if the local state is damaged."""
        if damaged := damaged_states(self.name):
            raise Stop(
                f"{damaged[0]} is damaged, so {self.name} cannot be read or changed. Nothing was changed. "
                f"Next: {self.next('recover')}, which restores the copy that Pulumi keeps beside it."
            )

    def outputs(self) -> dict[str, Any]:
        """Returns the outputs of the stack, with masked secrets."""
        outputs: dict[str, Any] = self.read("stack", "output", "--json")
        return outputs

    @property
    def is_alone(self) -> bool:
        """Whether only the cluster is known, and no state of Pulumi."""
        return False

    def collection(self, base: str, plural: str) -> str:
        """Returns the API path of a kind in all namespaces."""
        return f"{base}/{plural}"

    @cached_property
    def resources(self) -> list[dict[str, Any]]:
        """Recorded resources, in the order of their creation."""
        return (self.read("stack", "export").get("deployment") or {}).get("resources") or []

    def of_type(self, *types: str) -> Iterator[dict[str, Any]]:
        """Yields the recorded resources of these Pulumi types."""
        return (resource for resource in self.resources if resource["type"] in types)

    @property
    def own_namespaces(self) -> set[str]:
        """Names of the namespaces that the stack created, and that are deleted with it."""
        return {namespace["inputs"]["metadata"]["name"] for namespace in self.of_type(NAMESPACE)}

    @property
    def recorded_outputs(self) -> dict[str, Any]:
        """Recorded outputs of the stack, with encrypted secrets."""
        return next((stack.get("outputs") or {} for stack in self.of_type(STACK)), {})

    def cluster(self, connections: int = 4) -> ApiClient:
        """Returns a client of the stack's cluster for that many concurrent requests. Stops if there is none yet."""
        if api := self.api(connections):
            return api
        raise Stop(f"{self.name} has no cluster yet. Next: {self.next('up')}")

    def api(self, connections: int = 4) -> ApiClient | None:
        """Returns a client of the stack's cluster, or None before there is a cluster."""
        for provider in self.of_type(PROVIDER):
            if kubeconfig := provider.get("inputs", {}).get("kubeconfig"):
                return client_of(kubeconfig, connections)
        return None


@dataclass(frozen=True)
class Context(Stack):
    """A cluster alone, by the name of a context of the kubeconfig. Nothing is known of what Pulumi created there."""

    kubeconfig: Path | None = None
    namespace: str = ""
    """The only namespace that is read, for a user without rights in others. Default: all."""
    is_stated: bool = False
    """Whether the user states the namespace. Otherwise it is that of the context."""

    def next(self, verb: str) -> str:
        namespace = ["--namespace", self.namespace] if self.namespace else []
        return f"gke-ai {verb} {shlex.join([*self._cluster, *namespace])}"

    @property
    def kubectl(self) -> str:
        return f"{kubectl()} {shlex.join(self._cluster)}"

    @property
    def _cluster(self) -> list[str]:
        """The options that name the cluster. A kubeconfig, with the names of its contexts, may be a stranger's."""
        return ["--context", self.name, *(["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else [])]

    @property
    def is_alone(self) -> bool:
        return True

    @property
    def resources(self) -> list[dict[str, Any]]:
        return []

    def collection(self, base: str, plural: str) -> str:
        return f"{base}/namespaces/{self.namespace}/{plural}" if self.namespace else f"{base}/{plural}"

    def api(self, connections: int = 4) -> ApiClient:
        return client_of_context(self.name, connections, str(self.kubeconfig or ""))


def in_local_state(pattern: str) -> list[Path]:
    """Returns files of a local state. Other backends handle locks and writes themselves."""
    backend = urlparse(os.environ.get("PULUMI_BACKEND_URL", ""))
    if backend.scheme != "file":
        return []
    return list((Path(unquote(backend.path)) / ".pulumi").glob(pattern))


def damaged_states(stack: str) -> list[Path]:
    """Returns the files of a stack's local state that are no JSON: a lost file system or a full disk cut them off."""
    return [file for file in in_local_state(f"stacks/**/{stack}.json") if not is_json(file)]


def is_json(file: Path) -> bool:
    """Whether a file has a JSON object."""
    try:
        return isinstance(json.loads(file.read_bytes()), dict)
    except (OSError, ValueError):
        return False


def kubectl() -> str:
    """Returns the kubectl command for a user."""
    return f"{COMMAND} kubectl" if on_emulator() else "kubectl"
