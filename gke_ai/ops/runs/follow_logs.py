"""`gke-ai logs RUN --follow`: prints log lines as pods write them, until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock, Thread

from gke_ai.catalog.engines import fuse
from gke_ai.kube.client import ApiClient, Interrupted, request, stream
from gke_ai.kube.objects import Object
from gke_ai.kube.pods import container_statuses
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs import logs
from gke_ai.ops.runs.command import Run
from gke_ai.terminal import Stop, echo
from gke_ai.workspace.stack import Stack

PAUSE = 1.0
SILENT_SECONDS = 60.0  # after which a connection counts as lost, and another one takes up the log
PATIENCE = 60.0  # for a cluster that does not answer
LAST_SECONDS = 10.0  # for the last lines, once the run has ended
STARTED = {"running", "terminated"}
Start = tuple[str, str, int]
"""A start of a container: the uid of its pod, its name, and its restarts before."""


def follow(stack: Stack, name: str, lines: int) -> None:
    """Prints the logs of the run `name` until it has ended or Ctrl-C."""
    try:
        api, found = runs.read(stack)
        for line in Followed(api, runs.find(stack, found, name), lines).report():
            echo(line)
    except KeyboardInterrupt:
        return


@dataclass
class Followed:
    """The logs of a run, each container on a thread of its own."""

    api: ApiClient
    run: Run
    lines: int
    show: Callable[[str], None] = echo
    _threads: dict[Start, Thread] = field(default_factory=dict)
    _running: set[Start] = field(default_factory=set)
    _showing: Lock = field(default_factory=Lock)

    def report(self) -> Iterator[str]:
        """Shows log lines until the run has ended or is gone, and then yields its summary."""
        pods, heard, tail = self._look(), time.monotonic(), str(self.lines)
        while True:
            self._start(pods, {"tailLines": tail} if tail else {})
            if self.run.item is None or self.run.end:
                break
            tail = ""  # a pod that comes later is shown from its first line
            time.sleep(PAUSE)
            try:
                pods, heard = self._look(), time.monotonic()
            except Stop:
                if time.monotonic() - heard > PATIENCE:
                    self._running = set()
                    raise
        self._running = set()
        end = time.monotonic() + LAST_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, end - time.monotonic()))
        yield from logs.summary(self.run, pods)

    def _look(self) -> list[Object]:
        """Reads the run and its pods."""
        answer = request(self.api, "GET", self.run.path)
        if answer.code not in (200, 404):
            raise Stop(f"The cluster refuses to read {self.run}: {answer.reason}")
        self.run = replace(self.run, item=answer.body if answer.code == 200 else None)
        return self.run.pods(self.api)

    def _start(self, pods: list[Object], query: Mapping[str, str]) -> None:
        """Begins to show the containers of pods that have started since the last look."""
        running = set()
        for pod in sorted(pods, key=logs.order):
            for status in container_statuses(pod):
                start = (pod["metadata"]["uid"], status["name"], int(status.get("restartCount") or 0))
                state = status.get("state") or {}
                if "running" in state:
                    running.add(start)
                if status["name"] == fuse.SIDECAR or start in self._threads or not state.keys() & STARTED:
                    continue
                self._threads[start] = Thread(target=self._show, args=(pod, start, query), daemon=True)
                self._threads[start].start()
        self._running = running

    def _show(self, pod: Object, start: Start, query: Mapping[str, str]) -> None:
        """Shows a container's lines to its end, also over connections that break."""
        name = pod["metadata"]["name"]
        options = {"container": start[1], "follow": "true", "timestamps": "true", **query}
        last = shown = ""
        while True:
            try:
                for line in stream(self.api, logs.path_of(pod), options, SILENT_SECONDS):
                    stamp, _, text = line.partition(" ")
                    if not shown or stamp > shown:  # times have one length
                        last = stamp
                        self._print(f"{name}: {text}")
            except Interrupted as lost:
                if 400 <= lost.code < 500:
                    if lost.code != 404:  # the pod is not gone
                        self._print(f"{name}: no log: {logs.refused(lost.code)}")
                    return
            time.sleep(PAUSE)
            if start not in self._running:  # a later start is followed by itself
                return
            if shown := last:
                options = {key: text for key, text in options.items() if key != "tailLines"} | {"sinceTime": last}

    def _print(self, line: str) -> None:
        with self._showing:
            self.show(line)
