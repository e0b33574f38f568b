"""docs/proven.md: what is shown where and when, from the files of the tests and from dated records of runs."""

import ast
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import yaml

from maintain.pages import with_parts
from tests.support.repository import ROOT, tracked

LEVELS = {
    "pure": "pure functions, without a program",
    "graph": "the program with a recorder in place of the engine",
    "engine": "other programs: Pulumi, pip, actionlint, Sphinx",
    "cluster": "the emulator: Pulumi with a real Kubernetes API, scheduler, Kueue and JobSet",
    "nightly": "the emulator, at night",
}
NONE, HERE = "–", "✓"
RUNS = ROOT / "tests" / "nightly" / "runs.yaml"


class Hand(NamedTuple):
    subject: str
    day: date
    what: str
    page: str


class Records(NamedTuple):
    subjects: Mapping[str, str]
    nights: Mapping[str, tuple[date, str]]
    """By test file, without its suffix."""
    hands: tuple[Hand, ...]


def records() -> Records:
    content = yaml.safe_load(Path(__file__).with_name("proven.yaml").read_text())
    subjects = {subject: re.sub(r"\s", "", pattern) for subject, pattern in content["subjects"].items()}
    nights = {name: (day, kueue) for name, (day, kueue) in yaml.safe_load(RUNS.read_text()).items()}
    return Records(subjects, nights, tuple(Hand(*entry) for entry in content["by hand"]))


def subjects_of(name: str, subjects: Mapping[str, str]) -> list[str]:
    name = name.removeprefix("test_")
    found = [one for one, pattern in subjects.items() if pattern and re.search(rf"(?:^|_)(?:{pattern})", name)]
    return found or [[*subjects][-1]]


def levels_of(file: Path) -> set[str]:
    """Where the tests of a file run: its folder, or `nightly`."""
    tree = ast.parse(file.read_text())
    inside = [node for group in tree.body if isinstance(group, ast.ClassDef) for node in group.body]
    tests = [node for node in (*tree.body, *inside) if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"]
    nightly = ["mark.nightly" in " ".join(map(ast.unparse, test.decorator_list)) for test in tests]
    return {level for level, is_here in ((file.parent.name, not all(nightly)), ("nightly", any(nightly))) if is_here}


def page() -> str:
    known = records()
    files: dict[str, dict[str, list[str]]] = {subject: {level: [] for level in LEVELS} for subject in known.subjects}
    for file in (file for level in LEVELS for file in tracked(f"tests/{level}/test_*.py")):
        for subject in subjects_of(file.stem, known.subjects):
            for level in levels_of(file):
                files[subject][level].append(file.stem)
    cloud = {hand.subject for hand in known.hands if "Google Cloud" in hand.what}
    nights = (f"- `{name}`: {day}, with Kueue {kueue}" for name, (day, kueue) in sorted(known.nights.items()))
    hands = (f"- {hand.day}, {hand.subject}: {hand.what} ([details]({hand.page}))" for hand in known.hands)
    head = [f"| what | {' | '.join(LEVELS)} | by hand | Google Cloud |", f"| --- |{' --- |' * len(LEVELS)} --- | --- |"]
    rows = (_row(subject, of_level, known, subject in cloud) for subject, of_level in files.items())
    ran = "Some systems ran on Google Cloud." if cloud else "Nothing has run on Google Cloud yet."
    return with_parts(
        "proven.md",
        ("**", "** [cloud-trials.md]", ran),
        ("each system there.\n\n", "\n\nWhat", "\n".join(f"- *{level}*: {text}" for level, text in LEVELS.items())),
        ("is not covered.\n\n", "\n\n## By hand", "\n".join([*head, *rows])),
        ("hardware and programs\n\n", "\n\n## At night", "\n".join(hands)),
        ("Recorded are:\n\n", "\n\n## What no test", "\n".join(nights)),
    )


def _row(subject: str, files: Mapping[str, list[str]], known: Records, on_cloud: bool) -> str:
    nights = {name: known.nights[name][0] for name in files["nightly"] if name in known.nights}
    part = "" if len(nights) == len(files["nightly"]) else f", {len(nights)} of {len(files['nightly'])} files"
    night = f"{min(nights.values())}{part}" if nights else "no recorded run" if files["nightly"] else NONE
    days = ", ".join(str(hand.day) for hand in known.hands if hand.subject == subject)
    cells = [*(HERE if files[level] else NONE for level in LEVELS if level != "nightly"), night, days or NONE]
    return f"| {' | '.join([subject, *cells, HERE if on_cloud else NONE])} |"
