"""Requests to the API of a cluster."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gke_ai.kube import clock
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping, value
from gke_ai.terminal import Stop

if TYPE_CHECKING:
    from kubernetes.client import ApiClient as ApiClient
else:
    ApiClient = Any  # the import takes half a second

APPLY = "application/apply-patch+yaml"  # the content of a server-side apply
# What applies the CRDs of a chart, which Helm never upgrades.
APPLY_CRDS = "helm show crds {} --version {} | kubectl apply --server-side --force-conflicts -f -"
SECONDS = 30  # maximum time for a response of the cluster
BUSY_RETRIES = 10  # as client-go, which kubectl uses
WATCH_SECONDS = 600  # then the API server ends a watch
NOT_INSTALLED = 404  # the status of a list if the cluster does not have the kind
GET_CREDENTIALS = "gcloud container clusters get-credentials CLUSTER --location LOCATION"
AGAIN_SECONDS = 0.5  # before a collection is listed again


@dataclass(frozen=True)
class Answer:
    """The response of a command or an API: exit code or HTTP status (0: no response), JSON or text, and an error.

    The body may be a credential, so it is never shown.
    """

    code: int
    body: Any = field(default=None, repr=False)
    error: str = ""
    warnings: tuple[str, ...] = ()
    """What the API server or a policy says beside its answer."""

    @property
    def reason(self) -> str:
        """Why the request failed, on one line."""
        return " ".join((self.error or f"HTTP {self.code}").split())[:300]


class Interrupted(Exception):
    """A response that broke off, with its HTTP status if the cluster refuses it, else 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP {code}" if code else "the connection broke")
        self.code = code


def client_of(kubeconfig: str, connections: int) -> ApiClient:
    """Returns a Kubernetes client for the text of a kubeconfig; it runs the exec plugin of the kubeconfig."""
    import yaml
    from kubernetes import config

    connect: Callable[..., ApiClient] = config.new_client_from_config_dict
    return connect(yaml.safe_load(kubeconfig), persist_config=False, client_configuration=_configuration(connections))


def client_of_context(name: str, connections: int, kubeconfig: str = "") -> ApiClient:
    """Returns a Kubernetes client for a context of a kubeconfig: by default KUBECONFIG, or else ~/.kube/config.

    Stops if there is none.
    """
    from kubernetes import config

    connect: Callable[..., ApiClient] = config.new_client_from_config
    try:
        return connect(
            kubeconfig or default_kubeconfig(),
            context=name,
            persist_config=False,
            client_configuration=_configuration(connections),
        )
    except config.ConfigException as error:
        listed = "kubectl config get-contexts"
        raise Stop(f"The kubeconfig has no usable context {name}: {error} List the contexts:  {listed}") from None


def default_kubeconfig() -> str:
    """Returns the kubeconfig that kubectl reads. The library reads the variable only at its import."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def current_context(kubeconfig: str = "", name: str = "") -> tuple[str, str]:
    """Returns the current context of a kubeconfig, or the one with this name, and its namespace. Stops without one."""
    from kubernetes import config

    file = kubeconfig or default_kubeconfig()
    listed: Callable[[str], Any] = config.list_kube_config_contexts
    try:
        contexts, active = listed(file)
    except config.ConfigException as error:
        raise Stop(f"The kubeconfig {file} has no usable context: {error} Get one:  {GET_CREDENTIALS}") from None
    found = next((entry for entry in contexts if entry["name"] == name), None) if name else active
    if found is None:
        names = ", ".join(entry["name"] for entry in contexts)
        raise Stop(f"The kubeconfig {file} has no context {name}. It has {names}")
    return found["name"], str((found.get("context") or {}).get("namespace") or "")


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
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError, MaxRetryError

    began = time.time()
    try:
        response = _dynamic(api).request(
            method,
            path,
            body,
            query_params=[*(query or {}).items()],
            header_params=dict(headers or {}),
            content_type=(headers or {}).get("Content-Type"),
            serialize=False,
            _request_timeout=seconds,
        )
        clock.compare(api.configuration.host, response.headers.get("Date"), began)
        return Answer(response.status, response.data.decode(errors="replace"), warnings=_warnings(response.headers))
    except ApiException as error:
        said = _warnings(error.headers)
        return Answer(error.status or 0, error.body or "", "" if error.status else str(error.reason), said)
    except MaxRetryError as error:
        return Answer(0, error=type(error.reason or error).__name__)
    except HTTPError as error:
        return Answer(0, error=type(error).__name__)


def _warnings(headers: Any) -> tuple[str, ...]:
    """The texts of the headers `Warning: 299 - "TEXT"`: https://www.rfc-editor.org/rfc/rfc7234#section-5.5"""
    found = headers.getlist("Warning") if hasattr(headers, "getlist") else []
    quoted = (re.fullmatch(r'299 \S+ "(.*)"', header, re.DOTALL) for header in found)
    return tuple(re.sub(r"\\(.)", r"\1", match[1]) for match in quoted if match)


