"""The resources of a tenant, their order, and the limits that they set."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
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
from tests.support.recorder import PROJECT, Cloud, Record, load_stack, run_program, shared_record

good = partial(base, "tenants")

Build = Callable[..., Record]

GROUP = "gke-security-groups@example.com"
PAGE = Path(__file__).parent.parent.parent / "docs" / "tenants.md"
TENANT: dict[str, Any] = {
    "namespace": "team-a",
    "local_queues": ["training"],
    "priority_classes": ["low"],
    "buckets": ["models"],
    "service_accounts": ["workload", "default"],
}
both = pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])


def recorded(values: Configuration, preview: bool) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()}, preview)


def checks(record: Record) -> list[dict[str, Any]]:
    """The rules of the only admission policy."""
    validations: list[dict[str, Any]] = record.one("ValidatingAdmissionPolicy").inputs["spec"]["validations"]
    return validations


@pytest.mark.parametrize(
    ("named", "expected"), [("low", "priority class"), ("models", "bucket"), ("workload", "service account")]
)
def test_a_refusal_has_a_remedy(named: str, expected: str, build: Build) -> None:
    (check,) = (
        check
        for check in checks(build(Tenant, TENANT))
        if re.search(rf"(set|to|mount) {named}\b", check["message"]) and "picker" not in check["message"]
    )
    assert expected in check["message"]
    assert f'"{named}"' in check["expression"]


def test_accelerators_are_under_one_of_the_queues(build: Build) -> None:
    no_other, some = (
        check for check in checks(build(Tenant, TENANT)) if check["message"].endswith("queue-name to training")
    )
    assert ' in ["", "training"])' in no_other["expression"]
    assert "accelerated" in some["expression"]


def test_a_tenant_without_grants_gets_none(build: Build) -> None:
    record = build(Tenant, {"namespace": "team-a"})
    expressions = [check["expression"] for check in checks(record)]
    assert sum("in []" in expression for expression in expressions) == 2  # buckets, templates of claims
    assert sum('in [""]' in expression for expression in expressions) == 2  # without a queue, without a priority class
    assert "because it has none" in "".join(check["message"] for check in checks(record))


def test_the_policy_covers_only_the_tenants_namespace_and_fails_closed(build: Build) -> None:
    record = build(Tenant, TENANT)
    spec = record.one("ValidatingAdmissionPolicy").inputs["spec"]
    assert spec["failurePolicy"] == "Fail"
    constraints = spec["matchConstraints"]
    assert constraints["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    operations = {rule["resources"][0]: set(rule["operations"]) for rule in constraints["resourceRules"]}
    # Deletions pass, but for pods and what has pods, and what the stack publishes.
    guarded = ("pods", "jobs", "jobsets", "deployments", "configmaps", "resourceclaimtemplates", "computedomains")
    deletions = [operations.pop(kind) for kind in guarded]
    assert deletions == [{"CREATE", "UPDATE", "DELETE"}] * 7
    assert operations.pop("resourceclaims") == {"CREATE"}  # the scheduler updates them
    assert [operations.pop(f"pods/{verb}") for verb in ("exec", "attach")] == [{"CONNECT"}] * 2
    assert all(others == {"CREATE", "UPDATE"} for others in operations.values())
    bindings = {item.object_name: item.inputs["spec"] for item in record.all("ValidatingAdmissionPolicyBinding")}
    assert bindings == {
        "tenant-team-a": {"policyName": "tenant-team-a", "validationActions": ["Deny"]},
        # Of a request that breaks several rules, the API server names the first alone, and warns of all.
        "tenant-team-a-warnings": {"policyName": "tenant-team-a", "validationActions": ["Warn"]},
    }


def test_a_tenant_may_not_write_its_own_limits() -> None:
    bounds = {
        "localqueues",
        "clusterqueues",
        "workloads",
        "resourcequotas",
        "limitranges",
        "networkpolicies",
        "roles",
        "rolebindings",
        "serviceaccounts",
        "serviceaccounts/token",
        "namespaces",
        "pods/ephemeralcontainers",
        "pods/binding",
        "nodes",
        "persistentvolumes",
        "validatingadmissionpolicies",
    }
    for rule in rules():
        written = {"create", "update", "patch", "delete", "*"} & set(rule["verbs"])  # type: ignore[arg-type]
        assert not written or not bounds & set(rule["resources"]), rule  # type: ignore[arg-type]
        assert "*" not in [*rule["resources"], *rule["api_groups"]]  # type: ignore[misc]


def test_a_tenant_may_not_update_pods() -> None:
    for rule in rules():
        if "pods" in rule["resources"]:  # type: ignore[operator]
            assert not {"update", "patch"} & set(rule["verbs"])  # type: ignore[arg-type]


def test_a_configured_quota_overrides_the_default(build: Build) -> None:
    quota = build(Tenant, TENANT, quota={"services.loadbalancers": "2", "requests.cpu": "8"}).one("ResourceQuota")
    hard = quota.inputs["spec"]["hard"]
    assert (hard["services.loadbalancers"], hard["requests.cpu"], hard["services.nodeports"]) == ("2", "8", "0")


def test_a_jobset_of_the_same_update_waits_until_jobsets_are_counted(build: Build) -> None:
    quota = build(Tenant, TENANT, runs_jobsets=True).one("ResourceQuota")
    waits = quota.inputs["metadata"]["annotations"]["pulumi.com/waitFor"]
    counted = {"pods": "1", "count/jobsets.jobset.x-k8s.io": "0"}
    assert WaitFor(waits).missing({"status": {"hard": quota.inputs["spec"]["hard"], "used": {"pods": "1"}}})
    assert not WaitFor(waits).missing({"status": {"used": counted}})
    assert "annotations" not in build(Tenant, TENANT).one("ResourceQuota").inputs["metadata"]


def test_every_kind_that_a_tenant_may_create_is_counted(build: Build) -> None:
    hard = build(Tenant, TENANT).one("ResourceQuota").inputs["spec"]["hard"]
    created = [
        (group, resource)
        for rule in rules()
        if "create" in rule["verbs"]  # type: ignore[operator]
        for group in rule["api_groups"]  # type: ignore[union-attr]
        for resource in rule["resources"]  # type: ignore[union-attr]
        if "/" not in str(resource)
    ]
    assert ("jobset.x-k8s.io", "jobsets") in created
    for group, resource in created:
        assert (f"count/{resource}.{group}" if group else resource) in hard
    # A Deployment leaves ReplicaSets behind, and the size of a claim is a cost, too.
    assert {"count/replicasets.apps", "requests.storage"} <= set(hard)


def test_the_pods_of_a_tenant_request_up_to_twice_the_accelerators_of_its_queues(build: Build) -> None:
    quota = build(Tenant, TENANT, accelerators={"nvidia.com/gpu": 3}).one("ResourceQuota").inputs["spec"]["hard"]
    assert quota["requests.nvidia.com/gpu"] == "6"
    own = build(Tenant, TENANT, accelerators={"nvidia.com/gpu": 3}, quota={"requests.nvidia.com/gpu": "4"})
    assert own.one("ResourceQuota").inputs["spec"]["hard"]["requests.nvidia.com/gpu"] == "4"


def test_the_pods_of_a_tenant_without_a_queue_have_no_accelerators_even_without_the_policy(build: Build) -> None:
    hard = build(Tenant, TENANT).one("ResourceQuota").inputs["spec"]["hard"]
    assert (hard["requests.nvidia.com/gpu"], hard["requests.google.com/tpu"]) == ("0", "0")


def test_every_kind_that_a_member_may_write_is_judged_by_the_policy(build: Build) -> None:
    """Fields, finalizers and sizes; only the scale of a Deployment, and commands in pods, are not."""
    written = {
        str(resource)
        for rule in rules(list(FURTHER_KINDS))
        if {"create", "update", "patch"} & {*rule["verbs"]}  # type: ignore[misc]
        for resource in rule["resources"]  # type: ignore[union-attr]
    }
    spec = build(Tenant, TENANT, further_kinds=list(FURTHER_KINDS)).one("ValidatingAdmissionPolicy").inputs["spec"]
    judged = {name for rule in spec["matchConstraints"]["resourceRules"] for name in rule["resources"]}
    assert written - judged == {"deployments/scale", "pods/portforward"}


def test_a_member_enters_no_endpoint_picker(build: Build) -> None:
    (rule,) = (
        rule for rule in checks(build(Tenant, TENANT, pickers=["chat-epp"])) if "picker, whose" in rule["message"]
    )
    assert '!["chat-epp"].exists(picker, request.name.startsWith(picker + ' in rule["expression"]


def test_kuberay_reaches_the_heads_of_ray_clusters_and_nothing_else(build: Build) -> None:
    record = build(Tenant, TENANT, further_kinds=["RayJob", "RayCluster"])
    policies = [dict(record.one("NetworkPolicy", name).inputs) for name in ("ingress", "ingress-kuberay")]
    kuberay, head = Pod("kuberay-system", {}), {"ray.io/node-type": "head"}

    def reached(labels: dict[str, str], port: int) -> bool:
        return allows(policies, kuberay, Pod(TENANT["namespace"], labels), port)

    assert (reached(head, 8265), reached(head, 8000), reached({"app": "any"}, 8265)) == (True, False, False)
    assert not build(Tenant, TENANT).all("NetworkPolicy")[2:]


def test_volumes_of_the_node_need_the_level_privileged(build: Build) -> None:
    def volumes(**args: Any) -> str:
        (rule,) = (rule for rule in checks(build(Tenant, TENANT, **args)) if "kind that" in rule["message"])
        return str(rule["expression"])

    assert "hostPath" not in volumes()
    assert "hostPath" in volumes(pod_security="privileged")


def test_ingress_allows_the_namespace_the_listed_namespaces_metrics_collectors_and_the_api_server(build: Build) -> None:
    policy = build(Tenant, TENANT, ingress_from=["web"]).one("NetworkPolicy", "ingress").inputs

    def reached(namespace: str, **labels: str) -> bool:
        return allows([dict(policy)], Pod(namespace, labels), Pod(TENANT["namespace"], {"app": "any"}), 8000)

    assert all(reached(namespace) for namespace in (TENANT["namespace"], "web", "gmp-system", "gke-gmp-system"))
    # Through these pods, GKE's API server carries the requests of `make smoke`.
    assert reached("kube-system", **{"k8s-app": "konnectivity-agent"})
    assert not reached("kube-system")
    assert not reached("team-b")


def test_egress_allows_metadata_server_and_internet_but_not_the_vpc(build: Build) -> None:
    spec = build(Tenant, TENANT).one("NetworkPolicy", "egress").inputs["spec"]
    blocks = {
        rule["to"][0]["ipBlock"]["cidr"]: rule for rule in spec["egress"] if "to" in rule and "ipBlock" in rule["to"][0]
    }
    assert blocks["169.254.169.252/32"]["ports"] == [{"protocol": "TCP", "port": 988}]
    assert blocks["169.254.169.254/32"]["ports"] == [{"protocol": "TCP", "port": 80}]
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(blocks["0.0.0.0/0"]["to"][0]["ipBlock"]["except"])


@both
def test_a_tenant_is_created_after_its_namespace_and_before_its_workloads(preview: bool) -> None:
    record = recorded(good(), preview)
    (binding,) = (
        binding for binding in record.all("RoleBinding") if binding.inputs["metadata"].get("namespace") == "team-a"
    )
    assert {"Namespace team-a", "LocalQueue lq"} <= record.waits_for(binding)
    (run,) = (job for job in record.all("Job") if job.inputs["metadata"]["namespace"] == "team-a")
    assert {"RoleBinding submit", "ServiceAccount workload", "ValidatingAdmissionPolicyBinding tenant-team-a"} <= (
        record.waits_for(run)
    )


@both
def test_a_namespace_of_a_tenant_has_its_pod_security_level(preview: bool) -> None:
    record = recorded(good(), preview)
    labels = record.one("Namespace", "team-a").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    assert "labels" not in record.one("Namespace", "llm").inputs["metadata"]


def test_a_service_account_of_a_tenant_is_created_once() -> None:
    record = recorded(good(), True)
    accounts = [account.inputs["metadata"] for account in record.all("ServiceAccount")]
    inside = sorted(account["name"] for account in accounts if account.get("namespace") == "team-a")
    assert inside == ["deployer", "workload"]


def test_tenants_of_a_bucket_get_grants_and_are_deleted_before_it() -> None:
    record = recorded(good(), True)
    granted = {member.name.split("/")[1] for member in record.all("BucketIAMMember") if member.name.startswith("team-")}
    assert granted == {"team-a", "team-c"}
    assert f"Bucket team-{PROJECT}" in record.waits_for(record.one("Namespace", "team-c"))


@both
def test_a_cluster_that_keeps_a_removed_group_is_refused_with_the_command_that_removes_it(
    preview: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"name": "c", "location": "us-central1"}
    tenant = {"name": "team-a", "members": ["user:ada@example.com"]}

    def run(member: str, kept: str | None) -> Record:
        groups = None if kept is None else {"securityGroup": kept}
        monkeypatch.setattr(Cloud, "kept", {"authenticatorGroupsConfig": groups})
        config = {"gke-ai:cluster": cluster, "gke-ai:tenants": [tenant | {"members": [member]}]}
        return run_program(config, preview, monkeypatch)

    for member, kept in (("user:ada@example.com", None), ("user:ada@example.com", ""), ("group:a@example.com", GROUP)):
        assert run(member, kept).one("Cluster")
    with pytest.raises(pulumi.RunError) as refused:
        run("user:ada@example.com", GROUP)
    assert str(refused.value) == (
        f"No group is a member of a tenant any more, and cluster c still uses {GROUP} for Google Groups in RBAC. "
        "Google's provider would keep it. Let a group be a member of a tenant again, or run: gcloud container clusters "
        'update c --location us-central1 --project my-project --security-group="", then pulumi refresh.'
    )


def test_a_tenant_may_submit_a_jobset() -> None:
    assert recorded(good(), True).one("Release", "jobset")


def test_each_tenant_is_limited_to_its_own_resources() -> None:
    record = recorded(good(), True)
    for name, queues in (("team-a", '["", "lq"]'), ("team-c", '[""]')):
        policy = record.one("ValidatingAdmissionPolicy", f"tenant-{name}").inputs["spec"]
        (check,) = (validation for validation in policy["validations"] if "queue that" in validation["message"])
        assert f" in {queues})" in check["expression"]


def test_the_pages_configuration_is_good_and_its_job_is_the_tenants_own() -> None:
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:]]
    stated, job = (yaml.safe_load(block) for block in blocks)
    (space,) = load_stack(stated["config"]).spaces
    tenant = space.section
    spec = job["spec"]["template"]["spec"]
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": space.queues[0]}
    assert spec["serviceAccountName"] == tenant.service_account
    assert [spec["priorityClassName"]] == tenant.priority_classes
    assert [spec["volumes"][0]["csi"]["volumeAttributes"]["bucketName"]] == list(space.buckets)


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
    assert [list(space.buckets) for space in load(values, PROJECT).spaces] == [
        [f"team-{PROJECT}"],
        [f"models-{PROJECT}"],
        [f"team-{PROJECT}"],
    ]


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
    policy = recorded(values, True).one("ValidatingAdmissionPolicy", "tenant-team-a").inputs["spec"]
    assert any("1800 or less" in rule["message"] for rule in policy["validations"])
