"""Architectures of models that the pinned release of vLLM can serve: `vllm_architectures.yaml` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gke_ai.catalog.tables import table

_LISTED = table("engines/vllm_architectures.yaml")
ARCHITECTURES: frozenset[str] = frozenset(_LISTED["architectures"].split())
# Those for which vLLM refuses LoRA adapters.
WITHOUT_LORA: frozenset[str] = frozenset(_LISTED["without_lora"].split())
# Architectures that came later, by their first release.
LATER: Mapping[str, str] = MappingProxyType(
    {name: release for release, names in _LISTED["later"].items() for name in names.split()}
)
