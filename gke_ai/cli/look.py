"""Verbs that look at a stack, or at a cluster alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gke_ai.cli import options
from gke_ai.cli.group import gke_ai
from gke_ai.kube.client import ApiClient
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import Stack

verb = gke_ai.section("Look at a stack or a cluster")


@verb("""
gke-ai status --stack prod --namespace team-a
gke-ai status --context gke_my-project_us-central1_ml    # a cluster that has no stack
gke-ai status --stack prod --shares    # who is starved, who borrows, from which queue
""")
@options.option("--all", "everything", is_flag=True, help="list everything. Default: at most 20 rows of a table")
@options.option("--namespace", default="", help="list only what is in this namespace, in full")
@options.option("--queue", default="", help="list only workloads of this local queue, in full")
@click.option("--watch", is_flag=True, help="redraw the status on one screen until Ctrl-C")
@options.option("--shares", is_flag=True, help="print only how the queues share quota: who lacks, borrows and lends")
@options.json_option
@options.blocks_option
@options.with_stack(context=True)
def status(
    stack: Stack,
    everything: bool,
    namespace: str,
    queue: str,
    watch: bool,
    shares: bool,
    json: Path | None,
    blocks: Path | None,
) -> None:
    """Prints what runs, what waits and why."""
    from gke_ai.ops.status import command as status
    from gke_ai.ops.status import shares as sharing

    if shares and (everything or namespace or queue or watch or blocks):
        raise click.UsageError("--shares prints the shares of the whole cluster. Leave out all options but --json.")
    if json and not shares:
        raise click.UsageError("--json has no effect without --shares. Add --shares.")
    if shares:
        sharing.show(stack, json)
        return
    selection = status.Selection(everything, namespace, queue)
    if not watch:
        status.show(stack, selection, blocks)
    elif blocks:
        raise click.UsageError("--watch writes no file, so --blocks has no effect. Leave one of them out.")
    else:
        status.watch(stack, selection)


@verb("""
gke-ai runs --stack prod
gke-ai runs --namespace team-a    # of a namespace of the kubeconfig's cluster
""")
@options.with_stack(context=True, namespaced=True)
def runs(stack: Stack) -> None:
    """Lists runs: their state, restarts and newest checkpoint."""
    from gke_ai.ops.runs import command as runs

    runs.show(stack)


@verb("""
gke-ai logs finetune-gemma --stack prod --lines 500
gke-ai logs first --namespace team-a --follow    # of a namespace of the kubeconfig's cluster
""")
@click.argument("run", envvar=options.variable("run"))
@options.option("--lines", type=int, default=100, show_default=True, help="last lines of each container")
@click.option("-f", "--follow", is_flag=True, help="print new lines of all pods until the run ends, or Ctrl-C")
@options.with_stack(context=True, namespaced=True)
def logs(stack: Stack, run: str, lines: int, follow: bool) -> None:
    """Prints the logs of a run's pods, its restarts and its newest checkpoint."""
    from gke_ai.ops.runs import follow_logs, logs

    (follow_logs.follow if follow else logs.show)(stack, run, lines)


@verb("""
gke-ai remove-run finetune-gemma --stack prod
gke-ai remove-run first --namespace team-a    # of a namespace of the kubeconfig's cluster
""")
@click.argument("run", envvar=options.variable("run"))
@options.with_stack(context=True, namespaced=True)
def remove_run(stack: Stack, run: str) -> None:
    """Deletes the Job or JobSet of a run that has ended. Its checkpoints stay."""
    from gke_ai.ops.runs import command as runs

    runs.remove(stack, run)


def _rates(text: str) -> tuple[float, ...]:
    """Requests per second, in the order in which they are sent."""
    try:
        found = tuple(float(rate) for rate in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) <= 0 or max(found) > 1000:
        raise ValueError(f'"{text}" is no list of rates. Write requests per second, for example 1,2,4,8.')
    return found


@verb("""
gke-ai load --stack prod --rates 1,2,4,8 --seconds 60
gke-ai load gemma --stack prod --burst 200    # at once, through the route gemma
""")
@click.argument("route", default="")
@options.option(
    "--rates", type=options.Checked("rates", _rates), default="1", help="requests per second, one after the other"
)
@options.option("--seconds", type=click.FloatRange(1, 3600), default=60, show_default=True, help="length of each rate")
@options.option("--burst", type=click.IntRange(1, 2000), default=None, help="send so many requests at once instead")
@options.option("--words", type=click.IntRange(1, 100_000), default=100, show_default=True, help="words of a prompt")
@options.option("--tokens", type=click.IntRange(1, 10_000), default=64, show_default=True, help="tokens of an answer")
@options.option("--objective", type=float, default=2.0, show_default=True, help="seconds to the first token")
@options.option("--patience", type=float, default=900, show_default=True, help="seconds to wait for an answer")
@options.json_option
@options.picture_option
@options.with_stack()
def load(
    stack: Stack,
    route: str,
    rates: tuple[float, ...],
    seconds: float,
    burst: int | None,
    words: int,
    tokens: int,
    objective: float,
    patience: float,
    json: Path | None,
    picture: Path | None,
) -> None:
    """Sends a load through the gateway, and prints how its requests ended, and how soon."""
    from gke_ai.ops.load.command import Options, load

    length = 0 if burst else seconds
    sys.exit(load(stack, Options(route, rates, length, burst or 0, words, tokens, objective, patience, json, picture)))


