"""What a program registered, as its readers see it: reports, policies, tools of a repository, Google, members."""

import json
from typing import Any

from emulator.cloud.store import Store
from emulator.google import resource as google
from emulator.google.clusters import LocalClusters
from emulator.google.plugin import RESOURCES
from emulator.pulumi.plugin import decode, encode
from gke_ai.registered import registration
from gke_ai.review.gitops.objects import in_cluster
from gke_ai.review.gitops.tools import TOOLS, Kubectl
from gke_ai.review.policy.pack import Context, plain
from gke_ai.review.policy.rules import POLICIES
from gke_ai.review.report import changes
from gke_ai.settings.published import Published, publish
from tests.support.recorder import PROJECT, Record, configuration, load_stack, shared_record


def published(values: dict[str, Any], tenant: str) -> Published:
    stack = load_stack(values)
    (space,) = (space for space in stack.spaces if space.section.name == tenant)
    return Published.parse(publish(stack, space, PROJECT))


def cloud_requests(path: str) -> list[tuple[google.Resource, str, dict[str, Any]]]:
    """Each cloud resource of a configuration: its class in the emulator, its name and its inputs."""
    cloud = google.Cloud(Store(), LocalClusters(), PROJECT)
    return [
        (RESOURCES[resource.type](cloud), resource.object_name, decode(encode(resource.inputs)))
        for resource in shared_record(configuration(path)).resources.values()
        if resource.type in RESOURCES
    ]


def policy_resources(record: Record) -> list[registration.Resource]:
    """The registered resources, as policies see them."""
    return [
        registration.Resource(
            *(it.urn, it.type, it.name, plain(dict(it.inputs)), it.protected, it.delete_before_replace or False)
        )
        for it in record.resources.values()
    ]


def violated(path: str, preview: bool) -> dict[str, list[str]]:
    """Policies that a configuration violates, with their messages."""
    values = configuration(path)
    context = Context()
    texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in values.items()}
    context.read("gke-ai", texts, [])
    stack = registration.RegisteredStack(policy_resources(shared_record(values, preview)), context.configuration)
    active = [policy for policy in POLICIES if context.mandatory or not policy.only_mandatory]
    by_policy: dict[str, list[str]] = {}
    for policy in active:
        if messages := [policy.message(violation) for violation in policy.violations(stack)]:
            by_policy[policy.name] = messages
    return by_policy


def tool(name: str, record: Record) -> Kubectl:
    return TOOLS[name]("test", "clusters/test", in_cluster(resources(record), "gke-ai up"))


def resources(record: Record) -> list[changes.Resource]:
    """The registered resources, as a report sees them."""
    return [
        changes.Resource(it.urn, it.type, it.parent, it.inputs, dependencies=it.dependencies, retained=it.retained)
        for it in record.resources.values()
    ]
