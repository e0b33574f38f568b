"""Resource policies of Compute Engine, such as workload policies. Nothing is placed by any of them."""

from __future__ import annotations

from emulator.cloud.store import Record
from emulator.google.network import ComputeResource
from emulator.google.resource import Properties


class ResourcePolicy(ComputeResource):
    """A resource policy of a region."""

    token = "gcp:compute/resourcePolicy:ResourcePolicy"
    type = "ResourcePolicy"
    collection = "resourcePolicies"
    noun = "resource policy"
    arguments = ("pulumi_gcp.compute", "ResourcePolicyArgs")
    decided = ("project", "region", "selfLink")

    def outputs(self, record: Record) -> Properties:
        return self.shown(record, {"region": self.region(record.inputs)})
