"""The emulators of the cluster tests."""

from __future__ import annotations

from tests.cluster.conftest import emulator as emulator
from tests.cluster.conftest import emulator_with as emulator_with
