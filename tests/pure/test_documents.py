"""YAML of strangers: bounded, whoever reads it, and read as kubectl and Pulumi read it."""

import json
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.commands import ready
from gke_ai.catalog.documents import MAX_DEPTH, InvalidDocument, Reader, read, read_file
from gke_ai.forecast.rehearse.kustomization import check
from gke_ai.forecast.rehearse.manifests import parse
from gke_ai.forecast.snapshot import kueue
from gke_ai.forecast.when import run_file
from gke_ai.kube.client import Answer
from gke_ai.ops.lifecycle import deploy
from gke_ai.ops.verify.command import named_file
from gke_ai.settings import calibration
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop
from gke_ai.workspace import emulated, prices
from gke_ai.workspace.configuration_file import read_configuration
from gke_ai.workspace.stack import Stack
from tests.support.repository import ROOT, tracked

# Nested merges: 10 ** 11 pairs of 775 bytes.
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 400))
SECONDS, BYTES = 5, 50 * 2**20


def manager_configuration(file: Path) -> None:
    assert kueue.configuration(Answer(200, {"data": {kueue.KEY: file.read_text()}})) is None
    raise Stop(f"{file} is left out")


READERS: dict[str, Callable[[Path], object]] = {
    "configuration": read_configuration,
    "copied configuration": lambda file: emulated.write_copy(file, file.with_name("copy.yaml"), {}),
    "policies of a configuration": lambda file: deploy.mandatory(Stack("dev", file)),
    "verified configuration": lambda file: named_file(Stack("dev", file)),
    "run": lambda file: run_file.read_run(file, Stack("dev", None), None),  # type: ignore[arg-type]
    "calibration": calibration.read,
    "price table": prices.read,
    "manifest": lambda file: parse(file.read_text(), str(file)),
    "Kustomization": lambda file: check(file.parent, file.parent, []),
    "configuration of Kueue": manager_configuration,
}


@pytest.mark.parametrize("text", [MERGES, ALIASES, CHAIN], ids=["merges", "aliases", "chain of aliases"])
@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_what_grows_without_end_at_once(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "kustomization.yaml"
    file.write_text(text)
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises((Stop, prices.BadPrices, calibration.BadCalibration)) as refused:
            READERS[name](file)
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < SECONDS
    reason = str(refused.value.mistakes if isinstance(refused.value, calibration.BadCalibration) else refused.value)
    assert str(file) in reason
    assert "with its aliases" in reason or "too deeply" in reason or "is left out" in reason


def test_the_emulator_refuses_what_grows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(MERGES)
    monkeypatch.setattr(sys, "argv", ["ready", str(file)])
    with pytest.raises(SystemExit, match="values with its aliases"):
        ready.main()


NO_JSON = {
    "a: &a [*a]": "is not valid YAML: an alias contains itself.",
    "a: &a\n  <<: *a": "an alias contains itself",
    "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1): "is nested too deeply",
    "[" * 100_000: "is nested too deeply",
    "a: [": "line 2: ",
    "a: \x00": "not allowed",
    "a: *b": "line 1: found undefined alias",
    "a: !!binary aGk=": "line 1: the tag !!binary is none of JSON. Remove it",
    "a: !!set {x: , y: }": "the tag !!set is none",
    "a: !!timestamp 2026-01-01": "the tag !!timestamp",
    "a: !!omap [x: 1]": "the tag !!omap",
    "a: !secret x": "the tag !secret",
    "a: !!map [x]": "the tag !!map",
    "a: !!python/object/apply:os.system [id]": "the tag !!python/object/apply:os.system",
    "a: !!int x": "'x' is no int",
    "a: .nan": ".nan is no number of JSON",
    "a: -.inf": "is no number of JSON",
    "? [x]\n: 1": "a key is a text",
    "~: 1": "a key is a text",
    "a:\n  <<: [1]": "line 2: a merge needs a mapping",
}


@pytest.mark.parametrize("text", NO_JSON, ids=lambda text: text[:24])
@pytest.mark.parametrize("reader", Reader)
def test_what_is_no_json_is_refused_with_its_line(text: str, reader: Reader) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read(text, reader)
    assert NO_JSON[text] in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_file_without_end_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("a: 1" + " " * 2**20)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "large", Path("/dev/zero"), tmp_path):
        with pytest.raises(InvalidDocument, match="is not a file of at most 1 MiB"):
            read_file(file, Reader.PULUMI)
    with pytest.raises(InvalidDocument, match="is not valid YAML: "):
        read_file(tmp_path / "bytes", Reader.PULUMI)


