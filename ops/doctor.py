"""`make doctor STACK=…`: what is missing before a first `up` on Google Cloud, each with the command that mends it.

It asks the tools of this machine, and Google's APIs with the application default credentials, which are also what
Pulumi's provider uses. It changes nothing. Every request goes through `call`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

import settings
from catalog import apis, features, project_quotas
from catalog.cluster_updates import enable_bucket_volumes, enable_workload_identity
from ops import doctor_needs as needs
from ops.stack import ROOT, Answer, Stop, run
from settings import BadConfiguration, Settings, model_memory, plan

OLDEST_PYTHON = (3, 11)
NOT_THERE = 127  # what a shell says of a command that it doesn't find
LOG_WIDTH = 160  # columns, where there is no terminal to ask
DEFAULT_NETWORK = "default"
SECONDS = 60  # the longest that one request may take
PREFIX = "gke-ai:"
MISSING, ADVICE, UNCHECKED, GOOD = "missing", "advice", "not checked", "good"


# ------------------------------------------------------------------------------------------------------------ requests
def call(request: str, body: Mapping[str, Any] | None = None, token: str = "", payer: str = "") -> Answer:
    """The answer to a command line, or to `GET URL` and `POST URL` with a body; `payer` is the project that it counts
    for."""
    method, _, url = request.partition(" ")
    if method in ("GET", "POST"):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return _ask_google(method, url, body, headers | ({"X-Goog-User-Project": payer} if payer else {}))
    try:
        done = subprocess.run(
            shlex.split(request),
            text=True,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Answer(NOT_THERE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(1, error=type(error).__name__)
    return Answer(done.returncode, _parsed(done.stdout), done.stderr.strip())


def _ask_google(method: str, url: str, body: Mapping[str, Any] | None, headers: dict[str, str]) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=SECONDS) as got:
            return Answer(got.status, _parsed(got.read().decode()))
    except urllib.error.HTTPError as error:
        found = _parsed(error.read().decode(errors="replace"))
        return Answer(error.code, found, _message(found) or error.reason)
    except OSError as error:
        return Answer(0, error=str(getattr(error, "reason", error)))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""


# ------------------------------------------------------------------------------------------------------------ findings
@dataclass(frozen=True)
class Finding:
    """What a check found, in the words of whoever is to mend it; `command` mends it."""

    state: str
    subject: str
    text: str = ""
    command: str = ""


class NotCheckedError(Exception):
    """A check that can't be made, with the reason."""


Call = Callable[..., Answer]


