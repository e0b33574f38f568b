"""`gke-ai upgrade`: says what the installed version changes in a repository, and writes what nobody has changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gke_ai.ops.repository.template import RECORD, Record, copy_wheels, digest, files, stacks_of
from gke_ai.settings import BadConfiguration
from gke_ai.terminal import Stop, printable
from gke_ai.workspace.configuration_file import read_keys, resolve


class Kind(Enum):
    """What is to be done with a file."""

    WRITTEN = "this version writes it"
    YOURS = "you changed it, so it stays as it is. Merge the difference by hand"
    LEFT_OUT = "this version has it no more. Delete it"


@dataclass(frozen=True)
class Difference:
    """A file of the template that differs from what this version writes, which may be nothing."""

    name: str
    kind: Kind
    before: str
    after: str

    def lines(self) -> Iterator[str]:
        """Yields the difference, as `diff -u` shows it."""
        before, after = self.before.splitlines(), self.after.splitlines()
        yield from difflib.unified_diff(before, after, f"a/{self.name}", f"b/{self.name}", lineterm="")


def differences(folder: Path, record: Record, texts: Mapping[str, str]) -> Iterator[Difference]:
    """Yields what differs. What its user changed or deleted is reported only if the template changed too."""
    for name, text in texts.items():
        file, recorded = folder / name, record.files.get(name)
        current = file.read_text(errors="replace") if file.is_file() else None
        if current == text or digest(text) == recorded:
            continue
        is_new = current is None and recorded is None and not file.exists()
        is_ours = not file.is_symlink() and (is_new or (current is not None and digest(current) == recorded))
        yield Difference(name, Kind.WRITTEN if is_ours else Kind.YOURS, current or "", text)
    for name in sorted(record.files.keys() - texts.keys()):
        file = folder / name
        if ".." not in Path(name).parts and file.is_relative_to(folder) and file.is_file():
            yield Difference(name, Kind.LEFT_OUT, "", "")


def mistakes(folder: Path, stacks: Iterable[str]) -> Iterator[str]:
    """Yields what this version refuses in the configurations, such as a key with a former name."""
    for stack in stacks:
        name = f"Pulumi.{stack}.yaml"
        try:
            resolve(read_keys(folder / name), folder)
        except BadConfiguration as bad:
            yield from (f"{name}: {problem}" for problem in bad.problems)
        except Stop as stop:
            yield str(stop)


def upgrade(folder: Path, writes: bool) -> int:
    """Prints what changes, and with `writes` writes it. Returns 1 if something is left for the user, else 0."""
    record, stacks = Record.read(folder), stacks_of(folder)
    if not stacks:
        raise Stop(f"{folder} has no configuration of a stack, such as Pulumi.dev.yaml. Restore it from git.")
    texts = files(stacks)
    found, refused = list(differences(folder, record, texts)), list(mistakes(folder, stacks))
    for name, after in Record().versions.items():
        before = record.versions.get(name, "none")
        print(printable(f"{name} {after}" if before == after else f"{name} {before} → {after}"))
    for difference in found:
        print(printable("\n".join(["", f"{difference.name}: {difference.kind.value}.", *difference.lines()])))
    if refused:
        print(printable("\n".join(["", "This version refuses:", *(f"  - {mistake}" for mistake in refused)])))
    if writes:
        ours = [difference for difference in found if difference.kind is Kind.WRITTEN]
        write(folder, {difference.name: difference.after for difference in ours}, texts)
    by_hand = [difference for difference in found if difference.kind is not Kind.WRITTEN]
    print()
    if not writes and len(found) > len(by_hand):
        print("Nothing was written. Write the files that you have not changed:  gke-ai upgrade --write")
    print(f"What it does to a stack:  gke-ai preview --stack {stacks[0]}")
    return 1 if refused or by_hand else 0


def write(folder: Path, changed: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Writes files, and records every text of this version: what is to be merged by hand is not shown again."""
    for name, text in changed.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(f"Written: {file}")
    (folder / RECORD).write_text(Record.of(texts).text())
    if lacking := copy_wheels(folder):
        print(f"Copy {' and '.join(lacking)} into {folder / 'wheels'}: requirements.txt and the workflows name them.")
