"""`make sdks FOLDER=…`: SDKs of the package for Node, Go and Python, and its examples in each language and in YAML."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emulator.setup.toolchain import GO_FLAGS
from gke_ai.components import every_component
from gke_ai.components.plugin.__main__ import Package
from maintain.sdks.examples import programs

GENERATOR = Path(__file__).with_name("generator")
# What the programs use of the package `kubernetes`.
KUBERNETES: dict[str, Any] = {
    "name": "kubernetes",
    "version": "4.33.0",
    "provider": {"inputProperties": {"kubeconfig": {"type": "string"}}},
    "language": {"go": {"importBasePath": "github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"}},
}


def write(folder: Path) -> None:
    """Writes `sdk/LANGUAGE` and `examples/LANGUAGE/COMPONENT` into a folder.

    Raises:
        CalledProcessError: Go could not build the generator, or it failed. Its output says why.
    """
    schema = json.loads(Package(every_component()).schema or "")
    for content in (schema, KUBERNETES):
        put(folder / "schemas" / f"{content['name']}.json", json.dumps(content))
    for name, program in programs(every_component()).items():
        put(folder / "programs" / f"{name}.pp", program.pcl())
        put(folder / "examples" / "yaml" / name / "Pulumi.yaml", program.yaml(name))
    with TemporaryDirectory() as built:
        program_file = str(Path(built, "generator"))
        subprocess.run(["go", "build", *GO_FLAGS, "-o", program_file, "."], cwd=GENERATOR, check=True)
        subprocess.run([program_file, str(folder)], check=True)


def put(file: Path, text: str) -> None:
    """Writes a file, and its folder if it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def main() -> None:
    """Writes the SDKs and the examples into the folder of the command line."""
    parser = argparse.ArgumentParser(prog="python -m maintain.sdks", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder to write to")
    try:
        write(parser.parse_args().folder)
    except subprocess.CalledProcessError as failure:
        sys.exit(failure.returncode)


if __name__ == "__main__":
    main()
