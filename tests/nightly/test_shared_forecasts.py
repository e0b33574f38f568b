"""Only here: forecasts of random changes in trees of cohorts, by weights and by past usage, are what then happens.

As in test_forecasts_and_outcomes.py, with a Kueue that shares by each setting in turn. Print every disagreement:

    emulator/run pytest -s -m nightly tests/nightly/test_shared_forecasts.py
"""

import pytest

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.manifests.kueue_chart import sharing as settings_of
from gke_ai.settings.model import Queues
from tests.support.emulator import fresh
from tests.support.rehearsal import places
from tests.support.rehearsal.seeds import SHARING, shared_case
from tests.support.rehearsal.tables import clusters
from tests.support.rehearsal.tables.configuration import Configuration
from tests.support.rehearsal.verdicts import judge, report

TOGETHER, GOAL = 12, 11


@pytest.mark.parametrize("sharing", SHARING)
def test_of_12_forecasts_11_agree_with_what_happens(sharing: str) -> None:
    """Two copies of each snapshot show what Kueue leaves to chance."""
    cases = [shared_case(seed, sharing) for seed in range(TOGETHER)]
    stated = Queues.model_validate({"flavors": [], **SHARING[sharing]})
    further = settings_of(stated.fair_sharing, stated.admission_fair_sharing, [NVIDIA_GPU])
    with fresh() as first, fresh() as second, fresh() as third:
        original, *copies = places.create([first, second, third])
        for place in (original, *copies):
            clusters.configure(place, Configuration(further=further))
            clusters.restart(place)
        happened, forecast, again = places.compare(original, copies, cases, print)
    verdicts = [judge(case, *(each[case.namespace] for each in (happened, forecast, again))) for case in cases]
    print(report(verdicts))
    assert sum(verdict.kind in ("agrees", "recreated") for verdict in verdicts) >= GOAL, report(verdicts)
    assert not [verdict for verdict in verdicts if verdict.kind == "differs"], report(verdicts)
