"""The result of a simulation: its statistics, figures, reasons, words, tables, picture and file."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

from gke_ai.forecast.render import simulation as words
from gke_ai.forecast.render import simulation_picture
from gke_ai.forecast.render.markdown import simulated
from gke_ai.forecast.render.measures import Unit, change, duration, written
from gke_ai.forecast.render.table import simulated as shown
from gke_ai.forecast.result.simulation import (
    POOL,
    QUEUE,
    VERSION,
    Configuration,
    Figure,
    Simulation,
    Track,
    Unhappy,
    parse,
    read,
)
from gke_ai.forecast.result.spread import MAX_SEEDS, Difference, difference
from gke_ai.forecast.simulate.command import ConfiguredQueues, Options, check, names_of, next_step, notes
from gke_ai.forecast.simulate.compared import Side, bin_seconds, simulation, track, written_days
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.result import day
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.unhappiest import SHOWN, unhappiest
from gke_ai.formats.console import new_console
from gke_ai.settings import load
from gke_ai.terminal import Stop
from tests.support.commands import gke_ai
from tests.support.mistakes import PROJECT, base
from tests.support.simulation.theory import configuration, run

A, B = "Pulumi.prod.yaml", "more.yaml"


def figure(key: str, *values: Sequence[float | None], name: str = "training") -> Figure:
    return Figure(QUEUE, name, key, tuple(map(tuple, values)))


def result(*figures: Figure, seeds: int = 1) -> Simulation:
    """A result with these figures, for as many configurations as they have values."""
    names = (A, B, "third.yaml")[: len(figures[0].values)]
    tracks = (Track("training", "GPUs", 4, (2.0, 6.0), (0.0, 3.0), (0, 2)),)
    sad = Unhappy(7, "training", "low", "1 pod with 2 GPUs", 60, 600, 7200, 1, 30, ("Waited 2.0 h for quota.",))
    sides = tuple(Configuration(name, 2.0, 0, tracks, (sad,)) for name in names)
    return Simulation(VERSION, "prod", "trace.csv", tuple(range(1, seeds + 1)), 3600, sides, figures)


class TestSpread:
    """A difference exceeds the spread if Student's t interval of the paired differences excludes 0."""

    def test_the_interval_is_that_of_the_paired_differences(self) -> None:
        found = difference([10, 20, 30, 40, 50], [11, 22, 33, 44, 55])
        # Mean 3, standard deviation 1.5811, t 2.776: 2.776 · 1.5811 / √5.
        assert found is not None
        assert [found.mean, found.half] == pytest.approx([3.0, 1.963], abs=0.001)
        assert found.exceeds
        # A seed without a value is no pair.
        assert difference([None, 1, 2], [5, None, 3]) == Difference(1, None)
        assert difference([None], [1]) is None

    @pytest.mark.parametrize(
        ("before", "after", "exceeds"),
        [
            ([10, 20, 30], [40, 10, 35], False),  # the seeds vary more than the difference
            ([10, 2000, 300], [11, 2001.1, 300.9], True),  # pairs show what is small beside the spread of the seeds
            ([10], [20], None),  # one seed cannot show it
            ([1, 2], [1, 2], False),
        ],
    )
    def test_a_difference_is_compared_with_the_spread_of_the_seeds(
        self, before: list[float | None], after: list[float | None], exceeds: bool | None
    ) -> None:
        found = difference(before, after)
        assert found is not None
        assert (found.exceeds, found.is_zero, found.half is None) == (exceeds, before == after, len(before) == 1)


Span = tuple[float, float]


@pytest.fixture(scope="module")
def queues() -> Queues:
    lender = {"cohort": "l4", "preemption": {"reclaimWithinCohort": "Any"}}
    return configuration({"serving": {"gpus": 4, **lender}, "training": {"gpus": 2, **lender}}, {"low": 1, "high": 2})


def ran(number: int, time: float, spans: Sequence[Span], queue: str = "training", lost: float = 0.0, **row: Any) -> Run:
    """A run that ended after these times of work, or never started."""
    work = sum(stop - start for start, stop in spans) - lost
    submitted = run(time, work or 60.0, queue, **{"priority": "low", **row})
    times: Any = {"admitted": [*spans], "spans": [*spans], "evictions": max(0, len(spans) - 1)}
    return Run(number, submitted, queue, lost=lost, **times, ended=bool(spans))


