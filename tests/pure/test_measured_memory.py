"""What the program computes for 43 starts of vLLM, beside what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.measured_memory import PARTS, Row, rows, table
from tests.support.repository import ROOT

ROWS = rows()
# Their shapes, written by hand, share one matrix between input and output. The published files have both.
SHARED_EMBEDDINGS = ("mistral-small-31-text.eager", "mistral-small-31.eager")
# A length that vLLM refuses may be accepted without a warning if it is longer by this share.
TOLERANCE = 0.03


def by_case(row: Row) -> str:
    return row.case


@pytest.mark.parametrize("row", ROWS, ids=by_case)
def test_least_is_not_above_what_was_measured(row: Row) -> None:
    if row.case in SHARED_EMBEDDINGS:
        assert row.computed("weights", likely=False) > row.gib("weights") + 1
        return
    least = sum(row.computed(*names, likely=False) for names in PARTS.values())
    assert least <= sum(row.gib(part) for part in PARTS)


@pytest.mark.parametrize("row", ROWS, ids=by_case)
def test_length_that_vllm_takes_is_not_refused(row: Row) -> None:
    assert row.longest_computed(likely=False) >= row.longest


@pytest.mark.parametrize("row", ROWS, ids=by_case)
def test_length_that_vllm_refuses_is_not_accepted_without_a_warning(row: Row) -> None:
    assert row.longest_computed(likely=True) <= row.longest * (1 + TOLERANCE)


@pytest.mark.parametrize("row", ROWS, ids=by_case)
def test_expected_length_is_near_the_longest_that_vllm_takes(row: Row) -> None:
    assert row.longest_computed(likely=True) >= 0.8 * row.longest


@pytest.mark.parametrize("row", [row for row in ROWS if row.gib("one_sequence")], ids=by_case)
def test_cache_of_a_sequence_is_what_vllm_computes(row: Row) -> None:
    assert row.load.need(row.place).kv_cache / 2**30 == pytest.approx(row.gib("one_sequence"), abs=0.015)


@pytest.mark.parametrize("row", ROWS, ids=by_case)
def test_verdict_is_that_of_vllm_or_comes_with_a_warning(row: Row) -> None:
    load, place = row.load, row.place
    if row.measured["fits"] == "True":
        assert load.fits(place) or load.tokens > row.longest
    else:
        assert not load.likely_fits(place)


def test_rows_are_all_of_the_measurement() -> None:
    assert len(ROWS) == len({row.case for row in ROWS}) == 43
    assert sum(row.measured["fits"] == "False" for row in ROWS) == 7


def test_page_states_the_range_of_the_expected_lengths() -> None:
    page = Path(ROOT / "docs/model-memory.md").read_text()
    shares = [100 * row.longest_computed(likely=True) / row.longest for row in ROWS]
    assert f"The expected length was {min(shares):.0f} % to {max(shares):.0f} % of the longest that vLLM takes" in page


def test_command_prints_a_row_for_each_start() -> None:
    printed = table().splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in printed[2:]] == [row.case for row in ROWS]
