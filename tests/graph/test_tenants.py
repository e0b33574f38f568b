"""The resources of a tenant, their order, and the limits that they set."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pulumi
import pytest
import yaml

from emulator.pulumi.kubernetes.readiness import WaitFor
from gke_ai.components import Tenant
from gke_ai.components.queues.tenant import rules
from gke_ai.components.queues.tenant_policy import FURTHER_KINDS, GRACE_SECONDS
from gke_ai.settings import load
from tests.support.mistakes import Configuration, base
from tests.support.network_policies import Pod, allows
from tests.support.recorder import PROJECT, ROOT, Cloud, Record, load_stack, run_program, shared_record

good = partial(base, "tenants")

Build = Callable[..., Record]

GROUP = "gke-security-groups@example.com"

GRANTED = {"local_queues": ["training"], "priority_classes": ["low"], "buckets": ["models"]}
TENANT: dict[str, Any] = {**GRANTED, "namespace": "team-a", "service_accounts": ["workload", "default"]}
both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])


def recorded(values: Configuration, preview: bool = True) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()}, preview)


@pytest.fixture
def tenant(build: Build) -> Build:
    """Builds the tenant with some other arguments."""
    return partial(build, Tenant, TENANT)


def checks(record: Record, part: str = "", name: str | None = None) -> list[dict[str, Any]]:
    """The rules of an admission policy whose message has a part."""
    validations = record.one("ValidatingAdmissionPolicy", name).inputs["spec"]["validations"]
    return [check for check in validations if part in check["message"]]


def hard(record: Record) -> dict[str, str]:
    """The limits of the only quota."""
    limits: dict[str, str] = record.one("ResourceQuota").inputs["spec"]["hard"]
    return limits


def rights(*verbs: str, further: Sequence[str] = ()) -> set[tuple[str, str]]:
    """The kinds, each with its API group, on which a tenant has one of these verbs."""
    return {
        (str(group), str(resource))
        for rule in rules(list(further))
        if {*verbs, "*"} & {*rule["verbs"]}  # type: ignore[misc]
        for group in rule["api_groups"]  # type: ignore[union-attr]
        for resource in rule["resources"]  # type: ignore[union-attr]
    }


@pytest.mark.parametrize(
    ("named", "expected"), [("low", "priority class"), ("models", "bucket"), ("workload", "service account")]
)
def test_a_refusal_has_a_remedy(named: str, expected: str, tenant: Build) -> None:
    own = [check for check in checks(tenant()) if re.search(rf"(set|to|mount) {named}\b", check["message"])]
    (check,) = (check for check in own if "picker" not in check["message"])
    assert expected in check["message"]
    assert f'"{named}"' in check["expression"]


def test_accelerators_are_under_one_of_the_queues(tenant: Build) -> None:
    no_other, some = (check for check in checks(tenant()) if check["message"].endswith("queue-name to training"))
    assert ' in ["", "training"])' in no_other["expression"]
    assert "accelerated" in some["expression"]


def test_a_tenant_without_grants_gets_none(build: Build) -> None:
    record = build(Tenant, {"namespace": "team-a"})
    expressions = [check["expression"] for check in checks(record)]
    assert sum("in []" in expression for expression in expressions) == 2  # buckets, templates of claims
    assert sum('in [""]' in expression for expression in expressions) == 2  # without a queue, without a priority class
    assert checks(record, "because it has none")


def test_the_policy_covers_only_the_tenants_namespace_and_fails_closed(tenant: Build) -> None:
    record = tenant()
    spec = record.one("ValidatingAdmissionPolicy").inputs["spec"]
    assert spec["failurePolicy"] == "Fail"
    constraints = spec["matchConstraints"]
    assert constraints["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    operations = {rule["resources"][0]: set(rule["operations"]) for rule in constraints["resourceRules"]}
    # Deletions pass, but for pods and what has pods, and what the stack publishes.
    guarded = ("pods", "jobs", "jobsets", "deployments", "configmaps", "resourceclaimtemplates", "computedomains")
    assert [operations.pop(kind) for kind in guarded] == [{"CREATE", "UPDATE", "DELETE"}] * 7
    assert operations.pop("resourceclaims") == {"CREATE"}  # the scheduler updates them
    assert [operations.pop(f"pods/{verb}") for verb in ("exec", "attach")] == [{"CONNECT"}] * 2
    assert all(others == {"CREATE", "UPDATE"} for others in operations.values())
    bindings = {item.object_name: item.inputs["spec"] for item in record.all("ValidatingAdmissionPolicyBinding")}
    assert bindings == {
        "tenant-team-a": {"policyName": "tenant-team-a", "validationActions": ["Deny"]},
        # Of a request that breaks several rules, the API server names the first alone, and warns of all.
        "tenant-team-a-warnings": {"policyName": "tenant-team-a", "validationActions": ["Warn"]},
    }


def test_a_tenant_may_not_write_its_own_limits_nor_update_pods() -> None:
    bounds = {
        *("localqueues", "clusterqueues", "workloads", "resourcequotas", "limitranges", "networkpolicies", "roles"),
        *("rolebindings", "serviceaccounts", "serviceaccounts/token", "namespaces", "pods/ephemeralcontainers"),
        *("pods/binding", "nodes", "persistentvolumes", "validatingadmissionpolicies"),
    }
    written = {kind for _, kind in rights("create", "update", "patch", "delete")}
    assert written & bounds == set()
    assert "pods" not in {kind for _, kind in rights("update", "patch")}
    assert not [rule for rule in rules() if "*" in [*rule["resources"], *rule["api_groups"]]]  # type: ignore[misc]


def test_a_jobset_of_the_same_update_waits_until_jobsets_are_counted(tenant: Build) -> None:
    quota = tenant(runs_jobsets=True).one("ResourceQuota")
    waits = quota.inputs["metadata"]["annotations"]["pulumi.com/waitFor"]
    counted = {"pods": "1", "count/jobsets.jobset.x-k8s.io": "0"}
    assert WaitFor(waits).missing({"status": {"hard": quota.inputs["spec"]["hard"], "used": {"pods": "1"}}})
    assert not WaitFor(waits).missing({"status": {"used": counted}})
    assert "annotations" not in tenant().one("ResourceQuota").inputs["metadata"]


def test_every_kind_that_a_tenant_may_create_is_counted(tenant: Build) -> None:
    created = {(group, kind) for group, kind in rights("create") if "/" not in kind}
    assert ("jobset.x-k8s.io", "jobsets") in created
    counted = {f"count/{kind}.{group}" if group else kind for group, kind in created}
    # A Deployment leaves ReplicaSets behind, and the size of a claim is a cost, too.
    assert counted | {"count/replicasets.apps", "requests.storage"} <= hard(tenant()).keys()


GPUS = {"nvidia.com/gpu": 3}
STATED = {"requests.nvidia.com/gpu": "4", "services.loadbalancers": "2", "requests.cpu": "8"}


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        pytest.param({}, {"requests.nvidia.com/gpu": "0", "requests.google.com/tpu": "0"}, id="none without a queue"),
        pytest.param({"accelerators": GPUS}, {"requests.nvidia.com/gpu": "6"}, id="twice those of its queues"),
        pytest.param(
            {"accelerators": GPUS, "quota": STATED}, {**STATED, "services.nodeports": "0"}, id="as configured"
        ),
    ],
)
def test_the_pods_of_a_tenant_request_limited_accelerators(arguments: Any, limits: Any, tenant: Build) -> None:
    assert limits.items() <= hard(tenant(**arguments)).items()


def test_every_kind_that_a_member_may_write_is_judged_by_the_policy(tenant: Build) -> None:
    """Fields, finalizers and sizes; only the scale of a Deployment, and commands in pods, are not."""
    written = {kind for _, kind in rights("create", "update", "patch", further=[*FURTHER_KINDS])}
    spec = tenant(further_kinds=list(FURTHER_KINDS)).one("ValidatingAdmissionPolicy").inputs["spec"]
    judged = {name for rule in spec["matchConstraints"]["resourceRules"] for name in rule["resources"]}
    assert written - judged == {"deployments/scale", "pods/portforward"}


def test_a_member_enters_no_endpoint_picker(tenant: Build) -> None:
    (rule,) = checks(tenant(pickers=["chat-epp"]), "picker, whose")
    assert '!["chat-epp"].exists(picker, request.name.startsWith(picker + ' in rule["expression"]


def test_kuberay_reaches_the_heads_of_ray_clusters_and_nothing_else(tenant: Build) -> None:
    record = tenant(further_kinds=["RayJob", "RayCluster"])
    policies = [dict(record.one("NetworkPolicy", name).inputs) for name in ("ingress", "ingress-kuberay")]
    kuberay, head = Pod("kuberay-system", {}), {"ray.io/node-type": "head"}

    def reached(labels: dict[str, str], port: int) -> bool:
        return allows(policies, kuberay, Pod(TENANT["namespace"], labels), port)

    assert (reached(head, 8265), reached(head, 8000), reached({"app": "any"}, 8265)) == (True, False, False)
    assert not tenant().all("NetworkPolicy")[2:]


@pytest.mark.parametrize(("arguments", "allowed"), [({}, False), ({"pod_security": "privileged"}, True)])
def test_volumes_of_the_node_need_the_level_privileged(arguments: Any, allowed: bool, tenant: Build) -> None:
    (rule,) = checks(tenant(**arguments), "kind that")
    assert ("hostPath" in rule["expression"]) == allowed


def test_ingress_allows_its_own_and_listed_namespaces_metrics_collectors_and_the_api_server(tenant: Build) -> None:
    policy = tenant(ingress_from=["web"]).one("NetworkPolicy", "ingress").inputs

    def reached(namespace: str, **labels: str) -> bool:
        return allows([dict(policy)], Pod(namespace, labels), Pod(TENANT["namespace"], {"app": "any"}), 8000)

    assert all(reached(namespace) for namespace in (TENANT["namespace"], "web", "gmp-system", "gke-gmp-system"))
    # Through these pods, GKE's API server carries the requests of `make smoke`.
    assert reached("kube-system", **{"k8s-app": "konnectivity-agent"})
    assert not reached("kube-system")
    assert not reached("team-b")


def test_egress_allows_metadata_server_and_internet_but_not_the_vpc(tenant: Build) -> None:
    egress = tenant().one("NetworkPolicy", "egress").inputs["spec"]["egress"]
    blocks = {rule["to"][0]["ipBlock"]["cidr"]: rule for rule in egress if "ipBlock" in rule.get("to", [{}])[0]}
    assert blocks["169.254.169.252/32"]["ports"] == [{"protocol": "TCP", "port": 988}]
    assert blocks["169.254.169.254/32"]["ports"] == [{"protocol": "TCP", "port": 80}]
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(blocks["0.0.0.0/0"]["to"][0]["ipBlock"]["except"])


@both
def test_a_tenant_is_created_after_its_namespace_and_before_its_workloads(preview: bool) -> None:
    record = recorded(good(), preview)
    (binding,), (run,) = (
        [item for item in record.all(kind) if item.inputs["metadata"].get("namespace") == "team-a"]
        for kind in ("RoleBinding", "Job")
    )
    assert {"Namespace team-a", "LocalQueue lq"} <= record.waits_for(binding)
    before = {"RoleBinding submit", "ServiceAccount workload", "ValidatingAdmissionPolicyBinding tenant-team-a"}
    assert before <= record.waits_for(run)
    labels = record.one("Namespace", "team-a").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert "labels" not in record.one("Namespace", "llm").inputs["metadata"]


def test_a_service_account_of_a_tenant_is_created_once() -> None:
    accounts = [account.inputs["metadata"] for account in recorded(good()).all("ServiceAccount")]
    inside = sorted(account["name"] for account in accounts if account.get("namespace") == "team-a")
    assert inside == ["deployer", "workload"]


def test_tenants_of_a_bucket_get_grants_and_are_deleted_before_it() -> None:
    record = recorded(good())
    granted = {member.name.split("/")[1] for member in record.all("BucketIAMMember") if member.name.startswith("team-")}
    assert granted == {"team-a", "team-c"}
    assert f"Bucket team-{PROJECT}" in record.waits_for(record.one("Namespace", "team-c"))


@both
def test_a_cluster_that_keeps_a_removed_group_is_refused(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(member: str, kept: str | None) -> Record:
        groups = None if kept is None else {"securityGroup": kept}
        monkeypatch.setattr(Cloud, "kept", {"authenticatorGroupsConfig": groups})
        cluster, tenants = {"name": "c", "location": "us-central1"}, [{"name": "team-a", "members": [member]}]
        return run_program({"gke-ai:cluster": cluster, "gke-ai:tenants": tenants}, preview, monkeypatch)

    for member, kept in (("user:ada@example.com", None), ("user:ada@example.com", ""), ("group:a@example.com", GROUP)):
        assert run(member, kept).one("Cluster")
    with pytest.raises(pulumi.RunError) as refused:
        run("user:ada@example.com", GROUP)
    assert str(refused.value) == (
        f"No group is a member of a tenant any more, and cluster c still uses {GROUP} for Google Groups in RBAC. "
        "Google's provider would keep it. Let a group be a member of a tenant again, or run: gcloud container clusters "
        'update c --location us-central1 --project my-project --security-group="", then pulumi refresh.'
    )


@pytest.mark.parametrize(("name", "queues"), [("team-a", '["", "lq"]'), ("team-c", '[""]')])
def test_each_tenant_is_limited_to_its_own_resources(name: str, queues: str) -> None:
    (check,) = checks(recorded(good()), "queue that", f"tenant-{name}")
    assert f" in {queues})" in check["expression"]


def test_the_pages_configuration_is_good_and_its_job_is_the_tenants_own() -> None:
    page = (ROOT / "docs" / "tenants.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    stated, job, kept = (yaml.safe_load(block) for block in blocks)
    (space,) = load_stack(stated["config"]).spaces
    spec = job["spec"]["template"]["spec"]
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": space.queues[0]}
    assert spec["serviceAccountName"] == space.section.service_account
    assert [spec["priorityClassName"]] == space.section.priority_classes
    assert [spec["volumes"][0]["csi"]["volumeAttributes"]["bucketName"]] == list(space.buckets)
    budgeted = {**stated["config"], **kept["config"]}
    budgeted["gke-ai:queues"] = {**stated["config"]["gke-ai:queues"], **kept["config"]["gke-ai:queues"]}
    assert [queue.name for queue in load_stack(budgeted).held_queues] == ["night"]


def test_pod_without_a_priority_class_is_not_refused() -> None:
    values = good()
    values["queues"]["priorityClasses"].append({"name": "usual", "value": 1, "globalDefault": True})
    assert load(values, PROJECT).spaces[0].priority_classes == ("low", "usual")


def test_the_account_of_a_run_in_the_namespace_is_allowed_and_the_deployer_is_not() -> None:
    values = good()
    values["training"][1]["serviceAccount"] = "own"
    values["buckets"][1]["grants"] = [{"namespace": "team-a", "serviceAccount": "own"}]
    assert load(values, PROJECT).spaces[0].service_accounts == ("workload", "default", "own")


def test_a_bucket_granted_to_the_namespace_may_be_mounted_there() -> None:
    values = good()
    values["buckets"][0]["grants"].append({"namespace": "team-b", "serviceAccount": "default"})
    buckets = [[*space.buckets] for space in load(values, PROJECT).spaces]
    assert buckets == [[f"team-{PROJECT}"], [f"models-{PROJECT}"], [f"team-{PROJECT}"]]


def test_accelerators_of_a_tenant_are_those_of_its_queues_with_what_the_cohort_lends() -> None:
    values = good()
    quota = {"cpu": "40", "memory": "200Gi", "ephemeral-storage": "200Gi", "nvidia.com/gpu": "4"}
    (queue,) = (queue for queue in values["queues"]["clusterQueues"] if queue["name"] == "gpus")
    (flavor,) = queue["flavors"]
    queue |= {"cohort": "all", "flavors": [{**flavor, "quota": quota}]}
    assert load(values, PROJECT).spaces[0].accelerators == {"nvidia.com/gpu": 4}
    assert load(values, PROJECT).spaces[2].accelerators == {}
    lent = {**flavor, "quota": {**quota, "nvidia.com/gpu": "3"}}
    values["queues"]["clusterQueues"].append({"name": "lender", "cohort": "all", "flavors": [lent]})
    assert load(values, PROJECT).spaces[0].accelerators == {"nvidia.com/gpu": 7}


def test_pods_may_take_as_long_to_end_as_the_stacks_own_in_the_namespace() -> None:
    values = good()
    assert load(values, PROJECT).spaces[0].grace_seconds <= GRACE_SECONDS
    values["training"][1]["terminationGracePeriodSeconds"] = 1800
    assert load(values, PROJECT).spaces[0].grace_seconds == 1800
    assert checks(recorded(values), "1800 or less", "tenant-team-a")
