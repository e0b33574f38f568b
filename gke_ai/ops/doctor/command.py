"""`gke-ai doctor`: lists what is missing before a first `up` on Google Cloud, with the command that fixes it.

It runs the tools of this machine, and calls Google's APIs with the application default credentials, which Pulumi's
provider also uses. It changes nothing. Every request goes through `call`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from gke_ai.catalog.section_files import folder_of
from gke_ai.formats.console import new_console
from gke_ai.ops.doctor.cluster import ClusterChecks
from gke_ai.ops.doctor.data import DataChecks
from gke_ai.ops.doctor.machine import MachineChecks
from gke_ai.ops.doctor.project import ProjectChecks
from gke_ai.ops.doctor.requests import call
from gke_ai.ops.doctor.visit import ADVICE, GOOD, MISSING, UNCHECKED, Call, Finding, NotCheckedError
from gke_ai.settings import BadConfiguration
from gke_ai.settings.secrets import SECRETS
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import no_configuration, read_keys, resolve
from gke_ai.workspace.stack import Stack

PREFIX = "gke-ai:"


@dataclass
class Doctor(MachineChecks, ProjectChecks, ClusterChecks, DataChecks):
    """All checks of a stack before its first `up`."""

    def placeholder(self) -> Iterator[Finding]:
        """The project is not that of Pulumi.dev.yaml, Pulumi.prod.yaml and the examples."""
        if self.project in ("", "my-project"):
            text = f"gcp:project is {self.project or 'missing'}. Write the id of your project"
            yield Finding(MISSING, "project", text, self._config("gcp:project PROJECT_ID"))

    def examine(self) -> Iterator[Finding]:
        """Yields all findings, those of this machine first."""
        yield from self._all(
            *(self.pulumi, self.plugins, self.login, self.python),
            *(self.hugging_face, self.gateway_api_key, self.models, self.advisories, self.images, self.kubectl),
        )
        for checks, unchecked, first in (
            ((self.gcloud,), "Google Cloud", "install gcloud"),
            (
                (self.auth_plugin, self.account, self.credentials),
                "Google Cloud",
                "log in with application default credentials",
            ),
            ((self.project_exists,), "resources of the project", f"create {self.project}"),
        ):
            findings = [*self._all(*checks)]
            yield from findings
            if findings[-1].state != GOOD:
                yield Finding(UNCHECKED, unchecked, f"{first} first")
                return
        yield from self._all(
            *(self.billing, self.services, self.permissions, self.quotas, self.class_quotas, self.all_gpus),
            *(self.machines, self.versions, self.cluster_content, self.cluster_features, self.networks_of_nodes),
            *(self.network, self.proxy_subnetwork, self.nat, self.node_account),
            *(self.buckets, self.secret, self.channels),
        )

    def _all(self, *checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
        for check in checks:
            subject = check.__name__.replace("_", " ")
            try:
                findings = list(check())
            except NotCheckedError as reason:
                yield Finding(UNCHECKED, subject, str(reason))
            else:
                yield from findings or [Finding(GOOD, subject)]


def show(stack: Stack, call: Call = call) -> int:
    """Prints what is missing. Returns the exit code: 1 if something is missing."""
    doctor = doctor_for(stack.name, stack.file, call)
    return report_findings([*doctor.placeholder(), *doctor.examine()], f"gke-ai preview --stack {stack.name}")


def doctor_for(stack: str, file: Path, call: Call = call) -> Doctor:
    """Returns the doctor for a stack and its configuration file. Stops if the configuration is invalid."""
    if not file.exists():
        raise no_configuration(file)
    config = read_keys(file)
    project = str(config.get("gcp:project") or "")
    try:
        resolved = resolve(config, folder_of(file))
    except BadConfiguration as bad:
        raise Stop(str(bad)) from None
    given = [f"{PREFIX}{secret.key}" in config or bool(os.environ.get(secret.variable)) for secret in SECRETS]
    token_given, key_given = given
    return Doctor(stack, project, resolved, token_given, call, key_given)


def report_findings(findings: Sequence[Finding], next_step: str) -> int:
    """Prints the findings, and what to do next if nothing is missing. Returns 1 if something is missing, else 0."""
    console = new_console()
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
        console.print("Commands that fix it:")
        for number, finding in enumerate(shown, 1):
            # Unwrapped, so that it can be copied.
            console.print(Text(f"{number:3}  {finding.command}"), soft_wrap=True)
    for finding in unchecked:
        console.print(Text(f"not checked: {finding.subject}: {finding.text}"), soft_wrap=True)
        if finding.command:
            console.print(Text(f"     {finding.command}"), soft_wrap=True)
    good = sum(finding.state == GOOD for finding in findings)
    console.print(f"{missing} missing, {len(unchecked)} not checked, {good} passed.")
    if not missing:
        console.print(f"Next: {next_step}", soft_wrap=True)
    return 1 if missing else 0
