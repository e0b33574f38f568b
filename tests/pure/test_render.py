"""The folder of `gke-ai render`: its own files alone change. Its documents: each tool reads what is registered."""

from pathlib import Path

import pytest

from gke_ai.catalog.documents import Reader, read
from gke_ai.review.gitops.documents import document
from gke_ai.review.gitops.folder import Outcome, heading, path_in_repository, write
from gke_ai.review.gitops.objects import in_cluster
from gke_ai.review.report.changes import UNKNOWN, Resource
from gke_ai.review.report.preview import SECRET
from gke_ai.terminal import Stop

QUEUE, JOB = "40-queues/llm/localqueue-team.yaml", "60-runs/llm/job-train.yaml"


def texts(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_a_rerun_removes_what_it_wrote_before_and_no_other_file(tmp_path: Path) -> None:
    assert write(tmp_path, "dev", {QUEUE: "a: 1\n", JOB: "b: 1\n"}) == Outcome((QUEUE, JOB), (), 0)
    others = {
        "60-runs/llm/mine.yaml": "a: of the user\n",
        "60-runs/llm/copy.yaml": (tmp_path / JOB).read_text(),
        "60-runs/llm/job-of-prod.yaml": f"{heading('60-runs/llm/job-of-prod.yaml', 'prod')}\n",
        "kustomization.yaml": "resources: []\n",
        "apps/60-runs/llm/job-train.yaml": (tmp_path / JOB).read_text(),
    }
    for path, text in others.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert write(tmp_path, "dev", {QUEUE: "a: 2\n"}) == Outcome((QUEUE,), (JOB,), 0)
    assert texts(tmp_path) == {QUEUE: f"{heading(QUEUE, 'dev')}\na: 2\n", **others}
    assert write(tmp_path, "dev", {QUEUE: "a: 2\n"}) == Outcome((), (), 1)
    write(tmp_path / "own", "dev", {QUEUE: "a: 1\n", JOB: "b: 1\n"})
    write(tmp_path / "own", "dev", {QUEUE: "a: 1\n"})
    assert [folder.name for folder in (tmp_path / "own").iterdir()] == ["40-queues"], "an empty folder is removed"


def test_a_file_of_somebody_else_in_the_way_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "40-queues/llm").mkdir(parents=True)
    (tmp_path / QUEUE).write_text("a: of the user\n")
    with pytest.raises(Stop, match=r"localqueue-team\.yaml is not a file that gke-ai render wrote for the stack dev"):
        write(tmp_path, "dev", {JOB: "b: 1\n", QUEUE: "a: 1\n"})
    assert texts(tmp_path) == {QUEUE: "a: of the user\n"}


@pytest.mark.parametrize("linked", ["40-queues", QUEUE])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, linked: str) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / linked).parent.mkdir(parents=True)
    outside.mkdir()
    (folder / linked).symlink_to(outside if linked == "40-queues" else outside / "file")
    with pytest.raises(Stop, match="leads out of"):
        write(folder, "dev", {QUEUE: "a: 1\n"})
    assert texts(outside) == {}


def test_flux_reads_the_folder_from_the_root_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert path_in_repository(tmp_path / "clusters" / "dev") == "clusters/dev"


WORDS = [
    *("y", "on", "No", "~", "null", "1e3", "012", "0x1f", "12:30"),
    *("1_000", ".5", "2026-11-20", "=", "<<", "a: b", ""),
]
MARKS = [
    *(" a", "a ", "# a", "a #b", "*a", "&a", "!a", "- a", "a\n"),
    *("a\n\n", "\na", "  a\n b", "a \nb", "a\tb", "\u2028"),
]


@pytest.mark.parametrize("text", [*WORDS, *MARKS])
def test_a_text_is_read_as_this_text_by_kubectl_and_by_pulumi(text: str) -> None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {text: text}}
    for reader in Reader:
        assert read(document(item), reader) == [item]


def test_the_order_of_keys_does_not_depend_on_the_preview() -> None:
    one = {"spec": {"b": 1, "a": [{"d": 1, "c": True}]}, "kind": "Job", "metadata": {}, "apiVersion": "batch/v1"}
    other = {"apiVersion": "batch/v1", "metadata": {}, "kind": "Job", "spec": {"a": [{"c": True, "d": 1}], "b": 1}}
    assert document(one) == document(other)
    assert document(one).splitlines()[:3] == ["apiVersion: batch/v1", "kind: Job", "metadata: {}"]


def config_map(value: str, kind: str = "ConfigMap") -> Resource:
    token, metadata = f"kubernetes:core/v1:{kind}", {"name": "a", "namespace": "llm"}
    inputs = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"bucket": value}}
    return Resource(f"urn:pulumi:dev::gke-ai::{token}::llm/a", token, "", inputs)


def test_a_value_that_only_an_update_knows_is_refused_with_its_place_and_what_to_run() -> None:
    with pytest.raises(Stop) as refused:
        in_cluster([config_map(f"gs://{UNKNOWN}")], "gke-ai up --stack dev")
    assert str(refused.value).splitlines() == [
        "Nothing was written:",
        "  ConfigMap llm/a: data.bucket",
        "Each of these values is known only after an update. Run gke-ai up --stack dev, then this again.",
    ]


def test_a_secret_value_outside_a_secret_and_a_chart_outside_an_oci_registry_are_refused() -> None:
    with pytest.raises(Stop, match=r"ConfigMap llm/a: data\.bucket\nEach of these values is secret"):
        in_cluster([config_map(SECRET)], "gke-ai up")
    assert in_cluster([config_map(SECRET, "Secret")], "gke-ai up").objects == ()
    release = Resource("urn:pulumi:dev::gke-ai::r::kueue", "kubernetes:helm.sh/v3:Release", "", {"chart": "./chart"})
    with pytest.raises(Stop, match=r"the chart \./chart is not in an OCI registry"):
        in_cluster([release], "gke-ai up")
