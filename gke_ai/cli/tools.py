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

# Tools for each part of a configuration, by what gke_ai/program/ installs for it.
NEEDED_FOR = {
    r"^\s*gke-ai:queues:": ("helm", "kueue"),
    r"^\s*gke-ai:tenants:": ("helm", "jobset"),
    r"\bkind: (multislice|job)\b": ("helm", "jobset"),
    r"^\s+trainer: (install|existing)\b": ("helm", "jobset", "kubeflow-trainer"),
    r"^\s+ray: (install|existing)\b": ("helm", "kuberay-operator"),
    r"^\s*gke-ai:gateway:": ("endpoint-picker", "model-router"),
    r"\badapter: prometheus\b": ("prometheus", "prometheus-adapter"),
}
# A rehearsal of manifests runs no Pulumi.
CLUSTER = ["kubernetes", "etcd", "kwok", "helm", "kueue", "jobset"]
# The version of Kueue that a snapshot or a configuration names. JSON and YAML write it alike but for quotes.
KUEUE_VERSION = re.compile(r"""^\s*["']?kueueVersion["']?:\s*["']?(\d+\.\d+\.\d+)""", re.M)


def needed(verb: str, options: Mapping[str, str]) -> list[str]:
    """Returns the tools for a verb, from the variables of its options."""
    from gke_ai.catalog.kueue.configuration import tool
    from gke_ai.catalog.versions import EARLIER_JOBSET_VERSION, EARLIER_KUEUE_VERSIONS

    if verb == "simulate":
        return ["stack", "helm", "kueue-simulation"]
    snapshot = Path(options.get("GKE_AI_SNAPSHOT", ""))
    own = of_release(snapshot.read_text(errors="replace")) if snapshot.is_file() else []
    if verb == "when":
        return [*CLUSTER, "stack", *(["kueue-simulation"] if options.get("GKE_AI_INTERVAL") else []), *own]
    if verb == "rehearse" and options.get("GKE_AI_MANIFESTS"):
        return [*CLUSTER, *own]
    file = Path(options.get("GKE_AI_CONFIG") or f"Pulumi.{options.get('GKE_AI_STACK') or 'dev'}.yaml")
    stated = file.read_text() if file.is_file() else ""
    sections = [file.parent / name for name in re.findall(r"[\w./-]+\.ya?ml\b", stated)]
    stated = "\n".join([stated, *(section.read_text() for section in sections if section.is_file())])
    upgraded = options.get("GKE_AI_UPGRADE", "").split(",") if verb == "rehearse" else []
    own = (own if verb == "rehearse" else []) or of_release(stated)
    if "kueue" in upgraded and not own:
        own = [tool(EARLIER_KUEUE_VERSIONS[-1])]
    of_jobset = [f"jobset-{EARLIER_JOBSET_VERSION}"] if "jobset" in upgraded else []
    return [*needed_tools(stated), *own, *of_jobset]


def needed_tools(configuration: str) -> list[str]:
    """Returns the tools for a configuration, from the text of its file."""
    found = {tool for words, tools in NEEDED_FOR.items() if re.search(words, configuration, re.M) for tool in tools}
    return ["stack", *sorted(found)]


def of_release(text: str) -> list[str]:
    """Returns the tool with the release of Kueue for the version that a text names, unless it is the pinned release."""
    from gke_ai.catalog.kueue.configuration import nearest, tool
    from gke_ai.catalog.versions import EARLIER_KUEUE_VERSIONS

    version = KUEUE_VERSION.search(text)
    release = nearest(version[1]) if version else None
    return [tool(release)] if release in EARLIER_KUEUE_VERSIONS else []


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # a script finds its own folder alone
    print(",".join(needed(sys.argv[1], os.environ)))
