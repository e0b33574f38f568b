"""Compares what Kueue decided with its tables, and what it decided in a copy with what it decided in the original."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.versions import KUEUE_VERSION
from tests.support.rehearsal.tables.cases import TableCase
from tests.support.rehearsal.tables.clusters import Result
from tests.support.rehearsal.tables.decisions import Decision

FILE = Path(__file__).with_name("agreement.yaml")


@cache
def listed() -> Mapping[str, Any]:
    """The exceptions by reason, and the reasons in words."""
    content: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def exceptions(release: str = KUEUE_VERSION) -> dict[str, str]:
    """The reason of each case of a release whose table and original differ, by title."""
    return {title: reason for reason, titles in listed()["exceptions"][release].items() for title in titles}


def differences(result: Result) -> Iterator[str]:
    """How the original differs from the table, in words.

    A table shows one cycle. What Kueue decides later is no difference: it is for a workload that the cycle leaves in a
    queue and for which it preempts nobody.
    """
    if result.refused:
        yield f"the API server refuses the case: {result.refused}"
        return
    expected, decided = result.case.expected, result.original
    yield from (f"only in the table: {decision}" for decision in sorted(expected - decided, key=str))
    more = (decision for decision in decided - expected if not _is_later(decision, result.case))
    yield from (f"only in the original: {decision}" for decision in sorted(more, key=str))


def _is_later(decision: Decision, case: TableCase) -> bool:
    at_work = {other.preemptor for other in case.expected}
    for_whom = decision.workload if decision.outcome == "admitted" else decision.preemptor
    return for_whom in case.later and for_whom not in at_work


def copy_differences(result: Result) -> Iterator[str]:
    """How the copy differs from the original, in all that Kueue decided, in words."""
    for label, decided in (("original", result.original - result.copy), ("copy", result.copy - result.original)):
        yield from (f"only in the {label}: {decision}" for decision in sorted(decided, key=str))


def report(results: Sequence[Result]) -> str:
    """The numbers by table, and each difference."""
    lines = []
    for table, count in sorted(Counter(result.case.table for result in results).items()):
        of_table = [result for result in results if result.case.table == table]
        agreed = sum(not any(differences(result)) for result in of_table)
        copies = sum(not any(copy_differences(result)) for result in of_table)
        lines.append(f"{table}: {count} compared, {agreed} as in the table, {copies} copies as the original")
    for result in results:
        found = [*differences(result), *(f"copy: {text}" for text in copy_differences(result))]
        lines += [f"{result.case.title}:", *(f"    {text}" for text in found)] if found else []
    return "\n".join(lines)
