"""The rules of a tenant's ValidatingAdmissionPolicy, in CEL.

Every use of accelerators ends in a Pod. Kueue holds that Pod until its queue admits it, or the Job controller created
it for a Job that Kueue held. The rules check that one of the two is true for every Pod, whoever creates it. A forged
owner or an annotation that makes Kueue ignore a Pod is refused, because Kueue then does not hold it. The rules check
Jobs, JobSets and Deployments too, so that their author reads the refusal and not a controller.

The rules list what a team may set: labels and annotations of Kueue and JobSet, fields of TrainJobs, RayJobs and
RayClusters, kinds of volumes, service accounts, types of Secrets. Whatever a later release adds is refused until it is
listed here.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.inference_extension import PICKER_LABEL
from gke_ai.catalog.fabric import nvlink, topology
from gke_ai.catalog.kueue.configuration import POD_GATE, PRIORITY_LABEL
from gke_ai.catalog.kueue.namespaces import JOBSET, KUEUE
from gke_ai.catalog.kueue.operators import BY_KIND, KUBERAY, OPERATORS, RUNTIME_KIND
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.quota import MIN_PARALLELISM, QUEUE_LABEL
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, GKE_TPU_ACCELERATOR, NVIDIA_GPU
from gke_ai.catalog.published import CONFIG_MAP
from gke_ai.catalog.tables import read_table
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.settings.model import Tenant

# Kinds that a tenant may create and that have rules: API group, version, resource, operations.
WRITES = ["CREATE", "UPDATE"]
KINDS: list[tuple[str, str, str, list[str]]] = [
    # Who deletes a pod may set another grace period, and who deletes its owner may leave it.
    ("", "v1", "pods", [*WRITES, "DELETE"]),
    *(("", "v1", f"pods/{verb}", ["CONNECT"]) for verb in ("exec", "attach")),
    ("", "v1", "secrets", WRITES),
    ("", "v1", "configmaps", [*WRITES, "DELETE"]),
    ("", "v1", "services", WRITES),
    ("", "v1", "persistentvolumeclaims", WRITES),
    ("autoscaling", "v2", "horizontalpodautoscalers", WRITES),
    ("policy", "v1", "poddisruptionbudgets", WRITES),
    (POD_MONITORING_API.partition("/")[0], "v1", "podmonitorings", WRITES),
    ("batch", "v1", "jobs", [*WRITES, "DELETE"]),
    ("apps", "v1", "deployments", [*WRITES, "DELETE"]),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets", [*WRITES, "DELETE"]),
    # Kubernetes would give a pod a claim that someone else wrote for it. The scheduler updates claims, and nobody can
    # change their spec.
    ("resource.k8s.io", "*", "resourceclaims", ["CREATE"]),
    ("resource.k8s.io", "*", "resourceclaimtemplates", [*WRITES, "DELETE"]),
    (nvlink.DOMAIN_API.partition("/")[0], "*", nvlink.DOMAIN_KINDS, [*WRITES, "DELETE"]),
]
FURTHER_KINDS = {
    kind: (operator.group, operator.api.partition("/")[2], resource, [*WRITES, "DELETE"])
    for operator in OPERATORS.values()
    for kind, resource in operator.kinds.items()
}
# Kinds without pods.
_WITHOUT_PODS = [
    *("Secret", "Service", "ConfigMap", "ResourceClaim", "ResourceClaimTemplate", nvlink.DOMAIN_KIND),
    *("PersistentVolumeClaim", "HorizontalPodAutoscaler", "PodDisruptionBudget", "PodMonitoring"),
]

# Controllers have their own service accounts: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles
CONTROLLERS = [*(f"system:serviceaccounts:{namespace}" for namespace in ("kube-system", KUEUE, JOBSET)), "system:nodes"]
# Parts of the control plane, such as the scheduler and GKE's controller of load balancers, have reserved names:
# https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
_OF_CONTROL_PLANE = (
    '["system:", "system:anonymous", "system:serviceaccount:"].map(start, '
    "request.userInfo.username.startsWith(start)) == [true, false, false]"
)
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
JOBSET_CONTROLLER = f"system:serviceaccounts:{JOBSET}"
# https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"

# Names of labels and annotations that Kueue, JobSet, Trainer and KubeRay read or write (a running RayCluster that loses
# `ray.io/ft-enabled` fails its validation, and Kueue takes it for one that waits), and those by which the injector of
# GPUDirect and GKE give a pod devices and networks of its node. A team sets few of them. The injector checks no path:
# any device of the node would do.
# https://github.com/GoogleCloudPlatform/container-engine-accelerators/blob/992db812/nri_device_injector/nri_device_injector.go
_OF_QUEUEING = r"([^/]*\.)?(kueue\.x-k8s\.io|jobset\.x-k8s\.io|jobset\.sigs\.k8s\.io)/"
_OF_OPERATORS = "|".join(operator.group.replace(".", r"\.") for operator in OPERATORS.values())
OF_QUEUEING = rf"^({_OF_QUEUEING}|([^/]*\.)?({_OF_OPERATORS}|(devices|networking)\.gke\.io)/)"
# Of these, the labels and annotations that may be set, by kind. Kueue's webhooks run before the policy, and set some:
# https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/controller/jobs (pod/pod_webhook.go and
# deployment/deployment_webhook.go). tests/support/queueing_names.yaml has the reason for each other name.
_LABELS = [
    QUEUE_LABEL,  # one of the tenant's queues, by a rule
    PRIORITY_LABEL,  # one of the tenant's classes, by a rule
    "kueue.x-k8s.io/max-exec-time-seconds",  # ends a workload earlier
]
# Kueue sets it on what it holds itself.
_MANAGED = "kueue.x-k8s.io/managed"
LABELS = {"Pod": [*_LABELS, _MANAGED], "Job": _LABELS, "JobSet": _LABELS, "Deployment": [*_LABELS, _MANAGED]}
# How close to each other Kueue places the pods: a stricter wish, for nodes of the same quota.
_TOPOLOGY = [*topology.ANNOTATIONS]
# Time for which a workload needs its nodes. https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
_ANNOTATIONS = ["provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
ANNOTATIONS = {
    # Kueue writes the hash of every pod that it holds. It reads it only for pod groups, which are refused.
    "Pod": [*_ANNOTATIONS, "kueue.x-k8s.io/role-hash"],
    # Start with fewer pods, which Kueue counts: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission
    "Job": [*_ANNOTATIONS, *_TOPOLOGY, MIN_PARALLELISM, "kueue.x-k8s.io/job-completions-equal-parallelism"],
    "JobSet": [*_ANNOTATIONS, *_TOPOLOGY, EXCLUSIVE],  # only for node pools of TPUs, by a rule
    "Deployment": [*_ANNOTATIONS, "kueue.x-k8s.io/pod-suspending-parent"],
}
# Fields of further kinds that may be set, and those of their parts. Left out, among others: what starts pods that Kueue
# does not count (an existing Ray cluster, its autoscaler, a runtime of the team's own), Services and Ingresses of a Ray
# head, and who manages the object. Defaults of the CRDs are listed.
# https://github.com/kubeflow/trainer/blob/v2.2.1/pkg/apis/trainer/v1alpha1/trainjob_types.go
# https://github.com/ray-project/kuberay/tree/v1.6.2/ray-operator/apis/ray/v1
FIELDS = {
    "TrainJob": [
        *("runtimeRef", "initializer", "trainer", "runtimePatches", "suspend", "activeDeadlineSeconds"),
        "managedBy",  # a default. Kueue runs without MultiKueue, and nothing starts another value
    ],
    # Of the pods of a runtime.
    "patch": [
        *("serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext"),
        *("nodeSelector", "affinity", "tolerations"),
    ],
    "RayJob": [
        *("rayClusterSpec", "submitterPodTemplate", "submitterConfig", "entrypoint", "runtimeEnvYAML", "metadata"),
        *("entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId", "submissionMode", "suspend"),
        *("activeDeadlineSeconds", "preRunningDeadlineSeconds", "backoffLimit"),
        *("shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
    ],
    "RayCluster": ["headGroupSpec", "workerGroupSpecs", "rayVersion", "suspend"],
    "head": ["template", "rayStartParams", "resources", "labels", "serviceType"],
    "workers": [
        *("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts"),
        *("template", "rayStartParams", "resources", "labels"),
        "scaleStrategy",  # KubeRay writes an empty one
    ],
}
# A deletion in the foreground sets one. Kueue sets another on a pod that it holds, and removes it from no other object.
# So does Kubernetes with claims of volumes.
FINALIZERS = {
    "Pod": ["foregroundDeletion", "kueue.x-k8s.io/managed"],
    "PersistentVolumeClaim": ["foregroundDeletion", "kubernetes.io/pvc-protection"],
}

# Kinds of volumes: files of the node or of the cluster's objects, images, and claims. The kubelet mounts all others
# over the node's network, which network policies don't cover. https://kubernetes.io/docs/concepts/storage/volumes/
VOLUMES = [
    *("configMap", "downwardAPI", "emptyDir", "projected", "secret"),
    "image",  # pulled as the image of a container is
    *("persistentVolumeClaim", "ephemeral"),  # by a StorageClass or a PersistentVolume of the platform
    "csi",  # only Cloud Storage FUSE, by a rule
]
# Others are credentials for the cluster, which outlive their owner's membership:
# https://kubernetes.io/docs/concepts/configuration/secret/#secret-types
SECRETS = [
    "Opaque",
    *(f"kubernetes.io/{kind}" for kind in ("basic-auth", "dockercfg", "dockerconfigjson", "ssh-auth", "tls")),
    "helm.sh/release.v1",  # the state of Helm's releases
]
# Longest time to end, in seconds. On a scale-in, the autoscaler gives pods no more:
# https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md (max-graceful-termination-sec)
GRACE_SECONDS = 600
# What Kubernetes sets where a pod has none.
_DEFAULT_GRACE_SECONDS = 30
# Largest spec of an object, and largest annotations. Kueue keeps about 16 times what a Job has, and by the namespace's
# quota a team has 1,000 Jobs.
MAX_CHARACTERS = 32768
# Jobs of a JobSet, and workers of a Ray cluster: as many as the namespace's quota allows Jobs and pods.
MAX_PARTS = 1000


def from_controller(further_kinds: Sequence[str] = ()) -> str:
    """Whether a request is of a controller. That of a further kind acts on its own objects and their children."""
    groups = f"request.userInfo.groups.exists(group, group in {json.dumps(CONTROLLERS)})"
    kinds: dict[str, list[str]] = {}
    for kind in further_kinds:
        kinds.setdefault(_accounts(kind), []).append(kind)
    own = [
        f"{json.dumps(accounts)} in request.userInfo.groups && (request.kind.kind in {json.dumps(own)} || [object, "
        "oldObject].exists(item, item != null && dyn(item).metadata.?ownerReferences.orValue([]).exists(owner, "
        f"owner.kind in {json.dumps(own)})))"
        for accounts, own in kinds.items()
    ]
    return " || ".join(f"({part})" for part in [groups, _OF_CONTROL_PLANE, *own])


def conditions(further_kinds: Sequence[str] = ()) -> list[dict[str, str]]:
    """Changes by controllers always pass: a finalizer that they can't remove would keep an object forever."""
    changes = f'request.operation == "CREATE" || !({from_controller(further_kinds)})'
    return [{"name": "not-a-controllers-update", "expression": changes}]


