"""Mistakes in autoscaling: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_bad_configuration import Configuration, Mistake, both, drop, is_reported_alone, problems_of, put

SCALER = "autoscaling.0"
TARGET = "autoscaling.0.metrics.0.target"


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


MISTAKES = [
    Mistake(
        "a server and an existing Deployment",
        both(put("cluster.mode", "existing"), put(f"{SCALER}.deployment", {"name": "d", "app": "d"})),
        "gke-ai:autoscaling[0].deployment",
        "names a server and an existing Deployment",
        "Remove one of them",
    ),
    Mistake(
        "nothing to scale",
        drop(f"{SCALER}.server"),
        "gke-ai:autoscaling[0].server",
        "the autoscaler names neither a server nor an existing Deployment. It would scale nothing",
        "Set server, or deployment",
    ),
    Mistake(
        "a server that is not there",
        put(f"{SCALER}.server", "jetsteam"),
        "gke-ai:autoscaling[0].server",
        "server jetsteam does not exist. Nothing would be scaled",
        "Did you mean jetstream?",
    ),
    Mistake(
        "a server whose name another namespace has too",
        put("serving.+", server("jetstream", "other", namespace="other")),
        "gke-ai:autoscaling[0].server",
        "several servers are named jetstream. The wrong one could be scaled",
        "Rename all but one of them",
    ),
    Mistake(
        "a metric of another engine",
        metrics(("queuedRequests", 10)),
        "gke-ai:autoscaling[0].metrics[0].metric",
        "jetstream runs jetstream, which has no metric queuedRequests. Nothing would be scaled by it",
        "Use one of: prefillBacklog, slotsUsed, tpuMemory",
    ),
    Mistake(
        "a KV cache where the engine does not report it",
        metrics(("kvCacheUsage", 0.8)),
        "gke-ai:autoscaling[0].metrics[0].metric",
        "gemma runs tgi, which has no metric kvCacheUsage",
        "Use one of: queuedRequests, runningRequests",
        tgi,
    ),
    Mistake(
        "TPU memory where the engine reserves it at its start",
        metrics(("tpuMemory", 0.8)),
        "gke-ai:autoscaling[0].metrics[0].metric",
        "gemma runs vllm-tpu, which has no metric tpuMemory",
        "Use one of: queuedRequests, runningRequests, kvCacheUsage",
        tpu,
    ),
    Mistake(
        "more replicas of vLLM than slices",
        put(f"{SCALER}.maxReplicas", 3),
        "gke-ai:autoscaling[0].maxReplicas",
        "pool v5e has 2 nodes at its maximum, and each replica needs a whole node. 1 of 3 replicas would stay pending",
        "Write 2",
        tpu,
    ),
    Mistake(
        "metrics that are turned off",
        put("serving.0.arguments", ["--disable-log-stats"]),
        "gke-ai:serving[0].arguments",
        "--disable-log-stats turns off the metrics that autoscaler gemma-hpa reads. The number of replicas would never",
        "Remove it, or remove the autoscaler",
        vllm,
    ),
    Mistake(
        "an engine that is not there",
        put(f"{SCALER}.deployment.engine", "jetsteam"),
        "gke-ai:autoscaling[0].deployment.engine",
        "engine jetsteam is unknown. The names of its metrics would be unknown too",
        "Did you mean jetstream?",
        existing,
    ),
    Mistake(
        "more replicas than GPUs",
        both(
            put("gpuPools.0.machineType", "g2-standard-24"), put("serving.0.gpus", 2), put(f"{SCALER}.maxReplicas", 3)
        ),
        "gke-ai:autoscaling[0].maxReplicas",
        "pool l4 has 2 nodes at its maximum, and each replica needs a whole node. 1 of 3 replicas would stay pending",
        "Write 2, or make the pool larger",
        vllm,
    ),
    Mistake(
        "more replicas than parts of nodes",
        both(put("gpuPools.0.machineType", "g2-standard-24"), put(f"{SCALER}.maxReplicas", 5)),
        "gke-ai:autoscaling[0].maxReplicas",
        "each replica needs 1 of a node's 2 accelerators. 1 of 5 replicas would stay pending",
        "Write 4, or make the pool larger",
        vllm,
    ),
    Mistake(
        "more running requests than vLLM runs at once",
        metrics(("runningRequests", 256)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "runningRequests is at most 256 on a replica, and 256 ÷ 256 = 1. An autoscaler adds replicas above 1.1",
        "Write 204",
        vllm,
    ),
    Mistake(
        "more running requests than the server's own limit",
        both(put("serving.0.arguments", ["--max-num-seqs", "64"]), metrics(("runningRequests", 100))),
        "gke-ai:autoscaling[0].metrics[0].target",
        "runningRequests is at most 64 on a replica",
        "Write 51",
        vllm,
    ),
    Mistake(
        "more running requests than vLLM runs on a large GPU",
        both(
            put("gpuPools.0.machineType", "a3-highgpu-1g"),
            put("gpuPools.0.capacity", {"mode": "spot"}),
            metrics(("runningRequests", 1000)),
        ),
        "gke-ai:autoscaling[0].metrics[0].target",
        "runningRequests is at most 1024 on a replica",
        "Write 819",
        vllm,
    ),
    Mistake(
        "a queue that TGI refuses to grow",
        metrics(("queuedRequests", 128)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "queuedRequests is at most 128 on a replica, and 128 ÷ 128 = 1",
        "Write 102",
        tgi,
    ),
    Mistake(
        "a batch that TGI's own limit keeps smaller",
        both(put("serving.0.env", {"MAX_BATCH_SIZE": "8"}), metrics(("runningRequests", 8))),
        "gke-ai:autoscaling[0].metrics[0].target",
        "runningRequests is at most 8 on a replica",
        "Write 6",
        tgi,
    ),
    Mistake(
        "a queue of less than a request",
        metrics(("queuedRequests", 0.5)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "queuedRequests counts whole requests, and one waiting request exceeds 0.5",
        "Write 1 or more",
        vllm,
    ),
    Mistake(
        "less than a running request",
        metrics(("runningRequests", 0.5)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "one running request exceeds 0.5. Each request would add a replica",
        "Write 1 or more",
        vllm,
    ),
    Mistake(
        "a percentage of the KV cache",
        metrics(("kvCacheUsage", 80)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "kvCacheUsage is at most 1 on a replica, and 1 ÷ 80 = 0.0125",
        "Write 0.8",
        vllm,
    ),
    Mistake(
        "bytes of the KV cache",
        metrics(("kvCacheUsage", "10Gi")),
        "gke-ai:autoscaling[0].metrics[0].target",
        "with adapter stackdriver, kvCacheUsage is a fraction from 0 to 1, and 10Gi looks like bytes",
        "for example 0.8",
        vllm,
    ),
    Mistake(
        "two autoscalers of one server",
        put("autoscaling.+", scaler("jetstream", name="again")),
        "gke-ai:autoscaling[1].server",
        "llm/jetstream has two autoscalers. Each would undo the other's changes",
        "Use one autoscaler with the metrics of both",
    ),
    Mistake(
        "a server of the stack as an existing Deployment",
        both(
            put("cluster.mode", "existing"),
            drop(f"{SCALER}.server"),
            put(f"{SCALER}.deployment", {"name": "jetstream", "namespace": "llm", "app": "jetstream"}),
        ),
        "gke-ai:autoscaling[0].deployment.name",
        "jetstream is a server of this stack",
        "Write server: jetstream instead",
    ),
    Mistake(
        "both adapters",
        put("autoscaling.1.adapter", "prometheus"),
        "gke-ai:autoscaling[1].adapter",
        "The second adapter could not be created",
        "Write adapter: stackdriver",
        two,
    ),
    Mistake(
        "two autoscaled servers in a namespace",
        put("serving.1.namespace", "llm"),
        "gke-ai:autoscaling[1].server",
        "jetstream and second are both in namespace llm, and the adapter selects metrics by namespace",
        "Move one of them to another namespace",
        two,
    ),
    Mistake(
        "a measured server beside a scaled one",
        both(
            put("autoscaling.0.adapter", "prometheus"),
            put("serving.+", server("second", "other", podMonitoring=True)),
        ),
        "gke-ai:autoscaling[0].server",
        "The load of one would scale the other",
        "Move one of them to another namespace",
    ),
    Mistake(
        "an existing Deployment in a new cluster",
        put("cluster.mode", "standard"),
        "gke-ai:autoscaling[0].deployment",
        "the stack creates the cluster, so maxengine-server does not exist yet",
        "mode: existing",
        existing,
    ),
    Mistake(
        "an existing Deployment of the system",
        put(f"{SCALER}.deployment.namespace", "kube-system"),
        "gke-ai:autoscaling[0].deployment.namespace",
        "namespace kube-system belongs to the cluster",
        "a namespace of your own",
        existing,
    ),
    Mistake(
        "more at least than at most",
        put(f"{SCALER}.minReplicas", 3),
        "gke-ai:autoscaling[0].minReplicas",
        "minReplicas is 3, and maxReplicas is only 2. Kubernetes would refuse the autoscaler",
        "Write 2 or less",
    ),
    Mistake(
        "more replicas than nodes",
        put(f"{SCALER}.maxReplicas", 5),
        "gke-ai:autoscaling[0].maxReplicas",
        "pool v5e has 2 nodes at its maximum, and each replica needs a whole node. 3 of 5 replicas would stay pending",
        "Write 2, or make the pool larger",
    ),
    Mistake(
        "replicas of the server's own",
        put("serving.0.replicas", 1),
        "gke-ai:serving[0].replicas",
        "autoscaler jetstream-hpa sets the replicas of jetstream. This number would have no effect",
        "set gke-ai:autoscaling[0].minReplicas",
    ),
    Mistake(
        "a metric twice",
        metrics(("prefillBacklog", 10), ("prefillBacklog", 20)),
        "gke-ai:autoscaling[0].metrics[1].metric",
        "prefillBacklog is listed twice",
        "Remove one of them",
    ),
    Mistake(
        "an unknown metric",
        metrics(("backlog", 10)),
        "gke-ai:autoscaling[0].metrics[0].metric",
        "backlog",
        "prefillBacklog",
    ),
    Mistake(
        "TPU metrics on Autopilot",
        put("cluster.existingMode", "autopilot"),
        "gke-ai:autoscaling[0].metrics",
        "tpuMemory needs an object in kube-system, and Autopilot refuses objects there",
        "Use prefillBacklog or slotsUsed",
        existing,
    ),
    Mistake(
        "TPU metrics more often than there are any",
        put(f"{SCALER}.scrapeIntervalSeconds", 5),
        "gke-ai:autoscaling[0].scrapeIntervalSeconds",
        "collected every 15 seconds",
        "Remove it, or scale by prefillBacklog or slotsUsed too",
        existing,
    ),
    Mistake(
        "a percentage for a fraction",
        metrics(("slotsUsed", 80)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "slotsUsed is at most 1 on a replica, and 1 ÷ 80 = 0.0125",
        "Write 0.8",
    ),
    Mistake(
        "a fraction that full slots do not exceed by the tolerance",
        metrics(("slotsUsed", 0.95)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "slotsUsed is at most 1 on a replica, and 1 ÷ 0.95 = 1.053. An autoscaler adds replicas above 1.1. "
        "The target is too high to trigger scaling",
        "Write 0.8",
    ),
    Mistake(
        "a fraction that one slot exceeds",
        metrics(("slotsUsed", 0.02)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "one busy slot of 32 is 0.03125, and 1 × 0.03125 ÷ 0.02 asks for 2 replicas, with maxReplicas 2",
        "Write 0.8",
    ),
    Mistake(
        "a backlog of less than a request",
        metrics(("prefillBacklog", 0.5)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "a backlog counts whole requests, and one waiting request exceeds 0.5",
        "Write 1 or more",
    ),
    Mistake(
        "a fraction for bytes",
        metrics(("tpuMemory", 0.8)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "with adapter stackdriver, tpuMemory is in bytes, and 0.8 looks like a fraction or a percentage",
        "for example 102.4Gi",
    ),
    Mistake(
        "bytes for a fraction",
        put(TARGET, "100Gi"),
        "gke-ai:autoscaling[0].metrics[0].target",
        "with adapter prometheus, tpuMemory is a fraction from 0 to 1, and 100Gi looks like bytes",
        "for example 0.8",
        existing,
    ),
    Mistake(
        "more bytes than the chips have",
        metrics(("tpuMemory", "120Gi")),
        "gke-ai:autoscaling[0].metrics[0].target",
        "tpuMemory is at most 128Gi on a replica, and 128Gi ÷ 120Gi = 1.067",
        "Write 102.4Gi",
    ),
    Mistake(
        "fewer bytes than any model takes",
        metrics(("tpuMemory", "1Gi")),
        "gke-ai:autoscaling[0].metrics[0].target",
        "a loaded model takes at least 1.28Gi, and 1 × 1.28Gi ÷ 1Gi asks for 2 replicas",
        "Write 102Gi",
    ),
    Mistake(
        "a target of nothing",
        metrics(("prefillBacklog", 0)),
        "gke-ai:autoscaling[0].metrics[0].target",
        "above zero",
        "",
    ),
]


@pytest.mark.parametrize("base", [good, existing, two, vllm, tgi, tpu])
def test_valid_autoscaling_is_accepted(base: Any) -> None:
    assert problems_of(base()) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.id for mistake in MISTAKES])
def test_mistake_is_the_one_problem(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base() if mistake.base.__module__ == __name__ else good())


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
