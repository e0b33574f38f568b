"""LoRA adapters: small sets of weights that change what a model answers, on top of the model of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from gke_ai.catalog.engines.vllm import LORA_RANKS
from gke_ai.settings.model.base import Section
from gke_ai.settings.model.model_cache import ModelCache


class LoraAdapter(Section):
    """A LoRA adapter of a server. Clients name it as the `model` of their requests."""

    noun: ClassVar[str] = "a LoRA adapter"

    name: str = Field(examples=["sql"])
    """Name of the adapter, which clients write as `model`."""
    source: str = Field(examples=["my-team/gemma-3-4b-sql"])
    """Id of the adapter on Hugging Face, or its folder in the bucket of `modelCache`, as a gs:// URI."""
    revision: str = Field(default="main", examples=["0cb88a4f764b7a12671c53f0838cd831a0843b95"])
    """Commit, tag or branch on Hugging Face. It needs `modelCache`. The first download decides which commit a branch
    means."""
    rank: int = Field(default=16, ge=1, le=LORA_RANKS[-1], examples=[8])
    """Rank of the adapter: `r` in its `adapter_config.json`."""

    @property
    def of_bucket(self) -> bool:
        """Whether the source is a folder of a bucket."""
        return self.source.startswith("gs://")

    def location(self, cache: ModelCache | None) -> str:
        """Where a replica finds the adapter: its id, or its folder in the bucket."""
        if cache is None:
            return self.source
        if self.of_bucket:
            return cache.mounted(self.source.removeprefix(f"gs://{cache.bucket}/").rstrip("/"))
        return cache.location(self.source, self.revision)


def reserved_rank(adapters: Sequence[LoraAdapter]) -> int:
    """The rank for which a server with these adapters reserves memory."""
    largest = max((adapter.rank for adapter in adapters), default=0)
    return next(rank for rank in LORA_RANKS if rank >= largest) if largest else 0


def adapter_flags(adapters: Sequence[LoraAdapter], slots: int, cache: ModelCache | None) -> list[str]:
    """Flags of vLLM for adapters, with memory for `slots` of them on each accelerator."""
    if not adapters:
        return []
    return [
        *("--lora-modules", *(f"{adapter.name}={adapter.location(cache)}" for adapter in adapters)),
        "--enable-lora",
        f"--max-lora-rank={reserved_rank(adapters)}",
        f"--max-loras={slots}",
        # All of them stay in the memory of the machine.
        f"--max-cpu-loras={len(adapters)}",
    ]
