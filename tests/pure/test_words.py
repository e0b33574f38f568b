"""What people read has none of the words that CONTRIBUTING.md replaces. `make lint` checks the spelling."""

import re

import pytest

from tests.support.repository import ROOT, tracked

# Words as regular expressions, each with what to write instead.
REPLACED = {
    "stand-ins?": "emulator, stub or substitute",
    "anew": "again, or recreate, replace",
    "mend(s|ed|ing)?": "fix",
    "doors?": "local queue",
    "whom": "who, or a sentence that says who does what",
    "that which|what of": "the name of the thing",
    "thereof|whereof|wherein|whereby|therein|lest": "a shorter sentence",
    "(left|leaves?) unsaid": "omitted",
    "told otherwise": "by default",
    "by intention": "deliberately",
    "in vain": "without use",
    "(can|to) be had": "available",
    "worlds?": "original, scenario or environment",
    "(held|holds?|holding) (it |them )?to the truth": "compared with outcomes",
    "off forms?": "disabled setting",
    "places? in line": "order of creation",
}
READ = {".md", ".py", ".svg", ".yaml", ".yml"}
FILES = [file for file in tracked("**") if file.suffix in READ and "tests" not in file.relative_to(ROOT).parts]


@pytest.mark.parametrize("word", REPLACED)
def test_a_word_that_has_a_better_one_is_not_used(word: str) -> None:
    pattern = re.compile(rf"(?<![\w-])(?:{word})(?![\w-])".replace(" ", r"\s+"), re.I)
    found = [f"{file.relative_to(ROOT)}: {match[0]}" for file in FILES for match in pattern.finditer(file.read_text())]
    assert found == [], f"Write: {REPLACED[word]}"
