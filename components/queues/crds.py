"""The CRDs in a chart's folder `crds/`, which Helm installs once, and then neither upgrades nor deletes.

https://helm.sh/docs/chart_best_practices/custom_resource_definitions/
"""

import json
from collections.abc import Mapping
from typing import Any

import pulumi

from gke_ai.components.base import Component
from gke_ai.components.support.cluster_client import connection, in_thread
from gke_ai.kube.client import APPLY, APPLY_CRDS

MANAGER = "gke-ai"  # of these fields, in `managedFields`
# The plugin's function that renders a chart, also from a registry: invoke_helm_template.go of pulumi-kubernetes.
RENDER = "kubernetes:helm:template"


def crds_first(
    parent: Component, kind: str, crd: str, kubeconfig: pulumi.Input[str] | None
) -> pulumi.ResourceHookBinding:
    """The hooks with which the cluster has the CRDs of a release's chart before its controller."""

    async def apply(args: pulumi.ResourceHookArgs) -> None:
        await update(args, parent, kind, crd, kubeconfig)

    always = pulumi.ResourceHookOptions(on_dry_run=True)
    hook = pulumi.ResourceHook(f"{kind} of {parent._name}: CRDs first", apply, always)
    return pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])


async def update(
    args: pulumi.ResourceHookArgs, parent: Component, kind: str, crd: str, kubeconfig: pulumi.Input[str] | None
) -> None:
    """Apply the CRDs of a new version, and those of an installation that finds `crd` from an earlier one.

    A preview says so. Without a kubeconfig, the update says what to run instead.
    """
    before, release = (args.old_inputs or {}).get("version"), args.new_inputs or {}
    if before == release["version"] or (before is None and pulumi.runtime.is_dry_run()):
        return
    by_hand = APPLY_CRDS.format(release["chart"], release["version"])
    change = f"{kind} changes from {before} to {release['version']}"
    if pulumi.runtime.is_dry_run():
        pulumi.log.info(f"{change}. The update first applies the CRDs of its chart, which Helm does not upgrade.")
        return
    known = await pulumi.Output.from_input(kubeconfig).future()
    if known is None:
        if before is not None:
            pulumi.log.warn(f"{change}, and there is no kubeconfig to upgrade its CRDs. Run: {by_hand}")
        return
    try:
        if before is None and not await in_thread(has, known, crd):
            return  # Helm installs them
        for found in await crds_of(release, parent):
            await in_thread(apply_crd, known, found)
    except Exception as error:  # noqa: BLE001  of the plugin, the client or the connection
        cause = f"The CRDs of {kind} {release['version']} can't be applied, so its release was not changed: {error}"
        raise pulumi.RunError(f"{cause}\nRun up again, or first: {by_hand}") from None


async def crds_of(release: Mapping[str, Any], parent: Component) -> list[dict[str, Any]]:
    """The CRDs of a release's chart, read by the plugin."""
    options = {"chart": release["chart"], "version": release["version"], "release_name": release["name"]}
    asked = {"jsonOpts": json.dumps({**options, "namespace": release["namespace"]})}
    rendered = await pulumi.runtime.invoke_async(RENDER, asked, pulumi.InvokeOptions(parent=parent))
    return [found for found in rendered["result"] if found["kind"] == "CustomResourceDefinition"]


def has(kubeconfig: str, crd: str) -> bool:
    """Whether the cluster has a CRD."""

    def ask(api: Any) -> bool:
        from kubernetes import client

        try:
            client.ApiextensionsV1Api(api).read_custom_resource_definition(crd)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise
        return True

    return connection(kubeconfig).call(ask)


def apply_crd(kubeconfig: str, crd: dict[str, Any]) -> None:
    """Apply a CRD, whoever has written its fields."""

    def send(api: Any) -> None:
        from kubernetes import client

        client.ApiextensionsV1Api(api).patch_custom_resource_definition(
            crd["metadata"]["name"], crd, field_manager=MANAGER, force=True, _content_type=APPLY
        )

    connection(kubeconfig).call(send)
