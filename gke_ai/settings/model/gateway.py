"""The gateway: the address at which clients reach the model servers, and how it divides their requests."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gke_ai.catalog.engines.gateways import MAX_WEIGHT
from gke_ai.settings.model.base import DnsLabel, GkeName, Section


class RoutedServer(Section):
    """A server behind a route, and its share of the route's requests."""

    noun: ClassVar[str] = "a server of a route"

    server: DnsLabel = Field(examples=["gemma"])
    """Server of this stack."""
    weight: int = Field(default=100, ge=0, le=MAX_WEIGHT)
    """Share of the requests, relative to the weights of the route's other servers. 0: the server keeps running and gets
    none."""


class Route(Section):
    """Requests for a host, and the servers that answer them."""

    noun: ClassVar[str] = "a route"

    name: DnsLabel = Field(examples=["gemma"])
    """Name of the HTTPRoute."""
    host: str | None = Field(default=None, examples=["llm.example.com"])
    """Host name of the requests. `*.` as its first label matches any label. Routes of one host have servers of
    different models, and requests name the model. Default: all hosts that no other route names."""
    servers: list[RoutedServer] = Field(min_length=1)
    """Servers that answer, each with its weight. They serve a model of the same name."""


class Gateway(Section):
    """GKE Inference Gateway: a load balancer that sends each request to the replica that can answer it soonest."""

    noun: ClassVar[str] = "the gateway"

    name: GkeName = "inference-gateway"
    """Name of the Gateway."""
    namespace: DnsLabel | None = Field(default=None, examples=["llm"])
    """Namespace of the Gateway. Default: the namespace of the first route's servers, or, if that one belongs to a
    tenant, a namespace with the name of the Gateway."""
    public: bool = False
    """Give the gateway an address on the Internet. true: a regional external load balancer; false: an internal one,
    which clients in the VPC network and region reach."""
    certificate: GkeName | None = Field(default=None, examples=["llm-example-com"])
    """TLS certificate: a Certificate Manager certificate in the region of the cluster."""
    tls_secret: DnsLabel | None = Field(default=None, examples=["llm-example-com"])
    """TLS certificate: a Secret of type kubernetes.io/tls in the namespace of the Gateway, instead of `certificate`."""
    plain_http: bool = False
    """Serve HTTP without TLS, instead of a certificate. Not for a public gateway."""
    api_key: bool = False
    """Require the API key of `gke-ai:gatewayApiKey` from clients. The servers check it. Servers in the namespace of a
    tenant have a key of their own, which is derived from it."""
    address: GkeName | None = Field(default=None, examples=["llm-address"])
    """Reserved regional IP address, by its name. Default: Google Cloud assigns one."""
    routes: list[Route] = Field(default=[])
    """Which servers answer which requests. The first route of a host gets those that no other matches."""
