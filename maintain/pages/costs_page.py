"""docs/costs.md: what each example occupies and costs, idle and busy."""

import pytest

from gke_ai.review.report.accelerators import supplies, total
from gke_ai.review.report.page import cost
from gke_ai.settings.calibration import Calibration
from gke_ai.workspace.configuration_file import read_region
from gke_ai.workspace.prices import with_google
from maintain.pages import with_parts
from tests.support.recorder import configuration, run_program
from tests.support.registered import resources
from tests.support.repository import configurations, name_of

PRICES = with_google(None, Calibration(), "")


def page() -> str:
    rows, priced = "", set[tuple[str, str]]()
    for path in sorted(configurations(), key=name_of):
        name, region = name_of(path), read_region(path)
        with pytest.MonkeyPatch.context() as patch:
            record = run_program(configuration(name), preview=True, monkeypatch=patch)
        for supply in supplies({resource.urn: resource for resource in resources(record)}, region):
            idle, busy = supply.min_count, supply.max_count
            amounts = cost(total([supply], PRICES))
            cells = [
                f"[`{path.stem}`](../{name})",
                supply.place,
                supply.accelerator,
                supply.capacity,
                idle,
                busy,
                amounts,
            ]
            rows += f"| {' | '.join(map(str, cells))} |\n"
            priced |= {*supply.priced}
    remarks = "".join(f"- {remark}\n" for remark in PRICES.remarks(priced))
    table = ("| --- | --- | --- | --- | --: | --: | --: |\n", "\nA capacity mode", rows)
    return with_parts("costs.md", table, ("prices have these dates:\n\n", "\nWith a ", remarks))
