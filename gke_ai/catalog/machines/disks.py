"""Disks of Compute Engine by machine family: those that a machine boots from, and those that it attaches.

Source: pkg/cloudprovider/gke/machinetypes/deprecated_machine_types_config.go of
https://github.com/GoogleCloudPlatform/cluster-autoscaler at 7d25050, for nodes that are not confidential.
https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PD_STANDARD, PD_BALANCED, PD_SSD = "pd-standard", "pd-balanced", "pd-ssd"
HYPERDISK = "hyperdisk-balanced"
# https://cloud.google.com/kubernetes-engine/docs/how-to/custom-boot-disks
BOOT_TYPES = (PD_STANDARD, PD_BALANCED, PD_SSD, HYPERDISK)

_PERSISTENT = (PD_STANDARD, PD_BALANCED, PD_SSD)
_SSD = (PD_BALANCED, PD_SSD)
_SSD_OR_HYPERDISK = (*_SSD, HYPERDISK)
_ONLY_HYPERDISK = (HYPERDISK,)
# (boot disks, attached disks) by family, or by family and series if they differ from the family's. A3 Ultra attaches
# Persistent Disk too by the source, and by no public page: a volume of Hyperdisk is right in either case.
_DISKS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("a2", "e2", "n1", "n2", "n2d"), (_PERSISTENT, _PERSISTENT)),
    "g2": (_SSD, _PERSISTENT),
    **dict.fromkeys(("ct5lp", "ct5p"), (_SSD, _SSD)),
    **dict.fromkeys(("a3", "c3"), (_SSD_OR_HYPERDISK, _SSD_OR_HYPERDISK)),
    **dict.fromkeys(
        ("a3-ultragpu", "a4", "a4x", "g4", "ct6e", "tpu7x", "n4", "c4", "c4a"), (_ONLY_HYPERDISK, _ONLY_HYPERDISK)
    ),
}
# Disk types of the StorageClasses that GKE installs.
# https://cloud.google.com/kubernetes-engine/docs/concepts/persistent-volumes#storageclasses
STORAGE_CLASSES: Mapping[str, str] = {"standard": PD_STANDARD, "standard-rwo": PD_BALANCED, "premium-rwo": PD_SSD}
USUAL_STORAGE_CLASS = "premium-rwo"


def boot_disks(machine_type: str) -> tuple[str, ...]:
    """Returns the disk types that a machine boots from."""
    return _disks(machine_type)[0]


def attached_disks(machine_type: str) -> tuple[str, ...]:
    """Returns the disk types that a machine attaches as a volume."""
    return _disks(machine_type)[1]


def boot_disk_type(machine_type: str) -> str:
    """Returns the default boot disk of a machine: `pd-balanced`, else `hyperdisk-balanced`."""
    return PD_BALANCED if PD_BALANCED in boot_disks(machine_type) else HYPERDISK


def volume_type(machine_types: Iterable[str]) -> str | None:
    """Returns the type of a volume that all these machines attach: `pd-ssd` or `hyperdisk-balanced`, else None."""
    common = [set(attached_disks(machine_type)) for machine_type in machine_types]
    return next((kind for kind in (PD_SSD, HYPERDISK) if all(kind in types for types in common)), None)


def _disks(machine_type: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    family, _, rest = machine_type.partition("-")
    series = f"{family}-{rest.partition('-')[0]}"
    # A machine that the catalog does not know could be of any family.
    return _DISKS.get(series) or _DISKS.get(family) or (BOOT_TYPES, BOOT_TYPES)
