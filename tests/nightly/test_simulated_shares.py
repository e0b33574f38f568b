"""Only here: three teams share GPUs by weight for a simulated week, and rehearsals of turning each setting on in prod.

emulator/run pytest -s -m nightly tests/nightly/test_simulated_shares.py
"""

from typing import Any

import pytest

from gke_ai.forecast.render import shares
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.result import forecast
from gke_ai.forecast.result.simulation import QUEUE, read
from gke_ai.forecast.simulate.trace import written as csv
from tests.support.emulator import ROOT, Emulator, clean
from tests.support.recorder import configuration
from tests.support.simulation.week import trace, written

PROD = "Pulumi.prod.yaml"
HALF_LIFE = {"usageHalfLifeSeconds": 86400, "resourceWeights": {"nvidia.com/gpu": 1.0, "cpu": 0.0, "memory": 0.0}}


def test_the_weights_hold_for_a_week_by_fair_sharing_and_by_past_usage_but_not_by_arrival(emulator: Emulator) -> None:
    first, *others = written(emulator.state)
    rows, out, picture = (emulator.state / name for name in ("week.csv", "week.json", "week.svg"))
    rows.write_text(csv(trace()))
    files = ("--trace", str(rows), "--json", str(out), "--picture", str(picture))
    compared = (word for file in others for word in ("--compare", str(file)))
    print(emulator.run("gke-ai", "simulate", "--stack", "week", "--config", str(first), *files, *compared))
    result = read(out)
    most = [max(abs(above) for _, _, above in shares.deviations(result, place)) for place in range(3)]
    assert most[0] > 0.1
    assert max(most[1:]) <= shares.HOLDS
    # On a busy machine Kueue decides some times after the simulated clock has moved on. The result counts them.
    assert all(own.late <= len(trace()) / 50 for own in result.configurations)
    lost, least = (
        [sum(f.mean(place) or 0.0 for f in result.figures if (f.kind, f.key) == (QUEUE, key)) for place in range(3)]
        for key in ("preemption_hours", "least_lost_hours")
    )
    assert lost[1] > lost[2] == 0, "shares by weight preempt, the order by past usage does not"
    assert all(fewer <= more for fewer, more in zip(least, lost, strict=True))
    assert picture.with_suffix(".shares.svg").is_file()


def turned_on(setting: str) -> dict[str, Any]:
    """The queues of production with one more setting."""
    queues: dict[str, Any] = configuration(PROD)["gke-ai:queues"]
    serving, training, slices, v5e = queues["clusterQueues"]
    if setting != "flavorFungibility":
        for queue in (serving, training):
            queue["preemption"] = {**queue.get("preemption", {}), "withinClusterQueue": "Never"}
    if setting == "fairSharing":
        return {**queues, "fairSharing": {}}
    if setting == "cohorts":
        serving["fairSharing"], training["fairSharing"] = {"weight": "3"}, {"weight": "1"}
        return {**queues, "fairSharing": {}, "cohorts": [{"name": "company"}, {"name": "l4", "parent": "company"}]}
    if setting == "admissionFairSharing":
        training["admissionMode"] = "UsageBasedAdmissionFairSharing"
        return {**queues, "admissionFairSharing": HALF_LIFE}
    nothing = {"cpu": "0", "memory": "0", "google.com/tpu": "0", "ephemeral-storage": "0"}
    v5e["flavors"].append({"flavor": slices["flavors"][0]["flavor"], "quota": nothing})
    v5e["flavorFungibility"] = {"whenCanBorrow": "TryNextFlavor"}
    return queues


@pytest.mark.parametrize("setting", ["fairSharing", "cohorts", "admissionFairSharing", "flavorFungibility"])
def test_turning_a_setting_on_in_production_evicts_nothing(setting: str, emulator: Emulator) -> None:
    out, changed = emulator.state / "out.json", emulator.configure(PROD, queues=turned_on(setting))
    base = str(ROOT / PROD)
    words = ("gke-ai", "rehearse", "--stack", "prod", "--base", base, "--config", str(changed), "--json", str(out))
    print(emulator.run(*words))
    found = forecast.read(out)
    print(setting, sentence(found), [(str(wait.workload), wait.reason, wait.count) for wait in found.waits])
    assert not found.interruptions
    assert found.settled
    clean(emulator)
