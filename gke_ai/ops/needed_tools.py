"""Prints which of the emulator's tools a configuration needs, so that they are built beside the Python environment.

    python3 gke_ai/ops/needed_tools.py Pulumi.dev.yaml      prints stack,helm,jobset,kueue

Standard library only, because it runs before that environment exists; so it looks for words rather than parse YAML. The
emulator builds a tool that it misses when the tool is first run.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Tools for each part of a configuration, by what components/program/ installs for it.
NEEDED_FOR = {
    r"^\s*gke-ai:queues:": ("helm", "kueue"),
    r"^\s*gke-ai:tenants:": ("helm", "jobset"),
    r"\bkind: (multislice|job)\b": ("helm", "jobset"),
    r"^\s*gke-ai:gateway:": ("endpoint-picker", "model-router"),
    r"\badapter: prometheus\b": ("prometheus", "prometheus-adapter"),
}


def needed_tools(configuration: str) -> list[str]:
    """Returns the tools for a configuration, from the text of its file."""
    needed = {tool for words, tools in NEEDED_FOR.items() if re.search(words, configuration, re.M) for tool in tools}
    return ["stack", *sorted(needed)]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    print(",".join(needed_tools(file.read_text() if file.is_file() else "")))
