"""Empty libraries in place of CUDA's, which the package of PyTorch links and a server on the CPU never calls.

CUDA's own are three more gigabytes. Every function of these returns an error, so PyTorch finds no device.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

CUDA = re.compile(r"(__)?(cu|nccl|nv)")
NO_DEVICE = 100  # cudaErrorNoDevice: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html


def write(torch: Path) -> None:
    """Writes the libraries beside those of PyTorch, where its loader looks for them."""
    objects = [*map(str, sorted((torch / "lib").glob("*.so"))), *map(str, torch.glob("*.so"))]
    versioned: dict[str, set[str]] = {}
    for symbol, version in undefined(objects):
        versioned.setdefault(version, set()).add(symbol)
    versions = dict(versions_of(objects))
    for library in sorted(needed(objects)):
        # Functions without a version are found in any library.
        version = versions.get(library, "")
        source = "\n".join(f"long {symbol}(void) {{ return {NO_DEVICE}; }}" for symbol in sorted(versioned[version]))
        compile_library(torch / "lib" / library, source, version)


def compile_library(file: Path, source: str, version: str) -> None:
    """Compiles a library whose functions all have one version, or none."""
    script = file.with_suffix(".map")
    script.write_text(f"{version} {{ global: *; }};")
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{file.name}"]
    flags += [f"-Wl,--version-script={script}"] if version else []
    subprocess.run(["cc", *flags, "-x", "c", "-", "-o", str(file)], input=source, text=True, check=True)
    script.unlink()


def undefined(objects: list[str]) -> Iterator[tuple[str, str]]:
    """Names and versions of the functions of CUDA that these libraries call."""
    for line in output("nm", "-D", "--undefined-only", *objects):
        symbol, _, version = line.split()[-1].partition("@") if line.split() else ("", "", "")
        if CUDA.match(symbol):
            yield symbol, version.lstrip("@")


def needed(objects: list[str]) -> set[str]:
    """Names of CUDA's libraries that these link. The driver's is always loaded later."""
    names = re.findall(r"\(NEEDED\).*\[lib((?:cu|nccl|nv).*)\]", "\n".join(output("readelf", "-d", *objects)))
    return {f"lib{name}" for name in names if not name.startswith("cuda.so")}


def versions_of(objects: list[str]) -> Iterator[tuple[str, str]]:
    """Names of libraries, each with the version of its functions."""
    library = ""
    for line in output("readelf", "--wide", "--version-info", *objects):
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif (match := re.search(r"Name: (\S+)", line)) and CUDA.match(library.removeprefix("lib")):
            yield library, match[1]


def output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
