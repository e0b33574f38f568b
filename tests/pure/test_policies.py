"""Each policy on valid stacks and on violations; then waivers, levels and hidden values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pulumi_policy import EnforcementLevel

from gke_ai.kube.values import SECRET, UNKNOWN
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import BUCKET, CLUSTER, FIREWALL, NODE_POOL, SECRET_VERSION
from gke_ai.review.policy.base import Policy, Violation, Waiver, waived
from gke_ai.review.policy.pack import Context, plain, resource, unused_waiver, waivers
from gke_ai.review.policy.rules import POLICIES
from gke_ai.settings import BadConfiguration, load

QUEUE = "kueue.x-k8s.io/queue-name"
SELECTED = {"app": "server"}
# Shaped like a token, so that the rule finds it; put together so that it looks like one nowhere else.
TOKEN = "hf_" + "NotARealTokenButShapedLikeOne"


# --------------------------------------------------------------------------------------------------- what a stack has
def gcp(type_: str, name: str = "x", protect: bool = False, replaced: bool = False, **props: Any) -> Resource:
    """A resource of Google Cloud."""
    return Resource(f"urn:{type_}::{name}", type_, name, {"name": name, **props}, protect, replaced)


def k8s(kind: str, name: str = "x", namespace: str | None = "llm", **props: Any) -> Resource:
    """A Kubernetes object; `labels` and `annotations` go into its metadata."""
    about: dict[str, Any] = {key: props.pop(key) for key in ["labels", "annotations"] if key in props}
    metadata: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {}), **about}
    return Resource(f"urn:{kind}::{name}", f"kubernetes:v1:{kind}", name, {"kind": kind, "metadata": metadata, **props})


def container(**more: Any) -> dict[str, Any]:
    """A container without a violation."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {"name": "main", "image": "example.com/server:1.2", "resources": resources, "readinessProbe": {}, **more}


def asking(**resources: str) -> dict[str, Any]:
    """A container with these additional requests."""
    return container(resources={"limits": {**container()["resources"]["limits"], **resources}})


def gpus(count: str = "2") -> dict[str, Any]:
    return asking(**{"nvidia.com/gpu": count})


def template(*containers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": SELECTED}, "spec": {"containers": list(containers or [container()]), **spec}}


def deployment(*containers: Mapping[str, Any], replicas: Any = 1, labels: Any = None, **spec: Any) -> Resource:
    body = {"replicas": replicas, "template": template(*containers, **spec)}
    return k8s("Deployment", "gemma", labels=labels or {}, spec=body)


def job(*containers: Mapping[str, Any], labels: Any = None, **spec: Any) -> Resource:
    return k8s("Job", "train", labels=labels or {}, spec={"template": template(*containers, **spec)})


def jobset(*containers: Mapping[str, Any], labels: Any = None) -> Resource:
    child = {"template": {"spec": {"template": template(*containers)}}}
    return k8s("JobSet", "slices", labels=labels or {}, spec={"replicatedJobs": [child]})


def flavor(labels: Mapping[str, str] | None = None) -> Resource:
    return k8s("ResourceFlavor", "l4", None, spec={"nodeLabels": labels} if labels else {})


def cluster_queue(name: str = "gpus", **quota: str) -> Resource:
    amounts = quota or {"nvidia.com/gpu": "4"}
    group = {
        "coveredResources": list(amounts),
        "flavors": [
            {"name": "l4", "resources": [{"name": resource, "nominalQuota": amounts[resource]} for resource in amounts]}
        ],
    }
    return k8s("ClusterQueue", name, None, spec={"resourceGroups": [group]})


def pool(max_nodes: int = 2, machine: str = "g2-standard-24", **more: Any) -> Resource:
    config = {
        "machineType": machine,
        "guestAccelerators": [{"type": "nvidia-l4", "count": 2.0}],
        "workloadMetadataConfig": {"mode": "GKE_METADATA"},
        "serviceAccount": "nodes@my-project.iam.gserviceaccount.com",
        **more.pop("config", {}),
    }
    # As the provider sends them: all four counts, zeros included, with a point.
    counts = {"totalMaxNodeCount": float(max_nodes), "maxNodeCount": 0.0, "totalMinNodeCount": 0.0, "minNodeCount": 0.0}
    return gcp(NODE_POOL, "l4", location="us-central1", nodeConfig=config, **{"autoscaling": counts, **more})


def tpu_pool(**more: Any) -> Resource:
    config = {"guestAccelerators": [], **more.pop("config", {})}
    placed = {"type": "COMPACT", "tpuTopology": "4x4"}
    zones = {"nodeLocations": ["us-west4-a"]}
    counts = {"autoscaling": {"maxNodeCount": 4.0}}
    return pool(machine="ct5lp-hightpu-4t", config=config, placementPolicy=placed, **{**zones, **counts, **more})


def cluster(**more: Any) -> Resource:
    props = {
        "workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"},
        "releaseChannel": {"channel": "REGULAR"},
        "privateClusterConfig": {"enablePrivateNodes": True},
        "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]},
    }
    return gcp(CLUSTER, "ai", **{**props, **more})


