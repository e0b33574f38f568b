"""Prints which of the emulator's tools a verb needs, so that they are built beside the Python environment.

    python3 gke_ai/cli/tools.py up      prints stack,helm,jobset,kueue

Reads the options from their variables, such as GKE_AI_CONFIG. Standard library only, because it runs before that
environment exists; so it looks for words rather than parse YAML. The emulator builds a tool that it misses when it is
first run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

# Tools for each part of a configuration, by what components/program/ installs for it.
NEEDED_FOR = {
    r"^\s*gke-ai:queues:": ("helm", "kueue"),
    r"^\s*gke-ai:tenants:": ("helm", "jobset"),
    r"\bkind: (multislice|job)\b": ("helm", "jobset"),
    r"^\s*gke-ai:gateway:": ("endpoint-picker", "model-router"),
    r"\badapter: prometheus\b": ("prometheus", "prometheus-adapter"),
}
# A rehearsal of manifests runs no Pulumi.
CLUSTER = ["kubernetes", "etcd", "kwok", "helm", "kueue", "jobset"]


def needed(verb: str, options: Mapping[str, str]) -> list[str]:
    """Returns the tools for a verb, from the variables of its options."""
    if verb == "simulate":
        return ["stack", "helm", "kueue-simulation"]
    if verb == "when":
        return [*CLUSTER, "stack", *(["kueue-simulation"] if options.get("GKE_AI_INTERVAL") else [])]
    if verb == "rehearse" and options.get("GKE_AI_MANIFESTS"):
        return CLUSTER
    file = Path(options.get("GKE_AI_CONFIG") or f"Pulumi.{options.get('GKE_AI_STACK') or 'dev'}.yaml")
    upgrade = options.get("GKE_AI_UPGRADE", "")
    of_upgrade = ["previous"] if verb == "rehearse" and upgrade and not upgrade.startswith("pool/") else []
    return [*needed_tools(file.read_text() if file.is_file() else ""), *of_upgrade]


def needed_tools(configuration: str) -> list[str]:
    """Returns the tools for a configuration, from the text of its file."""
    found = {tool for words, tools in NEEDED_FOR.items() if re.search(words, configuration, re.M) for tool in tools}
    return ["stack", *sorted(found)]


if __name__ == "__main__":
    print(",".join(needed(sys.argv[1], os.environ)))
