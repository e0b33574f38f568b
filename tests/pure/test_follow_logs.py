"""`gke-ai logs --follow` without a cluster: pods that restart, come later and lose the connection."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from gke_ai.catalog.engines import fuse
from gke_ai.kube.client import Answer, Interrupted, client_of, stream
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs import follow_logs, logs
from gke_ai.ops.runs.command import Run
from gke_ai.ops.runs.follow_logs import Followed
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Context
from tests.support.local_server import listening
from tests.support.submitted import kubeconfig

Object = dict[str, Any]
RUN = Run("mine", "team-a", "JobSet", item={"metadata": {"name": "mine", "namespace": "team-a"}, "spec": {}})
UNUSED: Any = None


def pod(name: str, restarts: int = 0, state: str = "running") -> Object:
    statuses = [
        {"name": "training", "restartCount": restarts, "state": {state: {}}},
        {"name": fuse.SIDECAR, "restartCount": 0, "state": {"running": {}}},
    ]
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"}
    return {"metadata": metadata, "status": {"containerStatuses": statuses, "phase": "Running"}}


class Cluster:
    """What the cluster says at each look, and the log of each start of a container."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: list[list[Object]], end: str = "Completed") -> None:
        self.looks, self.end, self.asked = looks, end, list[tuple[str, Object]]()
        self.logs: dict[str, list[list[str] | int]] = {}
        """For each request of a pod's log in turn: its lines, or what interrupts it after those before."""
        monkeypatch.setattr(follow_logs, "request", lambda *_: self._run())
        monkeypatch.setattr(runs, "list_objects", lambda *_, **__: self.looks.pop(0) if self.looks else [])
        monkeypatch.setattr(follow_logs, "stream", self._stream)
        monkeypatch.setattr(follow_logs, "PAUSE", 0.05)

    def _run(self) -> Answer:
        status = {} if len(self.looks) > 1 else {"terminalState": self.end}
        return Answer(200, {**RUN.item, "status": status}) if RUN.item and self.end else Answer(404)

    def _stream(self, _: object, path: str, query: Object, __: float) -> Iterator[str]:
        name = path.split("/")[-2]
        self.asked.append((name, query))
        content = self.logs[name].pop(0) if self.logs.get(name) else []
        if isinstance(content, int):
            raise Interrupted(content)
        for line in content:
            if line == "lost":
                raise Interrupted(0)
            yield line

    def follow(self) -> tuple[list[str], list[str]]:
        """The lines that are shown, and the summary."""
        shown: list[str] = []
        return shown, [*Followed(UNUSED, RUN, 100, shown.append).report()]


def test_lines_of_pods_that_restart_and_come_later_have_the_name_of_their_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pod("mine-0"), pod("mine-1", state="waiting")
    again, later = pod("mine-0", restarts=1), pod("mine-1")
    cluster = Cluster(monkeypatch, [[first, second], [again, later], [again, later], [again, later]])
    cluster.logs = {"mine-0": [["t1 a", "t1 b"], ["t2 c"]], "mine-1": [["t3 d"]]}
    shown, summary = cluster.follow()
    assert shown[:2] == ["mine-0: a", "mine-0: b"]
    assert sorted(shown[2:]) == ["mine-0: c", "mine-1: d"]
    assert summary[0].startswith("JobSet team-a/mine: Completed")
    tails = [query.get("tailLines") for _, query in cluster.asked]
    assert (tails[0], {*tails[1:]}) == ("100", {None})
    assert {query["container"] for _, query in cluster.asked} == {"training"}


def test_an_init_container_is_followed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    item = pod("mine-0", state="waiting")
    item["status"]["initContainerStatuses"] = [{"name": "workdir", "state": {"terminated": {"exitCode": 2}}}]
    cluster = Cluster(monkeypatch, [[item], [item]])
    cluster.logs = {"mine-0": [["t1 tar: short read"]]}
    assert cluster.follow()[0] == ["mine-0: tar: short read"]
    assert cluster.asked[0][1]["container"] == "workdir"


def test_the_pod_that_submits_a_rayjob_is_followed_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    by_selector = {"ray.io/cluster=first-x": [pod("head")], "batch.kubernetes.io/job-name=first": [pod("submitter")]}
    item: Object = {"metadata": {"name": "first"}, "status": {"rayClusterName": "first-x"}}
    monkeypatch.setattr(follow_logs, "request", lambda *_: Answer(200, item))
    monkeypatch.setattr(runs, "list_objects", lambda *_, labelSelector: by_selector[labelSelector])
    followed = Followed(UNUSED, Run("first", "team-a", "RayJob", item=item), 100)
    assert [entry["metadata"]["name"] for entry in followed._look()] == ["head", "submitter"]


def test_a_log_is_taken_up_where_its_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [[pod("mine-0")] for _ in range(8)])
    cluster.logs = {"mine-0": [["t1 a", "t2 b", "lost"], 503, ["t1 a", "t2 b", "t3 c"]]}
    shown, _ = cluster.follow()
    assert shown == ["mine-0: a", "mine-0: b", "mine-0: c"]
    assert cluster.asked[1][1]["sinceTime"] == "t2"
    assert "tailLines" not in cluster.asked[1][1]


def test_a_refused_log_is_named_once_and_that_of_a_deleted_pod_or_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "on_emulator", lambda: False)
    cluster = Cluster(monkeypatch, [[pod("mine-0"), pod("mine-1")] for _ in range(4)])
    cluster.logs = {"mine-0": [403], "mine-1": [404]}
    assert cluster.follow()[0] == ["mine-0: no log: the cluster refuses it (HTTP 403)"]
    shown, summary = Cluster(monkeypatch, [[]], end="").follow()
    assert shown == []
    assert summary[0].startswith("JobSet team-a/mine: Gone")


@pytest.mark.parametrize("patience", [60.0, -1.0])
def test_a_silent_cluster_is_asked_again_for_a_while(patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [[pod("mine-0")], [pod("mine-0")], []])
    looks = iter([True, False])

    def broken(*_: object) -> Answer:
        if next(looks, True):
            return cluster._run()
        raise Stop("The cluster does not answer")

    monkeypatch.setattr(follow_logs, "request", broken)
    monkeypatch.setattr(follow_logs, "PATIENCE", patience)
    if patience < 0:
        with pytest.raises(Stop, match="does not answer"):
            cluster.follow()
    else:
        assert cluster.follow()[1][0].startswith("JobSet team-a/mine: Completed")


def test_ctrl_c_ends_it_without_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "read", lambda _: (UNUSED, [RUN]))
    monkeypatch.setattr(Followed, "report", interrupted)
    follow_logs.follow(Context("ml", namespace="team-a"), "mine", 100)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("broken", [False, True])
def test_lines_are_yielded_while_they_are_written(broken: bool) -> None:
    first_is_read = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in (b"first\nsec", b"ond \xff\n", b"rest"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
                first_is_read.wait(5)
            if not broken:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with listening(Handler) as address:
        lines = stream(client_of(kubeconfig(f"http://{address}"), 1), "/log", {"follow": "true"}, 5)
        assert next(lines) == "first"
        first_is_read.set()
        assert next(lines) == "second \N{REPLACEMENT CHARACTER}"
        if broken:
            with pytest.raises(Interrupted):
                next(lines)
        else:
            assert [*lines] == ["rest"]