def _accounts(kind: str) -> str:
    """The service accounts of the controller of a further kind."""
    return f"system:serviceaccounts:{BY_KIND[kind].namespace}"


def _children(further_kinds: Sequence[str]) -> dict[str, dict[str, str]]:
    """Kinds that a controller creates for an object that Kueue held, with its service accounts and the object's kind.

    The object counts: KubeRay also creates RayClusters for RayServices, which no rule checks.
    """
    return {
        kind: {"accounts": _accounts(owner), "owner": owner}
        for kind, owner in {"JobSet": "TrainJob", "RayCluster": "RayJob", "Job": "RayJob", "Pod": "RayCluster"}.items()
        if owner in further_kinds
    }


# Lists of kinds, with the fields of the further ones.
_OF_KINDS = {
    "further": json.dumps([*FURTHER_KINDS]),
    "of_ray": json.dumps([*KUBERAY.kinds]),
    "suspended": json.dumps(["Job", "JobSet", *FURTHER_KINDS]),
    "queued": json.dumps(["Job", "JobSet", "Deployment", *FURTHER_KINDS]),
    "fields": json.dumps(FIELDS),
    "runtime": RUNTIME_KIND,
}


@cache
def _policy() -> Any:
    return read_table(Path(__file__).with_name("tenant_policy.yaml"))


