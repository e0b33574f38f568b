"""Small faults that the tests must find, in `faults.yaml`: whoever changes the code or the tests keeps what they show.

A test that was made faster, merged or moved can lose an assertion without anybody seeing it. `make faults` puts each
fault into a copy of the checkout, and runs the tests that must fail by an assertion about it.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FILE = Path(__file__).with_name("faults.yaml")


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make, and the tests that find it."""

    name: str
    """The fault in plain words."""
    file: str
    """The file that has it, from the root of the repository."""
    old: str
    """Text that occurs once in the file."""
    new: str
    """Text with the fault, in place of the old text."""
    tests: tuple[str, ...]
    """Ids of the tests that must fail. Without parameters, one of the cases must fail."""
    expected: str
    """A regular expression for the message of the assertion. Another failure, such as of an import, finds nothing."""
    end_to_end: bool = False
    """Whether a test needs the engine or a cluster."""

    def applied(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError if it does not apply to this text."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} has its old text {count} times. Port the fault to the file.")
        return text.replace(self.old, self.new)

    def problems(self, root: Path = ROOT) -> list[str]:
        """Why the fault no longer applies to a checkout. Does not run its tests."""
        try:
            text = (root / self.file).read_text()
            if (changed := self.applied(text)) == text:
                return [f"{self.name}: its new text is its old text"]
            compiles(self.file, changed)
            re.compile(self.expected)
        except (OSError, SyntaxError, ValueError, re.error, yaml.YAMLError) as error:
            return [str(error)]
        return [f"{self.name}: there is no test {test}" for test in self.tests if not exists(test, root)]


def read(file: Path = FILE) -> list[Fault]:
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in yaml.safe_load(file.read_text())]


def compiles(file: str, text: str) -> None:
    """Raises SyntaxError or YAMLError if a file with this text would not even be read."""
    if file.endswith(".py"):
        ast.parse(text)
    elif file.endswith(".yaml"):
        yaml.safe_load(text)


def exists(test: str, root: Path) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    if not (root / file).is_file():
        return False
    tree = ast.parse((root / file).read_text())
    return function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
