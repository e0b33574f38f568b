"""The stack once everything is decided: pools, workloads, queues, routes and tenants, each with what follows for it."""

from gke_ai.settings.resolved.autoscaling import ScaledServer
from gke_ai.settings.resolved.buckets import BucketGrants, Download
from gke_ai.settings.resolved.gateway import Routed
from gke_ai.settings.resolved.pools import NodePool
from gke_ai.settings.resolved.queues import BUILT_IN_PRIORITIES, Queue, Quota, ResourceFlavor
from gke_ai.settings.resolved.stack import DEFAULT_NAMESPACE, ResolvedStack
from gke_ai.settings.resolved.tenants import Space
from gke_ai.settings.resolved.workloads import Placed