def stream(api: ApiClient, path: str, query: Mapping[str, str], silent_seconds: float) -> Iterator[str]:
    """Yields the lines of a response as they come. Raises Interrupted, also after a silence."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        timeout = (SECONDS, silent_seconds)
        response = _dynamic(api).request(
            "get", path, query_params=[*query.items()], serialize=False, _request_timeout=timeout
        )
        rest = b""
        for chunk in response.stream(amt=None):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")
    except ApiException as error:
        raise Interrupted(error.status or 0) from None
    except (HTTPError, OSError):
        raise Interrupted(0) from None


def _dynamic(api: ApiClient) -> Any:
    """The library's client for any kind. Paths are known here, so it asks the cluster for none."""
    from kubernetes.dynamic import DynamicClient

    untyped: Callable[..., Any] = DynamicClient
    return untyped(api, discoverer=lambda *_: None)


def request(
    api: ApiClient,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    content_type: str = "application/json",
) -> Answer:
    """Sends a request to the API of a cluster. Stops if the cluster does not answer."""
    answer = send(api, method, path, query, body, {"Accept": "application/json", "Content-Type": content_type})
    if not answer.code:
        raise Stop(f"The cluster does not answer ({answer.error}): {api.configuration.host}")
    content = parsed(answer.body)
    if answer.code >= 400:
        said = str(value(content, "message") or answer.body)
        return Answer(answer.code, mapping(content), said, answer.warnings)
    if not _is_readable(content):
        raise Stop(
            f"{api.configuration.host} answers {method} {path} with no object of Kubernetes. Nothing else can be read "
            "from it. Check the server in the kubeconfig, and any proxy before it."
        )
    return Answer(answer.code, content, warnings=answer.warnings)


def parsed(text: object) -> object:
    """Returns the JSON of an answer; None if it is none."""
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None


def _is_readable(content: object) -> bool:
    """Whether JSON is an object, or a list of objects, each with metadata."""
    if not isinstance(content, dict) or not isinstance(content.get("metadata", {}), dict):
        return False
    listed = content.get("items") or []
    return isinstance(listed, list) and all(isinstance(value(item, "metadata"), dict) for item in listed)


def list_objects(api: ApiClient, path: str, **query: str) -> list[Object]:
    """Returns the objects under an API path; an empty list if their kind is not installed."""
    return objects_of(request(api, "GET", path, query), path)


def objects_of(answer: Answer, path: str) -> list[Object]:
    """Returns the objects in the response to a list request; an empty list if their kind is not installed."""
    if answer.code == NOT_INSTALLED:
        return []
    if answer.code != 200:
        raise Stop(f"The cluster refuses to list {path}: {answer.reason}")
    return items(answer.body, "items")


def follow(
    api: ApiClient,
    path: str,
    listed: Callable[[list[Object] | None], None],
    changed: Callable[[Object, bool], None],
    closed: threading.Event,
    **selectors: str,
) -> None:
    """Lists the objects under an API path and watches them until `closed`. After a lost connection it lists again.

    Args:
        api: Client of the cluster.
        path: Path of a collection, such as `/api/v1/pods`.
        listed: Called with all objects; with None while their kind is not installed.
        changed: Called with each object that changes after that, and whether it was deleted.
        closed: Ends the watch, at the next change at the latest.
        selectors: Such as `field_selector`.
    """
    from kubernetes.client import ApiException
    from kubernetes.watch import Watch
    from urllib3.exceptions import HTTPError

    get = partial(_dynamic(api).request, "get", path, serialize=False, **selectors)
    untyped: Callable[[], Any] = Watch
    while not closed.is_set():
        try:
            collection = json.loads(get(_request_timeout=SECONDS).data)
            listed(collection["items"])
            version = collection["metadata"]["resourceVersion"]
            for event in untyped().stream(get, resource_version=version, timeout_seconds=WATCH_SECONDS):
                if closed.is_set():
                    return
                changed(event["raw_object"], event["type"] == "DELETED")
        except (OSError, ValueError, KeyError, HTTPError, ApiException) as error:
            if getattr(error, "status", None) == NOT_INSTALLED:
                listed(None)
            closed.wait(AGAIN_SECONDS)
