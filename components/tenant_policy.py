"""The rules of a tenant's ValidatingAdmissionPolicy, in CEL.

Every use of accelerators ends in a Pod. Kueue holds that Pod until its queue admits it, or the Job controller created
it for a Job that Kueue held. The rules check that one of the two is true for every Pod, whoever creates it. A forged
owner or an annotation that makes Kueue ignore a Pod is refused, because Kueue then does not hold it. The rules check
Jobs, JobSets and Deployments too, so that their author reads the refusal and not a controller.
"""

import json
from typing import Any

from catalog import fuse
from catalog.namespaces import JOBSET, KUEUE
from catalog.nodes import GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, NVIDIA_GPU
from catalog.quota import QUEUE_LABEL
from catalog.tpus import GOOGLE_TPU

# Kinds that a tenant may create and that have rules: API group, version, resource.
KINDS = [
    ("", "v1", "pods"),
    ("", "v1", "secrets"),
    ("batch", "v1", "jobs"),
    ("apps", "v1", "deployments"),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
]

# Controllers have their own service accounts: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles
CONTROLLERS = [*(f"system:serviceaccounts:{namespace}" for namespace in ("kube-system", KUEUE, JOBSET)), "system:nodes"]
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
JOBSET_CONTROLLER = f"system:serviceaccounts:{JOBSET}"
# https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/, https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
GATE = "kueue.x-k8s.io/admission"
# Labels and annotations that make Kueue count several pods as one workload. Kueue trusts the pods' own role hash
# (kueue.x-k8s.io/role-hash), so a pod with 8 GPUs could count as one with 1.
WORKLOAD_PARTS = ["kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/prebuilt-workload-name"]
# A Secret of this type holds a credential that never expires, even for people who leave the team.
TOKEN_SECRET = "kubernetes.io/service-account-token"

FROM_CONTROLLER = f"request.userInfo.groups.exists(group, group in {json.dumps(CONTROLLERS)})"
# Updates by controllers always pass, whatever the object is: a finalizer that they can't remove would keep it
# forever.
CONDITIONS = [
    {"name": "not-a-controllers-update", "expression": f'request.operation == "CREATE" || !({FROM_CONTROLLER})'}
]


def variables() -> list[dict[str, str]]:
    """CEL variables of the rules. Later ones may use earlier ones."""
    accelerator_nodes = json.dumps([GKE_ACCELERATOR, GKE_TPU_ACCELERATOR])
    # A toleration without a key tolerates every taint.
    taints = json.dumps(["", NVIDIA_GPU, GOOGLE_TPU])
    expressions = {
        # Untyped: the kinds differ, and the API server has no types for custom resources.
        "made": "dyn(object)",
        "kind": "request.kind.kind",
        "creating": 'request.operation == "CREATE"',
        "specs": "variables.kind == 'Pod' ? [variables.made.spec]"
        " : variables.kind == 'Secret' ? []"
        " : variables.kind == 'JobSet' ? variables.made.spec.replicatedJobs.map(job, job.template.spec.template.spec)"
        " : [variables.made.spec.template.spec]",
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
        "labels": "variables.made.metadata.?labels.orValue({})",
        "annotations": "variables.made.metadata.?annotations.orValue({})",
        # Children of an object that Kueue held. They have no queue label.
        "ofItsController": f"(variables.kind == 'Pod' && request.userInfo.username == {json.dumps(JOB_CONTROLLER)})"
        f" || (variables.kind == 'Job' && {json.dumps(JOBSET_CONTROLLER)} in request.userInfo.groups)",
        "held": held("variables.made"),
        "wasHeld": f"!variables.creating && ({held('dyn(oldObject)')})",
        "owners": owners("variables.made"),
        "formerOwners": f"variables.creating ? [] : {owners('dyn(oldObject)')}",
    }
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def held(item: str) -> str:
    """Whether Kueue holds the object until its queue admits it. For a Deployment, Kueue holds each pod."""
    return (
        f"variables.kind == 'Pod' ? {item}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == {GATE!r})"
        f" : variables.kind in ['Job', 'JobSet'] ? {item}.spec.?suspend.orValue(false) : true"
    )


def owners(item: str) -> str:
    """The owner reference of the object's controller."""
    return f"{item}.metadata.?ownerReferences.orValue([]).filter(owner, owner.?controller.orValue(false))"


def validations(
    tenant: str, queues: list[str], priority_classes: list[str], buckets: list[str], service_accounts: list[str]
) -> list[dict[str, Any]]:
    """The rules, each with the message of a refusal."""
    priorities = json.dumps(["", *priority_classes])
    label = f'variables.labels[?"{QUEUE_LABEL}"].orValue("")'
    bucket = 'volume.csi.?volumeAttributes[?"bucketName"].orValue("")'
    return [
        {
            "expression": f"{label} in {json.dumps(['', *queues])}",
            "message": f"uses a queue that {tenant} does not have: set the label {QUEUE_LABEL} to {choice(queues)}",
        },
        {
            "expression": f'!variables.accelerated || variables.ofItsController || {label} != ""',
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
            "expression": f"!{json.dumps(WORKLOAD_PARTS)}.exists(name,"
            " name in variables.labels || name in variables.annotations)",
            "message": "names the group or workload in which Kueue should count it: remove "
            f"{choice(WORKLOAD_PARTS)}, and create a Job or a JobSet for pods that belong together",
        },
        {
            "expression": "!variables.accelerated || !variables.wasHeld || variables.held",
            "message": "waits in its queue, and only Kueue may start it: do not change spec.suspend and "
            "spec.schedulingGates",
        },
        {
            "expression": "variables.kind == 'Secret' || variables.owners == variables.formerOwners"
            f" || {FROM_CONTROLLER}",
            "message": "has an owner reference with `controller: true`, which only controllers may write: remove it",
        },
        {
            "expression": f'variables.specs.all(spec, spec.?priorityClassName.orValue("") in {priorities})'
            f' && variables.labels[?"{PRIORITY_LABEL}"].orValue("") in {priorities}',
            "message": f"uses a priority class that {tenant} may not use: set {choice(priority_classes)}",
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
        {
            "expression": f"variables.kind != 'Secret' || variables.made.?type.orValue(\"\") != '{TOKEN_SECRET}'",
            "message": "would hold a credential that never expires: use kubectl create token, whose tokens expire",
        },
    ]


def choice(names: list[str]) -> str:
    """Names to choose from, in words."""
    return " or ".join(names) if names else "none, because it has none"
