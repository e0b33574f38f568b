"""Firewall rules of VPC networks. No packet passes through any of them."""

from __future__ import annotations

from emulator.gcp_plugin.network import FIREWALL, ComputeResource, network_of
from emulator.gcp_plugin.resource import Properties, match
from emulator.gcp_plugin.store import Record


class Firewall(ComputeResource):
    """A firewall rule, of one network."""

    token = FIREWALL
    type = "Firewall"
    arguments = ("pulumi_gcp.compute", "FirewallArgs")
    decided = ("creationTimestamp", "project", "selfLink")

    def identity(self, inputs: Properties) -> str:
        return f"projects/{self.owner(inputs)}/global/firewalls/{inputs['name']}"

    def imported(self, id: str) -> str:
        forms = (r"projects/(?P<project>[^/]+)/global/firewalls/(?P<name>[^/]+)", r"(?P<project>[^/]+)/(?P<name>[^/]+)")
        return self.identity(match(forms, id, "firewall"))

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        self.require_network(record)

    def outputs(self, record: Record) -> Properties:
        network = network_of(record.inputs["network"], record.project)
        return self.shown(record, {"direction": "INGRESS", "network": network})
