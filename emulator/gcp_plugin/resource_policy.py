"""Resource policies of Compute Engine, such as workload policies. Nothing is placed by any of them."""

from __future__ import annotations

from emulator.gcp_plugin.network import ComputeResource
from emulator.gcp_plugin.resource import Properties, match
from emulator.gcp_plugin.store import Record


class ResourcePolicy(ComputeResource):
    """A resource policy of a region."""

    token = "gcp:compute/resourcePolicy:ResourcePolicy"
    type = "ResourcePolicy"
    arguments = ("pulumi_gcp.compute", "ResourcePolicyArgs")
    decided = ("project", "region", "selfLink")

    def identity(self, inputs: Properties) -> str:
        return f"projects/{self.owner(inputs)}/regions/{self.region(inputs)}/resourcePolicies/{inputs['name']}"

    def imported(self, id: str) -> str:
        forms = (
            r"projects/(?P<project>[^/]+)/regions/(?P<region>[^/]+)/resourcePolicies/(?P<name>[^/]+)",
            r"(?P<project>[^/]+)/(?P<region>[^/]+)/(?P<name>[^/]+)",
        )
        return self.identity(match(forms, id, "resource policy"))

    def outputs(self, record: Record) -> Properties:
        return self.shown(record, {"region": self.region(record.inputs)})
