"""Waits end when their condition is true, and at their timeout."""

from __future__ import annotations

import pytest

from emulator.machine.polling import poll_until


def test_a_wait_ends_once_its_condition_is_true() -> None:
    results = iter([0, "", "ready"])
    assert poll_until(lambda: next(results), timeout=60, pause=0)
    assert list(results) == []


def test_a_wait_that_times_out_has_evaluated_its_condition() -> None:
    evaluated: list[int] = []
    assert not poll_until(lambda: evaluated.append(1), timeout=-1, pause=0)
    assert evaluated == [1]


def test_an_error_of_the_condition_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: 1 / 0, timeout=60)
