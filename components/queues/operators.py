"""Kubeflow Trainer and KubeRay from their Helm charts."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.kueue import operators
from gke_ai.components.base import Component, custom_resource
from gke_ai.components.support.retry import kueue_hook

TRAINER_VALUES: dict[str, Any] = {
    "image": {
        "registry": operators.TRAINER.image.partition("/")[0],
        "repository": operators.TRAINER.image.partition("/")[2],
        "tag": f"v{operators.TRAINER.version}",
    },
    "jobset": {"install": False},  # the stack has its own
    "manager": {
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
    },
}
KUBERAY_VALUES: dict[str, Any] = {
    "image": {"repository": operators.KUBERAY.image, "tag": f"v{operators.KUBERAY.version}"},
    # Without the proxy, it asks Ray heads with no credential of its own and for 2 seconds at most. With it, a head that
    # redirects the request would receive its token:
    # https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/util.go
    "useKubernetesProxy": False,
    "reconcileConcurrency": 20,  # heads that do not answer hold up the others less
    "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
}


def install_trainer(name: str, parent: Component, jobset: list[pulumi.Resource]) -> pulumi.Resource:
    """Kubeflow Trainer with a runtime for PyTorch. Returns the release."""
    release = _install(operators.TRAINER, TRAINER_VALUES, parent, jobset)
    custom_resource(
        # Helm creates it before the webhook that checks it answers, so it is no part of the release.
        parent.child(operators.TORCH_RUNTIME, depends_on=[release], hooks=kueue_hook(f"runtimes of {name}")),
        api_version=operators.TRAINER.api,
        kind=operators.RUNTIME_KIND,
        metadata={"name": operators.TORCH_RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        spec=torch_runtime(),
    )
    return release


def install_kuberay(parent: Component) -> pulumi.Resource:
    """KubeRay. Returns the release."""
    return _install(operators.KUBERAY, KUBERAY_VALUES, parent)


def torch_runtime() -> dict[str, Any]:
    """Spec of the runtime `torch-distributed`, as Trainer's chart has it."""
    pod = {"containers": [{"name": "node", "image": operators.TORCH_IMAGE}]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {operators.STEP_LABEL: operators.TRAINER_STEP}},
            "spec": {"template": {"spec": pod}},
        },
    }
    return {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}}


def _install(
    operator: operators.Operator, values: dict[str, Any], parent: Component, after: Sequence[pulumi.Resource] = ()
) -> pulumi.Resource:
    chart = operator.chart, operator.version, values
    return helm_release(parent, operator.release, operator.namespace, *chart, after, repository=operator.repository)


def helm_release(
    parent: Component,
    release: str,
    namespace: str,
    chart: str,
    version: str,
    values: dict[str, Any],
    after: Sequence[pulumi.Resource] = (),
    *,
    hooks: pulumi.ResourceHookBinding | None = None,
    repository: str | None = None,
    main_child: bool = False,
) -> "k8s.helm.v3.Release":
    """A chart in a namespace of its own. Pulumi does not wait until it answers: what needs it does.

    With `main_child`, it takes the options of its component that no child inherits.
    """
    # A resource, not Helm's `createNamespace`: Helm would never delete the namespace.
    created = k8s.core.v1.Namespace(*parent.child(namespace), metadata={"name": namespace})
    child = parent.main_child if main_child else parent.child
    return k8s.helm.v3.Release(
        *child(release, depends_on=[created, *after], hooks=hooks),
        name=release,
        namespace=namespace,
        chart=chart,
        repository_opts={"repo": repository} if repository else None,
        version=version,
        skip_await=True,
        values=values,
    )