@dataclass
class Doctor:
    """One visit: the stack that is to be deployed, its project, and how commands and APIs are called."""

    stack: str
    project: str
    settings: Settings
    token_given: bool
    call: Call = call
    credential: str = field(default="", repr=False)
    _heard: dict[str, Answer] = field(default_factory=dict, repr=False)

    # ------------------------------------------------------------------------------------------------------ the visit
    def examine(self) -> Iterator[Finding]:
        """Every finding, those of this machine first."""
        yield from self._all(
            self.pulumi, self.plugins, self.login, self.python, self.hugging_face, self.models, self.kubectl
        )
        tools = [*self._all(self.gcloud)]
        yield from tools
        if any(one.state == MISSING for one in tools):
            yield Finding(UNCHECKED, "Google Cloud", "gcloud has to be there first")
            return
        yield from self._all(self.auth_plugin, self.account)
        found = [*self._all(self.credentials)]
        yield from found
        if any(one.state == MISSING for one in found):
            yield Finding(UNCHECKED, "Google Cloud", "it takes application default credentials to ask")
            return
        found = [*self._all(self.project_is_there)]
        yield from found
        if any(one.state != GOOD for one in found):
            yield Finding(UNCHECKED, "what is in the project", f"{self.project} has to be there first")
            return
        yield from self._all(
            *(self.billing, self.services, self.permissions, self.quotas, self.class_quotas, self.all_gpus),
            *(
                self.machines,
                self.versions,
                self.cluster_features,
                self.network,
                self.nat,
                self.node_account,
                self.buckets,
                self.secret,
                self.channels,
            ),
        )

    def _all(self, *checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
        for check in checks:
            subject = check.__name__.replace("_", " ")
            try:
                found = list(check())
            except NotCheckedError as reason:
                yield Finding(UNCHECKED, subject, str(reason))
            else:
                yield from found or [Finding(GOOD, subject)]

    def google(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """What Google answers; None for what isn't there."""
        answer = self.answer(url, body)
        if answer.code == 200:
            return answer.body
        if answer.code == 404:
            return None
        raise NotCheckedError(refusal(answer, url))

    def answer(self, url: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Google's answer, whatever it is; asked once."""
        if url not in self._heard:
            request = f"{'GET' if body is None else 'POST'} https://{url}"
            # A person's questions count for a project that has to be named; a service account's for its own.
            # https://cloud.google.com/docs/quotas/quota-project
            payer = self.project if self.member.startswith("user:") else ""
            self._heard[url] = self.call(request, body, self.credential, payer)
        return self._heard[url]

    # --------------------------------------------------------------------------------------------------- this machine
    def pulumi(self) -> Iterator[Finding]:
        """The CLI is there, and no older than the SDK."""
        wanted = version("pulumi")
        answer = self.call("pulumi version")
        install = "curl -fsSL https://get.pulumi.com | sh"
        if answer.code:
            yield Finding(MISSING, "Pulumi", "the pulumi command is not on PATH", install)
        elif features.ordered(str(answer.body))[:2] < features.ordered(wanted)[:2]:
            yield Finding(MISSING, "Pulumi", f"{answer.body} is older than the SDK's {wanted}", install)

    def plugins(self) -> Iterator[Finding]:
        """The plugins are there in the versions of their SDKs."""
        answer = self.call("pulumi plugin ls --json")
        if answer.code:
            raise NotCheckedError("Pulumi has to be there first" if answer.code == NOT_THERE else answer.error)
        there = {(one["name"], one.get("version")) for one in answer.body}
        for name, package in (("gcp", "pulumi-gcp"), ("kubernetes", "pulumi-kubernetes")):
            wanted = version(package)
            if (name, wanted) not in there:
                command = f"pulumi plugin install resource {name} v{wanted}"
                yield Finding(MISSING, f"Pulumi's {name} plugin", f"version {wanted} is not installed", command)

    def login(self) -> Iterator[Finding]:
        """Pulumi knows where to keep its state."""
        answer = self.call("pulumi whoami --json")
        if answer.code == NOT_THERE:
            raise NotCheckedError("Pulumi has to be there first")
        if answer.code:
            command = "pulumi login gs://BUCKET  # a bucket for the state; or pulumi login, for Pulumi Cloud"
            yield Finding(MISSING, "Pulumi's state", "Pulumi is not logged in to where its state is kept", command)

    def python(self) -> Iterator[Finding]:
        """The Python that Pulumi would start is new enough."""
        answer = self.call("python3 --version")
        wanted = ".".join(map(str, OLDEST_PYTHON))
        install = "sudo apt-get install python3 python3-venv  # or https://www.python.org/downloads/"
        if answer.code:
            yield Finding(MISSING, "Python", "the python3 command is not on PATH", install)
        elif features.ordered(str(answer.body))[:2] < OLDEST_PYTHON:
            yield Finding(MISSING, "Python", f"{answer.body} is older than {wanted}", install)

    def hugging_face(self) -> Iterator[Finding]:
        """There is a token where models are downloaded with one."""
        if plan.token_workloads(self.settings) and not self.token_given and self.settings.hf_token_secret is None:
            text = "no Hugging Face token is given, and servers and runs download their models with one"
            yield Finding(MISSING, "Hugging Face token", text, self._config("--secret gke-ai:hfToken"))

    def models(self) -> Iterator[Finding]:
        """Every model is known well enough to tell whether it fits its accelerators."""
        for found in model_memory.unchecked(self.settings):
            yield Finding(UNCHECKED, "model", f"{found.path}: {found.reason}. {found.remedy}")

    def kubectl(self) -> Iterator[Finding]:
        """What error messages and alerts tell people to use."""
        if self.call("kubectl version --client --output=json").code:
            text = "messages and alerts name kubectl commands; the program itself does without"
            yield Finding(ADVICE, "kubectl", text, "gcloud components install kubectl")

    def gcloud(self) -> Iterator[Finding]:
        """Google's command line is there."""
        if self.call("gcloud version --format=json").code:
            text = (
                "the gcloud command is not on PATH; by it you log in, and so does everything that reaches the cluster"
            )
            yield Finding(MISSING, "gcloud", text, "open https://cloud.google.com/sdk/docs/install")

    def auth_plugin(self) -> Iterator[Finding]:
        """What Pulumi and kubectl start to get into the cluster."""
        if self.call("gke-gcloud-auth-plugin --version").code:
            text = "not on PATH; without it nothing in the cluster can be made"
            yield Finding(MISSING, "gke-gcloud-auth-plugin", text, "gcloud components install gke-gcloud-auth-plugin")

    def account(self) -> Iterator[Finding]:
        """Somebody is logged in: the auth plugin uses it."""
        if not self.member:
            yield Finding(MISSING, "gcloud's account", "nobody is logged in to gcloud", "gcloud auth login")

    @cached_property
    def member(self) -> str:
        """Who is logged in, as roles name it; nothing where nobody is."""
        answer = self.call("gcloud auth list --filter=status:ACTIVE --format=json")
        who = next((str(one["account"]) for one in answer.body or []), "") if not answer.code else ""
        member_type = "serviceAccount" if who.endswith(".gserviceaccount.com") else "user"
        return f"{member_type}:{who}" if who else ""

    def credentials(self) -> Iterator[Finding]:
        """There are application default credentials, and they are good."""
        answer = self.call("gcloud auth application-default print-access-token")
        if answer.code or not answer.body:
            text = "there are none, or they are no longer good; Pulumi asks Google Cloud with them"
            command = f"gcloud auth application-default login --project {self.project}"
            yield Finding(MISSING, "application default credentials", text, command)
        self.credential = str(answer.body or "")

    # ---------------------------------------------------------------------------------------------------- the project
    def project_is_there(self) -> Iterator[Finding]:
        """The project exists and can be seen."""
        answer = self.answer(f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}")
        if answer.code in (403, 404) and not switched_off(answer):
            text = f"there is no project {self.project}, or you may not see it"
            command = f"gcloud projects create {self.project}  # or {self._config('gcp:project PROJECT_ID')}"
            yield Finding(MISSING, "project", text, command)
        elif answer.code != 200:
            raise NotCheckedError(refusal(answer, "cloudresourcemanager.googleapis.com"))
        elif answer.body.get("lifecycleState") != "ACTIVE":
            text = f"{self.project} is being deleted"
            yield Finding(MISSING, "project", text, f"gcloud projects undelete {self.project}")

    def billing(self) -> Iterator[Finding]:
        """Somebody pays for the project."""
        found = self.google(f"cloudbilling.googleapis.com/v1/projects/{self.project}/billingInfo")
        if not (found or {}).get("billingEnabled"):
            command = f"gcloud billing projects link {self.project} --billing-account=ACCOUNT_ID"
            yield Finding(MISSING, "billing", f"{self.project} has no billing account", command)

    def services(self) -> Iterator[Finding]:
        """The APIs are on that the program does not turn on itself."""
        wanted = [*apis.BEFOREHAND, *([] if self.settings.enable_apis else plan.apis(self.settings))]
        names = "&".join(f"names=projects/{self.project}/services/{name}" for name in wanted)
        found = self.google(f"serviceusage.googleapis.com/v1/projects/{self.project}/services:batchGet?{names}")
        on = {
            one["name"].rpartition("/")[2] for one in (found or {}).get("services", []) if one.get("state") == "ENABLED"
        }
        off = [name for name in wanted if name not in on]
        if off:
            reasons = {**apis.BEFOREHAND, **apis.REASONS}
            text = "; ".join(f"{name} is off ({reasons[name]})" for name in off)
            command = f"gcloud services enable {' '.join(off)} --project {self.project}"
            yield Finding(MISSING, "APIs", text, command)

    def permissions(self) -> Iterator[Finding]:
        """Whoever deploys may do what the stack does."""
        wanted = needs.permissions(self.settings)
        every = sorted({one for several in wanted.values() for one in several})
        url = f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}:testIamPermissions"
        granted = set((self.google(url, {"permissions": every}) or {}).get("permissions", []))
        for role, several in wanted.items():
            lacking = [one for one in several if one not in granted]
            if lacking:
                member = self.member or "user:YOU"
                command = f"gcloud projects add-iam-policy-binding {self.project} --member={member} --role={role}"
                yield Finding(MISSING, "permissions", f"you may not: {', '.join(lacking)}", command)

    # ------------------------------------------------------------------------------------------- quota and capacity
    def quotas(self) -> Iterator[Finding]:
        """Each region lets the project have as many accelerators as the stack at its largest."""
        for one in needs.quotas(self.settings):
            if one.metric is None:
                text = (
                    f"quota of {one.of}: {one.count}, of a family's quota, which Compute Engine does not tell by region"
                )
                command = (
                    f"gcloud beta quotas info list --service=compute.googleapis.com --project {self.project} "
                    "--filter='quotaId~PER-[GT]PU-FAMILY'"
                )
                yield Finding(UNCHECKED, "quota", text, command)
                continue
            found = self.google(f"compute.googleapis.com/compute/v1/projects/{self.project}/regions/{one.region}")
            yield from self._enough(found, one.metric, one.count, f"{one.of} takes up to {one.count}", one.region)

    def class_quotas(self) -> Iterator[Finding]:
        """The choices of compute classes have quota for all that uses the class; advice, as the next choice may do."""
        for one in needs.class_quotas(self.settings):
            if one.metric is None:
                continue
            found = self.google(f"compute.googleapis.com/compute/v1/projects/{self.project}/regions/{one.region}")
            what = f"what asks for the class of {one.of} takes up to {one.count}; GKE would go on to the next choice"
            for finding in self._enough(found, one.metric, one.count, what, one.region):
                yield Finding(ADVICE, "quota of a compute class", finding.text, finding.command)

    def all_gpus(self) -> Iterator[Finding]:
        """The project may have so many GPUs in all."""
        if count := needs.gpus_everywhere(self.settings):
            found = self.google(f"compute.googleapis.com/compute/v1/projects/{self.project}")
            what = f"the stack takes up to {count} GPUs"
            yield from self._enough(found, project_quotas.GPUS_ALL_REGIONS, count, what)

    def _enough(self, found: Any, metric: str, count: int, what: str, region: str = "") -> Iterator[Finding]:
        quotas = {one["metric"]: one for one in (found or {}).get("quotas", [])}
        limit, used = (int(quotas.get(metric, {}).get(key, 0)) for key in ("limit", "usage"))
        where = f" in {region}" if region else ""
        if limit < count:
            text = f"{metric} is {limit}{where}, and {what}"
            yield Finding(MISSING, "quota", text, self._raise(metric, count, region))
        elif limit - used < count:
            text = (
                f"{metric} is {limit}{where}, of which {used} are in use, and {what}; fine if these are the stack's own"
            )
            yield Finding(ADVICE, "quota", text, self._raise(metric, used + count, region))

    def _raise(self, metric: str, count: int, region: str = "") -> str:
        # https://cloud.google.com/docs/quotas/gcloud-cli-examples
        name = f"{metric.replace('_', '-')}-per-project{'-region' if region else ''}"
        where = f" --dimensions=region={region}" if region else ""
        return (
            f"gcloud beta quotas preferences create --service=compute.googleapis.com --project {self.project} "
            f"--quota-id={name} --preferred-value={count}{where}"
        )

    def machines(self) -> Iterator[Finding]:
        """Each zone has the machine type that is wanted there."""
        for one in needs.machines(self.settings):
            query = quote(f"name={one.machine_type}")
            url = f"compute.googleapis.com/compute/v1/projects/{self.project}/aggregated/machineTypes?filter={query}"
            items = (self.google(url) or {}).get("items", {})
            there = sorted(zone.removeprefix("zones/") for zone, has in items.items() if has.get("machineTypes"))
            lacking = [zone for zone in one.zones if zone not in there]
            if not lacking or (one.any_zone and len(lacking) < len(one.zones)):
                continue
            near = [zone for zone in there if zone.startswith(f"{needs.region(self.settings)}-")]
            text = f"{one.of}: no {one.machine_type} in {', '.join(lacking)}"
            if one.any_zone or not near:
                where = f"it is in {', '.join(there)}" if there else "it is nowhere"
                command = self._config(f"--path '{one.path}' …  # another machine type, or move the cluster")
                yield Finding(MISSING, "machine type", f"{text}; {where}", command)
            else:
                text = f"{text}; this region has it in {', '.join(near)}"
                index = one.zones.index(lacking[0]) if one.stated else 0
                yield Finding(MISSING, "machine type", text, self._config(f"--path '{one.path}[{index}]' {near[0]}"))

    def versions(self) -> Iterator[Finding]:
        """GKE is new enough for what the stack uses."""
        cluster, wanted = self.settings.cluster, needs.gke_features(self.settings)
        if cluster.mode == "existing":
            found = self._existing_cluster()
            if found is None:
                text = f"there is no cluster {cluster.name} in {cluster.location}, and the stack is to use it"
                yield Finding(MISSING, "cluster", text, f"gcloud container clusters list --project {self.project}")
                return
            current = str(found["currentMasterVersion"])
            min_version = max((features.MINIMUM[one] for one in wanted), key=features.ordered, default="")
            command = (
                f"gcloud container clusters upgrade {cluster.name} --master --location {cluster.location} "
                f"--project {self.project} --cluster-version={min_version}"
            )
            yield from self._too_old(wanted, current, f"cluster {cluster.name} runs", command)
            yield from self._webhooks_reached(found)
        elif wanted:
            parent = f"container.googleapis.com/v1/projects/{self.project}/locations/{cluster.location}"
            channels = (self.google(f"{parent}/serverConfig") or {}).get("channels", [])
            defaults = {one["channel"].lower(): str(one["defaultVersion"]) for one in channels}
            if cluster.release_channel not in defaults:
                raise NotCheckedError(f"Google names no version of the channel {cluster.release_channel}")
            current = defaults[cluster.release_channel]
            quicker = next(
                (name for name in ("regular", "rapid") if not self._lacking(wanted, defaults.get(name))), None
            )
            command = (
                self._config(f"--path gke-ai:cluster.releaseChannel {quicker}")
                if quicker
                else "leave out what needs it until GKE has it in a channel"
            )
            yield from self._too_old(wanted, current, f"channel {cluster.release_channel} begins with", command)

    def _existing_cluster(self) -> Any:
        """The cluster that the stack is to use, as Google describes it; None where there is none of that name."""
        cluster = self.settings.cluster
        parent = f"container.googleapis.com/v1/projects/{self.project}/locations/{cluster.location}"
        return self.google(f"{parent}/clusters/{cluster.name}")

    def cluster_features(self) -> Iterator[Finding]:
        """An existing cluster has what pods of the stack reach Google Cloud by; one of Autopilot always does."""
        cluster = self.settings.cluster
        found = self._existing_cluster() if cluster.mode == "existing" else None
        if found is None or found.get("autopilot", {}).get("enabled"):
            return
        identity = found.get("workloadIdentityConfig", {})
        if plan.uses_workload_identity(self.settings) and not identity.get("workloadPool"):
            text = (
                f"cluster {cluster.name} has no Workload Identity: pools would be refused, and grants would fail; "
                "its node pools need --workload-metadata=GKE_METADATA too"
            )
            command = enable_workload_identity(cluster.name, cluster.location, self.project)
            yield Finding(MISSING, "Workload Identity", text, command)
        driver = found.get("addonsConfig", {}).get("gcsFuseCsiDriverConfig", {})
        runs = ", ".join(run.name for run in plan.bucket_runs(self.settings))
        if runs and not driver.get("enabled"):
            text = f"cluster {cluster.name} has no Cloud Storage FUSE driver: pods of {runs} would wait for their "
            text += "volume for ever"
            command = enable_bucket_volumes(cluster.name, cluster.location, self.project)
            yield Finding(MISSING, "Cloud Storage FUSE", text, command)

    def _webhooks_reached(self, found: Mapping[str, Any]) -> Iterator[Finding]:
        """The control plane of an older private cluster reaches nodes by VPC peering, on ports 443 and 10250 alone.

        That of a newer one reaches every port through Konnectivity.
        https://cloud.google.com/kubernetes-engine/docs/how-to/private-clusters#add_firewall_rules
        """
        private = found.get("privateClusterConfig", {})
        ports = [*(["9443"] if self.settings.queues or plan.multislices(self.settings) else [])]
        ports += ["6443"] if any(one.adapter == "prometheus" for one in self.settings.autoscaling) else []
        if not private.get("peeringName") or not ports:
            return
        network = str(found.get("network", "default"))
        command = (
            f"gcloud compute firewall-rules create {self.settings.cluster.name}-webhooks --project {self.project} "
            f"--network {network} --direction INGRESS --source-ranges {private.get('masterIpv4CidrBlock')} "
            f"--rules {','.join(f'tcp:{port}' for port in ports)}"
        )
        text = (
            "its control plane reaches nodes by VPC peering, on ports 443 and 10250 alone: without a firewall rule it "
        )
        text += f"calls no webhook and no metrics adapter of this stack (ports {', '.join(ports)})"
        yield Finding(ADVICE, "firewall", text, command)

    def _lacking(self, wanted: Sequence[str], current: str | None) -> list[str]:
        have = features.ordered(current or "")
        return [one for one in wanted if have < features.ordered(features.MINIMUM[one])]

    def _too_old(self, wanted: Sequence[str], current: str, what: str, command: str) -> Iterator[Finding]:
        lacking = self._lacking(wanted, current)
        if lacking:
            each = ", ".join(f"{one} needs {features.MINIMUM[one]}" for one in lacking)
            yield Finding(MISSING, "GKE version", f"{what} {current}, and {each}", command)

    # ------------------------------------------------------------------------------------- what must (not) be there
    def network(self) -> Iterator[Finding]:
        """The network of a new cluster is there: the one that it names, else the project's default network."""
        cluster = self.settings.cluster
        if cluster.vpc is not None or cluster.mode == "existing":
            return
        name = cluster.network or DEFAULT_NETWORK
        path = name if name.startswith("projects/") else f"projects/{self.project}/global/networks/{name}"
        if self.google(f"compute.googleapis.com/compute/v1/{path}") is None:
            command = f"gcloud compute networks list --project {self.project}"
            if cluster.network is None:
                # Many organizations forbid it: https://cloud.google.com/vpc/docs/vpc#default-network
                command = self._config("--path gke-ai:cluster.vpc.nat true  # a network of the cluster's own")
            yield Finding(MISSING, "network", f"there is no network {name}", command)

    def nat(self) -> Iterator[Finding]:
        """Private nodes in a network that the stack doesn't make have Cloud NAT there, if pods need the Internet."""
        cluster, needed = self.settings.cluster, plan.internet(self.settings)
        if not cluster.private_nodes or cluster.vpc is not None or cluster.mode == "existing" or not needed:
            return
        named = cluster.network or DEFAULT_NETWORK
        host = named.split("/")[1] if named.startswith("projects/") else self.project
        name, where = named.rpartition("/")[2], needs.region(self.settings)
        found = self.google(f"compute.googleapis.com/compute/v1/projects/{host}/regions/{where}/routers") or {}
        routers = [one for one in found.get("items", []) if str(one.get("network", "")).endswith(f"/networks/{name}")]
        if not any(one.get("nats") for one in routers):
            hosts = ", ".join(f"{one} ({whose})" for one, whose in needed.items())
            text = f"nodes are private, network {name} has no Cloud NAT in {where}, and pods need {hosts}"
            command = (
                f"gcloud compute routers create nat --network={name} --region={where} --project {host} && "
                f"gcloud compute routers nats create nat --router=nat --region={where} --project {host} "
                "--auto-allocate-nat-external-ips --nat-all-subnet-ip-ranges"
            )
            yield Finding(MISSING, "Cloud NAT", text, command)

    def node_account(self) -> Iterator[Finding]:
        """A service account that nodes are to run as, and that the stack doesn't make, is there and enabled."""
        account = self.settings.cluster.node_service_account
        if account is None and self.settings.cluster.mode != "existing":
            yield from self._default_account()
        if account is None or "@" not in account:
            return
        if self.google(f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}") is None:
            command = f"gcloud iam service-accounts create {account.partition('@')[0]} --project {self.project}"
            yield Finding(MISSING, "node service account", f"there is no {account}", command)

    def _default_account(self) -> Iterator[Finding]:
        """Compute Engine's default account, as which nodes run where none is named.

        https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
        """
        project = self.google(f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}") or {}
        account = f"{project.get('projectNumber')}-compute@developer.gserviceaccount.com"
        found = self.google(f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}")
        if found is None or found.get("disabled"):
            state = "is disabled" if found else "does not exist"
            text = f"nodes run as Compute Engine's default account, and {account} {state}"
            command = self._config(
                "--path gke-ai:cluster.nodeServiceAccount gke-nodes  # an account of the stack's own"
            )
            yield Finding(MISSING, "node service account", text, command)

    def buckets(self) -> Iterator[Finding]:
        """The names of buckets that the stack makes are free, and what it adopts is there."""
        for bucket in self.settings.buckets:
            answer = self.answer(f"storage.googleapis.com/storage/v1/b/{quote(bucket.name, safe='')}")
            if switched_off(answer) or answer.code not in (200, 403, 404):
                raise NotCheckedError(refusal(answer, "storage.googleapis.com"))
            if answer.code == 403:
                text = f"{bucket.name} is taken by somebody else: names of buckets are unique in the world"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('name')}' ANOTHER-NAME"))
            elif answer.code == 404 and bucket.adopt:
                text = f"there is no bucket {bucket.name} to adopt"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('adopt')}' false"))
            elif answer.code == 200 and not bucket.adopt and bucket.name not in self._recorded:
                text = f"you have {bucket.name} already, and the stack would make it"
                yield Finding(MISSING, "bucket", text, self._config(f"--path '{bucket.at('adopt')}' true"))

    @cached_property
    def _recorded(self) -> set[str]:
        """Names of the buckets that the stack has made."""
        answer = self.call(f"pulumi stack export --stack {self.stack}")
        deployment = answer.body.get("deployment") if isinstance(answer.body, dict) and not answer.code else None
        return {
            str(one.get("id"))
            for one in (deployment or {}).get("resources", [])
            if one["type"] == "gcp:storage/bucket:Bucket"
        }

    def secret(self) -> Iterator[Finding]:
        """The token is in Secret Manager, where it is to come from."""
        named = self.settings.hf_token_secret
        if named is None:
            return
        path = named if named.startswith("projects/") else f"projects/{self.project}/secrets/{named}"
        _, project, _, name = path.split("/")
        where = f"{name} --project {project} --data-file=-  # and type the token"
        if self.google(f"secretmanager.googleapis.com/v1/{path}") is None:
            text = f"there is no secret {name} in {project}"
            yield Finding(MISSING, "Secret Manager", text, f"gcloud secrets create {where}")
        elif (self.google(f"secretmanager.googleapis.com/v1/{path}/versions/latest") or {}).get("state") != "ENABLED":
            text = f"secret {name} has no version that can be read"
            yield Finding(MISSING, "Secret Manager", text, f"gcloud secrets versions add {where}")

    def channels(self) -> Iterator[Finding]:
        """Notification channels exist."""
        for channel in self.settings.monitoring.channels if self.settings.monitoring else []:
            if self.google(f"monitoring.googleapis.com/v3/{channel}") is None:
                command = f"gcloud beta monitoring channels list --project {self.project} --format='value(name)'"
                yield Finding(MISSING, "notification channel", f"there is no {channel}", command)

    def _config(self, what: str) -> str:
        return f"pulumi config set --stack {self.stack} {what}"


