"""Verbs that deploy, preview and delete a stack."""

from __future__ import annotations

from pathlib import Path

import click

from gke_ai.cli.group import gke_ai
from gke_ai.cli.options import FILE, always_on_emulator, stack_options, target, with_stack, yes_option
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import Stack

verb = gke_ai.section("Deploy")
# Of gke_ai/review/gitops/tools.py, which the help does not import.
TOOLS = ("argocd", "flux", "config-sync", "kubectl")


@verb("""
gke-ai up --stack prod                                       # Google Cloud: shows a preview and asks
gke-ai up --emulator --config examples/flex-start-tpu.yaml   # this machine
""")
@yes_option
@with_stack(deploying=True)
def up(stack: Stack, yes: bool) -> None:
    """Deploys a stack, then prints its status."""
    from gke_ai.ops.lifecycle import deploy

    deploy.up(stack, yes, click.confirm)


@verb("""
gke-ai preview --stack prod
gke-ai preview --stack prod --import-file import.json    # then pulumi import: docs/google-cloud.md
""")
@click.option(
    "--import-file", type=FILE, help="file for `pulumi import`, with the cluster, pools and network to create"
)
@with_stack(deploying=True)
def preview(stack: Stack, import_file: Path | None) -> None:
    """Shows what an `up` would do, and the results of the policies."""
    from gke_ai.ops.lifecycle import deploy

    deploy.preview(stack, import_file)


@verb("gke-ai policies --stack prod")
@with_stack(deploying=True)
def policies(stack: Stack) -> None:
    """Prints the results of the policies for an `up`."""
    from gke_ai.ops.lifecycle import deploy

    deploy.policies(stack)


@verb("gke-ai preview-json --stack prod > preview.json")
@stack_options
@always_on_emulator
def preview_json(stack: str, config: Path | None) -> None:
    """Prints Pulumi's JSON of a preview on a new stack of the emulator."""
    from gke_ai.ops.lifecycle import deploy

    deploy.preview_json(target(stack, config, emulator=True, deploying=True))


@verb("""
gke-ai render clusters/prod --for argocd --stack prod
gke-ai render clusters/dev --for flux --emulator
""")
@click.argument("folder", type=FILE)
@click.option("--for", "tool", type=click.Choice(TOOLS), required=True, help="the tool that applies the manifests")
@with_stack(deploying=True)
def render(stack: Stack, folder: Path, tool: str) -> None:
    """Writes what a stack has in its cluster as manifests for Argo CD, Flux, Config Sync or kubectl.

    FOLDER gets one file for each object and each chart, and a page that says how to apply them. Files of an earlier
    render that are no longer wanted are removed, and no other file is touched. Changes nothing else.
    """
    from gke_ai.ops.lifecycle import deploy
    from gke_ai.review.gitops import command

    if on_emulator():
        deploy.ensure(stack)
    command.render(stack, folder, tool)


@verb("gke-ai recover --stack prod")
@with_stack()
def recover(stack: Stack) -> None:
    """Repairs the state of a stack after a killed `up`."""
    from gke_ai.ops.lifecycle.recover import recover

    recover(stack)


@verb("gke-ai down --stack dev")
@yes_option
@with_stack()
def down(stack: Stack, yes: bool) -> None:
    """Deletes a stack, unless something in it is protected."""
    from gke_ai.ops.lifecycle import deploy

    if not yes and not on_emulator():
        click.confirm(f"Delete {stack.name} and everything in it?", abort=True)
    deploy.delete(stack)
