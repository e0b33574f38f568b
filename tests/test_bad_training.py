"""Mistakes with training jobs: each is found, alone, at its path, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import load
from gke_ai.settings.model import TrainingRun
from tests.test_bad_configuration import (
    PROJECT,
    TOKEN,
    Configuration,
    Mistake,
    both,
    drop,
    good,
    is_reported_alone,
    problems_of,
    put,
)

RUN = "training.0"


def training() -> Configuration:
    """A run of two pods that reads one bucket and writes its checkpoints to another."""
    values = good()
    values["hfTokenSecret"] = "hf-token"
    values["buckets"] = [
        {"name": "datasets", "grants": [{"namespace": "llm", "role": "roles/storage.objectViewer"}]},
        {"name": "checkpoints", "grants": [{"namespace": "llm"}]},
    ]
    values["training"] = [
        {
            "kind": "job",
            "name": "pretrain",
            "queue": "lq",
            "priorityClass": "low",
            "pool": "l4",
            "image": "registry.example.com/pretrain:1.0.0",
            "command": ["torchrun", "train.py"],
            "args": ["--data=/data"],
            "pods": 2,
            "gpusPerPod": 2,
            "env": {"LOG_LEVEL": "info"},
            "resources": {"cpu": 8, "memory": "32Gi", "ephemeralStorage": "10Gi"},
            "volumes": [{"bucket": "datasets", "mountPath": "/data", "readOnly": True}],
            "checkpoints": {"bucket": "checkpoints", "path": "pretrain/first", "keep": 3, "mountPath": "/saved"},
            "resumeFrom": "pretrain/earlier",
            "sidecarMemoryLimit": "2Gi",
            "sidecarCpu": "1",
            "sharedMemory": "16Gi",
            "rendezvousPort": 29400,
            "maxRestarts": 2,
            "ignoreDisruptions": True,
            "terminationGracePeriodSeconds": 120,
            "tokenSecret": {"name": "hf-secret"},
        }
    ]
    return values


def classed() -> Configuration:
    """The same run on nodes of a compute class, without a queue."""
    values = training()
    values["computeClasses"] = [{"name": "l4-class", "priorities": [{"machineType": "g2-standard-24"}]}]
    run = values["training"][0]
    del run["pool"], run["queue"]
    run["computeClass"] = "l4-class"
    return values


def bad(id: str, change: Any, path: str, cause: str, remedy: str, base: Any = training) -> Mistake:
    return Mistake(id, change, f"gke-ai:{path}", cause, remedy, base)


MISTAKES = [
    # Kind and image
    bad(
        "a kind that does not exist",
        put(f"{RUN}.kind", "jobs"),
        "training[0].kind",
        '"jobs" is not a known kind',
        "Did you mean job?",
    ),
    bad("no image", drop(f"{RUN}.image"), "training[0].image", "image is missing, and a training job needs it", "Add"),
    bad(
        "an empty image",
        put(f"{RUN}.image", ""),
        "training[0].image",
        "image is empty, and a training job needs it",
        "Write it. Image of the training program.",
    ),
    bad(
        "a command that is not a list",
        put(f"{RUN}.command", "torchrun train.py"),
        "training[0].command",
        "the value is text, and must be a list",
        "Begin each entry with '- '",
    ),
    bad(
        "arguments that are not texts",
        put(f"{RUN}.args", [1]),
        "training[0].args[0]",
        "the value is a number, and must be text",
        "Put the value in quotes",
    ),
    bad(
        "a fixed name",
        put(f"{RUN}.fixedName", True),
        "training[0].fixedName",
        "fixedName is not a key of a training job. It would have no effect",
        "Did you mean name?",
    ),
    # How many pods, and where
    bad("no pods", put(f"{RUN}.pods", 0), "training[0].pods", "0 is below the minimum, 1", "Set it to 1 or more"),
    bad("no GPUs", put(f"{RUN}.gpusPerPod", 0), "training[0].gpusPerPod", "0 is below the minimum, 1", "Set it to 1"),
    bad(
        "more GPUs than a node has",
        both(put(f"{RUN}.gpusPerPod", 4), put(f"{RUN}.pods", 1)),
        "training[0].gpusPerPod",
        "a pod of the JobSet requests 4 GPUs, and a node of pool l4 (g2-standard-24) has 2 GPUs for pods",
        "Request less",
    ),
    bad(
        "more pods than the pool has room for",
        put(f"{RUN}.pods", 4),
        "training[0].pods",
        "the JobSet runs 4 pods at once, and the pool has room for 3",
        "Make the pool larger, or request fewer pods",
        lambda: (
            {key: value for key, value in training().items() if key not in ("queues", "serving")}
            | {
                "training": [
                    {k: v for k, v in training()["training"][0].items() if k not in ("queue", "priorityClass")}
                ]
            }
        ),
    ),
    bad(
        "more than the quota",
        put(
            "queues.clusterQueues.0.flavors.0.quota",
            {"cpu": 72, "memory": "288Gi", "nvidia.com/gpu": 2, "ephemeral-storage": "200Gi"},
        ),
        "training[0].pods",
        "the 2 pods of training pretrain together request 4 GPUs, and cluster queue gpus has at most 2 GPUs",
        "Request less, or raise the quota",
    ),
    bad(
        "a pool that does not exist",
        put(f"{RUN}.pool", "l5"),
        "training[0].pool",
        "pool l5 does not exist. The pods would stay pending",
        "Write one of: l4",
    ),
    bad(
        "a pool and an accelerator",
        put(f"{RUN}.accelerator", "nvidia-l4"),
        "training[0].accelerator",
        "names a pool and an accelerator",
        "Remove one of them",
    ),
    bad(
        "no pool and no accelerator",
        drop(f"{RUN}.pool"),
        "training[0].pool",
        "requests GPUs and names no pool or GPU type",
        "Set pool (l4)",
    ),
    bad(
        "a pool beside a compute class",
        put(f"{RUN}.pool", "l4"),
        "training[0].pool",
        "names a compute class and pool l4",
        "Remove pool or computeClass",
        classed,
    ),
    bad(
        "a compute class that does not exist",
        put(f"{RUN}.computeClass", "l5-class"),
        "training[0].computeClass",
        "compute class l5-class does not exist",
        "Did you mean l4-class?",
        classed,
    ),
    bad(
        "a queue that does not exist",
        put(f"{RUN}.queue", "other"),
        "training[0].queue",
        "local queue other does not exist. Kueue would never admit the pods",
        "lq",
    ),
    bad(
        "a priority class that does not exist",
        put(f"{RUN}.priorityClass", "lowest"),
        "training[0].priorityClass",
        "priority class lowest does not exist",
        "Did you mean low?",
    ),
    bad(
        "several nodes whose GPUs need a network of their own",
        both(
            put("gpuPools.0.machineType", "a3-megagpu-8g"),
            put("gpuPools.0.capacity", {"mode": "spot"}),
            put(f"{RUN}.gpusPerPod", 8),
            drop("serving"),
        ),
        "training[0].pods",
        "2 pods of 8 GPUs need several nodes of a3-megagpu-8g",
        "Use up to 8 GPUs in all, on one node",
    ),
    # Buckets
    bad(
        "volumes that are not a list",
        put(f"{RUN}.volumes", {"bucket": "datasets", "mountPath": "/data"}),
        "training[0].volumes",
        "the value is a mapping, and must be a list",
        "Begin each entry with '- '",
    ),
    bad(
        "a bucket that does not exist",
        put(f"{RUN}.volumes.0.bucket", "dataset"),
        "training[0].volumes[0].bucket",
        "bucket dataset does not exist. The pods of the JobSet could not mount it",
        "Did you mean datasets?",
    ),
    bad(
        "a bucket without a mount path",
        drop(f"{RUN}.volumes.0.mountPath"),
        "training[0].volumes[0].mountPath",
        "mountPath is missing, and a volume needs it",
        "Add it. Mount path in the container.",
    ),
    bad(
        "a mount path that is not absolute",
        put(f"{RUN}.volumes.0.mountPath", "data"),
        "training[0].volumes[0].mountPath",
        "data is not a valid mount path. It must be absolute",
        "Write for example /model-data",
    ),
    bad(
        "two buckets at one path",
        put(f"{RUN}.volumes.0.mountPath", "/saved"),
        "training[0].checkpoints.mountPath",
        "/saved is also the mount path of volumes[0]. Kubernetes would refuse the pods",
        "Write another path",
    ),
    bad(
        "a bucket that the pods may not read",
        put("buckets.0.grants", []),
        "training[0].volumes[0].bucket",
        "service account llm/default has no role on bucket datasets. Its pods could not mount the bucket",
        "Add to gke-ai:buckets[0].grants: {namespace: llm, serviceAccount: default, role: roles/storage.objectUser}",
    ),
    bad(
        "a mount that is neither read-only nor not",
        put(f"{RUN}.volumes.0.readOnly", "sometimes"),
        "training[0].volumes[0].readOnly",
        '"sometimes" is not true or false',
        "Write true or false",
    ),
    bad(
        "a misspelled key of a volume",
        put(f"{RUN}.volumes.0.readonly", True),
        "training[0].volumes[0].readonly",
        "readonly is not a key of a volume",
        "Did you mean readOnly?",
    ),
    bad(
        "a sidecar without a bucket",
        both(drop(f"{RUN}.volumes"), drop(f"{RUN}.checkpoints"), drop(f"{RUN}.resumeFrom"), drop(f"{RUN}.sidecarCpu")),
        "training[0].sidecarMemoryLimit",
        "the run mounts no bucket, so its pods have no FUSE sidecar",
        "Remove it, or set volumes or checkpoints",
    ),
    bad(
        "a sidecar without CPU",
        put(f"{RUN}.sidecarCpu", "0"),
        "training[0].sidecarCpu",
        "0 is not above zero",
        'Write for example "4"',
    ),
    bad(
        "a sidecar that leaves no room on the node",
        put(f"{RUN}.sidecarMemoryLimit", "1Ti"),
        "training[0].resources.memory",
        "a pod of the JobSet with its FUSE sidecar requests",
        "Request less",
    ),
    # Checkpoints
    bad(
        "checkpoints without a bucket",
        drop(f"{RUN}.checkpoints.bucket"),
        "training[0].checkpoints.bucket",
        "bucket is missing, and a directory of checkpoints needs it",
        "Add it",
    ),
    bad(
        "checkpoints in a bucket that does not exist",
        put(f"{RUN}.checkpoints.bucket", "checkpoint"),
        "training[0].checkpoints.bucket",
        "bucket checkpoint does not exist",
        "Did you mean checkpoints?",
    ),
    bad(
        "checkpoints in a bucket that the pods may only read",
        put("buckets.1.grants.0.role", "roles/storage.objectViewer"),
        "training[0].checkpoints.bucket",
        "has only roles/storage.objectViewer on bucket checkpoints. The Job could not write its checkpoints",
        "Add to gke-ai:buckets[1].grants",
    ),
    bad(
        "a directory outside the bucket",
        put(f"{RUN}.checkpoints.path", "../other"),
        "training[0].checkpoints.path",
        '"../other" is not a directory in the bucket',
        "Write a path relative to the bucket",
    ),
    bad(
        "a directory as a URL",
        put(f"{RUN}.resumeFrom", "gs://checkpoints/first"),
        "training[0].resumeFrom",
        '"gs://checkpoints/first" is not a directory in the bucket',
        "Write a path relative to the bucket",
    ),
    bad(
        "the whole bucket as a directory",
        put(f"{RUN}.checkpoints.path", "."),
        "training[0].checkpoints.path",
        '"." is not a directory in the bucket',
        "Write a path relative to the bucket",
    ),
    bad(
        "no checkpoint to keep",
        put(f"{RUN}.checkpoints.keep", 0),
        "training[0].checkpoints.keep",
        "0 is below the minimum, 1",
        "Set it to 1 or more",
    ),
    bad(
        "more checkpoints than anyone keeps",
        put(f"{RUN}.checkpoints.keep", 10**12),
        "training[0].checkpoints.keep",
        "1000000000000 is above the maximum, 1000",
        "Set it to 1000 or less",
    ),
    bad(
        "a number of checkpoints beyond any integer",
        put(f"{RUN}.checkpoints.keep", 1e30),
        "training[0].checkpoints.keep",
        "the value is a number, and must be a number that fits in 64 bits",
        "Write a smaller number",
    ),
    bad(
        "checkpoints in shared memory",
        put(f"{RUN}.checkpoints.mountPath", "/dev/shm"),
        "training[0].checkpoints.mountPath",
        "/dev/shm is not a valid mount path",
        "Write for example /model-data",
    ),
    bad(
        "two runs with one directory",
        lambda values: values["training"].append(
            {**values["training"][0], "name": "other", "resumeFrom": "pretrain/second"}
        ),
        "training[1].checkpoints.path",
        "pretrain writes its checkpoints to the same folder of bucket checkpoints",
        "Write another path, or remove it",
    ),
    bad(
        "a run that resumes from itself",
        put(f"{RUN}.resumeFrom", "pretrain/first/"),
        "training[0].resumeFrom",
        "is the run's own directory, from which it always resumes",
        "Name the directory of another run, or remove it",
    ),
    bad(
        "a run that resumes without checkpoints",
        drop(f"{RUN}.checkpoints"),
        "training[0].resumeFrom",
        "the run has no checkpoints, and resumeFrom is a directory in their bucket",
        "Set checkpoints: {bucket: …}, or remove resumeFrom",
    ),
    # Restarts, time and memory
    bad(
        "a negative number of restarts",
        put(f"{RUN}.maxRestarts", -1),
        "training[0].maxRestarts",
        "-1 is below the minimum, 0",
        "Set it to 0 or more",
    ),
    bad(
        "disruptions that are neither counted nor not",
        put(f"{RUN}.ignoreDisruptions", "sometimes"),
        "training[0].ignoreDisruptions",
        '"sometimes" is not true or false',
        "Write true or false",
    ),
    bad(
        "a grace period with a unit",
        put(f"{RUN}.terminationGracePeriodSeconds", "2m"),
        "training[0].terminationGracePeriodSeconds",
        '"2m" is not a whole number',
        "Write a whole number",
    ),
    bad(
        "a port that does not exist",
        put(f"{RUN}.rendezvousPort", 65536),
        "training[0].rendezvousPort",
        "65536 is above the maximum, 65535",
        "Set it to 65535 or less",
    ),
    bad(
        "more shared memory than memory",
        put(f"{RUN}.sharedMemory", "64Gi"),
        "training[0].sharedMemory",
        "/dev/shm of 64Gi counts toward the memory of the container, which has 32Gi",
        "Set it to less than 32Gi, or raise resources.memory",
    ),
    bad(
        "a key of a Secret that cannot be one",
        put(f"{RUN}.tokenSecret.key", "a/b"),
        "training[0].tokenSecret.key",
        '"a/b" is not a valid key of a Secret',
        "Use letters, digits",
        lambda: training() | {"serving": []},
    ),
    # Names and variables
    bad(
        "a variable by which the pods find each other",
        put(f"{RUN}.env", {"MASTER_ADDR": "localhost"}),
        "training[0].env.MASTER_ADDR",
        "pods sets MASTER_ADDR. The container would have it twice",
        "Remove it and set gke-ai:training[0].pods",
    ),
    bad(
        "a variable of the checkpoint contract",
        put(f"{RUN}.env", {"CHECKPOINT_DIR": "/data"}),
        "training[0].env.CHECKPOINT_DIR",
        "checkpoints sets CHECKPOINT_DIR. The container would have it twice",
        "Remove it and set gke-ai:training[0].checkpoints",
    ),
    bad(
        "a token in plain text",
        put(f"{RUN}.env", {"WANDB": TOKEN}),
        "training[0].env.WANDB",
        "the variable contains a token in plain text",
        "Remove it, revoke the token",
    ),
    bad(
        "a name that begins with a digit",
        put(f"{RUN}.name", "1b-pretrain"),
        "training[0].name",
        "1b-pretrain begins with a digit. JobSet would refuse it",
        "Begin with a letter",
    ),
    bad(
        "a name that leaves no room for those of the pods",
        put(f"{RUN}.name", "p" * 40),
        "training[0].name",
        "names of the run's pods would have 64 characters, and the maximum is 63",
        "Shorten the name by 1 characters",
    ),
    bad(
        "the default namespace",
        both(
            put(f"{RUN}.namespace", "default"),
            put("buckets.0.grants.0.namespace", "default"),
            put("buckets.1.grants.0.namespace", "default"),
            drop(f"{RUN}.queue"),
            drop(f"{RUN}.priorityClass"),
        ),
        "training[0].namespace",
        "finished runs stay until their namespace is deleted, and namespace default is never deleted",
        "Choose a namespace of the stack's own, for example llm",
    ),
]


@pytest.mark.parametrize("base", [training, classed], ids=lambda base: base.__name__)
def test_good_configuration_has_no_problem(base: Any) -> None:
    load(base(), PROJECT, token_given=False)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_found_alone_with_its_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_every_key_of_a_training_job_has_a_mistake() -> None:
    reported = {mistake.path.removeprefix("gke-ai:training[0].").partition("[")[0] for mistake in MISTAKES}
    reported = {part for path in reported for part in (path, path.partition(".")[0])}
    keys = {field.alias for name, field in TrainingRun.model_fields.items() if name in TrainingRun.__annotations__}
    assert keys - reported == set()


def test_a_run_and_a_fine_tuning_run_do_not_share_a_directory() -> None:
    values = training()
    values["training"].insert(0, good()["training"][0])
    values["training"][0]["volume"] = {"bucket": "checkpoints"}
    values["training"][0]["modelPath"] = "/model-data/pretrain/first"
    (problem,) = problems_of(values, token_given=False)
    assert problem.path == "gke-ai:training[1].checkpoints.path"
    assert "finetune writes its checkpoints to the same folder of bucket checkpoints" in problem.cause


def test_a_run_may_read_and_write_one_bucket() -> None:
    values = training()
    values["training"][0]["volumes"][0]["bucket"] = "checkpoints"
    assert problems_of(values, token_given=False) == []


def test_a_run_without_a_token_needs_none() -> None:
    values = training()
    del values["hfTokenSecret"], values["serving"], values["training"][0]["tokenSecret"]
    assert problems_of(values, token_given=False) == []
