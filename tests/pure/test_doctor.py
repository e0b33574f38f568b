"""`make doctor` on recorded answers in the form of Google's reference: a complete project, and each missing
requirement."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from emulator.google import rest
from gke_ai import settings
from gke_ai.catalog.machines import features
from gke_ai.catalog.nodes import project_quotas
from gke_ai.catalog.project import apis
from gke_ai.kube.client import Answer
from gke_ai.kube.existing import Content
from gke_ai.kube.kueue import ExistingKueue
from gke_ai.ops.doctor import command as doctor
from gke_ai.ops.doctor import needs, requests
from gke_ai.ops.doctor.command import Doctor
from gke_ai.ops.doctor.visit import ADVICE, GOOD, MISSING, UNCHECKED, Finding
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support import repository
from tests.support.local_server import listening

RECORDED = Path(__file__).parent.parent / "data" / "recorded_answers" / "good.json"
PROJECT = "my-project"
PERSON = "oncall@example.com"
Answers = dict[str, Any]

TABLE = yaml.load((RECORDED.parent / "missing.yaml").read_text(), yaml.CSafeLoader)
STACK: dict[str, Any] = TABLE["stack"]


def recorded() -> Answers:
    """Every answer where nothing is missing, by request."""
    answers: Answers = json.loads(RECORDED.read_text())
    return answers


def no_cluster(_: str) -> Content:
    raise Stop("The cluster does not answer")


def visit(
    answers: Answers,
    stack: Mapping[str, Any] = STACK,
    token_given: bool = True,
    api_key_given: bool = True,
    content: Callable[[str], Content] = no_cluster,
) -> list[Finding]:
    """The findings where these are the answers; a request that has none is a failure."""
    requests: list[str] = []

    def call(request: str, _body: object = None, token: str = "", payer: str = "") -> Answer:
        requests.append(request)
        if request.startswith("DIGEST ") and request not in answers:
            return Answer(200)  # the registry has the image, under the digest that the stack pins
        assert request in answers, f"there is no recorded answer to: {request}"
        if request.startswith(("GET ", "POST ")):
            assert token == "not-a-token"
            (who,) = answers["gcloud auth list --filter=status:ACTIVE --format=json"]["body"] or [{"account": ""}]
            assert payer == (PROJECT if who["account"] == PERSON else "")
        answer = answers[request]
        return Answer(answer["code"], answer.get("body"), answer.get("error", ""))

    loaded = settings.load(copy.deepcopy(dict(stack)), PROJECT, True)
    findings = list(Doctor("prod", PROJECT, loaded, token_given, call, api_key_given, content).examine())
    assert len(requests) == len(set(requests)), "a request is made twice"
    return findings


def changed(**sections: Any) -> dict[str, Any]:
    return {**STACK, **sections}


# ------------------------------------------------------------------------------------------------------------ all good
def test_complete_project_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    findings = visit(recorded())
    assert {finding.state for finding in findings} == {GOOD}
    assert len(findings) >= 20
    assert doctor.report_findings(findings, "prod") == 0
    assert "0 missing, 0 not checked" in capsys.readouterr().out


def test_no_recorded_answer_is_left_over() -> None:
    answers = recorded()
    heard: set[str] = set()

    class Heard(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            heard.add(key)
            return super().__getitem__(key)

    visit(Heard(answers))
    assert set(answers) - heard <= {"pulumi stack export --stack prod"}, "asked only for a bucket that is there"


# Document and type of what each of Google's addresses answers.
TYPES = {
    r"cloudresourcemanager\.googleapis\.com/v1/projects/[^/:]+": ("cloudresourcemanager.v1", "Project"),
    r"cloudresourcemanager\..*:testIamPermissions": ("cloudresourcemanager.v1", "TestIamPermissionsResponse"),
    r"cloudbilling\..*/billingInfo": ("cloudbilling.v1", "ProjectBillingInfo"),
    r"serviceusage\..*:batchGet\?.*": ("serviceusage.v1", "BatchGetServicesResponse"),
    r"compute\..*/regions/[^/]+": ("compute.v1", "Region"),
    r"compute\..*/v1/projects/[^/]+": ("compute.v1", "Project"),
    r"compute\..*/aggregated/machineTypes\?.*": ("compute.v1", "MachineTypeAggregatedList"),
    r"container\..*/serverConfig": ("container.v1", "ServerConfig"),
    r"container\..*/clusters/[^/]+": ("container.v1", "Cluster"),
    r"secretmanager\..*/secrets/[^/]+": ("secretmanager.v1", "Secret"),
    r"secretmanager\..*/versions/latest": ("secretmanager.v1", "SecretVersion"),
    r"monitoring\..*/notificationChannels/\d+": ("monitoring.v3", "NotificationChannel"),
}


def of_google(answers: Answers) -> Iterator[tuple[str, Any]]:
    for request, answer in answers.items():
        if request.startswith(("GET ", "POST ")) and answer["code"] == 200:
            yield request.partition("https://")[2], answer["body"]


def test_recorded_answers_have_the_fields_that_google_s_description_has() -> None:
    seen = 0
    for url, body in of_google(recorded()):
        document, name = next(schema for form, schema in TYPES.items() if re.fullmatch(form, url))
        problems = rest.Body(rest.api(document), name, body, {}).problems("answer")
        assert [text for _, text in problems if "is output-only: Google sets it" not in text] == [], url
        seen += 1
    assert seen >= 13


def test_quotas_are_named_as_in_google_s_description() -> None:
    named = rest.api("compute.v1").schemas["Quota"]["properties"]["metric"]["enum"]
    every = {*project_quotas.ON_DEMAND.values(), *project_quotas.PREEMPTIBLE.values(), project_quotas.GPUS_ALL_REGIONS}
    assert every <= set(named)


# ------------------------------------------------------------------------------------------------- each thing missing
G = "GET https://"
REGION = f"{G}compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1"
MACHINES = f"{G}compute.googleapis.com/compute/v1/projects/my-project/aggregated/machineTypes?filter=name%3D"
VERSIONS = f"{G}container.googleapis.com/v1/projects/my-project/locations/us-central1/serverConfig"
BUCKET = f"{G}storage.googleapis.com/storage/v1/b/models-my-project"
SECRET = f"{G}secretmanager.googleapis.com/v1/projects/my-project/secrets/hf-token"
PROJECT_IS = f"{G}cloudresourcemanager.googleapis.com/v1/projects/my-project"
PERMISSIONS = "POST https://cloudresourcemanager.googleapis.com/v1/projects/my-project:testIamPermissions"
NOT_FOUND = {"code": 404, "body": {"error": {"code": 404, "status": "NOT_FOUND"}}}
NO_COMMAND = {"code": 127}
Change = Callable[[Answers], None]


def answers(request: str, answer: Any) -> Change:
    """A request is answered otherwise."""

    def change(every: Answers) -> None:
        (key,) = (key for key in every if key.startswith(request)) if request not in every else (request,)
        every[key] = answer

    return change


def says(request: str, body: dict[str, Any]) -> Change:
    """An answer with some fields changed."""

    def change(every: Answers) -> None:
        (key,) = (key for key in every if key.startswith(request)) if request not in every else (request,)
        every[key]["body"] |= body

    return change


def limit(metric: str, amount: int, used: int = 0, request: str = REGION) -> Change:
    def change(every: Answers) -> None:
        (quota,) = (quota for quota in every[request]["body"]["quotas"] if quota["metric"] == metric)
        quota |= {"limit": float(amount), "usage": float(used)}

    return change


def not_granted(*permissions: str) -> Change:
    def change(every: Answers) -> None:
        granted = every[PERMISSIONS]["body"]["permissions"]
        every[PERMISSIONS]["body"]["permissions"] = [name for name in granted if name not in permissions]

    return change


def switched_off(api: str) -> Change:
    def change(every: Answers) -> None:
        (key,) = (key for key in every if "services:batchGet" in key)
        for service in every[key]["body"]["services"]:
            if service["config"]["name"] == api:
                service["state"] = "DISABLED"

    return change


def only_in(machine: str, *zones: str) -> Change:
    items = {f"zones/{zone}": {"machineTypes": [{"name": machine, "zone": zone}]} for zone in zones}
    return says(MACHINES + machine, {"items": items})


def channel(name: str, version: str) -> Change:
    def change(every: Answers) -> None:
        for channel in every[VERSIONS]["body"]["channels"]:
            if channel["channel"] == name:
                channel["defaultVersion"] = version

    return change


class Lack(NamedTuple):
    """A missing requirement: the changed answers, and the only finding."""

    id: str
    change: Change
    subject: str
    text: str
    command: str


CHANGES: dict[str, Callable[..., Change]] = {
    "answers": answers,
    "says": says,
    "limit": limit,
    "only_in": only_in,
    "channel": channel,
}


def lack(row: dict[str, Any]) -> Lack:
    """A row of the table, whose one key of CHANGES has the arguments."""
    (key,) = row.keys() & CHANGES.keys()
    return Lack(row["id"], CHANGES[key](*row[key]), row["subject"], row["text"], row["command"])


LACKS = [
    *map(lack, TABLE["missing"]),
    *(
        Lack(
            f"{api} is disabled",
            switched_off(api),
            "APIs",
            f"{api} is disabled",
            f"gcloud services enable {api} --project my-project",
        )
        for api in [*apis.BEFOREHAND, *apis.REASONS]
    ),
    *(
        Lack(
            f"no {permission}",
            not_granted(permission),
            "permissions",
            f"you lack: {permission}",
            "gcloud projects add-iam-policy-binding my-project "
            f"--member=serviceAccount:ci@my-project.iam.gserviceaccount.com --role={role}",
        )
        for role, permission in (
            ("roles/container.admin", "container.clusters.create"),
            ("roles/container.admin", "container.clusterRoleBindings.create"),
            ("roles/iam.serviceAccountUser", "iam.serviceAccounts.actAs"),
            ("roles/storage.admin", "storage.buckets.create"),
            ("roles/compute.networkAdmin", "compute.networks.create"),
            ("roles/iam.serviceAccountAdmin", "iam.serviceAccounts.create"),
            ("roles/resourcemanager.projectIamAdmin", "resourcemanager.projects.setIamPolicy"),
            ("roles/monitoring.editor", "monitoring.alertPolicies.create"),
            ("roles/secretmanager.admin", "secretmanager.secrets.get"),
        )
    ),
]


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.id)
def test_missing_requirement_is_the_only_finding_with_a_command(lack: Lack, capsys: pytest.CaptureFixture[str]) -> None:
    every = recorded()
    lack.change(every)
    findings = visit(every)
    missing = [finding for finding in findings if finding.state == MISSING]
    assert [finding.subject for finding in missing] == [lack.subject], findings
    assert lack.text in missing[0].text
    assert lack.command in missing[0].command
    assert doctor.report_findings(findings, "prod") == 1
    output = capsys.readouterr().out
    assert missing[0].command in output, "whole on a line, to be copied"
    assert "not-a-token" not in output


def test_a_user_is_named_as_user_and_has_a_quota_project() -> None:
    every = recorded()
    every["gcloud auth list --filter=status:ACTIVE --format=json"]["body"][0]["account"] = PERSON
    not_granted("storage.buckets.create")(every)
    (missing,) = (finding for finding in visit(every) if finding.state == MISSING)
    assert f"--member=user:{PERSON} " in missing.command


def test_everything_is_found_at_once() -> None:
    every = recorded()
    names = ("no TPU in the zone", "no secret", "too few L4", "no billing", "no login", "a bucket of one's own")
    for lack in LACKS:
        if lack.id in names:
            lack.change(every)
    assert sum(finding.state == MISSING for finding in visit(every)) == 6


def test_missing_gcloud_is_the_only_finding(capsys: pytest.CaptureFixture[str]) -> None:
    every = {request: answer for request, answer in recorded().items() if not request.startswith(("GET", "POST"))}
    every["gcloud version --format=json"] = NO_COMMAND
    findings = visit(every)
    (missing,) = (finding for finding in findings if finding.state == MISSING)
    assert missing.subject == "gcloud"
    assert "cloud.google.com/sdk/docs/install" in missing.command
    (unchecked,) = (finding for finding in findings if finding.state == UNCHECKED)
    assert unchecked == Finding(UNCHECKED, "Google Cloud", "install gcloud first")
    assert doctor.report_findings(findings, "prod") == 1
    assert "not checked: Google Cloud" in capsys.readouterr().out


def test_without_credentials_no_api_of_google_is_called() -> None:
    every = {request: answer for request, answer in recorded().items() if not request.startswith(("GET", "POST"))}
    every["gcloud auth application-default print-access-token"] = {"code": 1, "error": "no credentials"}
    findings = visit(every)
    (missing,) = (finding for finding in findings if finding.state == MISSING)
    assert missing.command == "gcloud auth application-default login --project my-project"
    assert [finding.subject for finding in findings if finding.state == UNCHECKED] == ["Google Cloud"]


@pytest.mark.parametrize(
    ("answer", "text", "command"),
    [
        ({"code": 403, "body": {"error": {"code": 403}}}, "there is no project", "gcloud projects create my-project"),
        (NOT_FOUND, "there is no project", "pulumi config set --stack prod gcp:project"),
        ({"code": 200, "body": {"lifecycleState": "DELETE_REQUESTED"}}, "is being deleted", "projects undelete"),
    ],
)
def test_a_missing_project_is_the_only_finding(answer: Any, text: str, command: str) -> None:
    every = recorded()
    every[PROJECT_IS] = answer
    findings = visit(every)
    (missing,) = (finding for finding in findings if finding.state == MISSING)
    assert text in missing.text
    assert command in missing.command
    assert [finding.subject for finding in findings if finding.state == UNCHECKED] == ["resources of the project"]


DISABLED = {
    "code": 403,
    "body": {"error": {"code": 403, "details": [{"reason": "SERVICE_DISABLED"}]}},
    "error": "Compute Engine API has not been used in project 123456789012 before or it is disabled.",
}


def test_checks_of_a_disabled_api_are_reported_as_not_checked() -> None:
    every = recorded()
    switched_off("compute.googleapis.com")(every)
    for request in every:
        if "compute.googleapis.com/compute" in request:
            every[request] = DISABLED
    findings = visit(every)
    assert [finding.subject for finding in findings if finding.state == MISSING] == ["APIs"]
    unchecked = {finding.subject: finding.text for finding in findings if finding.state == UNCHECKED}
    assert unchecked.keys() == {"quotas", "all gpus", "machines"}
    assert set(unchecked.values()) == {"compute.googleapis.com is disabled in the project"}


def test_refused_request_is_not_checked_and_reported() -> None:
    every = recorded()
    every[VERSIONS] = {"code": 403, "body": {"error": {"code": 403}}, "error": "Required permission is missing."}
    every[BUCKET] = DISABLED
    every[SECRET] = {"code": 0, "error": "Name or service not known"}
    unchecked = {finding.subject: finding.text for finding in visit(every) if finding.state == UNCHECKED}
    assert unchecked == {
        "versions": "container.googleapis.com answers 403: Required permission is missing.",
        "buckets": "storage.googleapis.com is disabled in the project",
        "secret": "secretmanager.googleapis.com does not respond: Name or service not known",
    }


def test_quota_in_use_is_only_advice() -> None:
    every = recorded()
    limit("NVIDIA_L4_GPUS", 10, used=2)(every)
    findings = visit(every)
    (hint,) = (finding for finding in findings if finding.state == ADVICE)
    assert "of which 2 are in use" in hint.text
    assert "--preferred-value=12" in hint.command
    assert doctor.report_findings(findings, "prod") == 0


def test_kubectl_is_advice_alone() -> None:
    every = recorded()
    every["kubectl version --client --output=json"] = NO_COMMAND
    assert [finding.subject for finding in visit(every) if finding.state == ADVICE] == ["kubectl"]


def test_a_bucket_of_the_stack_is_no_finding() -> None:
    every = recorded()
    every[BUCKET] = {"code": 200, "body": {"name": "models-my-project"}}
    resource = {"type": "gcp:storage/bucket:Bucket", "id": "models-my-project"}
    every["pulumi stack export --stack prod"] = {"code": 0, "body": {"deployment": {"resources": [resource]}}}
    assert {finding.state for finding in visit(every)} == {GOOD}


def test_a_bucket_to_adopt_must_exist() -> None:
    bucket = {**STACK["buckets"][0], "adopt": True}
    (missing,) = (finding for finding in visit(recorded(), changed(buckets=[bucket])) if finding.state == MISSING)
    assert "no bucket models-my-project to adopt" in missing.text


def test_a_missing_token_is_a_finding() -> None:
    stack = {key: value for key, value in STACK.items() if key != "hfTokenSecret"}
    every = recorded()
    (key,) = (key for key in every if "services:batchGet" in key)
    every[key.replace("&names=projects/my-project/services/secretmanager.googleapis.com", "")] = every[key]
    (missing,) = (finding for finding in visit(every, stack, token_given=False) if finding.state == MISSING)
    assert missing.command == "pulumi config set --stack prod --secret gke-ai:hfToken"
    assert {finding.state for finding in visit(every, stack)} == {GOOD}


def test_apis_that_the_stack_enables_are_not_called_missing() -> None:
    every = recorded()
    (key,) = (key for key in every if "services:batchGet" in key)
    beforehand = "&".join(f"names=projects/my-project/services/{name}" for name in apis.BEFOREHAND)
    every[f"{key.partition('?')[0]}?{beforehand}"] = every[key]
    every[PERMISSIONS]["body"]["permissions"] += ["serviceusage.services.enable", "serviceusage.services.get"]
    assert {finding.state for finding in visit(every, changed(enableApis=True))} == {GOOD}


def existing(**more: Any) -> dict[str, Any]:
    cluster = {"name": "ai", "mode": "existing", "location": "us-central1", **more}
    return {"cluster": cluster, "computeClasses": STACK["computeClasses"]}


CLUSTER = f"{G}container.googleapis.com/v1/projects/my-project/locations/us-central1/clusters/ai"


SUBNETWORKS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/subnetworks"


def proxies(network: str) -> Any:
    """The answer that a network has a proxy-only subnetwork."""
    items = [{"purpose": "REGIONAL_MANAGED_PROXY", "network": f"https://www.googleapis.com/{network}"}]
    return {"code": 200, "body": {"items": items}}


def with_cluster(answer: Any, further_api: str = "") -> Answers:
    every = recorded()
    every[CLUSTER] = answer
    unused = {apis.IAM, apis.STORAGE, apis.SECRET_MANAGER, apis.NETWORK_SERVICES, apis.CERTIFICATE_MANAGER}
    unused = (unused | {apis.CONTAINER_FILE_SYSTEM}) - {further_api}
    names = [*apis.BEFOREHAND, *(name for name in apis.REASONS if name not in unused)]
    (key,) = (key for key in every if "services:batchGet" in key)
    query = "&".join(f"names=projects/my-project/services/{name}" for name in names)
    every[f"{key.partition('?')[0]}?{query}"] = every[key]
    return every


BESIDE_OTHERS = {
    "kueue": "existing",
    "localQueues": [{"name": "team", "mode": "existing", "namespace": "llm", "clusterQueue": "research"}],
}


def test_an_existing_cluster_has_the_kueue_and_the_objects_that_the_stack_uses() -> None:
    asked: list[str] = []
    kueue = ExistingKueue("0.18.4", "queueing", "m", cluster_queues={"research": {"spec": {"namespaceSelector": {}}}})
    local_queues = {("llm", "team"): {"spec": {"clusterQueue": "research"}}}

    def found(content: Content) -> list[Finding]:
        body = {"currentMasterVersion": "1.34.1-gke.1", "endpoint": "192.0.2.1", "masterAuth": {}}
        stack = {**existing(), "queues": BESIDE_OTHERS}

        def read(kubeconfig: str) -> Content:
            asked.append(kubeconfig)
            return content

        return visit(with_cluster({"code": 200, "body": body}), stack, content=read)

    assert {finding.state for finding in found(Content(kueue, local_queues=local_queues))} == {GOOD}
    (missing,) = (finding for finding in found(Content()) if finding.state == MISSING)
    assert missing.text == "gke-ai:queues.kueue: the cluster has no Kueue, so nothing would ever start"
    assert missing.command.startswith("Install it first")
    (missing,) = (finding for finding in found(Content(kueue)) if finding.state == MISSING)
    assert missing.text.startswith("gke-ai:queues.localQueues[0].name: the cluster has no local queue team in")
    assert "https://192.0.2.1" in asked[0]


def test_an_existing_cluster_that_does_not_answer_is_not_checked() -> None:
    body = {"currentMasterVersion": "1.34.1-gke.1", "endpoint": "192.0.2.1", "masterAuth": {}}
    findings = visit(with_cluster({"code": 200, "body": body}), {**existing(), "queues": BESIDE_OTHERS})
    (unchecked,) = (finding for finding in findings if finding.state == UNCHECKED)
    assert (unchecked.subject, unchecked.text) == ("cluster content", "The cluster does not answer")


GRANT = {"buckets": [{"name": "data", "grants": [{"namespace": "llm"}]}]}
TRAINING = {
    **GRANT,
    "training": [{"name": "t", "accelerator": "nvidia-l4", "gpusPerPod": 1, "volume": {"bucket": "data"}}],
}


MOUNTS = {
    "workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"},
    "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
}


def test_an_existing_cluster_must_exist_and_be_new_enough() -> None:
    new = with_cluster({"code": 200, "body": {"currentMasterVersion": "1.34.1-gke.1"}})
    assert {finding.state for finding in visit(new, existing())} == {GOOD}
    (missing,) = (finding for finding in visit(with_cluster(NOT_FOUND), existing()) if finding.state == MISSING)
    assert "there is no cluster ai in us-central1" in missing.text
    old = with_cluster({"code": 200, "body": {"currentMasterVersion": "1.30.1-gke.1"}})
    (missing,) = (finding for finding in visit(old, existing()) if finding.state == MISSING)
    assert "cluster ai runs 1.30.1-gke.1, and ComputeClass needs 1.30.3-gke.1451000" in missing.text
    assert missing.command.startswith("gcloud container clusters upgrade ai --master --location us-central1")
    assert missing.command.endswith("--cluster-version=1.33.3-gke.1136000")


@pytest.mark.parametrize(
    ("more", "lacks", "found"),
    [
        ({}, {"workloadIdentityConfig": {}, "addonsConfig": {}}, []),
        (GRANT, {"addonsConfig": {}}, []),
        (GRANT, {"workloadIdentityConfig": {}}, ["--workload-pool=my-project.svc.id.goog"]),
        (TRAINING, {"addonsConfig": {}}, ["--update-addons=GcsFuseCsiDriver=ENABLED"]),
        (TRAINING, {"addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": False}}}, ["--update-addons"]),
        (TRAINING, {"workloadIdentityConfig": {}, "addonsConfig": {}}, ["--workload-pool", "--update-addons"]),
        (TRAINING, {"workloadIdentityConfig": {}, "addonsConfig": {}, "autopilot": {"enabled": True}}, []),
    ],
)
def test_buckets_need_features_of_the_cluster(more: dict[str, Any], lacks: dict[str, Any], found: list[str]) -> None:
    body = {"currentMasterVersion": "1.34.1-gke.1", **MOUNTS}
    stack = {**existing(), **more}
    every = with_cluster({"code": 200, "body": {**body, **lacks}}, apis.STORAGE if more else "")
    every[f"{G}storage.googleapis.com/storage/v1/b/data"] = NOT_FOUND
    missing = [finding for finding in visit(every, stack) if finding.state == MISSING]
    assert len(missing) == len(found)
    for finding, flag in zip(missing, found, strict=True):
        assert finding.command.startswith("gcloud container clusters update ai --location us-central1 --project my-")
        assert flag in finding.command


@pytest.mark.parametrize(
    ("control_plane", "nodes", "image", "remedy"),
    [
        ("1.36.3-gke.1244000", "1.34.5-gke.2000000", "COS_CONTAINERD", "--node-pool old"),
        ("1.36.3-gke.1244000", "1.35.3-gke.1388999", "COS_CONTAINERD", "--node-pool old"),
        ("1.36.4-gke.1", "1.33.9-gke.9999999", "COS_CONTAINERD", "--node-pool old"),
        ("1.37.0-gke.1", "1.34.6-gke.1153999", "COS_CONTAINERD", "--node-pool old"),
        ("1.36.3-gke.1244000", "1.36.3-gke.1244000", "UBUNTU_CONTAINERD", "--master"),
        ("1.36.3-gke.1243999", "1.34.5-gke.2000000", "COS_CONTAINERD", ""),
        ("1.36.5-gke.1032000", "1.34.5-gke.2000000", "UBUNTU_CONTAINERD", ""),
        ("1.37.1-gke.1552000", "1.34.5-gke.2000000", "COS_CONTAINERD", ""),
        ("1.36.3-gke.1244000", "1.34.6-gke.1154000", "COS_CONTAINERD", ""),
        ("1.36.3-gke.1244000", "1.35.3-gke.1389000", "COS_CONTAINERD", ""),
        ("1.36.3-gke.1244000", "1.36.0-gke.1", "COS_CONTAINERD", ""),
    ],
)
def test_node_whose_driver_mounts_no_bucket_is_advice(control_plane: str, nodes: str, image: str, remedy: str) -> None:
    body = {
        "currentMasterVersion": control_plane,
        **MOUNTS,
        "nodePools": [{"name": "old", "version": nodes, "config": {"imageType": image}}],
    }
    every = with_cluster({"code": 200, "body": body}, apis.STORAGE)
    every[f"{G}storage.googleapis.com/storage/v1/b/data"] = NOT_FOUND
    stack = {**existing(), **TRAINING}
    findings = [finding for finding in visit(every, stack) if finding.subject == "Cloud Storage FUSE"]
    assert [finding.state for finding in findings] == [ADVICE] * bool(remedy)
    for finding in findings:
        assert f"nodes of old run {image} {nodes}, on which the Cloud Storage FUSE driver" in finding.text
        assert finding.command.endswith(f"--project my-project {remedy}")
    unmounted = with_cluster({"code": 200, "body": body})
    assert not [finding for finding in visit(unmounted, existing()) if finding.subject == "Cloud Storage FUSE"]


def test_webhooks_of_an_older_private_cluster_need_a_firewall_rule() -> None:
    body = {"currentMasterVersion": "1.34.1-gke.1", "network": "shared"}
    private = {"masterIpv4CidrBlock": "172.16.0.0/28"}
    stack = {**existing(), "queues": {"flavors": [{"name": "l4", "accelerator": "nvidia-l4"}]}}
    stack["queues"]["clusterQueues"] = [{"name": "q", "flavors": [{"flavor": "l4", "quota": {"nvidia.com/gpu": 1}}]}]

    def advice(**more: str) -> list[Any]:
        answer = {"code": 200, "body": {**body, "privateClusterConfig": {**private, **more}}}
        return [finding for finding in visit(with_cluster(answer), stack) if finding.subject == "firewall"]

    (finding,) = advice(peeringName="gke-peering")
    assert finding.state == ADVICE
    assert "--source-ranges 172.16.0.0/28 --rules tcp:9443" in finding.command
    assert not advice(), "a newer control plane reaches every port of its nodes"


def test_pools_in_an_existing_cluster_take_the_right_to_run_nodes_as_their_account() -> None:
    pool = {"name": "l4", "machineType": "g2-standard-12", "nodesPerZone": 1, "zones": ["us-central1-a"]}
    wanted = [
        needs.permissions(settings.load(stack, "my-project"))
        for stack in ({**existing(), "gpuPools": [pool]}, existing())
    ]
    assert ["roles/iam.serviceAccountUser" in roles for roles in wanted] == [True, False]


def test_a_configured_network_and_account_must_exist() -> None:
    every = recorded()
    every[f"{G}compute.googleapis.com/compute/v1/projects/host/global/networks/shared"] = NOT_FOUND
    every[SUBNETWORKS.replace("my-project", "host")] = proxies("projects/host/global/networks/shared")
    account = "nodes@my-project.iam.gserviceaccount.com"
    every[f"{G}iam.googleapis.com/v1/projects/-/serviceAccounts/{account}"] = NOT_FOUND
    cluster = {key: value for key, value in STACK["cluster"].items() if key != "vpc"}
    cluster |= {"network": "projects/host/global/networks/shared", "nodeServiceAccount": account}
    (key,) = (key for key in every if "services:batchGet" in key)
    every[key.replace("&names=projects/my-project/services/iam.googleapis.com", "")] = every[key]
    findings = [finding for finding in visit(every, changed(cluster=cluster)) if finding.state == MISSING]
    assert [finding.subject for finding in findings] == ["network", "node service account"]


NETWORKS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/global/networks"
ROUTERS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/routers"
ACCOUNTS = f"{G}iam.googleapis.com/v1/projects/-/serviceAccounts"
DEFAULT_ACCOUNT = f"{ACCOUNTS}/123456789012-compute@developer.gserviceaccount.com"


PINNED = "vllm/vllm-openai:v1@sha256:" + "a" * 64


def images(answer: Any) -> list[Finding]:
    """Findings of images, if the registry answers so for the server's pinned image."""
    every = recorded()
    every["DIGEST vllm/vllm-openai:v1"] = answer
    stack = changed(serving=[{**STACK["serving"][0], "image": PINNED}])
    return [finding for finding in visit(every, stack) if finding.subject == "image"]


