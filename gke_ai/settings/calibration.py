"""The calibration file: measurements of a stack's own cluster, and what Google measured of its machines.

The setting `gke-ai:calibration` names the file. `gke-ai verify` measures the cluster, and a measured
figure replaces the computed one: rules of size and derived quotas use `room`; estimates use `duration`.
`gke-ai capacity` asks Google for `spot`, `spot_prices` and `windows`, which the report and the rehearsal show.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gke_ai.catalog.documents import InvalidDocument, Reader, read_file
from gke_ai.catalog.machines.types import ATTACHABLE, MACHINES
from gke_ai.catalog.nodes.shape import NodeShape, allocatable, free
from gke_ai.catalog.quantities import GI, format_quantity, parse_quantity

# Resources of which GKE and its DaemonSets reserve a part.
Measured = Literal["cpu", "memory", "ephemeral-storage"]
MEASURED: tuple[Measured, ...] = ("cpu", "memory", "ephemeral-storage")
Step = Literal["clusterReady", "poolReady", "nodeReady", "admission", "imagePull", "containerStart", "modelLoad"]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
Amounts = dict[Measured, Text]
Name = Annotated[str, Field(pattern="^[a-z0-9-]{1,63}$")]  # of a machine type, a zone or a region
Rate = Annotated[float, Field(ge=0, le=1)]
Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
# Capacity modes whose nodes Calendar mode can reserve instead.
RESERVABLE = ("reservation", "flexStart", "queuedFlexStart")
HEADING = "# Written by gke-ai verify and gke-ai capacity; gke-ai:calibration names this file. Commit it.\n"


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


class SpotHistory(Figures):
    """Google's preemption rates of a machine type in a zone: Spot VMs preempted on a day, by all that stopped then.

    `rate` is the mean of `days` complete days, the last of which ends on `until`; `max_rate` is the worst day.
    """

    machine_type: Name
    zone: Name
    rate: Rate
    max_rate: Rate
    days: int = Field(ge=1)
    until: datetime.date
    asked_on: datetime.date

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the machine type and the zone."""
        return self.machine_type, self.zone

    def __str__(self) -> str:
        return (
            f"Spot {self.machine_type} in {self.zone}: Google preempted {self.rate:.0%} of the VMs that stopped, and "
            f"{self.max_rate:.0%} on the worst of the {self.days} days until {self.until} (Google's capacity history)."
        )


class SpotPrice(Figures):
    """Google's list price of a Spot VM per hour since a day, with its lowest and highest price in the last year."""

    machine_type: Name
    region: Name
    currency: str = Field(pattern="^[A-Z]{3}$")
    per_hour: Price
    since: datetime.date
    lowest: Price
    highest: Price
    asked_on: datetime.date

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the machine type and the region."""
        return self.machine_type, self.region

    def __str__(self) -> str:
        return (
            f"Spot {self.machine_type} in {self.region}: {self.per_hour} {self.currency} per hour since {self.since}, "
            f"{self.lowest} to {self.highest} within a year (Google's list price on {self.asked_on})."
        )


class CalendarWindow(Figures):
    """When Calendar mode can reserve a number of nodes at the earliest; without a start, not in `days` days."""

    machine_type: Name
    region: Name
    nodes: int = Field(ge=1)
    days: int = Field(ge=1)
    zone: Name | None = None
    start: datetime.date | None = None
    end: datetime.date | None = None
    asked_on: datetime.date

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the nodes."""
        return self.machine_type, self.region, self.nodes

    def __str__(self) -> str:
        nodes = f"{self.nodes} {self.machine_type}"
        if self.start is None:
            answer = f"cannot reserve {nodes} in {self.region} within {self.days} days"
        else:
            answer = f"can reserve {nodes} in {self.zone} from {self.start} to {self.end}"
        return f"Calendar mode {answer} (Google's answer on {self.asked_on})."


class Calibration(Figures):
    """All figures that a calibration file has; empty without one."""

    nodes: list[NodeFigures] = []
    durations: list[Duration] = []
    spot: list[SpotHistory] = []
    spot_prices: list[SpotPrice] = []
    windows: list[CalendarWindow] = []

    def allocatable(self, shape: NodeShape) -> dict[str, Fraction]:
        """Allocatable resources of such a node, for all pods and DaemonSets: measured, else computed."""
        return allocatable(shape) | {
            resource: parse_quantity(text)
            for figures, resource in self._of(shape)
            if (text := figures.allocatable.get(resource))
        }

    def room(self, shape: NodeShape) -> dict[str, Fraction]:
        """Free resources of such a node: allocatable minus the requests of DaemonSets; measured, else computed."""
        room = free(shape)
        for figures, resource in self._of(shape):
            if resource in figures.allocatable:
                taken = parse_quantity(figures.daemon_sets.get(resource, "0"))
                room[resource] = parse_quantity(figures.allocatable[resource]) - taken
        return room

    def duration(self, step: Step, of: str) -> Duration | None:
        """The measured duration of a step, if any."""
        return next((duration for duration in self.durations if duration.key == (step, of)), None)

    def remarks(self, machine_type: str, mode: str) -> list[str]:
        """What Google said of a machine type in a capacity mode. Calendar mode reserves what flex-start may lack."""
        entries: list[SpotHistory | SpotPrice | CalendarWindow] = []
        entries += [*self.spot, *self.spot_prices] if mode == "spot" else []
        entries += self.windows if mode in RESERVABLE else []
        return [str(entry) for entry in entries if entry.machine_type == machine_type]

    def merged(self, newer: Calibration) -> Calibration:
        """Merges in a later measurement. Its figures replace older ones; all others stay."""
        return Calibration(**{name: _newest(entries, getattr(newer, name)) for name, entries in self})

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


_Entry = TypeVar("_Entry", NodeFigures, Duration, SpotHistory, SpotPrice, CalendarWindow)


def _newest(earlier: list[_Entry], later: list[_Entry]) -> list[_Entry]:
    entries = {entry.key: entry for entry in earlier}
    for entry in later:
        before = entries.get(entry.key)
        same_day = {name: value for name, value in entry if name == "measured_on"}
        if before is None or entry != before.model_copy(update=same_day):  # unchanged figures do not change the file
            entries[entry.key] = entry
    return [entries[key] for key in sorted(entries)]


def read(file: Path) -> Calibration:
    """Reads a calibration file. Raises BadCalibration with all mistakes."""
    measure = "Run gke-ai verify to measure again, or remove gke-ai:calibration"
    try:
        if not file.exists():
            raise BadCalibration([("", f"the file {file} does not exist", measure)])
        content = next(iter(read_file(file, Reader.PULUMI)), None)
    except OSError as error:
        raise BadCalibration([("", f"{file} cannot be read ({type(error).__name__})", measure)]) from None
    except InvalidDocument as invalid:
        raise BadCalibration([("", f"{file} {str(invalid).rstrip('.')}", measure)]) from None
    try:
        calibration = Calibration.model_validate(content or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        raise BadCalibration([_form(details, file, measure) for details in error.errors()]) from None
    mistakes = [
        (f"nodes[{index}].{key}", f"{cause} in {file}. Plans would use this figure", remedy)
        for index, figures in enumerate(calibration.nodes)
        for key, cause, remedy in _mistakes(figures, measure)
    ]
    for section in Calibration.model_fields:
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
    from_google = details["loc"][:1] in (("spot",), ("spotPrices",), ("windows",))
    remedy = "Remove the entry, and run gke-ai capacity to ask again" if from_google else measure
    return where, f"{details['msg'][:1].lower()}{details['msg'][1:]} in {file}", remedy


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
