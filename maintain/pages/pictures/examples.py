"""Draws the graph of each example from the resources that the program registers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gke_ai.review.report.changes import Resource
from gke_ai.review.report.drawing import svg
from gke_ai.review.report.graph import graph
from tests.support import repository
from tests.support.recorder import Registration, configuration, run_program


def names() -> list[str]:
    """The examples, by file name."""
    return sorted(path.stem for path in repository.examples())


def drawn(name: str) -> str:
    """The graph of an example as SVG, without marks."""
    with pytest.MonkeyPatch.context() as patch:
        record = run_program(configuration(f"examples/{name}.yaml"), preview=True, monkeypatch=patch)
    return svg(graph(resources(record.resources.values())), f"The components of examples/{name}.yaml")


def resources(registered: Iterable[Registration]) -> Iterable[Resource]:
    """Recorded registrations, as resources of a stack."""
    for registration in registered:
        yield Resource(
            registration.urn,
            registration.type,
            registration.parent,
            registration.inputs,
            dependencies=registration.dependencies,
            retained=registration.retained,
        )
