"""How many requests a replica of each engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gke_ai.catalog.engines import vllm


@dataclass(frozen=True)
class RequestLimits:
    """How many requests a replica of the pinned image takes, and what sets that.

    Attributes:
        running: Maximum number of requests that run at once. Default: no limit but the memory.
        running_on: The same on GPU types that differ.
        running_setting: Flag (without dashes) or environment variable that sets it.
        accepted: Maximum number of requests that run or wait; the server refuses others. Default: no limit.
        accepted_setting: Flag (without dashes) or environment variable that sets it.
    """

    running: int | None = None
    running_on: Mapping[str, int] = field(default_factory=dict)
    running_setting: str = ""
    accepted: int | None = None
    accepted_setting: str = ""


NO_LIMITS = RequestLimits()
# https://github.com/huggingface/text-generation-inference/blob/v3.3.7/launcher/src/main.rs#L645
TGI_LIMITS = RequestLimits(running_setting="MAX_BATCH_SIZE", accepted=128, accepted_setting="MAX_CONCURRENT_REQUESTS")
VLLM_LIMITS = RequestLimits(running=vllm.REQUESTS, running_on=vllm.REQUESTS_ON, running_setting="max-num-seqs")
# No page states the default on TPUs.
VLLM_TPU_LIMITS = RequestLimits(running_setting="max-num-seqs")
