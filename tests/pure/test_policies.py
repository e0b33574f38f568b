"""Each policy on valid stacks and on violations; then waivers, levels and hidden values."""

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

QUEUE, GPU, TPU = "kueue.x-k8s.io/queue-name", "nvidia.com/gpu", "google.com/tpu"
SELECTED, AMOUNTS, NO_GPUS = {"app": "server"}, {"cpu": "1", "memory": "1Gi"}, {"guestAccelerators": list[Any]()}
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
    resources = {"requests": AMOUNTS, "limits": AMOUNTS}
    return {"name": "main", "image": "example.com/server:1.2", "resources": resources, "readinessProbe": {}, **more}


def template(*containers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": SELECTED}, "spec": {"containers": list(containers or [container()]), **spec}}


def deployment(*containers: Mapping[str, Any], replicas: Any = 1, labels: Any = None, **spec: Any) -> Resource:
    body = {"replicas": replicas, "template": template(*containers, **spec)}
    return k8s("Deployment", "gemma", labels=labels or {}, spec=body)


def with_env(*variables: dict[str, Any]) -> Resource:
    return deployment(container(env=[*variables]))


def job(*containers: Mapping[str, Any], labels: Any = None, **spec: Any) -> Resource:
    return k8s("Job", "train", labels=labels or {}, spec={"template": template(*containers, **spec)})


def jobset(*containers: Mapping[str, Any]) -> Resource:
    child = {"template": {"spec": {"template": template(*containers)}}}
    return k8s("JobSet", "slices", labels={}, spec={"replicatedJobs": [child]})


def flavor(labels: Mapping[str, str] | None = None) -> Resource:
    return k8s("ResourceFlavor", "l4", None, spec={"nodeLabels": labels} if labels else {})


def cluster_queue(name: str = "gpus", **quota: str) -> Resource:
    amounts = quota or {GPU: "4"}
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": "l4", "resources": resources}]}
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
    more |= {"placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"}, "autoscaling": {"maxNodeCount": 4.0}}
    return pool(machine="ct5lp-hightpu-4t", config=NO_GPUS, nodeLocations=["us-west4-a"], **more)


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


def budget(selector: Mapping[str, str] = SELECTED, most: float = 1.0) -> Resource:
    body = {"selector": {"matchLabels": selector}, "maxUnavailable": most}
    return k8s("PodDisruptionBudget", "gemma", spec=body)


def binding(role: str, kind: str = "RoleBinding", who: str = "Group", name: str = "team@example.com") -> Resource:
    return k8s(kind, "b", roleRef={"kind": "ClusterRole", "name": role}, subjects=[{"kind": who, "name": name}])


def role(*resources: str) -> Resource:
    return k8s("ClusterRole", "r", None, rules=[{"apiGroups": ["*"], "verbs": ["*"], "resources": [*resources]}])


def namespace(level: str) -> Resource:
    return k8s("Namespace", "llm", None, labels={"pod-security.kubernetes.io/enforce": level})


def network_policy(**spec: Any) -> Resource:
    return k8s("NetworkPolicy", "own", spec={"podSelector": {}, "policyTypes": ["Ingress"], **spec})


def flex_class(**priority: Any) -> Resource:
    """A compute class whose second priority is flex-start."""
    flex = {"flexStart": {"enabled": True, **priority.pop("flex", {})}, **priority}
    return k8s("ComputeClass", "cheap", None, spec={"priorities": [{"spot": True}, flex]})


