"""Sends requests at a stated rate, whether earlier ones are answered or not, and keeps what became of each."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from gke_ai.kube.client import ApiClient
from gke_ai.ops.smoke.answers import Reply, Server, reply, request_of

# One thread waits for each request that is open.
MAX_OPEN = 2000
PROMPT_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs")


@dataclass(frozen=True)
class Step:
    """What became of the requests of one rate."""

    rate: float
    """Requests per second."""
    seconds: float
    """From the first request to the last answer."""
    replies: Sequence[Reply]

    @property
    def answered(self) -> list[Reply]:
        return [reply for reply in self.replies if not reply.problem]

    @property
    def kinds(self) -> Mapping[str, int]:
        """How many requests ended how: by HTTP status, or by the problem of those without one."""
        return dict(Counter(kind(reply) for reply in self.replies).most_common())

    def first_token(self, part: float) -> float | None:
        """The time to the first token that this part of the answers keeps to, in seconds."""
        return percentile([reply.first_token for reply in self.answered if reply.first_token is not None], part)

    def per_token(self, part: float) -> float | None:
        """The time between two tokens, in seconds."""
        return percentile([reply.per_token for reply in self.answered if reply.per_token is not None], part)

    def keeps(self, objective: float, part: float) -> bool:
        """Whether this part of all requests got a first token within the objective. An error is none."""
        soon = sum(reply.first_token is not None and reply.first_token <= objective for reply in self.answered)
        return bool(self.replies) and soon >= part * len(self.replies)


def kind(answer: Reply) -> str:
    """The HTTP status of a request, or the problem of one without."""
    if not answer.problem:
        return "200"
    status = re.match(r"HTTP (\d+)", answer.problem)
    return status[1] if status else re.sub(r" after \d+ .*| within .*| \(.*", "", answer.problem)


def percentile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that this part of the values does not exceed; None without values."""
    return sorted(values)[max(math.ceil(part * len(values)) - 1, 0)] if values else None


def prompt(words: int, number: int) -> str:
    """A prompt of so many words, which differs from the others at its beginning: no prefix is in a cache."""
    return " ".join([f"{number}:", *(PROMPT_WORDS[at % len(PROMPT_WORDS)] for at in range(words - 1))])


def send(
    api: ApiClient,
    server: Server,
    rate: float,
    count: int,
    words: int,
    tokens: int,
    patience: float,
    headers: Mapping[str, str],
    ended: Callable[[Reply], None] = lambda _: None,
) -> Step:
    """Sends `count` requests at `rate` per second. Waits up to `patience` seconds for each answer.

    A rate of infinity sends all at once.
    """
    began = time.perf_counter()

    def one(number: int) -> Reply:
        request = request_of(api, server, prompt(words, number), tokens, path="", headers=headers)
        answer = reply(api, request, server, patience)
        ended(answer)
        return answer

    sent: list[Future[Any]] = []
    with ThreadPoolExecutor(min(count, MAX_OPEN)) as threads:
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            sent.append(threads.submit(one, number))
        wait(sent)
    return Step(rate, time.perf_counter() - began, [future.result() for future in sent])
