"""The calibration file: measurements of a stack's own cluster, written by `python -m ops.verify`.

The setting `gke-ai:calibration` names the file. A measured figure replaces the computed one. Rules of size and derived
quotas use `room`; estimates use `duration`.
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

# Resources of which GKE and its DaemonSets reserve a part.
Measured = Literal["cpu", "memory", "ephemeral-storage"]
MEASURED: tuple[Measured, ...] = ("cpu", "memory", "ephemeral-storage")
Step = Literal["clusterReady", "poolReady", "nodeReady", "admission", "imagePull", "containerStart", "modelLoad"]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
Amounts = dict[Measured, Text]
MAX_BYTES = 2**20
HEADING = "# Measured by python -m ops.verify; gke-ai:calibration names this file. Commit it with the stack.\n"


class BadCalibration(Exception):
    """A calibration file is invalid. `mistakes` has the path, cause and remedy of each mistake."""

    def __init__(self, mistakes: list[tuple[str, str, str]]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes


class Figures(BaseModel):
    """Base of the file's entries: camelCase keys, no unknown keys, immutable once read."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, defer_build=True
    )


class NodeFigures(Figures):
    """Figures of one type of node: minimum allocatable resources and maximum requests of DaemonSets.

    Without `disk_size_gb` GKE chose the boot disk, and the figures do not include ephemeral storage.
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
        """Identifies the type of node."""
        return self.machine_type, self.gpu or "", self.gpus, self.disk_size_gb or 0


class Duration(Figures):
    """Duration of a step: `seconds` is the median of `count` observations, `max_seconds` the maximum."""

    step: Step
    of: str
    seconds: int = Field(ge=0)
    max_seconds: int = Field(ge=0)
    count: int = Field(ge=1)
    measured_on: datetime.date
    gke_version: Text

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the step and its object."""
        return self.step, self.of


class Calibration(Figures):
    """All measurements of a stack's cluster; empty without a calibration file."""

    nodes: list[NodeFigures] = []
    durations: list[Duration] = []

    def allocatable(self, shape: NodeShape) -> dict[str, str]:
        """Allocatable resources of such a node, for all pods and DaemonSets: measured, else computed."""
        return allocatable(shape) | {
            resource: text for figures, resource in self._of(shape) if (text := figures.allocatable.get(resource))
        }

    def room(self, shape: NodeShape) -> dict[str, str]:
        """Free resources of such a node: allocatable minus the requests of DaemonSets; measured, else computed."""
        room = free(shape)
        for figures, resource in self._of(shape):
            if resource in figures.allocatable:
                taken = parse_quantity(figures.daemon_sets.get(resource, "0"))
                room[resource] = format_quantity(resource, parse_quantity(figures.allocatable[resource]) - taken)
        return room

    def duration(self, step: Step, of: str) -> Duration | None:
        """The measured duration of a step, if any."""
        return next((duration for duration in self.durations if duration.key == (step, of)), None)

    def merged(self, newer: Calibration) -> Calibration:
        """Merges in a later measurement. Its figures replace older ones; all others stay."""
        return Calibration(nodes=_newest(self.nodes, newer.nodes), durations=_newest(self.durations, newer.durations))

    def written(self) -> str:
        """The text of the file, in a stable order."""
        data = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return HEADING + yaml.safe_dump(data, sort_keys=False, width=120)

    def _of(self, shape: NodeShape) -> Iterator[tuple[NodeFigures, Measured]]:
        """The figures that apply to a node, by resource. Ephemeral storage needs a disk of the same size."""
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
        if entry != same_day:  # unchanged figures do not change the file
            entries[entry.key] = entry
    return [entries[key] for key in sorted(entries)]


def read(file: Path) -> Calibration:
    """Reads a calibration file. Raises BadCalibration with all mistakes."""
    measure = "Run python -m ops.verify to measure again, or remove gke-ai:calibration"
    try:
        if file.exists() and not (file.is_file() and file.stat().st_size <= MAX_BYTES):  # a device has no end
            raise BadCalibration([("", f"{file} is not a file of at most {MAX_BYTES >> 20} MiB", measure)])
        content = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise BadCalibration([("", f"the file {file} does not exist", measure)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCalibration([("", f"{file} cannot be read ({type(error).__name__})", measure)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise BadCalibration([("", f"{file} is not valid YAML{where}", measure)]) from None
    try:
        calibration = Calibration.model_validate(content or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        raise BadCalibration([_form(details, file, measure) for details in error.errors()]) from None
    mistakes = [
        (f"nodes[{index}].{key}", f"{cause} in {file}. Plans would use this figure", remedy)
        for index, figures in enumerate(calibration.nodes)
        for key, cause, remedy in _mistakes(figures, measure)
    ]
    for section in ("nodes", "durations"):
        keys = [entry.key for entry in getattr(calibration, section)]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                name = " ".join(str(part) for part in key if part)
                cause = f"{name} is listed twice in {file}. One entry would be ignored"
                mistakes.append((f"{section}[{index}]", cause, "Remove the older entry"))
    if mistakes:
        raise BadCalibration(mistakes)
    return calibration


def _form(details: Any, file: Path, measure: str) -> tuple[str, str, str]:
    where = ""
    for step in details["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f"{'.' if where else ''}{step}"
    return where, f"{details['msg'][:1].lower()}{details['msg'][1:]} in {file}", measure


def _mistakes(figures: NodeFigures, measure: str) -> Iterator[tuple[str, str, str]]:
    """Mistakes in the figures of a type of node: unknown machine types and impossible amounts."""
    machine = MACHINES.get(figures.machine_type)
    if machine is None:
        yield "machineType", f"{figures.machine_type} is not a machine type of the catalog", "Remove the entry"
        return
    attached = figures.gpus in ATTACHABLE.get(machine.name, {}).get(figures.gpu or "", ())
    if (figures.gpu, figures.gpus) != (machine.gpu, machine.gpus) and not attached:
        yield "gpus", f"{machine.name} does not have {figures.gpus} {figures.gpu or 'GPUs'}", "Remove the entry"
    # Ephemeral storage may be on Local SSDs, so it is not limited here.
    maximum = {"cpu": Fraction(machine.vcpus), "memory": Fraction(machine.memory_gb) * GI}
    for key, amounts in (("allocatable", figures.allocatable), ("daemonSets", figures.daemon_sets)):
        for resource, text in amounts.items():
            try:
                amount = parse_quantity(text)
            except ValueError as error:
                yield f"{key}.{resource}", str(error), measure
                continue
            if amount < 0:
                yield f"{key}.{resource}", f"{text} is below zero", measure
            elif resource in maximum and amount > maximum[resource]:
                total = format_quantity(resource, maximum[resource])
                yield f"{key}.{resource}", f"{text} is more than the {total} of a {machine.name}", measure