class TestUnhappiest:
    """The runs with the longest delays, and why."""

    def test_the_delay_is_beyond_the_duration_and_at_most_ten_are_listed_with_those_that_never_end_first(
        self, queues: Queues
    ) -> None:
        late, soon = ran(0, 0, [(3600, 7200)]), ran(1, 0, [(60, 120)])
        found = unhappiest([soon, late, ran(2, 5, [(5, 10)])], queues)
        assert [(entry.row, entry.delay) for entry in found] == [(1, 3600), (2, 60)]
        runs = [ran(number, 0, [(100 + number, 200 + number)]) for number in range(20)]
        found = unhappiest([*runs, ran(20, 0, [], pods=9)], queues)
        assert len(found) == SHOWN
        assert [(entry.row, entry.delay) for entry in found[:2]] == [(21, None), (20, 119)]
        # It is larger than what its queue can use.
        assert found[0].why == ("It asks for 9 GPUs; training can use at most 6.",)

    def test_a_run_that_requires_a_block_waits_for_one_with_room(self, queues: Queues) -> None:
        waiting = ran(0, 0, [(100, 200)])
        waiting.row = replace(waiting.row, topology="required=block")
        (found,) = unhappiest([waiting], queues)
        assert found.why == ("Waited 1.7 min for quota, with room for all pods in one block.",)

    def test_who_held_the_quota_and_who_was_ahead_is_named(self, queues: Queues) -> None:
        held = [ran(0, 0, [(0, 1000)], pods=2), ran(1, 0, [(0, 1000)], "serving", pods=4), ran(2, 1, [(500, 1000)])]
        ahead = [ran(4, 3, [(600, 700)]), ran(5, 4, [(600, 700)], priority="high")]
        runs = [*held, ran(3, 2, [(1000, 1060)], pods=2), *ahead]
        assert next(entry for entry in unhappiest(runs, queues) if entry.row == 4).why == (
            "Waited 16.6 min for quota: 4 runs of training held 2.7 of its 2 GPUs on average; "
            "1 run of serving held 4.0 of its 4 GPUs on average; run 2 alone held 60% of that.",
            "Meanwhile 1 run of a higher priority, 1 run submitted earlier and 1 run submitted later that needed less "
            "got quota in its queue.",
        )

    def test_preemptions_and_lost_work_waiting_for_nodes_and_reclaims_are_named(self, queues: Queues) -> None:
        (found,) = unhappiest([ran(0, 0, [(0, 600), (900, 1800)], lost=120.0)], queues)
        assert (found.preemptions, found.lost, found.delay) == (1, 120, 420)
        assert found.why[-1] == "Kueue preempted it once. It lost 2.0 min of work."
        waited = replace(ran(0, 0, [(600, 1200)]), admitted=[(0, 1200)], reclaims=2)
        (found,) = unhappiest([waited], queues)
        assert found.why == (
            "Waited 10.0 min for nodes and their start.",
            "Spot reclaims took its nodes twice. It lost no work.",
        )


class TestFigures:
    """Figures of each queue by configuration and seed."""

    def test_each_figure_has_a_value_for_each_configuration_and_seed(self, queues: Queues) -> None:
        short, long = ([ran(0, 0, [(wait, wait + 60)])] for wait in (10, 100))
        sides = [
            Side(A, queues, [day(queues, short), day(queues, long)]),
            Side(B, configuration({"training": {"gpus": 1}}, {"low": 1}), [day(queues, short)] * 2),
        ]
        found = simulation("prod", "trace.csv", (1, 2), sides, ("a note",))
        for queue, values in (("training", ((10, 100), (10, 10))), ("serving", ((None, None), (None, None)))):
            assert found.figure(QUEUE, queue, "wait_p90") == Figure(QUEUE, queue, "wait_p90", values)
        assert found.notes == ("a note",)

    def test_a_track_shows_use_waiting_and_preemptions_over_time(self, queues: Queues) -> None:
        found = track("training", [ran(0, 0, [(30, 60), (90, 120)], pods=2)], queues, 60.0, 2)
        assert found == Track("training", "GPUs", 2, (1.0, 1.0), (0.5, 0.5), (0, 1))
        seconds = [bin_seconds(hours) for hours in (0.5, 24, 40, 24 * 400)]
        assert seconds == [60, 900, 1200, 288_000], "a picture has at most 120 bins"

    def test_a_file_has_every_run_of_each_day_and_is_read_as_it_was_written(self, queues: Queues) -> None:
        side = Side(A, queues, [day(queues, [ran(0, 0, [(10, 70)]), ran(1, 1, [], pods=9)])])
        found = simulation("prod", "t", (1,), [side], ())
        text = found.written(written_days([side], (1,)))
        (entry,) = json.loads(text)["days"]
        assert (entry["configuration"], entry["seed"], entry["runs"][0]["ran"]) == (A, 1, [[10, 70]])
        assert parse(text) == found


