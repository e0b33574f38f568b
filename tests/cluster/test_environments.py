"""Only here: prod from the first `up` to `down`, and refusals by the engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from emulator.pods.secret_sync import DUMMY_TOKEN
from tests.support.emulator import Emulator, assert_nothing_left, cloud_of, fresh
from tests.support.examples import EXAMPLE, changed, section
from tests.support.mistakes import PROJECT
from tests.support.workloads import row, token_in

PROD = "Pulumi.prod.yaml"


@pytest.fixture(scope="module")
def prod() -> Iterator[Emulator]:
    """The deployed production environment. The tests below use it in order, and the last destroys it."""
    with fresh() as emulator:
        config = emulator.configure(PROD)
        refused = emulator.make("up", config, fails=True)
        command = "emulator/run existing secret hf-token --project my-project"
        assert command in refused
        emulator.run(*command.split()[1:])
        emulator.make("up", config)
        yield emulator


@pytest.mark.nightly
def test_prod_serves_trains_and_gets_its_token_past_the_program(prod: Emulator) -> None:
    assert prod.planned() == {}
    for namespace in ("serving", "training"):
        assert token_in(prod, namespace) == DUMMY_TOKEN
    for file in (prod.state / "backend").rglob("*"):
        assert not file.is_file() or DUMMY_TOKEN.encode() not in file.read_bytes(), f"the token is in {file.name}"
    output = prod.make("smoke")
    for server in ("gemma", "llama", "qwen"):
        assert row(output, f"serving/{server}"), output
    status = prod.make("status")
    assert "Admitted" in row(status, "training/job/finetune-")
    assert "8, 4 borrowed" in row(status, "training", "l4", "nvidia.com/gpu"), "training borrows what serving leaves"
    assert "2 of 2" in row(status, "training/pretrain-"), "both slices train"


@pytest.mark.nightly
def test_protected_prod_is_deleted_only_after_protection_is_off(prod: Emulator) -> None:
    before = cloud_of(prod)
    refused = prod.make("down", fails=True)
    for guarded in ("cluster ai-prod", "bucket ai-prod-models-my-project", "nodepool slice-1", "nodepool v5e"):
        assert guarded in refused
    assert cloud_of(prod) == before

    unprotected: dict[str, Any] = {
        "cluster": {**section("cluster", PROD), "protect": False},
        "buckets": [{**bucket, "protect": False} for bucket in section("buckets", PROD)],
        "tpuPools": [{**pool, "protect": False} for pool in section("tpuPools", PROD)],
    }
    assert "clusters-and-buckets-are-protected" in prod.make("up", prod.configure(PROD, **unprotected), fails=True)
    prod.make("up", prod.configure(PROD, **unprotected, policies="advisory"))
    assert "gs://ai-prod-models-my-project" in prod.make("down")
    assert_nothing_left(prod)
    assert cloud_of(prod) == {f"projects/{PROJECT}/secrets/hf-token", "ai-prod-models-my-project"}


def test_bad_configuration_creates_nothing_and_shows_no_traceback(emulator: Emulator) -> None:
    pool = {**section("gpuPools")[0], "machineTyp": "g2-standard-24", "zones": ["europe-west4-a"]}
    config = emulator.configure(EXAMPLE, gpuPools=[pool], **changed("serving", queue="lg"))
    for command in ("preview", "up"):
        output = emulator.make(command, config, fails=True)
        for path in ("gke-ai:gpuPools[0].machineTyp", "gke-ai:gpuPools[0].zones[0]", "gke-ai:serving[0].queue"):
            assert path in output, f"{path} is not reported by {command}"
        assert "Traceback" not in output
        assert "did you mean" in output.lower()
    assert [resource for resource in emulator.exported().get("resources", []) if resource["custom"]] == []
    assert not list((emulator.state / "clusters").glob("*"))
