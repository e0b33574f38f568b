"""Compares the clock of this machine with that of a cluster, by the dates of its responses."""

from __future__ import annotations

import sys
import time
from email.utils import parsedate_to_datetime

from gke_ai.terminal import echo

SECONDS = 30  # a smaller difference shows in no age
_warned: set[str] = set()


def compare(host: str, date: str | None, began: float) -> None:
    """Warns on stderr, once for each host, if a response is dated outside of the time since `began`."""
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return
    ahead = max(began - there, min(time.time() - there, 0))
    if abs(ahead) > SECONDS and host not in _warned:
        _warned.add(host)
        echo(
            f"The clock of this machine is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the cluster's. "
            "Ages and remaining times are wrong by this. Set the clock of this machine.",
            sys.stderr,
        )
