"""Statements of pages that the code can confirm or refute: commands, paths, keys and names."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_snake

from gke_ai.catalog.section_files import PREFIX
from gke_ai.cli.verbs import gke_ai
from gke_ai.components import every_component
from gke_ai.settings.model import Section, Settings
from gke_ai.settings.reading import section_types
from gke_ai.settings.schema import schema
from gke_ai.settings.secrets import SECRETS
from gke_ai_outputs.model import parts
from tests.support import repository
from tests.support.repository import ROOT

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<content>.*?)^ *```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# What `emulator/run` starts besides its own commands and the programs in emulator/bin.
PROGRAMS = {"helm", "kubectl", "pulumi", "pytest", "python", "CMD…"}
# Modules of Python and of others.
FOREIGN_MODULES = {"venv", "pip", "sglang", "vllm", "ensurepip"}
# Dotted names that begin like a key and are none: a role.
FOREIGN_PATHS = {"monitoring.editor"}
# In programs of other languages, with the same prefix.
COMPONENTS = {component.__name__ for component in every_component()}


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @cached_property
    def blocks(self) -> list[tuple[str, str]]:
        return [(block["language"], block["content"]) for block in FENCE.finditer(self.text)]

    @cached_property
    def spans(self) -> list[str]:
        return SPAN.findall(FENCE.sub("", self.text))

    @cached_property
    def commands(self) -> list[str]:
        """Lines that a reader may run, without comments."""
        shell = [content for language, content in self.blocks if language in ("", "sh", "bash", "console")]
        lines = [line for content in shell for line in content.replace("\\\n", " ").splitlines()]
        return [re.split(r" #|^#", line)[0] for line in [*lines, *self.spans]]


def commands(page: Page) -> Iterator[str]:
    """Targets, variables, modules and options that do not exist."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    variables = {
        name
        for names in re.findall(r"^(?:INPUTS|OTHERS) := ((?:.*\\\n)*.*)$", makefile, re.M)
        for name in names.split()
    }
    for line in page.commands:
        for part in re.split(r"[|;&]+|\$\(", line):
            words = part.split()
            if words[:1] == ["make"]:
                yield from (f"make {word}" for word in words[1:2] if word not in targets and word.islower())
                stated = re.findall(r"\b([A-Z]+)=", " ".join(words[2:]))
                yield from (f"{words[1]}: no variable {name}" for name in stated if name not in variables)
            if (found := re.match(r"(?:emulator/run )?(?:gke-ai|python3? -m gke_ai) +(\S.*)", part.strip())) and (
                wrong := _verb(found[1])
            ):
                yield wrong
            if (run := re.match(r"(?:\S*/)?emulator/run (?:--tools \S+ )?(\S+)", part.strip())) and not _runs(run[1]):
                yield f"emulator/run {run[1]}"
            module = re.search(r"\bpython3? -m ([\w.]*\w)(.*)", part)
            if module:
                yield from _module(module[1], module[2])


def _verb(text: str) -> str:
    """What is wrong with a verb of `gke-ai` and its options, if anything."""
    name, *words = text.partition(" -- ")[0].split()  # what follows is the command of a container
    if name.isupper() or name.startswith("-"):
        return ""
    if name not in gke_ai.commands:
        return f"gke-ai {name}"
    known = {option for parameter in gke_ai.commands[name].params for option in parameter.opts} | {"--help"}
    stated = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((f"gke-ai {name} {option}" for option in stated if option not in known), "")


def _runs(word: str) -> bool:
    """Whether `emulator/run` knows a command."""
    lines = re.findall(r'^modules="(.*)"', (ROOT / "emulator" / "run").read_text(), re.M)
    verbs = [module.rpartition(".")[2] for line in lines for module in line.split()]
    return word.isupper() or word in (*PROGRAMS, *verbs) or (ROOT / "emulator" / "bin" / word).exists()


def _module(name: str, rest: str) -> Iterator[str]:
    path = ROOT / name.replace(".", "/")
    if name.partition(".")[0] in FOREIGN_MODULES or name == "gke_ai":
        return
    if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
        yield f"python -m {name}"
        return
    code = "".join(file.read_text() for file in (ROOT / name.partition(".")[0]).rglob("*.py"))
    yield from (f"{name} {option}" for option in re.findall(r"--[a-z][a-z-]*", rest) if f'"{option}"' not in code)


def paths(page: Page) -> Iterator[str]:
    """Paths in code whose first folder exists, and that do not exist themselves. Also folders in a row of another."""
    for folder, row in re.findall(r"^\| `([\w./]+)/`(.*)$", page.text, re.M):
        inside = (f"{name}/" for name in re.findall(r"`(\w+)/`", row))
        yield from (name for name in inside if not {ROOT / name, ROOT / folder / name} & tracked())
    for word in [word for line in page.commands for word in line.split()]:
        name = re.sub(r"(::.*|:\d+|[,;])$", "", word.strip("\"'"))
        if not re.fullmatch(r"(?:[\w.-]+/)+[\w.-]*", name) or re.search(r"\b[A-Z]{3,}\b", name):
            continue
        candidates = [base / name for base in (ROOT, page.path.parent) if base / name.partition("/")[0] in tracked()]
        if candidates and not tracked().intersection(candidates):
            yield name


