"""Registries of container images.

Source: https://github.com/distribution/reference (which part of an image name is the registry)
"""

from __future__ import annotations

DOCKER_HUB = "docker.io"


def registry_of(image: str) -> str:
    """Returns the host of an image: the first part of its name if that is a host, else Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def streams_to(image: str, region: str) -> bool:
    """Whether GKE can stream an image to nodes in that region: from Artifact Registry there, or in its multi-region.

    https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements
    """
    location = registry_of(image).removesuffix("-docker.pkg.dev")
    continent = region.partition("-")[0].replace("northamerica", "us")
    return location in (region, continent)


def is_googles(host: str) -> bool:
    """Whether Private Google Access reaches this host.

    https://cloud.google.com/vpc/docs/configure-private-google-access#domain-options
    """
    return host in ("gcr.io", "pkg.dev") or host.endswith((".gcr.io", ".pkg.dev"))
