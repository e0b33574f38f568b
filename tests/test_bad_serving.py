"""Mistakes in servers and compute classes: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_bad_configuration import TOKEN, Configuration, Mistake, both, drop, is_reported_alone, problems_of, put

CLASS = "computeClasses.0"
SECOND_CHOICE = f"{CLASS}.priorities.1"


L4_POOL = {
    "name": "l4",
    "machineType": "g2-standard-24",
    "zones": ["us-west4-a"],
    "autoscaling": {"minNodes": 0, "maxNodes": 2},
}
# Two fit a node's GPUs, CPU and memory, but not its disk.
ON_L4 = {
    "engine": "vllm",
    "namespace": "default",
    "model": "google/gemma-3-4b-it",
    "maxModelLen": 8192,
    "pool": "l4",
    "resources": {"cpu": 8, "memory": "32Gi", "ephemeralStorage": "60Gi"},
}


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
        "a disk that v6e does not attach",
        put("serving.3.scratch.storageClass", "premium-rwo"),
        "gke-ai:serving[3].scratch.storageClass",
        "disks of StorageClass premium-rwo are of type pd-ssd, which ct6e-standard-4t does not attach. "
        "The pods would stay pending",
        "Remove storageClass, or write a class of a type that the machine attaches: hyperdisk-balanced",
        good,
    ),
    Mistake(
        "a disk that not all machines of a class attach",
        both(
            put("computeClasses.0.priorities.+", {"machineType": "g4-standard-96"}), put("serving.0.image", "own/tgi:1")
        ),
        "gke-ai:serving[0].scratch",
        "no disk type can be attached to all machines of the server: g2-standard-24, g4-standard-96",
        "Remove scratch, or choose machines of one family",
        good,
    ),
    Mistake(
        "a pod that is killed while it still gets requests",
        put("serving.0.terminationGracePeriodSeconds", 10),
        "gke-ai:serving[0].terminationGracePeriodSeconds",
        "a terminating pod answers for 15 s, and is killed after 10 s",
        "Set it above 15, or lower drainSeconds",
        good,
    ),
    Mistake(
        "a pod that goes on answering for an hour",
        put("serving.0.drainSeconds", 3600),
        "gke-ai:serving[0].drainSeconds",
        "3600 is above the maximum, 600",
        "Set it to 600",
        good,
    ),
    # Compute classes
    Mistake(
        "two classes of one name",
        put("computeClasses.+", {"name": "cheap", "priorities": [{"machineType": "g2-standard-24"}]}),
        "gke-ai:computeClasses[1].name",
        "compute class cheap is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "a class of a name that GKE keeps",
        put("computeClasses.+", {"name": "autopilot-spot", "priorities": [{"machineType": "g2-standard-24"}]}),
        "gke-ai:computeClasses[1].name",
        "GKE reserves the name autopilot-spot for its own classes. It would refuse the class",
        "does not begin with autopilot or gke",
    ),
    Mistake(
        "a class without a choice",
        put("computeClasses.+", {"name": "empty", "priorities": []}),
        "gke-ai:computeClasses[1].priorities",
        "priorities is empty",
        "Add an entry",
    ),
    Mistake(
        "a choice of a machine that does not exist",
        put(f"{SECOND_CHOICE}.machineType", "g2-standart-24"),
        "gke-ai:computeClasses[0].priorities[1].machineType",
        "g2-standart-24 is not a machine type of the catalog. GKE would create no node",
        "Did you mean g2-standard-24?",
    ),
    Mistake(
        "a choice of a TPU machine",
        put(f"{SECOND_CHOICE}.machineType", "ct5lp-hightpu-8t"),
        "gke-ai:computeClasses[0].priorities[1].machineType",
        "ct5lp-hightpu-8t has TPUs",
        "Use a pool of gke-ai:tpuPools",
    ),
    Mistake(
        "a driver on a machine without GPUs",
        put("computeClasses.+", {"name": "cpu", "priorities": [{"machineType": "e2-standard-8", "driver": "latest"}]}),
        "gke-ai:computeClasses[1].priorities[0].driver",
        "e2-standard-8 has no GPU, and driver is for GPUs. GKE would refuse the class",
        "Remove driver, or choose a machine with GPUs",
    ),
    Mistake(
        "the same choice twice",
        put(
            f"{CLASS}.priorities.+", {"machineType": "g2-standard-24", "capacity": {"mode": "spot"}, "driver": "latest"}
        ),
        "gke-ai:computeClasses[0].priorities[2]",
        "it is the same choice as priorities[0]",
        "Remove it, or change its machine type or capacity",
    ),
    Mistake(
        "queued flex-start in a class",
        put(f"{SECOND_CHOICE}.capacity", {"mode": "queuedFlexStart"}),
        "gke-ai:computeClasses[0].priorities[1].capacity.mode",
        "queuedFlexStart is not a capacity mode of GKE",
        "onDemand | spot | reservation | flexStart",
    ),
    Mistake(
        "a choice that is both Spot and flex-start",
        put(f"{SECOND_CHOICE}.capacity", {"mode": "spot", "recycleLeadTimeSeconds": 3600}),
        "gke-ai:computeClasses[0].priorities[1].capacity.recycleLeadTimeSeconds",
        "recycleLeadTimeSeconds is not a key of spot capacity. It would have no effect",
        "mode",
    ),
    Mistake(
        "a successor that is looked for before the node is there",
        put(f"{SECOND_CHOICE}.capacity.maxRunDurationSeconds", 3600),
        "gke-ai:computeClasses[0].priorities[1].capacity.recycleLeadTimeSeconds",
        "a node lives for 3600 seconds, and its recycling would begin 3600 seconds before its end",
        "Set it below 3600",
    ),
    Mistake(
        "a successor looked for at the start of seven days",
        put(f"{SECOND_CHOICE}.capacity.recycleLeadTimeSeconds", 604800),
        "gke-ai:computeClasses[0].priorities[1].capacity.recycleLeadTimeSeconds",
        "a node lives for 604800 seconds",
        "Set it below 604800",
    ),
    Mistake(
        "a reservation that is a URL",
        put(f"{SECOND_CHOICE}.capacity", {"mode": "reservation", "reservation": "https://example.com/r"}),
        "gke-ai:computeClasses[0].priorities[1].capacity.reservation",
        '"https://example.com/r" is not a valid reservation name. GKE would create no node',
        "projects/PROJECT/reservations/NAME",
    ),
    Mistake(
        "pools that nobody makes",
        put(f"{CLASS}.autoCreatePools", False),
        "gke-ai:computeClasses[0].autoCreatePools",
        "no pool of the cluster belongs to the class, and GKE creates none",
        "Remove it, or use gke-ai:gpuPools without a class",
    ),
    Mistake(
        "a choice that nothing fits",
        put(f"{SECOND_CHOICE}.machineType", "e2-standard-8"),
        "gke-ai:computeClasses[0].priorities[1].machineType",
        "e2-standard-8 has 0 GPUs for pods, less than any workload of the class requests",
        "Remove it, or choose a larger machine",
    ),
    # Servers on a compute class
    Mistake(
        "a server that no choice holds",
        put("serving.0.gpus", 4),
        "gke-ai:serving[0].gpus",
        "a replica of the server requests 4 GPUs, and no choice of compute class cheap has as much: "
        "g2-standard-24 has 2 GPUs for pods",
        "add a larger machine to gke-ai:computeClasses[0].priorities",
    ),
    Mistake(
        "a server with more memory than any choice has",
        put("serving.1.resources", {"memory": "95Gi"}),
        "gke-ai:serving[1].resources.memory",
        "a replica of the server requests 95Gi of memory, and no choice of compute class cheap has as "
        "much: g2-standard-24 has 85.3Gi of memory for pods",
        "Request less, or add a larger machine to gke-ai:computeClasses[0].priorities",
    ),
    Mistake(
        "a server with more ephemeral storage than the default boot disk of a class in Standard mode",
        put("serving.1.resources", {"ephemeralStorage": "60Gi"}),
        "gke-ai:serving[1].resources.ephemeralStorage",
        "a replica of the server requests 60Gi of ephemeral-storage, and no choice of compute class cheap has as "
        "much: g2-standard-24 has 43.8Gi of ephemeral-storage for pods",
        "Request less, or mount a bucket",
    ),
    Mistake(
        "a class that does not exist",
        put("serving.0.computeClass", "chaep"),
        "gke-ai:serving[0].computeClass",
        "compute class chaep does not exist. The pods would stay pending",
        "Did you mean cheap?",
    ),
    Mistake(
        "a class and an accelerator",
        both(put("cluster.mode", "existing"), put("serving.0.accelerator", "nvidia-l4")),
        "gke-ai:serving[0].accelerator",
        "the server names a compute class and accelerator nvidia-l4",
        "Remove accelerator or computeClass",
    ),
    Mistake(
        "a class and a pool",
        both(
            put("gpuPools", [{"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}]),
            put("serving.0.pool", "l4"),
        ),
        "gke-ai:serving[0].pool",
        "the server names a compute class and pool l4",
        "Remove pool or computeClass",
    ),
    # Engines
    Mistake(
        "an engine that does not exist",
        put("serving.1.engine", "vlm"),
        "gke-ai:serving[1].engine",
        '"vlm" is not a known engine',
        "Did you mean vllm?",
    ),
    Mistake(
        "a quantization method that TGI does not have",
        put("serving.0.quantize", "bitsandbytes-nf8"),
        "gke-ai:serving[0].quantize",
        "bitsandbytes-nf8 is not a quantization method of Text Generation Inference",
        "Did you mean bitsandbytes-nf4?",
    ),
    Mistake(
        "a quantization method of another engine",
        put("serving.1.quantize", "eetq"),
        "gke-ai:serving[1].quantize",
        "eetq is not a quantization method of vLLM. The server would not start",
        "Write one of: auto_awq, auto_gptq, awq",
    ),
    Mistake(
        "an argument that a key of the server says",
        put("serving.1.arguments.+", "--tensor_parallel_size=2"),
        "gke-ai:serving[1].arguments",
        "gpus sets tensor-parallel-size. The server would get it twice",
        "Remove it and set gke-ai:serving[1].gpus",
    ),
    Mistake(
        "a token among the arguments",
        put("serving.1.arguments.+", f"--override={TOKEN}"),
        "gke-ai:serving[1].arguments",
        "the argument contains a token in plain text",
        "pulumi config set --secret gke-ai:hfToken",
    ),
    Mistake(
        "a scratch volume at a relative path",
        put("serving.0.scratch.mountPath", "data"),
        "gke-ai:serving[0].scratch.mountPath",
        "data is not a valid mount path. It must be absolute, and not / or /dev/shm",
        "Write for example /tmp",
    ),
    Mistake(
        "a scratch volume where shared memory is",
        put("serving.0.scratch.mountPath", "/dev/shm"),
        "gke-ai:serving[0].scratch.mountPath",
        "/dev/shm is not a valid mount path. It must be absolute, and not / or /dev/shm",
        "Write for example /tmp",
    ),
    Mistake(
        "a Service of the API server's name",
        put("serving.0.service", "kubernetes"),
        "gke-ai:serving[0].service",
        "Service kubernetes in namespace default belongs to the API server",
        "Choose another name",
    ),
    Mistake(
        "a queue in the default namespace",
        both(
            put(
                "queues",
                {
                    "flavors": [{"name": "any"}],
                    "clusterQueues": [
                        {"name": "all", "flavors": [{"flavor": "any", "quota": {"nvidia.com/gpu": 8}}]},
                    ],
                    "localQueues": [{"name": "lq", "namespace": "default", "clusterQueue": "all"}],
                },
            ),
            put("serving.0.queue", "lq"),
        ),
        "gke-ai:serving[0].namespace",
        "the server has a queue in namespace default, which is never deleted",
        "Choose a namespace of the stack's own",
    ),
    # vLLM on TPUs
    Mistake(
        "vLLM for GPUs on a pool of TPUs",
        both(drop("serving.1.computeClass"), drop("serving.1.quantize"), put("serving.1.pool", "v5e")),
        "gke-ai:serving[1].pool",
        "pool v5e has TPUs, and vLLM runs on GPUs. The pods would stay pending",
        "Set engine: vllm-tpu, or name a GPU pool",
        good,
    ),
    Mistake(
        "a slice for vLLM on GPUs",
        put("serving.1.tpu", {"version": "v6e", "topology": "2x2"}),
        "gke-ai:serving[1].tpu",
        "tpu is not a key of a vLLM server. It would have no effect",
        "Remove it, or set engine: vllm-tpu, which has this key",
        good,
    ),
    Mistake(
        "vLLM for TPUs on a pool of GPUs",
        both(
            put("gpuPools", [{"name": "l4", "machineType": "g2-standard-24", "nodesPerZone": 1}]),
            put("serving.3.pool", "l4"),
        ),
        "gke-ai:serving[3].pool",
        "pool l4 has GPUs, and vLLM on TPUs runs on TPUs. The pods would stay pending",
        "Set engine: vllm, or name a TPU pool",
        good,
    ),
    Mistake(
        "GPUs for vLLM on TPUs",
        put("serving.3.gpus", 4),
        "gke-ai:serving[3].gpus",
        "gpus is not a key of a vLLM server on TPUs. It would have no effect",
        "Remove it, or set engine: vllm, which has this key",
        good,
    ),
    Mistake(
        "a key of the former default engine",
        put("serving.1.portVariable", "PORT"),
        "gke-ai:serving[1].portVariable",
        "portVariable is not a key of a vLLM server. It would have no effect",
        "Remove it, or set engine: tgi, which has this key",
        good,
    ),
    Mistake(
        "vLLM on several machines of a slice",
        both(
            put("cluster.mode", "existing"),
            drop("serving.3.pool"),
            put("serving.3.tpu", {"version": "v6e", "topology": "4x4"}),
        ),
        "gke-ai:serving[3].tpu",
        "a 4x4 slice of ct6e-standard-4t has 4 machines, and this is single-host vLLM on TPUs",
        "Choose a single-host slice of TPU v6e",
        good,
    ),
    Mistake(
        "a TPU that vLLM only tries",
        put("tpuPools.1", {"name": "v6e", "version": "v5p", "topology": "2x2x1", "nodesPerZone": 1}),
        "gke-ai:serving[3].pool",
        "vLLM on TPUs does not support TPU v5p yet. The server would fail",
        "Use v5e, v6e or tpu7x, or an image of your own",
        good,
    ),
    Mistake(
        "an argument that the slice says",
        put("serving.3.arguments.+", "--tensor-parallel-size=2"),
        "gke-ai:serving[3].arguments",
        "pool sets tensor-parallel-size. The server would get it twice",
        "Remove it and set gke-ai:serving[3].pool",
        good,
    ),
    Mistake(
        "compiled programs at a relative path",
        put("serving.3.xlaCache", "cache"),
        "gke-ai:serving[3].xlaCache",
        "cache is not an absolute path of a folder, or uses memory. Programs would not be kept",
        "Write for example /tmp/xla-cache",
        good,
    ),
    Mistake(
        "a sequence of no tokens on TPUs",
        put("serving.3.maxModelLen", 0),
        "gke-ai:serving[3].maxModelLen",
        "0 is below the minimum, 1",
        "Set it to 1 or more",
        good,
    ),
    Mistake(
        "an address in place of a model",
        put("serving.3.model", "gs://models/llama"),
        "gke-ai:serving[3].model",
        '"gs://models/llama" is not an id on Hugging Face',
        "Write OWNER/NAME",
        good,
    ),
    # JetStream
    Mistake(
        "JetStream on a pool and a slice",
        put("serving.2.tpu", {"version": "v5e", "topology": "2x4"}),
        "gke-ai:serving[2].tpu",
        "`pool` and `tpu` are mutually exclusive",
        "Remove one of them",
    ),
    Mistake(
        "JetStream on a multi-host slice",
        both(
            drop("serving.2.pool"),
            put("serving.2.tpu", {"version": "v5e", "topology": "4x4"}),
            put("cluster.mode", "existing"),
        ),
        "gke-ai:serving[2].tpu",
        "a 4x4 slice of ct5lp-hightpu-4t has 4 machines, and this is single-host JetStream",
        "Choose a single-host slice of TPU v5e",
    ),
    Mistake(
        "more replicas than the pool has nodes",
        put("serving.2.replicas", 3),
        "gke-ai:serving[2].replicas",
        "3 replicas of gemma need at least 3 nodes, and pool v5e has at most 2",
        "Make the pool larger, or request less",
    ),
    Mistake(
        "servers that together need more nodes than their pool has",
        both(
            put("gpuPools", [L4_POOL]),
            put("serving.1", {**ON_L4, "name": "first", "replicas": 2}),
            put("serving.0", {**ON_L4, "name": "second"}),
        ),
        "gke-ai:serving[1].replicas",
        "3 replicas of second, first need at least 3 nodes, and pool l4 has at most 2: a replica of first requests "
        "60Gi of ephemeral-storage, and a node has 97.4Gi of ephemeral-storage for pods. 1 or more would stay pending",
        "Make the pool larger, or request less",
    ),
    Mistake(
        "a checkpoint that is no address",
        put("serving.2.checkpoint", "/models/gemma"),
        "gke-ai:serving[2].checkpoint",
        '"/models/gemma" is not a gs:// URI of a checkpoint. The server would find no model',
        "Write gs://BUCKET/PATH",
    ),
    Mistake(
        "a model of Hugging Face for JetStream",
        put("serving.2.model", "google/gemma-7b"),
        "gke-ai:serving[2].model",
        '"google/gemma-7b" is not a MaxText model name. The server would not start',
        "for example gemma-7b",
    ),
    Mistake(
        "no room for an answer",
        put("serving.2.maxPrefillLength", 2048),
        "gke-ai:serving[2].maxPrefillLength",
        "prompts may have 2048 tokens, and prompt and answer together 2048",
        "Set it below 2048",
    ),
    Mistake(
        "a setting of MaxText that a key says",
        put("serving.2.arguments", {"per_device_batch_size": "8"}),
        "gke-ai:serving[2].arguments",
        "batchSize sets per_device_batch_size. The server would get it twice",
        "Remove it and set gke-ai:serving[2].batchSize",
    ),
    Mistake(
        "metrics on the port of gRPC",
        put("serving.2.metricsPort", 9000),
        "gke-ai:serving[2].metricsPort",
        "JetStream already listens on port 9000. The server would not start",
        "for example 9100",
    ),
    Mistake(
        "HTTP on the port of gRPC",
        put("serving.2.port", 9000),
        "gke-ai:serving[2].port",
        "port 9000 is JetStream's own gRPC port. Kubernetes would refuse the Service",
        "for example 8000",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, good())


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