def test_a_tag_that_moved_is_reported_with_both_digests() -> None:
    assert images({"code": 200, "body": "sha256:" + "a" * 64}) == []
    (finding,) = images({"code": 200, "body": "sha256:" + "b" * 64})
    assert finding.state == ADVICE
    assert "sha256:bbb" in finding.text
    assert "sha256:aaa" in finding.text


def test_an_image_that_no_registry_has_is_missing() -> None:
    (finding,) = images({"code": 404})
    assert finding.state == MISSING
    assert "docker.io has no vllm/vllm-openai:v1. Pods with it would not start" in finding.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [({"code": 0, "error": "no route"}, "does not respond: no route"), ({"code": 401}, "answers 401")],
)
def test_a_registry_that_does_not_answer_is_no_finding(answer: Any, reason: str) -> None:
    (finding,) = images(answer)
    assert (finding.state, finding.text) == (UNCHECKED, f"docker.io {reason}")


POLICY = f"POST {G.removeprefix('GET ')}cloudresourcemanager.googleapis.com/v1/projects/my-project:getIamPolicy"
NODES = "serviceAccount:123456789012-compute@developer.gserviceaccount.com"


def roles_of_nodes(*roles: str, member: str = NODES) -> Any:
    """The IAM policy of the project, in which nodes have these roles."""
    return {"code": 200, "body": {"bindings": [{"role": role, "members": ["user:x", member]} for role in roles]}}


