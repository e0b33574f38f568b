"""Runs the `helm` on PATH for releases, by the rules of the official plugin's `kubernetes:helm.sh/v3:Release`."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from emulator.pulumi.kubernetes.api import Cluster
from emulator.pulumi.kubernetes.kubeconfig import Kubeconfig
from emulator.pulumi.kubernetes.objects import Object, metadata
from emulator.pulumi.plugin import ENDS_WITH_PARENT, Refused
from emulator.setup.toolchain import NIGHTLY

DEFAULT_TIMEOUT_SECONDS = 300
CHARTS, OTHER_CHARTS = "GKE_AI_CHARTS", "GKE_AI_OTHER_CHARTS"
"""Variables with the folders that replace the registries: the chart `oci://…/NAME` is their folder NAME.

The first has the charts of the pinned Kueue and JobSet. The second names a folder for each earlier release and each
other controller, with colons between them; one that isn't built doesn't exist.
"""
SIMULATED = Path(__file__).parents[2] / "charts"
"""Charts in place of those whose programs the emulator simulates."""
SUPPORTED = {
    *("atomic", "chart", "cleanupOnFail", "compat", "createNamespace", "description", "disableCRDHooks"),
    *("disableOpenapiValidation", "disableWebhooks", "maxHistory", "name", "namespace", "repositoryOpts"),
    *("resetValues", "reuseValues", "skipAwait", "skipCrds", "timeout", "values", "version", "waitForJobs"),
}
"""Arguments of a Release that this plugin supports. It refuses others unless they are empty."""


@dataclass(frozen=True)
class Chart:
    folder: Path
    name: str
    version: str


@dataclass(frozen=True)
class Status:
    """A release as Helm records it.

    `state` is Helm's, such as deployed, failed or pending-install.
    """

    state: str
    revision: int
    chart: str
    version: str
    app_version: str
    manifest: str
    values: Mapping[str, Any]


class HelmError(Exception):
    """The helm command failed. The text is helm's own."""


def chart(reference: str, version: str | None, repository: str | None = None) -> Chart:
    """Finds a chart's folder.

    Raises:
        Refused: The chart doesn't exist, or the folder has another version.
    """
    if repository or reference.startswith("oci://"):
        charts = os.environ.get(CHARTS)
        if not charts:
            raise Refused(
                f"{reference}: the emulator has no registry; set {CHARTS} to a folder that contains the chart"
            )
        folder = Path(charts) / reference.rpartition("/")[2]
        folders = [*map(Path, os.environ.get(OTHER_CHARTS, "").split(os.pathsep)), SIMULATED]
        others = (other / folder.name for other in folders)
        wanted = (version or "").removeprefix("v")
        folder = next((other for other in others if wanted and _version(other) == wanted), folder)
    else:
        folder = Path(reference)
    try:
        described = yaml.safe_load((folder / "Chart.yaml").read_text())
    except (OSError, yaml.YAMLError):
        build = f". Build it: emulator/run --tools {folder.name} true" if folder.name in NIGHTLY else ""
        raise Refused(f"chart {reference}: no chart in the folder {folder.name} of {CHARTS}{build}") from None
    record = folder / ".version"
    recorded = record.read_text().strip() if record.exists() else str(described["version"])
    if version is not None and version.removeprefix("v") != recorded.removeprefix("v"):
        tools = ", ".join(sorted(tool for tool in NIGHTLY if tool.startswith(f"{described['name']}-")))
        raise Refused(
            f"chart {reference}: version {version} is requested, but the folder has version {recorded}. Of earlier "
            f"releases the emulator can build {tools or 'none'}: emulator/run --tools NAME true"
        )
    return Chart(folder, str(described["name"]), recorded)


RENDERED = {"chart", "version", "release_name", "namespace"}


