"""The node pools in a snapshot: the fields of GKE's API that say which nodes the autoscaler may add.

    gcloud container node-pools list --cluster NAME --location LOCATION --format json > pools.json

Source: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from gke_ai.terminal import Stop

MAX_BYTES, MAX_POOLS, MAX_ITEMS = 4 * 2**20, 1_000, 200
_Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]
_Text = Annotated[str, Field(max_length=253)]
_Nodes = Annotated[int, Field(ge=0, le=15_000)]  # https://cloud.google.com/kubernetes-engine/quotas


class _Part(BaseModel):
    """A part of a node pool: its listed fields. Others are left out."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True)


class Taint(_Part):
    key: _Text
    value: _Text = ""
    effect: _Text = "NO_SCHEDULE"


class Accelerator(_Part):
    accelerator_type: _Text
    accelerator_count: Annotated[int, Field(ge=1, le=64)]


class Reservation(_Part):
    consume_reservation_type: _Text = ""


class Config(_Part):
    machine_type: _Text = "e2-medium"
    disk_size_gb: Annotated[int, Field(ge=10, le=65_536)] = 100
    spot: bool = False
    flex_start: bool = False
    accelerators: Annotated[list[Accelerator], Field(max_length=MAX_ITEMS)] = []
    reservation_affinity: Reservation = Reservation()
    labels: Annotated[dict[_Text, _Text], Field(max_length=MAX_ITEMS)] = {}
    taints: Annotated[list[Taint], Field(max_length=MAX_ITEMS)] = []


class Autoscaling(_Part):
    enabled: bool = False
    min_node_count: _Nodes = 0
    max_node_count: _Nodes = 0
    total_min_node_count: _Nodes = 0
    total_max_node_count: _Nodes = 0


class Placement(_Part):
    type: Annotated[str, Field(pattern=r"^[A-Z_]{0,40}$")] = ""
    tpu_topology: Annotated[str, Field(pattern=r"^(\d{1,3}(x\d{1,3}){1,2})?$")] = ""


class Queued(_Part):
    enabled: bool = False


class NetworkConfig(_Part):
    accelerator_network_profile: _Text = ""


class NodePool(_Part):
    """A node pool. `locations` are its zones."""

    name: _Name
    locations: Annotated[list[_Name], Field(max_length=MAX_ITEMS)] = []
    config: Config = Config()
    autoscaling: Autoscaling = Autoscaling()
    placement_policy: Placement = Placement()
    queued_provisioning: Queued = Queued()
    network_config: NetworkConfig = NetworkConfig()


def read_pools(path: Path) -> list[NodePool]:
    """Reads what `gcloud container node-pools list --format json` printed. Stops if it is something else."""
    try:
        text = path.read_text() if path.stat().st_size <= MAX_BYTES else ""
        return TypeAdapter(list[NodePool]).validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"The node pools {path} cannot be read ({error}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Stop(
            f"{path}: {where or 'the file'}: {first['msg']}. Write it with: "
            "gcloud container node-pools list --cluster NAME --location LOCATION --format json"
        ) from None