def on_the_default_network(every: Answers, **cluster: Any) -> dict[str, Any]:
    """The stack without a network and an account of its own, and the answers that it is there."""
    (key,) = (key for key in every if "services:batchGet" in key)
    every[key.replace("&names=projects/my-project/services/iam.googleapis.com", "")] = every[key]
    every[f"{NETWORKS}/default"] = {"code": 200, "body": {"name": "default"}}
    every[DEFAULT_ACCOUNT] = {"code": 200, "body": {}}
    every[POLICY] = roles_of_nodes("roles/editor")
    every[SUBNETWORKS] = proxies("projects/my-project/global/networks/default")
    own = {key: value for key, value in STACK["cluster"].items() if key not in ("vpc", "nodeServiceAccount")}
    return changed(cluster=own | {"privateNodes": False} | cluster)


def test_the_default_network_and_account_must_exist_if_none_is_configured() -> None:
    every = recorded()
    stack = on_the_default_network(every)
    assert not [finding for finding in visit(every, stack) if finding.state == MISSING]
    every[f"{NETWORKS}/default"] = NOT_FOUND
    every[DEFAULT_ACCOUNT] = {"code": 200, "body": {"disabled": True}}
    findings = [finding for finding in visit(every, stack) if finding.state == MISSING]
    assert [finding.subject for finding in findings] == ["network", "node service account"]
    assert findings[1].text.endswith("123456789012-compute@developer.gserviceaccount.com is disabled")
    assert "gke-ai:cluster.nodeServiceAccount gke-nodes" in findings[1].command