GPUS = container(resources={"limits": {**AMOUNTS, GPU: "2"}})
TPUS = container(resources={"limits": {**AMOUNTS, TPU: "4"}})
TARGET = {"kind": "Deployment", "name": "gemma"}
SCALER = k8s("HorizontalPodAutoscaler", "gemma", spec={"minReplicas": 2.0, "scaleTargetRef": TARGET})
STANDBY = k8s("Deployment", spec={"replicas": 2.0, "strategy": {"type": "Recreate"}, "template": template()})
QUOTA, NAMESPACE = k8s("ResourceQuota", "quota", spec={}), k8s("Namespace", "llm", None, labels={})
LOCAL_QUEUE = k8s("LocalQueue", "lq", spec={"clusterQueue": "gpus"})
QUEUED, L4 = {QUEUE: "lq"}, {"cloud.google.com/gke-accelerator": "nvidia-l4"}
ON_CLASS = deployment(GPUS, nodeSelector={"cloud.google.com/compute-class": "cheap"})
COMPUTE_CLASS = k8s("ComputeClass", "cheap", None, spec={})
HF_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-secret", "key": "token"}}}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}
OPEN, EVERYONE = {"masterAuthorizedNetworksConfig": None}, {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]}
BUCKET_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
INTERNAL = {"networking.gke.io/load-balancer-type": "Internal"}
CERTIFICATE = {"clientCertificateConfig": {"issueClientCertificate": True}}
OWN_ACCOUNT = {"autoProvisioningDefaults": {"serviceAccount": "a@b"}}
QUEUES, L4_QUEUE = [cluster_queue(), flavor(), cluster()], [cluster_queue(), flavor(L4)]
TPUS_8, TPUS_9, TPUS_17 = (cluster_queue(**{TPU: count}) for count in ("8", "9", "17"))
GPUS_6, TOPOLOGY = cluster_queue(**{GPU: "6"}), "cloud.google.com/gke-tpu-topology"
SINGLE_HOST = pool(2, "ct5p-hightpu-4t", config=NO_GPUS)
TO_OTHER, QUEUED_JOB = job(GPUS, labels={QUEUE: "other"}), job(GPUS, labels=QUEUED)


