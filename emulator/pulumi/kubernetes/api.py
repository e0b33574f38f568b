"""A client of the Kubernetes API: finds a kind's REST path, then gets, lists, creates, applies, deletes and watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from emulator.pulumi.kubernetes.kubeconfig import Credentials, Kubeconfig, Login, LoginError
from emulator.pulumi.kubernetes.objects import Object

REQUEST_TIMEOUT = httpx.Timeout(60, connect=5)  # an admission webhook may take up to 30 s
BUSY_RETRIES = 10  # an overloaded API server answers 429 with Retry-After
CREATOR = "pulumi-kubernetes"
"""The official plugin's field manager for an object that was created but never updated."""


class UnreachableError(Exception):
    """The API server doesn't answer, or the login failed."""


class ApiError(Exception):
    """The API server refused a request.

    `reason` and `causes` are those of its Status.
    """

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or f"HTTP {code}")
        details = status.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, dict) else {}
        self.causes: list[Mapping[str, Any]] = self.details.get("causes") or []
        super().__init__(self.message)

    @property
    def namespace_missing(self) -> bool:
        return self.code == 404 and self.details.get("kind") == "namespaces"


@dataclass(frozen=True)
class Resource:
    """The REST path of a kind."""

    prefix: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        middle = f"/namespaces/{namespace or 'default'}" if self.namespaced else ""
        return f"{self.prefix}{middle}/{self.plural}" + (f"/{name}" if name else "")


class Cluster:
    """Client of one API server. Its methods are thread-safe."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        self.server = str(kubeconfig.cluster.get("server", "")).rstrip("/")
        self._credentials = Credentials(kubeconfig)
        self._lock = threading.Lock()
        self._clients: tuple[Login, httpx.Client] | None = None
        self._resources: dict[tuple[str, str], Resource] = {}

    def _client(self, *, login_again: bool = False) -> httpx.Client:
        try:
            login = self._credentials.login(again=login_again)
        except LoginError as error:
            raise UnreachableError(str(error)) from None
        with self._lock:
            if self._clients is None or self._clients[0] is not login:
                # trust_env: a proxy can't reach the emulator's API server, which is on this machine.
                client = httpx.Client(
                    base_url=self.server,
                    verify=login.tls,
                    headers={**login.headers, "Accept": "application/json", "User-Agent": "gke-ai-emulator"},
                    timeout=REQUEST_TIMEOUT,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
                    trust_env=False,
                )
                self._clients = (login, client)
            return self._clients[1]

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
    ) -> Object:
        """Sends a request and returns the object of the answer.

        Raises:
            ApiError: The API server refused the request.
            UnreachableError: The API server did not answer.
        """
        headers = {"Content-Type": content_type or "application/json"} if body is not None else {}
        content = json.dumps(body) if body is not None else None
        try:
            response = self._client().request(method, path, params=params, content=content, headers=headers)
            if response.status_code == 401:
                client = self._client(login_again=True)
                response = client.request(method, path, params=params, content=content, headers=headers)
            for _ in range(BUSY_RETRIES):
                if response.status_code != 429 or "Retry-After" not in response.headers:
                    break
                time.sleep(min(float(response.headers["Retry-After"]), 5))
                response = self._client().request(method, path, params=params, content=content, headers=headers)
        except httpx.TransportError as error:
            raise UnreachableError(f"{self.server}: {error or type(error).__name__}") from None
        if response.is_success:
            answer = response.json()
            return answer if isinstance(answer, dict) else {}
        try:
            status = response.json()
        except ValueError:
            status = {"message": response.text[:500]}
        raise ApiError(response.status_code, status if isinstance(status, dict) else {})

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """The kind's REST path, or None while the API server doesn't serve the kind."""
        cached = self._resources.get((api_version, kind))
        if cached is None:
            prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            try:
                served = self.request("GET", prefix).get("resources") or []
            except ApiError as error:
                if error.code == 404:
                    return None
                raise
            for entry in served:
                if "/" not in entry["name"]:
                    resource = Resource(prefix, entry["name"], entry["namespaced"])
                    self._resources[api_version, entry["kind"]] = resource
            cached = self._resources.get((api_version, kind))
        return cached

    def forget(self, api_version: str, kind: str) -> None:
        """Removes the kind from the cache: its definition may have been deleted."""
        self._resources.pop((api_version, kind), None)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return self.request("GET", resource.path(namespace, name))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return self.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def select(self, resource: Resource, namespace: str, **params: str) -> list[Object]:
        return self.request("GET", resource.path(namespace), params=params).get("items") or []

    def create(self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool) -> Object:
        params = {"fieldManager": CREATOR, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("POST", resource.path(namespace), params=params, body=obj)

    def apply(
        self, resource: Resource, namespace: str, name: str, obj: Object, manager: str, *, force: bool, dry_run: bool
    ) -> Object:
        params = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        params |= {"dryRun": "All"} if dry_run else {}
        return self.request(
            "PATCH",
            resource.path(namespace, name),
            params=params,
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    def patch(self, resource: Resource, namespace: str, name: str, operations: list[Object]) -> Object:
        path = resource.path(namespace, name)
        return self.request("PATCH", path, body=operations, content_type="application/json-patch+json")

    def delete(self, resource: Resource, namespace: str, name: str, propagation: str) -> None:
        self.request("DELETE", resource.path(namespace, name), body={"propagationPolicy": propagation})

    def wait_for_change(self, resource: Resource, obj: Object, seconds: float) -> None:
        """Returns once the object differs from `obj`, or after this many seconds, rounded up."""
        meta = obj["metadata"]
        params = {
            "watch": "1",
            "fieldSelector": f"metadata.name={meta['name']}",
            "resourceVersion": meta["resourceVersion"],
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        try:
            with self._client().stream("GET", resource.path(meta.get("namespace", "")), params=params) as response:
                if response.is_success:
                    next(response.iter_lines(), None)
                else:
                    time.sleep(seconds)
        except httpx.TransportError:
            time.sleep(seconds)