@pytest.mark.parametrize(
    ("roles", "lacking"),
    [
        (["roles/container.defaultNodeServiceAccount"], []),
        (["roles/logging.logWriter", "roles/monitoring.metricWriter"], []),
        (["roles/editor"], []),
        (["roles/logging.logWriter"], ["roles/container.defaultNodeServiceAccount"]),
        ([], ["roles/container.defaultNodeServiceAccount"]),
    ],
)
def test_the_default_account_needs_roles_that_some_organizations_withhold(roles: list[str], lacking: list[str]) -> None:
    every = recorded()
    stack = on_the_default_network(every)
    every[POLICY] = roles_of_nodes(*roles)
    findings = [finding for finding in visit(every, stack) if finding.state == MISSING]
    assert [finding.subject for finding in findings] == ["roles of nodes"] * len(lacking)
    for finding, role in zip(findings, lacking, strict=True):
        assert "they would have no logs and metrics" in finding.text
        assert finding.command == f"gcloud projects add-iam-policy-binding my-project --member={NODES} --role={role}"


def test_nodes_need_a_role_for_images_of_the_projects_registry() -> None:
    every = recorded()
    stack = on_the_default_network(every)
    image = "us-docker.pkg.dev/my-project/images/server:v1"
    stack["serving"] = [{**server, "image": image} for server in stack["serving"]]
    every[POLICY] = roles_of_nodes("roles/container.defaultNodeServiceAccount")
    (finding,) = (finding for finding in visit(every, stack) if finding.subject == "roles of nodes")
    assert "which lacks roles/artifactregistry.reader" in finding.text


