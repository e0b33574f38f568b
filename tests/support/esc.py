"""A stub of the Pulumi CLI that is logged in to Pulumi Cloud: `pulumi config --json --open`.

It answers as `listConfig` of https://github.com/pulumi/pulumi/blob/v3.250.0/pkg/cmd/pulumi/config/config.go does:
values of `pulumiConfig` by key, objects beside their JSON, nothing of a value that is secret or has a secret inside.
If an environment has an error, it answers as if there were none. It may write a salt into the configuration file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

SECRET = "fn::secret"
FOLDER = "GKE_AI_TEST_ESC"


def install(folder: Path, environments: dict[str, Any]) -> dict[str, str]:
    """Installs the stub, and returns the variables of a shell that finds it."""
    (folder / "environments.json").write_text(json.dumps(environments))
    program = folder / "pulumi"
    program.write_text(f"#!{sys.executable} -I\nimport sys\nsys.path[:0] = {sys.path!r}\n" + _RUN)
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", FOLDER: str(folder)}


_RUN = "from tests.support.esc import main\nmain(sys.argv[1:])\n"


def calls(folder: Path) -> list[list[str]]:
    """The arguments of each call for an environment."""
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main(arguments: list[str]) -> None:
    """Answers a command."""
    folder = Path(os.environ[FOLDER])
    if arguments[0] != "config":
        sys.exit("error: this stub opens environments alone")
    with (folder / "calls").open("a") as log:
        log.write(json.dumps(arguments) + "\n")
    file = Path(arguments[arguments.index("--config-file") + 1])
    content = yaml.safe_load(file.read_text())
    file.write_text(file.read_text() + '\n{"encryptionsalt": "v1:written"}')
    if refusal := os.environ.get(f"{FOLDER}_REFUSAL"):
        sys.exit(f"error: {refusal}")
    print(json.dumps(_answer(content["environment"], json.loads((folder / "environments.json").read_text()))))


def _answer(environment: Any, known: dict[str, Any]) -> dict[str, Any]:
    imports = environment if isinstance(environment, list) else environment.get("imports") or []
    if any(name not in known for name in imports):
        return {}
    values: dict[str, Any] = {}
    own = {} if isinstance(environment, list) else environment.get("values", {}).get("pulumiConfig", {})
    for layer in (*(known[name] for name in imports), own):
        values = _merged(layer, values)
    return {key: _entry(value) for key, value in values.items()}


def _merged(over: Any, below: Any) -> Any:
    if not isinstance(over, dict) or not isinstance(below, dict):
        return over
    return {**below, **{key: _merged(value, below.get(key)) for key, value in over.items()}}


def _entry(value: Any) -> dict[str, Any]:
    text = json.dumps(value)
    if SECRET in text:
        return {"secret": True}
    if isinstance(value, dict | list):
        return {"value": text, "objectValue": value, "secret": False}
    return {"value": value if isinstance(value, str) else text, "secret": False}
