"""Runs the shell commands of a composite action as a runner of GitHub does, in a checkout of another repository."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.repository import ROOT

_EXPRESSION = re.compile(r"\$\{\{ *([\w.]+) *\}\}")


def run_action(name: str, inputs: Mapping[str, str], workspace: Path, temporary: Path) -> tuple[int, str]:
    """Returns the exit code of the first step that fails, or 0, and what the steps printed."""
    folder = ROOT / ".github" / "actions" / name
    action = yaml.safe_load((folder / "action.yml").read_text())
    assert all(key in inputs for key, stated in action["inputs"].items() if stated["required"])
    known = {f"inputs.{key}": inputs.get(key, stated.get("default", "")) for key, stated in action["inputs"].items()}
    known["runner.temp"] = str(temporary)
    outputs, printed = temporary / "outputs", ""
    outputs.touch()
    for step in action["runs"]["steps"]:
        if "run" not in step:
            continue
        stated = {
            key: _EXPRESSION.sub(lambda match: known[match[1]], text) for key, text in step.get("env", {}).items()
        }
        places = {"GITHUB_ACTION_PATH": folder, "GITHUB_WORKSPACE": workspace, "GITHUB_OUTPUT": outputs}
        environment = {**os.environ, **{key: str(path) for key, path in places.items()}, **stated}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        both: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, cwd=workspace, env=environment, check=False, **both)
        printed += done.stdout
        if done.returncode:
            return done.returncode, printed
    return 0, printed


def commit(checkout: Path, *words: str) -> None:
    """Runs git commands in a checkout as somebody: `commit(checkout, "init …", "add .")`."""
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false"]
    for line in words:
        subprocess.run(["git", *identity, *line.split()], cwd=checkout, check=True, capture_output=True)