def test_a_policy_that_may_not_be_read_is_not_checked() -> None:
    every = recorded()
    stack = on_the_default_network(every)
    every[POLICY] = {"code": 403, "error": "Permission denied"}
    states = {finding.subject: finding.state for finding in visit(every, stack)}
    assert states["node account"] == UNCHECKED


def test_private_nodes_in_an_existing_network_need_nat() -> None:
    every = recorded()
    stack = on_the_default_network(every, privateNodes=True)
    router = {"network": f"{NETWORKS}/default".removeprefix("GET "), "nats": [{"name": "nat"}]}
    every[ROUTERS] = {"code": 200, "body": {"items": [router]}}
    assert not [finding for finding in visit(every, stack) if finding.state == MISSING]
    router["nats"] = []
    (finding,) = (finding for finding in visit(every, stack) if finding.state == MISSING)
    assert finding.subject == "Cloud NAT"
    assert "network default has no Cloud NAT in us-central1, and pods need" in finding.text
    assert "gcloud compute routers nats create" in finding.command


def test_a_gateway_in_an_existing_network_needs_a_proxy_only_subnetwork() -> None:
    every = recorded()
    stack = on_the_default_network(every)
    assert not [finding for finding in visit(every, stack) if finding.state == MISSING]
    every[SUBNETWORKS] = proxies("projects/my-project/global/networks/other")
    every[SUBNETWORKS]["body"]["items"].append({"purpose": "PRIVATE", "network": f"{NETWORKS}/default"})
    (finding,) = (finding for finding in visit(every, stack) if finding.state == MISSING)
    assert finding.subject == "proxy-only subnetwork"
    assert "network default has no proxy-only subnetwork in us-central1" in finding.text
    assert finding.command.startswith("gcloud compute networks subnets create proxies --purpose=REGIONAL_MANAGED_PROXY")


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        ({"networkConfig": {"gatewayApiConfig": {"channel": "CHANNEL_STANDARD"}}}, []),
        ({"networkConfig": {"gatewayApiConfig": {"channel": "CHANNEL_DISABLED"}}}, ["Gateway API"]),
        ({}, ["Gateway API"]),
        ({"autopilot": {"enabled": True}}, []),
        ({"autopilot": {"enabled": True}, "currentMasterVersion": "1.33.0-gke.1"}, ["GKE version"]),
    ],
)
def test_an_existing_cluster_needs_the_gateway_api(cluster: dict[str, Any], found: list[str]) -> None:
    answer = {"code": 200, "body": {"currentMasterVersion": "1.34.1-gke.1829001", **cluster}}
    every = with_cluster(answer, apis.NETWORK_SERVICES)
    every[SUBNETWORKS] = proxies("projects/my-project/global/networks/default")
    server = {"name": "s", "engine": "vllm", "model": "google/gemma-3-4b-it", "maxModelLen": 4096}
    route = {"name": "r", "servers": [{"server": "s"}]}
    stack = {
        "cluster": {**existing()["cluster"], "existingMode": "autopilot"},
        "serving": [{**server, "accelerator": "nvidia-l4"}],
        "gateway": {"plainHttp": True, "routes": [route]},
    }
    assert [finding.subject for finding in visit(every, stack) if finding.state == MISSING] == found