@cache
def tracked() -> frozenset[Path]:
    files = repository.tracked("**/*")
    return frozenset(path for file in files for path in (file, *file.parents) if path.is_relative_to(ROOT))


def keys(page: Page) -> Iterator[str]:
    """Keys of the configuration, and values of keys, that do not exist; blocks that the schema refuses."""
    for path in re.findall(rf"{PREFIX}[a-zA-Z]+(?:\[\d*\]|\.[a-zA-Z]+)*", page.text):
        if path.removeprefix(PREFIX) not in COMPONENTS and not _resolves(path.removeprefix(PREFIX), [Settings]):
            yield path
    with_sections = {key for key, field in _fields() if section_types(field.annotation)}
    for span in page.spans:
        if re.fullmatch(r"[a-zA-Z]+(\[\w*\])?(\.[a-zA-Z]+(\[\w*\])?)+", span):
            first = re.split(r"[.\[]", span)[0]
            if (
                first in with_sections
                and span not in FOREIGN_PATHS
                and not span.endswith(".py")
                and not _resolves(span, list(sections().values()))
                and not _is_output(span)
            ):
                yield span
        elif stated := re.fullmatch(r"([a-z][a-zA-Z]+): ([\w-]+)", span):
            forms = [field for key, field in _fields() if key == stated[1]]
            if forms and not any(_accepts(field, yaml.safe_load(stated[2])) for field in forms):
                yield span
    for language, content in page.blocks:
        if language == "yaml":
            yield from _refused(content)


def _resolves(path: str, owners: Sequence[type[Section]]) -> bool:
    first, *rest = re.sub(r"\[\w*\]", "", path).split(".")
    if owners == [Settings] and not rest and first in {secret.key for secret in SECRETS}:
        return True
    fields = [field for owner in owners for field in owner.model_fields.values() if field.alias == first]
    if not rest:
        return bool(fields)
    below = [section for field in fields for section in section_types(field.annotation)]
    plain_maps = any(not section_types(field.annotation) and "dict[" in str(field.annotation) for field in fields)
    return plain_maps or (bool(below) and _resolves(".".join(rest), below))


@cache
def sections() -> dict[str, type[Section]]:
    """Every class that the configuration of a stack can have, by name."""
    found: dict[str, type[Section]] = {}

    def visit(section: type[Section]) -> None:
        if section.__name__ not in found:
            found[section.__name__] = section
            for field in section.model_fields.values():
                for inner in section_types(field.annotation):
                    visit(inner)

    visit(Settings)
    return found


def _fields() -> list[tuple[str, Any]]:
    return [(str(field.alias), field) for section in sections().values() for field in section.model_fields.values()]


def _accepts(field: Any, value: object) -> bool:
    if section_types(field.annotation):
        return False
    try:
        TypeAdapter(field.annotation).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _outputs() -> frozenset[str]:
    return frozenset(re.sub(r"\[\]", "", path).rstrip(".") for _, path in parts())


def _is_output(path: str) -> bool:
    plain = re.sub(r"\[\w*\]", "", path)
    return plain in _outputs() or plain.rpartition(".")[0] in _outputs()


def _refused(content: str) -> Iterator[str]:
    """What the schema refuses in a block with keys of a stack."""
    if "…" in content or not re.search(rf"^ *{PREFIX}", content, re.M):
        return
    try:
        loaded = yaml.safe_load(content)
    except yaml.YAMLError as error:
        yield f"no YAML: {getattr(error, 'problem_mark', '')} {getattr(error, 'problem', error)}"
        return
    for refusal in _validator().iter_errors(loaded if "config" in loaded else {"config": loaded}):
        yield f"{'.'.join(map(str, refusal.absolute_path))}: {refusal.message[:100]}"


@cache
def _validator() -> jsonschema.protocols.Validator:
    return jsonschema.Draft202012Validator(schema())


def names(page: Page) -> Iterator[str]:
    """Names such as `nodesPerZone` that no file of code or configuration has, as written or in snake_case."""
    for span in page.spans:
        if re.fullmatch(r"[a-z]+[A-Z][a-zA-Z]*", span) and not {span, to_snake(span)} & _words():
            yield span


@cache
def _words() -> frozenset[str]:
    files = [path for path in repository.tracked("**/*") if path.suffix not in (".md", ".svg")]
    # A test of a name that must not exist has it.
    texts = [path.read_text(errors="ignore") for path in files if not path.name.startswith("test_")]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


CHECKS: Mapping[str, Callable[[Page], Iterator[str]]] = {
    "commands": commands,
    "paths": paths,
    "keys": keys,
    "names": names,
}
