"""`make doctor` on recorded answers in the form of Google's reference: a complete project, and missing requirements."""

import copy
import json
import re
from collections.abc import Callable, Mapping
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


def missing(answers: Answers, stack: Mapping[str, Any] = STACK, **given: Any) -> list[Finding]:
    return [finding for finding in visit(answers, stack, **given) if finding.state == MISSING]


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


def test_recorded_answers_have_the_fields_that_google_s_description_has() -> None:
    answers = [(request, answer["body"]) for request, answer in recorded().items() if answer["code"] == 200]
    for request, body in (of_google := [pair for pair in answers if pair[0].startswith(("GET ", "POST "))]):
        url = request.partition("https://")[2]
        document, name = next(schema for form, schema in TYPES.items() if re.fullmatch(form, url))
        problems = rest.Body(rest.api(document), name, body, {}).problems("answer")
        assert [text for _, text in problems if "is output-only: Google sets it" not in text] == [], url
    assert len(of_google) >= 13


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
DELETED = {"lifecycleState": "DELETE_REQUESTED"}
NO_COMMAND = {"code": 127}
SERVICES = f"{G}serviceusage.googleapis.com"
CLUSTER = f"{G}container.googleapis.com/v1/projects/my-project/locations/us-central1/clusters/ai"
SUBNETWORKS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/subnetworks"


def request_of(every: Answers, beginning: str) -> str:
    """The only request with this beginning."""
    (request,) = [beginning] if beginning in every else [key for key in every if key.startswith(beginning)]
    return request


def answers(every: Answers, request: str, answer: Any) -> None:
    """Changes an answer."""
    every[request_of(every, request)] = answer


def says(every: Answers, request: str, body: dict[str, Any]) -> None:
    """Changes some fields of an answer."""
    every[request_of(every, request)]["body"] |= body


def limit(every: Answers, metric: str, amount: int, used: int = 0, request: str = REGION) -> None:
    (quota,) = (quota for quota in every[request]["body"]["quotas"] if quota["metric"] == metric)
    quota |= {"limit": float(amount), "usage": float(used)}


def not_granted(every: Answers, permission: str) -> None:
    every[PERMISSIONS]["body"]["permissions"].remove(permission)


def switched_off(every: Answers, api: str) -> None:
    for service in every[request_of(every, SERVICES)]["body"]["services"]:
        if service["config"]["name"] == api:
            service["state"] = "DISABLED"


def not_asked_for(every: Answers, *unused: str) -> None:
    """Answers the request for the state of all APIs except these."""
    names = [name for name in (*apis.BEFOREHAND, *apis.REASONS) if name not in unused]
    request = request_of(every, SERVICES)
    query = "&".join(f"names=projects/my-project/services/{name}" for name in names)
    every[f"{request.partition('?')[0]}?{query}"] = every[request]


def only_in(every: Answers, machine: str, *zones: str) -> None:
    items = {f"zones/{zone}": {"machineTypes": [{"name": machine, "zone": zone}]} for zone in zones}
    says(every, MACHINES + machine, {"items": items})


def channel(every: Answers, name: str, version: str) -> None:
    for channel in every[VERSIONS]["body"]["channels"]:
        if channel["channel"] == name:
            channel["defaultVersion"] = version


Change = Callable[..., None]


class Lack(NamedTuple):
    """A missing requirement: the changed answers, and the only finding."""

    id: str
    change: Change
    arguments: list[Any]
    subject: str
    text: str
    command: str


CHANGES: dict[str, Change] = {"answers": answers, "says": says, "limit": limit, "only_in": only_in, "channel": channel}


def lack(row: dict[str, Any]) -> Lack:
    """A row of the table, whose one key of CHANGES has the arguments."""
    (key,) = row.keys() & CHANGES.keys()
    return Lack(row["id"], CHANGES[key], row[key], row["subject"], row["text"], row["command"])


ENABLE = "gcloud services enable {} --project my-project"
CI = "serviceAccount:ci@my-project.iam.gserviceaccount.com"
GRANT_ROLE = f"gcloud projects add-iam-policy-binding my-project --member={CI} --role={{}}"
ROLES = (
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
LACKS = [
    *map(lack, TABLE["missing"]),
    *(
        Lack(f"{api} is disabled", switched_off, [api], "APIs", f"{api} is disabled", ENABLE.format(api))
        for api in [*apis.BEFOREHAND, *apis.REASONS]
    ),
    *(
        Lack(f"no {name}", not_granted, [name], "permissions", f"you lack: {name}", GRANT_ROLE.format(role))
        for role, name in ROLES
    ),
]


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.id)
def test_missing_requirement_is_the_only_finding_with_a_command(lack: Lack, capsys: pytest.CaptureFixture[str]) -> None:
    every = recorded()
    lack.change(every, *lack.arguments)
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
    not_granted(every, "storage.buckets.create")
    (finding,) = missing(every)
    assert f"--member=user:{PERSON} " in finding.command


