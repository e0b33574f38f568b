"""The life cycle of all resources of the emulated cloud: check, create, read, update, delete.

Ids, and the other forms that an import accepts, are the provider's:

| resource | id | import also as |
| --- | --- | --- |
| Cluster | projects/P/locations/L/clusters/C | P/L/C, L/C |
| NodePool | projects/P/locations/L/clusters/C/nodePools/N | P/L/C/N, L/C/N |
| Bucket | NAME | P/NAME |
| BucketIAMMember | b/BUCKET/ROLE/MEMBER | b/BUCKET ROLE MEMBER |
| Account | projects/P/serviceAccounts/EMAIL | EMAIL |
| IAMMember (account) | projects/P/serviceAccounts/EMAIL/ROLE/MEMBER | projects/P/serviceAccounts/EMAIL ROLE MEMBER |
| IAMMember (project) | P/ROLE/MEMBER | P ROLE MEMBER |
| SecretIamMember | projects/P/secrets/S/ROLE/MEMBER | projects/P/secrets/S ROLE MEMBER |
| Dashboard | projects/NUMBER/dashboards/ID | |
| AlertPolicy | projects/P/alertPolicies/ID | |
| Network | projects/P/global/networks/N | P/N |
| Subnetwork | projects/P/regions/R/subnetworks/N | P/R/N |
| Firewall | projects/P/global/firewalls/N | P/N |
| ResourcePolicy | projects/P/regions/R/resourcePolicies/N | P/R/N |
| Router | projects/P/regions/R/routers/N | P/R/N |
| RouterNat | P/R/ROUTER/N | projects/P/regions/R/routers/ROUTER/N |
| Service | P/SERVICE | |

The id of a member with a condition also has /TITLE/DESCRIPTION/EXPRESSION.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from emulator.cloud.store import PROVISIONING, RUNNING, Record, Store
from emulator.google import diff, rest
from emulator.google.clusters import Clusters
from emulator.google.refusals import Problem, bad_request
from emulator.google.schema import schema_of
from emulator.pulumi import sdk_types
from emulator.pulumi.plugin import UNKNOWN, Refused, Secret, has_unknown, plain

Properties = dict[str, Any]


@dataclass(frozen=True)
class Cloud:
    """The cloud with the defaults of one provider configuration."""

    store: Store
    clusters: Clusters
    project: str | None = None
    region: str | None = None
    zone: str | None = None

    def project_of(self, inputs: Mapping[str, Any]) -> str:
        """The resource's own project, else the provider's."""
        if project := inputs.get("project") or self.project:
            return str(project)
        raise Refused("project: required field is not set. Set gcp:project in the stack's configuration")

    def location_of(self, inputs: Mapping[str, Any]) -> str:
        """The resource's own location, else the provider's region or zone."""
        if location := inputs.get("location") or self.region or self.zone:
            return str(location)
        raise Refused('Cannot determine location: set "location" in this resource, or gcp:region or gcp:zone')


class Resource(ABC):
    """A type of resource.

    `schema` says what the provider does when a property changes.

    `decided` are outputs that are unknown until the resource is created, unless the inputs have them.
    """

    token: str
    arguments: tuple[str, str]  # module and name of the SDK's input type
    decided: tuple[str, ...]
    named = True

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.store = cloud.store
        self.schema = schema_of(self.token)

    # --------------------------------------------------------------------------------------------------------- checks
    def problems(self, inputs: Properties) -> Iterable[Problem]:
        """Problems of the inputs: names and types, conflicts, the REST body, Google's rules."""
        if type_problems := sdk_types.problems(sdk_types.load(*self.arguments), inputs):
            return type_problems
        known = plain(inputs)
        schema = self.schema
        if problems := [*schema.conflicts(known), *schema.ambiguous_blocks(known), *schema.invalid_values(known)]:
            return problems
        body = self.body(known)
        root = "" if body is None else rest.snake(body.type)
        if body is not None and (body_problems := body.problems(root)):
            return [(path, bad_request(text)) for path, text in body_problems]
        if has_unknown(known if body is None else [body.content, known.get("location"), known.get("project")]):
            return []  # the engine checks again when all values are known
        return self.rules(known, {} if body is None else body.content)

    def body(self, inputs: Properties) -> rest.Body | None:
        """The REST body of a create, or None if the resource has none."""
        return None

    @abstractmethod
    def rules(self, inputs: Properties, body: Properties) -> Iterable[Problem]:
        """Google's rules for well-formed inputs: yields the problems."""

    def creation_problems(self, inputs: Properties) -> Iterable[Problem]:
        """Problems of well-formed inputs that a creation has and an update doesn't."""
        return []

    def may_create(self, record: Record) -> None:
        """Refuses a creation that the current cloud doesn't allow.

        Called under the store's lock.
        """
        if self.store.get(record.identity) is not None:
            raise Refused(f"googleapi: Error 409: Already exists: {record.identity}., alreadyExists")

    # ----------------------------------------------------------------------------------------------------------- life
    @abstractmethod
    def identity(self, inputs: Properties) -> str:
        """The id, which follows from the inputs."""

    @abstractmethod
    def imported(self, id: str) -> str:
        """The id, from one of the forms that an import accepts."""

    @abstractmethod
    def facts(self, inputs: Properties) -> dict[str, Any]:
        """The values that the cloud chooses at creation."""

    def owner(self, inputs: Properties) -> str:
        """The project that the resource belongs to."""
        return self.cloud.project_of(inputs)

    def create(self, inputs: Properties) -> Record:
        """Creates the resource.

        It records it first, so that a killed creation can be found and finished.
        """
        record = Record(self.identity(inputs), self.token, self.owner(inputs), inputs, self.facts(inputs))
        with self.store.locked():
            self.may_create(record)
            self.store.put(record)
        try:
            return self.finish(record)
        except Exception:
            with suppress(Refused):  # if erasing fails too, the resource stays as PROVISIONING
                self.erase(record)
            raise

    def finish(self, record: Record) -> Record:
        """Does the slow work of a creation, or continues it."""
        # A real cloud takes minutes. Tests of killed creations set a few seconds.
        time.sleep(float(os.environ.get("GKE_AI_CLOUD_LATENCY", "0")))
        facts = record.facts | self.provision(record)
        return self.store.put(replace(record, status=RUNNING, facts=facts))

    def provision(self, record: Record) -> dict[str, Any]:
        """Does the slow work, again after a kill. Returns additional facts."""
        return {}

    def read(self, identity: str) -> Record | None:
        """Returns the resource, after finishing an interrupted creation.

        None if it doesn't exist.
        """
        record = self.store.get(identity)
        return self.finish(record) if record is not None and record.status == PROVISIONING else record

    def update_problems(self, old: Properties, new: Properties) -> Iterable[Problem]:
        """Why Google refuses an update. The new inputs have the values that the provider keeps."""
        return []

    def update(self, record: Record, inputs: Properties) -> Record:
        """Changes the resource in place."""
        for path, text in self.update_problems(record.inputs, inputs):
            raise Refused(f"{path}: {text}")
        self.apply(record, inputs)
        return self.store.put(replace(record, inputs=inputs))

    def apply(self, record: Record, inputs: Properties) -> None:
        """Carries out a change, beyond recording it."""
        return

    def normal(self, inputs: Properties) -> Properties:
        """The inputs in a normal form for comparison."""
        return inputs

    def defaults(self, inputs: Properties) -> Properties:
        """Values that the cloud chooses for omitted inputs and returns as if they were set."""
        return {}

    def changes(self, old: Properties, new: Properties, state: Properties) -> list[diff.Change]:
        """The changes that the provider plans. `state` has the last known outputs."""
        cloud = merged(state, self.defaults(old))
        return diff.changes(self.schema, self.normal(old), self.normal(new), cloud)

    def kept(self, old: Properties, new: Properties) -> Properties:
        """The new inputs with the old values that the provider keeps for removed properties."""
        return diff.kept(self.schema, old, new)

    def refreshed_inputs(self, inputs: Properties, current: Properties) -> Properties:
        """The inputs after a refresh.

        An import has no inputs, so it gets all current values.
        """
        return diff.refreshed_inputs(self.schema, inputs, current) if inputs else current

    def delete(self, identity: str, state: Properties) -> None:
        """Deletes the resource if it exists. `state` is Pulumi's state of it."""
        policy = state.get("deletionPolicy", "DELETE")
        if policy == "PREVENT":
            raise Refused(
                f'cannot destroy "{identity}" without setting deletionPolicy="DELETE" and running `pulumi up`'
            )
        self.may_delete(identity, state)
        record = self.store.get(identity)
        if policy != "ABANDON" and record is not None:
            self.erase(record)

    def may_delete(self, identity: str, state: Properties) -> None:
        """Refuses to delete a protected resource."""
        return

    def erase(self, record: Record) -> None:
        """Removes the resource and its contents.

        The record comes last, so that a killed deletion can be repeated.
        """
        self.store.remove(record.identity)

    # -------------------------------------------------------------------------------------------------------- outputs
    @abstractmethod
    def outputs(self, record: Record) -> Properties:
        """All output properties.

        They follow from the record, so the preview of an update knows them too.
        """

    def planned(self, inputs: Properties) -> Properties:
        """The outputs in the preview of a creation: the inputs, and unknown values for those that the cloud chooses."""
        outputs = {name: value for name, value in inputs.items() if not name.startswith("__")}
        for path in self.decided:
            outputs = _with_unknown(outputs, path.split("."))
        return outputs


