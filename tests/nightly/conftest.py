"""A tenant in a cluster with all controllers of runs, for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.emulator import Emulator, deployed
from tests.support.tenants import AUTOPILOT, WITH_OPERATORS, Credential, counted_member


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    """A deployed tenant with all controllers of runs."""
    with deployed(AUTOPILOT, WITH_OPERATORS) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def team_a(shared: Emulator) -> Credential:
    """A member's client."""
    return counted_member(shared)
