"""Settings of the emulator's tests."""

from __future__ import annotations

from emulator.tests.harness import restore_interrupts


def pytest_configure() -> None:
    """Restores what a shell's background job lacks."""
    restore_interrupts()
