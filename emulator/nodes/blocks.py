"""Where simulated nodes are in the network: a simulation of Google's placement, in order and without gaps.

The nodes of a compact pool are in one block, and those of a block of a reservation in that one. Those of a whole
reservation fill one block of a zone after the other. Google publishes neither the sizes of blocks nor its order. A new
node takes the first free place, such as that of a lost one.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count

from emulator.cloud.records import PoolRecord
from gke_ai.catalog.fabric.topology import LEVELS, has_labels

BLOCK, SUBBLOCK, HOST = LEVELS.values()
SUBBLOCK_NODES, BLOCK_NODES = 4, 8


def first_free(pool: PoolRecord, zone: str, hosts: Collection[str]) -> dict[str, str]:
    """Returns the labels of the first place of a pool in a zone whose host is not one of these.

    Empty if GKE sets no such labels.
    """
    if not has_labels(pool.machine_type, pool.capacity, pool.compact):
        return {}
    places = (_place(pool, zone, number) for number in count())
    return next(place for place in places if place[HOST] not in hosts)


def _place(pool: PoolRecord, zone: str, number: int) -> dict[str, str]:
    in_zone = f"{pool.name}-{zone.rpartition('-')[2]}"
    block = pool.block or f"{in_zone}{1 if pool.compact else number // BLOCK_NODES + 1}"
    # Pools can share a block of a reservation.
    return {BLOCK: block, SUBBLOCK: f"{block}-{number // SUBBLOCK_NODES + 1}", HOST: f"{in_zone}-{number + 1}"}
