"""Draws the graph of each example from the resources that the program registers."""

from __future__ import annotations

import pytest

from gke_ai.review.report.drawing import svg
from gke_ai.review.report.graph import graph
from tests.support import repository
from tests.support.recorder import configuration, run_program
from tests.support.registered import resources


def names() -> list[str]:
    """The examples, by file name."""
    return sorted(path.stem for path in repository.examples())


def drawn(name: str) -> str:
    """The graph of an example as SVG, without marks."""
    with pytest.MonkeyPatch.context() as patch:
        record = run_program(configuration(f"examples/{name}.yaml"), preview=True, monkeypatch=patch)
    return svg(graph(resources(record)), f"The components of examples/{name}.yaml")
