"""Reads the arguments of an engine as the parser of its pinned release does, and says which of them it refuses.

`gke_ai/catalog/engines/vllm_flags.json` has the flags of vLLM. `python -m maintain.real_vllm.flags` asks vLLM's own
parser for them. It is `argparse`, with underscores like dashes, and with keys of JSON as flags of their own
(`--a.b=1`): https://github.com/vllm-project/vllm/blob/v0.31.0/vllm/utils/argparse_utils.py, `FlexibleArgumentParser`.
"""

from __future__ import annotations

import json
import re
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

from pydantic_core import SchemaValidator, ValidationError

from gke_ai.catalog.tables import table
from gke_ai.settings.problems import closest, sentence

# No server has as many arguments, or such deep JSON: what is beyond is not read.
MOST, MOST_KEYS = 1000, 64
_NEGATIVE = re.compile(r"-(\d+|\d*\.\d+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])")
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TEXTS = re.compile(r'("(?:[^"\\]|\\.)*(?:"|$))')  # with one that does not end, so that no text is read twice
Flag = Mapping[str, Any]


@dataclass(frozen=True)
class Mistake:
    """An argument that the release refuses. One of `names` may be meant instead of `text`."""

    index: int
    remedy: str
    text: str = ""
    names: Sequence[str] = ()
    flag: Flag = field(default_factory=dict)

    @property
    def is_unknown(self) -> bool:
        """Whether the release does not have the flag, rather than refuse its value."""
        return self.text.startswith("--") and not self.flag

    @property
    def advice(self) -> str:
        """What to write instead."""
        return closest(self.text[:100], self.names) or self.remedy


@dataclass
class Reading:
    """Arguments as the engine reads them.

    Attributes:
        texts: The arguments.
        dashes: What precedes a name in messages.
        values: The value of each flag by its name, without dashes. The last one counts.
        names: The flag that each argument sets. Empty: it is the value of the one before.
        abbreviated: The flags of arguments that abbreviate one, by the number of the argument.
        mistakes: What the release refuses.
    """

    texts: Sequence[str] = ()
    dashes: str = "--"
    values: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    abbreviated: dict[int, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)


def _size(text: str) -> int:
    if (match := _SIZE.fullmatch(text.strip())) is None:
        return int(text)
    number, unit = match.groups()
    return int((int if unit.isupper() else float)(number) * _UNITS[unit])


def _json_of_sizes(text: str) -> Any:
    parts = _TEXTS.split(text)
    parts[::2] = [re.sub(rf"\b(?:{_SIZE.pattern})\b", lambda match: str(_size(match[0])), part) for part in parts[::2]]
    return json.loads("".join(parts))


# How a text becomes a value, and what to write, by the kind in the file. A schema of pydantic then checks the value.
KINDS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "text": (str, "a text"),
    "integer": (int, "an integer"),
    "number": (float, "a number"),
    "size": (_size, "an integer, such as 8192 or 8k"),
    "length": (lambda text: -1 if text.strip().lower() == "auto" else _size(text), "an integer, such as 8192, or auto"),
    "json": (json.loads, 'JSON, such as {"key": 1}'),
    "json with sizes": (_json_of_sizes, 'JSON, such as {"key": 1}'),
    "upper": (str.upper, "a name"),
    "lower": (lambda text: text.lower().replace("-", "_"), "a name"),
}


def value_of(flag: Flag, text: str) -> Any:
    """The value that a flag reads from a text. Raises ValueError with what the value should be."""
    if text in ("", "None") and flag.get("optional"):
        return text
    convert, noun = KINDS[flag.get("kind", "text")]
    noun += ", without quotes around it" * (text[:1] in ("'", '"'))
    try:
        value = convert(text)
        return SchemaValidator(flag["schema"]).validate_python(value) if "schema" in flag else value
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(": ".join([*map(str, first["loc"]), first["msg"]])) from None
    except (ValueError, OverflowError, RecursionError):
        raise ValueError(f"Input should be {noun}") from None


