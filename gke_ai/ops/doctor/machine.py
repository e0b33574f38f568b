"""Checks of this machine: tools, plugins, logins and credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

from gke_ai.catalog.engines import advisories
from gke_ai.catalog.machines import features
from gke_ai.ops.doctor.requests import NOT_FOUND
from gke_ai.ops.doctor.visit import ADVICE, MISSING, UNCHECKED, Finding, NotCheckedError, Visit
from gke_ai.settings.estimates import model_memory, tight_models
from gke_ai.settings.resolved.needs import token_workloads

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


@dataclass
class MachineChecks(Visit):
    """Checks of the machine that runs Pulumi."""

    def pulumi(self) -> Iterator[Finding]:
        """The CLI is installed, and not older than the SDK."""
        wanted = version("pulumi")
        answer = self.call("pulumi version")
        install = "curl -fsSL https://get.pulumi.com | sh"
        if answer.code:
            yield Finding(MISSING, "Pulumi", "the pulumi command is not on PATH", install)
        elif features.ordered(str(answer.body))[:2] < features.ordered(wanted)[:2]:
            yield Finding(MISSING, "Pulumi", f"{answer.body} is older than the SDK's {wanted}", install)

    def plugins(self) -> Iterator[Finding]:
        """The plugins are installed in the versions of their SDKs."""
        answer = self.call("pulumi plugin ls --json")
        if answer.code:
            raise NotCheckedError("install Pulumi first" if answer.code == NOT_FOUND else answer.error)
        there = {(plugin["name"], plugin.get("version")) for plugin in answer.body}
        for name, package in (("gcp", "pulumi-gcp"), ("kubernetes", "pulumi-kubernetes")):
            wanted = version(package)
            if (name, wanted) not in there:
                command = f"pulumi plugin install resource {name} v{wanted}"
                yield Finding(MISSING, f"Pulumi's {name} plugin", f"version {wanted} is not installed", command)

    def login(self) -> Iterator[Finding]:
        """Pulumi is logged in to a backend for its state."""
        answer = self.call("pulumi whoami --json")
        if answer.code == NOT_FOUND:
            raise NotCheckedError("install Pulumi first")
        if answer.code:
            command = "pulumi login gs://BUCKET  # a bucket for the state; or pulumi login, for Pulumi Cloud"
            yield Finding(MISSING, "Pulumi's state", "Pulumi is not logged in to a backend for its state", command)

    def python(self) -> Iterator[Finding]:
        """The Python that Pulumi starts is neither too old nor too new."""
        answer = self.call("python3 --version")
        install = "sudo apt-get install python3 python3-venv  # or https://www.python.org/downloads/"
        if answer.code:
            yield Finding(MISSING, "Python", "the python3 command is not on PATH", install)
            return
        found = features.ordered(str(answer.body))[:2]
        if found < OLDEST_PYTHON:
            yield Finding(MISSING, "Python", f"{answer.body} is older than {dotted(OLDEST_PYTHON)}", install)
        elif found > NEWEST_PYTHON:
            yield Finding(MISSING, "Python", f"{answer.body} is newer than {dotted(NEWEST_PYTHON)}", install)

    def hugging_face(self) -> Iterator[Finding]:
        """There is a Hugging Face token if workloads download models with one."""
        if token_workloads(self.resolved) and not self.token_given and self.settings.hf_token_secret is None:
            text = "there is no Hugging Face token, and servers and runs download their models with one"
            yield Finding(MISSING, "Hugging Face token", text, self._config("--secret gke-ai:hfToken"))

    def gateway_api_key(self) -> Iterator[Finding]:
        """There is an API key if the gateway requires one."""
        gateway = self.settings.gateway
        if gateway is not None and gateway.api_key and not self.api_key_given:
            text = "there is no API key, and the gateway requires one from its clients"
            command = f"openssl rand -hex 32 | {self._config('--secret gke-ai:gatewayApiKey')}"
            yield Finding(MISSING, "API key", text, command)

    def models(self) -> Iterator[Finding]:
        """The catalog has every model, and each is expected to fit its accelerators."""
        for server in tight_models.tight(self.resolved.servers):
            yield Finding(ADVICE, "model", f"{server.path}: {server.reason}\n{server.parts}", server.remedy)
        for unknown in model_memory.unchecked(self.resolved.servers):
            yield Finding(UNCHECKED, "model", f"{unknown.path}: {unknown.reason}. {unknown.remedy}")

    def advisories(self) -> Iterator[Finding]:
        """No image of a server has a published security flaw that a newer release fixes."""
        for server in self.settings.serving:
            open_advisories = list(advisories.open_in(server.engine, server.images[0]))
            if open_advisories:
                first = ".".join(map(str, max(advisory.fixed for advisory in open_advisories)))
                flaws = "; ".join(f"{advisory.number}: {advisory.effect}" for advisory in open_advisories)
                text = f"{server.at('image')}: {flaws}. Remove image, or name release {first} or newer"
                yield Finding(ADVICE, "image", text)

    def kubectl(self) -> Iterator[Finding]:
        """kubectl is installed, which error messages and alerts refer to."""
        if self.call("kubectl version --client --output=json").code:
            text = "messages and alerts contain kubectl commands; the program itself does not use kubectl"
            yield Finding(ADVICE, "kubectl", text, "gcloud components install kubectl")

    def gcloud(self) -> Iterator[Finding]:
        """The gcloud CLI is installed."""
        if self.call("gcloud version --format=json").code:
            text = "the gcloud command is not on PATH; you, Pulumi and kubectl log in with it"
            yield Finding(MISSING, "gcloud", text, "open https://cloud.google.com/sdk/docs/install")

    def auth_plugin(self) -> Iterator[Finding]:
        """The plugin is installed by which Pulumi and kubectl authenticate to the cluster."""
        if self.call("gke-gcloud-auth-plugin --version").code:
            text = "not on PATH; without it Pulumi cannot create objects in the cluster"
            yield Finding(MISSING, "gke-gcloud-auth-plugin", text, "gcloud components install gke-gcloud-auth-plugin")

    def account(self) -> Iterator[Finding]:
        """An account is logged in to gcloud, which the auth plugin uses."""
        if not self.member:
            yield Finding(MISSING, "gcloud's account", "nobody is logged in to gcloud", "gcloud auth login")

    def credentials(self) -> Iterator[Finding]:
        """Application default credentials exist and are valid."""
        answer = self.call("gcloud auth application-default print-access-token")
        if answer.code or not answer.body:
            text = "there are none, or they have expired; Pulumi calls Google Cloud with them"
            command = f"gcloud auth application-default login --project {self.project}"
            yield Finding(MISSING, "application default credentials", text, command)
        self.credential = str(answer.body or "")


def dotted(python: tuple[int, int]) -> str:
    """Returns a version of Python as text: `3.11`."""
    return ".".join(map(str, python))
