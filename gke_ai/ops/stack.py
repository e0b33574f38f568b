"""A Pulumi stack as the commands of this folder use it: the CLI, the recorded state, and the API of its cluster."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from gke_ai.kube.objects import Object
from gke_ai.ops.terminal import printable
from gke_ai.registered.types import PROVIDER, STACK

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30  # maximum time for a response of the cluster
BUSY_RETRIES = 10  # as client-go, which kubectl uses


class Stop(Exception):
    """Ends a command with a message for the user, without a traceback."""

    def __str__(self) -> str:
        return printable(super().__str__())


@dataclass(frozen=True)
class Answer:
    """The response of a command or an API: exit code or HTTP status (0: no response), JSON or text, and an error.

    The body may be a credential, so it is never shown.
    """

    code: int
    body: Any = field(default=None, repr=False)
    error: str = ""

    @property
    def reason(self) -> str:
        """Why the request failed, on one line."""
        return " ".join((self.error or f"HTTP {self.code}").split())[:300]


@dataclass(frozen=True)
class Stack:
    """A stack by name, with the configuration file of its commands. Default: Pulumi.<name>.yaml."""

    name: str
    config_file: Path | None = None

    def next(self, verb: str) -> str:
        """Returns the command that a user should run next: make on the emulator, else what make runs."""
        if on_emulator():
            return f"make {verb} STACK={self.name}"
        return (
            f"pulumi {verb} --stack {self.name}" if verb == "up" else f"python -m gke_ai.ops.{verb} --stack {self.name}"
        )

    def pulumi(
        self, *arguments: str, configured: bool = False, quiet: bool = False, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `pulumi ARGUMENTS` on this stack. With `configured`, Pulumi reads the configuration file. With `quiet`,
        the output is captured. `stdin` is the standard input."""
        command = ["pulumi", *arguments, "--stack", self.name]
        if quiet or not sys.stdout.isatty():
            command.append("--non-interactive")  # no redrawing display in a log
        if configured and self.config_file:
            command += ["--config-file", str(self.config_file)]
        return subprocess.run(command, cwd=ROOT, text=True, capture_output=quiet, input=stdin, check=False)

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

    def export(self) -> dict[str, Any]:
        """Returns the recorded deployment: resources and pending operations, with encrypted secrets."""
        deployment: dict[str, Any] = self.read("stack", "export").get("deployment") or {}
        return deployment

    def outputs(self) -> dict[str, Any]:
        """Returns the outputs of the stack, with masked secrets."""
        outputs: dict[str, Any] = self.read("stack", "output", "--json")
        return outputs

    @cached_property
    def resources(self) -> list[dict[str, Any]]:
        """Recorded resources, in the order of their creation."""
        return self.export().get("resources") or []

    def of_type(self, *types: str) -> Iterator[dict[str, Any]]:
        """Yields the recorded resources of these Pulumi types."""
        return (resource for resource in self.resources if resource["type"] in types)

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


def run(main: Callable[[], None]) -> None:
    """Runs a command. If it stops, prints only its message."""
    try:
        main()
    except Stop as stop:
        raise SystemExit(str(stop)) from None


def on_emulator() -> bool:
    """Whether this process runs under emulator/run."""
    return "GKE_AI_STATE" in os.environ


def kubectl() -> str:
    """Returns the kubectl command for a user."""
    return "emulator/run kubectl" if on_emulator() else "kubectl"


def client_of(kubeconfig: str, connections: int) -> ApiClient:
    """Returns a Kubernetes client for a kubeconfig; it runs the exec plugin of the kubeconfig."""
    import yaml
    from kubernetes import config
    from kubernetes.client import Configuration
    from urllib3 import Retry

    options = Configuration()
    options.connection_pool_maxsize = connections
    # A busy API server says in `Retry-After` when to ask again. An unreachable one is reported at once.
    at_once: dict[str, Any] = dict.fromkeys(("connect", "read", "redirect", "other"), False)
    options.retries = Retry(
        BUSY_RETRIES, **at_once, allowed_methods=None, raise_on_status=False, retry_after_max=int(SECONDS)
    )
    connect: Callable[..., ApiClient] = config.new_client_from_config_dict
    return connect(yaml.safe_load(kubeconfig), persist_config=False, client_configuration=options)


def send(
    api: ApiClient,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | str | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Answer:
    """Sends a request to the API of a cluster. The body of the response is its text."""
    from urllib3.exceptions import HTTPError, MaxRetryError

    sent = api.param_serialize(
        method,
        path,
        query_params=[*(query or {}).items()],
        header_params=dict(headers or {}),
        body=body,
        auth_settings=["BearerToken"],
    )
    call: Callable[..., Any] = api.call_api
    try:
        response = call(*sent, _request_timeout=seconds)
        return Answer(response.status, response.read().decode(errors="replace"))
    except MaxRetryError as error:
        return Answer(0, error=type(error.reason or error).__name__)
    except HTTPError as error:
        return Answer(0, error=type(error).__name__)


def request(
    api: ApiClient,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Answer:
    """Sends a request to the API of a cluster. Stops if the cluster does not answer."""
    answer = send(api, method, path, query, body, {"Accept": "application/json", "Content-Type": "application/json"})
    if not answer.code:
        raise Stop(f"The cluster does not answer ({answer.error}): {api.configuration.host}")
    try:
        content = json.loads(answer.body)
    except ValueError:
        content = {}
    refused = answer.code >= 400
    return Answer(answer.code, content, str(content.get("message", answer.body)) if refused else "")


def list_objects(api: ApiClient, path: str, **query: str) -> list[Object]:
    """Returns the objects under an API path; an empty list if their kind is not installed."""
    return objects_of(request(api, "GET", path, query), path)


def objects_of(answer: Answer, path: str) -> list[Object]:
    """Returns the objects in the response to a list request; an empty list if their kind is not installed."""
    if answer.code == 404:
        return []
    if answer.code != 200:
        raise Stop(f"The cluster refuses to list {path}: {answer.reason}")
    objects: list[Object] = answer.body["items"]
    return objects


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Adds `--stack` to the options of a command."""
    parser.add_argument("--stack", default=os.environ.get("STACK", "dev"), help="name of the stack. Default: dev")


def arguments(description: str, argv: Sequence[str] | None = None) -> Stack:
    """Parses `--stack` and `--config-file` of a command."""
    parser = argparse.ArgumentParser(description=description)
    add_stack(parser)
    parser.add_argument("--config-file", type=Path, help="configuration file. Default: Pulumi.<stack>.yaml")
    options = parser.parse_args(argv)
    return Stack(options.stack, options.config_file)
