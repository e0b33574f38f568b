"""The rules of a tenant's ValidatingAdmissionPolicy, in CEL.

Every use of accelerators ends in a Pod. Kueue holds that Pod until its queue admits it, or the Job controller created
it for a Job that Kueue held. The rules check that one of the two is true for every Pod, whoever creates it. A forged
owner or an annotation that makes Kueue ignore a Pod is refused, because Kueue then does not hold it. The rules check
Jobs, JobSets and Deployments too, so that their author reads the refusal and not a controller.

The rules list what a team may set: labels and annotations of Kueue and JobSet, kinds of volumes, service accounts,
types of Secrets. Whatever a later release adds is refused until it is listed here.
"""

import json
from collections.abc import Sequence
from typing import Any

from gke_ai.catalog import fuse
from gke_ai.catalog.inference_extension import PICKER_LABEL
from gke_ai.catalog.namespaces import JOBSET, KUEUE
from gke_ai.catalog.nodes import GKE_ACCELERATOR, GKE_NODEPOOL, GKE_TPU_ACCELERATOR, NVIDIA_GPU
from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.catalog.tpus import GOOGLE_TPU

# Kinds that a tenant may create and that have rules: API group, version, resource, operations.
WRITES = ["CREATE", "UPDATE"]
KINDS = [
    # Who deletes a pod may set another grace period.
    ("", "v1", "pods", [*WRITES, "DELETE"]),
    ("", "v1", "secrets", WRITES),
    ("", "v1", "services", WRITES),
    ("batch", "v1", "jobs", WRITES),
    ("apps", "v1", "deployments", WRITES),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets", WRITES),
]

# Controllers have their own service accounts: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles
CONTROLLERS = [*(f"system:serviceaccounts:{namespace}" for namespace in ("kube-system", KUEUE, JOBSET)), "system:nodes"]
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
JOBSET_CONTROLLER = f"system:serviceaccounts:{JOBSET}"
# https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/, https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
GATE = "kueue.x-k8s.io/admission"
# https://jobset.sigs.k8s.io/docs/tasks/exclusive_placement/
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"

