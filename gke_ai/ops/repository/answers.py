"""The questions of `gke-ai init`. Nothing is imported here that a start of the command would wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NEW = "new"


class Question(NamedTuple):
    """A question, its default, and the option and field that have its name."""

    name: str
    text: str
    default: str = ""


QUESTIONS = (
    Question("project", "id of the Google Cloud project"),
    Question("region", "region of the cluster and of its machines", "us-central1"),
    Question("cluster", f"{NEW}, or the name of an existing Standard cluster", NEW),
    Question("machine", "machine type of the first pool, with GPUs", "g2-standard-24"),
    Question("team", "first team, which gets a namespace and a queue", "research"),
)


class Place(NamedTuple):
    """Where an existing cluster is."""

    project: str
    region: str
    """Region or zone."""
    cluster: str


@dataclass(frozen=True)
class Answers:
    """The answers, one for each question."""

    project: str
    region: str
    cluster: str
    machine: str
    team: str