def variables(pickers: Sequence[str] = (), further_kinds: Sequence[str] = ()) -> list[dict[str, str]]:
    """CEL variables of the rules. Later ones may use earlier ones."""
    names = {
        "accelerator_nodes": json.dumps([GKE_ACCELERATOR, GKE_TPU_ACCELERATOR]),
        # A toleration without a key tolerates every taint.
        "accelerator_taints": json.dumps(["", NVIDIA_GPU, GOOGLE_TPU]),
        "queue_label": QUEUE_LABEL,
        "gate": POD_GATE,
        "pickers": json.dumps(list(pickers)),
        "picker_label": PICKER_LABEL,
        "job_controller": JOB_CONTROLLER,
        "without_pods": json.dumps(_WITHOUT_PODS),
        "jobset_controller": JOBSET_CONTROLLER,
        "of_queueing": json.dumps(OF_QUEUEING),
        "labels": json.dumps({**LABELS, **dict.fromkeys(FURTHER_KINDS, _LABELS)}),
        "annotations": json.dumps({**ANNOTATIONS, **dict.fromkeys(FURTHER_KINDS, _ANNOTATIONS)}),
        "children": json.dumps(_children(further_kinds)),
        **_OF_KINDS,
    }
    for item in ("made", "former"):
        of_item = {**names, "item": f"variables.{item}"}
        for name, expression in _policy()["of_objects"].items():
            of_item[name] = names[f"{name}_of_{item}"] = Template(expression).substitute(of_item)
    return [
        {"name": name, "expression": Template(expression).substitute(names)}
        for name, expression in _policy()["variables"].items()
    ]


