"""docs/cluster-toolkit.md: each blueprint of Cluster Toolkit beside the example of the same machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from maintain.blueprints.compare import Row, differences, facts, rows

HEAD = """<!-- Written by `make docs` from maintain/blueprints and the examples. -->
# Compared with Cluster Toolkit

[Cluster Toolkit]({repository}) has a blueprint for each machine that people
train on. This page compares what a blueprint makes with what the program registers for an example of the same machine,
object by object and setting by setting. It covers release v1.95.0 of June 2026, commit
[`{short}`]({repository}/tree/{commit}), and
not what later releases changed: 1.109, of November 2026, has blueprints for A5X that this page lacks. Neither side was
run on Google Cloud for it.

| blueprint | example |
| --- | --- |
"""
TABLE = "\n| in the blueprint | here | why not the same |\n| --- | --- | --- |\n"
COMMON = """
## In every blueprint

These rows are the same for every blueprint with an example. An empty last column means that both sides have the same.
The rows of queues and of a run's identity are not in a blueprint for servers, which has neither.
"""
TAIL = """
## How it is made

`python -m maintain.blueprints CHECKOUT` reads the blueprints of a checkout, with the defaults of their modules. It
writes kinds, names and settings to [`facts.yaml`](../maintain/blueprints/facts.yaml), and stops at a module, a
Terraform resource or a setting that [`modules.py`](../maintain/blueprints/modules.py) does not know.
[`reasons.yaml`](../maintain/blueprints/reasons.yaml) has the reasons. A test fails if a row has neither an equal nor a
reason, and if a reason fits no row. Settings that are off have no rows. A value that only a deployment has, such as the
number of nodes, counts as equal to any.
"""
# What a cell shows, beside the reason: objects or settings of one kind.
Lines = dict[tuple[str, str, str], list[str]]


def page() -> str:
    """The page."""
    read = facts()
    tables = {name: lines(rows(name)) for name in differences()["examples"]}
    first, *others = (found for found in tables.values() if any(kind == "ClusterQueue" for kind, _, _ in found))
    common = {key: cells for key, cells in first.items() if all(other.get(key) == cells for other in others)}
    own = [
        f"\n## {name}\n{TABLE}{table({key: cells for key, cells in found.items() if common.get(key) != cells})}"
        for name, found in tables.items()
    ]
    head = HEAD.format(repository=read["repository"], commit=read["commit"], short=read["commit"][:8])
    return head + "".join(_blueprints()) + COMMON + TABLE + table(common) + "".join(own) + TAIL


def lines(found: Iterable[Row]) -> Lines:
    """The rows, joined where kind, counterpart and reason are the same."""
    joined: Lines = {}
    for row in found:
        kind, here = row.kind.removeprefix("google_"), row.here
        # An object with a counterpart is named by its equal settings: names are the user's choice.
        cells = [] if row.reason is None else [f"`{row.field}`" if row.field else row.name.replace("…", "ZONE-")]
        known = joined.setdefault((kind, here, row.reason.why if row.reason else ""), [])
        cells = cells or [f"`{field}`" for field in row.field.split(", ") if field]
        known += [cell for cell in cells if cell not in known]
    return joined


def table(found: Mapping[tuple[str, str, str], list[str]]) -> str:
    """The rows of a table."""
    return "".join(
        f"| `{kind}`{': ' if cells else ''}{', '.join(cells)} | {code(here)} | {why} |\n"
        for (kind, here, why), cells in found.items()
    )


def code(here: str) -> str:
    """Kinds and paths of registrations; those of an equal object have its type."""
    return ", ".join(f"`{name.rpartition('/')[2]}`" for name in here.split(", ") if name)


def _blueprints() -> Iterator[str]:
    known = differences()
    for name, read in facts()["blueprints"].items():
        example = known["examples"].get(name)
        shown = f"[`{example.rpartition('/')[2]}`](../{example})" if example else f"none. {known['missing'][name]}"
        yield f"| [`{name}`]({facts()['repository']}/blob/{facts()['commit']}/{read['path']}) | {shown} |\n"
