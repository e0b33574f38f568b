"""The comparison with official plugins finds what differs, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from maintain.official import (
    DIFFERENCES,
    PROGRAMS,
    Known,
    Side,
    compare,
    known_differences,
    main,
    plugin_of,
    report,
    seen,
)
from tests.support.repository import ROOT

JOB = "kubernetes:batch/v1:Job"
Events = list[dict[str, Any]]


def step(operation: str = "create", type_: str = JOB, name: str = "a", **inputs: Any) -> dict[str, Any]:
    """The engine's event of a step."""
    urn = f"urn:pulumi:test::gke-ai::gke-ai:index:TpuBatchJob${type_}::{name}"
    return {"resourcePreEvent": {"metadata": {"op": operation, "urn": urn, "type": type_, "new": {"inputs": inputs}}}}


def said(message: str, severity: str = "warning", urn: str = "") -> dict[str, Any]:
    """The engine's event of a message."""
    return {"diagnosticEvent": {"message": message, "severity": severity, "urn": urn}}


def verdicts(ours: Events, official: Events, *known: Known, account: bool = True) -> dict[str, str]:
    """The verdict of each path that is not equal."""
    found = compare("s", seen("up", ours), seen("up", official), known, account)
    return {item.path: item.verdict for item in found if item.verdict != "equal"}


DIFFERENT: list[tuple[Events, Events, str]] = [
    ([step(parallelism=1)], [step(parallelism=2)], "inputs.parallelism"),
    ([step(ports=[{"a": 1}])], [step(ports=[{"a": 1}, {"a": 2}])], "inputs.ports[1].a"),
    ([step(parallelism=1)], [step(parallelism=1, more=True)], "inputs.more"),
    ([step("update")], [step("create-replacement")], "step"),
    ([step()], [step(), said("field is ignored")], "warning: field is ignored"),
    ([step(), said("refused", "error")], [step()], "error: refused"),
]


@pytest.mark.parametrize(("ours", "official", "path"), DIFFERENT, ids=[path for _, _, path in DIFFERENT])
def test_a_difference_is_found(ours: Events, official: Events, path: str) -> None:
    assert verdicts(ours, official) == {path: "new"}
    assert verdicts(official, ours) == {path: "new"}


def test_what_differs_between_two_runs_is_no_difference() -> None:
    one = [
        step(kubeconfig="a", host="https://127.0.0.1:1"),
        said("not ready after 3s: /tmp/gke-ai-a/x, pod web-7d9f8c6b5-x2lpq"),
    ]
    other = [
        step(kubeconfig="b", host="https://127.0.0.1:2"),
        said("not ready after 12s: /tmp/gke-ai-b/x, pod web-5b7c9d4f8-zzk4m"),
    ]
    assert verdicts(one, other) == {}


def test_the_same_message_in_colors_is_equal() -> None:
    assert verdicts([said("<{%reset%}>kept<{%reset%}>\n")], [said("kept")]) == {}


def test_progress_retries_and_debugging_are_no_messages() -> None:
    passing = {"diagnosticEvent": {"message": "waits", "severity": "warning", "ephemeral": True}}
    again = said("retrying create due to on-error hook request (8/100)")
    assert verdicts([], [said("loaded", "debug"), said("waits", "info"), passing, again]) == {}


def test_a_known_difference_has_its_reason() -> None:
    known = Known("kubernetes", "The official plugin adds it.", "kubernetes:batch/*", "inputs.more")
    found = compare("s", seen("up", [step()]), seen("up", [step(more=True)]), [known])
    (item,) = (item for item in found if item.verdict != "equal")
    assert (item.verdict, item.reason) == ("known", "The official plugin adds it.")


def test_a_row_of_another_plugin_or_kind_covers_nothing() -> None:
    rows = [
        Known("gcp", "r"),
        Known("kubernetes", "r", "kubernetes:core/*"),
        Known("kubernetes", "r", "*", "inputs.o*"),
    ]
    assert verdicts([step()], [step(more=True)], *rows) == {"inputs.more": "new"}


def test_what_the_official_plugin_does_not_reach_without_an_account_is_named() -> None:
    denied = said("googleapi: Error 401: Request had invalid authentication credentials", "error")
    ours, official = [step(name="a"), step(name="b", x=1)], [step(name="a"), denied]
    assert set(verdicts(ours, official, account=False).values()) == {"account"}
    assert set(verdicts(ours, official).values()) == {"new"}, "the emulator answers every other plugin"
    wrong = [step(name="a", x=2), denied]
    assert verdicts(ours, wrong, account=False)["inputs.x"] == "new", "what it did reach is compared"


@pytest.mark.parametrize(
    ("type_", "plugin"),
    [
        (JOB, "kubernetes"),
        ("pulumi:providers:kubernetes", "kubernetes"),
        ("gcp:container/cluster:Cluster", "gcp"),
        ("gke-ai:index:KueueStack", "engine"),
        ("pulumi:pulumi:Stack", "engine"),
    ],
)
def test_a_resource_is_of_a_plugin(type_: str, plugin: str) -> None:
    assert plugin_of(type_) == plugin


def test_the_report_counts_and_shows_each_difference_once() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    events = [step(name="a", more=1), step(name="b", more=1)]
    report(console, [*compare("s", seen("up", [step(name="a"), step(name="b")]), seen("up", events), [])])
    text = console.export_text()
    assert ["s", "up", "kubernetes", "2", "0", "0", "2"] in [line.split() for line in text.splitlines()]
    assert text.count("inputs.more") == 1
    assert "(2×)" in text


def test_every_known_difference_has_a_reason() -> None:
    assert all(row.reason.endswith(".") for row in known_differences(DIFFERENCES.read_text()))


def test_a_side_has_what_its_folder_has(tmp_path: Path) -> None:
    (tmp_path / "pulumi").touch(mode=0o755)
    side = Side("official", tmp_path)
    assert [program for program in PROGRAMS if side.has(program)] == ["pulumi"]


def test_a_folder_without_programs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--programs", str(tmp_path)]) == 2
    assert "Nothing was compared" in capsys.readouterr().err


def test_the_workflow_links_each_program() -> None:
    text = (ROOT / ".github" / "workflows" / "official.yml").read_text()
    for program in PROGRAMS:
        assert program in text.replace('pulumi-resource-"$plugin"', "pulumi-resource-kubernetes pulumi-resource-gcp")
