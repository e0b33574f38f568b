"""Verbs of a repository of one's own, which depends on this package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from gke_ai.cli.group import gke_ai
from gke_ai.cli.options import FILE, alone, option
from gke_ai.ops.repository.answers import QUESTIONS, Answers, Place, Question

verb = gke_ai.section("A repository of your own")


def questions(function: Callable[..., None]) -> Callable[..., None]:
    """Adds an option for each question."""
    for question in reversed(QUESTIONS):
        default = f". Default: {question.default}" if question.default else ""
        function = option(f"--{question.name}", default="", help=f"{question.text}{default}")(function)
    return function


@verb("""
gke-ai init my-stack                                            # asks on the terminal
gke-ai init my-stack --project my-project --machine g2-standard-48 --team vision
gke-ai init my-stack --from-cluster gke_my-project_us-central1_shared # what a cluster with a Kueue has, by name
""")
@click.argument("folder", type=FILE, default=".")
@option("--from-cluster", "context", default="", help="context of the kubeconfig: the stack uses what its cluster has")
@questions
def init(folder: Path, context: str, **stated: str) -> None:
    """Writes a repository with a first stack, which depends on this package by its version.

    FOLDER is the repository. Default: the current folder. Options answer the questions; on a terminal, the others are
    asked. Writes nothing if one of its files exists. With --from-cluster, the stack is for a cluster that has a Kueue:
    it names the flavors, local queues and priority classes there, and creates nothing. Lists what it leaves out.
    """
    from gke_ai.ops.repository.create import init, init_beside

    if context:
        if needless := [name for name in ("machine", "team") if stated[name]]:
            raise click.UsageError(f"--from-cluster creates nothing, so --{needless[0]} has no effect. Leave it out.")
        cluster = place_of(context, stated["project"], stated["region"], stated["cluster"])
        init_beside(folder, cluster, alone(context).api())
        return
    init(folder, Answers(**{question.name: answer(question, stated[question.name]) for question in QUESTIONS}))


def place_of(context: str, project: str, region: str, cluster: str) -> Place:
    """Returns where a cluster is, as its context says or the options."""
    named = context.split("_")
    of_context = named[1:] if len(named) == 4 and named[0] == "gke" else ["", "", ""]
    stated = [option or known for option, known in zip((project, region, cluster), of_context, strict=True)]
    if missing := [name for name, value in zip(Place._fields, stated, strict=True) if not value]:
        raise click.UsageError(
            f"The context {context} does not say where its cluster is, as one of gcloud does. State --{missing[0]}."
        )
    return Place(*stated)


def answer(question: Question, stated: str) -> str:
    """Returns the stated answer, or else that of the terminal, or the default."""
    if stated:
        return stated
    if sys.stdin.isatty():
        text = question.text[0].upper() + question.text[1:]
        return str(click.prompt(text, default=question.default or None, err=True))
    if not question.default:
        raise click.UsageError(f"Without a terminal, --{question.name} is needed: the {question.text}.")
    return question.default


@verb("gke-ai upgrade --write")
@click.argument("folder", type=FILE, default=".")
@click.option("--write", "writes", is_flag=True, help="write the files that nobody has changed")
def upgrade(folder: Path, writes: bool) -> None:
    """Says what the installed version changes in a repository of `init`: versions, files, and keys that it refuses."""
    from gke_ai.ops.repository.upgrade import upgrade

    sys.exit(upgrade(folder, writes))
