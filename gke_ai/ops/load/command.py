"""`gke-ai load`: sends requests through a gateway at stated rates, and prints what became of them.

Requests come at their rate whether the server keeps up or not, as those of independent users do. Times are those of the
client: they include what the gateway holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from gke_ai.formats.console import new_console, new_progress, new_table
from gke_ai.formats.sentences import join_names
from gke_ai.ops.load.picture import drawn
from gke_ai.ops.load.requests import MAX_OPEN, Step, kind, send
from gke_ai.ops.smoke.answers import Reply
from gke_ai.ops.smoke.routes import ModelRoute, api_key, model_routes, with_key
from gke_ai.terminal import Stop, write
from gke_ai.workspace.stack import Stack

# This part of the requests has to keep to the objective.
PART = 0.95
# Answers that the pages name: the server's, too many requests, and no replica in time.
STATED = ("200", "429", "503")


@dataclass(frozen=True)
class Options:
    """What to send, and where the result goes."""

    route: str
    """Name of the route. Empty: the only one of the stack."""
    rates: Sequence[float]
    """Requests per second, one after the other."""
    seconds: float
    """Length of each rate. 0: `burst` requests at once."""
    burst: int
    words: int
    tokens: int
    objective: float
    """Time to the first token, in seconds."""
    patience: float
    """Time for an answer, in seconds."""
    json: Path | None = None
    picture: Path | None = None


def load(stack: Stack, options: Options) -> int:
    """Sends the load, and prints the result. Returns 1 if a request ended otherwise than the pages say."""
    console, route = new_console(), chosen(list(model_routes(stack.outputs())), options.route, stack)
    key = api_key()
    if route.keyed and not key:
        raise Stop(f"{route} requires an API key. Run: {with_key(stack.next('load'), stack.name)}")
    steps = list(sent(route, key, options, console))
    console.print()
    console.print(table(steps))
    for line in sentences(steps, options.objective):
        console.print(escape(line), soft_wrap=True)
    files = {}
    if options.json:
        files[options.json] = json.dumps([written(step) for step in steps], indent=2) + "\n"
    if options.picture:
        files[options.picture] = drawn(str(route), steps, options.objective, sentences(steps, options.objective))
    write(files)
    return 0 if all(found in STATED for step in steps for found in step.kinds) else 1


def chosen(routes: Sequence[ModelRoute], name: str, stack: Stack) -> ModelRoute:
    """The route of this name, or the only one. Raises Stop if there is none."""
    named = [route for route in routes if route.name == name] if name else list(routes)
    if not named:
        known = join_names(sorted({route.name for route in routes}))
        remedy = f"Its routes: {known}." if routes else "A load goes through a gateway: add gke-ai:gateway."
        raise Stop(f"{stack.name} has no route{f' {name}' if name else ''}. {remedy}")
    if len({route.name for route in named}) > 1:
        raise Stop(f"{stack.name} has several routes. Name one: {join_names(sorted({r.name for r in named}))}.")
    return named[0]


def sent(route: ModelRoute, key: str, options: Options, console: Console) -> Iterator[Step]:
    """Sends one rate after the other."""
    for rate in options.rates:
        count = options.burst if not options.seconds else max(round(rate * options.seconds), 1)
        api = route.client(key, min(count, MAX_OPEN))
        title = f"{route}: {count} requests" + (f", {rate:g} a second" if options.seconds else " at once")
        with progress(console, title, count) as ended:
            yield send(
                *(api, route.server, rate if options.seconds else float("inf"), count, options.words, options.tokens),
                *(options.patience, route.headers(key), ended),
            )


@contextmanager
def progress(console: Console, title: str, total: int) -> Iterator[Callable[[Reply], None]]:
    """Shows how many requests have ended, and how: a bar on a terminal, a line at the begin in a log."""
    kinds: dict[str, int] = {}
    with new_progress(console) as bar:
        task = bar.add_task(escape(title), total=total)
        if not console.is_terminal:
            console.print(f"{title} …")

        def ended(answer: Reply) -> None:
            kinds[kind(answer)] = kinds.get(kind(answer), 0) + 1
            counts = ", ".join(f"{count} × {found}" for found, count in sorted(kinds.items()))
            bar.update(task, advance=1, description=escape(f"{title} ({counts})"))

        yield ended


def table(steps: Sequence[Step]) -> Any:
    """A row per rate: how the requests ended, and the times of the answers."""
    kinds = [*STATED, *sorted({found for step in steps for found in step.kinds} - {*STATED})]
    times = ("first token p50", "p95", "per token p50", "p95")
    rows = [
        (
            "at once" if step.rate == float("inf") else f"{step.rate:g}",
            *(str(step.kinds.get(found, 0)) for found in kinds),
            *(figure(step.first_token(part), 2) for part in (0.5, PART)),
            *(figure(step.per_token(part), 4) for part in (0.5, PART)),
            f"{len(step.answered) / step.seconds:.1f}",
        )
        for step in steps
    ]
    return new_table(("requests/s", *kinds, *times, "answers/s"), rows, "Requests by their end, and times")


def figure(seconds: float | None, digits: int) -> str:
    return "–" if seconds is None else f"{seconds:.{digits}f} s"


def sentences(steps: Sequence[Step], objective: float) -> list[str]:
    """At which rate the objective breaks, and answers that no page names."""
    kept = [step.rate for step in steps if step.keeps(objective, PART)]
    broken = [step.rate for step in steps if not step.keeps(objective, PART)]
    goal = f"a first token within {objective:g} s for {PART:.0%} of the requests"
    if steps[0].rate == float("inf"):
        lines = [f"{'Kept' if kept else 'Not kept'}: {goal}."]
    elif not kept:
        lines = [f"The objective, {goal}, breaks at or below {min(broken):g} requests a second."]
    else:
        best = max(kept)
        above = [rate for rate in broken if rate > best]
        where = f"between {best:g} and {min(above):g}" if above else f"above {best:g}"
        lines = [f"The objective, {goal}, breaks {where} requests a second."]
        if early := [f"{rate:g}" for rate in broken if rate < best]:
            lines.append(f"At {join_names(early)} it broke too, before replicas were ready.")
    other = {found for step in steps for found in step.kinds} - {*STATED}
    if other:
        lines.append(f"Answers that no page names: {join_names(sorted(other))}.")
    return lines


def written(step: Step) -> dict[str, Any]:
    """A rate as data."""
    return {
        "rate": None if step.rate == float("inf") else step.rate,
        "seconds": round(step.seconds, 3),
        "kinds": dict(step.kinds),
        "firstToken": {f"p{part * 100:.0f}": step.first_token(part) for part in (0.5, PART, 0.99)},
        "perToken": {f"p{part * 100:.0f}": step.per_token(part) for part in (0.5, PART, 0.99)},
    }