V2, MULTI = {"datapathProvider": "ADVANCED_DATAPATH"}, "multi-networking"
AGENT = "serviceAccount:service-123456789012@container-engine-robot.iam.gserviceaccount.com"
RDMA_POOL = {"name": "b200", "machineType": "a4-highgpu-8g", "nodesPerZone": 2, "rdma": True}
RDMA_POOL |= {"capacity": {"mode": "reservation", "reservation": "mine"}}
RDMA_CLUSTER = {
    "currentMasterVersion": "1.34.1-gke.1829001",
    "networkConfig": V2,
    "workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"},
    "locations": ["us-central1-b"],
    "nodePools": [{"name": "b200", "networkConfig": {"acceleratorNetworkProfile": "auto"}}],
}


def offered(machine: str) -> Any:
    """The answer that a zone has a machine type."""
    return {"code": 200, "body": {"items": {"zones/us-central1-b": {"machineTypes": [{"name": machine}]}}}}


def of_rdma(cluster: dict[str, Any], zones: list[str], own: bool = False, policy: Any = None) -> list[Finding]:
    """What a stack with an RDMA network lacks in a cluster that exists."""
    location = "us-central1" if zones else "us-central1-b"
    every = with_cluster(NOT_FOUND, apis.IAM)
    every[CLUSTER.replace("/us-central1/", f"/{location}/")] = {"code": 200, "body": {**RDMA_CLUSTER, **cluster}}
    every[f"{MACHINES}a4-highgpu-8g"] = offered("a4-highgpu-8g")
    every[POLICY] = policy or roles_of_nodes("roles/compute.networkAdmin", member=AGENT)
    where = {"name": "ai", "location": location, "nodeServiceAccount": "gke-nodes"}
    stack = {
        "cluster": {**where, "mode": "standard", "vpc": {}} if own else {**where, "mode": "existing"},
        "gpuPools": [{**RDMA_POOL, **({"zones": zones} if zones else {})}],
    }
    return [finding for finding in visit(every, stack) if finding.state in (MISSING, ADVICE)]


RDMA_CLASS = {
    "name": "b200",
    "rdmaZone": "us-central1-b",
    "priorities": [{"machineType": "a4-highgpu-8g", "capacity": {"mode": "spot"}}],
}
B = ["us-central1-b"]
OLD = {"currentMasterVersion": "1.34.1-gke.1829000"}
CALICO = {"networkConfig": {"datapathProvider": "LEGACY_DATAPATH"}}


