"""Checks of the project: billing, APIs, permissions, quota and machine types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from catalog import apis, project_quotas
from ops.doctor import needs
from ops.doctor.visit import ADVICE, MISSING, UNCHECKED, Finding, NotCheckedError, Visit, refusal, switched_off
from settings import plan


@dataclass
class ProjectChecks(Visit):
    """Checks of the Google Cloud project."""

    def project_is_there(self) -> Iterator[Finding]:
        """The project exists and is visible."""
        answer = self.answer(f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}")
        if answer.code in (403, 404) and not switched_off(answer):
            text = f"there is no project {self.project}, or you have no access to it"
            command = f"gcloud projects create {self.project}  # or {self._config('gcp:project PROJECT_ID')}"
            yield Finding(MISSING, "project", text, command)
        elif answer.code != 200:
            raise NotCheckedError(refusal(answer, "cloudresourcemanager.googleapis.com"))
        elif answer.body.get("lifecycleState") != "ACTIVE":
            text = f"{self.project} is being deleted"
            yield Finding(MISSING, "project", text, f"gcloud projects undelete {self.project}")

    def billing(self) -> Iterator[Finding]:
        """The project has a billing account."""
        found = self.google(f"cloudbilling.googleapis.com/v1/projects/{self.project}/billingInfo")
        if not (found or {}).get("billingEnabled"):
            command = f"gcloud billing projects link {self.project} --billing-account=ACCOUNT_ID"
            yield Finding(MISSING, "billing", f"{self.project} has no billing account", command)

    def services(self) -> Iterator[Finding]:
        """The APIs are enabled that the program does not enable itself."""
        wanted = [*apis.BEFOREHAND, *([] if self.settings.enable_apis else plan.apis(self.settings))]
        names = "&".join(f"names=projects/{self.project}/services/{name}" for name in wanted)
        found = self.google(f"serviceusage.googleapis.com/v1/projects/{self.project}/services:batchGet?{names}")
        on = {
            one["name"].rpartition("/")[2] for one in (found or {}).get("services", []) if one.get("state") == "ENABLED"
        }
        off = [name for name in wanted if name not in on]
        if off:
            reasons = {**apis.BEFOREHAND, **apis.REASONS}
            text = "; ".join(f"{name} is disabled ({reasons[name]})" for name in off)
            command = f"gcloud services enable {' '.join(off)} --project {self.project}"
            yield Finding(MISSING, "APIs", text, command)

    def permissions(self) -> Iterator[Finding]:
        """The account that deploys has the permissions that the stack needs."""
        wanted = needs.permissions(self.settings)
        every = sorted({one for several in wanted.values() for one in several})
        url = f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}:testIamPermissions"
        granted = set((self.google(url, {"permissions": every}) or {}).get("permissions", []))
        for role, several in wanted.items():
            lacking = [one for one in several if one not in granted]
            if lacking:
                member = self.member or "user:YOU"
                command = f"gcloud projects add-iam-policy-binding {self.project} --member={member} --role={role}"
                yield Finding(MISSING, "permissions", f"you lack: {', '.join(lacking)}", command)

    def quotas(self) -> Iterator[Finding]:
        """Each region has quota for the accelerators of the stack at maximum size."""
        for one in needs.quotas(self.settings):
            if one.metric is None:
                text = (
                    f"quota of {one.of}: {one.count}, from a family quota that Compute Engine does not report by region"
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
        """Each choice of a compute class has quota for its users. Advice only: GKE may use the next choice."""
        for one in needs.class_quotas(self.settings):
            if one.metric is None:
                continue
            found = self.google(f"compute.googleapis.com/compute/v1/projects/{self.project}/regions/{one.region}")
            what = f"the workloads with the class of {one.of} take up to {one.count}; GKE would try the next choice"
            for finding in self._enough(found, one.metric, one.count, what, one.region):
                yield Finding(ADVICE, "quota of a compute class", finding.text, finding.command)

    def all_gpus(self) -> Iterator[Finding]:
        """The project has quota for the total number of GPUs."""
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
        """Each zone offers the machine types of its pools."""
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
                where = f"available in {', '.join(there)}" if there else "not available anywhere"
                command = self._config(f"--path '{one.path}' …  # another machine type, or move the cluster")
                yield Finding(MISSING, "machine type", f"{text}; {where}", command)
            else:
                text = f"{text}; available in {', '.join(near)}"
                index = one.zones.index(lacking[0]) if one.stated else 0
                yield Finding(MISSING, "machine type", text, self._config(f"--path '{one.path}[{index}]' {near[0]}"))
