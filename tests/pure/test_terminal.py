"""No text of a pod, an event, a label or a file controls the terminal: what others wrote is cleaned."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gke_ai.forecast.simulate import command, imports
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.kube.client import Answer
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs import follow_logs, logs
from gke_ai.ops.runs.command import INDEX_LABEL, Run
from tests.support.repository import ROOT

CLIPBOARD = "\x1b]52;c;aWQ=\x07"
RUN = Run("mine", "team-a", "JobSet", item={"metadata": {"name": "mine", "namespace": "team-a"}, "spec": {}})
UNUSED: Any = None


def pod(**labels: str) -> dict[str, Any]:
    metadata = {"name": "mine-0", "namespace": "team-a", "uid": "u", "labels": labels}
    status = {"containerStatuses": [{"name": "training", "state": {"running": {}}}]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "training"}]}, "status": status}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose pod writes to the clipboard of a terminal."""
    monkeypatch.setattr(runs, "read", lambda _: (UNUSED, [RUN]))
    monkeypatch.setattr(runs, "list_objects", lambda *_, **__: [pod()])
    monkeypatch.setattr(logs, "read", lambda *_, **__: Answer(200, f"a{CLIPBOARD}b"))
    ended = {**(RUN.item or {}), "status": {"terminalState": "Completed"}}
    monkeypatch.setattr(follow_logs, "request", lambda *_: Answer(200, ended))
    monkeypatch.setattr(follow_logs, "stream", lambda *_: iter([f"t1 a{CLIPBOARD}b"]))
    monkeypatch.setattr(follow_logs, "PAUSE", 0.01)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("show", [logs.show, follow_logs.follow])
def test_a_pod_cannot_write_to_the_clipboard_through_its_log(show: Any, capsys: pytest.CaptureFixture[str]) -> None:
    show(UNUSED, "mine", 5)
    printed = capsys.readouterr().out
    assert "mine-0: a\ufffd]52;c;aWQ=\ufffdb" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("index", ["x", "-1", "1.5", "", "0x10"])
def test_a_label_that_is_no_number_orders_a_pod_first(index: str) -> None:
    assert logs.order(pod(**{INDEX_LABEL: index})) == (0, "mine-0")
    assert logs.order(pod(**{INDEX_LABEL: "12"})) == (12, "mine-0")


def test_strangers_trace_is_printed_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trace = (Submission(0, f"team/{CLIPBOARD}", "", 1, 0, 1, 1, 60),)
    monkeypatch.setattr(imports, "import_table", lambda *_: trace)
    command.print_imported("helios", Path("log.csv"), (), 0, 24)
    assert "\x1b" not in capsys.readouterr().out


# Files that print only what the user or the program wrote, or texts that are clean already.
OWN = {
    "gke_ai/cli/look.py": "a role of the program",
    "gke_ai/cli/tools.py": "names of tools",
    "gke_ai/forecast/rehearse/command.py": "a name of a stack",
    "gke_ai/forecast/rehearse/progress.py": "seconds",
    "gke_ai/forecast/simulate/command.py": "figures, and a generated trace",
    "gke_ai/ops/facts/capacity.py": "paths",
    "gke_ai/ops/lifecycle/deploy.py": "a name of a stack",
    "gke_ai/review/policy/pack.py": "a port",
    "gke_ai/workspace/emulated.py": "a Stop, which is clean, and a command",
    "gke_ai/ops/facts/model_shape.py": "YAML, which escapes control characters",
    "gke_ai/ops/lifecycle/network_pools.py": "names of the stack's pools",
    "gke_ai/ops/repository/create.py": "lines that are clean, and paths",
    "gke_ai/ops/repository/upgrade.py": "names of stacks and paths",
    "gke_ai/ops/runs/command.py": "a name that the API server checked",
    "gke_ai/ops/smoke/command.py": "a name of a stack",
    "gke_ai/ops/submit/command.py": "YAML, which escapes control characters, and names that the API server checked",
    "gke_ai/review/gitops/command.py": "paths and commands",
    "gke_ai/terminal.py": "paths, and what is cleaned here",
    "gke_ai/trial/command.py": "an outcome of listed fields, and Stops, which are clean",
}


def raw(file: Path) -> Iterator[str]:
    """Yields each `print` of a text that is neither a constant nor cleaned."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            for text in node.args:
                cleaned = isinstance(text, ast.Call) and isinstance(text.func, ast.Name) and text.func.id == "printable"
                if not cleaned and not isinstance(text, ast.Constant):
                    yield ast.unparse(text)


def test_what_others_wrote_is_printed_with_echo() -> None:
    # Those of pods print to logs.
    files = (file for file in (ROOT / "gke_ai").rglob("*.py") if "pods" not in file.parts)
    printing = {str(file.relative_to(ROOT)): [*raw(file)] for file in files}
    assert {name: texts for name, texts in printing.items() if texts and name not in OWN} == {}
    assert [name for name in OWN if not printing.get(name)] == []
