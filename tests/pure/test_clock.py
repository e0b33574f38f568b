"""A clock that is off is named with its difference, by every command that reads a cluster."""

import json
import re
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

import pytest

from gke_ai.kube import clock
from gke_ai.kube.client import client_of, list_objects
from gke_ai.ops.runs import command as runs
from gke_ai.ops.status import command as status
from gke_ai.workspace.stack import Stack
from tests.support.local_server import listening
from tests.support.submitted import kubeconfig


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_warned", set())


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """A kubeconfig of an empty cluster whose clock is some seconds off; None: without dates."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            if request.param is not None:
                self.send_header("Date", formatdate(time.time() + request.param, usegmt=True))
            self.end_headers()
            self.wfile.write(json.dumps({"items": []}).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with listening(Handler) as address:
        yield kubeconfig(f"http://{address}")


@pytest.mark.parametrize("verb", ["status", "runs"])
@pytest.mark.parametrize(
    ("cluster", "off"), [(7200, "7,(199|20[01]) s behind"), (-7200, "7,(199|20[01]) s ahead of")], indirect=["cluster"]
)
def test_a_clock_that_is_off_is_named_once_with_the_difference(
    verb: str, cluster: str, off: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "cluster", lambda *_: client_of(cluster, 1))
    monkeypatch.setattr(Stack, "resources", [])
    (status.show if verb == "status" else runs.show)(Stack("dev"))
    pattern = rf"The clock of this machine is {off} the cluster's\. Ages and remaining times are wrong by this\. .*\n"
    assert re.fullmatch(pattern, capsys.readouterr().err)


@pytest.mark.parametrize("cluster", [0, 25, -25, None], indirect=True)
def test_a_small_difference_and_a_slow_response_are_not_named(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The API server dates a response when it begins, or after it has let a client wait."""
    assert list_objects(client_of(cluster, 1), "/api/v1/pods") == []
    now = time.time()
    for date in (now - 600, now - 300, now):
        clock.compare("https://c", formatdate(date, usegmt=True), now - 600)
    clock.compare("https://c", "yesterday", now)
    assert capsys.readouterr().err == ""
