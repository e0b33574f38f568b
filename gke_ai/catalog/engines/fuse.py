"""Cloud Storage FUSE: how a pod mounts a bucket.

https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
"""

DRIVER = "gcsfuse.csi.storage.gke.io"
# Annotation of a pod that gets the sidecar. Those with the sidecar's limits have the same prefix.
PREFIX = "gke-gcsfuse/"
VOLUMES = f"{PREFIX}volumes"
# The container of the sidecar: https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
SIDECAR = "gke-gcsfuse-sidecar"
# What the webhook of the driver requests for it, on the same page.
SIDECAR_DEFAULTS = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}
# Folders exist if a file in them does. https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/semantics.md
MOUNT_OPTIONS = "implicit-dirs"
# Name of a volume that holds the file cache, in place of the driver's own:
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
CACHE_VOLUME = f"{PREFIX.removesuffix('/')}-cache"
# The sidecar's storage beside the file cache: the driver's default.
STORAGE_GIB = 5


def sidecar_memory(writers: int) -> str:
    """Memory of a sidecar through which so many processes write files at once, as a Kubernetes quantity.

    It keeps blocks of each open file in memory, 64 MiB by default, and has no useful bound on machines for training:
    `write.block-size-mb` and `write.global-max-blocks` in
    https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/cfg/params.yaml. Each process gets twice that, beside the
    driver's default of 256 MiB.
    """
    return f"{256 + 128 * writers}Mi"


def caching_options(mebibytes: int) -> str:
    """Mount options to read files that never change, such as a model: files are cached, and downloaded in parallel.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-perf
    """
    options: dict[str, dict[str, object]] = {
        "metadata-cache": {"ttl-secs": -1, "stat-cache-max-size-mb": -1, "type-cache-max-size-mb": -1},
        "file-system": {"kernel-list-cache-ttl-secs": -1},
        "file-cache": {
            "max-size-mb": mebibytes,
            "cache-file-for-range-read": "true",
            "enable-parallel-downloads": "true",
        },
    }
    stated = [f"{part}:{name}:{value}" for part, names in options.items() for name, value in names.items()]
    return ",".join([MOUNT_OPTIONS, *stated])
