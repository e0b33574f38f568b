"""A run that has ended stays ended, and a token is nowhere to be read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.end_to_end.standin import StandIn, eventually
from tests.end_to_end.test_convergence import EXAMPLE, section

pytestmark = pytest.mark.cluster

DEV = "Pulumi.dev.yaml"


def test_finished_job_is_not_run_again_and_a_changed_one_runs_beside_it(stand_in: StandIn) -> None:
    stand_in.make("up", stand_in.configure(DEV))
    (first,) = stand_in.get("jobs", "-n", "llm")
    wanted = first["spec"]["parallelism"]
    eventually(lambda: stand_in.get("jobs", "-n", "llm")[0]["status"].get("ready") == wanted, "all its pods run")
    finish = "import local.cluster, sys; local.cluster.finish_job(*sys.argv[1:])"
    cluster = stand_in.outputs()["clusterName"]
    stand_in.run("python", "-c", finish, cluster, "llm", first["metadata"]["name"])
    eventually(lambda: stand_in.get("jobs", "-n", "llm")[0]["status"].get("completionTime"), "the run has ended")

    stand_in.pulumi("refresh", "--yes", "--skip-preview")
    stand_in.make("up")
    (same,) = stand_in.get("jobs", "-n", "llm")
    assert same["metadata"]["uid"] == first["metadata"]["uid"]

    (training,) = section("training", DEV)
    stand_in.make("up", stand_in.configure(DEV, training=[{**training, "epochs": 3}]))
    jobs = {job["metadata"]["name"]: job for job in stand_in.get("jobs", "-n", "llm")}
    assert len(jobs) == 2
    assert jobs[first["metadata"]["name"]]["metadata"]["uid"] == first["metadata"]["uid"]
    assert stand_in.planned() == {}


@pytest.mark.parametrize("given", ["secret", "variable"])
def test_token_is_in_no_state_preview_log_or_output(given: str, stand_in_with: Callable[..., StandIn]) -> None:
    canary = "hf_canary-in-the-coal-mine"
    stand_in = stand_in_with(**({"HF_TOKEN": canary} if given == "variable" else {}))
    config = stand_in.configure(EXAMPLE)
    said = [stand_in.make("preview", config)]
    if given == "secret":
        stand_in.pulumi("config", "set", "--secret", "gke-ai:hfToken", canary)
    said += [stand_in.make("preview"), stand_in.pulumi("preview", "--json"), stand_in.make("up")]
    secret = stand_in.get("secrets", "-n", "llm", "--field-selector=metadata.name=hf-secret")
    assert secret[0]["data"]["hf_api_token"], "the server has its token"
    said += [json.dumps(stand_in.outputs()), json.dumps(stand_in.exported()), stand_in.make("status")]
    for number, text in enumerate(said):
        assert canary not in text, f"output {number} holds the token"
    cluster = stand_in.outputs()["clusterName"]
    for file in (path for path in stand_in.state.rglob("*") if path.is_file()):
        kept_by_kubernetes = (stand_in.state / "clusters" / cluster) in file.parents and "etcd" in str(file)
        assert kept_by_kubernetes or canary.encode() not in file.read_bytes(), f"{file.name} holds the token"
