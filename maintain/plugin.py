"""Writes the component package as an executable plugin, which needs no Python: docs/package.md.

    python -m maintain.plugin FOLDER       pulumi-resource-gke-ai-vVERSION-OS-ARCH.tar.gz, with its checksum beside it

It needs the packages of requirements/plugin.lock beside those of the program. PyInstaller puts the interpreter and the
modules that the plugin imports into a folder. An executable of one file would unpack at each start. The plugin runs on
the system and the processor on which it was built.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from emulator.machine.progress import Stop
from gke_ai.catalog.versions import PROJECT_VERSION
from maintain.pack import output, pack, write_checksum
from tests.support.repository import copy_to

NAME = "pulumi-resource-gke-ai"
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# SDKs. Of the first, only the packages that the components use: it has 150.
SDKS = ("pulumi_gcp", "pulumi_kubernetes")
# Packages of the tests' environment that others import if they are there.
OTHERS = ("cryptography", "jax", "mypy", "numpy", "pytest")
# PyInstaller sets the variable to its own libraries. Programs that the plugin starts, such as gcloud's, need theirs.
START = """
import os
before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
os.environ.pop("LD_LIBRARY_PATH", None)
if before:
    os.environ["LD_LIBRARY_PATH"] = before
"""


def main() -> None:
    """Builds the plugin, and writes its archive into a folder."""
    parser = argparse.ArgumentParser(description="Writes the component package as an executable plugin.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{NAME}-v{PROJECT_VERSION}-{system()}.tar.gz"
    try:
        with TemporaryDirectory() as work:
            pack(freeze(Path(work)), file)
    except Stop as stop:
        sys.exit(f"{stop}")
    print(f"{file.name}#sha256={write_checksum(file)}")


def system() -> str:
    """The operating system and the architecture, as Pulumi names them."""
    return f"{sys.platform}-{ARCHITECTURES[platform.machine().lower()]}"


def freeze(work: Path) -> Path:
    """Returns a folder with the executable, built from what the wheel installs."""
    library, stubs, start = work / "library", work / "stubs", work / "start.py"
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    output(*pip, "--target", str(library), str(copy_to(work / "source")))
    start.write_text(START)
    # The sources too, from which descriptions of keys are read.
    options = [f"--runtime-hook={start}", f"--add-data={library / 'gke_ai'}:gke_ai"]
    options += [f"--exclude-module={package}" for package in OTHERS]
    options += [f"--copy-metadata={sdk}" for sdk in SDKS]
    for package in unused(library):
        # The SDK looks each of its packages up when it is imported itself.
        empty = stubs / package / "__init__.py"
        empty.parent.mkdir(parents=True)
        empty.touch()
        options.append(f"--exclude-module={SDKS[0]}.{package}")
    options.append(f"--add-data={stubs}:{SDKS[0]}")
    entry = library / "gke_ai" / "components" / "plugin" / "__main__.py"
    folders = [f"--{name}path={work / name}" for name in ("work", "spec", "dist")]
    environment = {"PYTHONPATH": str(library), "PYINSTALLER_CONFIG_DIR": str(work / "cache")}
    command = [sys.executable, "-P", "-m", "PyInstaller", "--noconfirm", "--log-level=WARN", f"--name={NAME}"]
    output(*command, *folders, *options, str(entry), cwd=work, env=os.environ | environment)
    return work / "dist" / NAME


def unused(library: Path) -> list[str]:
    """The packages of Google's SDK that the library never names, such as `gcp.container`."""
    sources = "\n".join(file.read_text() for file in library.rglob("*.py"))
    used = {*re.findall(r"\bgcp\.([a-z0-9]+)", sources), "config"}
    origin = output(sys.executable, "-P", "-c", f"import {SDKS[0]}; print({SDKS[0]}.__path__[0])").strip()
    return sorted(file.parent.name for file in Path(origin).glob("*/__init__.py") if file.parent.name not in used)


if __name__ == "__main__":
    main()
