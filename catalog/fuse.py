"""Cloud Storage FUSE: how a pod mounts a bucket.

https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
"""

DRIVER = "gcsfuse.csi.storage.gke.io"
# Annotation of a pod that gets the sidecar. Those with the sidecar's limits have the same prefix.
PREFIX = "gke-gcsfuse/"
VOLUMES = f"{PREFIX}volumes"
# The container of the sidecar: https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
SIDECAR = "gke-gcsfuse-sidecar"
# Folders exist if a file in them does. https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/semantics.md
MOUNT_OPTIONS = "implicit-dirs"
