"""Says when a run would start if it were submitted now, with an interval, and why.

    python -m ops.when --stack prod run.yaml
    python -m ops.when --stack prod --snapshot snapshot.json run.yaml

The file has one run as it stands in `training` or `batch` of the configuration, or the manifest of a Job, a JobSet or a
Workload with the label of a local queue. Nothing is submitted.

The forecast knows the queues, the runs that wait and run, and how long runs took before. It does not know the capacity
of Google Cloud: once the run has its quota, its nodes still have to start. It does not know who cancels a run either.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from rich.table import Table

from catalog.nodes import NVIDIA_GPU
from catalog.tpus import GOOGLE_TPU
from forecast.start import HORIZON, Start, forecast
from forecast.state import State, state
from ops.run_file import read_run
from ops.snapshot.command import read_file, take
from ops.snapshot.format import Snapshot
from ops.stack import Stack, Stop, add_stack, run
from ops.terminal import new_console

SHOWN = 8
FEW_CASES = 20
_NAMES = {NVIDIA_GPU: "GPU", GOOGLE_TPU: "TPU chip"}
_HOUR, _DAY = 3600.0, 86_400.0


def main(argv: Sequence[str] | None = None) -> None:
    """Prints when the run starts, and why."""
    options = parser().parse_args(argv)
    stack = Stack(options.stack, options.config_file)
    snapshot = read_file(options.snapshot) if options.snapshot else of_cluster(stack)
    if missing := {"Workload", "ClusterQueue", "LocalQueue"} & set(snapshot.missing):
        raise Stop(f"The snapshot has no {', '.join(sorted(missing))}, so the queue is unknown. List them.")
    cluster = state(snapshot.objects, snapshot.taken_at)
    target = read_run(options.file, stack, cluster)
    answer = forecast(cluster, target, options.seed, progress if not options.json else lambda _done, _all: None)
    if options.json:
        print(json.dumps(as_json(answer), indent=1))
        return
    console = new_console()
    print(headline(answer))
    for text in reasons(answer):
        print(text)
    for table in tables(answer):
        console.print()
        console.print(table)
    print()
    for text in notes(answer, cluster, snapshot):
        print(text)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m ops.when", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("file", type=Path, help="the run, as YAML")
    add_stack(options)
    options.add_argument("--config-file", type=Path, help="configuration with pools. Default: Pulumi.<stack>.yaml")
    options.add_argument("--snapshot", type=Path, help="snapshot of the cluster. Default: the cluster now")
    options.add_argument("--seed", type=int, default=1, help="seed of the possible futures. Default: 1")
    options.add_argument("--json", action="store_true", help="print JSON, with times in seconds")
    return options


def of_cluster(stack: Stack) -> Snapshot:
    """Reads the cluster of a stack."""
    return take(stack.name, stack.cluster())


def progress(done: int, total: int) -> None:
    """Shows on a terminal how many past runs have been forecast."""
    if sys.stderr.isatty():
        end = "" if done < total else "\r\033[K"
        print(f"\rCompares the forecast with {total} past runs: {done}\033[K", end=end, file=sys.stderr, flush=True)


def headline(answer: Start) -> str:
    """Returns the answer in one sentence."""
    queue, on = answer.run.queue, f"on flavor {' and '.join(answer.flavors)} " if answer.flavors else ""
    if answer.never:
        return f"{answer.run.name} never starts in cluster queue {queue}."
    where = f"{on}of cluster queue {queue}"
    if answer.at_once:
        return f"Starts at once, {where}."
    if answer.median == inf:
        return f"Starts after {duration(HORIZON)} or never, in cluster queue {queue} (90 %: {_interval(answer)})."
    return f"Starts in {duration(answer.median)} (90 %: {_interval(answer)}), {where}."


def _interval(answer: Start) -> str:
    high = f"more than {duration(HORIZON)}" if answer.high == inf else duration(answer.high)
    if answer.low == inf:
        return high
    return f"{duration(answer.low) if answer.low >= 1 else 'at once'} to {high}"


def reasons(answer: Start) -> Iterator[str]:
    """Yields why the run starts then, in sentences."""
    yield from answer.never
    if answer.preempts:
        names = ", ".join(f"{each.name} ({amounts(each.needs)}, priority {each.priority})" for each in answer.preempts)
        preempted = count(len(answer.preempts), "run")
        yield f"Kueue preempts {preempted} for it: {names}. It starts once their pods have ended."
    verb = "is" if len(answer.ahead) == 1 else "are"
    ahead = f"{count(len(answer.ahead), 'waiting run')} of its queue {verb} ahead of it"
    if answer.missing:
        yield f"It needs {amounts(answer.missing)} more than are free now.{f' {ahead}.' if answer.ahead else ''}"
    elif answer.ahead and not answer.at_once and not answer.never:
        yield f"Its quota is free now, but {ahead}."


def tables(answer: Start) -> Iterator[Table]:
    """Yields what is ahead of the run, and what holds its quota."""
    if answer.at_once or answer.never:
        return
    if answer.ahead:
        table = _table("Ahead of it", "run", "priority", "requests")
        for each in answer.ahead[:SHOWN]:
            table.add_row(each.name, str(each.priority), amounts(each.needs))
        _rest(table, len(answer.ahead))
        yield table
    if answer.holders:
        table = _table(
            "Holds quota that it needs", "run", "cluster queue", "priority", "uses", "runs for", "ends before the start"
        )
        for holder in answer.holders[:SHOWN]:
            held = holder.held.run
            often = "never ends" if held.endless else f"{holder.ends_before:.0%}"
            uses = amounts({resource: amount for (_, resource), amount in holder.held.usage})
            table.add_row(held.name, held.queue, str(held.priority), uses, duration(holder.elapsed), often)
        _rest(table, len(answer.holders))
        yield table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=not number, justify="right" if column in ("priority", "runs for") else "left")
    return table


def _rest(table: Table, total: int) -> None:
    if total > SHOWN:
        table.add_row(f"… and {total - SHOWN} more")


def notes(answer: Start, cluster: State, snapshot: Snapshot) -> Iterator[str]:
    """Yields what the answer rests on, and what it leaves out."""
    if answer.never or answer.at_once:
        yield "Starting nodes, and capacity that Google Cloud does not have, are not included."
        return
    if answer.cases < FEW_CASES:
        waited = f"Only {count(answer.cases, 'past run')}" if answer.cases else "No past run"
        yield f"{waited} had to wait, so the interval is partly an assumption."
    else:
        yield f"Of {answer.cases} past runs that had to wait, {answer.covered:.0%} started within such an interval."
    yield f"Durations and arrivals are drawn from the past: {count(answer.ended, 'ended run')} of the cohort."
    if cluster.nested:
        yield "Cohorts within cohorts count as one cohort."
    if ((snapshot.kueue or {}).get("fairSharing") or {}).get("enable"):
        yield "Kueue's fair sharing is on, and is not part of the forecast."
    yield "Not included: starting nodes, missing capacity, and runs that somebody cancels or deletes."


def as_json(answer: Start) -> Mapping[str, object]:
    """Returns the answer as plain data. Times are seconds; null is after the horizon or never."""
    return {
        "version": 1,
        "run": answer.run.name,
        "clusterQueue": answer.run.queue,
        "flavors": answer.flavors,
        "never": answer.never,
        "atOnce": answer.at_once,
        "preempts": [each.name for each in answer.preempts],
        "seconds": {name: _finite(getattr(answer, name)) for name in ("low", "median", "high")},
        "ahead": [each.name for each in answer.ahead],
        "missing": answer.missing,
        "holders": [
            {"run": each.held.run.name, "elapsed": round(each.elapsed), "endsBefore": round(each.ends_before, 3)}
            for each in answer.holders
        ],
        "pastRuns": answer.cases,
        "covered": round(answer.covered, 3),
    }


def _finite(seconds: float) -> int | None:
    return None if seconds == inf else round(seconds)


def duration(seconds: float) -> str:
    """Formats a duration with its two largest units."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if seconds < 2 * _DAY:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = round(seconds / _HOUR)
    return f"{hours // 24} days {hours % 24} h" if hours % 24 else f"{hours // 24} days"


def amounts(needs: Mapping[str, float]) -> str:
    """Formats amounts of resources: accelerators if there are any, else the rest."""
    shown = {name: amount for name, amount in needs.items() if name in _NAMES} or needs
    return ", ".join(_amount(name, amount) for name, amount in sorted(shown.items()))


def _amount(resource: str, amount: float) -> str:
    if resource in _NAMES:
        return count(round(amount), _NAMES[resource])
    if resource == "cpu":
        return f"{amount:g} cores"
    return (
        f"{amount / 2**30:.1f} GiB of {resource}"
        if resource in ("memory", "ephemeral-storage")
        else f"{amount:g} {resource}"
    )


def count(number: int, noun: str) -> str:
    """Formats a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    run(main)
