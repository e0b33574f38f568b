"""Runs a command on one stack of the emulator, for `make up`, `preview`, `report`, `status`, `smoke` and others.

    emulator/run python -m gke_ai.ops.emulated up [--stack dev] [--config examples/x.yaml]

Pulumi writes into the configuration file of its command, so every command works on a copy in the emulator's state.
This module uses the emulator only through its commands.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gke_ai.catalog.versions import JOBSET_CHART
from gke_ai.ops import crds, down, logs, recover, runs, smoke, status
from gke_ai.ops.configuration_file import read_configuration
from gke_ai.ops.stack import ROOT, Stack, Stop, on_emulator, run

POLICIES = ["--policy-pack", str(ROOT / "policy")]
# Commands that need everything that the configuration expects to exist.
DEPLOYING = {"up", "preview", "policies", "preview-json", "report"}


def main() -> None:
    """Runs one command on one stack."""
    parser = argparse.ArgumentParser(prog="gke_ai.ops.emulated", description=__doc__)
    parser.add_argument("command", choices=[*COMMANDS, *COMMANDS_OF_A_RUN, "report"])
    parser.add_argument("--stack", default="", help="name of the stack. Default: name of the configuration, or dev")
    parser.add_argument("--config", default="", help="configuration file. Default: Pulumi.<stack>.yaml")
    parser.add_argument("--prices", type=Path, help="price table for the report")
    parser.add_argument("--rehearsal", type=Path, help="result of make rehearse, for the report")
    parser.add_argument("--simulation", type=Path, help="result of make simulate, for the report")
    parser.add_argument("--run", default="", help="name of the run, for logs and remove-run")
    status.add_selection(parser)
    options = parser.parse_args()
    if not on_emulator():
        raise Stop(f"Run this on the emulator:  emulator/run python -m gke_ai.ops.emulated {options.command}")
    name = options.stack or (Path(options.config).stem if options.config else "dev")
    if options.command in COMMANDS_OF_A_RUN and not options.run:
        raise Stop(f"Name the run:  make {options.command} RUN=…    To list the runs:  make runs")
    source = Path(options.config) if options.config else None
    stack = prepare(name, source, deploying=options.command in DEPLOYING)
    if options.command in COMMANDS_OF_A_RUN:
        COMMANDS_OF_A_RUN[options.command](stack, options.run)
    elif options.command == "status":
        status.show(stack, status.selection_of(options))
    elif options.command == "report":
        files = {"--prices": options.prices, "--rehearsal": options.rehearsal, "--simulation": options.simulation}
        make_report(stack, files)
    else:
        COMMANDS[options.command](stack)


def emulator(*command: str) -> str:
    """Returns what a command of the emulator prints. If it fails, this command exits with its exit code."""
    done = subprocess.run([str(ROOT / "emulator" / "run"), *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def ready(config: Path) -> dict[str, Any]:
    """Prepares the emulator for a configuration and returns its report: `emulator/run ready --help`."""
    answer: dict[str, Any] = json.loads(emulator("ready", str(config)))
    return answer


def copies() -> Path:
    """Returns the folder of the copied configurations."""
    return Path(os.environ["GKE_AI_STATE"]) / "config"


def prepare(name: str, source: Path | None, deploying: bool = False) -> Stack:
    """Returns a stack with a fresh copy of its configuration.

    The configuration is `source`, else the one of the previous command, else Pulumi.<name>.yaml. With `deploying`,
    stops if the configuration expects something that the emulator lacks, such as an existing cluster.
    """
    copy = copies() / f"Pulumi.{name}.yaml"
    remembered = copies() / f"{name}.source"
    if source is None:
        named = remembered.read_text() if remembered.exists() else ""
        source = Path(named) if named else ROOT / f"Pulumi.{name}.yaml"
    if not source.exists() and not copy.exists():
        raise Stop(f"There is no configuration {source}. Set one: CONFIG=examples/mixed-training-inference.yaml")
    chosen = source if source.exists() else copy
    try:
        read_configuration(chosen)
    except Stop as broken:
        if deploying or chosen == copy or not is_readable(copy):
            raise
        print(f"{broken} This command uses the configuration of the one before.", file=sys.stderr)
        chosen = copy
    answer = ready(chosen)
    if chosen == source:
        write_copy(source, copy, answer["defaults"])
        remembered.write_text(str(source.absolute()))
    if deploying and (missing := answer["missing"]):
        problem, command = missing["what"], missing["command"]
        raise Stop(f"{problem}; nothing was changed.\nCreate it:  {command}\nThen run this again.")
    return Stack(name, copy)


def is_readable(file: Path) -> bool:
    """Whether a configuration file is valid YAML with keys."""
    try:
        return bool(read_configuration(file))
    except Stop:
        return False


def write_copy(source: Path, copy: Path, defaults: Mapping[str, Any]) -> None:
    """Copies a configuration. Adds the emulator's project, and the secrets that Pulumi encrypted in the last copy.

    Secrets of the source stay out: only its own secrets provider can decrypt them, and the emulator has dummy values.
    """
    stated = read_configuration(source).get("config") or {}
    earlier = read_configuration(copy) if is_readable(copy) else {}
    if copy.exists() and not earlier:
        print(
            f"{copy} is damaged and is written again. Set its secrets again: pulumi config set --secret.",
            file=sys.stderr,
        )
    secrets = {key: value for key, value in (earlier.get("config") or {}).items() if is_secret(value)}
    config = {**defaults, **secrets, **{key: value for key, value in stated.items() if not is_secret(value)}}
    content = {key: earlier[key] for key in ("encryptionsalt", "secretsprovider") if key in earlier} | {
        "config": config
    }
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(yaml.safe_dump(content, sort_keys=False))


def is_secret(value: object) -> bool:
    """Whether `pulumi config set --secret` wrote this configuration value."""
    return isinstance(value, dict) and value.keys() == {"secure"}


def ensure(stack: Stack) -> None:
    """Creates the stack if it does not exist."""
    if stack.pulumi("stack", "select", quiet=True).returncode:
        stack.refuse_damaged()
        # `stack init` has no option for the configuration file and writes to its folder, so it runs beside the copy.
        (copies() / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
        done = stack.pulumi("stack", "init", "-C", str(copies()), quiet=True)
        if done.returncode:
            raise Stop(done.stderr.strip())


def mandatory(stack: Stack) -> bool:
    """Whether a violation of the policy pack stops a deployment of the stack."""
    assert stack.config_file
    config = read_configuration(stack.config_file).get("config") or {}
    return bool(config.get("gke-ai:policies", "advisory") != "advisory")


def up(stack: Stack) -> None:
    """Deploys the stack, then prints its status."""
    ensure(stack)
    # A preview runs the policies before anything is created. Advisory policies run in `make preview` alone.
    first = POLICIES if mandatory(stack) else ["--skip-preview"]
    done = stack.pulumi("up", "--yes", *first, "--suppress-outputs", configured=True)
    if done.returncode:
        raise Stop(
            f"The update of {stack.name} failed. Pulumi recorded the resources that it created.\n"
            "Fix the errors above and run make up again. If the update was killed, "
            f"run make recover STACK={stack.name} first."
        )
    # `emulator/run kubectl` uses the cluster of the stack that was deployed last.
    Path(os.environ["KUBECONFIG"]).write_text(stack.recorded_outputs["kubeconfig"])
    status.show(stack)


def preview(stack: Stack) -> None:
    """Shows what an `up` would do, and the results of the policies."""
    ensure(stack)
    raise SystemExit(stack.pulumi("preview", "--diff", *POLICIES, configured=True).returncode)


def policies(stack: Stack) -> None:
    """Prints only the results of the policies for an `up`."""
    ensure(stack)
    done = stack.pulumi("preview", "--suppress-outputs", *POLICIES, configured=True, quiet=True)
    # The output before this heading has a line for each resource.
    _, heading, violations = done.stdout.partition("Policies:\n")
    print(heading + violations if heading else done.stdout + done.stderr)
    raise SystemExit(done.returncode)


def preview_json(stack: Stack) -> None:
    """Prints Pulumi's JSON of a preview on a new stack."""
    with tempfile.TemporaryDirectory() as backend:
        os.environ["PULUMI_BACKEND_URL"] = f"file://{backend}"
        ensure(stack)
        raise SystemExit(stack.pulumi("preview", "--json", configured=True).returncode)


