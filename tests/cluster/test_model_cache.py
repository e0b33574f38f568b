"""Only here: an `up` waits for the real program that fills the bucket, and repeats it only when it must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.pods import hub
from tests.support.emulator import Emulator, Found, deployed, gone, settled
from tests.support.recorder import configuration

EXAMPLE = "examples/model-cache.yaml"
MODEL = "google/gemma-2-2b-it"
BUCKET = "models-emulator-project"
NEXT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def example() -> Iterator[Emulator]:
    """The deployed example. The tests below use it in order."""
    with deployed(EXAMPLE, {"serving": serving()}) as emulator:
        yield emulator


def serving(**cache: Any) -> list[dict[str, Any]]:
    """The servers of the example, whose compiled code is kept, with other keys of the model cache."""
    servers: list[dict[str, Any]] = configuration(EXAMPLE)["gke-ai:serving"]
    servers[0]["serviceAccount"] = "gemma"
    servers[0]["modelCache"] |= {"compileCache": True, **cache}
    return servers


def objects(emulator: Emulator) -> list[str]:
    return emulator.run("bucket", "ls", BUCKET).split()


def folder_of(emulator: Emulator) -> Path:
    return next(path for path in emulator.state.rglob(MODEL) if path.is_dir())


def stored(emulator: Emulator, revision: str) -> dict[str, bytes]:
    return {name: (folder_of(emulator) / revision / name).read_bytes() for name in hub.files(MODEL)}


def written(emulator: Emulator) -> dict[Path, int]:
    """When each file in the model's folder was written."""
    return {file: file.stat().st_mtime_ns for file in folder_of(emulator).rglob("*") if file.is_file()}


def test_job_fills_the_bucket_before_the_server_starts(example: Emulator) -> None:
    (server,) = serving()
    revision = server["modelCache"]["revision"]
    assert {f"{MODEL}/{revision}/{name}" for name in (*hub.files(MODEL), "COMPLETE")} == {*objects(example)}
    assert stored(example, revision) == hub.files(MODEL)
    (job,) = example.get("jobs", "-n", "model-cache")
    (deployment,) = example.get("deployments", "-n", "llm")
    finished = next(entry for entry in job["status"]["conditions"] if entry["type"] == "Complete")
    assert finished["lastTransitionTime"] <= deployment["metadata"]["creationTimestamp"]


def test_replica_is_ready_without_a_token_and_clients_ask_for_the_model_by_its_id(example: Emulator) -> None:
    (deployment,) = example.get("deployments", "-n", "llm")
    assert deployment["status"]["readyReplicas"] == 1
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {variable["name"]: variable.get("value") for variable in container["env"]}["HF_HUB_OFFLINE"] == "1"
    assert not any("secretKeyRef" in str(variable) for variable in container["env"])
    assert example.get("secrets", "-n", "llm") == []
    mounts = {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert (mounts["models"], mounts["compiled"]) == (True, False)
    assert MODEL in str(example.outputs()["servers"])
    example.make("smoke")
    settled(example)


@pytest.mark.nightly
def test_deleted_job_is_created_again_and_downloads_nothing(example: Emulator) -> None:
    (job,) = example.get("jobs", "-n", "model-cache")
    before = written(example)
    example.kubectl("-n", "model-cache", "delete", "job", job["metadata"]["name"])
    example.pulumi("refresh", "--yes")
    example.make("up", example.configure(EXAMPLE, serving=serving()))
    (again,) = example.get("jobs", "-n", "model-cache")
    assert again["metadata"]["uid"] != job["metadata"]["uid"]
    assert written(example) == before


@pytest.mark.nightly
def test_failed_download_stops_up_with_its_reason_and_the_next_up_repeats_it(example: Emulator) -> None:
    config = example.configure(EXAMPLE, serving=serving(revision="missing"))
    uids = set()
    for _ in range(2):
        printed = example.make("up", config, fails=True)
        assert "does not have the model, revision or file. Check their names." in printed
        (job,) = (job for job in example.get("jobs", "-n", "model-cache") if "Failed" in str(job["status"]))
        uids.add(job["metadata"]["uid"])
        (deployment,) = example.get("deployments", "-n", "llm")
        assert deployment["status"]["readyReplicas"] == 1, "the server goes on with its model"
    assert len(uids) == 2


def test_another_revision_is_another_job_and_folder_and_down_leaves_only_the_bucket(example: Emulator) -> None:
    before = {job["metadata"]["name"] for job in example.get("jobs", "-n", "model-cache")}
    example.make("up", example.configure(EXAMPLE, serving=serving(revision=NEXT)))
    (job,) = example.get("jobs", "-n", "model-cache")
    assert job["metadata"]["name"] not in before
    assert "complete" in example.make("status")
    assert f"{MODEL}/{NEXT}/COMPLETE" in objects(example)
    assert stored(example, NEXT) == hub.files(MODEL)
    (deployment,) = example.get("deployments", "-n", "llm")
    assert f"/models/{MODEL}/{NEXT}" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert example.planned() == {}
    kept = objects(example)
    assert f"gs://{BUCKET}" in example.make("down")
    assert objects(example) == kept
    gone(example, Found(frozenset({BUCKET}), frozenset()))