# What kubectl makes of a plain scalar: its JSON.
YES = ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE", "!!bool&yes")
NO = ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")
WORDS = (
    *("yEs", "oN", "tRUE", "nULL", "t", "f", "none", "None", "nan"),
    *("NaN", "inf", "Infinity", "=", "1 2", "v1", "1,000"),
)
DATES = ("2026-01-01", "2026-1-1", "2026-01-01T00:00:00Z", "2026-01-01 10:00:00", "12:30:45.5", "1:30", "190:20:30")
NO_NUMBERS = (
    *("_1", ".5__5", "._5", ".5_", ".", "--1", "1e", "1.2.3", "0o8"),
    *("0x", "0xg", "0b12", "0x1p-2", "1e400", "1Gi", "100m"),
)
NUMBERS = {
    1000: ("1_000", "1e3", "1E3", "1_0_00.0"),
    0: ("0", "-0", "00", "0.0"),
    1: ("+1", "1_", "+_1", "1.", "0b1", "0o1", "01"),
    8: ("08", "010", "0x8", "0X8", "0o10", "0O10", "0b1000"),
    7: ("0_7", "07", "7"),
    -31: ("-31", "-0x1f", "-037", "-0o37", "-0b11111"),
    511: ("0777", "0x1FF"),
    0.5: (".5", "+.5", "0.5", "5e-1"),
    9.5: ("09.5", "9.5"),
    0.55: (".5_5", ".55"),
    2**63 - 1: ("9223372036854775807",),
    -(2**63): ("-9223372036854775808",),
    # Larger ones are no integers.
    2.0**63: ("9223372036854775808",),
    2.0**64: ("18446744073709551615", "18446744073709551616"),
    1e21: ("1e21", "1000000000000000000000"),
}
SCALARS: dict[str, Any] = {
    **dict.fromkeys(YES, True),
    **dict.fromkeys(NO, False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{text: text for text in (*WORDS, *DATES, *NO_NUMBERS)},
    **{text: number for number, texts in NUMBERS.items() for text in texts},
    "'yes'": "yes",
    '"on"': "on",
    "!!str&no": "no",
    "!!str&1": "1",
    "!!int&'3'": 3,
    "!!float&3": 3,
}
# Whole documents: keys that are no texts, equal keys, merges before and after the keys that they replace.
X, A, W = {"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2}
DOCUMENTS: dict[str, Any] = {
    "on: 1\n1: a\n1.5: b\n0x10: c\n": {"true": 1, "1": "a", "1.5": "b", "16": "c"},
    "a: 1\na: 2\n": {"a": 2},
    "x: &x {a: 1, b: 2}\nw:\n  <<: *x\n  a: 3\n": {"x": X, "w": {"a": 3, "b": 2}},
    "x: &x {a: 1, b: 2}\nw:\n  a: 3\n  <<: *x\n": {"x": X, "w": W},
    "x: &x {a: 1}\nz: &z {a: 2, b: 2}\nw:\n  <<: [*x, *z]\n": {"x": A, "z": {"a": 2, "b": 2}, "w": W},
    "'<<': {a: 1}\n": {"<<": A},
    "a: |\n  yes\nb: >-\n  1\n  2\nc: [on, 'on']\n": {"a": "yes\n", "b": "1 2", "c": [True, "on"]},
}


def plain(text: str) -> str:
    return text.replace("&", " ")


@pytest.mark.parametrize("text", [*SCALARS, *DOCUMENTS])
def test_a_scalar_or_document_is_read_as_kubectl_does(text: str) -> None:
    whole, value = (text, DOCUMENTS[text]) if text in DOCUMENTS else (f"a: {plain(text)}\n", {"a": SCALARS[text]})
    assert json.dumps(read(whole, Reader.KUBECTL)) == json.dumps([value])


def number(digits: str) -> float:
    return int(digits) if abs(int(digits)) < 2**63 or digits == str(-(2**63)) else float(digits)


def test_kubectl_itself_reads_them_so(tmp_path: Path) -> None:
    """An object whose field `data` has any form, through a command of kubectl that asks no cluster."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("the tool kubectl is missing: run this under emulator/run")
    data = "".join(f"  k{number}: {plain(text)}\n" for number, text in enumerate(SCALARS))
    wanted: list[Any] = [{f"k{number}": value for number, value in enumerate(SCALARS.values())}, *DOCUMENTS.values()]
    texts = [data, *("".join(f"  {line}\n" for line in text.splitlines()) for text in DOCUMENTS)]
    head = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: a}\nrevision: 1\ndata:\n"
    for text, value in zip(texts, wanted, strict=True):
        (tmp_path / "a.yaml").write_text(head + text)
        command = [kubectl, "annotate", "--local", "--filename", "a.yaml", "--output", "json", "a=b"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout, parse_int=number)["data"] == value
        assert read(head + text, Reader.KUBECTL)[0]["data"] == value


def test_pulumi_reads_only_true_and_false_as_booleans_and_a_merge_replaces_nothing() -> None:
    text = "a: yes\nb: true\nc: off\ny: n\nd: 2026-01-01\nx: &x {a: 1, b: 2}\nz:\n  a: 3\n  <<: *x\n"
    merged = {"x": {"a": 1, "b": 2}, "z": {"a": 3, "b": 2}}
    assert read(text, Reader.PULUMI) == [{"a": "yes", "b": True, "c": "off", "y": "n", "d": "2026-01-01", **merged}]


def test_what_the_program_writes_is_read_back() -> None:
    value = {"a": "yes", "b": "2026-01-01", "c": [1, 2.5, True, None, "0777", "1:30", "n"], "d": {"1": "x"}}
    text = yaml.safe_dump(value)
    assert read(text, Reader.PULUMI) == [value]
    assert read(text, Reader.KUBECTL) == [{**value, "c": [1, 2.5, True, None, "0777", "1:30", False]}]


# Where PyYAML loads: tables of this project, output of Helm for pinned charts, and kubeconfigs, whose commands are run.
LOADED = {
    *("gke_ai/catalog/documents.py", "gke_ai/catalog/tables.py", "gke_ai/forecast/rehearse/plain.py"),
    *("gke_ai/kube/client.py", "components/support/cluster_client.py"),
}


def test_texts_of_strangers_have_one_reader() -> None:
    loads = re.compile(r"\byaml\.\w*(load|compose|parse|Loader)\w*")
    files = [file for folder in ("gke_ai", "components") for file in tracked(f"{folder}/**/*.py")]
    assert {str(file.relative_to(ROOT)) for file in files if loads.search(file.read_text())} == LOADED


TEXTS = ("1e5", "0o17", "y", "on", "~", "2026-01-01", "1_000", "12:30", ".5e1", "a\u2028b", "ä")


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_stack_publishes_is_read_as_the_same_texts(text: str) -> None:
    queues: dict[str, list[str]] = {"flavors": [], "clusterQueues": [], "localQueues": [], "priorityClasses": []}
    sections = {"gpuPools": [], "tpuPools": [], "queues": queues, "tenants": [{"name": "team"}]}
    content = {"version": "0.4.0", "project": text, "sections": sections, "nodes": []}
    published = Published.parse(json.dumps(content, ensure_ascii=False))
    assert (published.sections, published.project) == (sections, text)
