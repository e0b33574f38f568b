"""The catalog beside the tables of GKE's autoscaler, row by row. Each deviation has its reason here."""

import csv
from pathlib import Path

import pytest

from gke_ai.catalog.machines.disks import BOOT_TYPES, attached_disks, boot_disks
from gke_ai.catalog.machines.tpus import VERSIONS, slice_of, slices
from gke_ai.catalog.machines.types import ATTACHABLE, MACHINES
from gke_ai.catalog.nodes.shape import NodeShape, allocatable, capacity_of
from gke_ai.catalog.quantities import KI, parse_quantity

Row = dict[str, str]


def table(name: str) -> list[Row]:
    """The rows of a table, whose head is the first line that is no comment."""
    lines = (Path(__file__).parent.parent / "data" / "gke" / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


MACHINE_ROWS = {row["name"]: row for row in table("machines.csv")}
_SMALLER = "Google's page has 960 GB for four chips, and the smaller figure is safe"
# What the catalog has instead of a figure of the table, and why.
DEVIATIONS = {
    ("a4x-maxgpu-4g-metal", "choice"): ("", "only pools of this program have it, with or without a choice of GKE"),
    ("g2-standard-24", "vcpus"): ("24", "a slip of the table, which only ranks machines; Compute Engine has 24"),
    ("n2d-highmem-96", "gib"): ("768", "a slip of the table: n2d-highmem has 8 GiB per vCPU"),
    ("tpu7x-standard-1t", "gib"): ("240", _SMALLER),
    ("tpu7x-standard-4t", "gib"): ("960", _SMALLER),
}
_OLD = "N1 is in the catalog for T4 only, in standard sizes"
_SHARED_CORE = "shared cores are too small for the controllers"
_UNDOCUMENTED = "no page of Google documents it"
_OTHER_SHAPE = "memory per vCPU that no other machine of the series has"
# Machines of the table that the catalog lacks, by the beginning of the name, and why.
LEFT_OUT = {
    **dict.fromkeys(("a3-edgegpu-8g", "tpu7x-ultranet-4t", "n2-highcpu-128"), _UNDOCUMENTED),
    **dict.fromkeys(("c4a-standard-36", "c4a-highcpu-36", "c4a-highmem-36"), _UNDOCUMENTED),
    **dict.fromkeys(("e2-medium", "e2-micro", "e2-small", "f1-micro", "g1-small"), _SHARED_CORE),
    "n1-high": _OLD,
    "n2-highmem-128": _OTHER_SHAPE,
}


def test_machines_have_the_figures_of_the_table() -> None:
    for name, machine in MACHINES.items():
        have = {
            "vcpus": f"{machine.vcpus:g}",
            "gib": f"{machine.memory_gb:g}",
            "arch": machine.arch,
            "accelerator": machine.gpu or machine.tpu or "",
            "count": str(machine.gpus or machine.chips),
            "local_ssds": str(machine.local_ssds),
            "choice": "named" if machine.only_if_named else "",
        }
        for column, value in have.items():
            stated = MACHINE_ROWS[name][column]
            if (name, column) in DEVIATIONS:
                assert (value, stated != value) == (DEVIATIONS[name, column][0], True), (name, column)
            else:
                assert value == stated, (name, column)


def test_every_machine_of_the_table_is_in_the_catalog_or_left_out_with_a_reason() -> None:
    missing = set(MACHINE_ROWS) - set(MACHINES)
    unexplained = {name for name in missing if not name.startswith(tuple(LEFT_OUT))}
    assert unexplained == set()
    assert all(any(name.startswith(start) for name in missing) for start in LEFT_OUT)


DISK_ROWS = {row["family"]: row for row in table("disks.csv")}
SERIES = {name: next((s for s in ("a3-ultragpu",) if name.startswith(s)), MACHINES[name].family) for name in MACHINES}


def test_machines_boot_from_and_attach_the_disks_of_the_table() -> None:
    for name, series in SERIES.items():
        row = DISK_ROWS[series]
        assert boot_disks(name) == tuple(kind for kind in BOOT_TYPES if kind in row["boot"].split()), name
        attached = tuple(kind for kind in BOOT_TYPES if kind in row["attached"].split())
        if series == "a3-ultragpu":
            # It boots from Hyperdisk only, and no public page lets it attach Persistent Disk, as the table does.
            assert attached_disks(name) == ("hyperdisk-balanced",)
            assert "hyperdisk-balanced" in attached
        else:
            assert attached_disks(name) == attached, name


NODE_ROWS = table("nodes.csv")


def comparable(row: Row) -> bool:
    """Whether the catalog has the machine with this memory and these Local SSDs. It adds none to a machine."""
    machine = MACHINES[row["name"]]
    return (f"{machine.memory_gb:g}", str(machine.local_ssds)) == (row["gib"], row["local_ssds"])


@pytest.mark.parametrize(
    "row", [row for row in NODE_ROWS if comparable(row)], ids=lambda row: f"{row['name']}-{row['disk_gb']}"
)
def test_node_has_the_capacity_and_allocatable_of_the_table(row: Row) -> None:
    name, disk = row["name"], int(row["disk_gb"])
    gpus = MACHINES[name].gpu, MACHINES[name].gpus
    shape = NodeShape("", name, *gpus, "default", "onDemand", "", disk, {}, True)
    have, free = capacity_of(shape), allocatable(shape)
    stated = [parse_quantity(row[column]) for column in ("memory", "disk", "free_cpu", "free_memory")]
    assert stated == [have["memory"], have["ephemeral-storage"], free["cpu"], free["memory"]]
    # The table deducts exactly 10 % for eviction; the kubelet computes with a float that is a little larger.
    assert 0 <= parse_quantity(row["free_disk"]) - free["ephemeral-storage"] <= 20 * KI


def test_all_rows_of_nodes_but_those_of_other_disks_and_memory_are_compared() -> None:
    left = {(row["name"], row["local_ssds"]) for row in NODE_ROWS if not comparable(row)}
    with_ssds = {("n2-standard-32", "2"), ("g2-standard-12", "1"), ("g2-standard-48", "4")}
    assert left == with_ssds | {("tpu7x-standard-4t", "0")}


# (single-host topology by machine, largest topology) of
# https://github.com/AI-Hypercomputer/xpk/blob/main/src/xpk/core/system_characteristics.py and, for the machines,
# pkg/cloudprovider/gke/machinetypes/deprecated_tpu_config.go of the autoscaler.
TPUS = {
    "v5e": ({"ct5lp-hightpu-1t": "1x1", "ct5lp-hightpu-4t": "2x2", "ct5lp-hightpu-8t": "2x4"}, "16x16"),
    "v5p": ({"ct5p-hightpu-4t": "2x2x1"}, "16x16x24"),
    "v6e": ({"ct6e-standard-1t": "1x1", "ct6e-standard-4t": "2x2", "ct6e-standard-8t": "2x4"}, "16x16"),
    "tpu7x": ({"tpu7x-standard-1t": "1x1x1", "tpu7x-standard-4t": "2x2x1"}, "16x24x24"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_slices_are_those_of_the_tables(version: str) -> None:
    single_host, largest = TPUS[version]
    assert {one.machine_type: one.topology for one in slices(version) if not one.multi_host} == single_host
    assert slice_of(version, largest).chips == VERSIONS[version].max_chips == max(s.chips for s in slices(version))


def test_t4_is_attached_up_to_the_vcpus_of_the_table() -> None:
    """pkg/cloudprovider/gke/machinetypes/deprecated_machine_types_gpu_config.go:64 of the autoscaler."""
    most_vcpus = {1: 48, 2: 48, 4: 96}
    for name, gpus in ATTACHABLE.items():
        assert gpus["nvidia-tesla-t4"] == tuple(n for n, most in most_vcpus.items() if MACHINES[name].vcpus <= most)
    assert set(ATTACHABLE) == {name for name in MACHINES if name.startswith("n1-standard-")}
