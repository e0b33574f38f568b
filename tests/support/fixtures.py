"""What all tests of the program and of the tools of maintainers have: fixtures, marks by folder, one event loop."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from emulator.tests.harness import restore_interrupts
from gke_ai.components.base import Component
from tests.support.emulator import Emulator, fresh
from tests.support.recorder import Record, construct, record

# The event loop of all tests: Pulumi's root resource is bound to the loop in which it was created.
LOOP = asyncio.new_event_loop()
# Its tasks that have not ended. `asyncio.all_tasks` would look at all that records of earlier tests keep, thousands.
UNFINISHED: set[asyncio.Task[Any]] = set()


def remembered(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """A task that is in `UNFINISHED` until it has ended."""
    task = asyncio.Task(work, loop=loop, **options)
    UNFINISHED.add(task)
    task.add_done_callback(UNFINISHED.discard)
    return task


LOOP.set_task_factory(remembered)  # type: ignore[arg-type]

# Folders of tests that need more than Python and the tools of `make check`, with their marks.
MARKS = {"engine": ["engine"], "cluster": ["cluster"], "nightly": ["cluster", "nightly"]}


def pytest_configure() -> None:
    """Restores what a shell's background job lacks. Sets the event loop, which Python 3.14 no longer does itself."""
    restore_interrupts()
    gc.disable()  # until all is loaded
    asyncio.set_event_loop(LOOP)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Sets the event loop again, before the first fixture of a test: `asyncio.run` takes it away from the thread."""
    asyncio.set_event_loop(LOOP)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in MARKS.get(item.path.parent.name, ()):
            item.add_marker(name)


def pytest_collection_finish() -> None:
    """Excludes what collection loaded, above all the SDKs' classes, from garbage collection.

    Every collection went through them: 40 % of the CPU time of the tests that run the program.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """Builds a single component from flat inputs and returns its record."""

    def run(component: type[Component], base: dict[str, Any], **more: Any) -> Record:
        return record(lambda: construct(component, "x", {**base, **more}), False, monkeypatch)

    return run


FINISH_SECONDS = 5


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """Finishes what a test leaves on the event loop. Python would complain about it in any later test."""
    yield
    if UNFINISHED:
        finish(LOOP)


@pytest.fixture(autouse=True)
def servers() -> Iterator[None]:
    """Fails a test that leaves an HTTP server behind: its closed socket would keep a core busy during later tests."""
    before = {*threading.enumerate()}
    yield
    left = [thread for thread in {*threading.enumerate()} - before if thread.name.endswith("(serve_forever)")]
    assert not left, "The test leaves an HTTP server behind. tests/support/local_server.py ends one with its block."


def finish(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the tasks of a loop to their end, and cancels those that wait for something that never happens.

    A task that is canceled before it starts would leave coroutines that nobody has awaited.
    """
    while tasks := asyncio.all_tasks(loop):
        _, waiting = loop.run_until_complete(asyncio.wait(tasks, timeout=FINISH_SECONDS))
        for task in waiting:
            task.cancel()
        # Without their errors: a test that lets a program fail asserts about the error that the program raised.
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


@pytest.fixture(autouse=True)
def errors_of_asyncio() -> Iterator[None]:
    """Fails a test in which asyncio logs an error, such as a destroyed task. An earlier test may have caused it."""
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert not logged, "\n".join(logged)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with fresh() as started:
        yield started


@pytest.fixture
def emulator_with() -> Iterator[Callable[..., Emulator]]:
    """Create an emulator with additional environment variables."""
    opened = []

    def make(**extra: str) -> Emulator:
        context = fresh(**extra)
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)
