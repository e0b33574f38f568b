"""What each tool needs beside the objects: the order of the stages, Helm releases, and runs that it must not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gke_ai.kube.client import APPLY_CRDS
from gke_ai.review.gitops.documents import document, values
from gke_ai.review.gitops.objects import InCluster, KubernetesObject, Release, Stage

WAVES = {stage: str(number) for number, stage in enumerate(Stage)}
# Argo CD applies a wave once the one before is healthy, and a server that waits for quota is not.
WAVES[Stage.RUNS] = WAVES[Stage.WORKLOADS]
Json = dict[str, Any]


@dataclass(frozen=True)
class Kubectl:
    """kubectl and helm, by hand or in a workflow: the folders are the order, and the files of charts are their values.

    Attributes:
        stack: The name of the stack.
        path: The folder of the manifests, from the root of their repository.
        content: What the stack registers in its cluster.
    """

    stack: str
    path: str
    content: InCluster

    # Annotations: the wave of an object; create it once and never change it; leave it in the cluster without its file.
    WAVE: ClassVar[str] = ""
    ONCE: ClassVar[Mapping[str, str]] = {}
    KEEP: ClassVar[Mapping[str, str]] = {}

    def annotations(self, item: KubernetesObject) -> Mapping[str, str]:
        """Annotations of an object for this tool."""
        return {**self.order(item), **(self.ONCE if item.is_run else {}), **(self.KEEP if item.kept else {})}

    def order(self, item: KubernetesObject) -> Mapping[str, str]:
        """The annotation that says when an object is applied, if the tool has one."""
        return {self.WAVE: WAVES[item.stage]} if self.WAVE else {}

    def release(self, release: Release) -> str:
        """The content of the file of a Helm release."""
        return values(release.values)

    def syncs(self) -> Iterator[tuple[str, str]]:
        """Yields path and content of files that apply the stages in their order."""
        yield from ()

    def steps(self) -> Iterator[str]:
        """Yields the lines of the page that says how to apply the folder."""
        yield "Apply the folders in this order, from this folder:\n"
        yield "```"
        for stage in self.content.stages:
            if stage is Stage.CHARTS:
                for release in self.content.releases:
                    chart = f"{release.registry}/{release.chart}"
                    if not release.is_oci:
                        chart = f"{release.chart} --repo {release.registry}"
                    if release.has_crds:
                        yield APPLY_CRDS.format(chart, release.version)
                    yield (
                        f"helm upgrade --install {release.name} {chart} --version "
                        f"{release.version} --namespace {release.namespace} --wait --values {release_path(release)}"
                    )
            else:
                verb = "create" if stage is Stage.RUNS else "apply --server-side --force-conflicts"
                yield f"kubectl {verb} --recursive -f {stage.value}"
        yield "```"
        if Stage.RUNS in self.content.stages:
            yield (
                "\nRuns are created and never applied again: `apply` would suspend a run that Kueue has admitted. "
                "`create` reports each run that exists and leaves it as it is."
            )


@dataclass(frozen=True)
class ArgoCd(Kubectl):
    """Argo CD. https://argo-cd.readthedocs.io/en/stable/user-guide/sync-waves/"""

    WAVE = "argocd.argoproj.io/sync-wave"
    KEEP: ClassVar = {"argocd.argoproj.io/sync-options": "Prune=false"}

    def release(self, release: Release) -> str:
        # https://argo-cd.readthedocs.io/en/stable/user-guide/helm/. Argo CD writes OCI registries without a scheme.
        source = {
            "repoURL": release.registry.removeprefix("oci://"),
            "chart": release.chart,
            "targetRevision": release.version,
            "helm": {"releaseName": release.name, "valuesObject": release.values},
        }
        spec = {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": release.namespace},
            "source": source,
            "syncPolicy": {"automated": {"selfHeal": True}, "syncOptions": ["ServerSideApply=true"]},
        }
        wave = {self.WAVE: WAVES[Stage.CHARTS]}
        return document(resource("argoproj.io/v1alpha1", "Application", release.name, "argocd", spec, wave))

    def steps(self) -> Iterator[str]:
        yield "Sync waves have the order. Create one Application for this folder, with these parts:\n"
        runs = (("batch", "Job"), ("jobset.x-k8s.io", "JobSet"))
        spec = {
            "source": {"directory": {"recurse": True}},
            "ignoreDifferences": [{"group": group, "kind": kind, "jsonPointers": ["/spec"]} for group, kind in runs],
            "syncPolicy": {"syncOptions": ["ServerSideApply=true", "RespectIgnoreDifferences=true"]},
        }
        yield f"```yaml\n{values({'spec': spec})}```\n"
        yield (
            "Without `ignoreDifferences`, Argo CD would suspend each run that Kueue has admitted. A wave waits for the "
            "Applications of charts only if Argo CD has their health check: "
            "https://argo-cd.readthedocs.io/en/stable/operator-manual/health/#argocd-app"
        )