# ------------------------------------------------------------------------------------------------- what policies say
# By policy and name: a stack, and parts of the messages about it. Without parts, the policy passes.
CASES: dict[str, dict[str, tuple[list[Resource], list[str]]]] = {
    "accelerators-under-a-queue": {
        "under a queue": ([cluster_queue(), flavor(), deployment(GPUS, labels=QUEUED)], []),
        "no queue": ([*QUEUES, deployment(GPUS)], ["have no queue"]),
        "TPUs": ([TPUS_8, flavor(), pool(), jobset(TPUS)], ["JobSet llm/slices: its pods request"]),
        "none wanted": ([*QUEUES, deployment()], []),
        "a stack without queues": ([cluster(), deployment(GPUS)], []),
        "a compute class of its own": ([COMPUTE_CLASS, ON_CLASS], []),
        "a compute class beside queues": ([*QUEUES, COMPUTE_CLASS, ON_CLASS], []),
        "nodes that no flavor is": ([*L4_QUEUE, cluster(), job(GPUS, nodeSelector=dict.fromkeys(L4, "b200"))], []),
        "nodes of a flavor": ([*L4_QUEUE, cluster(), job(GPUS, nodeSelector=L4)], ["its pods request nvidia"]),
        "in somebody else's cluster": ([job(GPUS)], ["have no queue"]),
        "there, under a queue": ([QUEUED_JOB], []),
        "none of its own": ([*QUEUES, LOCAL_QUEUE, NAMESPACE, TO_OTHER], ["there is no LocalQueue other in"]),
        "a queue of others in their namespace": ([cluster_queue(), flavor(), LOCAL_QUEUE, TO_OTHER], []),
        "its queue": ([cluster_queue(), LOCAL_QUEUE, QUEUED_JOB], []),
        "a queue not known yet": ([job(GPUS, labels={QUEUE: UNKNOWN})], []),
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
        "a fixed size in three zones": ([GPUS_6, flavor(L4), pool(autoscaling=None, nodeCount=1.0)], []),
        "a slice of sixteen chips": ([TPUS_17, flavor({TOPOLOGY: "4x4"}), tpu_pool()], ["have 16"]),
        "single hosts of three sides": ([TPUS_9, flavor({TOPOLOGY: "2x2x1"}), SINGLE_HOST], ["have 8"]),
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
        "limits alone": ([deployment(GPUS)], []),
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
        "with a standby": ([STANDBY], []),
        "scaled": ([deployment(replicas=None), SCALER], ["it has 2 replicas"]),
        "not known yet": ([deployment(replicas=UNKNOWN)], []),
        "of none": ([deployment(), budget(most=0.0)], ["no disruption at all"]),
    },
    "no-plain-text-secrets": {
        "a reference": ([with_env(HF_TOKEN)], []),
        "no secret": ([with_env({"name": "MAX_TOTAL_TOKENS", "value": "2048"})], []),
        "a path": ([with_env({"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/var/run/a"})], []),
        "a Pulumi secret": ([k8s("Secret", stringData=SECRET)], []),
        "its values": ([k8s("Secret", data={"token": SECRET})], []),
        "in a Secret": ([k8s("Secret", stringData={"token": "abc"})], ["stringData (token)"]),
        "in a variable": ([with_env({"name": "API_KEY", "value": "abc"})], ["variable API_KEY"]),
        "in an argument": ([job(container(args=["--token", TOKEN]))], ["args[1] looks like a token"]),
        "in a ConfigMap": ([k8s("ConfigMap", data={"a": f"key={TOKEN}"})], ["data.a looks like"]),
        "in Secret Manager": ([gcp(SECRET_VERSION, secretData="abc")], ["secretData is not a Pulumi secret"]),
        "secret there": ([gcp(SECRET_VERSION, secretData=SECRET)], []),
    },
    "offline-servers-have-no-token": {
        "online": ([with_env(HF_TOKEN)], []),
        "offline": ([with_env(OFFLINE)], []),
        "both": ([with_env(OFFLINE, HF_TOKEN)], ["is offline and has"]),
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
        "to a pod": ([gcp(BUCKET_MEMBER, member="principal://a")], []),
        "to all": ([gcp(BUCKET_MEMBER, member="allUsers", role="r")], ["to allUsers"]),
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
        "Autopilot's own": ([cluster(enableAutopilot=True, clusterAutoscaling=OWN_ACCOUNT)], []),
    },
    "release-channel": {
        "in one": ([cluster()], []),
        "none": ([cluster(releaseChannel={"channel": "UNSPECIFIED"})], ["no release channel"]),
    },
    "control-plane-is-not-open": {
        "to some": ([cluster()], []),
        "no address": ([cluster(**OPEN, controlPlaneEndpointsConfig={"ipEndpointsConfig": {"enabled": False}})], []),
        "a private one": ([cluster(**OPEN, privateClusterConfig={"enablePrivateEndpoint": True})], []),
        "to all": ([cluster(**OPEN)], ["open to the whole Internet"]),
        "to all by name": ([cluster(masterAuthorizedNetworksConfig=EVERYONE)], ["0.0.0.0/0 may reach"]),
    },
    "nodes-are-private": {
        "private": ([cluster()], []),
        "by default": ([cluster(privateClusterConfig=None, networkConfig=None, defaultEnablePrivateNodes=True)], []),
        "public": ([cluster(privateClusterConfig=None)], ["public IP addresses"]),
    },
    "no-legacy-authentication": {
        "none": ([cluster()], []),
        "authorization": ([cluster(enableLegacyAbac=True)], ["legacy authorization is on"]),
        "certificate": ([cluster(masterAuth=CERTIFICATE)], ["client certificate"]),
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
        "all rights": ([role("*")], ["grants all verbs on all resources"]),
        "all verbs on one": ([role("services")], []),
    },
    "nothing-is-public": {
        "inside": ([service()], []),
        "an internal load balancer": ([service(type="LoadBalancer", annotations=INTERNAL)], []),
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
        "not a tenant's": ([NAMESPACE], []),
        "no level": ([NAMESPACE, QUOTA], ["enforces no Pod Security level"]),
        "privileged": ([namespace("privileged"), binding("edit")], ["enforces the level privileged"]),
        "a controller's binding": ([NAMESPACE, binding("edit", who="User", name="system:kube")], []),
    },
    "tenants-are-isolated": {
        "guarded": ([NAMESPACE, QUOTA, network_policy()], []),
        "only some pods": ([NAMESPACE, QUOTA, network_policy(podSelector={"matchLabels": SELECTED})], ["every pod"]),
        "only the remedy": ([NAMESPACE, QUOTA, network_policy(policyTypes=["Egress"])], ["every pod of the cluster"]),
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


def test_every_policy_has_a_case_that_passes_and_one_that_does_not() -> None:
    assert len(BY_NAME) == len(POLICIES)
    assert CASES.keys() == BY_NAME.keys() - {"no-secrets-in-configuration"}
    for policy, cases in CASES.items():
        assert {bool(finds) for _, finds in cases.values()} == {True, False}, policy


def test_messages_about_secrets_in_plain_text_never_hold_them() -> None:
    policy = BY_NAME["no-secrets-in-configuration"]
    values = {"a:token": TOKEN, "a:hidden": SECRET, "a:name": "token", "a:b": f'{{"c":"{TOKEN}"}}'}
    violations = policy.violations(RegisteredStack([], values))
    assert [violation.text.split()[1] for violation in violations] == ["a:token", "a:b"]
    policy_of_resources = BY_NAME["no-plain-text-secrets"]
    resources = [k8s("Secret", stringData={"a": TOKEN}), job(container(args=[TOKEN]))]
    leaks = RegisteredStack([with_env({"name": "TOKEN", "value": TOKEN}), *resources])
    messages = "".join(map(policy_of_resources.message, policy_of_resources.violations(leaks)))
    assert messages.count("plain") + messages.count("everyone") >= len(leaks.resources)
    assert TOKEN not in "".join([messages, *map(policy.message, violations)])


def test_nothing_known_is_no_reason_to_fail() -> None:
    stacks = [stack for cases in CASES.values() for stack, _ in cases.values()]
    kinds = {resource.kind for stack in stacks for resource in stack if resource.is_kubernetes}
    stack = [k8s(kind, spec=UNKNOWN, rules=UNKNOWN, subjects=UNKNOWN, roleRef=UNKNOWN, data=UNKNOWN) for kind in kinds]
    unknown = dict.fromkeys(("nodeConfig", "location", "member", "role", "autoscaling"), UNKNOWN)
    stack += [Resource("u", type_, "x", unknown) for type_ in (NODE_POOL, CLUSTER, BUCKET, FIREWALL)]
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
    unused = unused_waiver(Waiver("images-are-pinned", "Job llm/a*", "why"))
    assert "Job llm/a* matches violates images-are-pinned" in unused


def test_waiver_of_a_policy_that_does_not_apply_is_unused() -> None:
    waiver = '[{"policy": "clusters-and-buckets-are-protected", "resource": "*", "reason": "r"}]'
    for level, unused in (("advisory", 0), ("mandatory", 1)):
        context = Context()
        context.read("acme", {"acme:policies": level, "acme:waivers": waiver}, [])
        assert len(list(context.unused())) == unused
        assert all(unused_waiver(waiver, context.project).startswith("acme:waivers: ") for waiver in context.unused())


@pytest.mark.parametrize(
    ("stated", "mandatory", "message"),
    [
        ({"a:policies": "mandatory"}, True, ""),
        ({"a:policies": "advisory", "a:waivers": "[]", "gke-ai:policies": "mandatory"}, False, ""),
        ({}, False, ""),
        ({"a:policies": "mandatry"}, True, "a:policies is mandatry. It counts as mandatory"),
        ({"a:policies": SECRET}, True, "counts as mandatory"),
        ({"a:waivers": '[{"policy": "images-are-pinned"}]'}, False, "a:waivers has entries without"),
        ({"a:waivers": "all"}, False, "a:waivers has entries without"),
    ],
)
def test_configuration_decides_what_stops_a_deployment(stated: Any, mandatory: bool, message: str) -> None:
    context = Context()
    context.read("a", stated, [])
    assert (context.mandatory, context.waivers) == (mandatory, ())
    assert [message in mistake for mistake in context.mistakes] == ([True] if message else [])
    levels = [context.level(BY_NAME[name]) for name in ("images-are-pinned", "clusters-and-buckets-are-protected")]
    other = [EnforcementLevel.ADVISORY, EnforcementLevel.DISABLED]
    assert levels == ([EnforcementLevel.MANDATORY] * 2 if mandatory else other)


def test_secret_configuration_is_left_behind() -> None:
    context = Context()
    context.read("acme", {"acme:hfToken": TOKEN}, ["acme:hfToken"])
    assert TOKEN not in repr(context)


# --------------------------------------------------------------------------------------- what comes from the engine
def test_secrets_and_unknowns_of_the_engine_are_hidden_from_rules() -> None:
    from pulumi.runtime.proto import analyzer_pb2 as messages

    request = messages.AnalyzeRequest(type="kubernetes:core/v1:Secret", urn="u", name="n")
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": TOKEN}
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    request.properties.update({"stringData": {**secret, "value": {"a": TOKEN}}, "list": [secret, "b"], "id": unknown})
    converted = resource(request)
    assert converted.props == {"stringData": SECRET, "list": [SECRET, "b"], "id": UNKNOWN}
    assert TOKEN not in repr(converted)
    assert plain({"a": [1.0, None, True]}) == {"a": [1.0, None, True]}


@pytest.mark.parametrize(
    ("key", "stated", "path"),
    [
        ("waivers", [{"policy": "images-are-pinned", "resource": "Job a/b"}], "waivers[0].reason"),
        ("waivers", [{"policy": "images-are-pinned", "resource": "Job a/b", "reason": ""}], "waivers[0].reason"),
        ("waivers", [{"policy": "images-are-pinned", "resources": "*", "reason": "why"}], "waivers[0].resources"),
        ("policies", "mandatry", "policies"),
    ],
)
def test_level_or_waiver_that_would_not_count_is_refused(key: str, stated: Any, path: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        load({key: stated}, "my-project")
    assert [problem.path for problem in refused.value.problems] == [f"gke-ai:{path}"]
