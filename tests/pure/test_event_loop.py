"""What a test leaves on the event loop is finished, and no later test hears of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import fixtures


def test_tasks_that_a_test_leaves_are_finished_or_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures, "FINISH_SECONDS", 0.1)
    loop, ran = asyncio.new_event_loop(), []

    async def inner() -> None:
        ran.append("inner")

    async def outer() -> None:
        ran.append("outer")
        loop.create_task(inner())

    async def fail() -> None:
        raise ValueError

    tasks = [loop.create_task(work) for work in (outer(), fail(), asyncio.Event().wait())]
    fixtures.finish(loop)
    assert not asyncio.all_tasks(loop)
    assert ran == ["outer", "inner"]
    assert [task.cancelled() for task in tasks] == [False, False, True]
    loop.close()


@pytest.mark.parametrize("_time", ["first", "second"])
def test_loop_is_the_same_after_a_test_that_uses_asyncio_run(_time: str) -> None:
    assert asyncio.get_event_loop() is fixtures.LOOP
    asyncio.run(asyncio.sleep(0))


@pytest.fixture(scope="module")
def loop_of_a_fixture() -> asyncio.AbstractEventLoop:
    """What a fixture of a module sees, which is set up before those of a test."""
    return asyncio.get_event_loop()


def test_a_modules_fixture_has_the_loop_after_asyncio_run(loop_of_a_fixture: asyncio.AbstractEventLoop) -> None:
    assert loop_of_a_fixture is fixtures.LOOP