@dataclass(frozen=True)
class Flux(Kubectl):
    """Flux: a Kustomization for each stage, which depends on the one before."""

    # https://fluxcd.io/flux/components/kustomize/kustomizations/#controlling-the-apply-behavior-of-resources
    ONCE: ClassVar = {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
    KEEP: ClassVar = {"kustomize.toolkit.fluxcd.io/prune": "disabled"}

    def release(self, release: Release) -> str:
        of = (release.name, release.namespace)
        # https://fluxcd.io/flux/components/helm/helmreleases/#controlling-the-lifecycle-of-custom-resource-definitions
        crds = {"upgrade": {"crds": "CreateReplace"}} if release.has_crds else {}
        helm: Json = {"interval": "1h", "releaseName": release.name, "values": release.values, **crds}
        if not release.is_oci:
            # https://fluxcd.io/flux/components/source/helmrepositories/
            source: Json = {"interval": "1h", "url": release.registry}
            repository = resource("source.toolkit.fluxcd.io/v1", "HelmRepository", *of, source)
            reference = {"kind": "HelmRepository", "name": release.name}
            chart = {"chart": release.chart, "version": release.version, "sourceRef": reference}
            spec = {**helm, "chart": {"spec": chart}}
            return self._with_source(repository, release, spec)
        # https://fluxcd.io/flux/components/source/ocirepositories/#layer-selector
        layer = {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy"}
        source = {"interval": "1h", "url": f"{release.registry}/{release.chart}"}
        source |= {"ref": {"tag": release.version}, "layerSelector": layer}
        spec = {**helm, "chartRef": {"kind": "OCIRepository", "name": release.name}}
        repository = resource("source.toolkit.fluxcd.io/v1", "OCIRepository", *of, source)
        return self._with_source(repository, release, spec)

    @staticmethod
    def _with_source(repository: Json, release: Release, spec: Json) -> str:
        own = resource("helm.toolkit.fluxcd.io/v2", "HelmRelease", release.name, release.namespace, spec)
        return f"{document(repository)}---\n{document(own)}"

    def syncs(self) -> Iterator[tuple[str, str]]:
        previous: list[Json] = []
        for stage in self.content.stages:
            name = f"{self.stack}-{stage.value}"
            spec = {
                "interval": "10m",
                "path": f"./{self.path}/{stage.value}",
                "prune": True,
                # A server may wait for nodes, and a run for quota: nothing waits for them.
                "wait": stage not in (Stage.WORKLOADS, Stage.RUNS),
                "sourceRef": {"kind": "GitRepository", "name": "flux-system"},
                **({"dependsOn": previous} if previous else {}),
            }
            kustomization = resource("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name, "flux-system", spec)
            yield f"flux/{stage.value}.yaml", document(kustomization)
            previous = [{"name": name}]

    def steps(self) -> Iterator[str]:
        yield (
            "Flux applies the stages in their order, by the Kustomizations in `flux`. Add "
            f"`{self.path}/flux` to the Kustomization of your cluster, or run `kubectl apply -f flux`. They read the "
            "GitRepository `flux-system`, which `flux bootstrap` creates."
        )


@dataclass(frozen=True)
class ConfigSync(Kubectl):
    """Config Sync. https://cloud.google.com/kubernetes-engine/config-sync/docs/how-to/declare-resource-dependency"""

    # https://cloud.google.com/kubernetes-engine/config-sync/docs/how-to/ignore-object-mutations
    ONCE: ClassVar = {"client.lifecycle.config.k8s.io/mutation": "ignore"}
    KEEP: ClassVar = {"client.lifecycle.config.k8s.io/deletion": "detach"}

    def order(self, item: KubernetesObject) -> Mapping[str, str]:
        written = {(other.kind, other.namespace, other.name): other for other in self.content.objects}
        needed = sorted(reference(written[key]) for key in {*item.needs} if key in written)
        return {"config.kubernetes.io/depends-on": ",".join(needed)} if needed else {}

    def release(self, release: Release) -> str:
        # https://cloud.google.com/kubernetes-engine/config-sync/docs/how-to/sync-helm-charts-from-artifact-registry
        helm = {
            "repo": release.registry,
            "chart": release.chart,
            "version": release.version,
            "releaseName": release.name,
            "namespace": release.namespace,
            "includeCRDs": True,
            "auth": "none",
            "values": release.values,
        }
        spec = {"sourceFormat": "unstructured", "sourceType": "helm", "helm": helm}
        sync = resource("configsync.gke.io/v1beta1", "RootSync", release.name, "config-management-system", spec)
        return document(sync)

    def steps(self) -> Iterator[str]:
        yield (
            "Let a RootSync with `sourceFormat: unstructured` read this folder. Namespaces come first, and annotations "
            "have the order of queues and workloads. Apply `30-charts` once before: Config Sync knows the kinds of "
            "queues only after the RootSyncs of the charts have installed them.\n"
        )
        yield f"```\nkubectl apply -f {Stage.NAMESPACES.value} -f {Stage.CHARTS.value}\n```"


TOOLS: Mapping[str, type[Kubectl]] = {"argocd": ArgoCd, "flux": Flux, "config-sync": ConfigSync, "kubectl": Kubectl}


def resource(
    api_version: str, kind: str, name: str, namespace: str, spec: Json, annotations: Mapping[str, str] | None = None
) -> Json:
    """Returns an object of a tool."""
    metadata = {"name": name, "namespace": namespace, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def reference(item: KubernetesObject) -> str:
    """Returns an object as an annotation of Config Sync names it."""
    scope = f"namespaces/{item.namespace}/" if item.namespace else ""
    return f"{item.group}/{scope}{item.kind}/{item.name}"


def release_path(release: Release) -> str:
    """The path of the file of a Helm release."""
    return f"{Stage.CHARTS.value}/{release.namespace}-{release.name}.yaml"
