"""Mistakes in model caches: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

import pytest

from tests.test_bad_configuration import Configuration, Mistake, both, drop, is_reported_alone, problems_of, put

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
MISTAKES = [
    Mistake(
        "a bucket that the stack does not have",
        put(f"{CACHE}.bucket", "model"),
        f"{PATH}.bucket",
        "bucket model does not exist. The model could not be stored there",
        "Did you mean models?",
    ),
    Mistake(
        "no bucket",
        drop(f"{CACHE}.bucket"),
        f"{PATH}.bucket",
        "bucket is missing",
        "Add it. Bucket of this stack",
    ),
    Mistake(
        "a bucket that deletes the model",
        put("buckets.0.deleteAfterDays", 14),
        f"{PATH}.bucket",
        "bucket models deletes objects after 14 days. New replicas would then find no model",
        "Choose another bucket, or remove gke-ai:buckets[0].deleteAfterDays",
    ),
    Mistake(
        "a key that does not exist",
        put(f"{CACHE}.path", "gemma"),
        f"{PATH}.path",
        "path is not a key of a model cache. It would have no effect",
        "Write one of: bucket, fileCache, fileCacheMedium, reader, revision, sidecarCpu, sidecarMemory, timeoutSeconds",
    ),
    Mistake(
        "a revision that is no name",
        put(f"{CACHE}.revision", "../other"),
        f"{PATH}.revision",
        '"../other" is not a commit, tag or branch',
        "Write for example main, or a commit",
    ),
    Mistake(
        "a revision of the wrong type",
        put(f"{CACHE}.revision", 299),
        f"{PATH}.revision",
        "the value is a number, and must be text",
        "Put the value in quotes",
    ),
    Mistake(
        "a reader that does not exist",
        put(f"{CACHE}.reader", "nfs"),
        f"{PATH}.reader",
        '"nfs" is not a value of reader',
        "Write 'fuse' or 'streamer'",
    ),
    Mistake(
        "the streamer with an image that has none for Cloud Storage",
        both(put(f"{CACHE}.reader", "streamer"), put("serving.0.image", "vllm/vllm-openai:v0.11.0")),
        f"{PATH}.reader",
        "vllm/vllm-openai:v0.11.0 has no streamer for Cloud Storage, which comes with 0.11.1",
        "Write fuse, or set a newer image",
    ),
    Mistake(
        "the streamer with TGI",
        both(put("serving.0.engine", "tgi"), put(f"{CACHE}.reader", "streamer")),
        f"{PATH}.reader",
        "Text Generation Inference has no reader streamer. The server would not start",
        "Write fuse",
    ),
    Mistake(
        "a file cache without a mount",
        both(NEW_IMAGE, put(CACHE, {"bucket": "models", "reader": "streamer", "fileCache": "30Gi"})),
        f"{PATH}.fileCache",
        "fileCache has no effect with reader streamer, which mounts no bucket",
        "Remove it",
    ),
    Mistake(
        "a place for a file cache without a mount",
        both(NEW_IMAGE, put(CACHE, {"bucket": "models", "reader": "streamer", "fileCacheMedium": "memory"})),
        f"{PATH}.fileCacheMedium",
        "fileCacheMedium has no effect with reader streamer",
        "Remove it",
    ),
    Mistake(
        "a sidecar without a mount",
        both(NEW_IMAGE, put(CACHE, {"bucket": "models", "reader": "streamer", "sidecarCpu": 1})),
        f"{PATH}.sidecarCpu",
        "sidecarCpu has no effect with reader streamer",
        "Remove it",
    ),
    Mistake(
        "memory of a sidecar without a mount",
        both(NEW_IMAGE, put(CACHE, {"bucket": "models", "reader": "streamer", "sidecarMemory": "1Gi"})),
        f"{PATH}.sidecarMemory",
        "sidecarMemory has no effect with reader streamer",
        "Remove it",
    ),
    Mistake(
        "a file cache that is smaller than the model",
        put(f"{CACHE}.fileCache", "10Gi"),
        f"{PATH}.fileCache",
        "and the cache holds 10Gi. Files that do not fit are not downloaded in parallel",
        "Make it larger, or remove it",
    ),
    Mistake(
        "a file cache of no size",
        put(f"{CACHE}.fileCache", "0"),
        f"{PATH}.fileCache",
        "0 is not above zero",
        "Write for example",
    ),
    Mistake(
        "a model whose size is unknown",
        put("serving.0.model", "example/unheard-of"),
        f"{PATH}.fileCache",
        "the catalog does not have the model example/unheard-of, so the size of its cache is unknown",
        "Set it above the size of the model's files, or describe gke-ai:serving[0].modelShape",
    ),
    Mistake(
        "a file cache on no medium",
        put(f"{CACHE}.fileCacheMedium", "tape"),
        f"{PATH}.fileCacheMedium",
        '"tape" is not a value of fileCacheMedium',
        "Write 'disk' or 'memory'",
    ),
    Mistake(
        "a sidecar that does not fit the node",
        both(put(f"{CACHE}.sidecarCpu", 12), put("queues.clusterQueues.0.flavors.0.quota.cpu", 40)),
        "gke-ai:serving[0].resources.cpu",
        "a replica of the server with its FUSE sidecar requests 20 CPU, and a node of pool l4 (g2-standard-16) has",
        "Request less",
    ),
    Mistake(
        "a sidecar of negative memory",
        put(f"{CACHE}.sidecarMemory", "-1Gi"),
        f"{PATH}.sidecarMemory",
        "-1Gi is not above zero",
        "Write for example",
    ),
    Mistake(
        "a file cache in memory that does not fit the node",
        both(
            put(f"{CACHE}.fileCacheMedium", "memory"),
            put("queues.clusterQueues.0.flavors.0.quota.memory", "100Gi"),
            put(f"{CACHE}.fileCache", "40Gi"),
        ),
        "gke-ai:serving[0].resources.memory",
        "with its FUSE sidecar requests 72Gi of memory",
        "Request less",
    ),
    Mistake(
        "a time that is too short",
        put(f"{CACHE}.timeoutSeconds", 10),
        f"{PATH}.timeoutSeconds",
        "10 is below the minimum, 60",
        "Set it to 60",
    ),
    Mistake(
        "a queue without quota for the sidecar's storage",
        both(
            drop("queues.clusterQueues.0.flavors.0.quota.ephemeral-storage"),
            drop("serving.0.resources.ephemeralStorage"),
        ),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        "cluster queue gpus has no quota for ephemeral-storage, which server gemma requests",
        "Add ephemeral-storage to the quota, or write quota: derive",
    ),
    Mistake(
        "a queue whose quota the sidecar exceeds",
        put("queues.clusterQueues.0.flavors.0.quota.cpu", 9),
        "gke-ai:serving[0].resources.cpu",
        "one pod of server gemma requests 10 CPU, and cluster queue gpus has at most 9 CPU",
        "Request less, or raise the quota",
    ),
    Mistake(
        "a model cache of JetStream",
        put("serving.1.modelCache", {"bucket": "models"}),
        "gke-ai:serving[1].modelCache",
        "JetStream cannot use a model cache: it reads a converted checkpoint from a bucket, named in checkpoint",
        "Remove it, or use another engine",
    ),
    Mistake(
        "a scratch volume where the models are",
        put("serving.0.scratch", {"mountPath": "/models/tmp"}),
        "gke-ai:serving[0].scratch.mountPath",
        "the bucket with the model is mounted at /models. One volume would hide the other",
        "Write for example /tmp",
    ),
    Mistake(
        "a variable that the model cache sets",
        put("serving.0.env", {"HF_HUB_OFFLINE": "0"}),
        "gke-ai:serving[0].env.HF_HUB_OFFLINE",
        "modelCache sets HF_HUB_OFFLINE. The container would have it twice",
        "Remove it and set gke-ai:serving[0].modelCache",
    ),
    Mistake(
        "an argument that the model cache sets",
        put("serving.0.arguments", ["--served-model-name=gemma"]),
        "gke-ai:serving[0].arguments",
        "modelCache sets served-model-name. The server would get it twice",
        "Remove it and set gke-ai:serving[0].modelCache",
    ),
    Mistake(
        "a workload in the namespace of the downloads",
        put("serving.1.namespace", "model-cache"),
        "gke-ai:serving[1].namespace",
        "namespace model-cache belongs to the cluster",
        "Choose another namespace",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, good())


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
