"""`gke-ai capacity --stack STACK`: asks Google how often it preempts Spot nodes, what they cost, and when
Calendar mode can reserve nodes.

It asks for the GPU machines of the stack's pools and compute classes in their zones, and writes the answers to the
calibration file, which the report and the rehearsal read. It changes nothing in Google Cloud. The exit code is 1 if
Google refuses a request for a reason that you can remove.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gke_ai.kube.client import Answer
from gke_ai.ops.doctor.command import Doctor, doctor_for
from gke_ai.ops.doctor.requests import call
from gke_ai.ops.doctor.visit import Call, refusal, switched_off
from gke_ai.ops.facts.advice import Nodes, history_request, needs_of, preemptions, price, window, window_request
from gke_ai.ops.verify.command import named_file, write
from gke_ai.settings.calibration import CalendarWindow, Calibration, SpotHistory, SpotPrice
from gke_ai.terminal import Stop, echo
from gke_ai.workspace.configuration_file import CALIBRATION
from gke_ai.workspace.stack import ROOT, Stack

COMPUTE = "https://compute.googleapis.com"
Figure = SpotHistory | SpotPrice | CalendarWindow
Read = TypeVar("Read")


class Refused(Exception):
    """Google refuses a request. Without a remedy, Google does not serve what is asked for.

    `alone` is whether other requests may succeed.
    """

    def __init__(self, reason: str, remedy: str, alone: bool) -> None:
        super().__init__(f"{reason.removesuffix('.')}. {remedy}".rstrip())
        self.remedy = remedy
        self.alone = alone


def show(stack: Stack, output: Path | None, address: str = COMPUTE, call: Call = call) -> int:
    """Asks Google, prints the answers, and writes the calibration file. Returns the exit code."""
    doctor = doctor_for(stack.name, stack.file, call)
    for missing in doctor.credentials():
        raise Stop(f"{missing.subject}: {missing.text}. Run: {missing.command}")
    named = named_file(stack)
    file = output or named or ROOT / "calibration" / f"{stack.name}.yaml"
    code = ask(Api(doctor, address), file)
    if named is None and output is None and file.exists():
        command = f"pulumi config set --stack {stack.name} {CALIBRATION} {file.relative_to(ROOT)}"
        print(f"→ commit it, and use it:  {command}")
    return code


@dataclass
class Api:
    """The advice of Compute Engine's API, for the project and the region of a stack."""

    doctor: Doctor
    address: str = COMPUTE
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))

    @property
    def region(self) -> str:
        """The region of the stack's cluster."""
        return self.doctor.resolved.cluster.region

    def history(self, machine_type: str, zone: str) -> SpotHistory | None:
        """Asks for the preemption rates of a Spot machine type in a zone; None if Google has none."""
        body = history_request(machine_type, "PREEMPTION", zone)
        return self._ask("capacityHistory", body, lambda answer: preemptions(answer, machine_type, zone, self.now))

    def price(self, machine_type: str) -> SpotPrice | None:
        """Asks for the price of a Spot machine type in the region; None if Google has none."""
        body = history_request(machine_type, "PRICE")
        return self._ask("capacityHistory", body, lambda answer: price(answer, machine_type, self.region, self.now))

    def window(self, nodes: Nodes) -> CalendarWindow:
        """Asks when Calendar mode can reserve nodes."""
        body = window_request(nodes, self.region, self.now)
        return self._ask("calendarMode", body, lambda answer: window(answer, nodes, self.region, self.now))

    def _ask(self, method: str, body: Mapping[str, Any], read: Callable[[Any], Read]) -> Read:
        """Sends a request and reads its answer. Raises Refused with a reason in plain words."""
        project, host = self.doctor.project, self.address.partition("://")[2]
        url = f"{self.address}/compute/v1/projects/{project}/regions/{self.region}/advice/{method}"
        # Requests of a user need a quota project: https://cloud.google.com/docs/quotas/quota-project
        payer = project if self.doctor.member.startswith("user:") else ""
        answer = self.doctor.call(f"POST {url}", body, self.doctor.credential, payer)
        if answer.code != 200:
            raise Refused(refusal(answer, host), remedy(answer, method, project), answer.code in (400, 404))
        try:
            return read(answer.body)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            reason = f"the answer of {host} does not have the form of its reference"
            raise Refused(reason, "Report it with the version of this project.", False) from None


def remedy(answer: Answer, method: str, project: str) -> str:
    """Says what removes the reason of a refusal; an empty text if Google does not serve what is asked for."""
    if switched_off(answer):
        return f"Enable it: gcloud services enable compute.googleapis.com --project {project}"
    # https://cloud.google.com/iam/docs/roles-permissions/compute#compute.viewer
    role = ", which roles/compute.viewer has" if method == "capacityHistory" else ""
    remedies = {
        400: "",
        401: "Log in again: gcloud auth application-default login",
        403: f"Ask for the permission compute.advice.{method} in {project}{role}.",
        404: "Check gcp:project, the location of the cluster and its zones: gke-ai doctor",
        429: "Google limits the number of requests. Run the command again in a minute.",
    }
    return remedies.get(answer.code, "Run the command again later, where Google can be reached.")


@dataclass
class Requests:
    """Answers to the requests to one method. After a refusal that concerns every request, nothing more is asked."""

    figures: list[Figure] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    failed: bool = False
    stopped: bool = False

    def ask(self, subject: str, request: Callable[[], Figure | None]) -> None:
        """Asks for a figure, unless an earlier refusal stopped the requests."""
        if self.stopped:
            self.lines.append(f"{subject}: not asked.")
            return
        try:
            figure = request()
        except Refused as refused:
            self.failed |= bool(refused.remedy)
            self.stopped = not refused.alone
            self.lines.append(f"{subject}: {refused}")
            return
        if figure is None:
            self.lines.append(f"{subject}: Google has no figure.")
        else:
            self.figures.append(figure)


def ask(api: Api, file: Path) -> int:
    """Asks for everything that the stack wants, prints the answers and writes them. Returns the exit code."""
    needs = needs_of(api.doctor.resolved)
    history, calendar = Requests(), Requests()
    for machine_type, zones in needs.spot.items():
        for zone in zones:
            history.ask(f"Spot {machine_type} in {zone}", partial(api.history, machine_type, zone))
        history.ask(f"Price of Spot {machine_type}", partial(api.price, machine_type))
    for nodes in needs.nodes:
        calendar.ask(f"{nodes.count} {nodes.machine_type} in Calendar mode", partial(api.window, nodes))
    figures = [*history.figures, *calendar.figures]
    for line in (*figures, *needs.left_out, *history.lines, *calendar.lines):
        echo(str(line))
    if not needs.spot:
        print("The stack names no GPU machine type of which Google publishes figures, so nothing is asked.")
    answers = Calibration(
        spot=[figure for figure in figures if isinstance(figure, SpotHistory)],
        spot_prices=[figure for figure in figures if isinstance(figure, SpotPrice)],
        windows=[figure for figure in figures if isinstance(figure, CalendarWindow)],
    )
    print(write(file, answers))
    return int(history.failed or calendar.failed)
