"""Firewall rules of VPC networks. No packet passes through any of them."""

from __future__ import annotations

from emulator.cloud.store import Record
from emulator.google.network import FIREWALL, ComputeResource, network_of
from emulator.google.resource import Properties


class Firewall(ComputeResource):
    """A firewall rule, of one network."""

    token = FIREWALL
    type = "Firewall"
    collection = "firewalls"
    noun = "firewall"
    is_global = True
    arguments = ("pulumi_gcp.compute", "FirewallArgs")
    decided = ("creationTimestamp", "project", "selfLink")

    def may_create(self, record: Record) -> None:
        super().may_create(record)
        self.require_network(record)

    def outputs(self, record: Record) -> Properties:
        network = network_of(record.inputs["network"], record.project)
        return self.shown(record, {"direction": "INGRESS", "network": network})
