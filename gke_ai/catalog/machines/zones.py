"""Regions and zones of Google Cloud.

Source: https://cloud.google.com/compute/docs/regions-zones#available. Zones only for AI machines (`us-central1-ai1a`)
and zones that Google assigns by project are left out.
"""

from __future__ import annotations

import re

_REGIONS = """
africa-south1 asia-east1 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2
asia-southeast1 asia-southeast2 australia-southeast1 australia-southeast2 europe-central2 europe-north1 europe-north2
europe-southwest1 europe-west1 europe-west2 europe-west3 europe-west4 europe-west6 europe-west8 europe-west9
europe-west10 europe-west12 me-central1 me-central2 me-west1 northamerica-northeast1 northamerica-northeast2
northamerica-south1 southamerica-east1 southamerica-west1 us-central1 us-east1 us-east4 us-east5 us-south1 us-west1
us-west2 us-west3 us-west4
"""
# Zone letters of regions whose zones are not a, b and c.
_LETTERS = {"europe-west1": "bcd", "us-central1": "abcf", "us-east1": "bcd"}

ZONES: dict[str, tuple[str, ...]] = {
    region: tuple(f"{region}-{letter}" for letter in _LETTERS.get(region, "abc")) for region in _REGIONS.split()
}

# Multi-regions and predefined dual-regions of Cloud Storage: https://cloud.google.com/storage/docs/locations
BUCKET_MULTI_REGIONS = ("ASIA", "EU", "US", "ASIA1", "EUR4", "EUR5", "EUR7", "EUR8", "NAM4")


def is_zone(location: str) -> bool:
    """Whether a location has the form of a zone (`us-central1-a`). The zone need not exist."""
    return re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-[a-z0-9]+", location) is not None


def is_ai_zone(zone: str) -> bool:
    """Whether a zone has the form of one for AI machines (`us-central1-ai1a`), which only some projects can use.

    https://cloud.google.com/compute/docs/regions-zones/ai-zones
    """
    return re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-ai[0-9][a-z]", zone) is not None


def region_of(location: str) -> str:
    """Returns the region of a zone (`us-central1` of `us-central1-a`) or of a region."""
    return location.rpartition("-")[0] if is_zone(location) else location


def node_zones(location: str) -> tuple[str, ...]:
    """Returns the default zones of a cluster's nodes: the zone itself, or three zones of the region.

    In a region with more zones, GKE chooses three when it creates the cluster; this returns the first three.
    https://cloud.google.com/kubernetes-engine/docs/concepts/types-of-clusters#regional_clusters
    """
    return (location,) if is_zone(location) else ZONES[location][:3]


def chooses_zones(location: str) -> bool:
    """Whether GKE chooses among more than three zones, so that `node_zones` may differ from the zones of a cluster."""
    return len(ZONES.get(location, ())) > 3