class _Set(Action):
    """Notes the value of a flag, and what the release refuses of it."""

    def __init__(self, *names: Any, flag: Flag, **keywords: Any) -> None:
        super().__init__(*names, **keywords)
        self.flag = flag

    def __call__(self, _: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        reading, index = namespace.reading, namespace.index
        is_off = self.nargs == 0 and option == f"--no-{self.dest}"
        if namespace.written not in self.option_strings:
            reading.abbreviated[index] = (option or "").lstrip("-")
        name, other = (f"no-{self.dest}", self.dest) if is_off else (self.dest, f"no-{self.dest}")
        texts = values if values and isinstance(values, list) else [values or ""]
        reading.values.pop(other, None)
        for number, text in enumerate(texts):
            try:
                value = value_of(self.flag, text)
                texts[number] = str(value) if isinstance(value, int | float) else text
            except ValueError as error:
                names = tuple(map(str, self.flag.get("schema", {}).get("expected", ())))
                remedy = str(error)[:300].replace("Input", "The value")
                reading.mistakes.append(Mistake(index, remedy, text, names, self.flag))
        reading.names[index], reading.values[name] = name, " ".join(texts)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgumentError(None, message)


@cache
def flags_of(file: str) -> Mapping[str, Flag]:
    """The flags of a file in the catalog, by their name without dashes."""
    flags: Mapping[str, Flag] = table(file)["flags"] if file else {}
    return flags


@cache
def _parser(file: str) -> _Parser:
    parser = _Parser(add_help=False, argument_default=SUPPRESS, exit_on_error=False)
    for name, flag in flags_of(file).items():
        off = [f"--no-{name}"] if flag.get("takes") == "on or off" else []
        nargs = 0 if flag.get("takes") in ("nothing", "on or off") else flag.get("takes")
        parser.add_argument(f"--{name}", *off, *flag.get("names", ()), action=_Set, dest=name, nargs=nargs, flag=flag)
    return parser


@cache
def read(arguments: tuple[str, ...], file: str) -> Reading:
    """Reads arguments by the flags of a file in the catalog. Without a file, nothing is known of them."""
    reading, flags, parser = Reading(arguments, names=[""] * len(arguments)), flags_of(file), _parser(file)
    values, mistakes, known = reading.values, reading.mistakes, [f"--{name}" for name in flags]
    for group in _groups(arguments[:MOST]):
        (index, first), texts = group[0], [text for _, text in group]
        spelled = first.partition("=")[0]
        is_unknown = is_flag = first.startswith("-") and first != "--" and not _NEGATIVE.fullmatch(first)
        try:
            left = parser.parse_known_args(texts, Namespace(reading=reading, index=index, written=spelled))[1]
            if is_unknown := is_flag and left[:1] == texts[:1]:
                mistakes.append(Mistake(index, "Remove it", spelled, known))
            else:
                places = dict.fromkeys(place for place, text in group[len(group) - len(left) :] if text != "--")
                mistakes += [Mistake(place, "It belongs to no flag") for place in places]
        except ArgumentError as error:
            remedy = sentence(error.message)[:300].replace("Ignored explicit argument", "It takes no value. Remove")
            mistakes.append(Mistake(index, remedy))
        if is_unknown:
            name, equals, value = first.lstrip("-").partition("=")
            reading.names[index] = name
            values[name] = value if equals else " ".join(texts[1:2])
    looked_at = (None, *values)
    mistakes[:] = [
        item for item in mistakes if item.flag.get("unless") not in values and item.flag.get("with") in looked_at
    ]
    for name in values:
        if (needed := flags.get(name, {}).get("needs")) and needed not in values:
            mistakes.append(Mistake(reading.names.index(name), f"Add --{needed}"))
    return reading


def _groups(arguments: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Each flag with the arguments after it, and their numbers. Keys of JSON come last, together."""
    objects: dict[str, tuple[int, dict[str, Any]]] = {}
    group: list[tuple[int, str]] = []
    rest = iter(enumerate(arguments))
    for index, text in rest:
        if text.startswith("-O"):
            text = f"--optimization-level={text[2:].removeprefix('=')}" if text != "-O" else "--optimization-level"
        name, equals, value = text.partition("=")
        if name.startswith("--"):
            flag, dot, keys = name.partition(".")
            name = flag.replace("_", "-") + dot + keys
        if name.startswith("-") and 0 < name.count(".") < MOST_KEYS:
            value = value if equals else next(rest, (index, ""))[1]
            name, plus, _ = name.partition("+") if name.endswith("+") else (name, "", "")
            *path, last = name.split(".")
            added = {last: value.split(",") if plus else _json_or_text(value)}
            for key in reversed(path[1:]):
                added = {key: added}
            _merge(objects.setdefault(path[0], (index, {}))[1], added)
            continue
        starts = name.startswith("-") and " " not in name and not _NEGATIVE.fullmatch(name) and name != "--"
        if group and starts and "--" not in [text for _, text in group]:
            yield group
            group = []
        group.append((index, name + equals + value))
    yield from [group] if group else []
    yield from ([(index, flag), (index, json.dumps(value))] for flag, (index, value) in objects.items())


def _json_or_text(text: str) -> Any:
    for convert in (json.loads, _size) if text.count("{") + text.count("[") < MOST_KEYS else ():
        try:
            return convert(text)
        except (ValueError, OverflowError, RecursionError):
            continue
    return text


def _merge(values: dict[str, Any], added: Mapping[str, Any]) -> None:
    for key, value in added.items():
        old = values.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        else:
            values[key] = old + value if isinstance(old, list) and isinstance(value, list) else value
