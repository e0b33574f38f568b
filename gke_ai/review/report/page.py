"""The report page: deterministic Markdown of a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby
from typing import TypeVar

from gke_ai.forecast.render import rehearsal_headline
from gke_ai.forecast.render.markdown import rehearsed, simulated
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.result.simulation import Simulation
from gke_ai.formats.markdown import LONG, block, code, folded, long, table, text
from gke_ai.formats.sentences import join_names, plural
from gke_ai.review.report import graph
from gke_ai.review.report.accelerators import Supply, Total, before_and_after, ends, remarks, total
from gke_ai.review.report.budgets import budgets
from gke_ai.review.report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE, Change, PlannedUpdate
from gke_ai.review.report.graph import MARKS
from gke_ai.review.report.interruptions import NOTE, interruptions
from gke_ai.review.report.policies import MANDATORY, Verdict, Violation
from gke_ai.review.report.shares import COLUMNS, share_rows
from gke_ai.settings.calibration import Calibration
from gke_ai.workspace.prices import Prices

# More lines that differ only in names and places are one line.
FEW = 3
NAME, INDEX = re.compile(r"[\w./-]+"), re.compile(r"\[\d+\]")
# GitHub's maximum length of a comment: https://github.com/orgs/community/discussions/27190
COMMENT_LIMIT = 65_536
SHORTENED = "_Omitted: the page would exceed the maximum length of a comment. `gke-ai report --limit 0` shows all._"


Item = TypeVar("Item")


@dataclass(frozen=True)
class Options:
    """Options of a page.

    `graph` adds the graph as Mermaid. `rehearsal` is the result of `gke-ai rehearse` for the same change, and
    `simulation` that of `gke-ai simulate`. `measured` has the figures of the calibration file.
    """

    prices: Prices | None = None
    graph: bool = False
    limit: int = COMMENT_LIMIT
    rehearsal: Forecast | None = None
    simulation: Simulation | None = None
    measured: Calibration = field(default_factory=Calibration)


@dataclass
class Section:
    """A section of the page; `rest` is omitted if the page gets too long."""

    heading: str
    always: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    # Sections with a higher number are shortened first; 0 never.
    spare: int = 0

    def written(self, full: bool) -> list[str]:
        """Returns the lines of the section."""
        body = [*self.always, *(self.rest if full else [SHORTENED] if self.rest else [])]
        return [f"## {self.heading}", *body] if body else []


def page(plan: PlannedUpdate, verdict: Verdict, options: Options) -> str:
    """Returns the page, shortened to its limit."""
    judged = [policies(plan, verdict)]
    forbidden = verdict.count(mandatory=True) > 0  # then the policies come first
    sections = [
        *(judged if forbidden else []),
        *(folding("In the queue", rehearsed(options.rehearsal, options.prices)) if options.rehearsal else []),
        *(folding("A simulated day", simulated(options.simulation)) if options.simulation else []),
        interrupted(plan),
        bullets("Warnings", alike(plan, plan.warnings), 1),
        accelerators(plan, options.prices),
        shares(plan),
        bullets("Budgets", list(budgets(plan)), 8),
        bullets("Capacity", alike(plan, [*ends(plan.after), *remarks(plan.after, options.measured)]), 1),
        *([] if forbidden else judged),
        bullets("Not checked", alike(plan, plan.unchecked), 1),
        bullets("Cold starts", alike(plan, plan.cold_starts), 9),
        *changed(plan),
        *([drawn(plan)] if options.graph and not plan.errors else []),
    ]
    head = [f"# Preview of `{plan.stack}`", summary(plan, verdict, options.rehearsal)]
    if plan.errors:
        sections = [failed(plan), *judged]
    left_out: set[int] = set()
    for spared in [0, *sorted({section.spare for section in sections} - {0}, reverse=True)]:
        left_out |= {spared} - {0}
        parts = [*head, *(line for section in sections for line in section.written(section.spare not in left_out))]
        written = "\n\n".join(parts) + "\n"
        if not options.limit or len(written) <= options.limit:
            return written
    return cut(written, options.limit)


def cut(text: str, limit: int) -> str:
    """Cuts a text at the end of a line and says so."""
    room = limit - len(SHORTENED) - len("\n\n</details>\n\n\n")
    begun = text[: text.rfind("\n", 0, room)]
    closing = "\n\n</details>" if begun.count("<details>") > begun.count("</details>") else ""
    return f"{begun}{closing}\n\n{SHORTENED}\n"


def summary(plan: PlannedUpdate, verdict: Verdict, forecast: Forecast | None = None) -> str:
    """Returns the summary in one line, with what a rehearsal says."""
    if plan.errors:
        return "**The preview failed, so there is no plan.** Nothing would change."
    counts = [
        f"{len(changes)} {MARKS[operation][2]}"
        for operation in (REPLACE, DELETE, UPDATE, CREATE, LEAVE)
        if (changes := plan.of(operation))
    ]
    touched = {change.resource.urn for change in plan.changes}
    same = sum(not resource.is_component for urn, resource in plan.after.items() if urn not in touched)
    rest = f", {same} unchanged" if same else ""
    parts = [f"**{', '.join(counts) if counts else 'Nothing changes'}**{rest}."]
    worst = [interruption for interruption in interruptions(plan) if interruption.severity < NOTE]
    parts.append(f"**{plural(len(worst), 'interruption')}.**" if worst else "No running workload is interrupted.")
    if broken := verdict.count(mandatory=True):
        parts.append(f"**{plural(broken, 'mandatory policy violation')}: the stack cannot be deployed.**")
    if advised := verdict.count(mandatory=False):
        parts.append(f"{plural(advised, 'advisory policy violation')}.")
    if forecast:
        parts.append(f"**{text(rehearsal_headline.sentence(forecast))}**")
    return " ".join(parts)


def folding(heading: str, parts: tuple[str, str]) -> list[Section]:
    """Shows the first part, and the second if the page has room."""
    always, rest = parts
    return [Section(heading, [always], [rest], 2)]


def failed(plan: PlannedUpdate) -> Section:
    """Shows the errors of Pulumi and the program."""
    return Section("Why it failed", [block(error) for error in plan.errors])


def bullets(heading: str, lines: Iterable[str], spare: int = 0) -> Section:
    """Lists lines, such as the warnings of the program, each with its remedy. Long lists are folded."""
    listed = [f"- {line}" for line in lines]
    rest = "\n".join(listed[LONG:])
    always = ["\n".join(listed[:LONG])] if listed else []
    return Section(heading, always, [folded(f"{len(listed) - LONG} more", rest)] if rest else [], spare)


def groups(plan: PlannedUpdate, items: Iterable[Item], written: Callable[[Item], str]) -> list[list[Item]]:
    """Groups items, in their order, that are written alike but for names of the plan. Small groups are divided."""
    whole = {resource.name for side in (plan.before, plan.after) for resource in side.values()}
    names = whole | {part for name in whole for part in name.split("/")}
    found: dict[str, list[Item]] = {}
    for item in items:
        same = NAME.sub(lambda match: "" if match[0].rstrip(".") in names else match[0], INDEX.sub("", written(item)))
        found.setdefault(same, []).append(item)
    return [part for group in found.values() for part in ([group] if len(group) > FEW else [[item] for item in group])]


def and_alike(group: Sequence[object]) -> str:
    """Says how many more a group has than the one that is shown."""
    return f" **And {len(group) - 1} alike.**" if len(group) > 1 else ""


def alike(plan: PlannedUpdate, lines: Iterable[str]) -> list[str]:
    """Returns lines of text. Of many that differ only in names, the first one, with their number."""
    return [text(group[0]) + and_alike(group) for group in groups(plan, lines, str)]


def interrupted(plan: PlannedUpdate) -> Section:
    """Lists the interruptions, worst first."""
    by_severity = groupby(interruptions(plan), key=lambda interruption: interruption.severity)
    lines = (
        f"**{line}**" if severity <= 1 else line
        for severity, group in by_severity
        for line in alike(plan, (interruption.text for interruption in group))
    )
    return bullets("Interruptions", lines, 1)


def accelerators(plan: PlannedUpdate, prices: Prices | None) -> Section:
    """Shows accelerators and cost by capacity mode before and after, then by pool and workload."""
    sides = before_and_after(plan)
    if not any(sides):
        return Section("Accelerators")
    keys = sorted({supply.key for side in sides for supply in side})
    head = ["capacity", "accelerator", "before", "after"]
    rows = []
    for key in keys:
        was, now = (total((supply for supply in side if supply.key == key), prices) for side in sides)
        costs = [cost(was), cost(now)] if prices else []
        rows.append([key[0], code(key[1]), span(was.min_count, was.max_count), marked(was, now), *costs])
    notes = ["GPUs and TPU chips, minimum – maximum: the bounds of pools, else the requests of workloads."]
    details = []
    if prices:
        was, now = (total(side, prices) for side in sides)
        head += [f"{prices.currency} per hour before", "after"]
        rows.append(["**all**", "", "", "", f"**{cost(was)}**", f"**{cost(now)}**"])
        idle = (cost(total((replace(place, max_count=place.min_count) for place in side), prices)) for side in sides)
        notes.append(
            f"Idle accelerators, at the minimum while nothing runs, in {prices.currency} per hour: "
            f"**{next(idle)}** before, **{next(idle)}** after. Machines without accelerators are not counted."
        )
        used = {priced for side in sides for place in side for priced in place.priced}
        without = sorted({place.place for side in sides for place in side if place.cost(prices) is None})
        lines = [*prices.remarks(used), *([f"The sums lack {join_names(without)}."] if without else [])]
        details = ["\n".join(f"- {text(line)}" for line in lines)] if lines else []
    all_places = {place_of(place): place for side in sides for place in side}
    places = [
        [place.capacity, code(place.accelerator), text(place.place), *(bounds_in(side, place) for side in sides)]
        for _, place in sorted(all_places.items(), key=lambda item: item[0])
    ]
    alike_places = groups(plan, places, "|".join)
    shown = [[*first[:2], first[2] + and_alike([first, *more]), *first[3:]] for first, *more in alike_places]
    detail = table(["capacity", "accelerator", "from", "before", "after"], shown)
    rest = [folded(f"By pool and workload ({len(places)})", detail)]
    return Section("Accelerators", [" ".join(notes), table(head, rows), *details], rest, 2)


def shares(plan: PlannedUpdate) -> Section:
    """Shows how the members of cohorts share quota, if there is a cohort."""
    rows = [[text(cell) for cell in row] for row in share_rows(plan)]
    return Section(
        "Shares", [], [long("Cohorts and their members", table(COLUMNS, rows), len(rows))] if rows else [], 2
    )


def place_of(supply: Supply) -> tuple[tuple[str, str], str]:
    """Returns the sort key of a supply."""
    return supply.key, supply.place


def bounds_in(side: Iterable[Supply], place: Supply) -> str:
    """Returns the bounds of a supply before or after the plan."""
    bounds = total((supply for supply in side if place_of(supply) == place_of(place)), None)
    return span(bounds.min_count, bounds.max_count)


def marked(was: Total, now: Total) -> str:
    """Formats the bounds after the plan, in bold if they changed."""
    shown = span(now.min_count, now.max_count)
    return shown if (was.min_count, was.max_count) == (now.min_count, now.max_count) else f"**{shown}**"


def span(min_count: int, max_count: int) -> str:
    """Formats minimum – maximum."""
    return str(min_count) if min_count == max_count else f"{min_count} – {max_count}"


def cost(sum_: Total) -> str:
    """Formats the cost per hour, minimum – maximum, and says if it lacks accelerators without a price."""
    if sum_.unpriced and not any(sum_.cost):
        return "no price"
    min_cost, max_cost = (f"{amount.quantize(Decimal('0.01'), ROUND_HALF_UP):,}" for amount in sum_.cost)
    amounts = min_cost if min_cost == max_cost else f"{min_cost} – {max_cost}"
    return f"{amounts}, and {plural(len(sum_.unpriced), 'price')} missing" if sum_.unpriced else amounts


def policies(plan: PlannedUpdate, verdict: Verdict) -> Section:
    """Shows the results of the policy pack."""
    if not verdict.rules and not verdict.violations:
        return Section("Policies")
    checked = f"{plural(verdict.rules, 'rule')} checked on {plural(verdict.resources, 'resource')}: "
    if not verdict.violations:
        return Section("Policies", [checked + "no violation."])
    counts = f"{verdict.count(True)} mandatory, {verdict.count(False)} advisory."
    known = {**plan.before, **plan.after}

    def row(violation: Violation) -> list[str]:
        resource = known.get(violation.urn)
        message = without_name(violation.message, resource.name) if resource else violation.message
        title = resource.title if resource else violation.urn.rpartition("::")[2]
        level = f"**{MANDATORY}**" if violation.enforcement == MANDATORY else violation.enforcement
        return [level, code(violation.policy), text(title), text(message)]

    def rows(mandatory: bool) -> list[list[str]]:
        those = [row(v) for v in verdict.violations if (v.enforcement == MANDATORY) == mandatory]
        return [[*group[0][:3], group[0][3] + and_alike(group)] for group in groups(plan, those, " | ".join)]

    head = ["enforcement", "policy", "resource", "message"]
    sure, advised = rows(True), rows(False)
    always = [checked + counts, *([table(head, sure)] if sure else [])]
    title = plural(verdict.count(False), "advisory violation")
    rest = [long(title, table(head, advised), len(advised))] if advised else []
    return Section("Policies", always, rest, 1)


def without_name(message: str, name: str) -> str:
    """Removes the name of the resource from a message, because it has its own column."""
    before, separator, after = message.partition(f" {name}: ")
    return after if separator and " " not in before else message


def changed(plan: PlannedUpdate) -> Iterable[Section]:
    """Yields a section per operation, worst first."""
    yield Section("Replaced", [], tables(plan, REPLACE, property_rows), 3)
    yield Section("Deleted", [], tables(plan, DELETE, name_rows), 4)
    yield Section("Changed", [], tables(plan, UPDATE, property_rows), 5)
    yield Section("Created", [], tables(plan, CREATE, name_rows), 6)
    yield Section("Retained", [], tables(plan, LEAVE, name_rows), 7)


Rows = Callable[[Sequence[Change]], tuple[list[str], list[list[str]]]]


def tables(plan: PlannedUpdate, operation: str, rows: Rows) -> list[str]:
    """Returns one table per component with changes of an operation, folded if they are long."""
    changes = plan.of(operation)

    def owner(change: Change) -> str:
        component = plan.component_of(change.resource)
        return f"{component.kind} {component.logical_name}" if component else "In no component"

    found = []
    for title, owned in groupby(sorted(changes, key=lambda change: (owner(change), change.resource.title)), key=owner):
        head, body = rows(list(owned))
        found.append((f"**{text(title)}**", table(head, body)))
    shown = groups(plan, found, "\n".join)
    parts = [f"{group[0][0]}{and_alike(group)}\n\n{group[0][1]}" for group in shown]
    length = sum(part.count("\n") - 3 for part in parts)
    title = f"{plural(len(changes), 'resource')} {MARKS[operation][2]}"
    return [long(title, "\n\n".join(parts), length)] if parts else []


def property_rows(changes: Sequence[Change]) -> tuple[list[str], list[list[str]]]:
    """Returns a row per changed property."""
    rows = []
    for change in changes:
        title = f"{MARKS[change.operation][0]} {text(change.resource.title)}"
        for index, difference in enumerate(change.differences or ()):
            path = code(difference.path) + (" **forces replacement**" if difference.replaces else "")
            rows.append([title if index == 0 else "", path, code(difference.old), code(difference.new)])
        if not change.differences:
            rows.append([title, "because of a dependency", "", ""])
    return ["resource", "property", "old", "new"], rows


def name_rows(changes: Sequence[Change]) -> tuple[list[str], list[list[str]]]:
    """Returns a row per resource that is created or deleted."""
    return ["kind", "name"], [
        [f"{MARKS[change.operation][0]} {text(change.resource.kind)}", code(change.resource.name)] for change in changes
    ]


def drawn(plan: PlannedUpdate) -> Section:
    """Shows the graph, with changes marked."""
    text = f"```mermaid\n{graph.mermaid(graph.of_plan(plan))}\n```"
    return Section("Graph", [], [folded("Components and their dependencies", text)], 8)
