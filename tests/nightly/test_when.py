"""Only here: the real Kueue answers questions about one run, as public reports and the tables of its own tests say.

Print every difference from the tables:

    emulator/run pytest -s -m nightly tests/nightly/test_when.py
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.tests.harness import eventually
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.rehearse.applied import Applied
from gke_ai.forecast.rehearse.manifests import Change, Manifest
from gke_ai.forecast.when.answer import Answer
from gke_ai.forecast.when.command import asked
from gke_ai.kube.client import client_of
from tests.support.emulator import Emulator, fresh
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal import places
from tests.support.rehearsal.places import Place
from tests.support.rehearsal.questions import QUESTIONS, Question
from tests.support.rehearsal.tables import clusters
from tests.support.rehearsal.tables.questions import TableQuestion, questions

LIMIT_RANGE = next(question for question in QUESTIONS if question.source == 15020)
# A cluster that is only queues settles at once.
QUIET = 2.0


def ask(place: Place, runs: Mapping[str, tuple[Manifest, str]]) -> dict[str, Answer]:
    """Asks about runs, each with its cluster queue, one after the other."""
    with queue_cluster.connect(place.emulator) as cluster:
        api, recorder = client_of(place.kubeconfig(), 4), cluster.recorder
        return {
            name: asked(api, recorder, manifest, queue, partial(Applied, api, Change(apply=(manifest,))), quiet=QUIET)
            for name, (manifest, queue) in runs.items()
        }


@contextmanager
def cluster_of(asked_about: Sequence[Question]) -> Iterator[Place]:
    """A cluster with the queues and runs of reports."""
    with fresh() as emulator:
        (place,) = places.create([emulator])
        if pools := [pool for question in asked_about for pool in question.pools]:
            queue_cluster.set_pools(emulator, pools)
        with queue_cluster.connect(emulator) as cluster:
            for step in zip_longest(*(question.objects for question in asked_about)):
                created = [item for item in step if item]
                cluster.apply(created)
                if any(item["kind"] == "Job" for item in created):
                    eventually(lambda: len(cluster.workloads()) == len(jobs_of(cluster)), "Kueue has the Jobs")
                    time.sleep(1)  # it orders Workloads by the second of their creation
            have_status = partial(queues_have_status, cluster)
            eventually(have_status, "Kueue states what its queues have")
            cluster.settle()
        yield place


def jobs_of(cluster: queue_cluster.QueueCluster) -> list[Mapping[str, Any]]:
    return list(cluster.send("GET", "/apis/batch/v1/jobs")["items"])


def queues_have_status(cluster: queue_cluster.QueueCluster) -> bool:
    lists = [cluster.send("GET", f"/apis/{KUEUE_API}/{plural}") for plural in ("clusterqueues", "localqueues")]
    return all(item.get("status") for found in lists for item in found["items"])


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What Kueue answers in a cluster with the queues and runs of every report."""
    runs = {question.name: (Manifest(question.run, "run.yaml"), queue_of(question)) for question in QUESTIONS}
    with cluster_of(QUESTIONS) as original:
        return ask(original, runs)


def queue_of(question: Question) -> str:
    queue = question.run["spec"].get("queueName") or question.run["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    return f"{question.name}-{queue}"


def test_the_command_asks_the_state_of_a_snapshot(tmp_path: Path) -> None:
    """A snapshot has the LimitRange, whose default request Kueue counts."""
    with cluster_of([LIMIT_RANGE]) as place:
        (tmp_path / "snapshot.json").write_text(place.snapshot().to_json())
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(LIMIT_RANGE.run))
    with fresh() as emulator:
        options = ("--snapshot", str(tmp_path / "snapshot.json"), "--json", str(tmp_path / "answer.json"))
        printed = emulator.run("gke-ai", "when", *options, str(tmp_path / "run.yaml"))
        assert not (emulator.state / "rehearsal").exists()
    name = f"{LIMIT_RANGE.name}/job/limits-only"
    assert f"{name} starts at once, on flavor q15020-f of cluster queue q15020-q." in printed
    assert "Unlike the snapshot" not in printed
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["run"], answer["starts"], answer["flavors"]) == (name, True, ["q15020-f"])


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_kueue_decides_as_the_report_says(question: Question, answers: Mapping[str, Answer]) -> None:
    answer = answers[question.name]
    assert answer.starts is question.starts, answer
    if question.starts:
        assert answer.flavors == tuple(f"{question.name}-{name}" for name in question.flavors)
        assert answer.pods == (question.pods or answer.requested)
    assert [str(eviction.workload) for eviction in answer.preempts] == [*question.preempts]
    assert bool(answer.never) is question.never, answer
    assert question.waits_for in answer.waits_for
    assert question.lacks in answer.lacks
    assert bool(question.lacks) is bool(answer.lacks)
    assert tuple(run.name for run in answer.ahead) == question.ahead


def differing(place: Place, asked_about: Sequence[TableQuestion]) -> Iterator[str]:
    """Asks the questions of tables, and yields what differs from them."""

    def configuration(question: TableQuestion) -> str:
        return json.dumps(question.case.configuration.sections(), sort_keys=True)

    for _, group in groupby(sorted(asked_about, key=configuration), key=configuration):
        some = list(group)
        clusters.configure(place, some[0].case.configuration)
        refused = clusters.load(place, [question.case for question in some])
        with queue_cluster.connect(place.emulator) as cluster:
            clusters.open_gates(cluster, [question.case for question in some])
            cluster.settle()
        found = ask(place, {q.case.title: (q.manifest, q.queue) for q in some if q.case.id not in refused})
        for question in some:
            decided = question.decided(found[question.case.title]) if question.case.id not in refused else None
            if decided != question.expected:
                yield f"{question.case.title}: {decided} instead of {question.expected}"


def test_kueue_answers_every_question_as_its_tables_say(emulator: Emulator) -> None:
    assert len(questions()) >= 40
    (place,) = places.create([emulator])
    found = [*differing(place, questions())]
    print("\n".join([f"{len(questions())} questions, {len(found)} differ", *found]))
    assert found == []
