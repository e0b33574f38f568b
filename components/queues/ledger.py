"""A CronJob that counts accelerator time, and holds local queues by budget and by hours."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

import gke_ai
from gke_ai.catalog.engines.model_cache import FILL_IMAGE
from gke_ai.catalog.kueue.ledger import LEDGER, LIMIT, NAMESPACE, REQUEST
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.components.arguments import takes
from gke_ai.components.base import Component
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.queues.namespace import pod_security
from gke_ai.manifests.workload import variables
from gke_ai.settings.model import Budget, Hours

PROGRAM = Path(gke_ai.__file__).parent / "pods" / "programs" / "ledger.py"
PATH = "/program"
# A user without rights on files: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
NOBODY = 65532


class LedgerArguments(InCluster):
    queues: Mapping[str, Sequence[str]]
    """Local queues that it holds, by namespace. Others it never changes."""
    hours: Mapping[str, Sequence[Hours]] = {}
    """Hours of the week in which Kueue admits work, by NAMESPACE/QUEUE. Default: always."""
    budgets: Mapping[str, Budget] = {}
    """Budget by namespace, for all of its `queues`."""
    time_zone: str = "UTC"
    """Time zone of the hours."""
    rates: Mapping[str, float] = {}
    """Price of an accelerator per hour, by flavor."""
    currency: str = ""
    """Currency of the prices."""
    priced_on: str = ""
    """Date of the prices."""


class Ledger(Component):
    """A ledger of accelerator time, which holds local queues whose budget is used or whose hours are over.

    A CronJob runs each minute. It reads Kueue's Workloads, writes the ConfigMap `ledger`, and sets `stopPolicy: Hold`
    of a local queue: Kueue then admits no new work of it, and what runs continues. Annotations of the queue say what is
    used and why it is held, for the tenant too. In the next month, or with a larger budget, it removes its own hold. A
    hold that somebody else set stays. While no pod of it runs, queues stay as they are.

    Only its own service account, and the platform, may write the ledger: it has a namespace of its own. It may read
    Workloads, and change these local queues and its ConfigMap. Pulumi registers neither the ConfigMap nor the fields.

    Sources: https://kueue.sigs.k8s.io/docs/concepts/local_queue/,
    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/,
    https://kubernetes.io/docs/reference/using-api/server-side-apply/

    Example:
        budgets = {"research": {"accelerator_hours": 500}}
        Ledger("ledger", cluster=cluster, queues={"research": ["team"]}, budgets=budgets)
    """

    namespace: pulumi.Output[str]
    """Namespace of the ledger."""

    @takes(LedgerArguments)
    def __init__(self, name: str, args: LedgerArguments) -> None:
        super().__init__(name, args)
        labels = pod_security("restricted")
        space = k8s.core.v1.Namespace(*self.child(NAMESPACE), metadata={"name": NAMESPACE, "labels": labels})
        inside: Any = {"depends_on": [space]}
        account = k8s.core.v1.ServiceAccount(
            *self.child(f"{NAMESPACE}/{LEDGER}", **inside), metadata={"name": LEDGER, "namespace": NAMESPACE}
        )
        k8s.networking.v1.NetworkPolicy(
            *self.child(f"{NAMESPACE}/closed", **inside),
            metadata={"name": "closed", "namespace": NAMESPACE},
            spec={"pod_selector": {}, "policy_types": ["Ingress"]},
        )
        content = {"ledger.py": PROGRAM.read_text(), "budgets.json": json.dumps(configuration(args), sort_keys=True)}
        program = f"{LEDGER}-{hashlib.sha256(''.join(content.values()).encode()).hexdigest()[:6]}"
        config_map = k8s.core.v1.ConfigMap(
            *self.child(f"{NAMESPACE}/{program}", **inside),
            metadata={"name": program, "namespace": NAMESPACE},
            data=content,
        )
        group = KUEUE_API.partition("/")[0]
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": NAMESPACE}
        rights = {
            NAMESPACE: [rule("", "configmaps", ["create"]), rule("", "configmaps", ["get", "update"], [LEDGER])],
            **{space: [rule(group, "localqueues", ["get", "patch"], names)] for space, names in args.queues.items()},
        }
        granted: list[pulumi.Resource] = [
            k8s.rbac.v1.ClusterRole(
                *self.child("readers"), metadata=metadata, rules=[rule(group, "workloads", ["list", "watch"])]
            ),
            k8s.rbac.v1.ClusterRoleBinding(
                *self.child("readers-binding", **inside), metadata=metadata, **binding("ClusterRole")
            ),
        ]
        for place, rules in rights.items():
            there: k8s.meta.v1.ObjectMetaArgsDict = {"name": NAMESPACE, "namespace": place}
            granted += [
                k8s.rbac.v1.Role(*self.child(f"{place}/rights", **inside), metadata=there, rules=rules),
                k8s.rbac.v1.RoleBinding(
                    *self.child(f"{place}/rights-binding", **inside), metadata=there, **binding("Role")
                ),
            ]
        k8s.batch.v1.CronJob(
            *self.main_child(f"{NAMESPACE}/{LEDGER}-runs", depends_on=[account, config_map, *granted]),
            metadata={"name": LEDGER, "namespace": NAMESPACE},
            spec=cron_job(program),
        )
        self.namespace = space.metadata.name.apply(lambda name: name or NAMESPACE)
        self.register_outputs({"namespace": self.namespace})


def rule(group: str, kind: str, verbs: list[str], names: Sequence[str] = ()) -> "k8s.rbac.v1.PolicyRuleArgsDict":
    """Rights on objects of a kind: on all of them, or on those with these names."""
    rights: k8s.rbac.v1.PolicyRuleArgsDict = {"api_groups": [group], "resources": [kind], "verbs": verbs}
    return {**rights, "resource_names": list(names)} if names else rights


def binding(kind: str) -> Any:
    """What binds a role of this kind to the service account."""
    return {
        "role_ref": {"api_group": "rbac.authorization.k8s.io", "kind": kind, "name": NAMESPACE},
        "subjects": [{"kind": "ServiceAccount", "name": LEDGER, "namespace": NAMESPACE}],
    }


def configuration(args: LedgerArguments) -> dict[str, Any]:
    """What the program reads: budgets with their prices, and the queues with their hours."""
    prices = {"rates": dict(args.rates), "currency": args.currency, "date": args.priced_on}
    return {
        "resources": list(ACCELERATORS),
        "timeZone": args.time_zone,
        "budgets": {space: {**budget.model_dump(by_alias=True), **prices} for space, budget in args.budgets.items()},
        "queues": [
            {
                "name": name,
                "namespace": space,
                "hours": [own.model_dump() for own in args.hours.get(f"{space}/{name}", ())],
            }
            for space, names in args.queues.items()
            for name in names
        ],
    }


def cron_job(program: str) -> Any:
    """Spec of the CronJob. A run that starts late is no problem, and two at once would be in each other's way."""
    environment = {"NAMESPACE": NAMESPACE, "CONFIG": f"{PATH}/budgets.json", "PYTHONDONTWRITEBYTECODE": "1"}
    container = {
        "name": LEDGER,
        "image": FILL_IMAGE,
        "command": ["python3", "-u", f"{PATH}/ledger.py"],
        "env": variables(environment),
        "resources": {"requests": dict(REQUEST), "limits": dict(LIMIT)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "program", "mountPath": PATH, "readOnly": True}],
    }
    pod = {
        "containers": [container],
        "restartPolicy": "Never",
        "serviceAccountName": LEDGER,
        "securityContext": {"runAsNonRoot": True, "runAsUser": NOBODY, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "program", "configMap": {"name": program}}],
    }
    job = {"activeDeadlineSeconds": 120, "backoffLimit": 0, "ttlSecondsAfterFinished": 600, "template": {"spec": pod}}
    return {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 120,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": job},
    }