def _with_unknown(value: Any, path: list[str]) -> Any:
    if isinstance(value, Secret):
        return Secret(_with_unknown(value.value, path))
    if not isinstance(value, dict):
        return value
    name, *rest_ = path
    if rest_ and name in value:
        return value | {name: _with_unknown(value[name], rest_)}
    return {name: UNKNOWN} | value


def merged(inputs: Any, decided: Any) -> Any:
    """Merges inputs with values that the cloud decided. The inputs win."""
    if isinstance(inputs, dict) and isinstance(decided, dict):
        names = [name for name in {**decided, **inputs} if name[:2] != "__"]
        return {name: merged(inputs.get(name), decided.get(name)) for name in names}
    return decided if inputs is None else inputs


def now() -> str:
    """The current time in the API's form."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")


# Only a condition has spaces.
MEMBER = r"(?P<member>\S+(/[^/]*/[^/]*/.+)?)"


def grant_id(target: str, inputs: Properties) -> str:
    """The id of a member's role on a resource. A condition is a part of it."""
    grant = f"{target}/{inputs['role']}/{inputs['member']}"
    condition = inputs.get("condition")
    return (
        f"{grant}/{condition['title']}/{condition.get('description', '')}/{condition['expression']}"
        if condition
        else grant
    )


def match(patterns: Iterable[str], id: str, resource: str) -> dict[str, str]:
    """Returns the named groups of the first pattern that matches an import id."""
    for pattern in patterns:
        if parts := re.fullmatch(pattern, id):
            return parts.groupdict()
    raise Refused(f"Import id {id!r} is not the id of a {resource}: see the table in emulator/google/resource.py")
