"""Reads a kubeconfig and logs in to its cluster.

Rules: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and, for exec plugins,
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from emulator.pulumi.plugin import Refused

EXPIRES_EARLY = timedelta(seconds=30)  # renew a credential before it can expire during a request
EXEC_TIMEOUT_SECONDS = 60


class LoginError(Exception):
    """The login of the kubeconfig's user failed."""


@dataclass(frozen=True)
class Kubeconfig:
    """One context of a kubeconfig.

    Attributes:
        text: The whole document, for helm.
        context: The context's name, or "" for the document's current context.
        cluster: The cluster's entry: server, certificate-authority-data, ….
        user: The user's entry: exec, token, client-certificate-data, ….
        namespace: The context's namespace, or "" if it has none.
    """

    text: str
    context: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    namespace: str


def load(text_or_path: str | None, context: str = "", cluster: str = "") -> Kubeconfig:
    """Reads a kubeconfig from text or a file.

    Default: the file of `KUBECONFIG` or of the home folder.

    Args:
        text_or_path: The document (YAML or JSON) or the path of its file; None for the default.
        context: Overrides the current context.
        cluster: Overrides the context's cluster.

    Raises:
        Refused: The kubeconfig can't be read or has no cluster.
    """
    default = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    text = text_or_path or default
    path = Path(text).expanduser() if "\n" not in text and len(text) < 4096 else None
    try:
        if path is not None and path.is_file():
            text = path.read_text()
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError) as error:
        raise Refused(f"the kubeconfig can't be read: {type(error).__name__}") from None  # its text may hold a token
    if not isinstance(document, dict):
        source = "the provider's kubeconfig" if text_or_path else f"the provider has no kubeconfig, and {default}"
        raise Refused(f"{source} is not a kubeconfig: set `kubeconfig` on the provider, or KUBECONFIG")
    chosen = _entry(document, "contexts", "context", context or document.get("current-context", ""))
    return Kubeconfig(
        text=text,
        context=context,
        cluster=_entry(document, "clusters", "cluster", cluster or chosen.get("cluster", "")),
        user=_entry(document, "users", "user", chosen["user"]) if chosen.get("user") else {},
        namespace=chosen.get("namespace") or "",
    )


def _entry(document: Mapping[str, Any], section: str, key: str, name: str) -> Mapping[str, Any]:
    for entry in document.get(section) or []:
        if entry.get("name") == name:
            return entry.get(key) or {}
    raise Refused(f"the kubeconfig has no {key} {name!r}")


@dataclass(frozen=True)
class Login:
    """Credentials of a request to the API server: a header, or a certificate in the TLS context."""

    tls: ssl.SSLContext
    headers: Mapping[str, str]
    expires: datetime | None = None


class Credentials:
    """Logs in a kubeconfig's user and caches the login until it expires.

    Raises LoginError if the login fails.
    """

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._login: Login | None = None

    def login(self, *, again: bool = False) -> Login:
        """The current login. Set `again` if the API server no longer accepts it."""
        with self._lock:
            cached = self._login
            if again or cached is None or (cached.expires and cached.expires - EXPIRES_EARLY < datetime.now(UTC)):
                self._login = self._new_login()
            assert self._login is not None
            return self._login

    def _new_login(self) -> Login:
        cluster, user = self._kubeconfig.cluster, self._kubeconfig.user
        tls = ssl.create_default_context()
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        elif authority := _data(cluster, "certificate-authority"):
            tls.load_verify_locations(cadata=authority)
        token, expires = str(user.get("token") or ""), None
        certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
        if user.get("exec"):
            status = _run(user["exec"], cluster)
            token = status.get("token") or ""
            certificate, key = status.get("clientCertificateData", ""), status.get("clientKeyData", "")
            if status.get("expirationTimestamp"):
                expires = datetime.fromisoformat(status["expirationTimestamp"])
        elif user.get("tokenFile"):
            token = Path(user["tokenFile"]).read_text().strip()
        if certificate and key:
            _load_pair(tls, certificate, key)
        return Login(tls, {"Authorization": f"Bearer {token}"} if token else {}, expires)


def _data(entry: Mapping[str, Any], key: str) -> str:
    if entry.get(f"{key}-data"):
        return base64.b64decode(entry[f"{key}-data"]).decode()
    return Path(entry[key]).read_text() if entry.get(key) else ""


def _load_pair(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads a certificate.

    Python reads keys only from files: an anonymous file in memory leaves nothing on disk.
    """
    file = os.memfd_create("client-certificate")
    try:
        os.write(file, f"{certificate}\n{key}\n".encode())
        tls.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _run(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Runs an exec plugin and returns the status of its ExecCredential."""
    version, command = plugin.get("apiVersion", "client.authentication.k8s.io/v1"), str(plugin.get("command"))
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {key: value for key, value in cluster.items() if key != "extensions"}
        if authority := _data(cluster, "certificate-authority"):
            spec["cluster"]["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
            spec["cluster"].pop("certificate-authority", None)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    env = {entry["name"]: entry["value"] for entry in plugin.get("env") or []}
    env = {**os.environ, **env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(
            [command, *(plugin.get("args") or [])],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXEC_TIMEOUT_SECONDS,
        )
    except FileNotFoundError:
        hint = plugin.get("installHint") or f"put {command} on PATH"
        raise LoginError(f"the kubeconfig logs in with {command}, which isn't installed: {hint.strip()}") from None
    except subprocess.TimeoutExpired:
        raise LoginError(f"{command} returned no credential within {EXEC_TIMEOUT_SECONDS} s") from None
    if done.returncode:
        error = done.stderr.strip()[-500:]
        raise LoginError(f"{command} returned no credential (exit code {done.returncode}): {error}")
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError, TypeError):
        raise LoginError(f"{command} printed no ExecCredential with a status") from None
    if not isinstance(status, dict):
        raise LoginError(f"{command} printed no ExecCredential with a status")
    return status
