"""Waits until a cluster's control plane answers.

The official kubernetes plugin checks its cluster once, when it is configured. If the cluster does not answer then, the
plugin treats it as unreachable until the update ends (https://github.com/pulumi/pulumi-kubernetes, Configure in
provider.go).
"""

import base64
import http.client
import ssl
import urllib.error
import urllib.request

import pulumi

from gke_ai.components.support.cluster_client import in_thread
from gke_ai.components.support.polling import Pauses, poll_until

PATIENCE_SECONDS = 300.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
REQUEST_SECONDS = 5.0
LOG_AFTER_SECONDS = 5.0


async def wait_for_control_plane(host: str, ca_certificate: str | None) -> None:
    """Return once the API server at `host` answers. After five minutes log a warning and return.

    `host` has no scheme. `ca_certificate` is base64, or None if the host's certificate is publicly trusted.
    """
    logged = False

    def log_once(reason: str, waited: float) -> None:
        nonlocal logged
        if waited >= LOG_AFTER_SECONDS and not logged:
            pulumi.log.info(f"Waiting until the control plane answers at https://{host}: {reason}")
            logged = True

    reason = await poll_until(
        lambda: in_thread(failure, host, ca_certificate),
        PATIENCE_SECONDS,
        Pauses(FIRST_PAUSE_SECONDS, 1.5, MAX_PAUSE_SECONDS),
        log_once,
    )
    if reason:
        pulumi.log.warn(
            f"The control plane does not answer at https://{host} after {PATIENCE_SECONDS / 60:.0f} minutes: "
            f"{reason}. Objects in the cluster can't be created from this machine. Check its network, and "
            "authorizedNetworks, publicEndpoint and dnsEndpoint of the cluster."
        )


def failure(host: str, ca_certificate: str | None) -> str | None:
    """Why the API server at `host` does not answer. None if it answers, even with a request to log in."""
    try:
        authority = base64.b64decode(ca_certificate).decode() if ca_certificate else None
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        ]
        if host.startswith(("127.", "localhost")):
            handlers.append(urllib.request.ProxyHandler({}))  # like the plugin's client: no proxy to this machine
        with urllib.request.build_opener(*handlers).open(f"https://{host}/healthz", timeout=REQUEST_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code < 500 else f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
