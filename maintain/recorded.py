"""Records the states of a version's stacks: deploys each system to an emulator and exports its state.

    emulator/run python -m maintain.recorded [CHECKOUT] [SYSTEM…]

CHECKOUT is another checkout of this project (`git worktree add FOLDER TAG`). Default: this checkout. Existing records
stay unchanged. See docs/upgrading.md.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support import repository
from tests.support.recorded import FOLDER, recorded
from tests.support.repository import ROOT

STACK = "recorded"
# The version of checkouts without PROJECT_VERSION.
NAMELESS = "0.2.0"


def main() -> None:
    """Records all systems of the checkout, or those in the arguments."""
    arguments = sys.argv[1:]
    root = Path(arguments.pop(0)).resolve() if arguments and Path(arguments[0]).is_dir() else ROOT
    files = {file.stem.removeprefix("Pulumi."): file for file in repository.configurations(root)}
    folder = FOLDER / version(root)
    folder.mkdir(exist_ok=True)
    for name in arguments or sorted(files):
        if not (folder / f"{name}.json").exists():
            (folder / f"{name}.json").write_text(of(root, files[name]))
            print(f"recorded {folder.name}/{name}.json")


def version(root: Path) -> str:
    match = re.search(r'^PROJECT_VERSION = "(.+)"$', (package(root) / "catalog" / "versions.py").read_text(), re.M)
    return match[1] if match else NAMELESS


def package(root: Path) -> Path:
    """The folder of what a checkout imports: the root in versions before the package `gke_ai`."""
    return root / "gke_ai" if (root / "gke_ai").exists() else root


def of(root: Path, file: Path) -> str:
    """Returns the record of a system.

    The checkout deploys it to a new emulator, which is deleted afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="gke-ai-") as state:

        def run(*command: str) -> str:
            # Without the folders of this checkout: each emulator/run also finds plugins that are elsewhere on PATH.
            path = os.pathsep.join(folder for folder in os.get_exec_path() if not Path(folder).is_relative_to(ROOT))
            environment = {**os.environ, "GKE_AI_STATE": state, "PATH": path}
            process = subprocess.run(
                [str(root / "emulator" / "run"), *command], cwd=root, env=environment, text=True, capture_output=True
            )
            if process.returncode:
                sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{process.stdout}{process.stderr}")
            return process.stdout

        config: dict[str, Any] = yaml.safe_load(file.read_text())["config"]
        cluster = config.get("gke-ai:cluster", {})
        if cluster.get("mode") == "existing":
            mode = cluster.get("existingMode", "standard")
            run("existing", "create", cluster["name"], "--mode", mode, "--location", cluster["location"])
        if secret := config.get("gke-ai:hfTokenSecret"):
            run("existing", "secret", secret, "--project", config["gcp:project"])
        try:
            run(*deploying(root), "up", "--stack", STACK, "--config", str(file))
            exported = run("pulumi", "stack", "export", "--stack", STACK, "--show-secrets", "--non-interactive")
            return recorded(json.loads(exported)["deployment"], STACK, config)
        finally:
            for folder in (Path(state) / "clusters").glob("*"):
                run("python", "-c", f"import emulator.cluster; emulator.cluster.delete({folder.name!r})")


def deploying(root: Path) -> tuple[str, ...]:
    """The command of a checkout, perhaps of an earlier version, that runs a verb on its emulator."""
    if (package(root) / "cli").is_dir():
        return ("gke-ai",)
    return ("python", "-m", "gke_ai.workspace.emulated" if package(root) != root else "ops.emulated")


if __name__ == "__main__":
    main()
