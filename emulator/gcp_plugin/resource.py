"""The life that all resources of the emulated cloud have: checked, created, read, changed, deleted.

Ids, and the other forms that an import takes, are the provider's:

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
| Router | projects/P/regions/R/routers/N | P/R/N |
| RouterNat | P/R/ROUTER/N | projects/P/regions/R/routers/ROUTER/N |
| Service | P/SERVICE | |
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

from emulator import sdk_types
from emulator.gcp_plugin import diff, rest, rules
from emulator.gcp_plugin.clusters import Clusters
from emulator.gcp_plugin.schema import schema_of
from emulator.gcp_plugin.store import PROVISIONING, RUNNING, Record, Store
from emulator.plugin import UNKNOWN, Refused, Secret, has_unknown, plain

Properties = dict[str, Any]


@dataclass(frozen=True)
class Cloud:
    """The cloud as one provider configuration sees it."""

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
    """One kind of resource; `schema` has what the provider does when one of its properties changes.

    `decided` has the outputs that are unknown until the resource is created, unless the inputs give them.
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
    def problems(self, inputs: Properties) -> Iterable[rules.Problem]:
        """What is wrong with the inputs: names and types, what excludes each other, the REST body, Google's rules."""
        module, name = self.arguments
        if found := sdk_types.problems(getattr(sdk_types.load(module), name), inputs):
            return found
        known = plain(inputs)
        if conflicts := list(self.schema.conflicts(known)):
            return conflicts
        body = self.body(known)
        root = "" if body is None else rest.snake(body.type)
        if body is not None and (found := body.problems(root)):
            return [(path, rules.bad_request(text)) for path, text in found]
        if has_unknown(known if body is None else [body.content, known.get("location"), known.get("project")]):
            return []  # the engine checks again when it knows
        return self.rules(known, {} if body is None else body.content)

    def body(self, inputs: Properties) -> rest.Body | None:
        """The REST body of a create; None where there is none."""
        return None

    @abstractmethod
    def rules(self, inputs: Properties, body: Properties) -> Iterable[rules.Problem]:
        """What Google refuses of well-formed inputs."""

    def may_create(self, record: Record) -> None:
        """Refuses what the cloud as it is doesn't allow; called under the store's lock."""
        if self.store.get(record.identity) is not None:
            raise Refused(f"googleapi: Error 409: Already exists: {record.identity}., alreadyExists")

    # ----------------------------------------------------------------------------------------------------------- life
    @abstractmethod
    def identity(self, inputs: Properties) -> str:
        """The id that the inputs decide."""

    @abstractmethod
    def imported(self, id: str) -> str:
        """The id of one of the forms that an import takes."""

    @abstractmethod
    def facts(self, inputs: Properties) -> dict[str, Any]:
        """What the cloud decides at the moment of creation."""

    def owner(self, inputs: Properties) -> str:
        """The project that the resource belongs to."""
        return self.cloud.project_of(inputs)

    def create(self, inputs: Properties) -> Record:
        """Makes the resource: recorded first, so that a killed creation can be found and finished."""
        record = Record(self.identity(inputs), self.token, self.owner(inputs), inputs, self.facts(inputs))
        with self.store.locked():
            self.may_create(record)
            self.store.put(record)
        try:
            return self.finish(record)
        except Exception:
            with suppress(Refused):  # what can't be erased either stays as PROVISIONING, to be found by its id
                self.erase(record)
            raise

    def finish(self, record: Record) -> Record:
        """Does, or goes on with, the slow work of a creation."""
        # A real cloud takes minutes; tests of killed creations ask for a few seconds.
        time.sleep(float(os.environ.get("GKE_AI_CLOUD_LATENCY", "0")))
        facts = record.facts | self.provision(record)
        return self.store.put(replace(record, status=RUNNING, facts=facts))

    def provision(self, record: Record) -> dict[str, Any]:
        """The slow work; repeated after a kill. Gives further facts."""
        return {}

    def read(self, identity: str) -> Record | None:
        """The resource as it is, once it is whole; None where there is none."""
        record = self.store.get(identity)
        return self.finish(record) if record is not None and record.status == PROVISIONING else record

    def update(self, record: Record, inputs: Properties) -> Record:
        """Changes the resource in place."""
        self.apply(record, inputs)
        return self.store.put(replace(record, inputs=inputs))

    def apply(self, record: Record, inputs: Properties) -> None:
        """What a change does beyond being remembered."""
        return

    def normal(self, inputs: Properties) -> Properties:
        """The inputs as they are compared: some spellings mean the same."""
        return inputs

    def defaults(self, inputs: Properties) -> Properties:
        """What the cloud chooses where the inputs state nothing, and reads back as if they did."""
        return {}

    def changes(self, old: Properties, new: Properties, state: Properties) -> list[diff.Change]:
        """What the provider plans; `state` has the outputs as they were last seen."""
        cloud = merged(state, self.defaults(old))
        return diff.changes(self.schema, self.normal(old), self.normal(new), cloud)

    def kept(self, old: Properties, new: Properties) -> Properties:
        """The new inputs, with what the provider keeps when it is no longer stated."""
        return diff.kept(self.schema, old, new)

    def stated(self, inputs: Properties, found: Properties) -> Properties:
        """What a refresh reads back into the inputs; an import, which has none, takes everything."""
        return diff.stated(self.schema, inputs, found) if inputs else found

    def delete(self, identity: str, state: Properties) -> None:
        """Removes the resource; one that isn't there is fine. `state` is what Pulumi remembers of it."""
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
        """Refuses to delete what is protected."""
        return

    def erase(self, record: Record) -> None:
        """Removes the resource with all that is in it, the record last: a kill on the way leaves it to be found."""
        self.store.remove(record.identity)

    # -------------------------------------------------------------------------------------------------------- outputs
    @abstractmethod
    def outputs(self, record: Record) -> Properties:
        """All output properties; a function of the record alone, so that a preview of an update knows them too."""

    def planned(self, inputs: Properties) -> Properties:
        """The outputs at the preview of a creation: the inputs, and unknown what the cloud decides."""
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


def merged(given: Any, decided: Any) -> Any:
    """What the cloud decided, under what the inputs gave."""
    if isinstance(given, dict) and isinstance(decided, dict):
        return {name: merged(given.get(name), decided.get(name)) for name in {**decided, **given} if name[:2] != "__"}
    return decided if given is None else given


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")


def match(patterns: Iterable[str], id: str, what: str) -> dict[str, str]:
    for pattern in patterns:
        if found := re.fullmatch(pattern, id):
            return found.groupdict()
    raise Refused(f"Import id {id!r} is no {what}: see the table of ids in emulator/gcp_plugin/resource.py")
