"""What `make up`, `preview`, `report`, `status`, `smoke` and so on run: a command on one stack of the emulator.

    emulator/run python -m ops.emulated up [--stack dev] [--config examples/x.yaml]

Pulumi writes into the configuration file that it is given, so every command works on a copy under the emulator's state.
The emulator itself is used by its commands only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from catalog.versions import JOBSET_CHART
from ops import crds, down, recover, smoke, status
from ops.stack import ROOT, Stack, Stop, on_emulator, run
from ops.verify import command as verify

POLICIES = ["--policy-pack", str(ROOT / "policy")]
# Commands for which all that the configuration expects to exist must be there.
DEPLOYING = {"up", "preview", "policies", "preview-json", "report"}


def main() -> None:
    """Runs one command on one stack."""
    parser = argparse.ArgumentParser(prog="ops.emulated", description=__doc__)
    parser.add_argument("command", choices=[*COMMANDS, "report"])
    parser.add_argument("--stack", default="", help="name of the stack (dev, or the configuration's name)")
    parser.add_argument("--config", default="", help="its configuration (Pulumi.<stack>.yaml)")
    parser.add_argument("--prices", type=Path, help="price table for the report")
    options = parser.parse_args()
    if not on_emulator():
        raise Stop(f"Run this on the emulator:  emulator/run python -m ops.emulated {options.command}")
    name = options.stack or (Path(options.config).stem if options.config else "dev")
    source = Path(options.config) if options.config else None
    stack = prepare(name, source, deploying=options.command in DEPLOYING)
    command = partial(make_report, prices=options.prices) if options.command == "report" else COMMANDS[options.command]
    command(stack)


def emulator(*command: str) -> str:
    """What a command of the emulator prints; where it fails, this one ends with its message."""
    done = subprocess.run([str(ROOT / "emulator" / "run"), *command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def ready(config: Path) -> dict[str, Any]:
    """What the emulator says of a configuration, its clusters running: `emulator/run ready --help`."""
    answer: dict[str, Any] = json.loads(emulator("ready", str(config)))
    return answer


def copies() -> Path:
    """Folder of the configurations' copies."""
    return Path(os.environ["GKE_AI_STATE"]) / "config"


def prepare(name: str, source: Path | None, deploying: bool = False) -> Stack:
    """A stack and its fresh copy of `source`, else of the configuration it had before, else of Pulumi.<name>.yaml.

    `deploying` refuses a configuration that expects what the emulator lacks, such as an existing cluster.
    """
    copy = copies() / f"Pulumi.{name}.yaml"
    remembered = copies() / f"{name}.source"
    if source is None:
        source = Path(remembered.read_text()) if remembered.exists() else ROOT / f"Pulumi.{name}.yaml"
    if not source.exists() and not copy.exists():
        raise Stop(f"There is no configuration {source}. Give one: CONFIG=examples/mixed-training-inference.yaml")
    answer = ready(source if source.exists() else copy)
    if source.exists():
        write_copy(source, copy, answer["defaults"])
        remembered.write_text(str(source.absolute()))
    if deploying and (missing := answer["missing"]):
        what, command = missing["what"], missing["command"]
        raise Stop(f"{what}; nothing was changed.\nNext, to make it:  {command}\nThen run this again.")
    return Stack(name, copy)


def write_copy(source: Path, copy: Path, defaults: Mapping[str, Any]) -> None:
    """Copies a configuration, with the emulator's project, and with what Pulumi has encrypted into an earlier copy."""
    content: dict[str, Any] = yaml.safe_load(source.read_text()) or {}
    stated = content.get("config") or {}
    earlier = yaml.safe_load(copy.read_text()) if copy.exists() else {}
    secrets = {key: value for key, value in (earlier.get("config") or {}).items() if is_secret(value)}
    content["config"] = {**defaults, **secrets, **stated}
    content |= {key: earlier[key] for key in ("encryptionsalt", "secretsprovider") if key in earlier}
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(yaml.safe_dump(content, sort_keys=False))


def is_secret(value: object) -> bool:
    """Whether a configuration value is one that `pulumi config set --secret` wrote."""
    return isinstance(value, dict) and value.keys() == {"secure"}


