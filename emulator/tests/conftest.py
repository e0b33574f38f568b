"""Settings of the emulator's tests, and a cloud for those of the gcp plugin."""

from pathlib import Path

import pytest

from emulator.tests.gcp_engine import CLUSTER, STANDARD, Engine
from emulator.tests.harness import restore_interrupts


def pytest_configure() -> None:
    """Restores what a shell's background job lacks."""
    restore_interrupts()


@pytest.fixture
def cloud(tmp_path: Path) -> Engine:
    return Engine(tmp_path / "cloud")


@pytest.fixture
def standard(cloud: Engine) -> Engine:
    """A cloud with a Standard cluster."""
    cloud.create(CLUSTER, STANDARD)
    return cloud
