"""docs/costs.md: what each example occupies, idle and busy."""

from collections.abc import Iterator

import pytest

from gke_ai.review.report.accelerators import Supply, supplies
from maintain.pages import with_parts
from tests.support.recorder import configuration, run_program
from tests.support.registered import resources
from tests.support.repository import configurations, name_of


def page() -> str:
    rows = "".join(f"{row}\n" for row in _rows())
    return with_parts("costs.md", ("| --- | --- | --- | --- | --: | --: |\n", "\nA capacity mode", rows))


def _rows() -> Iterator[str]:
    for path in sorted(configurations(), key=name_of):
        name = name_of(path)
        with pytest.MonkeyPatch.context() as patch:
            record = run_program(configuration(name), preview=True, monkeypatch=patch)
        for supply in supplies({resource.urn: resource for resource in resources(record)}):
            yield _row(f"[`{path.stem}`](../{name})", supply)


def _row(link: str, supply: Supply) -> str:
    idle, busy = supply.min_count, supply.max_count
    return f"| {link} | {supply.place} | {supply.accelerator} | {supply.capacity} | {idle} | {busy} |"
