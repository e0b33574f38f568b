"""One Pulumi stack, as the commands of this folder see it: the CLI, the recorded state, and its cluster's API."""

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

from resources.types import PROVIDER

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object = Mapping[str, Any]
ROOT = Path(__file__).resolve().parent.parent
SECONDS = 30  # the longest that a cluster may take to answer


class Stop(Exception):
    """Ends a command with a message for the person who ran it, and without a traceback."""


@dataclass(frozen=True)
class Answer:
    """What a command or an API answers: exit code or HTTP status (0: no answer), JSON or text, and words of an error.

    What it holds may be a credential, so it is never shown.
    """

    code: int
    body: Any = field(default=None, repr=False)
    error: str = ""

    @property
    def reason(self) -> str:
        """Why the request was refused, on one line."""
        return " ".join((self.error or f"HTTP {self.code}").split())[:300]


@dataclass(frozen=True)
class Stack:
    """A stack by name, with the configuration file that its commands use (none: Pulumi.<name>.yaml)."""

    name: str
    config_file: Path | None = None

    def next(self, verb: str) -> str:
        """The command for a person to give next: of make on the emulator, else what stands behind it."""
        if on_emulator():
            return f"make {verb} STACK={self.name}"
        return f"pulumi {verb} --stack {self.name}" if verb == "up" else f"python -m ops.{verb} --stack {self.name}"

    def pulumi(
        self, *arguments: str, configured: bool = False, quiet: bool = False, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `pulumi ARGUMENTS` on this stack. `configured` commands read the configuration file; quiet ones keep
        their output for the caller, and `given` goes to their standard input."""
        command = ["pulumi", *arguments, "--stack", self.name]
        if quiet or not sys.stdout.isatty():
            command.append("--non-interactive")  # a log has no use for a display that redraws itself
        if configured and self.config_file:
            command += ["--config-file", str(self.config_file)]
        return subprocess.run(command, cwd=ROOT, text=True, capture_output=quiet, input=given, check=False)

    def read(self, *arguments: str) -> Any:
        """The JSON that `pulumi ARGUMENTS` prints; a failure stops with Pulumi's own words."""
        done = self.pulumi(*arguments, quiet=True)
        if "no stack named" in done.stderr:
            raise Stop(f"There is no stack {self.name} yet. Next: {self.next('up')}")
        if done.returncode:
            raise Stop(done.stderr.strip() or f"pulumi {' '.join(arguments)} failed")
        return json.loads(done.stdout)

    def export(self) -> dict[str, Any]:
        """The recorded deployment: resources and pending operations, secrets encrypted."""
        deployment: dict[str, Any] = self.read("stack", "export").get("deployment") or {}
        return deployment

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secrets masked."""
        outputs: dict[str, Any] = self.read("stack", "output", "--json")
        return outputs

    @cached_property
    def resources(self) -> list[dict[str, Any]]:
        """The recorded resources, in the order of their creation."""
        return self.export().get("resources") or []

    def of_type(self, *types: str) -> Iterator[dict[str, Any]]:
        """The recorded resources of these Pulumi types."""
        return (resource for resource in self.resources if resource["type"] in types)

    def api(self, connections: int = 4) -> ApiClient | None:
        """A client of the cluster that the stack's objects are in, for that many requests at once; None before there
        is a cluster."""
        for provider in self.of_type(PROVIDER):
            if kubeconfig := provider.get("inputs", {}).get("kubeconfig"):
                return client_of(kubeconfig, connections)
        return None


def run(main: Callable[[], None]) -> None:
    """Runs a command; where it stops for the user to act, what it says is all that is shown."""
    try:
        main()
    except Stop as stop:
        raise SystemExit(str(stop)) from None


def on_emulator() -> bool:
    """Whether this runs under emulator/run, whose cloud is not Google's."""
    return "GKE_AI_STATE" in os.environ


def kubectl() -> str:
    """The kubectl for a person to use."""
    return "emulator/run kubectl" if on_emulator() else "kubectl"


def client_of(kubeconfig: str, connections: int) -> ApiClient:
    """A Kubernetes client for a kubeconfig, its exec plugin included."""
    import yaml
    from kubernetes import config
    from kubernetes.client import Configuration

    options = Configuration()
    options.connection_pool_maxsize = connections
    options.retries = False  # what doesn't answer is told at once
    connect: Callable[..., ApiClient] = config.new_client_from_config_dict
    return connect(yaml.safe_load(kubeconfig), persist_config=False, client_configuration=options)


def request(
    api: ApiClient,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Answer:
    """Sends a request to a cluster's API. Stops where there is no cluster to answer it."""
    from urllib3.exceptions import HTTPError

    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    sent = api.param_serialize(
        method,
        path,
        query_params=[*(query or {}).items()],
        header_params=headers,
        body=body,
        auth_settings=["BearerToken"],
    )
    send: Callable[..., Any] = api.call_api
    try:
        response = send(*sent, _request_timeout=SECONDS)
        text = response.read().decode(errors="replace")
    except HTTPError as error:
        raise Stop(f"The cluster does not answer ({type(error).__name__}): {api.configuration.host}") from None
    try:
        content = json.loads(text)
    except ValueError:
        content = {}
    refused = response.status >= 400
    return Answer(response.status, content, str(content.get("message", text)) if refused else "")


def list_objects(api: ApiClient, path: str, **query: str) -> list[Object]:
    """The objects under an API path, as the API gives them; none where the kind isn't installed."""
    return objects_of(request(api, "GET", path, query), path)


def objects_of(answer: Answer, path: str) -> list[Object]:
    """The objects in the answer to a list request; none where the kind isn't installed."""
    if answer.code == 404:
        return []
    if answer.code != 200:
        raise Stop(f"The cluster refuses to list {path}: {answer.reason}")
    objects: list[Object] = answer.body["items"]
    return objects


def arguments(description: str, argv: Sequence[str] | None = None) -> Stack:
    """Reads `--stack` and `--config-file` of a command."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--stack", default=os.environ.get("STACK", "dev"), help="name of the stack (dev)")
    parser.add_argument("--config-file", type=Path, help="its configuration (Pulumi.<stack>.yaml)")
    options = parser.parse_args(argv)
    return Stack(options.stack, options.config_file)