def bucket(protect: bool = True, **more: Any) -> Resource:
    private = {"uniformBucketLevelAccess": True, "publicAccessPrevention": "enforced"}
    return gcp(BUCKET, "models", protect=protect, **{**private, **more})


def service(**more: Any) -> Resource:
    return k8s("Service", "gemma", annotations=more.pop("annotations", {}), spec={"selector": SELECTED, **more})


def budget(selector: Mapping[str, str] = SELECTED, **more: Any) -> Resource:
    body = {"selector": {"matchLabels": selector}, **(more or {"maxUnavailable": 1.0})}
    return k8s("PodDisruptionBudget", "gemma", spec=body)


def scaler(min_replicas: int) -> Resource:
    target = {"kind": "Deployment", "name": "gemma"}
    return k8s("HorizontalPodAutoscaler", "gemma", spec={"minReplicas": float(min_replicas), "scaleTargetRef": target})


def binding(role: str, kind: str = "RoleBinding", who: str = "Group", name: str = "team@example.com") -> Resource:
    return k8s(kind, "b", roleRef={"kind": "ClusterRole", "name": role}, subjects=[{"kind": who, "name": name}])


def namespace(level: str | None = None) -> Resource:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    return k8s("Namespace", "llm", None, labels=labels)


def network_policy(**spec: Any) -> Resource:
    return k8s("NetworkPolicy", "own", spec={"podSelector": {}, "policyTypes": ["Ingress"], **spec})


QUOTA = k8s("ResourceQuota", "quota", spec={})
NAMESPACE = k8s("Namespace", "llm", None)
LOCAL_QUEUE = k8s("LocalQueue", "lq", spec={"clusterQueue": "gpus"})
TPU = asking(**{"google.com/tpu": "4"})
QUEUED = {QUEUE: "lq"}
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
ON_CLASS = {"nodeSelector": {"cloud.google.com/compute-class": "cheap"}}
COMPUTE_CLASS = k8s("ComputeClass", "cheap", None, spec={})


# ------------------------------------------------------------------------------------------------- what policies say
IN_SECRET = {"secretKeyRef": {"name": "hf-secret", "key": "token"}}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}


def flex_class(**priority: Any) -> Resource:
    flex = {"enabled": True, **priority.pop("flex", {})}
    return k8s("ComputeClass", "cheap", None, spec={"priorities": [{"spot": True}, {"flexStart": flex, **priority}]})


def with_env(**variable: Any) -> Resource:
    return deployment(container(env=[variable]))


def role(verbs: list[str], resources: list[str]) -> Resource:
    return k8s("ClusterRole", "r", None, rules=[{"apiGroups": ["*"], "verbs": verbs, "resources": resources}])


def tpu_queue(chips: str) -> Resource:
    return cluster_queue(**{"google.com/tpu": chips})


def for_all(networks: Any = None, **more: Any) -> Resource:
    """A cluster without authorized networks, or with these."""
    return cluster(masterAuthorizedNetworksConfig=networks, **more)


