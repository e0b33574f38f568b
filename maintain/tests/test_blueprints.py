"""The examples of machines, and what they have of the blueprints of Cluster Toolkit."""

from __future__ import annotations

import pytest

from maintain.blueprints.checkout import Item
from maintain.blueprints.compare import Reason, compared, differences, facts, rows
from tests.support import repository
from tests.support.recorder import configuration, shared_record
from tests.support.registered import cloud_requests, violated

EXAMPLES = [str(path.relative_to(repository.ROOT)) for path in repository.tracked("examples/machines/*.yaml")]
MAX_LINES = 40
# The installers of GPUDirect, and the agent for NICs of A4X Max: privileges, and requests, of Google's manifests.
INSTALLERS = {"no-privileged-pods", "resources-are-set"}
LEFT_OPEN = {f"examples/machines/{name}.yaml": INSTALLERS for name in ("a3-high", "a3-mega", "a4x-max")}


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_has_few_lines_and_google_refuses_nothing_of_it(path: str) -> None:
    _, _, content = (repository.ROOT / path).read_text().partition("config:\n")
    assert len(content.splitlines()) <= MAX_LINES
    for resource, name, inputs in cloud_requests(path):
        assert list(resource.problems(inputs)) == [], name


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_violates_no_policy_without_a_reason(path: str) -> None:
    assert violated(path, preview=True).keys() == LEFT_OPEN.get(path, set())


def test_every_blueprint_has_an_example_or_a_reason() -> None:
    known = differences()
    assert {*known["examples"], *known["missing"]} == facts()["blueprints"].keys()
    assert not {*known["examples"]} & {*known["missing"]}
    assert {*known["examples"].values()} == {*EXAMPLES}


@pytest.mark.parametrize("blueprint", differences()["examples"])
def test_every_object_of_a_blueprint_has_an_equal_or_a_reason(blueprint: str) -> None:
    assert [row for row in rows(blueprint) if not row.explained] == []


def test_every_reason_is_used() -> None:
    used = {row.reason for blueprint in differences()["examples"] for row in rows(blueprint)}
    assert [reason for reason in differences()["reasons"] if reason not in used] == []


def test_an_object_without_an_equal_and_another_value_are_found() -> None:
    record = shared_record(configuration("examples/machines/a3-ultra.yaml"))
    (row,) = compared(Item("google_compute_interconnect", "x"), None, record)
    assert not row.explained
    pool = record.one("NodePool", "a3-ultragpu-pool")
    item = Item("google_container_node_pool", "x", {"management.auto_repair": False, "node_config.disk_size_gb": 100})
    equal, other = compared(item, pool, record)
    assert (equal.field, other.field, other.explained) == ("node_config.disk_size_gb", "management.auto_repair", False)


def test_a_reason_that_names_what_the_example_lacks_does_not_apply() -> None:
    record = shared_record(configuration("examples/machines/tpu-v6e.yaml"))
    reason = next(reason for reason in differences()["reasons"] if reason.of == "DaemonSet")
    assert isinstance(reason, Reason)
    (row,) = compared(Item("DaemonSet", "nccl-rdma-installer"), None, record)
    assert not row.explained
