"""What people read has no spelling mistake, and none of the words that docs/prose.yaml replaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from spellchecker import SpellChecker

from maintain.pages import prose
from maintain.pages.prose import Mistake, Rule, mistakes, rules
from tests.support.repository import ROOT, tracked

RULES = rules()


def listed(found_mistakes: list[Mistake]) -> str:
    """The mistakes, one per line."""
    return "\n" + "\n".join(map(str, found_mistakes))


@pytest.mark.parametrize("page", prose.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_uses_plain_words(page: Path) -> None:
    assert not mistakes(page), listed(mistakes(page))


@pytest.mark.parametrize("folder", prose.code())
def test_docstrings_comments_errors_and_output_use_plain_words(folder: str) -> None:
    found_mistakes = [mistake for file in prose.code()[folder] for mistake in mistakes(file)]
    assert not found_mistakes, listed(found_mistakes)


@pytest.mark.parametrize("kind", prose.others())
def test_pictures_workflows_and_configurations_use_plain_words(kind: str) -> None:
    assert prose.others()[kind]
    found_mistakes = [mistake for file in prose.others()[kind] for mistake in mistakes(file)]
    assert not found_mistakes, listed(found_mistakes)


def test_words_of_the_project_are_sorted_and_in_no_dictionary() -> None:
    words = prose.WORDS.read_text().split()
    assert words == sorted(set(words))
    assert SpellChecker().known(words) == set()


def test_generated_pages_exist() -> None:
    for pattern in prose.table()["generated"]:
        assert tracked(pattern), pattern


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.word)
def test_each_rule_finds_its_example(rule: Rule) -> None:
    assert rule.pattern.search(rule.example)
    assert not rule.pattern.search(rule.fine)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.word)
def test_a_replacement_is_no_mistake(rule: Rule) -> None:
    assert [other.word for other in RULES if other.pattern.search(rule.use)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.word)
def test_a_mistake_is_found_in_a_page_a_docstring_and_a_description(rule: Rule, tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text(f"# Page\n\n{rule.example}\n")
    module.write_text(
        f'"""A module.\n\n{rule.example}\n"""\n\n\nclass Key:\n    """A key."""\n\n'
        f"    name: str = Field(description={rule.example!r})\n"
    )
    assert (page.name, 3, rule.use) in [
        (mistake.file, mistake.line, mistake.use) for mistake in mistakes(page, tmp_path)
    ]
    lines = [mistake.line for mistake in mistakes(module, tmp_path) if mistake.use == rule.use]
    assert {3, 10} <= set(lines)


# A sentence with a spelling mistake or a word that the project does not use, in each place that people read.
PLANTED = {
    "page.md": ("# Page\n\nThe pod waits forevery.\n", 3, "forevery"),
    "docstring.py": ('def run():\n    """Runs the taks."""\n', 2, "taks"),
    "comment.py": ("limit = 3  # the higest count\n", 1, "higest"),
    "error.py": ('raise Stop(\n    f"{path}: the pool was not recieved by {name}"\n)\n', 2, "recieved"),
    "output.py": ('print("The nodes are made anew in the stack.")\n', 1, "made anew"),
    "key.py": ('key = Field(description="GPUs per ndoe")\n', 1, "ndoe"),
    "option.py": ('options.add_argument("--base", help="teh base")\n', 1, "teh"),
    "picture.svg": (
        '<svg aria-label="a"><style>text{}</style>\n<text x="1">the behaviour</text></svg>\n',
        2,
        "behaviour",
    ),
    "label.svg": ('<svg aria-label="Nodes of teh pool"></svg>\n', 1, "teh"),
    "comment.yml": ("jobs: {}\n# Without a reviwer\n", 2, "reviwer"),
    "step.yml": ("steps:\n  - name: Depoly it\n", 2, "Depoly"),
    "message.yml": ('run: |\n  echo "::error::Drift was detcted" >&2\n', 2, "detcted"),
    "Makefile": ("up:  ## deploy a stack to the emualtor\n", 1, "emualtor"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_wherever_people_read(name: str, tmp_path: Path) -> None:
    text, line, word = PLANTED[name]
    (tmp_path / name).write_text(text)
    found_mistakes = mistakes(tmp_path / name, tmp_path)
    assert (line, word) in [(mistake.line, mistake.word) for mistake in found_mistakes]
    assert {mistake.line for mistake in found_mistakes} == {line}


def test_names_paths_and_options_are_no_words(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    names = "`clutser`, ops/clutser.py, --clutser, clutser_name, clutser.yaml, https://example.com/clutser"
    module.write_text(
        f'print("These are no words: {names}")\nkey = "clutser"\nquery = "sum by (clutser) (rate(x[5m]))"\n'
    )
    assert mistakes(module, tmp_path) == []


def test_a_mistake_names_its_place_its_word_and_the_replacement(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nEverything is made\nanew.\n")
    first, *_ = mistakes(page, tmp_path)
    assert str(first) == "page.md:3: 'made anew'. Write: recreate, replace or again."


def test_code_addresses_and_comments_are_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "See `whom`, ``whom``, https://example.com/whom and [here](whom.md).\n"
        "<!-- whom\nwhom -->\n\n- a list:\n\n  ```\n  whom\n  ```\n\n```yaml\nwhom: whom\n```\n\n"
        "Then [whom](page.md) again.\n"
    )
    assert [mistake.line for mistake in mistakes(page, tmp_path)] == [15]


def test_words_beside_code_do_not_join(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The key what `x` of is one.\n")
    assert mistakes(page, tmp_path) == []


def test_values_of_a_description_are_not_checked(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('x = Field(description=f"what {WORD} of; the catalogue")\ny = add_argument("--z", help="whom")\n')
    assert [(mistake.line, mistake.word) for mistake in mistakes(module, tmp_path)] == [(1, "catalogue"), (2, "whom")]
