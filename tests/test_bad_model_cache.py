"""Mistakes in model caches: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from tests.mistakes import Configuration, problems_of, put

CACHE = "serving.0.modelCache"
PATH = "gke-ai:serving[0].modelCache"


def good() -> Configuration:
    """A queued vLLM server and a JetStream server on TPUs, of which the first reads its model from a bucket."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-west4"},
        "buckets": [{"name": "models"}],
        "gpuPools": [{"name": "l4", "machineType": "g2-standard-16", "zones": ["us-west4-a"], "nodesPerZone": 1}],
        "tpuPools": [{"name": "v5e", "version": "v5e", "topology": "2x4", "zones": ["us-west4-a"], "nodesPerZone": 1}],
        "queues": {
            "flavors": [{"name": "l4", "pools": ["l4"]}],
            "clusterQueues": [
                {
                    "name": "gpus",
                    "flavors": [
                        {
                            "flavor": "l4",
                            "quota": {"cpu": 12, "memory": "40Gi", "ephemeral-storage": "80Gi", "nvidia.com/gpu": 1},
                        }
                    ],
                }
            ],
            "localQueues": [{"name": "lq", "namespace": "llm", "clusterQueue": "gpus"}],
        },
        "serving": [
            {
                "name": "gemma",
                "engine": "vllm",
                "queue": "lq",
                "pool": "l4",
                "model": "google/gemma-2-9b-it",
                "quantize": "fp8",
                "maxModelLen": 4096,
                "resources": {"cpu": 8, "memory": "30Gi", "ephemeralStorage": "20Gi"},
                "modelCache": {"bucket": "models"},
            },
            {
                "name": "jetstream",
                "engine": "jetstream",
                "model": "gemma-7b",
                "checkpoint": "gs://checkpoints/gemma-7b/0/items",
                "pool": "v5e",
            },
        ],
    }


NEW_IMAGE = put("serving.0.image", "vllm/vllm-openai:v0.11.2")


def test_good_configuration_has_no_problem() -> None:
    assert problems_of(good()) == []


def test_streamer_of_a_newer_image_is_no_mistake() -> None:
    values = good()
    put(f"{CACHE}.reader", "streamer")(values)
    NEW_IMAGE(values)
    assert problems_of(values) == []


def test_image_without_a_release_in_its_tag_is_no_mistake() -> None:
    values = good()
    put(f"{CACHE}.reader", "streamer")(values)
    put("serving.0.image", "us-docker.pkg.dev/my-project/vllm:nightly")(values)
    assert problems_of(values) == []


def test_model_outside_the_catalog_with_a_stated_cache_is_no_mistake() -> None:
    values = good()
    put("serving.0.model", "example/unheard-of")(values)
    put(f"{CACHE}.fileCache", "20Gi")(values)
    assert problems_of(values) == []
