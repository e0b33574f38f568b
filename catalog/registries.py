"""Registries of container images.

Source: https://github.com/distribution/reference (which part of an image name is the registry)
"""

from __future__ import annotations

DOCKER_HUB = "docker.io"


def registry_of(image: str) -> str:
    """Returns the host of an image: the first part of its name if that is a host, else Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def is_googles(host: str) -> bool:
    """Whether Private Google Access reaches this host.

    https://cloud.google.com/vpc/docs/configure-private-google-access#domain-options
    """
    return host in ("gcr.io", "pkg.dev") or host.endswith((".gcr.io", ".pkg.dev"))
