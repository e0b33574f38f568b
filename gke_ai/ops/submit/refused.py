"""Options of `gcluster job submit` that have no key here, each with the reason and what to do.

https://github.com/GoogleCloudPlatform/cluster-toolkit, cmd/job/submit.go
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_PATHWAYS = "this project runs no Pathways. Leave it out"
_BUILD = "submit builds no image. Bring code along with --image and --workdir, or build and push an image"
_CLUSTER = "the cluster is one of the kubeconfig. Use --context"
_PATHWAYS = (
    *("gcs-location", "headless", "elastic-slices", "max-slice-restarts", "head-np", "colocated-python-sidecar-image"),
    *("proxy-server-image", "server-image", "worker-image", "proxy-args", "server-args", "worker-args"),
)
REFUSED: Mapping[str, str] = {
    "--project": _CLUSTER,
    "--cluster": _CLUSTER,
    "--location": _CLUSTER,
    "--cluster-location": _CLUSTER,
    "--name": "the name comes first: gke-ai submit NAME",
    "--base-image": _BUILD,
    "--build-context": _BUILD,
    "--platform": _BUILD,
    "--command": "the command stands after --, as kubectl run has it: gke-ai submit NAME … -- python train.py",
    "--compute-type": "nodes are chosen by --pool, --accelerator, --tpu or --compute-class",
    "--num-nodes": "a run has pods, and Kueue chooses the nodes. Use --pods",
    "--restart-on-exit-codes": "all failures restart a run up to --restarts times, and exit status 75 always",
    "--gke-ttl-after-finished": "a finished run stays until somebody removes it, so that it never runs twice",
    "--placement-policy": "the placement belongs to the pool. Use --pool",
    "--node-constraint": "labels of nodes belong to pools and flavors. Use --pool",
    "--cpu-affinity": "the CPU policy belongs to the pool. Use --pool",
    "--gke-scheduler": "Kueue and the scheduler of GKE place the pods. Leave it out",
    "--gke-nap-provisioning": "the capacity belongs to the pool or the compute class. Use --pool or --compute-class",
    "--gke-nap-reservation": "the reservation belongs to the pool. Use --pool",
    "--gke-disable-parallel-containers": "each pod has one container. Leave it out",
    "--gke-mtc-enabled": "checkpoints are in buckets. Use --checkpoints",
    "--image-pull-secret": "the service account of the pods has the Secrets of registries. Use --service-account",
    "--verbose": "frameworks read variables. Use for example --env NCCL_DEBUG=INFO",
    "--pathways": _NO_PATHWAYS,
    **{f"--pathways-{name}": _NO_PATHWAYS for name in _PATHWAYS},
    "--await-job-completion": "submit follows a run to its end by default, and --detach does not",
    "--timeout": "submit follows a run to its end, and Ctrl-C detaches. A run has no time limit",
    "--dry-run-out": "--dry-run prints the manifest. Redirect it to a file",
}