WAITS = (60, 61, 59), (600, 610, 590)
SLOW = "90 % of the runs of training start within 10.0 min instead of 1.9 h (in 1 of 3 seeds)"
PREEMPTS = "Kueue preempts runs of training 1.5 instead of 4.5 times (in 2 of 3 seeds)"
MINUTE, ZERO, FIVE, NONE = WAITS[0], (0, 0, 0), (5, 5, 5), (None, None, None)


ALL_AT_LAST = [*(figure(f"wait_{key}", NONE, MINUTE) for key in ("p50", "p90")), figure("never_started", FIVE, ZERO)]


def rows(found: Simulation, title: str) -> Sequence[Sequence[str]]:
    return {title: rows for title, _, rows in words.tables(found)}[title]


class TestWords:
    """The verdict, the tables and the remarks."""

    def test_a_difference_beyond_the_spread_of_the_seeds_is_in_the_verdict(self) -> None:
        preemptions = figure("preemptions", (1, 9, 2), (2, 7, 3))
        found = result(figure("wait_p90", (3600, 3700, 3500), (600, 610, 590)), preemptions, seeds=3)
        start = "90 % of the runs of training start within 10.0 min instead of 1.0 h."
        assert words.sentence(found) == f"With {B} instead of {A}, {start}"
        assert [row[-1] for row in rows(found, "Differences")] == ["yes"]
        (_, other) = rows(found, "Waiting, means of 3 seeds")
        assert other[2] == "10.0 min ▼"

    def test_a_difference_within_the_spread_of_the_seeds_is_none_and_one_seed_cannot_tell(self) -> None:
        found = result(figure("wait_p90", (100, 5000, 900), (400, 4000, 1000)), seeds=3)
        assert words.sentence(found) == f"With {B} instead of {A}, no figure differs by more than the seeds do."
        assert words.tables(found)[0][2][1][2].endswith("≈")
        found = result(figure("wait_p90", (3600,), (600,)))
        assert words.sentence(found).endswith("instead of 1.0 h. " + words.ONE_SEED)
        assert "Differences" not in [title for title, _, _ in words.tables(found)]

    @pytest.mark.parametrize(
        ("of", "said"),
        [
            (figure("never_started", ZERO, (1, 2, 1)), "on average, 1.3 instead of 0 runs of training never start"),
            (figure("failed", (0, 0, 0), (3, 3, 3)), "3 instead of 0 runs of training are given up"),
            (figure("wait_p50", *WAITS), "half of the runs of training start within 10.0 min instead of 1.0 min"),
            (Figure(POOL, "l4", "nodes", ((3, 3, 3), (6, 6, 6))), "l4 has 6 instead of 3 nodes on average"),
            (figure("wait_longest", *WAITS), "the longest wait of a run of training is 10.0 min instead of 1.0 min"),
        ],
    )
    def test_the_verdict_says_each_figure_of_the_tables_that_differs(self, of: Figure, said: str) -> None:
        found = result(of, seeds=3)
        assert words.sentence(found) == f"With {B} instead of {A}, {said}."
        assert not any("≈" in cell for _, _, rows in words.tables(found) for row in rows for cell in row)

    @pytest.mark.parametrize(
        ("figures", "said"),
        [
            ([figure("wait_p90", MINUTE, NONE)], f"no run of training starts with {B}"),
            ([figure("wait_p90", NONE, MINUTE)], f"no run of training starts with {A}"),
            (ALL_AT_LAST, f"0 instead of 5 runs of training never start and no run of training starts with {A}"),
            ([Figure(POOL, "a", "paid_hours", ((2, 2, 2), NONE))], f"a has no accelerator-hours paid with {B}"),
            ([figure("wait_p90", (60, 6000, 7000), (None, None, 600))], SLOW),
            ([figure("preemptions", (4, 5, 100), (1, 2, None))], PREEMPTS),
        ],
    )
    def test_figure_that_seeds_lack_is_said_of_the_seeds_that_have_both(self, figures: list[Figure], said: str) -> None:
        assert words.sentence(result(*figures, seeds=3)) == f"With {B} instead of {A}, {said}."

    def test_a_table_of_differences_compares_the_seeds_that_have_both_and_knows_what_is_certain(self) -> None:
        found = result(figure("preemptions", (4, 6, 100), (1, 3, None)), seeds=3)
        differs = ("training", "preemptions", "5 (4 to 6)", "2 (1 to 3)", "−3 ± 0", "yes")
        assert rows(found, "Differences") == [differs]
        found = result(figure("never_started", (0, 0, 0), (0, 1, 0)), seeds=3)
        assert rows(found, "Differences")[0][-1] == "certain"
        assert rows(found, "Waiting, means of 3 seeds")[1][2].endswith("▲")
        both_ways = result(figure("never_started", (0, 1, 0), (1, 0, 1)), seeds=3)
        assert words.sentence(both_ways).endswith("no figure differs by more than the seeds do.")

    def test_every_figure_that_is_a_result_can_be_said(self) -> None:
        for (kind, key), measure in words.MEASURES.items():
            found = result(Figure(kind, "q", key, ((1, 1), (5, 5))), seeds=2)
            assert words.sentence(found).endswith("every figure is the same.") == measure.given

    def test_every_compared_configuration_has_a_verdict_and_more_differences_than_a_sentence_holds_are_counted(
        self,
    ) -> None:
        found = result(figure("preemptions", (4, 4), (4, 4), (0, 0)), seeds=2)
        assert words.sentence(found) == (
            f"With {B} instead of {A}, every figure is the same. "
            f"With third.yaml instead of {A}, Kueue preempts runs of training 0 instead of 4 times."
        )
        names = [f"q{number}" for number in range(6)]
        found = result(*(figure("preemptions", (1,), (2,), name=name) for name in names))
        assert ". 2 other figures of the tables differ too." in words.sentence(found)
        found = result(figure("wait_p90", (60,)))
        late = replace(found, configurations=(replace(found.configurations[0], late=2),))
        assert any("decided twice after the clock had moved on" in line for line in words.remarks(late))

    def test_the_verdict_of_one_configuration_names_the_queue_that_waits_longest(self) -> None:
        waits = [figure(f"wait_{key}", (seconds,)) for key, seconds in (("p50", 60), ("p90", 600), ("longest", 7200))]
        more = [figure("wait_p90", (5,), name="serving"), figure("preemptions", (3,)), figure("runs", (9,))]
        assert words.sentence(result(*waits, *more, figure("never_started", (1,)))) == (
            "The runs of training wait longest: half of them start within 1.0 min, 90 % within 10.0 min, and all that "
            "start within 2.0 h. Kueue preempts runs 3 times. 1 of 9 runs never start."
        )
        failed = words.sentence(result(figure("failed", (2,)), figure("runs", (9,))))
        assert failed.endswith("2 of 9 runs are given up.")
        spread = rows(result(figure("wait_p90", (60, 120)), seeds=2), "Spread over the seeds")
        assert spread == [("training", "waits p90", "1.5 min", "1.0 min", "2.0 min")]

    def test_a_value_has_its_unit_a_duration_the_one_that_suits_it_and_a_difference_a_sign(self) -> None:
        values = (None, Unit.COUNT), (1200.0, Unit.COUNT), (0.5, Unit.SHARE), (1.5, Unit.MONEY)
        assert [written(*value) for value in values] == ["–", "1,200", "50%", "1.50"]
        assert [duration(seconds) for seconds in (59, 90, 5400)] == ["59 s", "1.5 min", "1.5 h"]
        assert (change(60, Unit.SECONDS), change(-0.1, Unit.SHARE)) == ("+1.0 min", "−10 points")


