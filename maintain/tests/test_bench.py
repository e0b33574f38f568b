"""Only here: `make bench` runs to its end: it drives the engine, the cluster, helm and kubectl."""

import pytest

from maintain.bench.__main__ import main

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_quick_bench_measures_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = main(["--quick"])
    table = capsys.readouterr().out
    assert len(rows) == 6
    for row in rows:
        assert row.title.split()[0] in table
        assert row.ours > 0
    # Bounds far outside of every machine's noise: they find a comparison of unlike things, not a slow program.
    ratios = {row.title: row.ratio for row in rows if row.ratio is not None}
    assert len(ratios) == 4
    assert all(0.2 < ratio < 5 for ratio in ratios.values()), ratios
