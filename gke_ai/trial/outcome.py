"""The file of a trial: only the fields that are listed here, none of which is a secret, a project or an address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gke_ai.trial.budget import Limit, shown

DONE, FAILED, OUT_OF_BUDGET, INTERRUPTED = "done", "failed", "out of budget", "interrupted"
# Reasons of Google Cloud and Kubernetes that a message may have. Nothing else of a message is in the file.
# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation, https://cloud.google.com/apis/design/errors
REASONS = (
    *("ALREADY_EXISTS", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "GCE_STOCKOUT", "INVALID_ARGUMENT", "NOT_FOUND"),
    *("PERMISSION_DENIED", "QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE"),
    *("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
    *("BackOff", "CrashLoopBackOff", "ErrImagePull", "FailedScheduling", "ImagePullBackOff", "OOMKilled"),
)
_REASON = re.compile(rf"\b({'|'.join(REASONS)})\b")


@dataclass(frozen=True)
class Step:
    """One step: how it ended, how long it took, and the reasons in its messages."""

    name: str
    result: str
    seconds: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """How many claims of a kind have a result."""

    name: str
    result: str
    count: int


@dataclass(frozen=True)
class Measured:
    """A measured duration in seconds."""

    step: str
    median: int
    longest: int
    count: int


class Answers(NamedTuple):
    """The answers of one server to its burst of requests; times in seconds."""

    server: str
    engine: str
    requests: int
    failed: int
    median: str
    longest: str


@dataclass(frozen=True)
class Outcome:
    """Everything that the file says.

    Attributes:
        system: The name of the configuration.
        place: Google Cloud or the emulator.
        project: The project, only if the user allows it.
        versions: Versions by program.
        limit: The limits.
        steps: The steps.
        claims: Results of `verify`.
        durations: Durations that `verify` measured.
        servers: Results of `smoke`.
        deleted: Whether everything is deleted.
    """

    system: str
    place: str
    project: str
    versions: tuple[tuple[str, str], ...]
    limit: Limit
    steps: tuple[Step, ...]
    claims: tuple[Claim, ...] = ()
    durations: tuple[Measured, ...] = ()
    servers: tuple[Answers, ...] = ()
    deleted: bool = False

    @property
    def seconds(self) -> float:
        """Time from the first step to the end of the last one."""
        return sum(step.seconds for step in self.steps)

    @property
    def result(self) -> str:
        """How the trial ended: done, or as the first step that was not."""
        return next((step.result for step in self.steps if step.result != DONE), DONE)

    def written(self) -> str:
        """The file, as Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Trial of {self.system} on {self.place}\n"
        yield f"- Result: {self.result}. {'Everything is deleted.' if self.deleted else 'NOT everything is deleted.'}"
        yield f"- Time: {shown(self.seconds)} of {shown(self.limit.seconds)}"
        limits = self.limit
        yield (
            f"- Cost: at most {limits.cost(self.seconds)} of {limits.budget} {limits.currency}, computed from "
            f"{limits.hourly} {limits.currency} per hour for all machines at their maximum"
        )
        yield "- Not in the cost: disks, networks, the cluster fee, and pods without accelerators on Autopilot"
        if self.project:
            yield f"- Project: {self.project}"
        yield from table("Versions", ("program", "version"), self.versions)
        steps = ((step.name, step.result, shown(step.seconds), ", ".join(step.reasons)) for step in self.steps)
        yield from table("Steps", ("step", "result", "time", "reasons"), steps)
        claims = ((claim.name, claim.result, claim.count) for claim in self.claims)
        yield from table("Verify", ("claim", "result", "count"), claims)
        durations = ((item.step, f"{item.median} s", f"{item.longest} s", item.count) for item in self.durations)
        yield from table("Durations", ("step", "median", "longest", "observed"), durations)
        yield from table("Smoke", Answers._fields, self.servers)


def table(title: str, columns: tuple[str, ...], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yields a titled table of Markdown; nothing without rows."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    if lines:
        yield f"\n## {title}\n"
        yield f"| {' | '.join(columns)} |"
        yield f"|{' --- |' * len(columns)}"
        yield from lines


def reasons(text: str) -> tuple[str, ...]:
    """The known reasons in a message, each once."""
    return tuple(dict.fromkeys(_REASON.findall(text)))
