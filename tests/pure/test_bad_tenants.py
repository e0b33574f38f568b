"""Mistakes in tenants: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from functools import partial

from gke_ai.settings import load
from tests.support.mistakes import PROJECT, base, problems_of

good = partial(base, "tenants")


def test_a_mistyped_tenant_is_no_second_mistake() -> None:
    values = good()
    values["tenants"][0]["podSecurity"] = "none"
    values["queues"]["priorityClasses"][0]["value"] = "much"
    values["buckets"][1]["softDeleteDays"] = -1
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:buckets[1].softDeleteDays",
        "gke-ai:queues.priorityClasses[0].value",
        "gke-ai:tenants[0].podSecurity",
    ]


def test_a_tenant_has_its_namespace_without_a_queue() -> None:
    assert {"team-a", "team-b", "team-c", "llm"} == set(load(good(), PROJECT).namespaces)
