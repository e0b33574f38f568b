"""Mistakes in autoscaling: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.mistakes import base, problems_of

good = partial(base, "autoscaling")


def test_repeated_names_are_reported_with_their_namespace() -> None:
    values = good("two")
    values["serving"][1]["namespace"] = "llm"
    values["autoscaling"][1]["name"] = "jetstream-hpa"
    causes = [problem.cause for problem in problems_of(values)]
    assert len(causes) == 2
    assert "autoscaler llm/jetstream-hpa is defined twice. The second could not be created" in causes


@pytest.mark.parametrize("section", ["serving", "tpuPools", "cluster"])
def test_autoscaler_is_not_blamed_for_a_section_that_can_not_be_read(section: str) -> None:
    values = good()
    values[section] = "oops"
    assert [problem.path for problem in problems_of(values)] == [f"gke-ai:{section}"]
