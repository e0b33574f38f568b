"""Mistakes in autoscaling: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mistakes import Configuration, problems_of, put

SCALER = "autoscaling.0"


def good() -> Configuration:
    """A JetStream server on two slices of eight chips, scaled by its backlog through Stackdriver."""
    return {
        "cluster": {"name": "jetstream", "mode": "standard", "location": "us-west4"},
        "tpuPools": [
            {"name": "v5e", "version": "v5e", "topology": "2x4", "zones": ["us-west4-a"], "nodesPerZone": 2},
            {"name": "other", "version": "v5e", "topology": "2x2", "zones": ["us-west4-a"], "nodesPerZone": 1},
        ],
        "serving": [server("jetstream", "v5e")],
        "autoscaling": [scaler("jetstream")],
    }


def server(name: str, pool: str, **more: Any) -> Configuration:
    return {
        "name": name,
        "engine": "jetstream",
        "model": "gemma-7b",
        "checkpoint": "gs://bucket/checkpoint",
        "pool": pool,
        **more,
    }


def scaler(of: str, **more: Any) -> Configuration:
    return {
        "name": f"{of}-hpa",
        "server": of,
        "adapter": "stackdriver",
        "maxReplicas": 2,
        "metrics": [{"metric": "prefillBacklog", "target": 10}],
        **more,
    }


def existing() -> Configuration:
    """A Deployment that is in an existing cluster, scaled by the memory of its TPUs through Prometheus."""
    return {
        "cluster": {"name": "jetstream", "mode": "existing", "location": "us-west4"},
        "autoscaling": [
            {
                "name": "hpa",
                "deployment": {"name": "maxengine-server", "app": "maxengine-server"},
                "adapter": "prometheus",
                "maxReplicas": 4,
                "metrics": [{"metric": "tpuMemory", "target": 0.8}],
            }
        ],
    }


def vllm() -> Configuration:
    """A vLLM server on two nodes with one L4 each, scaled by its queue through Stackdriver."""
    return {
        "cluster": {"name": "serving", "mode": "standard", "location": "us-west4"},
        "gpuPools": [{"name": "l4", "machineType": "g2-standard-12", "zones": ["us-west4-a"], "nodesPerZone": 2}],
        "serving": [{"name": "gemma", "engine": "vllm", "model": "google/gemma-2-2b", "pool": "l4"}],
        "autoscaling": [scaler("gemma", metrics=[{"metric": "queuedRequests", "target": 5}])],
    }


def tgi() -> Configuration:
    """The same with Text Generation Inference."""
    values = vllm()
    values["serving"][0]["engine"] = "tgi"
    return values


def tpu() -> Configuration:
    """vLLM on two slices of eight chips, scaled by its queue through Prometheus."""
    values = good()
    values["serving"] = [{"name": "gemma", "engine": "vllm-tpu", "model": "google/gemma-2-2b", "pool": "v5e"}]
    metrics = [{"metric": "queuedRequests", "target": 5}]
    values["autoscaling"] = [scaler("gemma", adapter="prometheus", metrics=metrics)]
    return values


def two() -> Configuration:
    """Two servers in namespaces of their own, each scaled."""
    values = good()
    values["serving"].append(server("second", "other", namespace="second", batchSize=8))
    values["autoscaling"].append(scaler("second", maxReplicas=1))
    return values


def metrics(*pairs: tuple[str, Any]) -> Any:
    return put(f"{SCALER}.metrics", [{"metric": metric, "target": target} for metric, target in pairs])


@pytest.mark.parametrize("base", [good, existing, two, vllm, tgi, tpu])
def test_valid_autoscaling_is_accepted(base: Any) -> None:
    assert problems_of(base()) == []


def test_repeated_names_are_reported_with_their_namespace() -> None:
    values = two()
    values["serving"][1]["namespace"] = "llm"
    values["autoscaling"][1]["name"] = "jetstream-hpa"
    causes = [problem.cause for problem in problems_of(values)]
    assert len(causes) == 2
    assert "autoscaler llm/jetstream-hpa is defined twice. The second could not be created" in causes


@pytest.mark.parametrize("section", ["serving", "tpuPools", "cluster"])
def test_autoscaler_is_not_blamed_for_a_section_that_can_not_be_read(section: str) -> None:
    values = good()
    values[section] = "oops"
    assert [problem.path for problem in problems_of(values)] == [f"gke-ai:{section}"]
