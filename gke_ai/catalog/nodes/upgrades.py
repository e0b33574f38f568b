"""How GKE upgrades the nodes of a pool: the settings of a pool, their defaults, and GKE's limits.

https://docs.cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies (page of 2026-04-13)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SURGE, BLUE_GREEN, SHORT_LIVED = "SURGE", "BLUE_GREEN", "SHORT_LIVED"
# How long a drain respects disruption budgets and grace periods. Then GKE evicts the remaining pods.
DRAIN_SECONDS = 3600
# The most nodes that a surge upgrade replaces at a time, one zone after the other.
MAX_AT_ONCE = 20
# Soaking at the end of a blue-green upgrade, and the most that all soaking takes together.
NODE_POOL_SOAK_SECONDS, MAX_SOAK_SECONDS = 3600, 604_800

_SURGE_KEYS = {"maxSurge": r"\d+", "maxUnavailable": r"\d+"}
_BLUE_GREEN_KEYS = {
    "batchNodeCount": r"[1-9]\d*",
    "batchPercentage": r"0?\.\d*[1-9]\d*|1(\.0*)?",
    "batchSoakDuration": r"\d+s",
    "nodePoolSoakDuration": r"\d+s",
}
KEYS = {**_SURGE_KEYS, **_BLUE_GREEN_KEYS}


class BadUpgradeSettings(ValueError):
    """Upgrade settings that GKE does not know. The message says what to write."""


@dataclass(frozen=True)
class UpgradeSettings:
    """The upgrade settings of a pool. Soaks are in seconds, and `batch_share` is a part of the pool from 0 to 1."""

    strategy: str = SURGE
    max_surge: int = 1
    max_unavailable: int = 0
    # The API requires a batch size. Where a pool states none: assumption, one node.
    batch_nodes: int = 1
    batch_share: float = 0.0
    batch_soak: int = 0
    pool_soak: int = NODE_POOL_SOAK_SECONDS


def flat(body: Mapping[str, Any]) -> dict[str, str]:
    """Returns the `upgradeSettings` of the API with all keys on one level.

    https://docs.cloud.google.com/kubernetes-engine/docs/reference/rest/v1/UpgradeSettings
    """
    blue_green = body.get("blueGreenSettings") or {}
    if "autoscaledRolloutPolicy" in blue_green:
        return {"strategy": "autoscaled blue-green"}
    every = {**body, **blue_green, **(blue_green.get("standardRolloutPolicy") or {})}
    return {key: str(value) for key, value in every.items() if key in KEYS or key == "strategy"}


def read_settings(text: str) -> dict[str, str]:
    """Returns the settings in a text such as `maxSurge=2,maxUnavailable=1`, with the keys of the API on one level."""
    stated = dict(part.partition("=")[::2] for part in filter(None, text.split(",")))
    for key, value in stated.items():
        if not re.fullmatch(KEYS.get(key, ""), value) or not value:
            raise BadUpgradeSettings(f"{key}={value} is no upgrade setting. Keys: {', '.join(KEYS)}")
    if stated.keys() & _SURGE_KEYS.keys() and stated.keys() & _BLUE_GREEN_KEYS.keys():
        raise BadUpgradeSettings(
            "maxSurge and maxUnavailable belong to a surge upgrade, the others to a blue-green one"
        )
    if {"batchNodeCount", "batchPercentage"} <= stated.keys():
        raise BadUpgradeSettings("A blue-green upgrade has batchNodeCount or batchPercentage, not both")
    if stated.keys() & _BLUE_GREEN_KEYS.keys():
        return {"strategy": BLUE_GREEN, **stated}
    return {"strategy": SURGE, **stated} if stated else {}


def settings(stated: Mapping[str, str]) -> UpgradeSettings:
    """Returns settings from the keys of the API on one level, with GKE's defaults."""
    strategy = stated.get("strategy", SURGE)
    if strategy not in (SURGE, BLUE_GREEN, SHORT_LIVED):
        raise BadUpgradeSettings(f"An upgrade with the strategy {strategy} is not simulated")
    result = UpgradeSettings(
        strategy,
        int(stated.get("maxSurge", 1)),
        int(stated.get("maxUnavailable", 0)),
        int(stated.get("batchNodeCount", 1)),
        float(stated.get("batchPercentage", 0)),
        int(float(stated.get("batchSoakDuration", "0s").removesuffix("s"))),
        int(float(stated.get("nodePoolSoakDuration", f"{NODE_POOL_SOAK_SECONDS}s").removesuffix("s"))),
    )
    if strategy == SURGE and not result.max_surge + result.max_unavailable:
        raise BadUpgradeSettings("maxSurge and maxUnavailable are both 0, so GKE could upgrade no node")
    return result
