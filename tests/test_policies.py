"""Each policy on valid stacks and on violations; then waivers, levels and hidden values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from pulumi_policy import EnforcementLevel

from gke_ai.kube.values import SECRET, UNKNOWN
from gke_ai.registered.policy.base import Policy, Violation, Waiver, waived
from gke_ai.registered.policy.pack import RENAMED, Context, plain, resource, unused_waiver, waivers
from gke_ai.registered.policy.rules import POLICIES
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import BUCKET, CLUSTER, FIREWALL, NODE_POOL, SECRET_VERSION
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
    base = container()["resources"]["limits"]
    return container(resources={"limits": {**base, **resources}})


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
    annotations = more.pop("annotations", {})
    return k8s("Service", "gemma", annotations=annotations, spec={"selector": SELECTED, **more})


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
LOCAL_QUEUE = k8s("LocalQueue", "lq", spec={"clusterQueue": "gpus"})
TPU = asking(**{"google.com/tpu": "4"})
QUEUED = {QUEUE: "lq"}
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
ON_CLASS = {"nodeSelector": {"cloud.google.com/compute-class": "cheap"}}
COMPUTE_CLASS = k8s("ComputeClass", "cheap", None, spec={})


# ------------------------------------------------------------------------------------------------- what policies say
class Case(NamedTuple):
    """A stack, and parts of the messages of a policy about it; no parts if the policy passes."""

    policy: str
    name: str
    stack: list[Resource]
    finds: list[str]


IN_SECRET = {"secretKeyRef": {"name": "hf-secret", "key": "token"}}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}


def flex_class(**priority: Any) -> Resource:
    flex = {"enabled": True, **priority.pop("flex", {})}
    return k8s("ComputeClass", "cheap", None, spec={"priorities": [{"spot": True}, {"flexStart": flex, **priority}]})


def with_env(**variable: Any) -> Resource:
    return deployment(container(env=[variable]))


def role(verbs: list[str], resources: list[str]) -> Resource:
    return k8s("ClusterRole", "r", None, rules=[{"apiGroups": ["*"], "verbs": verbs, "resources": resources}])


NO_QUEUE = "have no queue"
CASES = [
    Case(
        "accelerators-under-a-queue",
        "under a queue",
        [cluster_queue(), flavor(), deployment(gpus(), labels=QUEUED)],
        [],
    ),
    Case(
        "accelerators-under-a-queue", "no queue", [cluster_queue(), flavor(), cluster(), deployment(gpus())], [NO_QUEUE]
    ),
    Case(
        "accelerators-under-a-queue",
        "TPUs of a JobSet",
        [cluster_queue(**{"google.com/tpu": "8"}), flavor(), pool(), jobset(TPU)],
        ["JobSet llm/slices: its pods request google.com/tpu"],
    ),
    Case("accelerators-under-a-queue", "none wanted", [cluster_queue(), flavor(), cluster(), deployment()], []),
    Case("accelerators-under-a-queue", "a stack without queues", [cluster(), deployment(gpus())], []),
    Case(
        "accelerators-under-a-queue", "a compute class of its own", [COMPUTE_CLASS, deployment(gpus(), **ON_CLASS)], []
    ),
    Case(
        "accelerators-under-a-queue",
        "a compute class beside queues",
        [cluster_queue(), flavor(), cluster(), COMPUTE_CLASS, deployment(gpus(), **ON_CLASS)],
        [],
    ),
    Case(
        "accelerators-under-a-queue",
        "nodes that no flavor is",
        [cluster_queue(), flavor(L4), cluster(), job(gpus(), nodeSelector={**L4, next(iter(L4)): "nvidia-b200"})],
        [],
    ),
    Case(
        "accelerators-under-a-queue",
        "nodes of a flavor",
        [cluster_queue(), flavor(L4), cluster(), job(gpus(), nodeSelector=L4)],
        ["Job llm/train: its pods request nvidia.com/gpu"],
    ),
    Case("accelerators-under-a-queue", "in somebody else's cluster", [job(gpus())], [NO_QUEUE]),
    Case("accelerators-under-a-queue", "there, under a queue", [job(gpus(), labels=QUEUED)], []),
    Case(
        "accelerators-under-a-queue",
        "a queue of another namespace",
        [cluster_queue(), flavor(), LOCAL_QUEUE, job(gpus(), labels={QUEUE: "other"})],
        ["there is no LocalQueue other in namespace llm"],
    ),
    Case("accelerators-under-a-queue", "its queue", [cluster_queue(), LOCAL_QUEUE, job(gpus(), labels=QUEUED)], []),
    Case("accelerators-under-a-queue", "a queue not known yet", [job(gpus(), labels={QUEUE: UNKNOWN})], []),
    Case("quota-within-capacity", "as many as there are", [cluster_queue(), flavor(L4), pool(max_nodes=2)], []),
    Case(
        "quota-within-capacity", "one too many", [cluster_queue(), flavor(L4), pool(max_nodes=1)], ["4 nvidia.com/gpu"]
    ),
    Case(
        "quota-within-capacity",
        "two queues of one flavor",
        [cluster_queue("a"), cluster_queue("b"), flavor(L4), pool(max_nodes=2)],
        ["queues have quota for 8 nvidia.com/gpu of it, and its pools (l4) have 4"],
    ),
    Case(
        "quota-within-capacity",
        "all of a machine",
        [cluster_queue(cpu="24"), flavor(L4), pool(max_nodes=1)],
        ["23.144"],
    ),
    Case(
        "quota-within-capacity",
        "no pool of the stack",
        [cluster_queue(), flavor({**L4, "a": "b"}), pool(max_nodes=1)],
        [],
    ),
    Case(
        "quota-within-capacity",
        "any node, on Autopilot",
        [cluster_queue(), flavor(), cluster(enableAutopilot=True)],
        [],
    ),
    Case(
        "quota-within-capacity",
        "any node of a Standard cluster",
        [cluster_queue(), flavor(), cluster(), pool(max_nodes=1)],
        ["ResourceFlavor l4"],
    ),
    Case("quota-within-capacity", "a machine not known", [cluster_queue(), flavor(L4), pool(machine="x9")], []),
    Case(
        "quota-within-capacity",
        "zones not known yet",
        [cluster_queue(), flavor(L4), pool(max_nodes=2, nodeLocations=UNKNOWN)],
        [],
    ),
    Case(
        "quota-within-capacity",
        "a fixed size in three zones",
        [cluster_queue(**{"nvidia.com/gpu": "6"}), flavor(L4), pool(autoscaling=None, nodeCount=1.0)],
        [],
    ),
    Case(
        "quota-within-capacity",
        "a slice of sixteen chips",
        [cluster_queue(**{"google.com/tpu": "17"}), flavor({"cloud.google.com/gke-tpu-topology": "4x4"}), tpu_pool()],
        ["have 16"],
    ),
    Case(
        "quota-within-capacity",
        "single hosts of a version whose slices have three sides",
        [
            cluster_queue(**{"google.com/tpu": "9"}),
            flavor({"cloud.google.com/gke-tpu-topology": "2x2x1"}),
            pool(machine="ct5p-hightpu-4t", max_nodes=2, config={"guestAccelerators": []}),
        ],
        ["have 8"],
    ),
    Case("flex-start-is-bounded", "a pool", [pool(config={"flexStart": True, "maxRunDuration": "3600s"})], []),
    Case("flex-start-is-bounded", "without a bound", [pool(config={"flexStart": True})], ["no maximum run duration"]),
    Case("flex-start-is-bounded", "queued", [pool(queuedProvisioning={"enabled": True})], ["no maximum run duration"]),
    Case(
        "flex-start-is-bounded", "8 days", [pool(config={"flexStart": True, "maxRunDuration": "691200s"})], ["691200s"]
    ),
    Case("flex-start-is-bounded", "on demand", [pool()], []),
    Case("flex-start-is-bounded", "not known yet", [pool(config={"flexStart": True, "maxRunDuration": UNKNOWN})], []),
    Case("flex-start-is-bounded", "a class with a successor", [flex_class(flex={"nodeRecycling": {"a": 1}})], []),
    Case("flex-start-is-bounded", "a class with a bound", [flex_class(maxRunDurationSeconds=3600)], []),
    Case(
        "flex-start-is-bounded",
        "a class without",
        [flex_class()],
        ["priority 1 is flex-start without a maximum run duration"],
    ),
    Case("resources-are-set", "set", [deployment()], []),
    Case("resources-are-set", "limits alone", [deployment(gpus())], []),
    Case("resources-are-set", "not known yet", [deployment(container(resources=UNKNOWN))], []),
    Case(
        "resources-are-set",
        "GPUs alone",
        [job(container(resources={"limits": {"nvidia.com/gpu": "1"}}))],
        ["no request for cpu"],
    ),
    Case("resources-are-set", "of a JobSet", [jobset(container(resources={}))], ["JobSet llm/slices: container main"]),
    Case(
        "resources-are-set",
        "no limit for memory",
        [deployment(container(resources={"requests": {"cpu": "1", "memory": "1Gi"}}))],
        ["has no limit for memory"],
    ),
    Case(
        "resources-are-set",
        "of what runs first",
        [deployment(initContainers=[container(name="i", resources={})])],
        ["container i"],
    ),
    Case("images-are-pinned", "by version", [deployment()], []),
    Case("images-are-pinned", "by digest", [deployment(container(image="example.com/a@sha256:12"))], []),
    Case("images-are-pinned", "not known yet", [deployment(container(image=UNKNOWN))], []),
    Case("images-are-pinned", "no tag", [deployment(container(image="example.com:5000/a"))], ["has no tag"]),
    Case("images-are-pinned", "latest", [job(container(image="a:latest"))], ["the tag of image a:latest can move"]),
    Case("no-privileged-pods", "plain", [deployment()], []),
    Case(
        "no-privileged-pods",
        "a harmless right",
        [deployment(container(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}}))],
        [],
    ),
    Case(
        "no-privileged-pods",
        "privileged",
        [jobset(container(securityContext={"privileged": True}))],
        ["main is privileged"],
    ),
    Case("no-privileged-pods", "the node's network", [job(hostNetwork=True)], ["hostNetwork: true"]),
    Case(
        "no-privileged-pods", "the node's disk", [job(volumes=[{"name": "v", "hostPath": {"path": "/"}}])], ["volume v"]
    ),
    Case(
        "no-privileged-pods",
        "a right",
        [job(container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}))],
        ["SYS_ADMIN"],
    ),
    Case("servers-have-a-readiness-probe", "with one", [service(), deployment()], []),
    Case("servers-have-a-readiness-probe", "nobody asks it", [deployment({"name": "a"})], []),
    Case(
        "servers-have-a-readiness-probe",
        "without",
        [service(), deployment({"name": "a"})],
        ["Service gemma sends it requests"],
    ),
    Case("servers-have-a-readiness-probe", "a Job's address", [service(clusterIP="None"), job({"name": "a"})], []),
    Case("servers-have-a-disruption-budget", "of one replica", [deployment()], []),
    Case("servers-have-a-disruption-budget", "with a budget", [deployment(replicas=2.0), budget()], []),
    Case("servers-have-a-disruption-budget", "without", [deployment(replicas=2.0)], ["it has 2 replicas"]),
    Case(
        "servers-have-a-disruption-budget",
        "another's",
        [deployment(replicas=2.0), budget({"app": "other"})],
        ["it has 2"],
    ),
    Case(
        "servers-have-a-disruption-budget",
        "with a standby",
        [k8s("Deployment", spec={"replicas": 2.0, "strategy": {"type": "Recreate"}, "template": template()})],
        [],
    ),
    Case("servers-have-a-disruption-budget", "scaled", [deployment(replicas=None), scaler(2)], ["it has 2 replicas"]),
    Case("servers-have-a-disruption-budget", "not known yet", [deployment(replicas=UNKNOWN)], []),
    Case(
        "servers-have-a-disruption-budget",
        "of none",
        [deployment(), budget(maxUnavailable=0.0)],
        ["no disruption at all"],
    ),
    Case(
        "no-plain-text-secrets",
        "a reference",
        [with_env(name="HF_TOKEN", valueFrom={"secretKeyRef": {"name": "a"}})],
        [],
    ),
    Case("offline-servers-have-no-token", "online", [with_env(name="HF_TOKEN", valueFrom=IN_SECRET)], []),
    Case("offline-servers-have-no-token", "offline", [with_env(name="HF_HUB_OFFLINE", value="1")], []),
    Case(
        "offline-servers-have-no-token",
        "both",
        [deployment(container(env=[OFFLINE, {"name": "HF_TOKEN", "valueFrom": IN_SECRET}]))],
        ["container main is offline and has HF_TOKEN"],
    ),
    Case("no-plain-text-secrets", "no secret", [with_env(name="MAX_TOTAL_TOKENS", value="2048")], []),
    Case("no-plain-text-secrets", "a path", [with_env(name="GOOGLE_APPLICATION_CREDENTIALS", value="/var/run/a")], []),
    Case("no-plain-text-secrets", "a Pulumi secret", [k8s("Secret", stringData=SECRET)], []),
    Case("no-plain-text-secrets", "its values", [k8s("Secret", data={"token": SECRET})], []),
    Case("no-plain-text-secrets", "in a Secret", [k8s("Secret", stringData={"token": "abc"})], ["stringData (token)"]),
    Case("no-plain-text-secrets", "in a variable", [with_env(name="API_KEY", value="abc")], ["variable API_KEY"]),
    Case(
        "no-plain-text-secrets",
        "in an argument",
        [job(container(args=["--token", TOKEN]))],
        ["args[1] looks like a token"],
    ),
    Case(
        "no-plain-text-secrets", "in a ConfigMap", [k8s("ConfigMap", data={"a": f"key={TOKEN}"})], ["data.a looks like"]
    ),
    Case(
        "no-plain-text-secrets",
        "in Secret Manager",
        [gcp(SECRET_VERSION, secretData="abc")],
        ["secretData is not a Pulumi secret"],
    ),
    Case("no-plain-text-secrets", "secret there", [gcp(SECRET_VERSION, secretData=SECRET)], []),
    Case("no-service-account-keys", "none", [gcp("gcp:serviceaccount/account:Account")], []),
    Case(
        "no-service-account-keys",
        "one",
        [gcp("gcp:serviceaccount/key:Key")],
        ["Key x: this is a service account key"],
    ),
    Case("buckets-are-private", "private", [bucket()], []),
    Case("buckets-are-private", "not known yet", [bucket(publicAccessPrevention=UNKNOWN)], []),
    Case(
        "buckets-are-private", "rights by object", [bucket(uniformBucketLevelAccess=False)], ["access is not uniform"]
    ),
    Case("buckets-are-private", "inherited", [bucket(publicAccessPrevention="inherited")], ["not prevented"]),
    Case(
        "no-public-grants", "to a pod", [gcp("gcp:storage/bucketIAMMember:BucketIAMMember", member="principal://a")], []
    ),
    Case(
        "no-public-grants",
        "to all",
        [gcp("gcp:storage/bucketIAMMember:BucketIAMMember", member="allUsers", role="r")],
        ["r is granted to allUsers"],
    ),
    Case(
        "no-public-grants",
        "in a list",
        [gcp("gcp:projects/iAMBinding:IAMBinding", members=["allAuthenticatedUsers"])],
        ["allAuthenticatedUsers"],
    ),
    Case("data-can-be-restored", "kept", [bucket(softDeletePolicy={"retentionDurationSeconds": 604800.0})], []),
    Case(
        "data-can-be-restored",
        "by versions",
        [bucket(softDeletePolicy={"retentionDurationSeconds": 0.0}, versioning={"enabled": True})],
        [],
    ),
    Case("data-can-be-restored", "destroyed", [bucket(forceDestroy=True)], ["deleted together with its objects"]),
    Case(
        "data-can-be-restored",
        "gone",
        [bucket(softDeletePolicy={"retentionDurationSeconds": 0.0})],
        ["soft delete and versioning are off"],
    ),
    Case("workload-identity", "on", [cluster(), pool()], []),
    Case("workload-identity", "Autopilot", [cluster(enableAutopilot=True, workloadIdentityConfig=None)], []),
    Case("workload-identity", "no pool", [cluster(workloadIdentityConfig=None)], ["no workload pool"]),
    Case(
        "workload-identity",
        "the node's",
        [pool(config={"workloadMetadataConfig": {"mode": "GCE_METADATA"}})],
        ["metadata server"],
    ),
    Case("workload-identity", "not said", [pool(config={"workloadMetadataConfig": None})], ["metadata server"]),
    Case("nodes-have-an-account-of-their-own", "its own", [pool()], []),
    Case("nodes-have-an-account-of-their-own", "not known yet", [pool(config={"serviceAccount": UNKNOWN})], []),
    Case(
        "nodes-have-an-account-of-their-own", "none said", [pool(config={"serviceAccount": None})], ["default account"]
    ),
    Case(
        "nodes-have-an-account-of-their-own",
        "the default",
        [pool(config={"serviceAccount": "1-compute@developer.gserviceaccount.com"})],
        ["default account"],
    ),
    Case("nodes-have-an-account-of-their-own", "of Autopilot", [cluster(enableAutopilot=True)], ["default account"]),
    Case(
        "nodes-have-an-account-of-their-own",
        "Autopilot's own",
        [cluster(enableAutopilot=True, clusterAutoscaling={"autoProvisioningDefaults": {"serviceAccount": "a@b"}})],
        [],
    ),
    Case("release-channel", "in one", [cluster()], []),
    Case("release-channel", "none", [cluster(releaseChannel={"channel": "UNSPECIFIED"})], ["no release channel"]),
    Case("control-plane-is-not-open", "to some", [cluster()], []),
    Case(
        "control-plane-is-not-open",
        "no address",
        [
            cluster(
                masterAuthorizedNetworksConfig=None,
                controlPlaneEndpointsConfig={"ipEndpointsConfig": {"enabled": False}},
            )
        ],
        [],
    ),
    Case(
        "control-plane-is-not-open",
        "a private one",
        [cluster(masterAuthorizedNetworksConfig=None, privateClusterConfig={"enablePrivateEndpoint": True})],
        [],
    ),
    Case(
        "control-plane-is-not-open",
        "to all",
        [cluster(masterAuthorizedNetworksConfig=None)],
        ["open to the whole Internet"],
    ),
    Case(
        "control-plane-is-not-open",
        "to all by name",
        [cluster(masterAuthorizedNetworksConfig={"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]})],
        ["0.0.0.0/0 may reach"],
    ),
    Case("nodes-are-private", "private", [cluster()], []),
    Case(
        "nodes-are-private",
        "by default",
        [cluster(privateClusterConfig=None, networkConfig=None, defaultEnablePrivateNodes=True)],
        [],
    ),
    Case("nodes-are-private", "public", [cluster(privateClusterConfig=None)], ["public IP addresses"]),
    Case("no-legacy-authentication", "none", [cluster()], []),
    Case("no-legacy-authentication", "authorization", [cluster(enableLegacyAbac=True)], ["legacy authorization is on"]),
    Case(
        "no-legacy-authentication",
        "certificate",
        [cluster(masterAuth={"clientCertificateConfig": {"issueClientCertificate": True}})],
        ["client certificate"],
    ),
    Case(
        "network-policies-are-enforced",
        "by Dataplane V2",
        [network_policy(), cluster(datapathProvider="ADVANCED_DATAPATH")],
        [],
    ),
    Case("network-policies-are-enforced", "by Autopilot", [network_policy(), cluster(enableAutopilot=True)], []),
    Case("network-policies-are-enforced", "none there", [cluster()], []),
    Case(
        "network-policies-are-enforced",
        "by nobody",
        [network_policy(), cluster()],
        ["nothing in this cluster enforces them"],
    ),
    Case(
        "firewalls-are-not-open",
        "to some",
        [gcp(FIREWALL, sourceRanges=["10.0.0.0/8"], allows=[{"protocol": "tcp"}])],
        [],
    ),
    Case(
        "firewalls-are-not-open",
        "out",
        [gcp(FIREWALL, direction="EGRESS", sourceRanges=["0.0.0.0/0"], allows=[{}])],
        [],
    ),
    Case(
        "firewalls-are-not-open",
        "to all",
        [gcp(FIREWALL, sourceRanges=["0.0.0.0/0"], allows=[{"protocol": "tcp"}])],
        ["admits traffic from 0.0.0.0/0"],
    ),
    Case("no-basic-roles", "a role", [gcp("gcp:projects/iAMMember:IAMMember", role="roles/container.viewer")], []),
    Case(
        "no-basic-roles",
        "editor",
        [gcp("gcp:projects/iAMMember:IAMMember", role="roles/editor")],
        ["grants roles/editor"],
    ),
    Case(
        "clusters-and-buckets-are-protected",
        "protected",
        [cluster(protect=True, deletionProtection=True), bucket(), pool(replaced=True, protect=True)],
        [],
    ),
    Case(
        "clusters-and-buckets-are-protected",
        "a cluster",
        [cluster(deletionProtection=False)],
        ["Pulumi can delete it", "Google Cloud can delete it"],
    ),
    Case(
        "clusters-and-buckets-are-protected", "a bucket", [bucket(protect=False)], ["with its models and checkpoints"]
    ),
    Case("clusters-and-buckets-are-protected", "a pool replaced first", [pool(replaced=False)], []),
    Case(
        "clusters-and-buckets-are-protected",
        "a pool that goes first",
        [pool(replaced=True)],
        ["deletes it before it creates the replacement"],
    ),
    Case(
        "clusters-and-buckets-are-protected",
        "TPUs that go first",
        [tpu_pool(replaced=True)],
        ["deletes it before it creates the replacement"],
    ),
    Case("no-cluster-admins", "an editor", [binding("edit")], []),
    Case(
        "no-cluster-admins",
        "an admin",
        [binding("cluster-admin", "ClusterRoleBinding")],
        ["makes its subjects administrators"],
    ),
    Case(
        "no-cluster-admins",
        "everyone",
        [binding("view", name="system:authenticated")],
        ["anyone with a Google account"],
    ),
    Case("no-cluster-admins", "all rights", [role(["*"], ["*"])], ["grants all verbs on all resources"]),
    Case("no-cluster-admins", "all verbs on one", [role(["*"], ["services"])], []),
    Case("nothing-is-public", "inside", [service()], []),
    Case(
        "nothing-is-public",
        "an internal load balancer",
        [service(type="LoadBalancer", annotations={"networking.gke.io/load-balancer-type": "Internal"})],
        [],
    ),
    Case(
        "nothing-is-public",
        "a load balancer",
        [service(type="LoadBalancer")],
        ["its load balancer has a public address"],
    ),
    Case("nothing-is-public", "an Ingress", [k8s("Ingress", spec={})], ["exposed to the Internet"]),
    Case(
        "nothing-is-public",
        "an internal Ingress",
        [k8s("Ingress", annotations={"kubernetes.io/ingress.class": "gce-internal"}, spec={})],
        [],
    ),
    Case(
        "nothing-is-public",
        "a Gateway",
        [k8s("Gateway", spec={"gatewayClassName": "gke-l7-global-external-managed"})],
        ["gke-l7-global-external-managed"],
    ),
    Case("nothing-is-public", "an internal Gateway", [k8s("Gateway", spec={"gatewayClassName": "gke-l7-rilb"})], []),
    Case("gateways-encrypt", "HTTPS", [k8s("Gateway", spec={"listeners": [{"protocol": "HTTPS"}]})], []),
    Case("gateways-encrypt", "HTTP", [k8s("Gateway", spec={"listeners": [{"protocol": "HTTP"}]})], ["it serves HTTP"]),
    Case("tenants-have-pod-security", "baseline", [namespace("baseline"), QUOTA], []),
    Case("tenants-have-pod-security", "not a tenant's", [namespace()], []),
    Case("tenants-have-pod-security", "no level", [namespace(), QUOTA], ["enforces no Pod Security level"]),
    Case(
        "tenants-have-pod-security",
        "privileged",
        [namespace("privileged"), binding("edit")],
        ["enforces the level privileged"],
    ),
    Case(
        "tenants-have-pod-security",
        "a controller's binding",
        [namespace(), binding("edit", who="User", name="system:kube")],
        [],
    ),
    Case("tenants-are-isolated", "guarded", [namespace(), QUOTA, network_policy()], []),
    Case(
        "tenants-are-isolated",
        "only some pods",
        [namespace(), QUOTA, network_policy(podSelector={"matchLabels": SELECTED})],
        ["every pod of the cluster"],
    ),
    Case(
        "tenants-are-isolated",
        "only the remedy",
        [namespace(), QUOTA, network_policy(policyTypes=["Egress"])],
        ["every pod of the cluster"],
    ),
]
BY_NAME = {policy.name: policy for policy in POLICIES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.policy}: {case.name}")
def test_policy_finds_only_the_violation(case: Case) -> None:
    policy = BY_NAME[case.policy]
    messages = [policy.message(violation) for violation in policy.violations(RegisteredStack(case.stack))]
    assert len(messages) == len(case.finds), messages
    for message, part in zip(messages, case.finds, strict=True):
        assert part in message


def test_message_about_a_token_in_plain_text_does_not_contain_it() -> None:
    policy = BY_NAME["no-secrets-in-configuration"]
    violations = policy.violations(
        RegisteredStack([], {"a:token": TOKEN, "a:hidden": SECRET, "a:name": "token", "a:b": f'{{"c":"{TOKEN}"}}'})
    )
    assert [violation.text.split()[1] for violation in violations] == ["a:token", "a:b"]
    assert TOKEN not in "".join(map(policy.message, violations))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_policy_has_a_case_that_passes_and_one_that_does_not(policy: Policy) -> None:
    if policy.name != "no-secrets-in-configuration":
        assert {bool(case.finds) for case in CASES if case.policy == policy.name} == {True, False}


def test_names_of_policies_are_distinct() -> None:
    assert len(BY_NAME) == len(POLICIES)


def test_messages_never_hold_the_secret_that_they_are_about() -> None:
    policy = BY_NAME["no-plain-text-secrets"]
    leaks = [
        with_env(name="HF_TOKEN", value=TOKEN),
        k8s("Secret", stringData={"a": TOKEN}),
        job(container(args=[TOKEN])),
    ]
    messages = "".join(map(policy.message, policy.violations(RegisteredStack(leaks))))
    assert messages.count("plain") + messages.count("everyone") >= len(leaks)
    assert TOKEN not in messages


def test_nothing_known_is_no_reason_to_fail() -> None:
    kinds = {resource.kind for case in CASES for resource in case.stack if resource.is_kubernetes}
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
    reasons = [
        {"policy": "p", "resource": "r", "reason": "why"},
        {"policy": "p", "resource": "r"},
        {"policy": "p", "resource": "r", "reason": ""},
    ]
    assert list(waivers(json.dumps(reasons))) == [Waiver("p", "r", "why")]
    assert list(waivers("[")) == list(waivers("7")) == list(waivers(None)) == []


@pytest.mark.parametrize(("former", "name"), RENAMED.items())
def test_a_waiver_with_the_former_name_of_a_policy_names_the_new_one(former: str, name: str) -> None:
    assert name in {policy.name for policy in POLICIES}
    message = unused_waiver(Waiver(former, "*", "why"))
    assert message == f"gke-ai:waivers: {former} was renamed. The waiver has no effect. Write {name} instead."


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
def test_invalid_configuration_of_the_pack_is_mandatory_and_waives_nothing(
    stated: dict[str, Any], message: str | None
) -> None:
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