NO_QUEUE = "have no queue"
QUEUES, L4_QUEUE = [cluster_queue(), flavor(), cluster()], [cluster_queue(), flavor(L4)]
SIX, TOPOLOGY = cluster_queue(**{"nvidia.com/gpu": "6"}), "cloud.google.com/gke-tpu-topology"
TO_OTHER, QUEUED_JOB = job(gpus(), labels={QUEUE: "other"}), job(gpus(), labels=QUEUED)
# By policy and name: a stack, and parts of the messages about it. Without parts, the policy passes.
CASES: dict[str, dict[str, tuple[list[Resource], list[str]]]] = {
    "accelerators-under-a-queue": {
        "under a queue": ([cluster_queue(), flavor(), deployment(gpus(), labels=QUEUED)], []),
        "no queue": ([*QUEUES, deployment(gpus())], [NO_QUEUE]),
        "TPUs": ([tpu_queue("8"), flavor(), pool(), jobset(TPU)], ["JobSet llm/slices: its pods request"]),
        "none wanted": ([*QUEUES, deployment()], []),
        "a stack without queues": ([cluster(), deployment(gpus())], []),
        "a compute class of its own": ([COMPUTE_CLASS, deployment(gpus(), **ON_CLASS)], []),
        "a compute class beside queues": ([*QUEUES, COMPUTE_CLASS, deployment(gpus(), **ON_CLASS)], []),
        "nodes that no flavor is": ([*L4_QUEUE, cluster(), job(gpus(), nodeSelector=dict.fromkeys(L4, "b200"))], []),
        "nodes of a flavor": ([*L4_QUEUE, cluster(), job(gpus(), nodeSelector=L4)], ["its pods request nvidia"]),
        "in somebody else's cluster": ([job(gpus())], [NO_QUEUE]),
        "there, under a queue": ([QUEUED_JOB], []),
        "none of its own": (
            [cluster_queue(), flavor(), LOCAL_QUEUE, NAMESPACE, TO_OTHER],
            ["there is no LocalQueue other in"],
        ),
        "a queue of others in their namespace": ([cluster_queue(), flavor(), LOCAL_QUEUE, TO_OTHER], []),
        "its queue": ([cluster_queue(), LOCAL_QUEUE, QUEUED_JOB], []),
        "a queue not known yet": ([job(gpus(), labels={QUEUE: UNKNOWN})], []),
    },
    "quota-within-capacity": {
        "as many as there are": ([*L4_QUEUE, pool(max_nodes=2)], []),
        "one too many": ([*L4_QUEUE, pool(max_nodes=1)], ["4 nvidia.com/gpu"]),
        "two queues": (
            [*L4_QUEUE, cluster_queue("b"), pool(max_nodes=2)],
            ["queues have quota for 8 nvidia.com/gpu of it, and its pools (l4) have 4"],
        ),
        "all of a machine": ([cluster_queue(cpu="24"), flavor(L4), pool(max_nodes=1)], ["23.144"]),
        "no pool of the stack": ([cluster_queue(), flavor({**L4, "a": "b"}), pool(max_nodes=1)], []),
        "any node, on Autopilot": ([cluster_queue(), flavor(), cluster(enableAutopilot=True)], []),
        "any node of a Standard cluster": ([*QUEUES, pool(max_nodes=1)], ["ResourceFlavor l4"]),
        "a machine not known": ([*L4_QUEUE, pool(machine="x9")], []),
        "zones not known yet": ([*L4_QUEUE, pool(max_nodes=2, nodeLocations=UNKNOWN)], []),
        "a fixed size in three zones": ([SIX, flavor(L4), pool(autoscaling=None, nodeCount=1.0)], []),
        "a slice of sixteen chips": ([tpu_queue("17"), flavor({TOPOLOGY: "4x4"}), tpu_pool()], ["have 16"]),
        "single hosts of a version whose slices have three sides": (
            [tpu_queue("9"), flavor({TOPOLOGY: "2x2x1"}), pool(2, "ct5p-hightpu-4t", config={"guestAccelerators": []})],
            ["have 8"],
        ),
    },
    "flex-start-is-bounded": {
        "a pool": ([pool(config={"flexStart": True, "maxRunDuration": "3600s"})], []),
        "without a bound": ([pool(config={"flexStart": True})], ["no maximum run duration"]),
        "queued": ([pool(queuedProvisioning={"enabled": True})], ["no maximum run duration"]),
        "8 days": ([pool(config={"flexStart": True, "maxRunDuration": "691200s"})], ["691200s"]),
        "on demand": ([pool()], []),
        "not known yet": ([pool(config={"flexStart": True, "maxRunDuration": UNKNOWN})], []),
        "a class with a successor": ([flex_class(flex={"nodeRecycling": {"a": 1}})], []),
        "a class with a bound": ([flex_class(maxRunDurationSeconds=3600)], []),
        "a class without": ([flex_class()], ["priority 1 is flex-start without a maximum run duration"]),
    },
    "resources-are-set": {
        "set": ([deployment()], []),
        "limits alone": ([deployment(gpus())], []),
        "not known yet": ([deployment(container(resources=UNKNOWN))], []),
        "GPUs alone": ([job(container(resources={"limits": {"nvidia.com/gpu": "1"}}))], ["no request for cpu"]),
        "of a JobSet": ([jobset(container(resources={}))], ["JobSet llm/slices: container main"]),
        "no limit": ([deployment(container(resources={"requests": {"cpu": "1", "memory": "1Gi"}}))], ["no limit for"]),
        "of what runs first": ([deployment(initContainers=[container(name="i", resources={})])], ["container i"]),
    },
    "images-are-pinned": {
        "by version": ([deployment()], []),
        "by digest": ([deployment(container(image="example.com/a@sha256:12"))], []),
        "not known yet": ([deployment(container(image=UNKNOWN))], []),
        "no tag": ([deployment(container(image="example.com:5000/a"))], ["has no tag"]),
        "latest": ([job(container(image="a:latest"))], ["the tag of image a:latest can move"]),
    },
    "no-privileged-pods": {
        "plain": ([deployment()], []),
        "harmless": ([deployment(container(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}}))], []),
        "privileged": ([jobset(container(securityContext={"privileged": True}))], ["main is privileged"]),
        "the node's network": ([job(hostNetwork=True)], ["hostNetwork: true"]),
        "the node's disk": ([job(volumes=[{"name": "v", "hostPath": {"path": "/"}}])], ["volume v"]),
        "a right": ([job(container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}))], ["SYS_ADMIN"]),
    },
    "servers-have-a-readiness-probe": {
        "with one": ([service(), deployment()], []),
        "nobody asks it": ([deployment({"name": "a"})], []),
        "without": ([service(), deployment({"name": "a"})], ["Service gemma sends it requests"]),
        "a Job's address": ([service(clusterIP="None"), job({"name": "a"})], []),
    },
    "servers-have-a-disruption-budget": {
        "of one replica": ([deployment()], []),
        "with a budget": ([deployment(replicas=2.0), budget()], []),
        "without": ([deployment(replicas=2.0)], ["it has 2 replicas"]),
        "another's": ([deployment(replicas=2.0), budget({"app": "other"})], ["it has 2"]),
        "with a standby": (
            [k8s("Deployment", spec={"replicas": 2.0, "strategy": {"type": "Recreate"}, "template": template()})],
            [],
        ),
        "scaled": ([deployment(replicas=None), scaler(2)], ["it has 2 replicas"]),
        "not known yet": ([deployment(replicas=UNKNOWN)], []),
        "of none": ([deployment(), budget(maxUnavailable=0.0)], ["no disruption at all"]),
    },
    "no-plain-text-secrets": {
        "a reference": ([with_env(name="HF_TOKEN", valueFrom={"secretKeyRef": {"name": "a"}})], []),
        "no secret": ([with_env(name="MAX_TOTAL_TOKENS", value="2048")], []),
        "a path": ([with_env(name="GOOGLE_APPLICATION_CREDENTIALS", value="/var/run/a")], []),
        "a Pulumi secret": ([k8s("Secret", stringData=SECRET)], []),
        "its values": ([k8s("Secret", data={"token": SECRET})], []),
        "in a Secret": ([k8s("Secret", stringData={"token": "abc"})], ["stringData (token)"]),
        "in a variable": ([with_env(name="API_KEY", value="abc")], ["variable API_KEY"]),
        "in an argument": ([job(container(args=["--token", TOKEN]))], ["args[1] looks like a token"]),
        "in a ConfigMap": ([k8s("ConfigMap", data={"a": f"key={TOKEN}"})], ["data.a looks like"]),
        "in Secret Manager": ([gcp(SECRET_VERSION, secretData="abc")], ["secretData is not a Pulumi secret"]),
        "secret there": ([gcp(SECRET_VERSION, secretData=SECRET)], []),
    },
    "offline-servers-have-no-token": {
        "online": ([with_env(name="HF_TOKEN", valueFrom=IN_SECRET)], []),
        "offline": ([with_env(name="HF_HUB_OFFLINE", value="1")], []),
        "both": (
            [deployment(container(env=[OFFLINE, {"name": "HF_TOKEN", "valueFrom": IN_SECRET}]))],
            ["is offline and has"],
        ),
    },
    "no-service-account-keys": {
        "none": ([gcp("gcp:serviceaccount/account:Account")], []),
        "one": ([gcp("gcp:serviceaccount/key:Key")], ["Key x: this is a service account key"]),
    },
    "buckets-are-private": {
        "private": ([bucket()], []),
        "not known yet": ([bucket(publicAccessPrevention=UNKNOWN)], []),
        "rights by object": ([bucket(uniformBucketLevelAccess=False)], ["access is not uniform"]),
        "inherited": ([bucket(publicAccessPrevention="inherited")], ["not prevented"]),
    },
    "no-public-grants": {
        "to a pod": ([gcp("gcp:storage/bucketIAMMember:BucketIAMMember", member="principal://a")], []),
        "to all": ([gcp("gcp:storage/bucketIAMMember:BucketIAMMember", member="allUsers", role="r")], ["to allUsers"]),
        "in a list": ([gcp("gcp:projects/iAMBinding:IAMBinding", members=["allAuthenticatedUsers"])], ["allAuth"]),
    },
    "data-can-be-restored": {
        "kept": ([bucket(softDeletePolicy={"retentionDurationSeconds": 604800.0})], []),
        "by versions": ([bucket(softDeletePolicy={"retentionDurationSeconds": 0.0}, versioning={"enabled": True})], []),
        "destroyed": ([bucket(forceDestroy=True)], ["deleted together with its objects"]),
        "gone": ([bucket(softDeletePolicy={"retentionDurationSeconds": 0.0})], ["soft delete and versioning are off"]),
    },
    "workload-identity": {
        "on": ([cluster(), pool()], []),
        "Autopilot": ([cluster(enableAutopilot=True, workloadIdentityConfig=None)], []),
        "no pool": ([cluster(workloadIdentityConfig=None)], ["no workload pool"]),
        "the node's": ([pool(config={"workloadMetadataConfig": {"mode": "GCE_METADATA"}})], ["metadata server"]),
        "not said": ([pool(config={"workloadMetadataConfig": None})], ["metadata server"]),
    },
    "nodes-have-an-account-of-their-own": {
        "its own": ([pool()], []),
        "not known yet": ([pool(config={"serviceAccount": UNKNOWN})], []),
        "none said": ([pool(config={"serviceAccount": None})], ["default account"]),
        "the default": ([pool(config={"serviceAccount": "1-compute@developer.gserviceaccount.com"})], ["default"]),
        "of Autopilot": ([cluster(enableAutopilot=True)], ["default account"]),
        "Autopilot's own": (
            [cluster(enableAutopilot=True, clusterAutoscaling={"autoProvisioningDefaults": {"serviceAccount": "a@b"}})],
            [],
        ),
    },
    "release-channel": {
        "in one": ([cluster()], []),
        "none": ([cluster(releaseChannel={"channel": "UNSPECIFIED"})], ["no release channel"]),
    },
    "control-plane-is-not-open": {
        "to some": ([cluster()], []),
        "no address": ([for_all(controlPlaneEndpointsConfig={"ipEndpointsConfig": {"enabled": False}})], []),
        "a private one": ([for_all(privateClusterConfig={"enablePrivateEndpoint": True})], []),
        "to all": ([for_all()], ["open to the whole Internet"]),
        "to all by name": ([for_all({"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]})], ["0.0.0.0/0 may reach"]),
    },
    "nodes-are-private": {
        "private": ([cluster()], []),
        "by default": ([cluster(privateClusterConfig=None, networkConfig=None, defaultEnablePrivateNodes=True)], []),
        "public": ([cluster(privateClusterConfig=None)], ["public IP addresses"]),
    },
    "no-legacy-authentication": {
        "none": ([cluster()], []),
        "authorization": ([cluster(enableLegacyAbac=True)], ["legacy authorization is on"]),
        "certificate": (
            [cluster(masterAuth={"clientCertificateConfig": {"issueClientCertificate": True}})],
            ["client certificate"],
        ),
    },
    "network-policies-are-enforced": {
        "by Dataplane V2": ([network_policy(), cluster(datapathProvider="ADVANCED_DATAPATH")], []),
        "by Autopilot": ([network_policy(), cluster(enableAutopilot=True)], []),
        "none there": ([cluster()], []),
        "by nobody": ([network_policy(), cluster()], ["nothing in this cluster enforces them"]),
    },
    "firewalls-are-not-open": {
        "to some": ([gcp(FIREWALL, sourceRanges=["10.0.0.0/8"], allows=[{"protocol": "tcp"}])], []),
        "out": ([gcp(FIREWALL, direction="EGRESS", sourceRanges=["0.0.0.0/0"], allows=[{}])], []),
        "to all": ([gcp(FIREWALL, sourceRanges=["0.0.0.0/0"], allows=[{"protocol": "tcp"}])], ["traffic from 0.0.0.0"]),
    },
    "no-basic-roles": {
        "a role": ([gcp("gcp:projects/iAMMember:IAMMember", role="roles/container.viewer")], []),
        "editor": ([gcp("gcp:projects/iAMMember:IAMMember", role="roles/editor")], ["grants roles/editor"]),
    },
    "clusters-and-buckets-are-protected": {
        "safe": ([cluster(protect=True, deletionProtection=True), bucket(), pool(replaced=True, protect=True)], []),
        "a cluster": ([cluster(deletionProtection=False)], ["Pulumi can delete it", "Google Cloud can delete it"]),
        "a bucket": ([bucket(protect=False)], ["with its models and checkpoints"]),
        "a pool replaced first": ([pool(replaced=False)], []),
        "a pool that goes first": ([pool(replaced=True)], ["deletes it before it creates the replacement"]),
        "TPUs that go first": ([tpu_pool(replaced=True)], ["deletes it before it creates the replacement"]),
    },
    "no-cluster-admins": {
        "an editor": ([binding("edit")], []),
        "an admin": ([binding("cluster-admin", "ClusterRoleBinding")], ["makes its subjects administrators"]),
        "everyone": ([binding("view", name="system:authenticated")], ["anyone with a Google account"]),
        "all rights": ([role(["*"], ["*"])], ["grants all verbs on all resources"]),
        "all verbs on one": ([role(["*"], ["services"])], []),
    },
    "nothing-is-public": {
        "inside": ([service()], []),
        "an internal load balancer": (
            [service(type="LoadBalancer", annotations={"networking.gke.io/load-balancer-type": "Internal"})],
            [],
        ),
        "a load balancer": ([service(type="LoadBalancer")], ["its load balancer has a public address"]),
        "an Ingress": ([k8s("Ingress", spec={})], ["exposed to the Internet"]),
        "inner Ingress": ([k8s("Ingress", annotations={"kubernetes.io/ingress.class": "gce-internal"}, spec={})], []),
        "a Gateway": ([k8s("Gateway", spec={"gatewayClassName": "gke-l7-global-external-managed"})], ["external"]),
        "an internal Gateway": ([k8s("Gateway", spec={"gatewayClassName": "gke-l7-rilb"})], []),
    },
    "gateways-encrypt": {
        "HTTPS": ([k8s("Gateway", spec={"listeners": [{"protocol": "HTTPS"}]})], []),
        "HTTP": ([k8s("Gateway", spec={"listeners": [{"protocol": "HTTP"}]})], ["it serves HTTP"]),
    },
    "tenants-have-pod-security": {
        "baseline": ([namespace("baseline"), QUOTA], []),
        "not a tenant's": ([namespace()], []),
        "no level": ([namespace(), QUOTA], ["enforces no Pod Security level"]),
        "privileged": ([namespace("privileged"), binding("edit")], ["enforces the level privileged"]),
        "a controller's binding": ([namespace(), binding("edit", who="User", name="system:kube")], []),
    },
    "tenants-are-isolated": {
        "guarded": ([namespace(), QUOTA, network_policy()], []),
        "only some pods": ([namespace(), QUOTA, network_policy(podSelector={"matchLabels": SELECTED})], ["every pod"]),
        "only the remedy": ([namespace(), QUOTA, network_policy(policyTypes=["Egress"])], ["every pod of the cluster"]),
    },
}
BY_NAME = {policy.name: policy for policy in POLICIES}


@pytest.mark.parametrize(
    ("policy", "stack", "finds"),
    [
        pytest.param(BY_NAME[policy], stack, finds, id=f"{policy}: {name}")
        for policy, cases in CASES.items()
        for name, (stack, finds) in cases.items()
    ],
)
def test_policy_finds_only_the_violation(policy: Policy, stack: list[Resource], finds: list[str]) -> None:
    messages = [policy.message(violation) for violation in policy.violations(RegisteredStack(stack))]
    assert len(messages) == len(finds), messages
    for message, part in zip(messages, finds, strict=True):
        assert part in message


def test_message_about_a_token_in_plain_text_does_not_contain_it() -> None:
    policy = BY_NAME["no-secrets-in-configuration"]
    violations = policy.violations(
        RegisteredStack([], {"a:token": TOKEN, "a:hidden": SECRET, "a:name": "token", "a:b": f'{{"c":"{TOKEN}"}}'})
    )
    assert [violation.text.split()[1] for violation in violations] == ["a:token", "a:b"]
    assert TOKEN not in "".join(map(policy.message, violations))


def test_every_policy_has_a_case_that_passes_and_one_that_does_not() -> None:
    assert CASES.keys() == BY_NAME.keys() - {"no-secrets-in-configuration"}
    for policy, cases in CASES.items():
        assert {bool(finds) for _, finds in cases.values()} == {True, False}, policy


def test_names_of_policies_are_distinct() -> None:
    assert len(BY_NAME) == len(POLICIES)


def test_messages_never_hold_the_secret_that_they_are_about() -> None:
    policy = BY_NAME["no-plain-text-secrets"]
    leaks = [with_env(name="TOKEN", value=TOKEN), k8s("Secret", stringData={"a": TOKEN}), job(container(args=[TOKEN]))]
    messages = "".join(map(policy.message, policy.violations(RegisteredStack(leaks))))
    assert messages.count("plain") + messages.count("everyone") >= len(leaks)
    assert TOKEN not in messages


def test_nothing_known_is_no_reason_to_fail() -> None:
    stacks = [stack for cases in CASES.values() for stack, _ in cases.values()]
    kinds = {resource.kind for stack in stacks for resource in stack if resource.is_kubernetes}
    stack = [k8s(kind, spec=UNKNOWN, rules=UNKNOWN, subjects=UNKNOWN, roleRef=UNKNOWN, data=UNKNOWN) for kind in kinds]
    stack += [
        Resource("u", type_, "x", dict.fromkeys(("nodeConfig", "location", "member", "role", "autoscaling"), UNKNOWN))
        for type_ in (NODE_POOL, CLUSTER, BUCKET, FIREWALL)
    ]
    for policy in POLICIES:
        assert all(isinstance(violation, Violation) for violation in policy.violations(RegisteredStack(stack)))


# ------------------------------------------------------------------------------------------------ waivers and levels
def test_waiver_is_for_its_policy_and_its_resource_alone() -> None:
    policy = BY_NAME["no-privileged-pods"]
    (violation,) = policy.violations(RegisteredStack([job(hostNetwork=True)]))
    for waiver, passes in (
        (Waiver(policy.name, "Job llm/train", "why"), True),
        (Waiver(policy.name, "Job llm/tr*", "why"), True),
        (Waiver(policy.name, "Job other/*", "why"), False),
        (Waiver("images-are-pinned", "*", "why"), False),
    ):
        assert (waived(policy, violation, [waiver]) is waiver) == passes


def test_waiver_without_a_reason_is_none() -> None:
    waiver = {"policy": "p", "resource": "r"}
    reasons = [{**waiver, "reason": "why"}, waiver, {**waiver, "reason": ""}]
    assert list(waivers(json.dumps(reasons))) == [Waiver("p", "r", "why")]
    assert list(waivers("[")) == list(waivers("7")) == list(waivers(None)) == []


def test_unused_waiver_has_a_remedy() -> None:
    assert "there is no policy no-such" in unused_waiver(Waiver("no-such", "*", "why"))
    assert "Job llm/a* matches violates images-are-pinned" in unused_waiver(
        Waiver("images-are-pinned", "Job llm/a*", "why")
    )


def test_waiver_of_a_policy_that_does_not_apply_is_unused() -> None:
    waiver = '[{"policy": "clusters-and-buckets-are-protected", "resource": "*", "reason": "r"}]'
    for level, unused in (("advisory", 0), ("mandatory", 1)):
        context = Context()
        context.read("acme", {"acme:policies": level, "acme:waivers": waiver}, [])
        assert len(list(context.unused())) == unused
        assert all(unused_waiver(waiver, context.project).startswith("acme:waivers: ") for waiver in context.unused())


@pytest.mark.parametrize(
    ("stated", "level"), [("mandatory", "MANDATORY"), ("advisory", "ADVISORY"), (None, "ADVISORY")]
)
def test_configuration_decides_whether_a_violation_stops_a_deployment(stated: str | None, level: str) -> None:
    context = Context()
    context.read("acme", {"acme:policies": stated, "gke-ai:policies": "mandatory"} if stated else {}, [])
    assert context.level(BY_NAME["images-are-pinned"]) == EnforcementLevel[level]
    guarded = context.level(BY_NAME["clusters-and-buckets-are-protected"])
    assert guarded == (EnforcementLevel.MANDATORY if stated == "mandatory" else EnforcementLevel.DISABLED)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"a:policies": "mandatry"}, "a:policies is mandatry. It counts as mandatory"),
        ({"a:policies": SECRET}, "counts as mandatory"),
        ({"a:waivers": '[{"policy": "images-are-pinned"}]'}, "a:waivers has entries without"),
        ({"a:waivers": "all"}, "a:waivers has entries without"),
        ({"a:policies": "advisory", "a:waivers": "[]"}, None),
        ({}, None),
    ],
)
def test_invalid_configuration_is_mandatory_and_waives_nothing(stated: dict[str, Any], message: str | None) -> None:
    context = Context()
    context.read("a", stated, [])
    assert context.waivers == ()
    assert ([message in mistake for mistake in context.mistakes] == [True]) if message else not context.mistakes
    assert context.mandatory == ("a:policies" in stated and stated["a:policies"] != "advisory")


