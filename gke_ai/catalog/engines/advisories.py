"""Published advisories: of vLLM, by the first release that has the fix, and of GKE's driver for buckets.

https://github.com/vllm-project/vllm/security/advisories
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gke_ai.catalog.engines.model_cache import release_of
from gke_ai.catalog.machines.features import ordered


@dataclass(frozen=True)
class Advisory:
    """A published advisory: its number, the first release with the fix, and what an attacker can do."""

    number: str
    fixed: tuple[int, ...]
    effect: str


VLLM = (
    Advisory("CVE-2025-62164", (0, 11, 1), "prompt embeddings of a request can end the server or run code"),
    Advisory("CVE-2026-22778", (0, 14, 1), "a video or image of a request can run code"),
    Advisory("CVE-2026-48746", (0, 22, 0), "a Host header passes the API key"),
    Advisory("CVE-2026-114053", (0, 31, 0), "a model can run its own code without being trusted"),
)
_BY_ENGINE = {"vllm": VLLM, "vllm-tpu": VLLM}


def open_in(engine: str, image: str) -> Iterator[Advisory]:
    """The advisories that the release of the image does not fix. Empty if the tag names no release."""
    release = release_of(image)
    if release is not None:
        yield from (advisory for advisory in _BY_ENGINE.get(engine, ()) if release < advisory.fixed)


# The driver of Cloud Storage FUSE does not start on older nodes of these control planes: it wants /proc/sys/fs/fuse. By
# minor version, the first control plane with the fault and the first without. Advisory of 2026-10-02, fixed on
# 2026-10-20: https://cloud.google.com/kubernetes-engine/docs/release-notes
_FUSE_FAULT = ("1.36.3-gke.1244000", "1.36.5-gke.1032000")
_FUSE_FIXED_SINCE = "1.37.1-gke.1552000"
# The first versions of nodes with Container-Optimized OS that have it, by minor version. No node with Ubuntu has it.
_FUSE_NODES = {(1, 34): "1.34.6-gke.1154000", (1, 35): "1.35.3-gke.1389000"}


def mounts_no_bucket(control_plane: str, node: str, image_type: str) -> bool:
    """Whether pods on nodes of a version and an image type wait for their buckets forever, by this advisory."""
    version, first, fixed = (ordered(text) for text in (control_plane, *_FUSE_FAULT))
    faulty = first <= version < fixed or (1, 37) <= version < ordered(_FUSE_FIXED_SINCE)
    if not faulty or image_type.upper().startswith("UBUNTU"):
        return faulty
    minor = ordered(node)[:2]
    return minor < min(_FUSE_NODES) or (minor in _FUSE_NODES and ordered(node) < ordered(_FUSE_NODES[minor]))
