"""Reads YAML that may be a stranger's: in bounded memory and time, as the program reads it that uses it.

kubectl and kustomize read YAML 1.1 through sigs.k8s.io/yaml, and Pulumi reads it with yaml.v3. They differ in booleans
and in merges. Both give JSON: a date is a text, and a key is one too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MAX_BYTES = 2**20
# Far above any configuration: that of prod has about 300 values.
MAX_VALUES = 100_000
MAX_DEPTH = 64  # no object of Kubernetes has as many levels
_MANY = 10**30  # a number that can be printed
_TAG = "tag:yaml.org,2002:"
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_YES = ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON")
_NO = ("n", "N", "no", "No", "NO", "off", "Off", "OFF")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_BASES = (16, 2, 8, 10)
_NOT_FINITE = re.compile(r"\.(nan|NaN|NAN)|[-+]?\.(inf|Inf|INF)")
_BAD_UNDERSCORE = re.compile(r"(?<!\d)_|_(?!\d)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class InvalidDocument(ValueError):
    """A text that is refused. The message continues a sentence about it: "is not valid YAML: …"."""


class Reader(Enum):
    """The program that reads a document.

    Sources: https://github.com/yaml/go-yaml/blob/v2.4.3/resolve.go, https://github.com/yaml/go-yaml/tree/v3.0.4#compatibility.
    """

    KUBECTL = "kubectl"
    PULUMI = "pulumi"


_WORDS = {**dict.fromkeys(_NULL), **dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_CONSTANTS: Mapping[Reader, Mapping[str, bool | None]] = {
    Reader.PULUMI: _WORDS,
    Reader.KUBECTL: {**_WORDS, **dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)},
}


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Composes nodes. The tag of a plain scalar is empty, because the reader decides what it is."""

    def resolve(self, kind: type[yaml.Node], _value: str, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode:
            return "" if implicit[0] else f"{_TAG}str"
        return f"{_TAG}{'map' if kind is yaml.MappingNode else 'seq'}"


def read_file(path: Path, reader: Reader) -> list[Any]:
    """Returns the documents of a file. Raises InvalidDocument."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:  # a device has no end
        raise InvalidDocument(f"is not a file of at most {MAX_BYTES >> 20} MiB.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDocument(f"is not valid YAML: {error}") from None
    return read(text, reader)


def read(text: str, reader: Reader) -> list[Any]:
    """Returns the documents of a text as JSON values. Raises InvalidDocument."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:  # the parser of the next step would overflow its stack
                raise _too_deep()
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
        sizes = dict[int, _Size]()
        if (values := sum(_size(node, sizes).values for node in nodes)) > MAX_VALUES:
            raise InvalidDocument(f"has {values:.0e} values with its aliases. Write it with fewer than {MAX_VALUES}.")
        return [_value(node, reader) for node in nodes]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InvalidDocument(f"is not valid YAML: {line}{str(error.problem)[:500]}.") from None
    except yaml.YAMLError as error:  # such as a control character
        raise InvalidDocument(f"is not valid YAML: {' '.join(str(error).split())[:500]}") from None


class _Size(NamedTuple):
    values: int
    depth: int


def _size(node: yaml.Node, sizes: dict[int, _Size]) -> _Size:
    """How many values and levels a node has once each alias and each merge is a copy."""
    if isinstance(node, yaml.ScalarNode):
        return _Size(1, 0)
    if id(node) not in sizes:
        sizes[id(node)] = _Size(0, 0)  # its own, while it is not known
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        inner = [_size(part, sizes) for part in parts]
        values, depth = sum(size.values for size in inner), max((size.depth for size in inner), default=0)
        sizes[id(node)] = _Size(min(values + 1, _MANY), depth + 1)
    if not sizes[id(node)].values:
        raise InvalidDocument("is not valid YAML: an alias contains itself.")
    if sizes[id(node)].depth > MAX_DEPTH:
        raise _too_deep()
    return sizes[id(node)]


def _too_deep() -> InvalidDocument:
    return InvalidDocument(f"is nested too deeply. Write it with at most {MAX_DEPTH} levels.")


def _value(node: yaml.Node, reader: Reader) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, reader)
    if node.tag == f"{_TAG}seq" and isinstance(node, yaml.SequenceNode):
        return [_value(part, reader) for part in node.value]
    if node.tag == f"{_TAG}map" and isinstance(node, yaml.MappingNode):
        return _mapping(node, reader)
    raise _bad_tag(node)


def _mapping(node: yaml.MappingNode, reader: Reader) -> dict[str, Any]:
    """The last of two equal keys holds. A merge of kubectl replaces keys before it, and one of Pulumi replaces none."""
    own, merged = dict[str, Any](), dict[str, Any]()
    for key, part in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.tag in ("", f"{_TAG}merge"):
            sources = part.value if isinstance(part, yaml.SequenceNode) else [part]
            if not all(isinstance(source, yaml.MappingNode) for source in sources):
                raise _invalid(part, "a merge needs a mapping")
            for source in reversed(sources):
                (own if reader is Reader.KUBECTL else merged).update(_mapping(source, reader))
        else:
            own[_key(key, reader)] = _value(part, reader)
    return {**merged, **own}


def _key(node: yaml.Node, reader: Reader) -> str:
    value = _value(node, reader)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    raise _invalid(node, "a key is a text")


def _scalar(node: yaml.ScalarNode, reader: Reader) -> Any:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "str":
        return text
    if kind not in ("", "bool", "int", "float", "null"):
        raise _bad_tag(node)
    value = _plain(text, reader)
    form = "null" if value is None else type(value).__name__
    if kind not in ("", form) and (kind, form) != ("float", "int"):
        raise _invalid(node, f"{text[:50]!r} is no {kind}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid(node, f"{text} is no number of JSON")
    return value


def _plain(text: str, reader: Reader) -> Any:
    """What a plain scalar is: null, a boolean, an integer, another number or a text."""
    if text in _CONSTANTS[reader]:
        return _CONSTANTS[reader][text]
    if _NOT_FINITE.fullmatch(text):
        return math.nan
    if text[0] not in "+-.0123456789" or (text[0] == "." and _BAD_UNDERSCORE.search(text)):
        return text
    plain = text.replace("_", "")
    if (match := _INTEGER.fullmatch(plain)) and len(plain) < 100:
        sign, *digits = match.groups()
        number = next(int(part, base) for part, base in zip(digits, _BASES, strict=True) if part)
        number = -number if sign == "-" else number
        if -(2**63) <= number < 2**63:
            return number
    if _FLOAT.fullmatch(plain) and math.isfinite(value := float(plain)):
        # JSON of Go writes such a number without a point: https://pkg.go.dev/encoding/json#Marshal
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return text


def _bad_tag(node: yaml.Node) -> InvalidDocument:
    return _invalid(node, f"the tag {node.tag[:100].replace(_TAG, '!!')} is none of JSON. Remove it")


def _invalid(node: yaml.Node, reason: str) -> InvalidDocument:
    return InvalidDocument(f"is not valid YAML: line {node.start_mark.line + 1}: {reason}")