def switched_off(answer: Answer) -> bool:
    """Whether the API is disabled in the project, so that its answer says nothing about the request."""
    details = answer.body.get("error", {}).get("details", []) if isinstance(answer.body, dict) else []
    return answer.code == 403 and any(one.get("reason") == "SERVICE_DISABLED" for one in details)


def refusal(answer: Answer, url: str) -> str:
    """Why a question of Google had no answer."""
    host = url.partition("/")[0]
    if switched_off(answer):
        return f"{host} is off in the project"
    if not answer.code:
        return f"{host} does not answer: {answer.error}"
    reason = re.sub(r"\s+", " ", answer.error)[:200]
    return f"{host} answers {answer.code}{f': {reason}' if reason else ''}"


# ------------------------------------------------------------------------------------------------------------- command
def main(argv: Sequence[str] | None = None, call: Call = call) -> None:
    """Prints what is missing; ends with 1 where something is."""
    parser = argparse.ArgumentParser(prog="ops.doctor", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stack", default="", help="name of the stack (dev, or the configuration's name)")
    parser.add_argument("--config", default="", help="its configuration (Pulumi.<stack>.yaml)")
    options = parser.parse_args(argv)
    stack = options.stack or (Path(options.config).stem if options.config else os.environ.get("STACK") or "dev")
    doctor = admitted(stack, Path(options.config) if options.config else ROOT / f"Pulumi.{stack}.yaml", call)
    raise SystemExit(report_findings(list(doctor.examine()), stack))


def admitted(stack: str, file: Path, call: Call = call) -> Doctor:
    """The visit of a stack whose configuration stands in a file; Stop where it is wrong in itself."""
    if not file.exists():
        raise Stop(f"There is no configuration {file}. Give one: CONFIG=examples/mixed-training-inference.yaml")
    config: dict[str, Any] = (yaml.safe_load(file.read_text()) or {}).get("config") or {}
    project = str(config.get("gcp:project") or "")
    values = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    try:
        # That there is no token is one finding among the others.
        loaded = settings.load(
            values,
            project,
            token_given=True,
            region=str(config.get("gcp:region") or ""),
            token_problems=settings.token_problems(*token_of(values), os.environ.get("HF_TOKEN")),
        )
    except BadConfiguration as bad:
        raise Stop(str(bad)) from None
    return Doctor(stack, project, loaded, "hfToken" in values or bool(os.environ.get("HF_TOKEN")), call)


def token_of(values: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The token as far as the file shows it, and whether Pulumi has encrypted it; the ciphertext stands for it then."""
    stated = values.get("hfToken")
    if isinstance(stated, Mapping) and "secure" in stated:
        return "".join(str(stated["secure"]).split()), True
    return (None if stated is None else str(stated)), False


def report_findings(findings: Sequence[Finding], stack: str) -> int:
    """Prints the findings; 1 where something is missing."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    shown = [finding for finding in findings if finding.state in (MISSING, ADVICE)]
    unchecked = [finding for finding in findings if finding.state == UNCHECKED]
    missing = sum(finding.state == MISSING for finding in findings)
    if shown:
        table = Table()
        for column in ("", "", "what is missing"):
            table.add_column(column, overflow="fold")
        for number, finding in enumerate(shown, 1):
            advice = " (advice)" if finding.state == ADVICE else ""
            table.add_row(str(number), Text(finding.subject + advice), Text(finding.text))
        console.print(table)
        console.print("The commands that mend it:")
        for number, finding in enumerate(shown, 1):
            # Whole on its line, to be copied.
            console.print(Text(f"{number:3}  {finding.command}"), soft_wrap=True)
    for finding in unchecked:
        console.print(Text(f"not checked: {finding.subject}: {finding.text}"), soft_wrap=True)
        if finding.command:
            console.print(Text(f"     {finding.command}"), soft_wrap=True)
    good = sum(finding.state == GOOD for finding in findings)
    console.print(f"{missing} missing, {len(unchecked)} not checked, {good} as they should be.")
    if not missing:
        console.print(f"Next: pulumi preview --stack {stack}", soft_wrap=True)
    return 1 if missing else 0


if __name__ == "__main__":
    run(main)
