"""The liveness probe of a container: when its program has to be restarted, as a kubelet decides it.

https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
"""

from __future__ import annotations

import asyncio
import logging

import httpx

from emulator.pods.sandbox import Container

log = logging.getLogger(__name__)

# A kubelet waits for `timeoutSeconds`. On a busy machine, a program that works answers later.
PATIENCE = 10


async def failed(container: Container) -> None:
    """Returns once the probe has failed as often in a row as its container states. Without an HTTP probe, never."""
    probe = container.spec.get("livenessProbe", {})
    asked = probe.get("httpGet", {})
    named = {port["name"]: port["containerPort"] for port in container.spec.get("ports", []) if "name" in port}
    port = container.sandbox.ports.get(named.get(asked.get("port"), asked.get("port")))
    if port is None:  # the program listens elsewhere
        await asyncio.Event().wait()
    url = f"{asked.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}/{asked.get('path', '').lstrip('/')}"
    headers = {header["name"]: header["value"] for header in asked.get("httpHeaders", [])}
    timeout = PATIENCE * probe.get("timeoutSeconds", 1)
    failures = 0
    # As a kubelet, it does not verify certificates.
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=timeout) as client:
        while failures < probe.get("failureThreshold", 3):
            await asyncio.sleep(probe.get("periodSeconds", 10))
            try:
                found = str((await client.get(url, headers=headers)).status_code)
            except httpx.HTTPError as error:
                found = type(error).__name__
            failures = 0 if found[0] in "23" else failures + 1
            if failures:
                log.warning("%s: liveness probe failed %s times: %s", container.spec["name"], failures, found)
