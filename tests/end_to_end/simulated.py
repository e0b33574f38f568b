"""Traces replayed against the real Kueue, on an emulator of their own."""

from __future__ import annotations

from collections.abc import Iterable

from rehearse.scratch import Scratch
from rehearse.simulate.kueue import started
from rehearse.simulate.objects import Queues
from rehearse.simulate.replay import Replay
from rehearse.simulate.trace import Submission
from tests.end_to_end.conftest import fresh


def replayed(queues: Queues, trace: Iterable[Submission]) -> Replay:
    """Replays submissions, and returns what became of them."""
    with fresh() as emulator, started(Scratch(emulator.state), queues) as kueue:
        replay = Replay(kueue, queues, tuple(sorted(trace, key=lambda row: row.time)))
        replay.run()
        return replay
