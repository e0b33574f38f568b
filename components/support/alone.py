"""What the decisions and the rules of a stack say of the section of one component."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, get_origin

import pulumi
from pydantic.alias_generators import to_camel

from gke_ai.catalog.section_files import PREFIX
from gke_ai.components.arguments import Refused
from gke_ai.settings.model import Cluster, Section, Settings, Unresolved
from gke_ai.settings.reading import section_types
from gke_ai.settings.resolved import ResolvedStack

S = TypeVar("S", bound=Section)
# The section of a cluster that is not described: nothing is known of it.
UNKNOWN = Cluster(mode="standard")


def stack_of(*sections: Section, cluster: Cluster | None = None) -> ResolvedStack:
    """A stack of these sections. The other parts of it count as unknown, so no rule says that they are missing."""
    given: dict[str, Any] = {"cluster": cluster} if cluster else {}
    for name, field in Settings.model_fields.items():
        if own := [section for section in sections if type(section) in section_types(field.annotation)]:
            given[name] = own if get_origin(field.annotation) is list else own[0]
    none = {"gpu_pools", "tpu_pools"} if cluster and cluster.is_autopilot else set()  # Google creates its nodes
    unknown = {
        f"{PREFIX}{Settings.model_fields[name].alias}" for name in Settings.model_fields.keys() - given.keys() - none
    }
    settings = Settings.model_construct(**{"cluster": UNKNOWN, **given})
    return ResolvedStack(settings, unresolved=Unresolved(frozenset(unknown)))


def has_outputs(value: Any) -> bool:
    """Whether an argument is an output, or has one."""
    if isinstance(value, Mapping):
        return any(map(has_outputs, value.values()))
    return isinstance(value, pulumi.Output)


def without_outputs(value: Any, name: str) -> Any:
    """The argument with a text of its own in place of each output, which is not known before an update."""
    if isinstance(value, Mapping):
        return {key: without_outputs(item, f"{name}-{key}") for key, item in value.items()}
    return f"output-{name}" if isinstance(value, pulumi.Output) else value


def known(section: S) -> S:
    """The section without outputs."""
    late = {name: without_outputs(value, name) for name, value in section if has_outputs(value)}
    return section.model_copy(update=late) if late else section


def check_alone(
    component: str,
    section: Section,
    cluster: Cluster | None,
    others: Sequence[Section] = (),
    ignored: Collection[str] = (),
) -> None:
    """Raise Refused with what the rules say of the section, beside those of the components that it was given.

    `ignored` are keys that another argument stands for.
    """
    from gke_ai.settings.rules import check

    every = [*([] if section is cluster else [section]), *others]
    problems = check(stack_of(*map(known, every), cluster=known(cluster) if cluster else None))
    skipped = {*ignored, *(to_camel(name) for name, value in section if has_outputs(value))}
    # Its own check says what is wrong with a component.
    checked = [other._path for other in (cluster, *others) if other is not None and other is not section]
    elsewhere = (PREFIX, *(path for path in checked if path))
    if own := [it for it in problems if not it.path.startswith(elsewhere) and it.path not in skipped]:
        raise Refused(component, *own)
    # What a later check says of it begins with the component.
    section._path = component
