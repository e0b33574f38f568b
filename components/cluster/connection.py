"""The cluster that components are in: a `GkeCluster`, or one that something else made."""

from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.arguments import Arguments, Input, Refused, project_of, takes
from gke_ai.components.base import Component
from gke_ai.settings.model import Cluster
from gke_ai.settings.problems import Problem


class AnyCluster(Component):
    """A cluster to which components connect."""

    if TYPE_CHECKING:  # the package would take annotations of a class for outputs
        provider: k8s.Provider
        kubeconfig: pulumi.Output[str]
        cluster_name: pulumi.Output[str]
        project: pulumi.Input[str] | None
        """Id of its project. None if unknown."""
        section: Cluster | None
        """The section of a cluster of this program. None for another cluster."""
        metrics_adapter: Component | None
        """The adapter that the first autoscaler in the cluster has created."""
    else:
        section = metrics_adapter = None

    def need(self, component: str, feature: str, otherwise: str, value: str = "True") -> None:
        """Raise Refused if this program creates the cluster without a feature that a component needs.

        A cluster of somebody else is not asked: `GkeCluster.existing` takes the features that it must have.
        """


class ConnectionArguments(Arguments):
    kubeconfig: Input[str]
    """Kubeconfig of the cluster. If it holds a credential, pass a secret."""
    identifier: Input[str] | None = None
    """Text that changes only when the cluster is made again, which then replaces all objects in it. Default: the
    cluster's name, so that they stay."""
    name: str = ""
    """Name of the cluster in Google Cloud, by which its metrics are selected. Default: the component's name."""
    project: Input[str] | None = None
    """Id of the cluster's Google Cloud project. Default: that of the provider."""


class ClusterConnection(AnyCluster):
    """A cluster that another stack, another provider or a person made, with a Kubernetes provider for it.

    Nothing of the cluster is read, created or deleted. To check what a cluster has, use a `GkeCluster` with
    `mode="existing"`.

    Example:
        ClusterConnection("theirs", kubeconfig=pulumi.Config().require_secret("kubeconfig"), identifier="2026-11")
    """

    cluster_name: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]

    @takes(ConnectionArguments)
    def __init__(self, name: str, args: ConnectionArguments) -> None:
        super().__init__(name, args)
        self.project = args.project
        self._called = args.name
        self.cluster_name = pulumi.Output.from_input(args.name)
        self.kubeconfig = pulumi.Output.from_input(args.kubeconfig)
        self.provider = k8s.Provider(
            *self.main_child(name), kubeconfig=args.kubeconfig, cluster_identifier=args.identifier or self.cluster_name
        )
        self.register_outputs({"clusterName": self.cluster_name, "kubeconfig": self.kubeconfig})

    @property
    def called(self) -> str:
        return self._called


class InCluster(Arguments):
    """The arguments of a component in a cluster."""

    cluster: AnyCluster | None = None
    """Cluster of the component: its objects are created there, after it, and deleted before it. Default: that of the
    other components among the arguments, else the provider among the options."""

    def place(self) -> AnyCluster | None:
        """The cluster, if the arguments have one."""
        others = (getattr(component, "cluster", None) for component in self.components())
        stated: Any = self.cluster
        return next((cluster for cluster in (stated, *others) if isinstance(cluster, AnyCluster)), None)

    def options(self, component: str) -> pulumi.ResourceOptions:
        stated, cluster = super().options(component), self.place()
        if has_provider(stated):
            return stated
        if cluster is not None:
            inside = pulumi.ResourceOptions(providers=[cluster.provider])
            return pulumi.ResourceOptions.merge(inside, stated)
        ambient = pulumi.Config("kubernetes")
        if ambient.get("kubeconfig") or ambient.get("context"):
            return stated
        cause = (
            "no cluster is given. Kubernetes objects would go to whatever cluster a kubeconfig of this machine names"
        )
        remedy = "Pass cluster=…, or opts with a Kubernetes provider"
        raise Refused(component, Problem("cluster", cause, remedy))


class OfCluster(InCluster):
    """The arguments of a component in a cluster that also needs its name."""

    cluster: AnyCluster | str | None = None  # type: ignore[assignment]
    """Cluster of the component, or only its name, beside a provider among the options. Its name selects its metrics.
    Default: that of the other components among the arguments."""

    def cluster_name(self, component: str) -> str:
        """Name of the cluster. Raises Refused if the arguments do not say it."""
        if isinstance(self.cluster, str):
            return self.cluster
        if (cluster := self.place()) is not None:
            return cluster.called
        cause = "is missing, and metrics are selected by its name"
        raise Refused(component, Problem("cluster", cause, "Pass the cluster, or its name"))


def has_provider(opts: pulumi.ResourceOptions) -> bool:
    """Whether options, or those of the parent, have a Kubernetes provider."""
    providers = opts.providers or []
    stated = [*(providers.values() if isinstance(providers, dict) else providers), opts.provider]
    if any(provider is not None and provider.package == "kubernetes" for provider in stated):
        return True
    return opts.parent is not None and opts.parent.get_provider("kubernetes:core/v1:Pod") is not None


def project_in(stated: pulumi.Input[str] | None, cluster: AnyCluster | None, component: str) -> pulumi.Input[str]:
    """Id of the project: the argument, else that of the cluster, else the provider's."""
    return project_of(stated or (cluster.project if cluster else None), component)


def kubeconfig_in(stated: pulumi.Input[str] | None, cluster: AnyCluster | None) -> pulumi.Input[str] | None:
    """Kubeconfig of the cluster in which an update waits: the argument, else that of the cluster, else none."""
    return stated or (cluster.kubeconfig if cluster else None)


def region_in(stated: str | None, cluster: AnyCluster | None, component: str) -> str:
    """The region: the argument, else that of the cluster. Raises Refused if neither says it."""
    if stated:
        return stated
    if cluster is not None and cluster.section is not None:
        return cluster.section.region
    cause = "is missing, and the cluster does not say where it is"
    raise Refused(component, Problem("region", cause, "Pass it, or pass a GkeCluster as the cluster"))