@pytest.mark.parametrize(
    ("cluster", "zones", "own", "subject", "text", "command"),
    [
        (OLD, B, False, "GKE version", "runs 1.34.1-gke.1829000, and GKE's accelerator network", "1.34.1-gke.1829001"),
        (CALICO, B, False, "Dataplane V2", "only a new cluster can get", "NAME  # of a cluster with Dataplane V2"),
        ({"networkConfig": {}}, B, True, "Dataplane V2", "pool b200 needs it: up would recreate", "preview --stack"),
        (
            {"locations": ["us-central1-b", "us-central1-c"]},
            [],
            False,
            "zones",
            "is in one zone, and nodes of cluster ai are in us-central1-b, us-central1-c: GKE would refuse the pool",
            "--path 'gke-ai:gpuPools[0].zones[0]' us-central1-b",
        ),
    ],
)
def test_a_cluster_that_exists_needs_what_rdma_networks_need(
    cluster: dict[str, Any], zones: list[str], own: bool, subject: str, text: str, command: str
) -> None:
    (finding,) = of_rdma(cluster, zones, own)
    assert finding.subject == subject
    assert finding.state == (ADVICE if own else MISSING)
    assert text in finding.text
    assert command in finding.command


@pytest.mark.parametrize("own", [True, False])
def test_a_cluster_that_has_what_rdma_networks_need_lacks_nothing(own: bool) -> None:
    assert of_rdma({}, B, own) == []
    assert of_rdma({}, B, own, roles_of_nodes("roles/editor", member=AGENT)) == []


def test_a_compute_class_with_an_rdma_network_needs_the_same() -> None:
    every = with_cluster({"code": 200, "body": {**RDMA_CLUSTER, **CALICO}}, apis.IAM)
    every[f"{MACHINES}a4-highgpu-8g"] = offered("a4-highgpu-8g")
    every[POLICY] = roles_of_nodes("roles/owner", member=AGENT)
    (missing,) = (item for item in visit(every, existing() | {"computeClasses": [RDMA_CLASS]}) if item.state == MISSING)
    assert "Dataplane V2, which RDMA networks between nodes need" in missing.text


@pytest.mark.parametrize(("mode", "feature"), [("autopilot", "on Autopilot"), ("standard", "network profile")])
def test_the_version_that_rdma_networks_need_depends_on_the_mode(mode: str, feature: str) -> None:
    cluster = {"mode": mode, "location": "us-central1", **({"vpc": {}} if mode == "standard" else {})}
    stack = settings.load({"cluster": cluster, "computeClasses": [RDMA_CLASS]}, PROJECT)
    (wanted,) = (name for name in needs.gke_features(stack) if "profile" in name)
    assert wanted.endswith(feature)


def test_gke_s_service_agent_needs_its_role_while_pools_have_a_network_profile() -> None:
    nobody = roles_of_nodes("roles/editor")
    (finding,) = of_rdma({}, B, policy=nobody)
    assert (finding.state, finding.subject) == (MISSING, "role of GKE's service agent")
    assert "lacks roles/compute.networkAdmin in my-project" in finding.text
    assert finding.command.endswith(f"--member={AGENT} --role=roles/compute.networkAdmin")
    assert of_rdma({"nodePools": [{"name": "system"}]}, B, policy=nobody) == [], "up grants it with the first pool"


@pytest.mark.parametrize(
    ("networks", "found"),
    [({"enableMultiNetworking": True, **V2}, []), ({"enableMultiNetworking": True}, [MULTI]), (V2, [MULTI])],
)
def test_an_existing_cluster_needs_multi_networking_for_gpudirect(networks: dict[str, Any], found: list[str]) -> None:
    pool = {"name": "mega", "machineType": "a3-megagpu-8g", "nodesPerZone": 2, "zones": B, "gpuDirect": True}
    pool |= {"capacity": {"mode": "reservation", "reservation": "mine"}}
    every = with_cluster({"code": 200, "body": {**RDMA_CLUSTER, "networkConfig": networks}})
    every[f"{MACHINES}a3-megagpu-8g"] = offered("a3-megagpu-8g")
    every[DEFAULT_ACCOUNT] = {"code": 200, "body": {}}
    every[POLICY] = roles_of_nodes("roles/editor")
    stack = {**existing(), "gpuPools": [pool]}
    assert [finding.subject for finding in visit(every, stack) if finding.state == MISSING] == found


def test_a_missing_api_key_is_a_finding() -> None:
    stack = changed(gateway={**STACK["gateway"], "apiKey": True})
    every = recorded()
    assert {finding.state for finding in visit(every, stack)} == {GOOD}
    (missing,) = (finding for finding in visit(every, stack, api_key_given=False) if finding.state == MISSING)
    assert missing.command.endswith("pulumi config set --stack prod --secret gke-ai:gatewayApiKey")


def test_a_compute_class_without_quota_is_advice() -> None:
    every = recorded()
    limit("PREEMPTIBLE_NVIDIA_L4_GPUS", 5)(every)
    server = {"name": "more", "model": "google/gemma-2-9b-it", "computeClass": "spot-first", "gpus": 2, "replicas": 3}
    stack = changed(serving=[*STACK["serving"], server])
    (hint,) = (finding for finding in visit(every, stack) if finding.state == ADVICE)
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS is 5 in us-central1" in hint.text
    assert "gke-ai:computeClasses[0].priorities[0] take up to 6" in hint.text
    assert not [finding for finding in visit(every, stack) if finding.state == MISSING]


# -------------------------------------------------------------------------------------------------------- what it needs
def load(**stack: Any) -> settings.ResolvedStack:
    return settings.load({"cluster": {"mode": "standard", "location": "us-central1"}, **stack}, PROJECT)


def test_quota_that_a_region_does_not_report_is_not_checked() -> None:
    pool = {"name": "v6e", "version": "v6e", "topology": "2x4", "zones": ["us-east5-b"], "nodesPerZone": 2}
    stack = settings.load({"cluster": {"mode": "standard", "location": "us-east5"}, "tpuPools": [pool]}, PROJECT)
    (need,) = needs.quotas(stack)
    assert (need.metric, need.count, need.region) == (None, 24, "us-east5")


def test_workloads_on_nodes_that_gke_creates_need_quota() -> None:
    server = {"name": "gemma", "model": "google/gemma-2-9b-it", "accelerator": "nvidia-l4", "gpus": 2, "replicas": 3}
    stack = settings.load({"cluster": {"location": "us-central1"}, "serving": [server]}, PROJECT)
    assert [(need.metric, need.count) for need in needs.quotas(stack)] == [("NVIDIA_L4_GPUS", 6)]


def test_a_reservation_takes_no_quota() -> None:
    pool = {"name": "p", "machineType": "g2-standard-24", "nodesPerZone": 1, "zones": ["us-central1-a"]}
    assert needs.quotas(load(gpuPools=[{**pool, "capacity": {"mode": "reservation", "reservation": "r"}}])) == []
    assert len(needs.quotas(load(gpuPools=[pool]))) == 1


def test_versions_compare_by_their_numbers() -> None:
    assert features.ordered("1.33.0-gke.900") < features.ordered("1.33.0-gke.1000") < features.ordered("1.100.0-gke.1")


