"""`gke-ai prices --stack STACK`: reads Google's public price catalog for the machines of a stack.

It writes a price table with today's list prices of the machines with accelerators, in their capacity modes and region.
What the catalog does not say in a known form is named and left out. The command changes nothing in Google Cloud, and
has never run against it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.ops.doctor.command import Doctor, doctor_for
from gke_ai.ops.doctor.requests import call
from gke_ai.ops.doctor.visit import Call, refusal, switched_off
from gke_ai.ops.facts.price_catalog import Rates, parts
from gke_ai.settings import ResolvedStack
from gke_ai.terminal import Stop, echo
from gke_ai.workspace.configuration_file import PRICES
from gke_ai.workspace.stack import ROOT, Stack

BILLING = "https://cloudbilling.googleapis.com"
# Compute Engine, which has the SKUs of TPUs of GKE, too: the example of `parent` in the API's discovery document.
SERVICE = "services/6F81-5844-456A"
# The catalog has some 40,000 SKUs of Compute Engine, 5,000 on a page.
MAX_PAGES = 100
HEADING = "# Written by gke-ai prices: Google's list prices. A later run replaces the file.\n"


def show(stack: Stack, output: Path | None, address: str = BILLING, call: Call = call) -> int:
    """Asks for the prices and writes the table. Returns the exit code: 1 if no machine has a price."""
    file = output or ROOT / "prices" / f"{stack.name}.yaml"
    if file.exists() and not file.read_text(errors="replace").startswith(HEADING):
        raise Stop(f"{file} was not written by gke-ai prices, so its prices would be lost. Name another file: --output")
    doctor = doctor_for(stack.name, stack.file, call)
    region, wanted = doctor.resolved.cluster.region, sorted(set(machines_of(doctor.resolved)))
    if not wanted:
        echo("The stack names no machine type with accelerators, so nothing is asked. On Autopilot, GKE chooses them.")
        return 0
    for missing in doctor.credentials():
        raise Stop(f"{missing.subject}: {missing.text}. Run: {missing.command}")
    rates = Rates(frozenset(part for machine in wanted for part in parts(*machine)), region, "USD")
    for skus in pages(doctor, address):
        try:
            rates.read(skus)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise Stop(malformed(address)) from None
    per_hour = {}
    for machine, mode in wanted:
        price, reason = rates.of(machine, mode)
        if price is None:
            echo(f"no price for {machine}/{mode} in {region}: {reason}.")
        else:
            per_hour[f"{machine}/{mode}"] = price
            echo(f"{machine}/{mode} in {region}: {price.normalize():f} {rates.currency} per hour.")
    if not per_hour:
        echo("No price was found, so no table was written.")
        return 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(written(per_hour, rates))
    echo(f"{file}: {len(per_hour)} list prices.")
    if file.is_relative_to(ROOT):
        command = f"pulumi config set --stack {stack.name} {PRICES} {file.relative_to(ROOT)}"
        echo(f"→ commit it, and use it:  {command}")
    return 0


def machines_of(stack: ResolvedStack) -> Iterator[tuple[str, str]]:
    """Yields the machine types with accelerators, and their capacity modes, of pools and compute classes."""
    named = [(pool.section.node_machine_type, pool.section.capacity.mode) for pool in stack.node_pools]
    for compute_class in stack.settings.compute_classes:
        named += [(priority.machine_type, priority.capacity.mode) for priority in compute_class.priorities]
    yield from ((name, mode) for name, mode in named if (own := MACHINES.get(name)) and (own.gpu or own.tpu))


def pages(doctor: Doctor, address: str) -> Iterator[list[Any]]:
    """Yields the SKUs of Compute Engine, page by page. Stops with the remedy if Google refuses or does not answer."""
    payer = doctor.project if doctor.member.startswith("user:") else ""
    token, seen = "", set[str]()
    for _ in range(MAX_PAGES):
        url = f"{address}/v1/{SERVICE}/skus?currencyCode=USD&pageSize=5000&pageToken={quote(token, safe='')}"
        answer = doctor.call(f"GET {url}", None, doctor.credential, payer)
        if answer.code != 200:
            remedy = "Run the command again where Google can be reached, or write the table by hand: docs/report.md"
            if switched_off(answer):
                remedy = f"Enable it: gcloud services enable cloudbilling.googleapis.com --project {doctor.project}"
            elif answer.code in (401, 403):
                remedy = "Log in again: gcloud auth application-default login"
            reason = refusal(answer, address.partition("://")[2]).removesuffix(".")
            raise Stop(f"Google's price catalog cannot be read: {reason}. {remedy}")
        body = answer.body if isinstance(answer.body, dict) else {"skus": None}
        skus, following = body.get("skus", []), body.get("nextPageToken", "")
        if not isinstance(skus, list) or not isinstance(following, str) or following in seen:
            raise Stop(malformed(address))
        yield skus
        token = following
        if not token:
            return
        seen.add(token)
    raise Stop(malformed(address))


def malformed(address: str) -> str:
    """Says that an answer is not that of the reference."""
    host = address.partition("://")[2]
    return f"The answer of {host} does not have the form of its reference. Report it with the version of this project."


def written(per_hour: dict[str, Decimal], rates: Rates) -> str:
    """Returns the text of the price table."""
    table = {
        "currency": rates.currency,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "region": rates.region,
        "perHour": {key: float(price) for key, price in per_hour.items()},
    }
    return HEADING + yaml.safe_dump(table, sort_keys=False)
