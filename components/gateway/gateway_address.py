"""Waits for the address of a Gateway."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from gke_ai.catalog.versions import GATEWAY_API
from gke_ai.components.support.cluster_client import connection, in_thread, load_client
from gke_ai.components.support.polling import Pauses, log_waits, no_answer, poll_until
from gke_ai.kube.objects import condition

# GKE creates the load balancer within a few minutes. A failed one is reported long before.
PATIENCE_SECONDS = 900.0
FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS = 0.3, 1.1, 5.0

Json = Mapping[str, Any]


def gateway_address(
    gateway: pulumi.CustomResource, namespace: str, name: str, kubeconfig: pulumi.Input[str] | None
) -> pulumi.Output[str]:
    """The address of a Gateway, once its load balancer is programmed. Not known in a preview.

    Empty without `kubeconfig`. Raises RunError, with the conditions of the Gateway, if it has none in time.
    """
    if pulumi.runtime.is_dry_run():
        return unknown()
    if kubeconfig is None:
        return pulumi.Output.from_input("")
    load_client()

    async def watch(values: list[str]) -> str:
        return await wait_for_address(values[0], namespace, name, gateway)

    # The id is known once the Gateway is created or updated, so later reads see its current spec.
    return pulumi.Output.all(kubeconfig, gateway.id).apply(watch)


def unknown() -> pulumi.Output[str]:
    """An output that is not known yet."""

    async def value(known: Any) -> Any:
        return known

    futures = [asyncio.ensure_future(value(known)) for known in ("", False, False)]
    return pulumi.Output(set(), *futures)


async def wait_for_address(kubeconfig: str, namespace: str, name: str, gateway: pulumi.Resource) -> str:
    """Returns the address. Logs what the Gateway waits for when it changes, and once a minute."""
    addresses: list[str] = []

    async def check() -> str | None:
        try:
            found, reason = address_of(await in_thread(read_gateway, kubeconfig, namespace, name))
        except Exception as error:  # noqa: BLE001
            return no_answer(error)
        addresses[:] = [found]
        return reason

    reason = await poll_until(
        check,
        PATIENCE_SECONDS,
        Pauses(FIRST_PAUSE_SECONDS, GROWTH, MAX_PAUSE_SECONDS),
        log_waits(f"gateway {namespace}/{name}", gateway),
    )
    if reason is not None:
        raise pulumi.RunError(
            f"Gateway {namespace}/{name} has no address after {PATIENCE_SECONDS / 60:.0f} minutes: it waits for "
            f"{reason}.\nEverything is created and continues to wait. Look at `kubectl -n {namespace} describe gateway "
            f"{name}`, fix the reason and run up again."
        )
    return addresses[0]


def read_gateway(kubeconfig: str, namespace: str, name: str) -> Json:
    """The Gateway as the cluster has it."""

    def read(api: Any) -> Json:
        from kubernetes import client

        group, version = GATEWAY_API.split("/")
        objects: Any = client.CustomObjectsApi(api)
        live: Json = objects.get_namespaced_custom_object(group, version, namespace, "gateways", name)
        return live

    return connection(kubeconfig).call(read)


def address_of(gateway: Json) -> tuple[str, str | None]:
    """The first address of a Gateway, and what the Gateway waits for; None once it is programmed.

    https://gateway-api.sigs.k8s.io/reference/api-types/gateway/
    """
    status = gateway.get("status") or {}
    programmed, accepted = condition(gateway, "Programmed"), condition(gateway, "Accepted")
    addresses = [address["value"] for address in status.get("addresses") or []]
    seen = programmed.get("observedGeneration", 0) >= gateway["metadata"].get("generation", 0)
    if programmed.get("status") == "True" and seen and addresses:
        return addresses[0], None
    cause = accepted if accepted.get("status") == "False" else programmed
    message = str(cause.get("message") or "").strip()
    return "", f"its load balancer{f': {message}' if message and cause.get('status') == 'False' else ''}"
