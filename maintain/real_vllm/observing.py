"""Everything that the recorder and the test observe of a server, from its start to its end."""

import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from gke_ai.ops.smoke.command import Result
from maintain.real_vllm.asking import (
    ANSWER_SECONDS,
    QUESTIONS,
    STREAMS,
    Process,
    described,
    drained,
    eventually,
    frozen,
    outcome,
    probe,
    routes,
    send,
    stream,
    under_burst,
)
from maintain.real_vllm.served import KEY, WITH_FLAG, WITHOUT_FLAG, Served

Object = dict[str, Any]


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Process]:
    """A server in a process group of its own, which ends with this block."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        # The engine is a process of its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def observed(
    servers: Mapping[str, Served],
    start: Callable[[Served], AbstractContextManager[Process]],
    patience: float,
    known_routes: Collection[str] | None = None,
) -> Iterator[tuple[str, object]]:
    """What two servers do from their start to their end, by subject.

    Args:
        servers: The servers by name.
        start: Starts a server.
        patience: Seconds to wait for an event that never comes.
        known_routes: Routes to ask. Default: those that the server lists.
    """
    server, without = servers[WITH_FLAG], servers[WITHOUT_FLAG]
    with start(server) as process:
        yield "probe", until_ready(server, process)
        yield "routes", routes(server, known_routes)
        yield "answers", {name: described(send(server, question)) for name, question in QUESTIONS.items()}
        yield "streams", {name: stream(server, question) for name, question in STREAMS.items()}
        yield "burst", under_burst(server)
        yield "smoke", smoke(server)
        yield "SIGTERM with the flag", drained(server, process, patience)
    with start(without) as process:
        until_ready(without, process)
        yield "SIGTERM without the flag", frozen(without, process, patience)


def until_ready(server: Served, process: Process) -> list[int | str]:
    """What the probe sees until it passes, each once."""
    seen: list[int | str] = []

    def passed() -> bool:
        assert process.poll() is None, f"the server ended with {process.returncode}: see its log"
        if (now := outcome(server, probe(server))) not in seen:
            seen.append(now)
        return now == 200

    eventually(passed, 3 * ANSWER_SECONDS)
    return seen


def smoke(server: Served) -> Object:
    """The result of the project's own smoke check of a route, with the key and with another one."""
    replies, seconds = server.route.send(KEY, lambda: None)
    refused, _ = server.route.send("other", lambda: None)
    return {
        "passed": Result(str(server.route), "", replies, seconds).passed,
        "tokens": sorted({reply.tokens or 0 for reply in replies}),
        "times are known": all(None not in (reply.first_token, reply.per_token) for reply in replies),
        "with another key": sorted({reply.problem for reply in refused}),
    }
