"""What was measured on a stack's own cluster: the calibration file, written by `python -m ops.verify`.

The setting `gke-ai:calibration` names it. Where it has a figure, the program plans with that one instead of the
computed one: `room` is what the rules of size and derived quotas start from, `duration` what estimates start from.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from catalog.machines import ATTACHABLE, MACHINES
from catalog.nodes import NodeShape, allocatable, free
from catalog.quantities import GI, format_quantity, parse_quantity

# What GKE and its DaemonSets take a share of.
MEASURED = ("cpu", "memory", "ephemeral-storage")
Step = Literal["clusterReady", "poolReady", "nodeReady", "admission", "imagePull", "containerStart", "modelLoad"]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
Amounts = dict[Literal["cpu", "memory", "ephemeral-storage"], Text]
HEADING = "# Measured by python -m ops.verify; gke-ai:calibration names this file. Commit it with the stack.\n"


class BadCalibration(Exception):
    """A calibration file can't be used; `mistakes` has where, what is wrong, and the remedy of each."""

    def __init__(self, mistakes: list[tuple[str, str, str]]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes


class Figures(BaseModel):
    """Base of the file's entries: camelCase keys, unknown keys refused, and where and when they were measured."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class NodeFigures(Figures):
    """One kind of node: the least that was allocatable on one, and the most that DaemonSets requested on one.

    Without `disk_size_gb` the boot disk was GKE's choice, and nothing is said about ephemeral storage.
    """

    machine_type: str
    gpu: str | None = None
    gpus: int = Field(default=0, ge=0)
    disk_size_gb: int | None = Field(default=None, ge=1)
    allocatable: Amounts
    daemon_sets: Amounts = {}
    nodes: int = Field(ge=1)
    measured_on: datetime.date
    gke_version: Text

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What tells one kind of node from another."""
        return self.machine_type, self.gpu or "", self.gpus, self.disk_size_gb or 0


class Duration(Figures):
    """How long a step took: `seconds` is the median of `count` observations, `max_seconds` the longest."""

    step: Step
    of: str
    seconds: int = Field(ge=0)
    max_seconds: int = Field(ge=0)
    count: int = Field(ge=1)
    measured_on: datetime.date
    gke_version: Text

    @property
    def key(self) -> tuple[str, str]:
        """What was measured, and of what."""
        return self.step, self.of


class Calibration(Figures):
    """All that was measured on one stack's cluster; empty where no file is named."""

    nodes: list[NodeFigures] = []
    durations: list[Duration] = []

    def allocatable(self, shape: NodeShape) -> dict[str, str]:
        """What pods can get of such a node, DaemonSets included: as measured, else as computed."""
        return allocatable(shape) | {
            resource: text for figures, resource in self._of(shape) if (text := figures.allocatable.get(resource))
        }

    def room(self, shape: NodeShape) -> dict[str, str]:
        """What the stack's own pods can get of such a node: allocatable less the requests of DaemonSets, as measured,
        else as computed."""
        room = free(shape)
        for figures, resource in self._of(shape):
            if resource in figures.allocatable:
                taken = parse_quantity(figures.daemon_sets.get(resource, "0"))
                room[resource] = format_quantity(resource, parse_quantity(figures.allocatable[resource]) - taken)
        return room

    def duration(self, step: Step, of: str) -> Duration | None:
        """How long a step took, where it was measured."""
        return next((duration for duration in self.durations if duration.key == (step, of)), None)

    def merged(self, newer: Calibration) -> Calibration:
        """With the figures of a later run in place of earlier ones of the same thing; what it did not see stays."""
        return Calibration(nodes=_newest(self.nodes, newer.nodes), durations=_newest(self.durations, newer.durations))

    def written(self) -> str:
        """The file's text, always in the same order."""
        data = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return HEADING + yaml.safe_dump(data, sort_keys=False, width=120)

    def _of(self, shape: NodeShape) -> Iterator[tuple[NodeFigures, Literal["cpu", "memory", "ephemeral-storage"]]]:
        """The figures that hold for a node, by resource: of ephemeral storage only those of a disk of its size."""
        same = [
            figures
            for figures in self.nodes
            if (figures.machine_type, figures.gpu, figures.gpus) == (shape.machine_type, shape.gpu, shape.gpus)
        ]
        exact = [figures for figures in same if figures.disk_size_gb == shape.disk_gb]
        for figures in (exact or same)[:1]:
            yield figures, "cpu"
            yield figures, "memory"
        for figures in exact:
            yield figures, "ephemeral-storage"


_Entry = TypeVar("_Entry", NodeFigures, Duration)


def _newest(earlier: list[_Entry], later: list[_Entry]) -> list[_Entry]:
    entries = {entry.key: entry for entry in earlier}
    for entry in later:
        before = entries.get(entry.key)
        same_day = before.model_copy(update={"measured_on": entry.measured_on}) if before else None
        if entry != same_day:  # the same figures again leave the file as it is
            entries[entry.key] = entry
    return [entries[key] for key in sorted(entries)]


def read(file: Path) -> Calibration:
    """The calibration in a file. Raises BadCalibration with everything that is wrong with it."""
    measure = "Run python -m ops.verify to measure again, or leave gke-ai:calibration out"
    try:
        content = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise BadCalibration([("", f"there is no file {file} — nothing would be planned with it", measure)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCalibration([("", f"{file} cannot be read ({type(error).__name__})", measure)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise BadCalibration([("", f"{file} is no YAML{where}", measure)]) from None
    try:
        calibration = Calibration.model_validate(content or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        raise BadCalibration([_form(details, file, measure) for details in error.errors()]) from None
    mistakes = [
        (f"nodes[{index}].{key}", f"{cause} in {file} — plans would rest on it", remedy)
        for index, figures in enumerate(calibration.nodes)
        for key, cause, remedy in _mistakes(figures, measure)
    ]
    for section in ("nodes", "durations"):
        keys = [entry.key for entry in getattr(calibration, section)]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                cause = f"{' '.join(str(part) for part in key if part)} is there twice in {file} — one would be ignored"
                mistakes.append((f"{section}[{index}]", cause, "Leave the older one out"))
    if mistakes:
        raise BadCalibration(mistakes)
    return calibration


def _form(details: Any, file: Path, measure: str) -> tuple[str, str, str]:
    where = ""
    for step in details["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f"{'.' if where else ''}{step}"
    return where, f"{details['msg'][:1].lower()}{details['msg'][1:]} in {file}", measure


def _mistakes(figures: NodeFigures, measure: str) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the figures of a kind of node: a machine that there is not, amounts that no node has."""
    machine = MACHINES.get(figures.machine_type)
    if machine is None:
        yield "machineType", f"{figures.machine_type} is no machine type of the catalog", "Leave the entry out"
        return
    attached = figures.gpus in ATTACHABLE.get(machine.name, {}).get(figures.gpu or "", ())
    if (figures.gpu, figures.gpus) != (machine.gpu, machine.gpus) and not attached:
        yield "gpus", f"{machine.name} has no {figures.gpus} of {figures.gpu or 'GPUs'}", "Leave the entry out"
    # Ephemeral storage may be on Local SSDs, so it has no bound here.
    has = {"cpu": Fraction(machine.vcpus), "memory": Fraction(machine.memory_gb) * GI}
    for key, amounts in (("allocatable", figures.allocatable), ("daemonSets", figures.daemon_sets)):
        for resource, text in amounts.items():
            try:
                amount = parse_quantity(text)
            except ValueError as error:
                yield f"{key}.{resource}", str(error), measure
                continue
            if amount < 0:
                yield f"{key}.{resource}", f"{text} is below zero", measure
            elif resource in has and amount > has[resource]:
                most = format_quantity(resource, has[resource])
                yield f"{key}.{resource}", f"{text} is more than the {most} that a {machine.name} has", measure