@pytest.mark.parametrize(
    ("machine_type", "needed"),
    [
        ("a4-highgpu-8g-nolssd", {"A4": "1.32.1-gke.1729000"}),
        ("a3-ultragpu-8g", {"A3 Ultra": "1.31.4-gke.1183000"}),
        ("g4-standard-48", {"G4": "1.34.0-gke.1662000"}),
        ("g4-standard-12", {"G4": "1.34.0-gke.1662000", "a part of a G4 GPU": "1.34.5-gke.1153000"}),
        ("a3-highgpu-8g", {}),
        ("g2-standard-24", {}),
    ],
)
@pytest.mark.parametrize("section", ["gpuPools", "computeClasses"])
def test_new_machine_families_need_a_version_of_gke(machine_type: str, needed: dict[str, str], section: str) -> None:
    machine = {"machineType": machine_type, "capacity": {"mode": "spot"}}
    sections = {
        "gpuPools": [{"name": "p", "nodesPerZone": 1, **machine}],
        "computeClasses": [{"name": "c", "priorities": [machine]}],
    }
    wanted = needs.gke_features(
        settings.load({"cluster": {"mode": "standard"}, section: sections[section]}, PROJECT, True)
    )
    assert {feature: features.MINIMUM[feature] for feature in wanted if "ComputeClass" not in feature} == needed


def test_slices_of_v6e_need_a_version_of_gke() -> None:
    pool = {"name": "v6e", "version": "v6e", "topology": "2x4", "zones": ["us-east5-b"], "nodesPerZone": 2}
    stack = settings.load({"cluster": {"mode": "standard", "location": "us-east5"}, "tpuPools": [pool]}, PROJECT)
    assert {feature: features.MINIMUM[feature] for feature in needs.gke_features(stack)} == {
        "TPU v6e": "1.31.2-gke.1115000"
    }


@pytest.mark.parametrize("file", repository.configurations(), ids=str)
def test_every_configuration_of_the_project_can_be_examined(file: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(file.read_text())
    content["config"].setdefault("gcp:project", PROJECT)  # which examples leave to their user
    copied = tmp_path / file.name
    copied.write_text(yaml.safe_dump(content))
    every = recorded()
    nothing = {"code": 0, "error": "no network"}

    def call(request: str, *_: object) -> Answer:
        # What is asked of this stack may not be recorded; then there is no answer.
        answer = every.get(request, nothing)
        return Answer(answer["code"], answer.get("body"), answer.get("error", ""))

    findings = list(doctor.doctor_for("x", copied, call).examine())
    assert len(findings) >= 20
    assert not [
        finding for finding in findings if finding.state == MISSING and finding.subject in ("Pulumi", "project")
    ]


# --------------------------------------------------------------------------------------------------------------- calls
def test_a_missing_command_has_the_exit_code_of_a_shell() -> None:
    assert requests.call("no-such-command-anywhere --version").code == requests.NOT_FOUND
    assert requests.call("python3 --version").body.startswith("Python 3")


@pytest.fixture
def google() -> Iterator[str]:
    """An address of this machine that answers as Google does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good, payer = self.headers["Authorization"] == "Bearer t", self.headers["X-Goog-User-Project"]
            self.send_response(200 if good else 403)
            self.end_headers()
            found = {"name": "x", **({"payer": payer} if payer else {})}
            self.wfile.write(json.dumps(found if good else {"error": {"code": 403, "message": "Not you."}}).encode())

        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *_: object) -> None:
            return

    with listening(Handler) as address:
        yield f"http://{address}/v1"


def test_requests_to_google_carry_the_credential(google: str) -> None:
    assert requests.call(f"GET {google}", token="t") == Answer(200, {"name": "x"})
    assert requests.call(f"GET {google}", token="t", payer=PROJECT) == Answer(200, {"name": "x", "payer": PROJECT})
    refused = requests.call(f"GET {google}", token="other")
    assert (refused.code, refused.error) == (403, "Not you.")
    assert requests.call(f"POST {google}", {"permissions": ["a.b.c"]}, "t").body == {"permissions": ["a.b.c"]}
    assert "Not you" not in repr(requests.call(f"GET {google}", token="t"))
    assert requests.call("GET http://127.0.0.1:9/").code == 0


# ------------------------------------------------------------------------------------------------------- the command
def test_mistakes_of_the_configuration_are_reported_first(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, "gke-ai:cluster": {"mode": "huge"}}}))
    with pytest.raises(Stop, match=r"gke-ai:cluster\.mode"):
        doctor.doctor_for("x", file)
    config: dict[str, Any] = {"gcp:project": "acme", "gcp:region": "us-central1-a", "gke-ai:hfToken": "hf_canary"}
    file.write_text(yaml.safe_dump({"config": config}))
    with pytest.raises(Stop, match=r"(?s)3 problems.*gcp:project.*gcp:region.*plain text") as refused:
        doctor.doctor_for("x", file)
    assert "canary" not in str(refused.value)
    config |= {"gcp:project": PROJECT, "gcp:region": "us-central1", "gke-ai:hfToken": {"secure": "v1:a b"}}
    file.write_text(yaml.safe_dump({"config": config}))
    assert doctor.doctor_for("x", file)
    with pytest.raises(Stop, match="There is no configuration"):
        doctor.doctor_for("x", tmp_path / "none.yaml")


def test_a_missing_configuration_names_only_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop, match=r"There is no configuration none.yaml. Write a first one:  gke-ai init$"):
        doctor.doctor_for("x", Path("none.yaml"))
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}")
    with pytest.raises(Stop, match=r"Name one with --config, such as Pulumi.dev.yaml$"):
        doctor.doctor_for("x", Path("none.yaml"))


@pytest.mark.parametrize(("project", "is_named"), [("my-project", True), ("ai-project", False)])
def test_the_placeholder_of_the_examples_is_no_project(project: str, is_named: bool, tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    file.write_text(yaml.safe_dump({"config": {"gcp:project": project, "gke-ai:cluster": STACK["cluster"]}}))
    found = [*doctor.doctor_for("prod", file).placeholder()]
    assert [finding.command for finding in found] == (
        ["pulumi config set --stack prod gcp:project PROJECT_ID"] if is_named else []
    )


def test_the_exit_code_is_1_if_something_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prod.yaml"
    config = {f"gke-ai:{key}": value for key, value in STACK.items()}
    file.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **config}}))
    every = recorded()

    def call(request: str, *_: object) -> Answer:
        answer = {"code": 200} if request.startswith("DIGEST ") else every[request]
        return Answer(answer["code"], answer.get("body"))

    every["gcloud auth list --filter=status:ACTIVE --format=json"]["body"] = []
    assert doctor.show(Stack("prod", file), call) == 1
    assert "gcloud auth login" in capsys.readouterr().out