def ensure(stack: Stack) -> None:
    """Creates the stack where there is none yet."""
    if stack.pulumi("stack", "select", quiet=True).returncode:
        # `stack init` takes no configuration file: it writes into that of its folder, so it runs where the copy is.
        (copies() / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
        done = stack.pulumi("stack", "init", "-C", str(copies()), quiet=True)
        if done.returncode:
            raise Stop(done.stderr.strip())


def mandatory(stack: Stack) -> bool:
    """Whether a violation of the policy pack stops a deployment of the stack."""
    assert stack.config_file
    config: dict[str, Any] = yaml.safe_load(stack.config_file.read_text())["config"]
    stated: str = config.get("gke-ai:policies", "advisory")
    return stated != "advisory"


def up(stack: Stack) -> None:
    """Deploys, then says how it stands."""
    ensure(stack)
    # A preview asks the policies before anything is created; where they are advisory, `make preview` tells them.
    first = POLICIES if mandatory(stack) else ["--skip-preview"]
    done = stack.pulumi("up", "--yes", *first, "--suppress-outputs", configured=True)
    if done.returncode:
        raise Stop(
            f"{stack.name} is not wholly up; what was created is recorded.\n"
            "Mend what is said above and run make up again; after a kill, "
            f"make recover STACK={stack.name} first."
        )
    # Of the latest stack: what `emulator/run kubectl` talks to.
    Path(os.environ["KUBECONFIG"]).write_text(stack.outputs()["kubeconfig"])
    status.show(stack)


def preview(stack: Stack) -> None:
    """Shows what an up would do, and what the policies say of it."""
    ensure(stack)
    raise SystemExit(stack.pulumi("preview", "--diff", *POLICIES, configured=True).returncode)


def policies(stack: Stack) -> None:
    """Says what the policies say of an up, in one place."""
    ensure(stack)
    done = stack.pulumi("preview", "--suppress-outputs", *POLICIES, configured=True, quiet=True)
    # What comes before has a line for each resource.
    _, heading, said = done.stdout.partition("Policies:\n")
    print(heading + said if heading else done.stdout + done.stderr)
    raise SystemExit(done.returncode)


def preview_json(stack: Stack) -> None:
    """Prints Pulumi's JSON of a preview on a stack that has nothing yet."""
    with tempfile.TemporaryDirectory() as backend:
        os.environ["PULUMI_BACKEND_URL"] = f"file://{backend}"
        ensure(stack)
        raise SystemExit(stack.pulumi("preview", "--json", configured=True).returncode)


def make_report(stack: Stack, prices: Path | None) -> None:
    """Writes the page of a preview for reviewers, and its picture; ends with 1 where the stack can't be deployed so."""
    from report import __main__ as reports  # the other commands start faster without it

    ensure(stack)
    output = Path(os.environ["GKE_AI_STATE"]) / "reports" / f"{stack.name}.md"
    options = ["--stack", stack.name, "--config-file", str(stack.config_file), "--output", str(output)]
    options += ["--prices", str(prices)] if prices else []
    raise SystemExit(reports.report(reports.parser().parse_args(options)))


def ask(stack: Stack) -> None:
    """Asks every server of the stack; ends as the check does."""
    raise SystemExit(smoke.smoke(stack))


def compare(stack: Stack) -> None:
    """Compares the stack's claims with its cluster; what is measured of an emulated one stays with the emulator."""
    file = Path(os.environ["GKE_AI_STATE"]) / "calibration" / f"{stack.name}.yaml"
    raise SystemExit(verify.verify(stack, file))


def take_down(stack: Stack) -> None:
    """Destroys the stack and forgets it."""
    if stack.pulumi("stack", "select", quiet=True).returncode:
        print(f"There is no stack {stack.name}: nothing to take down.")
        return
    down.down(stack)
    stack.pulumi("stack", "rm", "--yes", "--preserve-config", quiet=True)
    for name in (f"Pulumi.{stack.name}.yaml", f"{stack.name}.source"):
        (copies() / name).unlink(missing_ok=True)
    print(f"{stack.name} is down.")


def upgrade_crds(stack: Stack) -> None:
    """Applies the CRD of JobSet's chart, from the emulator's folder of it."""
    crds.crds(stack, emulator("chart", JOBSET_CHART, crds.wanted(stack)).strip())


COMMANDS: dict[str, Callable[[Stack], None]] = {
    "up": up,
    "preview": preview,
    "policies": policies,
    "preview-json": preview_json,
    "status": status.show,
    "verify": compare,
    "smoke": ask,
    "crds": upgrade_crds,
    "recover": recover.recover,
    "down": take_down,
}

if __name__ == "__main__":
    run(main)