HOSTILE = '<script>x</script>[red]"&'


def hostile() -> Simulation:
    found = result(figure("wait_p90", (60,), (600,), name=HOSTILE))
    tracks = (replace(found.configurations[0].tracks[0], queue=HOSTILE),)
    sides = tuple(replace(side, name=HOSTILE, tracks=tracks) for side in found.configurations)
    return replace(found, stack=HOSTILE, trace=HOSTILE, configurations=sides)


class TestPicture:
    """The picture of the day."""

    def test_it_has_a_panel_for_each_configuration_words_for_screen_readers_and_names_as_text(self) -> None:
        picture = ElementTree.fromstring(simulation_picture.drawn(result(figure("wait_p90", (60,), (600,)))))
        title = picture.find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        shown = "4.0 of 4 GPUs in use on average, up to 3 waiting, 2 preemptions"
        assert all(f"training with {name}: {shown}" in str(title.text) for name in (A, B))
        texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert texts.count("training") == 2
        of_others = simulation_picture.drawn(hostile())
        ElementTree.fromstring(of_others)
        assert "<script" not in of_others

    def test_a_mean_is_over_the_day_of_its_own_configuration_and_panels_of_a_queue_have_the_same_axes(self) -> None:
        found = result(figure("wait_p90", (60,), (600,)))
        short = replace(found.configurations[1], hours=1.0)
        picture = simulation_picture.drawn(replace(found, configurations=(found.configurations[0], short)))
        assert f"training with {A}: 4.0 of 4 GPUs in use on average" in picture
        assert f"training with {B}: 8.0 of 4 GPUs in use on average" in picture
        low, high = (Track("q", "GPUs", quota, (1.0,) * bins, (0.0,), (0,)) for quota, bins in ((2, 3), (8, 5)))
        axes = simulation_picture.axes_of([low, high], 0, 100)
        assert (axes.bins, axes.most_use) == (5, 8)
        found = result(figure("wait_p90", (60,)))
        idle = Track("idle", "GPUs", 4, (0.0, 0.0), (0.0, 0.0), (0, 0))
        side = replace(found.configurations[0], tracks=(*found.configurations[0].tracks, idle))
        assert "1 more cluster queue" in simulation_picture.drawn(replace(found, configurations=(side,)))