def render(options: Mapping[str, Any]) -> list[Object]:
    """The objects of a chart with its CRDs, as the official plugin's function `helm:template` returns them."""
    if unknown := options.keys() - RENDERED:
        raise Refused(f"helm:template: the emulator does not know {', '.join(sorted(unknown))}")
    folder = chart(options["chart"], options["version"]).folder
    command = ["helm", "template", options["release_name"], str(folder), "--include-crds"]
    done = subprocess.run([*command, "--namespace", options["namespace"]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"helm:template: {done.stderr.strip()}")
    return [obj for obj in yaml.load_all(done.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if obj]


def _chart_of(release: Mapping[str, Any]) -> Chart:
    return chart(release["chart"], release.get("version"), (release.get("repositoryOpts") or {}).get("repo"))


def _version(folder: Path) -> str:
    """The version of the chart in a folder, or an empty text."""
    try:
        return str(yaml.safe_load((folder / "Chart.yaml").read_text())["version"]).removeprefix("v")
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return ""


def resource_names(manifest: str) -> dict[str, list[str]]:
    """Names of a release's objects by kind and version, in the form of the output `resourceNames`."""
    names: dict[str, list[str]] = {}
    for obj in yaml.load_all(manifest, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(obj, dict) and obj.get("kind"):
            group, _, _ = str(obj["apiVersion"]).rpartition("/")
            meta = obj["metadata"]
            name = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
            names.setdefault(f"{obj['kind']}{f'.{group}' if group else ''}/{obj['apiVersion']}", []).append(name)
    return {kind: sorted(names) for kind, names in sorted(names.items())}


def recorded(cluster: Cluster, namespace: str, name: str) -> Status | None:
    """The newest revision of a release in Helm's own storage, or None.

    It takes one request and no helm process.

    Each revision is a Secret: https://helm.sh/docs/topics/advanced/#storage-backends
    """
    secrets = cluster.resource("v1", "Secret")
    assert secrets is not None
    revisions = cluster.select(secrets, namespace, labelSelector=f"owner=helm,name={name}")
    if not revisions:
        return None
    release = decoded(max(revisions, key=lambda secret: int(metadata(secret)["labels"]["version"])))
    chart_metadata = release["chart"]["metadata"]
    return Status(
        state=release["info"]["status"],
        revision=release["version"],
        chart=str(chart_metadata["name"]),
        version=str(chart_metadata["version"]),
        app_version=str(chart_metadata.get("appVersion") or ""),
        manifest=release.get("manifest") or "",
        values=release.get("config") or {},
    )


def decoded(secret: Object) -> Mapping[str, Any]:
    """Decodes a revision of a release: JSON that Helm compresses and encodes before the API encodes it again."""
    stored = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    release: Mapping[str, Any] = json.loads(gzip.decompress(stored))
    return release


class Helm:
    """Runs helm against one cluster.

    Args:
        kubeconfig: The cluster and the login.
        canceled: Ends a running helm, by interrupt, when set.
    """

    def __init__(self, kubeconfig: Kubeconfig, canceled: threading.Event) -> None:
        self._kubeconfig = kubeconfig
        self._canceled = canceled

    def _run(self, namespace: str, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Runs helm.

        It passes values on standard input and the kubeconfig in memory, never on disk or command line.
        """
        binary = shutil.which("helm")
        if binary is None:
            raise Refused("a Helm release needs `helm` on PATH; run the command through emulator/run")
        file = os.memfd_create("kubeconfig")
        try:
            os.write(file, self._kubeconfig.text.encode())
            command = [*ENDS_WITH_PARENT, binary, *arguments, "--namespace", namespace]
            if self._kubeconfig.context:
                command += ["--kube-context", self._kubeconfig.context]
            env = os.environ | {"KUBECONFIG": f"/proc/self/fd/{file}"}
            process = subprocess.Popen(
                [*command, "--values", "-"] if values is not None else command,
                stdin=subprocess.PIPE if values is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=env,
                pass_fds=[file],
            )
            finished = threading.Event()
            threading.Thread(target=self._interrupt, args=(process, finished), daemon=True).start()
            output, errors = process.communicate(None if values is None else json.dumps(values))
            finished.set()
        finally:
            os.close(file)
        if process.returncode:
            raise HelmError(errors.strip().removeprefix("Error: ") or f"helm ended with {process.returncode}")
        return output

    def _interrupt(self, process: subprocess.Popen[str], finished: threading.Event) -> None:
        while not finished.wait(0.5):
            if self._canceled.is_set():
                process.terminate()  # helm marks the release as failed and ends
                return

    def install(self, release: Mapping[str, Any]) -> None:
        arguments = ["install", release["name"], str(_chart_of(release).folder)]
        arguments += _flags(release, {"createNamespace": "--create-namespace", "skipCrds": "--skip-crds"})
        if release.get("disableWebhooks"):
            arguments.append("--no-hooks")
        self._run(release["namespace"], *arguments, values=release.get("values") or {})

    def upgrade(self, release: Mapping[str, Any]) -> None:
        arguments = ["upgrade", release["name"], str(_chart_of(release).folder)]
        arguments += _flags(
            release,
            {"resetValues": "--reset-values", "reuseValues": "--reuse-values", "cleanupOnFail": "--cleanup-on-fail"},
        )
        if release.get("maxHistory") is not None:
            arguments += ["--history-max", str(release["maxHistory"])]
        if release.get("disableCRDHooks"):
            arguments.append("--no-hooks")
        self._run(release["namespace"], *arguments, values=release.get("values") or {})

    def uninstall(self, namespace: str, name: str, *, wait: bool, timeout: int) -> None:
        arguments = ["uninstall", name, "--timeout", f"{timeout}s"]
        self._run(namespace, *arguments, *(["--wait"] if wait else []))


def _flags(release: Mapping[str, Any], more: Mapping[str, str]) -> list[str]:
    known = {"atomic": "--atomic", "disableOpenapiValidation": "--disable-openapi-validation", **more}
    flags = [flag for key, flag in known.items() if release.get(key)]
    if not release.get("skipAwait"):
        flags += ["--wait"] + (["--wait-for-jobs"] if release.get("waitForJobs") else [])
    if release.get("description"):
        flags += ["--description", release["description"]]
    return [*flags, "--timeout", f"{release.get('timeout') or DEFAULT_TIMEOUT_SECONDS}s"]