def test_everything_is_found_at_once() -> None:
    every = recorded()
    names = ("no TPU in the zone", "no secret", "too few L4", "no billing", "no login", "a bucket of one's own")
    for lack in LACKS:
        if lack.id in names:
            lack.change(every, *lack.arguments)
    assert len(missing(every)) == 6


TOKEN = "gcloud auth application-default print-access-token"
OTHERS = "resources of the project"


@pytest.mark.parametrize(
    ("request_", "answer", "text", "command", "unchecked"),
    [
        ("gcloud version --format=json", NO_COMMAND, "", "cloud.google.com/sdk/docs/install", "Google Cloud"),
        (TOKEN, {"code": 1, "error": "none"}, "", "application-default login --project my-project", "Google Cloud"),
        (PROJECT_IS, {"code": 403, "body": {}}, "there is no project", "gcloud projects create my-project", OTHERS),
        (PROJECT_IS, NOT_FOUND, "there is no project", "pulumi config set --stack prod gcp:project", OTHERS),
        (PROJECT_IS, {"code": 200, "body": DELETED}, "is being deleted", "projects undelete", OTHERS),
    ],
    ids=["no gcloud", "no credentials", "a project of others", "no project", "a deleted project"],
)
def test_what_everything_else_needs_is_the_only_finding(
    request_: str, answer: Any, text: str, command: str, unchecked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every = recorded() | {request_: answer}
    if unchecked == "Google Cloud":  # no API of Google is called
        every = {request: answer for request, answer in every.items() if not request.startswith(("GET", "POST"))}
    findings = visit(every)
    (finding,) = (finding for finding in findings if finding.state == MISSING)
    assert text in finding.text
    assert command in finding.command
    assert [finding.subject for finding in findings if finding.state == UNCHECKED] == [unchecked]
    assert doctor.report_findings(findings, "prod") == 1
    assert f"not checked: {unchecked}" in capsys.readouterr().out


DISABLED = {
    "code": 403,
    "body": {"error": {"code": 403, "details": [{"reason": "SERVICE_DISABLED"}]}},
    "error": "Compute Engine API has not been used in project 123456789012 before or it is disabled.",
}


def test_checks_of_a_disabled_api_are_reported_as_not_checked() -> None:
    every = recorded()
    switched_off(every, "compute.googleapis.com")
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
    limit(every, "NVIDIA_L4_GPUS", 10, used=2)
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
    (finding,) = missing(recorded(), changed(buckets=[bucket]))
    assert "no bucket models-my-project to adopt" in finding.text


SET_SECRET = "pulumi config set --stack prod --secret gke-ai:"
WITH_KEY = {**STACK["gateway"], "apiKey": True}


@pytest.mark.parametrize(
    ("stack", "secret", "command"),
    [
        ({key: value for key, value in STACK.items() if key != "hfTokenSecret"}, "token_given", f"{SET_SECRET}hfToken"),
        (changed(gateway=WITH_KEY), "api_key_given", f"openssl rand -hex 32 | {SET_SECRET}gatewayApiKey"),
    ],
    ids=["token", "API key"],
)
def test_a_missing_secret_is_a_finding(stack: dict[str, Any], secret: str, command: str) -> None:
    every = recorded()
    not_asked_for(every, apis.SECRET_MANAGER)
    (finding,) = missing(every, stack, **{secret: False})
    assert finding.command == command
    assert {finding.state for finding in visit(every, stack)} == {GOOD}


def test_apis_that_the_stack_enables_are_not_called_missing() -> None:
    every = recorded()
    not_asked_for(every, *apis.REASONS)
    every[PERMISSIONS]["body"]["permissions"] += ["serviceusage.services.enable", "serviceusage.services.get"]
    assert {finding.state for finding in visit(every, changed(enableApis=True))} == {GOOD}


def existing(**more: Any) -> dict[str, Any]:
    cluster = {"name": "ai", "mode": "existing", "location": "us-central1", **more}
    return {"cluster": cluster, "computeClasses": STACK["computeClasses"]}


def proxies(network: str) -> Any:
    """The answer that a network has a proxy-only subnetwork."""
    items = [{"purpose": "REGIONAL_MANAGED_PROXY", "network": f"https://www.googleapis.com/{network}"}]
    return {"code": 200, "body": {"items": items}}


def with_cluster(answer: Any, further_api: str = "") -> Answers:
    every = recorded()
    every[CLUSTER] = answer
    unused = {apis.IAM, apis.STORAGE, apis.SECRET_MANAGER, apis.NETWORK_SERVICES, apis.CERTIFICATE_MANAGER}
    not_asked_for(every, *(unused | {apis.CONTAINER_FILE_SYSTEM}) - {further_api})
    return every


LOCAL_QUEUE = {"name": "team", "mode": "existing", "namespace": "llm", "clusterQueue": "research"}
BESIDE_OTHERS = {"kueue": "existing", "localQueues": [LOCAL_QUEUE]}


def test_an_existing_cluster_has_the_kueue_and_the_objects_that_the_stack_uses() -> None:
    asked: list[str] = []
    kueue = ExistingKueue("0.18.4", "queueing", "m", cluster_queues={"research": {"spec": {"namespaceSelector": {}}}})
    local_queues = {("llm", "team"): {"spec": {"clusterQueue": "research"}}}
    body = {"currentMasterVersion": "1.34.1-gke.1", "endpoint": "192.0.2.1", "masterAuth": {}}
    every, stack = with_cluster({"code": 200, "body": body}), {**existing(), "queues": BESIDE_OTHERS}

    def kueue_and_its_queue(kubeconfig: str) -> Content:
        asked.append(kubeconfig)
        return Content(kueue, local_queues=local_queues)

    assert {finding.state for finding in visit(every, stack, content=kueue_and_its_queue)} == {GOOD}
    assert "https://192.0.2.1" in asked[0]
    (finding,) = missing(every, stack, content=lambda _: Content())
    assert finding.text == "gke-ai:queues.kueue: the cluster has no Kueue, so nothing would ever start"
    assert finding.command.startswith("Install it first")
    (finding,) = missing(every, stack, content=lambda _: Content(kueue))
    assert finding.text.startswith("gke-ai:queues.localQueues[0].name: the cluster has no local queue team in")
    (finding,) = (finding for finding in visit(every, stack, content=no_cluster) if finding.state == UNCHECKED)
    assert (finding.subject, finding.text) == ("cluster content", "The cluster does not answer")


GRANT = {"buckets": [{"name": "data", "grants": [{"namespace": "llm"}]}]}
RUN = {"name": "t", "accelerator": "nvidia-l4", "gpusPerPod": 1, "volume": {"bucket": "data"}}
TRAINING = {**GRANT, "training": [RUN]}
IDENTITY = {"workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"}}
MOUNTS = {**IDENTITY, "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}}


def test_an_existing_cluster_must_exist_and_be_new_enough() -> None:
    new = with_cluster({"code": 200, "body": {"currentMasterVersion": "1.34.1-gke.1"}})
    assert {finding.state for finding in visit(new, existing())} == {GOOD}
    (finding,) = missing(with_cluster(NOT_FOUND), existing())
    assert "there is no cluster ai in us-central1" in finding.text
    (finding,) = missing(with_cluster({"code": 200, "body": {"currentMasterVersion": "1.30.1-gke.1"}}), existing())
    assert "cluster ai runs 1.30.1-gke.1, and ComputeClass needs 1.30.3-gke.1451000" in finding.text
    assert finding.command.startswith("gcloud container clusters upgrade ai --master --location us-central1")
    assert finding.command.endswith("--cluster-version=1.33.3-gke.1136000")


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
    every = with_cluster({"code": 200, "body": {**body, **lacks}}, apis.STORAGE if more else "")
    every[f"{G}storage.googleapis.com/storage/v1/b/data"] = NOT_FOUND
    for finding, flag in zip(missing(every, {**existing(), **more}), found, strict=True):
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
    pools = [{"name": "old", "version": nodes, "config": {"imageType": image}}]
    body = {"currentMasterVersion": control_plane, **MOUNTS, "nodePools": pools}
    every = with_cluster({"code": 200, "body": body}, apis.STORAGE)
    every[f"{G}storage.googleapis.com/storage/v1/b/data"] = NOT_FOUND
    findings = [item for item in visit(every, {**existing(), **TRAINING}) if item.subject == "Cloud Storage FUSE"]
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
    stacks = {**existing(), "gpuPools": [pool]}, existing()
    wanted = [needs.permissions(settings.load(stack, "my-project")) for stack in stacks]
    assert ["roles/iam.serviceAccountUser" in roles for roles in wanted] == [True, False]


def test_a_configured_network_and_account_must_exist() -> None:
    every = recorded()
    every[f"{G}compute.googleapis.com/compute/v1/projects/host/global/networks/shared"] = NOT_FOUND
    every[SUBNETWORKS.replace("my-project", "host")] = proxies("projects/host/global/networks/shared")
    account = "nodes@my-project.iam.gserviceaccount.com"
    every[f"{G}iam.googleapis.com/v1/projects/-/serviceAccounts/{account}"] = NOT_FOUND
    cluster = {key: value for key, value in STACK["cluster"].items() if key != "vpc"}
    cluster |= {"network": "projects/host/global/networks/shared", "nodeServiceAccount": account}
    not_asked_for(every, apis.IAM)
    assert [item.subject for item in missing(every, changed(cluster=cluster))] == ["network", "node service account"]


NETWORKS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/global/networks"
ROUTERS = f"{G}compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/routers"
ACCOUNTS = f"{G}iam.googleapis.com/v1/projects/-/serviceAccounts"
DEFAULT_ACCOUNT = f"{ACCOUNTS}/123456789012-compute@developer.gserviceaccount.com"


def image_is(letter: str) -> str:
    return "sha256:" + letter * 64


@pytest.mark.parametrize(
    ("answer", "findings"),
    [
        ({"code": 200, "body": image_is("a")}, []),
        ({"code": 200, "body": image_is("b")}, [(ADVICE, "sha256:bbb"), (ADVICE, "sha256:aaa")]),
        ({"code": 404}, [(MISSING, "docker.io has no vllm/vllm-openai:v1. Pods with it would not start")]),
        ({"code": 0, "error": "no route"}, [(UNCHECKED, "docker.io does not respond: no route")]),
        ({"code": 401}, [(UNCHECKED, "docker.io answers 401")]),
    ],
    ids=["the pinned image", "a tag that moved", "no image", "no registry", "a registry that refuses"],
)
def test_the_registry_has_the_pinned_image(answer: Any, findings: list[tuple[str, str]]) -> None:
    every = recorded() | {"DIGEST vllm/vllm-openai:v1": answer}
    stack = changed(serving=[{**STACK["serving"][0], "image": f"vllm/vllm-openai:v1@{image_is('a')}"}])
    reported = [finding for finding in visit(every, stack) if finding.subject == "image"]
    assert len(reported) == bool(findings)
    for state, text in findings:
        assert reported[0].state == state
        assert text == reported[0].text if state == UNCHECKED else text in reported[0].text


POLICY = f"POST {G.removeprefix('GET ')}cloudresourcemanager.googleapis.com/v1/projects/my-project:getIamPolicy"
NODES = "serviceAccount:123456789012-compute@developer.gserviceaccount.com"


def roles_of_nodes(*roles: str, member: str = NODES) -> Any:
    """The IAM policy of the project, in which nodes have these roles."""
    return {"code": 200, "body": {"bindings": [{"role": role, "members": ["user:x", member]} for role in roles]}}


def on_the_default_network(every: Answers, **cluster: Any) -> dict[str, Any]:
    """The stack without a network and an account of its own, and the answers that it is there."""
    not_asked_for(every, apis.IAM)
    every[f"{NETWORKS}/default"] = {"code": 200, "body": {"name": "default"}}
    every[DEFAULT_ACCOUNT] = {"code": 200, "body": {}}
    every[POLICY] = roles_of_nodes("roles/editor")
    every[SUBNETWORKS] = proxies("projects/my-project/global/networks/default")
    every[ROUTERS] = routers({"name": "nat"})
    own = {key: value for key, value in STACK["cluster"].items() if key not in ("vpc", "nodeServiceAccount")}
    return changed(cluster=own | {"privateNodes": False} | cluster)


def routers(*nats: Any) -> Any:
    """The answer that the default network has a router with these NATs."""
    return {"code": 200, "body": {"items": [{"network": f"{NETWORKS}/default".removeprefix("GET "), "nats": nats}]}}


OTHER_PROXIES = proxies("projects/my-project/global/networks/other")
CREATE_PROXIES = "gcloud compute networks subnets create proxies --purpose=REGIONAL_MANAGED_PROXY"
OTHER_PROXIES["body"]["items"].append({"purpose": "PRIVATE", "network": f"{NETWORKS}/default"})


@pytest.mark.parametrize(
    ("request_", "answer", "subject", "text", "command"),
    [
        (f"{NETWORKS}/default", NOT_FOUND, "network", "", ""),
        (
            *(DEFAULT_ACCOUNT, {"code": 200, "body": {"disabled": True}}, "node service account"),
            *("123456789012-compute@developer.gserviceaccount.com is disabled", "cluster.nodeServiceAccount gke-nodes"),
        ),
        (ROUTERS, routers(), "Cloud NAT", "in us-central1, and pods need", "gcloud compute routers nats create"),
        (SUBNETWORKS, OTHER_PROXIES, "proxy-only subnetwork", "in us-central1", CREATE_PROXIES),
    ],
    ids=["network", "account", "NAT", "proxies"],
)
def test_the_default_network_and_account_must_exist(
    request_: str, answer: Any, subject: str, text: str, command: str
) -> None:
    every = recorded()
    stack = on_the_default_network(every, privateNodes=subject == "Cloud NAT")
    assert not missing(every, stack)
    (finding,) = missing(every | {request_: answer}, stack)
    assert finding.subject == subject
    assert (f"network default has no {subject} {text}" if text.startswith("in ") else text) in finding.text
    assert command in finding.command


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
    findings = missing(every, stack)
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
    stack = {
        "cluster": {**existing()["cluster"], "existingMode": "autopilot"},
        "serving": [{**server, "accelerator": "nvidia-l4"}],
        "gateway": {"plainHttp": True, "routes": [{"name": "r", "servers": [{"server": "s"}]}]},
    }
    assert [finding.subject for finding in missing(every, stack)] == found


V2, MULTI = {"datapathProvider": "ADVANCED_DATAPATH"}, "multi-networking"
AGENT = "serviceAccount:service-123456789012@container-engine-robot.iam.gserviceaccount.com"
RDMA_POOL = {"name": "b200", "machineType": "a4-highgpu-8g", "nodesPerZone": 2, "rdma": True}
RDMA_POOL |= {"capacity": {"mode": "reservation", "reservation": "mine"}}
RDMA_CLUSTER = {
    "currentMasterVersion": "1.34.1-gke.1829001",
    "networkConfig": V2,
    **IDENTITY,
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


PRIORITY = {"machineType": "a4-highgpu-8g", "capacity": {"mode": "spot"}}
RDMA_CLASS = {"name": "b200", "rdmaZone": "us-central1-b", "priorities": [PRIORITY]}
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
    (finding,) = missing(every, existing() | {"computeClasses": [RDMA_CLASS]})
    assert "Dataplane V2, which RDMA networks between nodes need" in finding.text


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
    assert [finding.subject for finding in missing(every, {**existing(), "gpuPools": [pool]})] == found


def test_a_compute_class_without_quota_is_advice() -> None:
    every = recorded()
    limit(every, "PREEMPTIBLE_NVIDIA_L4_GPUS", 5)
    server = {"name": "more", "model": "google/gemma-2-9b-it", "computeClass": "spot-first", "gpus": 2, "replicas": 3}
    stack = changed(serving=[*STACK["serving"], server])
    (hint,) = (finding for finding in visit(every, stack) if finding.state == ADVICE)
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS is 5 in us-central1" in hint.text
    assert "gke-ai:computeClasses[0].priorities[0] take up to 6" in hint.text
    assert not missing(every, stack)


# -------------------------------------------------------------------------------------------------------- what it needs
L4 = {"name": "p", "machineType": "g2-standard-24", "nodesPerZone": 1, "zones": ["us-central1-a"]}
V6E = {"name": "v6e", "version": "v6e", "topology": "2x4", "zones": ["us-east5-b"], "nodesPerZone": 2}
SLICES = {"cluster": {"mode": "standard", "location": "us-east5"}, "tpuPools": [V6E]}
GEMMA = {"name": "gemma", "model": "google/gemma-2-9b-it", "accelerator": "nvidia-l4", "gpus": 2, "replicas": 3}
STANDARD = {"mode": "standard", "location": "us-central1"}
RESERVED = {**L4, "capacity": {"mode": "reservation", "reservation": "r"}}


@pytest.mark.parametrize(
    ("stack", "quotas"),
    [
        pytest.param(SLICES, [(None, 24, "us-east5")], id="a quota that the region does not report is not checked"),
        pytest.param(
            {"cluster": {"location": "us-central1"}, "serving": [GEMMA]},
            [("NVIDIA_L4_GPUS", 6, "us-central1")],
            id="workloads on nodes that GKE creates",
        ),
        pytest.param({"cluster": STANDARD, "gpuPools": [L4]}, [("NVIDIA_L4_GPUS", 4, "us-central1")], id="a pool"),
        pytest.param({"cluster": STANDARD, "gpuPools": [RESERVED]}, [], id="a reservation takes no quota"),
    ],
)
def test_accelerators_need_quota(stack: dict[str, Any], quotas: list[tuple[str | None, int, str]]) -> None:
    needed = needs.quotas(settings.load(stack, PROJECT))
    assert [(need.metric, need.count, need.region) for need in needed] == quotas


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
    pool, compute_class = {"name": "p", "nodesPerZone": 1, **machine}, {"name": "c", "priorities": [machine]}
    sections = {"gpuPools": [pool], "computeClasses": [compute_class]}
    stack = settings.load({"cluster": {"mode": "standard"}, section: sections[section]}, PROJECT, True)
    wanted = needs.gke_features(stack)
    assert {feature: features.MINIMUM[feature] for feature in wanted if "ComputeClass" not in feature} == needed


def test_slices_of_v6e_need_a_version_of_gke() -> None:
    wanted = needs.gke_features(settings.load(SLICES, PROJECT))
    assert {feature: features.MINIMUM[feature] for feature in wanted} == {"TPU v6e": "1.31.2-gke.1115000"}


@pytest.mark.parametrize("file", repository.configurations(), ids=str)
def test_every_configuration_of_the_project_can_be_examined(file: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(file.read_text())
    content["config"].setdefault("gcp:project", PROJECT)  # which examples leave to their user
    copied = tmp_path / file.name
    copied.write_text(yaml.safe_dump(content))
    every = recorded()

    def call(request: str, *_: object) -> Answer:
        # What is asked of this stack may not be recorded; then there is no answer.
        answer = every.get(request, {"code": 0, "error": "no network"})
        return Answer(answer["code"], answer.get("body"), answer.get("error", ""))

    findings = list(doctor.doctor_for("x", copied, call).examine())
    assert len(findings) >= 20
    assert not {finding.subject for finding in findings if finding.state == MISSING} & {"Pulumi", "project"}


# --------------------------------------------------------------------------------------------------------------- calls
def test_a_missing_command_has_the_exit_code_of_a_shell() -> None:
    assert requests.call("no-such-command-anywhere --version").code == requests.NOT_FOUND
    assert requests.call("python3 --version").body.startswith("Python 3")


def test_requests_to_google_carry_the_credential() -> None:

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
        url = f"http://{address}/v1"
        assert requests.call(f"GET {url}", token="t") == Answer(200, {"name": "x"})
        assert requests.call(f"GET {url}", token="t", payer=PROJECT) == Answer(200, {"name": "x", "payer": PROJECT})
        refused = requests.call(f"GET {url}", token="other")
        assert (refused.code, refused.error) == (403, "Not you.")
        assert requests.call(f"POST {url}", {"permissions": ["a.b.c"]}, "t").body == {"permissions": ["a.b.c"]}
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


def test_a_missing_configuration_names_only_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop, match=r"There is no configuration none.yaml. Write a first one:  gke-ai init$"):
        doctor.doctor_for("x", Path("none.yaml"))
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}")
    with pytest.raises(Stop, match=r"Name one with --config, such as Pulumi.dev.yaml$"):
        doctor.doctor_for("x", Path("none.yaml"))


def test_the_placeholder_of_the_examples_is_no_project(tmp_path: Path) -> None:
    file = tmp_path / "prod.yaml"
    set_project = "pulumi config set --stack prod gcp:project PROJECT_ID"
    for project, commands in (("my-project", [set_project]), ("ai-project", [])):
        file.write_text(yaml.safe_dump({"config": {"gcp:project": project, "gke-ai:cluster": STACK["cluster"]}}))
        assert [finding.command for finding in doctor.doctor_for("prod", file).placeholder()] == commands


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
