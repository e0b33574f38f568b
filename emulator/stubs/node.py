"""Stubs of what runs beside model servers: the TPU device plugin of a node, and a metrics API."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from emulator.stubs.server import Answer, ErrorAnswer, Object, metric, serve

# File in a container's private folder: the chips that it holds and their used memory.
CHIPS_FILE = "chips.json"


def device_plugin(port: int, sandboxes: str, node: str) -> None:
    """GKE's TPU device plugin: reports the memory of its node's chips, by the containers that hold them.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#metrics
    """

    def metrics(_: Object) -> Answer:
        used, total = {}, {}
        for chips in _chips_on(Path(sandboxes), node):
            labels = ",".join(f'{name}="{value}"' for name, value in chips["labels"].items())
            for chip in range(chips["count"]):
                used[f'accelerator_id="{chip}",{labels}'] = chips["used"]
                total[f'accelerator_id="{chip}",{labels}'] = chips["memory"]
        return metric("memory_used", "Bytes in use of a chip", used) + metric("memory_total", "Bytes of a chip", total)

    serve(port, {"GET": metrics})


def _chips_on(sandboxes: Path, node: str) -> list[Object]:
    result = []
    for file in sorted(sandboxes.glob(f"*/*/{CHIPS_FILE}")):
        try:
            result.append(json.loads(file.read_text()))
        except FileNotFoundError:
            continue  # its pod has just ended
    return [chips for chips in result if chips["node"] == node]


def metrics_api(port: int, certificate: str, key: str) -> None:
    """A metrics API without metrics, in place of the Stackdriver adapter, which needs Cloud Monitoring."""

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    serve(port, {"GET /healthz": lambda _: "ok", "GET": discovery}, tls)


def discovery(request: Object) -> Answer:
    """Discovery of an aggregated API without resources."""
    empty, apis, *group_version = request["path"].split("/")
    if (empty, apis, len(group_version)) != ("", "apis", 2):
        raise ErrorAnswer(404, "no metrics: this is a stub of the Stackdriver adapter")
    group = "/".join(group_version)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}
