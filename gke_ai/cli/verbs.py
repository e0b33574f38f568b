"""All verbs of `gke-ai`, in the order of its help. Each imports what it runs when it runs."""

from __future__ import annotations

from gke_ai.cli import repository, deploy, trial, look, train, foresee, facts  # isort: skip
from gke_ai.cli.group import gke_ai

SECTIONS = (repository, deploy, trial, look, train, foresee, facts)

__all__ = ["SECTIONS", "gke_ai"]
