"""Checks of the project: billing, APIs, permissions, quota and machine types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from gke_ai.catalog.nodes import project_quotas
from gke_ai.catalog.project import apis
from gke_ai.ops.doctor import needs
from gke_ai.ops.doctor.visit import ADVICE, MISSING, UNCHECKED, Finding, NotCheckedError, Visit, refusal, switched_off
from gke_ai.settings.resolved.needs import apis as apis_of


@dataclass
class ProjectChecks(Visit):
    """Checks of the Google Cloud project."""

    def project_exists(self) -> Iterator[Finding]:
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
        billing_info = self.google(f"cloudbilling.googleapis.com/v1/projects/{self.project}/billingInfo")
        if not (billing_info or {}).get("billingEnabled"):
            command = f"gcloud billing projects link {self.project} --billing-account=ACCOUNT_ID"
            yield Finding(MISSING, "billing", f"{self.project} has no billing account", command)

    def services(self) -> Iterator[Finding]:
        """The APIs are enabled that the program does not enable itself."""
        wanted = [*apis.BEFOREHAND, *([] if self.settings.enable_apis else apis_of(self.resolved))]
        names = "&".join(f"names=projects/{self.project}/services/{name}" for name in wanted)
        response = self.google(f"serviceusage.googleapis.com/v1/projects/{self.project}/services:batchGet?{names}")
        services = (response or {}).get("services", [])
        on = {service["name"].rpartition("/")[2] for service in services if service.get("state") == "ENABLED"}
        if off := [name for name in wanted if name not in on]:
            reasons = {**apis.BEFOREHAND, **apis.REASONS}
            text = "; ".join(f"{name} is disabled ({reasons[name]})" for name in off)
            command = f"gcloud services enable {' '.join(off)} --project {self.project}"
            yield Finding(MISSING, "APIs", text, command)

    def permissions(self) -> Iterator[Finding]:
        """The account that deploys has the permissions that the stack needs."""
        wanted = needs.permissions(self.resolved)
        every = sorted({permission for several in wanted.values() for permission in several})
        url = f"cloudresourcemanager.googleapis.com/v1/projects/{self.project}:testIamPermissions"
        granted = set((self.google(url, {"permissions": every}) or {}).get("permissions", []))
        for role, several in wanted.items():
            lacking = [permission for permission in several if permission not in granted]
            if lacking:
                command = self.granting(self.member or "user:YOU", role)
                yield Finding(MISSING, "permissions", f"you lack: {', '.join(lacking)}", command)

    def quotas(self) -> Iterator[Finding]:
        """Each region has quota for the accelerators of the stack at maximum size."""
        for need in needs.quotas(self.resolved):
            if need.metric is None:
                text = f"quota of {need.of}: {need.count}, from a machine family's quota that has no figure by region"
                command = (
                    f"gcloud beta quotas info list --service=compute.googleapis.com --project {self.project} "
                    "--filter='quotaId~PER-[GT]PU-FAMILY'"
                )
                yield Finding(UNCHECKED, "quota", text, command)
                continue
            reason = f"{need.of} takes up to {need.count}"
            yield from self._enough(need.metric, need.count, reason, need.region)

    def class_quotas(self) -> Iterator[Finding]:
        """Each choice of a compute class has quota for its users. Advice only: GKE may use the next choice."""
        for need in needs.class_quotas(self.resolved):
            if need.metric is None:
                continue
            reason = f"the workloads with the class of {need.of} take up to {need.count}; GKE would try the next choice"
            for finding in self._enough(need.metric, need.count, reason, need.region):
                yield Finding(ADVICE, "quota of a compute class", finding.text, finding.command)

    def all_gpus(self) -> Iterator[Finding]:
        """The project has quota for the total number of GPUs."""
        if count := needs.gpus_everywhere(self.resolved):
            yield from self._enough(project_quotas.GPUS_ALL_REGIONS, count, f"the stack takes up to {count} GPUs")

    def _enough(self, metric: str, count: int, reason: str, region: str = "") -> Iterator[Finding]:
        response = self.compute(f"/regions/{region}" if region else "")
        quotas = {quota["metric"]: quota for quota in response.get("quotas", [])}
        limit, used = (int(quotas.get(metric, {}).get(key, 0)) for key in ("limit", "usage"))
        where = f" in {region}" if region else ""
        if limit < count:
            text = f"{metric} is {limit}{where}, and {reason}"
            yield Finding(MISSING, "quota", text, self._raise(metric, count, region))
        elif limit - used < count:
            text = f"{metric} is {limit}{where}, of which {used} are in use, and {reason}; fine if the stack uses them"
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
        for need in needs.machines(self.resolved):
            query = quote(f"name={need.machine_type}")
            items = self.compute(f"/aggregated/machineTypes?filter={query}").get("items", {})
            there = sorted(zone.removeprefix("zones/") for zone, has in items.items() if has.get("machineTypes"))
            lacking = [zone for zone in need.zones if zone not in there]
            if not lacking or (need.any_zone and len(lacking) < len(need.zones)):
                continue
            near = [zone for zone in there if zone.startswith(f"{self.settings.cluster.region}-")]
            text = f"{need.of}: no {need.machine_type} in {', '.join(lacking)}"
            if need.any_zone or not near:
                where = f"available in {', '.join(there)}" if there else "not available anywhere"
                command = self._config(f"--path '{need.path}' …  # another machine type, or move the cluster")
                yield Finding(MISSING, "machine type", f"{text}; {where}", command)
            else:
                text = f"{text}; available in {', '.join(near)}"
                index = need.zones.index(lacking[0]) if need.stated else 0
                yield Finding(MISSING, "machine type", text, self._config(f"--path '{need.path}[{index}]' {near[0]}"))
