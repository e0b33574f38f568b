"""Reads the blueprints of a checkout of Cluster Toolkit, and writes what they make to facts.yaml.

    emulator/run python -m maintain.blueprints CHECKOUT

The facts are kinds, names and settings of objects. Nothing else of the checkout is stored.
"""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import yaml

from maintain.blueprints.checkout import Blueprint, Item
from maintain.blueprints.compare import FACTS
from maintain.blueprints.modules import items

REPOSITORY = "https://github.com/GoogleCloudPlatform/cluster-toolkit"
BLUEPRINTS = ("gke-a3-high*", "gke-a3-mega*", "gke-a3-ultra*", "gke-a4*", "gke-tpu-*")
# Files beside blueprints.
NO_BLUEPRINT = ("*-deployment.yaml", "*-job.yaml", "*-test*.yaml", "tpu-*", "nccl-*", "*-sample.yaml")


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    folder = checkout / "examples"
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], check=True, text=True, capture_output=True
    ).stdout.strip()
    facts: dict[str, tuple[Path, list[Item]]] = {}
    for path in sorted([*folder.glob("gke-*.yaml"), *folder.glob("gke-*/gke-*.yaml")]):
        if any(fnmatch(path.stem, name) for name in BLUEPRINTS) and not any(
            fnmatch(path.name, name) for name in NO_BLUEPRINT
        ):
            blueprint = Blueprint(checkout, path)
            made = [item for module in blueprint.modules.values() for item in items(module)]
            facts[blueprint.name] = path, made
            print(f"{blueprint.name}: {len(made)} objects")
    lines = [
        "# Written by `python -m maintain.blueprints CHECKOUT`.",
        f"repository: {REPOSITORY}",
        f"commit: {commit}",
        "blueprints:",
    ]
    for name, (path, made) in facts.items():
        lines += [f"  {name}:", f"    path: {path.relative_to(checkout)}", "    items:"]
        lines += [f"    - {flow([item.kind, item.name, dict(item.settings)])}" for item in made]
    FACTS.write_text("\n".join(lines) + "\n")


def flow(value: object) -> str:
    """A value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True).strip()


if __name__ == "__main__":
    main()
