"""Controllers of further kinds of runs, Kubeflow Trainer and KubeRay: their charts, versions and kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """A controller that a stack installs or uses.

    Attributes:
        name: Its name in texts.
        namespace: Its namespace. Tenants let it create pods by the service accounts of this namespace.
        release: Name of its Helm release.
        chart: Its chart, in an OCI registry or in `repository`.
        repository: Address of the chart's repository; empty for an OCI registry.
        version: Version of the chart, and of the controller.
        image: Its image, without the tag, which is `v` and the version.
        api: Group and version of its kinds.
        kinds: The resource of each kind that its users create.
    """

    name: str
    namespace: str
    release: str
    chart: str
    repository: str
    version: str
    image: str
    api: str
    kinds: Mapping[str, str]

    @property
    def group(self) -> str:
        """The API group of its kinds."""
        return self.api.partition("/")[0]

    @property
    def frameworks(self) -> dict[str, str]:
        """Each kind's name in Kueue's configuration.

        https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/controller/jobs
        """
        return {kind: f"{self.group}/{kind.lower()}" for kind in self.kinds}


TRAINER = Operator(
    name="Kubeflow Trainer",
    # That of its manifests: https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/
    namespace="kubeflow-system",
    release="kubeflow-trainer",
    # https://github.com/kubeflow/trainer/tree/v2.2.1/charts/kubeflow-trainer
    chart="oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
    repository="",
    version="2.2.1",
    image="ghcr.io/kubeflow/trainer/trainer-controller-manager",
    # https://github.com/kubeflow/trainer/tree/v2.2.1/pkg/apis/trainer/v1alpha1
    api="trainer.kubeflow.org/v1alpha1",
    kinds={"TrainJob": "trainjobs"},
)
KUBERAY = Operator(
    name="KubeRay",
    namespace="kuberay-system",
    release="kuberay-operator",
    # https://github.com/ray-project/kuberay/tree/v1.6.2/helm-chart/kuberay-operator
    chart="kuberay-operator",
    repository="https://ray-project.github.io/kuberay-helm/",
    version="1.6.2",
    image="quay.io/kuberay/operator",
    # https://github.com/ray-project/kuberay/tree/v1.6.2/ray-operator/apis/ray/v1
    api="ray.io/v1",
    kinds={"RayJob": "rayjobs", "RayCluster": "rayclusters"},
)
# By the key of `gke-ai:queues` that sets one up.
OPERATORS: Mapping[str, Operator] = {"trainer": TRAINER, "ray": KUBERAY}
BY_KIND: Mapping[str, Operator] = {kind: operator for operator in OPERATORS.values() for kind in operator.kinds}
# Kueue's name for each of their kinds. Kueue lists them only if the stack has the controller.
FRAMEWORKS_OF_OPERATORS: Mapping[str, str] = {
    kind: name for operator in OPERATORS.values() for kind, name in operator.frameworks.items()
}
# A runtime for TrainJobs, as Trainer's chart has it: PyTorch by torchrun, with a plain image that a TrainJob replaces.
# https://github.com/kubeflow/trainer/blob/v2.2.1/charts/kubeflow-trainer/templates/runtimes/torch-distributed.yaml
RUNTIME_KIND = "ClusterTrainingRuntime"
TORCH_RUNTIME = "torch-distributed"
TORCH_IMAGE = "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime"
# Label of what Trainer creates for a step of a TrainJob.
STEP_LABEL, TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step", "trainer"
# Labels of what KubeRay creates: the RayCluster of a pod, and the kind and name from which a RayCluster or Job comes.
# https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go
RAY_CLUSTER_LABEL = "ray.io/cluster"
# Labels of the head of a Ray cluster, and the port at which KubeRay asks it about jobs.
RAY_HEAD: Mapping[str, str] = {"ray.io/node-type": "head"}
RAY_DASHBOARD_PORT = 8265
# Flag and key of KubeRay's configuration by which it asks heads with its own credential.
RAY_PROXY_FLAG, RAY_PROXY_KEY = "--use-kubernetes-proxy", "useKubernetesProxy"