# Names of labels and annotations that Kueue and JobSet read or write.
OF_QUEUEING = r"^([^/]*\.)?(kueue\.x-k8s\.io|jobset\.x-k8s\.io|jobset\.sigs\.k8s\.io)/"
# Of these, the labels and annotations that may be set, by kind. Kueue's webhooks run before the policy, and set some:
# https://github.com/kubernetes-sigs/kueue/tree/v0.18.4/pkg/controller/jobs (pod/pod_webhook.go and
# deployment/deployment_webhook.go). tests/end_to_end/test_tenant_metadata.py has the reason for each other name.
_LABELS = [
    QUEUE_LABEL,  # one of the tenant's queues, by a rule
    PRIORITY_LABEL,  # one of the tenant's classes, by a rule
    "kueue.x-k8s.io/max-exec-time-seconds",  # ends a workload earlier
]
# Kueue sets it on what it holds itself.
_MANAGED = "kueue.x-k8s.io/managed"
LABELS = {"Pod": [*_LABELS, _MANAGED], "Job": _LABELS, "JobSet": _LABELS, "Deployment": [*_LABELS, _MANAGED]}
# Time for which a workload needs its nodes. https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
_ANNOTATIONS = ["provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
ANNOTATIONS = {
    # Kueue writes the hash of every pod that it holds. It reads it only for pod groups, which are refused.
    "Pod": [*_ANNOTATIONS, "kueue.x-k8s.io/role-hash"],
    # Start with fewer pods, which Kueue counts: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission
    "Job": [
        *_ANNOTATIONS,
        "kueue.x-k8s.io/job-min-parallelism",
        "kueue.x-k8s.io/job-completions-equal-parallelism",
    ],
    "JobSet": [*_ANNOTATIONS, EXCLUSIVE],  # only for node pools of TPUs, by a rule
    "Deployment": [*_ANNOTATIONS, "kueue.x-k8s.io/pod-suspending-parent"],
}
# Kueue sets the first. A deletion in the foreground or of an owner alone sets the others.
FINALIZERS = ["kueue.x-k8s.io/managed", "foregroundDeletion", "orphan"]

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

FROM_CONTROLLER = f"request.userInfo.groups.exists(group, group in {json.dumps(CONTROLLERS)})"
# Updates by controllers always pass, whatever the object is: a finalizer that they can't remove would keep it
# forever.
CONDITIONS = [
    {"name": "not-a-controllers-update", "expression": f'request.operation == "CREATE" || !({FROM_CONTROLLER})'}
]


def variables(pickers: Sequence[str] = ()) -> list[dict[str, str]]:
    """CEL variables of the rules. Later ones may use earlier ones."""
    accelerator_nodes = json.dumps([GKE_ACCELERATOR, GKE_TPU_ACCELERATOR])
    # A toleration without a key tolerates every taint.
    taints = json.dumps(["", NVIDIA_GPU, GOOGLE_TPU])
    expressions = {
        "creating": 'request.operation == "CREATE"',
        "deleting": 'request.operation == "DELETE"',
        # Untyped: the kinds differ, and the API server has no types for custom resources.
        "made": "variables.deleting ? dyn(oldObject) : dyn(object)",
        "former": "variables.creating ? {} : dyn(oldObject)",
        "kind": "request.kind.kind",
        "specs": specs("variables.made"),
        # Node affinity terms of the pods, in addition to nodeSelector.
        "terms": "variables.specs.map(spec, spec.?affinity.?nodeAffinity).map(affinity,"
        " affinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"
        " + affinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(one, one.preference))",
        # A resource with a domain is a device: an accelerator of any vendor, or a device class.
        "accelerated": "variables.specs.exists(spec,"
        " (spec.containers + spec.?initContainers.orValue([])).exists(container,"
        ' container.?resources.?requests.orValue({}).exists(name, name.contains("/"))'
        ' || container.?resources.?limits.orValue({}).exists(name, name.contains("/")))'
        f" || spec.?nodeSelector.orValue({{}}).exists(label, label in {accelerator_nodes})"
        f' || spec.?tolerations.orValue([]).exists(one, one.?key.orValue("") in {taints}))'
        # Another operator, such as NotIn, keeps pods off such nodes.
        " || variables.terms.exists(terms, terms.exists(term, term.?matchExpressions.orValue([]).exists(one,"
        f" one.key in {accelerator_nodes} && one.operator in ['In', 'Exists'])))",
        "metas": metas("variables.made"),
        "formerMetas": f"variables.creating ? [] : {metas('variables.former')}",
        "queue": queue("variables.made"),
        # Children of an object that Kueue held. They have no queue label.
        "ofItsController": f"(variables.kind == 'Pod' && request.userInfo.username == {json.dumps(JOB_CONTROLLER)})"
        f" || (variables.kind == 'Job' && {json.dumps(JOBSET_CONTROLLER)} in request.userInfo.groups)"
        # A change of a pod changes neither its resources nor its nodes.
        f" || (variables.kind == 'Pod' && !variables.creating && variables.queue == {queue('variables.former')})",
        "held": held("variables.made"),
        "wasHeld": f"!variables.creating && ({held('variables.former')})",
        "owners": owners("variables.made"),
        "formerOwners": owners("variables.former"),
        # Names that the author may not set, for each object and pod template.
        "foreign": f"{foreign('labels', LABELS)} + {foreign('annotations', ANNOTATIONS)}",
        "parallelism": parallelism("variables.made"),
        "formerParallelism": f"variables.creating ? [] : {parallelism('variables.former')}",
        "ofPicker": of_picker("variables.made", pickers)
        + f" || (!variables.creating && ({of_picker('variables.former', pickers)}))",
    }
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def specs(item: str) -> str:
    """The specs of the pods."""
    return (
        f"variables.kind == 'Pod' ? [{item}.spec]"
        " : variables.kind in ['Secret', 'Service'] ? []"
        f" : variables.kind == 'JobSet' ? {item}.spec.replicatedJobs.map(job, job.template.spec.template.spec)"
        f" : [{item}.spec.template.spec]"
    )


def metas(item: str) -> str:
    """The metadata of a workload and of its templates."""
    jobs = f"{item}.spec.replicatedJobs"
    return (
        "(variables.kind in ['Secret', 'Service'] ? []"
        f" : variables.kind == 'Pod' ? [{item}.?metadata]"
        f" : variables.kind == 'JobSet' ? [{item}.?metadata] + {jobs}.map(job, job.template.?metadata)"
        f" + {jobs}.map(job, job.template.spec.template.?metadata)"
        f" : [{item}.?metadata, {item}.spec.template.?metadata]).map(meta, meta.orValue({{}}))"
    )


def queue(item: str) -> str:
    """The local queue of the object, or nothing."""
    return f'{item}.?metadata.?labels[?"{QUEUE_LABEL}"].orValue("")'


def foreign(field: str, allowed: dict[str, list[str]]) -> str:
    """Names of Kueue and JobSet in the labels or annotations that are neither allowed nor there already."""
    new = (
        f"!(name in {json.dumps(allowed)}[variables.kind])"
        f" && !variables.formerMetas.exists(former, former.?{field}[?name] == meta.?{field}[?name])"
    )
    names = f"meta.?{field}.orValue({{}}).filter(name, name.matches({json.dumps(OF_QUEUEING)}) && {new})"
    return f'variables.metas.map(meta, {names}.join(", ")).filter(names, names != "")'


def parallelism(item: str) -> str:
    """The number of pods of each Job, with its name in a JobSet."""
    jobs = f"{item}.spec.replicatedJobs"
    return (
        f"variables.kind == 'Job' ? [{{'name': dyn(''), 'pods': dyn({item}.spec.?parallelism.orValue(1))}}]"
        " : variables.kind == 'JobSet' ? "
        f"{jobs}.map(job, {{'name': dyn(job.name), 'pods': dyn(job.template.spec.?parallelism.orValue(1))}}) : []"
    )


def of_picker(item: str, pickers: Sequence[str]) -> str:
    """Whether the object has the rights of an endpoint picker: its label or its service account."""
    return (
        f"({specs(item)}).exists(spec, spec.?serviceAccountName.orValue('') in {json.dumps(list(pickers))})"
        f" || ({metas(item)}).exists(meta, '{PICKER_LABEL}' in meta.?labels.orValue({{}}))"
    )


def held(item: str) -> str:
    """Whether Kueue holds the object until its queue admits it. For a Deployment, Kueue holds each pod."""
    return (
        f"variables.kind == 'Pod' ? {item}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == {GATE!r})"
        f" : variables.kind in ['Job', 'JobSet'] ? {item}.spec.?suspend.orValue(false) : true"
    )


def owners(item: str) -> str:
    """The owner reference of the object's controller."""
    return f"{item}.?metadata.?ownerReferences.orValue([]).filter(owner, owner.?controller.orValue(false))"


def validations(
    tenant: str,
    queues: list[str],
    priority_classes: list[str],
    buckets: list[str],
    service_accounts: list[str],
    *,
    pickers: Sequence[str] = (),
    grace_seconds: int = GRACE_SECONDS,
    host_paths: bool = False,
) -> list[dict[str, Any]]:
    """The rules, each with the message of a refusal."""
    rules = [
        *queue_rules(tenant, queues),
        *metadata_rules(tenant, priority_classes),
        *pod_rules(tenant, buckets, [*service_accounts, *pickers], host_paths),
        {
            "expression": "!variables.ofPicker"
            f" || {FROM_CONTROLLER}"
            # Who may change the tenant's network policies has the same rights anyway.
            ' || authorizer.group("networking.k8s.io").resource("networkpolicies")'
            f'.namespace({json.dumps(tenant)}).check("update").allowed()',
            "message": "has the label or the service account of an endpoint picker, which only the platform may set: "
            f"remove the label {PICKER_LABEL}, and set serviceAccountName to {choice(service_accounts)}",
        },
        {
            "expression": "variables.specs.all(spec, spec.?terminationGracePeriodSeconds"
            f".orValue({_DEFAULT_GRACE_SECONDS}) <= {grace_seconds})",
            "message": "could keep its nodes long after Kueue takes them back: set terminationGracePeriodSeconds to "
            f"{grace_seconds} or less",
        },
        {
            "expression": "variables.kind != 'Secret'"
            f' || variables.made.?type.orValue("Opaque") in {json.dumps(SECRETS)}',
            "message": "is a Secret of a type that teams may not create, such as a credential that never expires: set "
            f"type to {choice(SECRETS)}. kubectl create token issues tokens that expire",
        },
        {
            "expression": "variables.kind != 'Service' || variables.made.spec.?externalIPs.orValue([]).size() == 0",
            "message": "would receive traffic of the cluster for addresses outside it: remove externalIPs",
        },
    ]
    # A deletion always passes, but for its grace period. The rules came after some objects.
    return [
        *({**rule, "expression": f"variables.deleting || ({rule['expression']})"} for rule in rules),
        {
            "expression": "!variables.deleting"
            f" || dyn(request.options).?gracePeriodSeconds.orValue(0) <= {grace_seconds}",
            "message": f"would keep its nodes while it is deleted: set the grace period to {grace_seconds} or less",
        },
    ]


def queue_rules(tenant: str, queues: list[str]) -> list[dict[str, Any]]:
    """Rules that leave accelerators to Kueue."""
    return [
        {
            "expression": f'variables.metas.all(meta, meta.?labels[?"{QUEUE_LABEL}"].orValue("")'
            f" in {json.dumps(['', *queues])})",
            "message": f"uses a queue that {tenant} does not have: set the label {QUEUE_LABEL} to {choice(queues)}",
        },
        {
            "expression": '!variables.accelerated || variables.ofItsController || variables.queue != ""',
            "message": "requests accelerators or their nodes without a queue: set the label "
            f"{QUEUE_LABEL} to {choice(queues)}",
        },
        {
            "expression": "!variables.accelerated || !variables.creating || variables.ofItsController"
            " || variables.held",
            "message": "requests accelerators, and Kueue does not hold it until its queue admits it: remove owner "
            "references and annotations that make Kueue ignore it",
        },
        {
            "expression": "!variables.accelerated || !variables.wasHeld || variables.held",
            "message": "waits in its queue, and only Kueue may start it: do not change spec.suspend and "
            "spec.schedulingGates",
        },
        {
            "expression": '(!variables.accelerated && variables.queue == "") || variables.creating'
            " || variables.wasHeld || variables.parallelism.all(job,"
            " variables.formerParallelism.exists(former, former.name == job.name && job.pods <= former.pods))",
            "message": "runs, and its new pods would start before Kueue counts them: do not raise parallelism, and "
            "create another Job",
        },
        {
            "expression": "variables.kind in ['Secret', 'Service'] || variables.owners == variables.formerOwners"
            f" || {FROM_CONTROLLER}",
            "message": "has an owner reference with `controller: true`, which only controllers may write: remove it",
        },
    ]


def metadata_rules(tenant: str, priority_classes: list[str]) -> list[dict[str, Any]]:
    """Rules of labels, annotations and finalizers, and of priorities."""
    priorities = json.dumps(["", *priority_classes])
    on_tpus = "spec.containers.exists(container, container.?resources.?limits.orValue({}).exists(name, name == "
    on_tpus += f"{json.dumps(GOOGLE_TPU)}))"
    return [
        {
            "expression": f"variables.foreign.size() == 0 || {FROM_CONTROLLER}",
            "message": "sets a label or annotation that only Kueue and JobSet may set: remove it",
            "messageExpression": '"sets " + variables.foreign.join(", ")'
            ' + ", which changes how Kueue counts it, or which only Kueue and JobSet may set: remove it"',
        },
        {
            "expression": f"variables.kind != 'JobSet' || !variables.metas.exists(meta, '{EXCLUSIVE}' in"
            f" meta.?annotations.orValue({{}})) || (variables.specs.all(spec, {on_tpus})"
            f" && variables.metas.all(meta, meta.?annotations[?'{EXCLUSIVE}'].orValue('{GKE_NODEPOOL}')"
            f" == '{GKE_NODEPOOL}'))",
            "message": f"keeps other JobSets off nodes: set {EXCLUSIVE} only to {GKE_NODEPOOL} and for pods with "
            f"{GOOGLE_TPU}, whose node pool is one slice",
        },
        {
            "expression": f"variables.metas.all(meta, meta.?finalizers.orValue([]).all(name, name in"
            f" {json.dumps(FINALIZERS)} || variables.formerMetas.exists(former, name in"
            f" former.?finalizers.orValue([])))) || {FROM_CONTROLLER}",
            "message": "has a finalizer that nobody would remove, so the namespace could not be deleted: remove it",
        },
        {
            "expression": f'variables.specs.all(spec, spec.?priorityClassName.orValue("") in {priorities})'
            f' && variables.metas.all(meta, meta.?labels[?"{PRIORITY_LABEL}"].orValue("") in {priorities})',
            "message": f"uses a priority class that {tenant} may not use: set {choice(priority_classes)}",
        },
    ]


def pod_rules(tenant: str, buckets: list[str], service_accounts: list[str], host_paths: bool) -> list[dict[str, Any]]:
    """Rules of what pods use."""
    kinds = [*VOLUMES, *(["hostPath"] if host_paths else [])]
    bucket = 'volume.csi.?volumeAttributes[?"bucketName"].orValue("")'
    return [
        {
            "expression": "variables.specs.all(spec, spec.?volumes.orValue([]).all(volume, volume.all(field,"
            f" field in {json.dumps(['name', *kinds])})"
            f' && volume.?csi.?driver.orValue("{fuse.DRIVER}") == "{fuse.DRIVER}"))',
            "message": f"mounts a volume of a kind that {tenant} may not use: use {choice(kinds)} with the driver "
            f"{fuse.DRIVER}",
        },
        {
            "expression": "variables.specs.all(spec, spec.?volumes.orValue([]).all(volume,"
            f' volume.?csi.?driver.orValue("") != "{fuse.DRIVER}" || {bucket} in {json.dumps(buckets)}))',
            "message": f"mounts a bucket that {tenant} may not use: mount {choice(buckets)}",
        },
        {
            "expression": "variables.specs.all(spec,"
            f' spec.?serviceAccountName.orValue("default") in {json.dumps(service_accounts)})',
            "message": f"runs as a service account that workloads may not use: set serviceAccountName to "
            f"{choice(service_accounts)}",
        },
        {
            "expression": "(variables.kind == 'Pod' && !variables.creating)"
            ' || variables.specs.all(spec, spec.?nodeName.orValue("") == "")',
            "message": "sets nodeName, which bypasses scheduler and queue: remove it",
        },
        {
            "expression": "variables.specs.all(spec, spec.?resourceClaims.orValue([]).size() == 0)",
            "message": "claims devices, which no queue counts: request them in resources, and remove resourceClaims",
        },
    ]


def choice(names: Sequence[str]) -> str:
    """Names to choose from, in words."""
    return " or ".join(names) if names else "none, because it has none"
