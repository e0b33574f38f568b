"""Deploys, previews and deletes a stack with Pulumi, on Google Cloud or on the emulator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gke_ai.catalog import section_files
from gke_ai.ops.lifecycle import down, imports, network_pools
from gke_ai.ops.status import command as status
from gke_ai.terminal import Stop, echo
from gke_ai.workspace.configuration_file import read_keys
from gke_ai.workspace.emulated import copies
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import ROOT, Stack

POLICIES = ["--policy-pack", str(ROOT / "policy")] if (ROOT / "policy").is_dir() else []


def exists(stack: Stack) -> bool:
    """Selects the stack. Returns whether it exists; stops if Pulumi cannot tell."""
    done = stack.pulumi("stack", "select", quiet=True)
    if done.returncode:
        stack.refuse_damaged()
        if not on_emulator() and "no stack named" not in done.stderr:
            raise Stop(done.stderr.strip() or "pulumi stack select failed")
    return not done.returncode


def ensure(stack: Stack) -> None:
    """Creates the stack if it does not exist. On Google Cloud, stops: its user chooses backend and secrets provider."""
    if not exists(stack):
        if not on_emulator():
            raise Stop(f"There is no stack {stack.name} in this backend. Create it:  pulumi stack init {stack.name}")
        # `stack init` has no option for the configuration file and writes to its folder, so it runs beside the copy.
        (copies() / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
        done = stack.pulumi("stack", "init", "-C", str(copies()), quiet=True)
        if done.returncode:
            raise Stop(done.stderr.strip())


def mandatory(stack: Stack) -> bool:
    """Whether a violation of the policy pack stops a deployment of the stack."""
    return bool(read_keys(stack.file).get("gke-ai:policies", "advisory") != "advisory")


def up(stack: Stack, confirmed: bool = True, ask: Callable[[str], bool] = lambda _: False) -> None:
    """Deploys the stack, then prints its status.

    On Google Cloud, Pulumi shows a preview first, and asks unless `confirmed`. If pools have to lose their nodes
    before the update, `ask` does.
    """
    ensure(stack)
    confirmed = scale_first(stack, confirmed, ask) or confirmed
    # A preview runs the policies before anything is created. Advisory policies run in `preview` alone.
    first = POLICIES if mandatory(stack) else ["--skip-preview"] if on_emulator() else []
    if confirmed or on_emulator():
        first = ["--yes", *first]
    done = stack.pulumi("up", *first, "--suppress-outputs", configured=True)
    if done.returncode:
        raise Stop(
            f"The update of {stack.name} failed. Pulumi recorded the resources that it created.\n"
            f"Fix the errors above and run {stack.next('up')} again. If the update was killed, "
            f"run {stack.next('recover')} first."
        )
    if on_emulator():  # `emulator/run kubectl` uses the cluster of the stack that was deployed last
        Path(os.environ["KUBECONFIG"]).write_text(stack.recorded_outputs["kubeconfig"])
    status.show(stack)


def scale_first(stack: Stack, confirmed: bool, ask: Callable[[str], bool]) -> bool:
    """Scales the pools to zero nodes that could not be deleted with them. Returns whether the user wants the update."""
    before = replace(stack)  # `stack` itself reads the state after the update
    if on_emulator() or not any(network_pools.network_pools(before.resources)):
        return False
    done, events = before.preview(*(POLICIES if mandatory(stack) else []), quiet=confirmed)
    pools, _ = network_pools.deleted(events)
    if done.returncode or not pools:
        return False  # an update that fails says why
    names = ", ".join(pool.name for pool in pools)
    if not confirmed and not ask(f"Delete the nodes of {names} with their pods, then update {stack.name}?"):
        raise Stop("Nothing was changed.")
    network_pools.scale_to_zero(pools, before.api(), "up")
    return True


def preview(stack: Stack, import_file: Path | None = None) -> None:
    """Shows what an `up` would do, and the results of the policies. Writes a file for `pulumi import`, if stated."""
    ensure(stack)
    done, events = stack.preview("--diff", *POLICIES)
    if import_file:
        imports.write(events, import_file)
        echo(f"Next: remove from {import_file} what does not exist, then import the rest without a change of it:")
        echo(f"  pulumi import --stack {stack.name} --file {import_file} --generate-code=false")
    for text in network_pools.warnings(events):
        echo(text)
    raise SystemExit(done.returncode)


def policies(stack: Stack) -> None:
    """Prints only the results of the policies for an `up`."""
    ensure(stack)
    done = stack.pulumi("preview", "--suppress-outputs", *POLICIES, configured=True, quiet=True)
    # The output before this heading has a line for each resource.
    _, heading, violations = done.stdout.partition("Policies:\n")
    echo(heading + violations if heading else done.stdout + done.stderr)
    raise SystemExit(done.returncode)


def preview_json(stack: Stack) -> None:
    """Prints Pulumi's JSON of a preview on a new stack."""
    with tempfile.TemporaryDirectory() as backend:
        os.environ["PULUMI_BACKEND_URL"] = f"file://{backend}"
        ensure(stack)
        raise SystemExit(stack.pulumi("preview", "--json", configured=True).returncode)


def delete(stack: Stack) -> None:
    """Destroys the resources of the stack. On the emulator, also removes the stack and its configuration."""
    if not exists(stack):
        print(f"There is no stack {stack.name}: nothing to delete.")
        return
    down.down(stack)
    if not on_emulator():
        return
    stack.pulumi("stack", "rm", "--yes", "--preserve-config", quiet=True)
    section_files.copy({}, copies(), copies() / f"Pulumi.{stack.name}.yaml")
    for name in (f"Pulumi.{stack.name}.yaml", f"{stack.name}.source"):
        (copies() / name).unlink(missing_ok=True)
    print(f"{stack.name} is deleted.")
