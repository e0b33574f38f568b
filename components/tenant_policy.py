"""What a tenant's objects may be, in CEL: the rules of its ValidatingAdmissionPolicy.

Everything with accelerators ends as a Pod, and a Pod as one of two: held by Kueue until its queue admits it, or made by
the Job controller for a Job that Kueue held. So those two are checked of whatever is created, whoever creates it; that
a forged owner or an annotation makes Kueue look away is noticed, because then nothing is held. Jobs, JobSets and
Deployments are checked too, so that the refusal is read by who wrote them and not by a controller.
"""

import json
from typing import Any

from catalog.namespaces import JOBSET, KUEUE
from catalog.nodes import GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, NVIDIA_GPU
from catalog.quota import QUEUE_LABEL
from catalog.tpus import GOOGLE_TPU

# Kinds that a tenant may create and that a rule is about: API group, version, resource.
KINDS = [
    ("", "v1", "pods"),
    ("", "v1", "secrets"),
    ("batch", "v1", "jobs"),
    ("apps", "v1", "deployments"),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
]

# Controllers act by service accounts of their own: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles
CONTROLLERS = [*(f"system:serviceaccounts:{one}" for one in ("kube-system", KUEUE, JOBSET)), "system:nodes"]
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
JOBSET_CONTROLLER = f"system:serviceaccounts:{JOBSET}"
# https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/, https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
GATE = "kueue.x-k8s.io/admission"
# What makes Kueue count several pods as one workload, by what the pods themselves say of their likeness
# (kueue.x-k8s.io/role-hash): one that asks for 8 GPUs could pass for another that asks for 1.
WORKLOAD_PARTS = ["kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/prebuilt-workload-name"]
FUSE_DRIVER = "gcsfuse.csi.storage.gke.io"
# A Secret of this type holds a credential that never ends, also for those who have left the team.
TOKEN_SECRET = "kubernetes.io/service-account-token"

FROM_CONTROLLER = f"request.userInfo.groups.exists(group, group in {json.dumps(CONTROLLERS)})"
# What controllers write into an object must pass, whatever the object is by now: a finalizer that they can't take off
# would hold it for ever.
CONDITIONS = [
    {"name": "not-a-controllers-update", "expression": f'request.operation == "CREATE" || !({FROM_CONTROLLER})'}
]


def variables() -> list[dict[str, str]]:
    """What the rules speak of, each by its name; later ones may use earlier ones."""
    accelerator_nodes = json.dumps([GKE_ACCELERATOR, GKE_TPU_ACCELERATOR])
    # No key at all is every taint.
    taints = json.dumps(["", NVIDIA_GPU, GOOGLE_TPU])
    expressions = {
        # Without types: the kinds differ, and of custom resources the API server knows none.
        "made": "dyn(object)",
        "kind": "request.kind.kind",
        "creating": 'request.operation == "CREATE"',
        "specs": "variables.kind == 'Pod' ? [variables.made.spec]"
        " : variables.kind == 'Secret' ? []"
        " : variables.kind == 'JobSet' ? variables.made.spec.replicatedJobs.map(job, job.template.spec.template.spec)"
        " : [variables.made.spec.template.spec]",
        # Terms by which pods choose nodes beside nodeSelector.
        "terms": "variables.specs.map(spec, spec.?affinity.?nodeAffinity).map(affinity,"
        " affinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"
        " + affinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(one, one.preference))",
        # A resource with a domain is a device: accelerators of any vendor, and what is claimed by device class.
        "accelerated": "variables.specs.exists(spec,"
        " (spec.containers + spec.?initContainers.orValue([])).exists(container,"
        ' container.?resources.?requests.orValue({}).exists(name, name.contains("/"))'
        ' || container.?resources.?limits.orValue({}).exists(name, name.contains("/")))'
        f" || spec.?nodeSelector.orValue({{}}).exists(label, label in {accelerator_nodes})"
        f' || spec.?tolerations.orValue([]).exists(one, one.?key.orValue("") in {taints}))'
        # Who keeps off such nodes, by another operator, doesn't want them.
        " || variables.terms.exists(terms, terms.exists(term, term.?matchExpressions.orValue([]).exists(one,"
        f" one.key in {accelerator_nodes} && one.operator in ['In', 'Exists'])))",
        "labels": "variables.made.metadata.?labels.orValue({})",
        "annotations": "variables.made.metadata.?annotations.orValue({})",
        # Children of what Kueue held: they carry no queue of their own.
        "ofItsController": f"(variables.kind == 'Pod' && request.userInfo.username == {json.dumps(JOB_CONTROLLER)})"
        f" || (variables.kind == 'Job' && {json.dumps(JOBSET_CONTROLLER)} in request.userInfo.groups)",
        "held": held("variables.made"),
        "wasHeld": f"!variables.creating && ({held('dyn(oldObject)')})",
        "owners": owners("variables.made"),
        "formerOwners": f"variables.creating ? [] : {owners('dyn(oldObject)')}",
    }
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def held(made: str) -> str:
    """Whether Kueue holds the object back until its queue admits it; a Deployment's pods are held one by one."""
    return (
        f"variables.kind == 'Pod' ? {made}.spec.?schedulingGates.orValue([]).exists(gate, gate.name == {GATE!r})"
        f" : variables.kind in ['Job', 'JobSet'] ? {made}.spec.?suspend.orValue(false) : true"
    )