def validations(
    tenant: Tenant,
    queues: Sequence[str],
    service_accounts: Sequence[str],
    pickers: Sequence[str],
    grace_seconds: int,
    further_kinds: Sequence[str],
    claim_templates: Sequence[str],
) -> list[dict[str, Any]]:
    """The rules, each with the message of a refusal."""
    volumes = [*VOLUMES, *(["hostPath"] if tenant.pod_security == "privileged" else [])]
    names = {
        "tenant": tenant.name,
        "published": CONFIG_MAP,
        "of_platform": f'authorizer.group("networking.k8s.io").resource("networkpolicies").namespace("{tenant.name}")'
        '.check("update").allowed()',
        "from_controller": f"({from_controller(further_kinds)})",
        **_OF_KINDS,
        "queue_label": QUEUE_LABEL,
        "queues_or_none": json.dumps(["", *queues]),
        "choice_of_queues": choice(queues),
        "exclusive": EXCLUSIVE,
        "tpu": GOOGLE_TPU,
        "node_pool": GKE_NODEPOOL,
        "finalizers": json.dumps(FINALIZERS),
        "priority_label": PRIORITY_LABEL,
        "priorities_or_none": json.dumps(["", *tenant.priority_classes]),
        "choice_of_priorities": choice(tenant.priority_classes),
        "fuse": fuse.DRIVER,
        "volume_fields": json.dumps(["name", *volumes]),
        "choice_of_volumes": choice(volumes),
        "buckets": json.dumps(tenant.buckets),
        "choice_of_buckets": choice(tenant.buckets),
        "all_accounts": json.dumps([*service_accounts, *pickers]),
        "pickers": json.dumps(list(pickers)),
        "choice_of_all_accounts": choice([*service_accounts, *pickers]),
        "choice_of_accounts": choice(service_accounts),
        "picker_label": PICKER_LABEL,
        "default_grace_seconds": str(_DEFAULT_GRACE_SECONDS),
        "grace_seconds": str(grace_seconds),
        "max_characters": str(MAX_CHARACTERS),
        "max_parts": str(MAX_PARTS),
        "without_pods": json.dumps(_WITHOUT_PODS),
        "gpu": NVIDIA_GPU,
        "claim_templates": json.dumps(list(claim_templates)),
        "nvlink_controller": nvlink.CONTROLLER,
        "remedy_of_claims": f"claim only {' and '.join(claim_templates)} by resourceClaimTemplateName, once in each "
        f"pod with {NVIDIA_GPU}"
        if claim_templates
        else "request them in resources, and remove resourceClaims",
        "secrets": json.dumps(SECRETS),
        "choice_of_secrets": choice(SECRETS),
    }
    of_writes, of_all = (
        [{key: Template(text).substitute(names) for key, text in rule.items()} for rule in _policy()[part]]
        for part in ("rules", "of_all")
    )
    passing = [
        {**rule, "expression": f"variables.deleting || variables.entering || ({rule['expression']})"}
        for rule in of_writes
    ]
    return [*passing, *of_all]


def choice(names: Sequence[str]) -> str:
    """Names to choose from, in words."""
    return " or ".join(names) if names else "none, because it has none"