def make_report(stack: Stack, files: Mapping[str, Path | None]) -> None:
    """Writes the report of a preview, and its graph. The exit code is 1 if the configuration cannot be deployed."""
    ensure(stack)
    output = Path(os.environ["GKE_AI_STATE"]) / "reports" / f"{stack.name}.md"
    command = [sys.executable, "-m", "gke_ai.report", "--stack", stack.name, "--config-file", str(stack.config_file)]
    command += ["--output", str(output)]
    command += [word for option, file in files.items() if file for word in (option, str(file.absolute()))]
    raise SystemExit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def check_servers(stack: Stack) -> None:
    """Sends requests to every server of the stack. The exit code is that of the check."""
    raise SystemExit(smoke.smoke(stack))


def compare(stack: Stack) -> None:
    """Compares the claims of the stack with its cluster. Measurements of an emulated cluster stay in its state."""
    from gke_ai.ops.verify import command as verify  # imports every section of the settings

    file = Path(os.environ["GKE_AI_STATE"]) / "calibration" / f"{stack.name}.yaml"
    raise SystemExit(verify.verify(stack, file))


def delete(stack: Stack) -> None:
    """Destroys the resources of the stack, and removes the stack and its configuration."""
    if stack.pulumi("stack", "select", quiet=True).returncode:
        stack.refuse_damaged()
        print(f"There is no stack {stack.name}: nothing to delete.")
        return
    down.down(stack)
    stack.pulumi("stack", "rm", "--yes", "--preserve-config", quiet=True)
    for name in (f"Pulumi.{stack.name}.yaml", f"{stack.name}.source"):
        (copies() / name).unlink(missing_ok=True)
    print(f"{stack.name} is deleted.")


def print_snapshot(stack: Stack) -> None:
    """Prints the state of the stack's cluster."""
    from gke_ai.forecast.snapshot import command as snapshot  # imports every section of the settings

    snapshot.show(stack)


def upgrade_crds(stack: Stack) -> None:
    """Applies the CRD of JobSet's chart, from the chart in the emulator's cache."""
    crds.crds(stack, emulator("chart", JOBSET_CHART, crds.wanted(stack)).strip())


COMMANDS: dict[str, Callable[[Stack], None]] = {
    "up": up,
    "preview": preview,
    "policies": policies,
    "preview-json": preview_json,
    "status": status.show,
    "verify": compare,
    "smoke": check_servers,
    "crds": upgrade_crds,
    "recover": recover.recover,
    "down": delete,
    "runs": runs.show,
    "snapshot": print_snapshot,
}
COMMANDS_OF_A_RUN: dict[str, Callable[[Stack, str], None]] = {"logs": logs.show, "remove-run": runs.remove}

if __name__ == "__main__":
    run(main)
