"""Only here: the real Kueue decides as the tables of its own tests say, and a restored copy as the original.

All cases of each release that the emulator has, against that release. Print every difference:

    emulator/run pytest -s tests/nightly/test_kueue_tables.py
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gke_ai.catalog.kueue.configuration import RELEASES
from gke_ai.catalog.versions import KUEUE_VERSION
from tests.support.emulator import fresh
from tests.support.rehearsal import places
from tests.support.rehearsal.tables import clusters
from tests.support.rehearsal.tables.agreement import copy_differences, differences, exceptions, report
from tests.support.rehearsal.tables.cases import TableCase, cases, left_out
from tests.support.rehearsal.tables.clusters import Result


def run(chosen: Sequence[TableCase], release: str = KUEUE_VERSION) -> list[Result]:
    """What a release of Kueue decides about cases in an original and in a copy."""
    with fresh() as first, fresh() as second:
        original, copy = places.create([first, second], release=release)
        return list(clusters.run(original, copy, chosen, print))


@pytest.mark.parametrize("release", RELEASES)
def test_every_case_is_as_in_its_table_or_a_listed_exception_and_every_copy_is_as_its_original(release: str) -> None:
    found = run([case for case in cases(release) if not case.reason], release)
    print(report(found), *(f"{count} not compared: {reason}" for reason, count in left_out(release).items()), sep="\n")
    differing = {result.case.title for result in found if any(differences(result))}
    assert differing == set(exceptions(release)), report(found)
    assert [result.case.title for result in found if any(copy_differences(result))] == [], report(found)