class TestReport:
    """The section of the report."""

    def test_it_has_the_verdict_and_the_tables_and_names_of_other_people_stay_text(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        section = "\n".join(simulated(result(figure("wait_p90", (3600,), (600,)))))
        assert "90 % of the runs of training start within 10.0 min instead of 1.0 h" in section
        assert "Waited 2.0 h for quota." in section
        assert "<script" not in "\n".join(simulated(hostile()))
        console = new_console()
        for part in shown(hostile()):
            console.print(part)
        assert "[red]" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            *(("[", "not JSON"), ("[" * 100_000, "not JSON"), ("[]", "not the result of `gke-ai simulate`")),
            ('{"version": 9, "configurations": []}', "version is 9"),
            ('{"version": 1, "configurations": []}', "does not have the form"),
        ],
    )
    def test_a_file_that_is_no_simulation_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "out.json"
        file.write_text(text)
        with pytest.raises(Stop, match=message):
            read(file)

    @pytest.mark.parametrize(
        "change", [{"seeds": (1, 2)}, {"seeds": ()}, {"configurations": ()}, {"bin_seconds": 0.0}, {"figures": ("x",)}]
    )
    def test_a_file_whose_parts_do_not_agree_is_refused(self, tmp_path: Path, change: dict[str, object]) -> None:
        file = tmp_path / "out.json"
        file.write_text(json.dumps({**json.loads(result(figure("wait_p90", (60,))).written()), **change}))
        with pytest.raises(Stop, match="gke-ai simulate --json"):
            read(file)


class TestCommand:
    """The options of the command."""

    def test_configurations_of_the_same_name_have_their_paths_and_one_that_a_trace_does_not_suit_is_named(self) -> None:
        assert names_of([Path("/a/x"), Path("/b/x"), Path("/b/y")]) == ["/a/x", "/b/x", "y"]
        with pytest.raises(Stop, match=r"^/x/more.yaml: The trace submits to team/other"):
            check(Path("/x/more.yaml"), configuration({"one": {"gpus": 1}}), (run(0, 1, queue="other"),))

    @pytest.mark.parametrize("text", ["0", "x", str(MAX_SEEDS + 1), "-1"])
    def test_a_number_of_seeds_that_the_statistic_does_not_know_is_refused(self, text: str) -> None:
        with pytest.raises(click.UsageError):
            gke_ai("simulate", "--seeds", text)

    def test_the_next_step_is_named(self) -> None:
        options = Options()
        steps: dict[str, Any] = {"COMPARE=other.yaml": {"compare": (Path("b.yaml"),)}, "SEEDS=5": {"seeds": 5}}
        for step, more in {**steps, "JSON=out.json": {"json": Path("o.json")}, "SIMULATION=": {}}.items():
            assert step in next_step(options)
            options = replace(options, **more)


def test_a_configuration_with_topology_says_what_differs_on_google_cloud() -> None:
    with_topology, without = Queues(load(base("topology"), PROJECT)), configuration({"one": {"gpus": 4}})
    files = {"Pulumi.prod.yaml": with_topology, "Pulumi.dev.yaml": without}
    configurations = [ConfiguredQueues(name, Path(name), queues) for name, queues in files.items()]
    (note,) = notes(configurations, Options().begin, {name: [] for name in files})
    assert note.startswith("Pulumi.prod.yaml has flavors with topology (b200). Kueue places runs in simulated blocks")
