"""Mistakes with batch Jobs and Multislice runs on TPUs: each is found, alone, at its path, with a remedy."""

from __future__ import annotations

from functools import partial

from tests.support.mistakes import base, good, problems_of

with_bucket = partial(base, "tpu_workloads", "with_bucket")


def test_fine_tune_on_a_queued_pool_waits_in_a_queue() -> None:
    values = good()
    capacity = {"mode": "queuedFlexStart"}
    pool = {"name": "dws", "machineType": "g2-standard-24", "autoscaling": {"maxNodes": 2}, "capacity": capacity}
    values["gpuPools"].append(pool)
    values["training"][0]["pool"] = "dws"
    del values["training"][0]["queue"]
    (problem,) = problems_of(values)
    assert problem.path == "gke-ai:training[0].pool"
    values["training"][0]["queue"] = "lq"
    values["queues"]["flavors"].append({"name": "dws", "pools": ["dws"]})
    values["queues"]["clusterQueues"][0]["flavors"].append({"flavor": "dws", "quota": "derive"})
    assert problems_of(values) == []


def test_token_is_needed_where_a_run_reads_it() -> None:
    values = with_bucket()
    del values["hfTokenSecret"]
    (problem,) = problems_of(values, token_given=False)
    assert problem.path == "gke-ai:hfToken"
