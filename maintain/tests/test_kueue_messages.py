"""Every message of the pinned Kueue that can be a reason has words of ours, and the table is that of its source."""

import re

import pytest

from gke_ai.catalog.tables import table
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.outcome.reasons import CAUSES, EVICTIONS, never_starts, plain, why_evicted
from maintain import kueue_messages
from tests.support.timelines import UNUSED

WAITS = {form: words for form, words in kueue_messages.known().items() if not words.startswith("(")}
SAMPLES = {"%d": "2", "%q": '"x"', "%s": "x", "%v": "x"}


# The Go client unpacks Kueue's module, once for a version.
@pytest.mark.slow
def test_the_table_has_each_text_of_the_pinned_release_and_no_other() -> None:
    found = kueue_messages.forms(kueue_messages.source())
    listed = {file: [*texts] for file, texts in table(kueue_messages.NAME)["messages"].items()}
    assert listed == found, "run python -m maintain.kueue_messages, and write words for the new texts"
    assert table(kueue_messages.NAME)["release"] == KUEUE_VERSION


@pytest.mark.slow
def test_each_reason_of_an_eviction_or_a_preemption_has_words() -> None:
    words = {*EVICTIONS, *CAUSES, *(reason.partition("DueTo")[2] for reason in EVICTIONS)}
    assert kueue_messages.reasons(kueue_messages.source()) - words == set()
    deactivated = why_evicted("DeactivatedDueToMaximumExecutionTimeExceeded", "", "")
    assert deactivated == "it reached its maximum execution time"


def test_each_text_has_words_or_a_class() -> None:
    classes = table(kueue_messages.NAME)["classes"]
    assert {words for words in kueue_messages.known().values() if words.startswith("(")} == {*classes}
    assert all(kueue_messages.known().values())


@pytest.mark.parametrize("form", WAITS)
def test_a_message_is_said_in_our_words(form: str) -> None:
    sample = re.sub(r"%[dqsv]", lambda verb: SAMPLES[verb[0]], form)
    values = [SAMPLES[verb].strip('"') for verb in re.findall(r"%[dqsv]", form)]
    assert plain(sample) == WAITS[form].format(*values)
    assert WAITS[form].format(*values) in plain(f"couldn't assign flavors to pod set main: {sample}; {UNUSED}")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "couldn't assign flavors to pod set main: untolerated taint {team vision NoSchedule <nil>} in flavor a, "
            "untolerated taint {spot  NoExecute <nil>} in flavor b.c",
            "a toleration of taint team=vision:NoSchedule of flavor a, a toleration of taint spot:NoExecute of flavor "
            "b.c",
        ),
        (
            'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 1 out of 2 pod(s). Total '
            'nodes: 3; excluded: resource "nvidia.com/gpu": 1, taint "node.kubernetes.io/unschedulable:NoSchedule": 1',
            "room in topology default for 2 pods, of which 1 fit, more nvidia.com/gpu on 1 of its nodes, a toleration "
            "of taint node.kubernetes.io/unschedulable:NoSchedule on 1 of its nodes",
        ),
        ("ClusterQueue gpus.a is inactive", "ClusterQueue gpus.a, which is inactive"),
        ("Something new of a later release (UID: 1)", "Something new of a later release"),
    ],
)
def test_messages_of_several_parts_are_said_whole(message: str, text: str) -> None:
    assert plain(message) == text


@pytest.mark.parametrize("first", ["w", "W"])
def test_a_namespace_that_its_cluster_queue_does_not_select_never_starts(first: str) -> None:
    """Releases differ in the first letter."""
    assert never_starts(f"{first}orkload namespace doesn't match ClusterQueue selector", [])


def test_a_flavor_without_the_requested_topology_is_none_for_the_run() -> None:
    message = 'couldn\'t assign flavors to pod set main: Flavor "l4" does not support TopologyAwareScheduling'
    assert never_starts(message, [["l4"]])
    assert not never_starts(message, [["l4", "spot"]])