def test_secret_configuration_is_left_behind() -> None:
    context = Context()
    context.read("acme", {"acme:hfToken": TOKEN}, ["acme:hfToken"])
    assert TOKEN not in repr(context)


# --------------------------------------------------------------------------------------- what comes from the engine
def test_secrets_and_unknowns_of_the_engine_are_hidden_from_rules() -> None:
    from pulumi.runtime.proto import analyzer_pb2 as messages

    request = messages.AnalyzeRequest(type="kubernetes:core/v1:Secret", urn="u", name="n")
    request.properties.update(
        {
            "stringData": {
                "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
                "value": {"a": TOKEN},
            },
            "list": [{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": TOKEN}, "b"],
            "id": "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        }
    )
    converted = resource(request)
    assert converted.props == {"stringData": SECRET, "list": [SECRET, "b"], "id": UNKNOWN}
    assert TOKEN not in repr(converted)
    assert plain({"a": [1.0, None, True]}) == {"a": [1.0, None, True]}


@pytest.mark.parametrize(
    ("waiver", "path"),
    [
        ({"policy": "images-are-pinned", "resource": "Job a/b"}, "gke-ai:waivers[0].reason"),
        ({"policy": "images-are-pinned", "resource": "Job a/b", "reason": ""}, "gke-ai:waivers[0].reason"),
        ({"policy": "images-are-pinned", "resources": "Job a/b", "reason": "why"}, "gke-ai:waivers[0].resource"),
    ],
)
def test_waiver_that_would_not_count_is_refused_with_the_configuration(waiver: dict[str, str], path: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        load({"waivers": [waiver]}, "my-project")
    assert any(problem.path.startswith(path) for problem in refused.value.problems)


def test_mistyped_level_is_refused_and_not_taken_for_advisory() -> None:
    with pytest.raises(BadConfiguration) as refused:
        load({"policies": "mandatry"}, "my-project")
    assert [problem.path for problem in refused.value.problems] == ["gke-ai:policies"]
