"""What the program computes for 43 starts of vLLM, beside what was measured."""

import pytest

from tests.support.measured_memory import PARTS, Row, rows, table
from tests.support.repository import ROOT

ROWS = rows()
# Their shapes, written by hand, share one matrix between input and output. The published files have both.
SHARED_EMBEDDINGS = ("mistral-small-31-text.eager", "mistral-small-31.eager")
# A length that vLLM refuses may be accepted without a warning if it is longer by this share.
TOLERANCE = 0.03


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_estimates_agree_with_a_start_of_vllm(row: Row) -> None:
    if row.case in SHARED_EMBEDDINGS:
        assert row.computed("weights", likely=False) > row.gib("weights") + 1
    else:
        least = sum(row.computed(*names, likely=False) for names in PARTS.values())
        assert least <= sum(row.gib(part) for part in PARTS)
    assert row.longest_computed(likely=False) >= row.longest, "a length that vLLM takes is not refused"
    expected = row.longest_computed(likely=True)
    assert expected <= row.longest * (1 + TOLERANCE), "no length that vLLM refuses is accepted without a warning"
    assert expected >= 0.8 * row.longest
    if cache := row.gib("one_sequence"):
        assert row.load.need(row.place).kv_cache / 2**30 == pytest.approx(cache, abs=0.015)
    if row.measured["fits"] == "True":
        assert row.load.fits(row.place) or row.load.tokens > row.longest
    else:
        assert not row.load.likely_fits(row.place)


def test_rows_are_all_of_the_measurement() -> None:
    assert len(ROWS) == len({row.case for row in ROWS}) == 43
    assert sum(row.measured["fits"] == "False" for row in ROWS) == 7
    printed = table().splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in printed[2:]] == [row.case for row in ROWS]


def test_page_states_the_range_of_the_expected_lengths() -> None:
    page = (ROOT / "docs/model-memory.md").read_text()
    shares = [100 * row.longest_computed(likely=True) / row.longest for row in ROWS]
    assert f"The expected length was {min(shares):.0f} % to {max(shares):.0f} % of the longest that vLLM takes" in page
