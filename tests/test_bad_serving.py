"""Mistakes in servers and compute classes: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mistakes import TOKEN, Configuration, Mistake, problems_of, put


def good() -> Configuration:
    """A compute class with servers of TGI and vLLM, and pools with servers of JetStream and vLLM; nothing is wrong."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-west4"},
        "tpuPools": [
            {"name": "v5e", "version": "v5e", "topology": "2x4", "zones": ["us-west4-a"], "nodesPerZone": 2},
            {"name": "v6e", "version": "v6e", "topology": "2x2", "zones": ["us-west4-a"], "nodesPerZone": 1},
        ],
        "computeClasses": [
            {
                "name": "cheap",
                "priorities": [
                    {"machineType": "g2-standard-24", "capacity": {"mode": "spot"}, "driver": "latest"},
                    {
                        "machineType": "g2-standard-24",
                        "capacity": {"mode": "flexStart", "recycleLeadTimeSeconds": 3600},
                    },
                ],
            }
        ],
        "serving": [
            {
                "name": "mixtral",
                "engine": "tgi",
                "namespace": "default",
                "model": "mistralai/Mixtral-8x7B-Instruct-v0.1",
                "computeClass": "cheap",
                "gpus": 2,
                "quantize": "bitsandbytes-nf4",
                "scratch": {"mountPath": "/tmp"},
            },
            {
                "name": "llama",
                "engine": "vllm",
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "computeClass": "cheap",
                "quantize": "awq_marlin",
                "maxModelLen": 4096,
                "arguments": ["--max-num-seqs=64"],
            },
            {
                "name": "gemma",
                "engine": "jetstream",
                "model": "gemma-7b",
                "checkpoint": "gs://models/gemma-7b/0/items",
                "pool": "v5e",
                "replicas": 2,
                "arguments": {"ici_tensor_parallelism": "8"},
            },
            {
                "name": "chat",
                "engine": "vllm-tpu",
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "pool": "v6e",
                "maxModelLen": 4096,
                "arguments": ["--max-num-seqs=64"],
                "scratch": {"mountPath": "/tmp"},
                "xlaCache": "/tmp/xla",
            },
        ],
    }


MISTAKES = [
    Mistake(
        "a token among the arguments",
        put("serving.1.arguments.+", f"--override={TOKEN}"),
        "gke-ai:serving[1].arguments",
        "the argument contains a token in plain text",
        "pulumi config set --secret gke-ai:hfToken",
        good,
    ),
]


def test_good_configuration_has_no_problem() -> None:
    assert problems_of(good()) == []


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("a choice that one of two servers fits", {"computeClasses.0.priorities.+": {"machineType": "g2-standard-8"}}),
        ("a method that a newer vLLM has", {"serving.1.image": "vllm/vllm-openai:v9", "serving.1.quantize": "new"}),
    ],
)
def test_valid_settings_are_no_mistake(what: str, values: dict[str, Any]) -> None:
    configuration = good()
    for path, value in values.items():
        put(path, value)(configuration)
    assert problems_of(configuration) == [], what


def test_gke_chooses_a_boot_disk_for_a_class_on_autopilot() -> None:
    configuration = good()
    put("serving.1.resources", {"ephemeralStorage": "60Gi"})(configuration)
    assert [problem.path for problem in problems_of(configuration)] == ["gke-ai:serving[1].resources.ephemeralStorage"]
    put("cluster.mode", "autopilot")(configuration)
    assert "gke-ai:serving[1].resources.ephemeralStorage" not in [
        problem.path for problem in problems_of(configuration)
    ]


def test_jetstream_needs_no_token() -> None:
    values = good()
    values["serving"] = values["serving"][2:3]
    assert problems_of(values, token_given=False) == []
