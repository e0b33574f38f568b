"""Verbs for people who train: a run from a kubeconfig alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gke_ai.cli.group import gke_ai
from gke_ai.cli.options import FILE, cluster_options
from gke_ai.workspace.stack import Context

verb = gke_ai.section("Train, with a kubeconfig alone")


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds options of `gcluster job submit` that have no key here. Each is refused with its reason."""
    from gke_ai.ops.submit.refused import REFUSED

    def refuse(_: click.Context, parameter: click.Parameter, value: object) -> None:
        if value is not None:
            name = parameter.opts[0]
            foreign = f"{name} is an option of gcluster job submit and not of this command"
            raise click.UsageError(f"{foreign}: {REFUSED[name]}.")

    for name in REFUSED:
        unused = name.lstrip("-").replace("-", "_") + "_of_gcluster"
        add = click.option(
            name, unused, is_flag=False, flag_value="", default=None, hidden=True, expose_value=False, callback=refuse
        )
        function = add(function)
    return function


@verb("""
gke-ai submit --file run.yaml --namespace team-a
gke-ai submit first --image registry.example.com/train:1 --namespace team-a --gpus 2 -- python train.py
gke-ai submit first --image python:3.12 --workdir . --namespace team-a -- python train.py
gke-ai submit --manifest job.yaml --dry-run
""")
@click.argument("name", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--file", "run_file", type=FILE, help="file with a run as it stands under training or batch")
@click.option("--manifest", type=FILE, help="file with the manifest of a Job, JobSet, TrainJob, RayJob or RayCluster")
@click.option("--image", help="image of the training program")
@click.option(
    "--workdir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="folder of code to bring along, at most 1 MiB packed; the working directory of the pods",
)
@click.option("--gpus", "gpus_per_pod", type=int, help="GPUs per pod. Default: 1")
@click.option("--pods", type=int, help="pods that train together. Default: 1")
@click.option("--queue", help="local queue. Default: the only one of the namespace")
@click.option("--priority", "priority_class", help="priority class of the pods")
@click.option("--pool", help="GPU or TPU pool. Default: the only GPU pool of the queue")
@click.option("--accelerator", help="GPU type, on a cluster without GPU pools")
@click.option("--tpu", help="TPU version, such as v6e, on a cluster without TPU pools")
@click.option("--num-slices", "slices", type=int, help="TPU slices that train together. Default: one, as a batch Job")
@click.option("--compute-class", help="compute class that provides the nodes")
@click.option("--topology", help="LEVEL for all pods, as required=block or preferred=host; or of a TPU slice, as 2x4")
@click.option("--checkpoints", help="BUCKET or BUCKET/PATH for the checkpoints")
@click.option("--resume-from", help="directory of another run, in the bucket of --checkpoints")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    help="'BUCKET;PATH' or 'BUCKET;PATH;ro', in quotes, to mount a bucket; repeatable",
)
@click.option("--cpu", help="CPU cores of a pod")
@click.option("--memory", help="memory of a pod, such as 30Gi")
@click.option("--shared-memory", help="maximum size of /dev/shm, such as 16Gi")
@click.option("--env", multiple=True, help="NAME=VALUE of an environment variable; repeatable")
@click.option("--restarts", "max_restarts", type=int, help="restarts of all pods after a pod fails. Default: 4")
@click.option("--grace-period", "termination_grace_period_seconds", type=int, help="seconds to save a checkpoint")
@click.option("--service-account", help="service account of the pods. Default: that of the tenant")
@click.option("--again", is_flag=True, help="delete a run of the same name that has ended, and run it once more")
@click.option("--dry-run", is_flag=True, help="check the run and print its manifest, and create nothing")
@click.option("--detach", is_flag=True, help="do not follow the run")
@_refusing
@cluster_options
def submit(
    context: Context,
    name: str | None,
    run_file: Path | None,
    manifest: Path | None,
    workdir: Path | None,
    again: bool,
    dry_run: bool,
    detach: bool,
    **run: Any,
) -> None:
    """Checks a run, submits it to its queue, and follows it until it ends.

    Needs a kubeconfig and the rights of a tenant's member, and neither Pulumi nor its state. The object is the one that
    the program would create for the same run. Whatever is refused is refused before anything is created. Ctrl-C
    detaches, and the run goes on.
    """
    from gke_ai.ops.submit.options import Options

    options = Options(name or "", **run)
    given = [text for text, value in (("--file", run_file), ("--manifest", manifest), ("NAME", name)) if value]
    if len(given) != 1:
        raise click.UsageError("State the run once: by NAME and options, by --file, or by --manifest.")
    if not name and options != Options(""):
        raise click.UsageError(f"With {given[0]}, the file says what the run is. Leave the options of a run out.")
    if name and not options.image:
        raise click.UsageError("--image is missing. Name the image of the training program.")
    if workdir and manifest:
        raise click.UsageError("--workdir has no effect on a manifest, which states its volumes. Leave it out.")

    from gke_ai.ops.submit.opening import Opening

    opening = Opening(context)  # before the rules are loaded

    from gke_ai.ops.submit.command import How, submit
    from gke_ai.ops.submit.manifest import read_manifest
    from gke_ai.ops.submit.request import Request
    from gke_ai.ops.submit.workdir import pack

    code = pack(workdir.absolute()) if workdir else None
    request = read_manifest(manifest) if manifest else Request(run_file, options if name else None, code)
    sys.exit(submit(context, opening, request, How(again, dry_run, detach)))


@verb("gke-ai describe first --namespace team-a")
@click.argument("run")
@cluster_options
def describe(context: Context, run: str) -> None:
    """Prints what a run waits for: its place in its queue, its pods and nodes, and its first log line."""
    from gke_ai.ops.submit.command import describe

    describe(context, run)


@verb("gke-ai cancel first --namespace team-a")
@click.argument("run")
@cluster_options
def cancel(context: Context, run: str) -> None:
    """Deletes a run that waits or runs. Its checkpoints stay."""
    from gke_ai.ops.submit.command import cancel

    cancel(context, run)
