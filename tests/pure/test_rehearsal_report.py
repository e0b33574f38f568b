"""A forecast in words: one sentence, tables, a section of the report, and a picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gke_ai.forecast.render import rehearsal, rehearsal_headline, rehearsal_picture
from gke_ai.forecast.render.markdown import rehearsed
from gke_ai.forecast.result.forecast import (
    Accelerators,
    Count,
    Eviction,
    Forecast,
    Interruption,
    Lane,
    Nodes,
    Server,
    Stake,
    Start,
    Wait,
)
from gke_ai.formats.svg import width
from gke_ai.review.report.page import SHORTENED, folding
from gke_ai.terminal import Stop
from gke_ai.workspace.prices import Prices
from tests.support.commands import gke_ai
from tests.support.pictures import RECORDED
from tests.support.recorder import ROOT
from tests.support.timelines import named

GEMMA = "serving/deployment/gemma"
QUIET = Forecast("prod", "serving", settled=True, seconds=600, horizon=1800)
BUSY = replace(
    QUIET,
    compression=60.0,
    evictions=tuple(
        Eviction(named(f"training/job/{job}"), "gpus", 20, "Preempted", reason, named(GEMMA), "l4", seconds)
        for job, reason, seconds in (("a", "InCohortReclamation", 30), ("b", "InClusterQueue", 31))
    ),
    starts=(Start(named(GEMMA), "gpus", 30, "l4", 40, 4, 2),),
    waits=(
        *(Wait(named(f"training/job/{job}"), "gpus", 20, "Pending", "4 more GPUs in flavor l4") for job in "ab"),
        Wait(named("training/job/old"), "gpus", 20, "Pending", "1 more GPUs in flavor l4", before=True),
    ),
    nodes=(Nodes("cheap", "spot", "g2-standard-12", "nvidia-l4", 1, 0, 4, 0, 4),),
    servers=(Server("serving/gemma", "gpus", 3, 3, 3, 3, 2, 360),),
    accelerators=(Accelerators("nvidia-l4", "spot", "g2-standard-12", 1, 0, 4, 0, 4, 0.0, 1.5),),
    lanes=(
        Lane("workload", "training/job/a", ((0, "running"), (30, "evicted"))),
        Lane("server", "serving/gemma", ((0, Count(3, 3)), (60, Count(2, 3)), (420, Count(3, 3)))),
        Lane("nodes", "cheap", ((0, Count(0, 0)), (30, Count(0, 4)), (210, Count(4, 4)))),
    ),
)


def test_a_picture_has_no_bar_for_a_server_a_pool_or_a_node_that_does_not_exist() -> None:
    steps = ((0, Count(0, 0)), (300, Count(1, 1)))
    lanes = Lane("server", "llm/new", steps), Lane("nodes", "l4", steps)
    picture = rehearsal_picture.drawn(replace(QUIET, lanes=lanes))
    assert "0 of 0" not in picture
    assert picture.count("1 of 1") == 2
    gone = replace(QUIET, seconds=600, lanes=(Lane("nodes", "cheap", ((0, Count(1, 1)), (600, Count(0, 0)))),))
    edge = rehearsal_picture.WIDTH - rehearsal_picture.RIGHT
    bars = [item for item in ElementTree.fromstring(rehearsal_picture.drawn(gone)).iter() if item.get("rx") == "5"]
    assert max(float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars) < edge - 40


def test_one_sentence_says_what_merging_does() -> None:
    assert rehearsal_headline.sentence(BUSY) == (
        "Merging this evicts 2 runs (2 wait at the end), keeps 2 of 3 replicas of gemma for 6 minutes, "
        "starts 2 replicas and asks for 4 Spot nodes."
    )
    twice = tuple(Eviction(named("t/job/a"), "gpus", 10, reason) for reason in ("Preempted", "InactiveWorkload"))
    assert rehearsal_headline.sentence(replace(QUIET, evictions=twice)) == "Merging this evicts 1 run."
    node = Nodes("l4", "flexStart", "g2-standard-24", "nvidia-l4", came=1)
    assert rehearsal_headline.sentence(replace(QUIET, nodes=(node,))) == "Merging this asks for 1 flex-start node."


def test_the_result_says_that_it_is_unsettled_and_how_much_time_is_compressed() -> None:
    unsettled = replace(BUSY, settled=False)
    assert "had not settled after 10 minutes" in rehearsal_headline.sentence(unsettled)
    assert "intermediate state" in rehearsal.remarks(unsettled)[0]
    (_, time) = rehearsal.remarks(BUSY)
    assert "60 times as fast" in time
    assert "at their own speed" in time


def rows_of(title: str, forecast: Forecast, prices: Prices | None = None) -> list[tuple[str, ...]]:
    return {title: rows for title, _, rows in rehearsal.tables(forecast, prices)}[title]


def test_who_is_evicted_why_at_what_cost_and_how_often_interrupted_is_in_the_tables() -> None:
    tables = {title: rows for title, _, rows in rehearsal.tables(BUSY)}
    assert tables["Evicted"][0][-1] == f"preempted by {GEMMA}: the cohort takes back the quota that it borrows"
    assert tables["Started"][0][0] == f"{GEMMA} (2 replicas)"
    assert [row[3] for row in tables["Waiting at the end"]] == ["the change", "the change", "before the change"]
    assert tables["Nodes"] == [("cheap", "g2-standard-12", "Spot", "0", "4", "0", "4")]
    assert "Interrupted" not in tables
    prices = Prices("EUR", "2026-11-20", {"g2-standard-12/spot": Decimal("0.5")})
    assert [row[-3:] for row in rows_of("Accelerators", BUSY, prices)] == [("0.0 → 1.5", "0.00 → 2.00", "0.00")]
    gaps = Prices("EUR", "", {})
    assert [row[-2:] for row in rows_of("Accelerators", BUSY, gaps)] == [("no price for g2-standard-12/spot", "–")]
    assert "Not in the sums: no price for g2-standard-12/spot." in rehearsal.remarks(BUSY, gaps)
    upgraded = replace(BUSY, interruptions=(Interruption(named("t/job/a"), "node pool l4", 4, 200, 2, 900),))
    assert rows_of("Interrupted", upgraded) == [("t/job/a", "4", "2", "3 min", "15 min", "node pool l4")]


def test_work_that_can_be_lost_is_in_hours_and_money_or_names_the_missing_price() -> None:
    stake = Stake(named("training/job/a"), "nvidia-l4", "spot", "g2-standard-24", 2, 4, 9000, 10.0)
    forecast = replace(BUSY, stakes=(stake,))
    row = ("training/job/a", "4 nvidia-l4", "Spot", "g2-standard-24", "2.5 h", "10.00")
    assert rows_of("Work that can be lost", forecast) == [row]
    prices = Prices("EUR", "2026-11-20", {"g2-standard-24/spot": Decimal("1.5")})
    assert rows_of("Work that can be lost", forecast, prices) == [(*row, "7.50")]
    gaps = Prices("EUR", "", {})
    assert rows_of("Work that can be lost", forecast, gaps) == [(*row, "no price for g2-standard-24/spot")]
    assert any("what its checkpoints hold" in remark for remark in rehearsal.remarks(forecast))


def test_only_waits_that_the_change_causes_are_listed_if_there_are_many() -> None:
    old = tuple(Wait(named(f"t/job/{number:02}"), "gpus", 20, "Pending", "quota", before=True) for number in range(40))
    many = replace(BUSY, waits=(*BUSY.waits[:2], *old))
    assert [row[0] for row in rows_of("Waiting at the end", many)] == ["training/job/a", "training/job/b"]
    assert "40 more workloads waited before the change and still wait." in rehearsal.remarks(many)


def test_the_section_keeps_its_sentence_when_the_page_is_shortened_and_names_cannot_break_it() -> None:
    (section,) = folding("In the queue", rehearsed(BUSY, None))
    full, short = "\n".join(section.written(True)), "\n".join(section.written(False))
    assert "| training/job/a | gpus | 20 | l4 |" in full
    assert rehearsal_headline.sentence(BUSY) in short
    assert SHORTENED in short
    assert "| training/job/a" not in short
    assert "<script>" not in "\n".join(rehearsed(replace(QUIET, notes=("a | b <script> @team",)), None))


def test_the_report_has_the_sections_of_a_rehearsal_and_of_a_simulated_day(tmp_path: Path) -> None:
    file, page, data = tmp_path / "out.json", tmp_path / "page.md", ROOT / "tests" / "data"
    file.write_text(BUSY.written())
    words = ["--from", str(data / "recorded_reports" / "change.json"), "--output", str(page), "--graph", "none"]
    gke_ai("report", *words, "--rehearsal", str(file))
    text = page.read_text()
    title, summary, *_ = [line for line in text.splitlines() if line]
    assert title.startswith("# Preview of")
    assert "**Merging this evicts 2 runs (2 wait at the end)," in summary
    assert "## In the queue" in text
    gke_ai("report", *words, "--simulation", str(data / "pictures" / "simulation.json"))
    assert "## A simulated day\n\nWith six-and-six.yaml instead of Pulumi.prod.yaml" in page.read_text()


def test_a_file_that_is_no_rehearsal_stops_the_report_before_the_preview(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("{}")
    with pytest.raises(Stop, match=r"cannot be used: it is not the result of .*Run `gke-ai rehearse"):
        gke_ai("report", "--rehearsal", file, "--from", file)


def test_the_picture_has_a_lane_for_each_run_server_and_pool_and_says_how_many_it_omits() -> None:
    picture = rehearsal_picture.drawn(BUSY)
    ElementTree.fromstring(picture)
    for text in ("training/job/a", "serving/gemma", "cheap", "2 of 3", "Ready nodes", "evicted"):
        assert text in picture
    ElementTree.fromstring(rehearsal_picture.drawn(QUIET))
    lanes = tuple(Lane("workload", f"t/job/{number}", ((0, "waiting"),)) for number in range(40))
    assert "16 more are not shown." in rehearsal_picture.drawn(replace(QUIET, lanes=lanes))


def test_the_picture_shows_from_when_to_when_the_change_is_applied() -> None:
    """What a change causes happens while it is applied: no mark of its end alone stands after its effects."""
    applied = replace(BUSY, applied=360)
    assert "The change is applied in 6 minutes" in rehearsal_picture.drawn(applied)
    assert "The change is refused after 6 minutes" in rehearsal_picture.drawn(replace(applied, refused="quota"))
    assert "The upgrade takes 6 minutes" in rehearsal_picture.drawn(replace(applied, upgrade=True))


# A run that is admitted, runs and is evicted within seconds, and replicas that change at the very end.
CHANGES = ((0, "waiting"), (2, "starting"), (3, "no nodes"), (4, "running"), (5, "interrupted"), (6, "evicted"))
REPLICAS = ((0, Count(3, 3)), (590, Count(0, 12)), (594, Count(11, 12)), (598, Count(12, 12)))
NARROW = replace(
    QUIET,
    lanes=(
        Lane("workload", "training/job/a", CHANGES),
        Lane("server", "serving/gemma", REPLICAS),
        Lane("nodes", "cheap", ((0, Count(4, 4)),)),
    ),
)
PICTURED = {**RECORDED, "narrow": NARROW, "busy": BUSY}


@dataclass(frozen=True)
class Words:
    """A text of a picture that begins at its x, with its edges."""

    text: str
    bold: bool
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Words) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not beside and self.top < other.bottom and other.top < self.bottom


def words(picture: str) -> list[Words]:
    found = []
    for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (float(element.attrib[key]) for key in ("x", "y", "font-size"))
        if "text-anchor" not in element.attrib:
            text, bold = element.text or "", "font-weight" in element.attrib
            found.append(Words(text, bold, x, y - 0.8 * size, x + width(text, size, bold), y))
    return found


@pytest.mark.parametrize("name", PICTURED)
def test_every_bar_of_a_picture_has_its_state_as_text(name: str) -> None:
    forecast = PICTURED[name]
    states = Counter(
        str(state)
        for lane in forecast.lanes
        for (begin, state), (end, _) in pairwise([*lane.steps, (max(forecast.seconds, 60), "")])
        if end > begin and str(state) not in ("gone", "0 of 0")
    )
    written = Counter(found.text for found in words(rehearsal_picture.drawn(forecast)) if found.bold)
    assert states
    assert {state: count for state, count in states.items() if written[state] != count} == {}


@pytest.mark.parametrize("name", PICTURED)
def test_texts_of_a_picture_are_inside_it_and_do_not_overlap(name: str) -> None:
    picture = rehearsal_picture.drawn(PICTURED[name])
    wide, high = (float(ElementTree.fromstring(picture).attrib[side]) for side in ("width", "height"))
    found = words(picture)
    assert [one.text for one in found if one.left < 0 or one.top < 0 or one.right > wide or one.bottom > high] == []
    assert [(one.text, other.text) for one, other in combinations(found, 2) if one.overlaps(other)] == []


def test_only_a_bar_without_room_for_its_text_has_it_above() -> None:
    top = {found.text: found.top for found in words(rehearsal_picture.drawn(NARROW)) if found.bold}
    assert top["starting"] < top["running"] < top["evicted"], "the earlier, the higher"
    assert top["0 of 12"] < top["11 of 12"] < top["12 of 12"] < top["3 of 3"]
