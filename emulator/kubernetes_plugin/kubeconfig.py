"""A kubeconfig: which cluster it names and how to log in there.

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

from emulator.plugin import Refused

EXPIRES_EARLY = timedelta(seconds=30)  # a credential is renewed before a request could outlive it
EXEC_TIMEOUT_SECONDS = 60


class LoginError(Exception):
    """The kubeconfig's user can't be logged in."""


@dataclass(frozen=True)
class Kubeconfig:
    """One context of a kubeconfig.

    Attributes:
        text: The whole document, for helm.
        context: The context's name, "" for the document's current one.
        cluster: The cluster's entry: server, certificate-authority-data, ….
        user: The user's entry: exec, token, client-certificate-data, ….
        namespace: The context's namespace, "" if it has none.
    """

    text: str
    context: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    namespace: str


def load(given: str | None, context: str = "", cluster: str = "") -> Kubeconfig:
    """Reads a kubeconfig given as text or as the path of its file; else that of `KUBECONFIG` or the home folder.

    Args:
        given: Text (YAML or JSON) or path, None for the ambient one.
        context: Overrides the current context.
        cluster: Overrides the context's cluster.

    Raises:
        Refused: It can't be read, or names no cluster.
    """
    ambient = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    text = given or ambient
    path = Path(text).expanduser() if "\n" not in text and len(text) < 4096 else None
    try:
        if path is not None and path.is_file():
            text = path.read_text()
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError) as error:
        raise Refused(f"the kubeconfig can't be read: {type(error).__name__}") from None  # its text may hold a token
    if not isinstance(document, dict):
        source = "the provider's kubeconfig" if given else f"no kubeconfig given, and {ambient}"
        raise Refused(f"{source} is no kubeconfig: set `kubeconfig` on the provider, or KUBECONFIG")
    chosen = _entry(document, "contexts", "context", context or document.get("current-context", ""))
    return Kubeconfig(
        text=text,
        context=context,
        cluster=_entry(document, "clusters", "cluster", cluster or chosen.get("cluster", "")),
        user=_entry(document, "users", "user", chosen["user"]) if chosen.get("user") else {},
        namespace=chosen.get("namespace") or "",
    )


def _entry(document: Mapping[str, Any], section: str, kind: str, name: str) -> Mapping[str, Any]:
    for entry in document.get(section) or []:
        if entry.get("name") == name:
            return entry.get(kind) or {}
    raise Refused(f"the kubeconfig has no {kind} {name!r}")


@dataclass(frozen=True)
class Login:
    """What a request shows the API server: a header, or a certificate in the TLS context."""

    tls: ssl.SSLContext
    headers: Mapping[str, str]
    expires: datetime | None = None


class Credentials:
    """The login of a kubeconfig's user, kept until it expires. Raises LoginError where there is none."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._login: Login | None = None

    def login(self, *, again: bool = False) -> Login:
        """The current login; `again` if the API server no longer takes it."""
        with self._lock:
            known = self._login
            if again or known is None or (known.expires and known.expires - EXPIRES_EARLY < datetime.now(UTC)):
                self._login = self._make()
            assert self._login is not None
            return self._login

    def _make(self) -> Login:
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
    """Python reads a key from files only: an anonymous one in memory leaves nothing on the disk."""
    file = os.memfd_create("client-certificate")
    try:
        os.write(file, f"{certificate}\n{key}\n".encode())
        tls.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _run(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Asks an exec plugin for a credential."""
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
        raise LoginError(f"the kubeconfig logs in by {command}, which isn't installed: {hint.strip()}") from None
    except subprocess.TimeoutExpired:
        raise LoginError(f"{command} gave no credential within {EXEC_TIMEOUT_SECONDS} s") from None
    if done.returncode:
        raise LoginError(f"{command} gave no credential (exit code {done.returncode}): {done.stderr.strip()[-500:]}")
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError, TypeError):
        raise LoginError(f"{command} printed no ExecCredential with a status") from None
    if not isinstance(status, dict):
        raise LoginError(f"{command} printed no ExecCredential with a status")
    return status
