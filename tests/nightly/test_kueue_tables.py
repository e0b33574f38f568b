"""Only here: the real Kueue decides as the tables of its own tests say, and a restored copy as the original.

All cases of each release that the emulator has, against that release. Print every difference:

    emulator/run pytest -s tests/nightly/test_kueue_tables.py
"""

import pytest

from gke_ai.catalog.kueue.configuration import RELEASES
from tests.support.emulator import fresh
from tests.support.rehearsal import places
from tests.support.rehearsal.tables import clusters
from tests.support.rehearsal.tables.agreement import copy_differences, differences, exceptions, report
from tests.support.rehearsal.tables.cases import cases, left_out


@pytest.mark.parametrize("release", RELEASES)
def test_every_case_is_as_in_its_table_or_a_listed_exception_and_every_copy_is_as_its_original(release: str) -> None:
    with fresh() as first, fresh() as second:
        original, copy = places.create([first, second], release=release)
        found = [*clusters.run(original, copy, [case for case in cases(release) if not case.reason], print)]
    print(report(found), *(f"{count} not compared: {reason}" for reason, count in left_out(release).items()), sep="\n")
    differing = {result.case.title for result in found if any(differences(result))}
    assert differing == set(exceptions(release)), report(found)
    assert [result.case.title for result in found if any(copy_differences(result))] == [], report(found)
