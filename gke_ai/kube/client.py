"""Requests to the API of a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gke_ai.kube.objects import Object
from gke_ai.terminal import Stop

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

SECONDS = 30  # maximum time for a response of the cluster
BUSY_RETRIES = 10  # as client-go, which kubectl uses


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


def client_of(kubeconfig: str, connections: int) -> ApiClient:
    """Returns a Kubernetes client for the text of a kubeconfig; it runs the exec plugin of the kubeconfig."""
    import yaml
    from kubernetes import config

    connect: Callable[..., ApiClient] = config.new_client_from_config_dict
    return connect(yaml.safe_load(kubeconfig), persist_config=False, client_configuration=_configuration(connections))


def client_of_context(name: str, connections: int) -> ApiClient:
    """Returns a Kubernetes client for a context of KUBECONFIG, or of ~/.kube/config. Stops if there is none."""
    from kubernetes import config

    connect: Callable[..., ApiClient] = config.new_client_from_config
    try:
        return connect(
            os.environ.get("KUBECONFIG") or "~/.kube/config",  # the library reads the variable at its import
            context=name,
            persist_config=False,
            client_configuration=_configuration(connections),
        )
    except config.ConfigException as error:
        listed = "kubectl config get-contexts"
        raise Stop(f"The kubeconfig has no usable context {name}: {error} List the contexts:  {listed}") from None


def _configuration(connections: int) -> Any:
    from kubernetes.client import Configuration
    from urllib3 import Retry

    options = Configuration()
    options.connection_pool_maxsize = connections
    # A busy API server says in `Retry-After` when to ask again. An unreachable one is reported at once.
    at_once: dict[str, Any] = dict.fromkeys(("connect", "read", "redirect", "other"), False)
    options.retries = Retry(
        BUSY_RETRIES, **at_once, allowed_methods=None, raise_on_status=False, retry_after_max=int(SECONDS)
    )
    return options


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
