"""Published security advisories of vLLM, by the first release that has the fix.

https://github.com/vllm-project/vllm/security/advisories
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.model_cache import release_of


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
