"""What `make up`, `preview`, `report`, `status`, `smoke` and so on do on the emulator, on copies of configurations.

    emulator/run python -m emulator.stack up [--stack dev] [--config examples/x.yaml]

Pulumi writes into the configuration file that it is given, so every command works on a copy under the emulator's state.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from catalog.versions import JOBSET_CHART
from emulator import cluster, paths
from emulator.existing import DEFAULTS, missing
from emulator.kubernetes_plugin.helm import chart
from ops import crds, down, recover, smoke, status
from ops.stack import Stack, Stop
from report import __main__ as reports

POLICIES = ["--policy-pack", str(paths.ROOT / "policy")]


def main() -> None:
    """Runs one command on one stack."""
    parser = argparse.ArgumentParser(prog="emulator.stack", description=__doc__)
    parser.add_argument("command", choices=[*COMMANDS, "report"])
    parser.add_argument("--stack", default="", help="name of the stack (dev, or the configuration's name)")
    parser.add_argument("--config", default="", help="its configuration (Pulumi.<stack>.yaml)")
    parser.add_argument("--prices", type=Path, help="price table for the report")
    options = parser.parse_args()
    name = options.stack or (Path(options.config).stem if options.config else "dev")
    command = partial(make_report, prices=options.prices) if options.command == "report" else COMMANDS[options.command]
    command(prepare(name, Path(options.config) if options.config else None))


def prepare(name: str, source: Path | None) -> Stack:
    """A stack and its fresh copy of `source`, else of the configuration it had before, else of Pulumi.<name>.yaml."""
    for made in cluster.names():
        cluster.start(made)  # a cluster of the emulator doesn't survive a restart of the machine by itself
    copy = paths.CONFIG / f"Pulumi.{name}.yaml"
    remembered = paths.CONFIG / f"{name}.source"
    if source is None:
        source = Path(remembered.read_text()) if remembered.exists() else paths.ROOT / f"Pulumi.{name}.yaml"
    if source.exists():
        write_copy(source, copy)
        remembered.write_text(str(source.absolute()))
    elif not copy.exists():
        raise Stop(f"There is no configuration {source}. Give one: CONFIG=examples/mixed-training-inference.yaml")
    return Stack(name, copy)


def write_copy(source: Path, copy: Path) -> None:
    """Copies a configuration, with the emulator's project, and with what Pulumi has encrypted into an earlier copy."""
    content: dict[str, Any] = yaml.safe_load(source.read_text()) or {}
    stated = content.get("config") or {}
    earlier = yaml.safe_load(copy.read_text()) if copy.exists() else {}
    secrets = {key: value for key, value in (earlier.get("config") or {}).items() if is_secret(value)}
    content["config"] = {**DEFAULTS, **secrets, **stated}
    content |= {key: earlier[key] for key in ("encryptionsalt", "secretsprovider") if key in earlier}
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(yaml.safe_dump(content, sort_keys=False))


def is_secret(value: object) -> bool:
    """Whether a configuration value is one that `pulumi config set --secret` wrote."""
    return isinstance(value, dict) and value.keys() == {"secure"}


def ensure(stack: Stack) -> None:
    """Creates the stack where there is none yet; refuses one whose configuration counts on what isn't there."""
    assert stack.config_file
    if found := missing(yaml.safe_load(stack.config_file.read_text())["config"]):
        what, command = found
        raise Stop(f"{what}; nothing was changed.\nNext, to make it:  {command}\nThen run this again.")
    if stack.pulumi("stack", "select", quiet=True).returncode:
        # `stack init` takes no configuration file: it writes into that of its folder, so it runs where the copy is.
        (paths.CONFIG / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
        done = stack.pulumi("stack", "init", "-C", str(paths.CONFIG), quiet=True)
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
    paths.KUBECONFIG.write_text(
        stack.outputs()["kubeconfig"]
    )  # of the latest stack: what `emulator/run kubectl` talks to
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
    ensure(stack)
    output = paths.STATE / "reports" / f"{stack.name}.md"
    options = ["--stack", stack.name, "--config-file", str(stack.config_file), "--output", str(output)]
    options += ["--prices", str(prices)] if prices else []
    raise SystemExit(reports.report(reports.parser().parse_args(options)))


def ask(stack: Stack) -> None:
    """Asks every server of the stack; ends as the check does."""
    raise SystemExit(smoke.smoke(stack))


def take_down(stack: Stack) -> None:
    """Destroys the stack and forgets it."""
    if stack.pulumi("stack", "select", quiet=True).returncode:
        print(f"There is no stack {stack.name}: nothing to take down.")
        return
    down.down(stack)
    stack.pulumi("stack", "rm", "--yes", "--preserve-config", quiet=True)
    for name in (f"Pulumi.{stack.name}.yaml", f"{stack.name}.source"):
        (paths.CONFIG / name).unlink(missing_ok=True)
    print(f"{stack.name} is down.")


def upgrade_crds(stack: Stack) -> None:
    """Applies the CRD of JobSet's chart, which lies among the tools here."""
    crds.crds(stack, str(chart(JOBSET_CHART, crds.wanted(stack)).folder))


COMMANDS: dict[str, Callable[[Stack], None]] = {
    "up": up,
    "preview": preview,
    "policies": policies,
    "preview-json": preview_json,
    "status": status.show,
    "smoke": ask,
    "crds": upgrade_crds,
    "recover": recover.recover,
    "down": take_down,
}

if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        sys.exit(str(stop))
