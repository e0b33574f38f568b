"""Options of `gcluster job submit` that have no key here, each with the reason and what to do.

https://github.com/GoogleCloudPlatform/cluster-toolkit, cmd/job/submit.go
"""

from __future__ import annotations

from collections.abc import Mapping

_ON_TPUS = "the keys of a run on TPUs are in a file: use --file"
_NO_PATHWAYS = "this project runs no Pathways. Leave it out"
_BUILD = "submit builds no image. Build and push it, and name it with --image"
REFUSED: Mapping[str, str] = {
    "--base-image": _BUILD,
    "--build-context": _BUILD,
    "--command": "the command stands after --, as kubectl run has it: gke-ai submit NAME … -- python train.py",
    "--compute-type": "nodes are chosen by --pool, --accelerator or --compute-class",
    "--num-nodes": "a run has pods, and Kueue chooses the nodes. Use --pods",
    "--num-slices": _ON_TPUS,
    "--restart-on-exit-codes": "all failures restart a run up to --restarts times, and exit status 75 always",
    "--gke-ttl-after-finished": "a finished run stays until somebody removes it, so that it never runs twice",
    "--placement-policy": "the placement belongs to the pool. Use --pool",
    "--node-constraint": "labels of nodes belong to pools and flavors. Use --pool",
    "--gke-nap-provisioning": "the capacity belongs to the pool or the compute class. Use --pool or --compute-class",
    "--gke-nap-reservation": "the reservation belongs to the pool. Use --pool",
    "--gke-mtc-enabled": "checkpoints are in buckets. Use --checkpoints",
    "--pathways": _NO_PATHWAYS,
    "--pathways-gcs-location": _NO_PATHWAYS,
    "--pathways-headless": _NO_PATHWAYS,
    "--await-job-completion": "submit follows a run to its end by default, and --detach does not",
    "--timeout": "submit follows a run to its end, and Ctrl-C detaches. A run has no time limit",
    "--dry-run-out": "--dry-run prints the manifest. Redirect it to a file",
}