def owners(made: str) -> str:
    """The owner by which the object counts as a controller's."""
    return f"{made}.metadata.?ownerReferences.orValue([]).filter(owner, owner.?controller.orValue(false))"


def validations(
    tenant: str, queues: list[str], priority_classes: list[str], buckets: list[str], service_accounts: list[str]
) -> list[dict[str, Any]]:
    """The rules, each with what a person reads whose object it refuses."""
    priorities = json.dumps(["", *priority_classes])
    label = f'variables.labels[?"{QUEUE_LABEL}"].orValue("")'
    bucket = 'volume.csi.?volumeAttributes[?"bucketName"].orValue("")'
    return [
        {
            "expression": f"{label} in {json.dumps(['', *queues])}",
            "message": f"is under a queue that {tenant} has not: set the label {QUEUE_LABEL} to {choice(queues)}",
        },
        {
            "expression": f'!variables.accelerated || variables.ofItsController || {label} != ""',
            "message": "asks for accelerators or their nodes, and is under no queue: set the label "
            f"{QUEUE_LABEL} to {choice(queues)}",
        },
        {
            "expression": "!variables.accelerated || !variables.creating || variables.ofItsController"
            " || variables.held",
            "message": "asks for accelerators, and Kueue does not hold it until its queue admits it: leave out owner "
            "references and annotations by which Kueue takes it for another's",
        },
        {
            "expression": f"!{json.dumps(WORKLOAD_PARTS)}.exists(name,"
            " name in variables.labels || name in variables.annotations)",
            "message": "names the group or workload that Kueue should count it in: leave "
            f"{choice(WORKLOAD_PARTS)} out, and make a Job or a JobSet of pods that belong together",
        },
        {
            "expression": "!variables.accelerated || !variables.wasHeld || variables.held",
            "message": "waits in its queue, and Kueue alone starts it: leave spec.suspend and spec.schedulingGates "
            "as they are",
        },
        {
            "expression": "variables.kind == 'Secret' || variables.owners == variables.formerOwners"
            f" || {FROM_CONTROLLER}",
            "message": "has an owner reference with `controller: true`, which only controllers write: leave it out",
        },
        {
            "expression": f'variables.specs.all(spec, spec.?priorityClassName.orValue("") in {priorities})'
            f' && variables.labels[?"{PRIORITY_LABEL}"].orValue("") in {priorities}',
            "message": f"has a priority class that is not for {tenant}: set {choice(priority_classes)}",
        },
        {
            "expression": "variables.specs.all(spec, spec.?volumes.orValue([]).all(volume,"
            f' volume.?csi.?driver.orValue("") != "{FUSE_DRIVER}" || {bucket} in {json.dumps(buckets)}))',
            "message": f"mounts a bucket that is not for {tenant}: mount {choice(buckets)}",
        },
        {
            "expression": "variables.specs.all(spec,"
            f' spec.?serviceAccountName.orValue("default") in {json.dumps(service_accounts)})',
            "message": f"runs as a service account that is not for workloads: set serviceAccountName to "
            f"{choice(service_accounts)}",
        },
        {
            "expression": "(variables.kind == 'Pod' && !variables.creating)"
            ' || variables.specs.all(spec, spec.?nodeName.orValue("") == "")',
            "message": "names its node, past scheduler and queue: leave nodeName out",
        },
        {
            "expression": "variables.specs.all(spec, spec.?resourceClaims.orValue([]).size() == 0)",
            "message": "claims devices, which no queue counts: ask for them in resources, and leave resourceClaims out",
        },
        {
            "expression": f"variables.kind != 'Secret' || variables.made.?type.orValue(\"\") != '{TOKEN_SECRET}'",
            "message": "would hold a credential that never ends: use kubectl create token, whose tokens do",
        },
    ]


def choice(names: list[str]) -> str:
    """Names to choose from, for people to read."""
    return " or ".join(names) if names else "none, as it has none"
