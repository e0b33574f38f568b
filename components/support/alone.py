"""What the decisions and the rules of a stack say of the section of one component."""

from collections.abc import Collection, Sequence
from typing import Any, get_origin

from gke_ai.catalog.section_files import PREFIX
from gke_ai.components.arguments import Refused
from gke_ai.settings.model import Cluster, Section, Settings, Unresolved
from gke_ai.settings.reading import section_types
from gke_ai.settings.resolved import ResolvedStack

# The section of a cluster that is not described: nothing is known of it.
UNKNOWN = Cluster(mode="standard")


def stack_of(*sections: Section, cluster: Cluster | None = None) -> ResolvedStack:
    """A stack of these sections. The other parts of it count as unknown, so no rule says that they are missing."""
    given: dict[str, Any] = {"cluster": cluster} if cluster else {}
    for name, field in Settings.model_fields.items():
        if own := [section for section in sections if type(section) in section_types(field.annotation)]:
            given[name] = own if get_origin(field.annotation) is list else own[0]
    unknown = {f"{PREFIX}{field.alias}" for name, field in Settings.model_fields.items() if name not in given}
    settings = Settings.model_construct(**{"cluster": UNKNOWN, **given})
    return ResolvedStack(settings, unresolved=Unresolved(frozenset(unknown)))


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

    problems = check(stack_of(*([] if section is cluster else [section]), *others, cluster=cluster))
    if own := [it for it in problems if not it.path.startswith(PREFIX) and it.path not in ignored]:
        raise Refused(component, *own)
    # What a later check says of it begins with the component.
    section._path = component
