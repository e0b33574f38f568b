"""docs/costs.md: what each example occupies, idle and busy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from gke_ai.review.report.accelerators import Supply, supplies
from gke_ai.review.report.changes import Resource
from tests.support.recorder import Registration, configuration, run_program
from tests.support.repository import configurations, name_of

HEAD = """<!-- Written by `make docs` from the examples. -->
# What it costs

You pay for accelerators, above all. This page counts those of each configuration. *Idle* is the minimum, while no run
and no request needs more, and *busy* is the maximum. Google bills them by the hour.

| configuration | pool or workload | accelerator | capacity mode | idle | busy |
| --- | --- | --- | --- | --: | --: |
"""
TAIL = """
A capacity mode with "else" is that of a compute class: GKE uses the first one that is available. On Autopilot, and for
a compute class, a server occupies accelerators while it has replicas, and a run while it runs. A pool of fixed size
costs the same day and night.

Prices differ by region and change, so this project contains none. With a [price table](report.md#prices),
the report shows the cost of a change per hour, before and after:

```
make report STACK=dev PRICES=prices.yaml
```

Where the table lacks the price of a Spot node, [`gke-ai capacity`](capacity.md)
can ask Google for its list price.

Not counted: the [cluster fee](https://cloud.google.com/kubernetes-engine/pricing), nodes without accelerators, disks,
buckets, the load balancer of a gateway, and traffic. Buckets stay after a `down`, with
their data and costs, unless they have `onDestroy: delete`.
"""


def page() -> str:
    return HEAD + "\n".join(_rows()) + "\n" + TAIL


def _rows() -> Iterator[str]:
    for path in sorted(configurations(), key=name_of):
        name = name_of(path)
        with pytest.MonkeyPatch.context() as patch:
            record = run_program(configuration(name), preview=True, monkeypatch=patch)
        for supply in supplies({resource.urn: resource for resource in of_record(record.resources.values())}):
            yield _row(f"[`{path.stem}`](../{name})", supply)


def _row(link: str, supply: Supply) -> str:
    idle, busy = supply.min_count, supply.max_count
    return f"| {link} | {supply.place} | {supply.accelerator} | {supply.capacity} | {idle} | {busy} |"


def of_record(registrations: Iterable[Registration]) -> Iterator[Resource]:
    for registration in registrations:
        yield Resource(
            registration.urn,
            registration.type,
            parent=registration.parent,
            inputs=registration.inputs,
            dependencies=frozenset(registration.dependencies),
        )
