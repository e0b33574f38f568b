"""Turns the cluster's PodMonitorings into a Prometheus configuration that scrapes what Google's service would.

Target labels are Google's. If a series has such a label itself, its own value moves to `exported_…`. The labels
`top_level_controller_…` and limits are omitted, because nothing here uses them. Secrets are read regardless of the
collector's permissions, and only tokens of service accounts. A pod without a local process runs nothing and is no
target.

Sources: https://github.com/GoogleCloudPlatform/prometheus-engine/blob/main/doc/api.md#podmonitoring,
https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed#gmp-pod-monitoring
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from emulator.cloud.records import ClusterRecord
from emulator.machine.folders import folder_name
from gke_ai.catalog.selectors import matches

Object = dict[str, Any]
Served = Mapping[str, Mapping[int, int]]


def configuration(
    cluster: ClusterRecord, monitorings: Iterable[Object], pods: Iterable[Object], served: Served
) -> Object:
    """Returns the configuration of Prometheus.

    Args:
        cluster: The cluster, for the target labels.
        monitorings: PodMonitorings of the cluster.
        pods: Pods of the cluster.
        served: The local port by container port, for each pod uid with a local process.
    """
    everywhere = {"project_id": cluster.project, "location": cluster.location, "cluster": cluster.name}
    running = [pod for pod in pods if pod["metadata"]["uid"] in served]
    jobs = [
        _job(everywhere, monitoring, endpoint, running, served)
        for monitoring in sorted(monitorings, key=lambda m: (m["metadata"]["namespace"], m["metadata"]["name"]))
        for endpoint in monitoring["spec"]["endpoints"]
    ]
    return {"scrape_configs": jobs}


def credential(namespace: str, name: str, key: str) -> str:
    """Path of the file with a Secret's key, relative to the configuration."""
    return f"credentials/{folder_name(namespace)}_{folder_name(name)}_{folder_name(key)}"


def wanted_secrets(monitorings: Iterable[Object]) -> set[tuple[str, str, str]]:
    """Returns (namespace, name, key) of the Secrets in the authorization of endpoints."""
    return {
        (monitoring["metadata"]["namespace"], secret["name"], secret["key"])
        for monitoring in monitorings
        for endpoint in monitoring["spec"]["endpoints"]
        if (secret := endpoint.get("authorization", {}).get("credentials", {}).get("secret"))
    }


def _job(
    everywhere: Mapping[str, str], monitoring: Object, endpoint: Object, pods: Iterable[Object], served: Served
) -> Object:
    metadata, spec = monitoring["metadata"], monitoring["spec"]
    authorization, tls = endpoint.get("authorization"), endpoint.get("tls", {})
    secret = (authorization or {}).get("credentials", {}).get("secret")
    settings = {
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint.get("timeout"),
        "metrics_path": endpoint.get("path"),
        "scheme": endpoint.get("scheme"),
        "params": endpoint.get("params"),
        "authorization": authorization
        and {
            "type": authorization.get("type", "Bearer"),
            **({"credentials_file": credential(metadata["namespace"], **secret)} if secret else {}),
        },
        "tls_config": {
            name: value
            for name, value in (
                ("insecure_skip_verify", tls.get("insecureSkipVerify")),
                ("server_name", tls.get("serverName")),
            )
            if value
        },
        "metric_relabel_configs": [_snake_case(rule) for rule in endpoint.get("metricRelabeling", [])],
    }
    targets = []
    for pod in pods:
        if pod["metadata"]["namespace"] == metadata["namespace"] and matches(
            spec["selector"], pod["metadata"].get("labels", {})
        ):
            common = {**everywhere, "namespace": metadata["namespace"], "job": metadata["name"]}
            for port, labels in _targets(pod, endpoint["port"], spec.get("targetLabels", {})):
                if (local := served[pod["metadata"]["uid"]].get(port)) is not None:
                    targets.append({"targets": [f"127.0.0.1:{local}"], "labels": common | labels})
    return {
        "job_name": f"PodMonitoring/{metadata['namespace']}/{metadata['name']}/{endpoint['port']}",
        **{name: value for name, value in settings.items() if value},
        "static_configs": targets,
    }


def _targets(pod: Object, port: int | str, wanted: Object) -> Iterator[tuple[int, dict[str, str]]]:
    """The ports of a pod that an endpoint selects, each with its labels."""
    metadata = pod["metadata"]
    values = {"pod": metadata["name"], "node": pod["spec"]["nodeName"]}
    owners = [owner["kind"] for owner in metadata.get("ownerReferences", []) if owner.get("controller")]
    instance = values["node" if owners == ["DaemonSet"] else "pod"]
    labels = {"instance": f"{instance}:{port}"}
    labels |= {name: values[name] for name in wanted.get("metadata") or [] if name in values}
    for mapping in wanted.get("fromPod", []):
        if mapping["from"] in metadata.get("labels", {}):
            labels[mapping.get("to") or mapping["from"]] = metadata["labels"][mapping["from"]]
    if isinstance(port, int):
        # Two containers can have the same port number, so there is no container label, even if it is requested.
        yield port, labels
        return
    for container in pod["spec"]["containers"]:
        named = {"container": container["name"]} if "container" in (wanted.get("metadata") or []) else {}
        for declared in container.get("ports", []):
            if declared.get("name") == port:
                yield declared["containerPort"], labels | named


def _snake_case(rule: Object) -> Object:
    return {re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", name): value for name, value in rule.items()}