@verb("gke-ai smoke --stack prod")
@options.with_stack()
def smoke(stack: Stack) -> None:
    """Sends requests to every server of a stack, and prints latencies and pass or fail."""
    from gke_ai.ops.smoke.command import smoke

    sys.exit(smoke(stack))


@verb("""
gke-ai verify --stack prod
gke-ai verify --stack prod --bandwidth h100-mega --nodes 4
""")
@options.file_option("--output", help="calibration file. Default: that of the configuration, or calibration/STACK.yaml")
@options.option(
    "--bandwidth", default="", metavar="POOL", help="measure all-reduce between nodes of a GPU pool, by a run"
)
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True, help="nodes for --bandwidth")
@click.option("--namespace", default="", help="tenant of --bandwidth. Default: the first with a queue for the pool")
@click.option("--queue", default="", help="local queue of --bandwidth. Default: the first that leads to the pool")
@click.option("--image", help="image of --bandwidth, with torchrun. Default: one of PyTorch")
@click.option(
    "--minutes", type=click.FloatRange(0), default=30, show_default=True, help="time limit of --bandwidth, in minutes"
)
@options.json_option
@options.with_stack()
def verify(
    stack: Stack, output: Path | None, bandwidth: str, image: str | None, json: Path | None, **test: Any
) -> None:
    """Compares what a stack relies on with its cluster, and measures it."""
    from gke_ai.ops.verify.command import verify
    from gke_ai.workspace import emulated

    if bandwidth:
        from gke_ai.catalog.kueue.operators import TORCH_IMAGE
        from gke_ai.ops.verify.bandwidth import Measurement, measure

        sys.exit(measure(stack, Measurement(bandwidth, image=image or TORCH_IMAGE, **test), json))
    if on_emulator() and output is None:  # measurements of an emulated cluster stay in its state
        output = emulated.state("calibration", f"{stack.name}.yaml")
    sys.exit(verify(stack, output))


@verb("""
gke-ai snapshot --stack prod --hash-names > snapshot.json
gke-ai snapshot --context gke_my-project_us-central1_ml > snapshot.json
gke-ai snapshot --role | kubectl apply -f -
""")
@options.file_option("--kubeconfig", help="read the cluster of this kubeconfig, which needs no stack")
@options.file_option("--pools", help="node pools from `gcloud container node-pools list --format json`, to add them")
@options.option("--hash-names", is_flag=True, help="hash the names that the stack does not use itself")
@options.file_option("--keep-names", help="folder of manifests; names in its files are not hashed")
@options.file_option(
    "--hash-key", help="file with the key of the hashes, for the same hashes each time. Default: random"
)
@click.option("--role", is_flag=True, help="print the ClusterRole that a snapshot needs, and nothing else")
@options.stack_options
@options.context_option
@options.emulator_option
def snapshot(
    role: bool,
    hash_names: bool,
    keep_names: Path | None,
    hash_key: Path | None,
    kubeconfig: Path | None,
    pools: Path | None,
    **named: Any,
) -> None:
    """Prints the state of a cluster, with listed fields only: queues, workloads, pods and nodes of all tenants."""
    from gke_ai.forecast.snapshot import command
    from gke_ai.forecast.snapshot.pools import read_pools
    from gke_ai.kube.client import client_of

    if role:
        print(command.role(), end="")
        return
    for name, file in (("--hash-key", hash_key), ("--keep-names", keep_names)):
        if file and not hash_names:
            raise click.UsageError(f"{name} has no effect without --hash-names. Add --hash-names.")
    read = read_pools(pools) if pools else None
    if kubeconfig:
        stack: Stack = Stack(options.name_of(named["stack"], named["config"]))
        cluster: ApiClient | None = client_of(command.read_text(kubeconfig), 4)
    else:
        stack = options.target(**named)
        cluster = stack.cluster() if stack.is_alone else None
    command.show(stack, hash_names, hash_key, cluster, read, keep_names)
