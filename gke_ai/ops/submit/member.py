"""What a member of a tenant reads and writes in its namespace, one request each."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.documents import InvalidDocument
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.catalog.quantities import readable
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import Answer, ApiClient, parsed, request, send
from gke_ai.kube.creation import Exceeded
from gke_ai.kube.objects import ApiObject, Object, annotation, label
from gke_ai.kube.pods import amounts, counted, pod_sets
from gke_ai.kube.references import Reference
from gke_ai.kube.values import items, mapping, quantity, value
from gke_ai.kube.workloads import PRIORITY_CLASSES, priority_class_of
from gke_ai.ops.doctor.requests import own_access
from gke_ai.ops.runs.command import PARTS
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop

# On each submitted object: the hash of its content, by which a repeated submission knows its own.
SUBMITTED = "gke-ai/submitted"
# How a policy of a tenant warns of each rule that an object breaks; the API server refuses it for the first alone.
_BROKEN = re.compile(r"Validation failed for ValidatingAdmissionPolicy '[^']*' with binding '[^']*': (.*)", re.DOTALL)
# Pauses between tries after a lost connection or a conflict, in seconds.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
GONE_SECONDS = 60.0


def marked(item: Object) -> dict[str, Any]:
    """Returns an object with the hash of its content."""
    digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:16]
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), SUBMITTED: digest}}}


# Kinds that a run is compared with, or consists of.
_KINDS = {
    **PARTS,
    "Pod": ("/api/v1", "pods"),
    "Secret": ("/api/v1", "secrets"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "ResourceQuota": ("/api/v1", "resourcequotas"),
}


def collection(item: Object) -> str:
    """The API path of the objects of its kind in its namespace."""
    base, plural = _KINDS[item["kind"]]
    return f"{base}/namespaces/{item['metadata']['namespace']}/{plural}"


def path_of(item: Object) -> str:
    """The API path of an object."""
    return f"{collection(item)}/{item['metadata']['name']}"


@dataclass(frozen=True)
class Member:
    """A user's client of one namespace."""

    api: ApiClient
    namespace: str

    def get(self, path: str) -> Answer:
        """Reads a path of the API."""
        return request(self.api, "GET", path)

    def published(self, answer: Answer) -> Published | str:
        """Returns what the stack published here, for the answer with its ConfigMap, or why it is not known."""
        if answer.code == 200 and (text := annotation(answer.body, ANNOTATION)):
            try:
                return Published.parse(text)
            except InvalidDocument as invalid:
                return f"ConfigMap {CONFIG_MAP} of namespace {self.namespace} {invalid}"
        return f"namespace {self.namespace} has no ConfigMap {CONFIG_MAP}" if answer.code == 404 else answer.reason

    def may_create(self, item: Object) -> str:
        """Returns why the user may not create an object; empty if it may."""
        base, plural = _KINDS[item["kind"]]
        group = base.split("/")[2] if base.startswith("/apis/") else ""
        attributes = {"namespace": self.namespace, "verb": "create", "group": group, "resource": plural}
        answer = own_access(self.api, attributes)
        if answer.code >= 400 or mapping(answer.body, "status").get("allowed"):
            return ""
        return (
            f"you may not create {plural} in namespace {self.namespace}. Ask the platform team to add you to the "
            "members of the tenant"
        )

    def queue_problem(self, queue: str) -> str:
        """Returns why a local queue can't be used; empty if it exists, or if the user may not read it."""
        path = f"/apis/{KUEUE_API}/namespaces/{self.namespace}/localqueues"
        if self.get(f"{path}/{queue}").code != 404:
            return ""
        listed = self.get(path)
        queues = items(listed.body, "items") if listed.code == 200 else []
        names = [str(item["metadata"].get("name")) for item in queues]
        return f"namespace {self.namespace} has no local queue {queue}. It has {', '.join(names) or 'none'}"

    def class_problem(self, item: Object) -> str:
        """Returns why Kueue would never see an object: its priority class is missing. Empty if that is not known."""
        kind, name = priority_class_of(item["kind"], item)
        if not name or self.get(f"{PRIORITY_CLASSES[kind]}/{name}").code != 404:
            return ""
        return f"{kind} {name} does not exist. Kueue would never see the run. Name another class, or create it"

    def existing(self, item: Object) -> Object | None:
        """Returns the object with this name, or None."""
        answer = self.get(path_of(item))
        return _whole(answer.body, item) if answer.code == 200 else None

    def refusals(self, item: Object) -> Sequence[str]:
        """Returns why the cluster would refuse an object; nothing if it would create it. Nothing is created.

        A policy of a tenant names every rule that the object breaks.
        """
        answer = request(self.api, "POST", collection(item), {"dryRun": "All", "fieldValidation": "Strict"}, item)
        if answer.code < 400:
            held = value(answer.body, "spec", "suspend") and not label(answer.body, QUEUE_LABEL)
            return (f"it is suspended, and no queue would start it. Set the label {QUEUE_LABEL}",) if held else ()
        if answer.code == 409:
            return ()
        if answer.code == 403 and item["kind"] != "Pod" and self.existing(item):
            return ()  # it counts in a quota already
        if item["kind"] in ("Pod", "PersistentVolumeClaim") and _is_free_later(answer.reason):
            return ()
        broken = [match[1] for match in map(_BROKEN.fullmatch, answer.warnings) if match]
        return broken or [answer.reason]

    def lacks(self, reference: Reference) -> str:
        """Returns why pods would not start that name an object; empty if it exists, or if the user may not read it."""
        kind, name, key = reference
        answer = self.get(path_of({"kind": kind, "metadata": {"namespace": self.namespace, "name": name}}))
        if answer.code == 404:
            return f"namespace {self.namespace} has no {kind} {name}, without which the pods do not start. Create it"
        keys = {**mapping(answer.body, "data"), **mapping(answer.body, "binaryData")}
        if answer.code == 200 and key and key not in keys:
            return f"{kind} {name} has no key {key}, without which the pods do not start. Add it"
        return ""

    def quota_problems(self, run: Object) -> Iterator[str]:
        """Yields the ResourceQuotas that never allow all pods of a run. One with a scope may not count them."""
        answer = self.get(collection({"kind": "ResourceQuota", "metadata": {"namespace": self.namespace}}))
        total = counted([*pod_sets(run)])
        for quota in items(answer.body, "items") if answer.code == 200 else ():
            if not any(mapping(quota, "spec").get(key) for key in ("scopes", "scopeSelector")):
                hard = amounts(mapping(quota, "spec", "hard"))
                yield from (
                    f"its pods together need {readable(name, total[name])} of {name}, and ResourceQuota "
                    f"{quota['metadata'].get('name')} of namespace {self.namespace} allows {readable(name, most)}. "
                    "Some would never be created"
                    for name, most in hard.items()
                    if total.get(name, most) > most
                )

    def create(self, item: Object) -> Object:
        """Creates an object once, also over a connection that breaks. Stops if the cluster refuses it.

        If no answer comes, the object may exist or not: the next try finds it by its name and the hash of its content.
        A conflict about an object that isn't there means that the quota changed at the same time
        (https://github.com/kubernetes/kubernetes/issues/67761).
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        for pause in (*PAUSES, 0.0):
            answer = send(self.api, "POST", collection(item), {"fieldValidation": "Strict"}, item, headers)
            if answer.code == 201:
                return _whole(parsed(answer.body), item)
            # A quota that is used up refuses an object that exists before its name is looked up.
            if answer.code in (403, 409) and (found := self.existing(item)) is not None:
                if annotation(found, SUBMITTED) == annotation(item, SUBMITTED):
                    return found
                raise Stop(f"The {title(item)} exists already, with another content. Choose another name.")
            if answer.code not in (0, 409):
                break
            time.sleep(pause)
        if answer.code:
            raise Stop(f"The cluster refuses the {title(item)}: {_message(answer)}")
        raise Stop(
            f"The cluster does not answer ({answer.error}). The {title(item)} may exist: submit it again, and it is "
            "created only if it does not."
        )

    def owned_by(self, item: Object, owner: Object) -> None:
        """Lets the cluster delete an object with its owner."""
        identity = {key: owner["metadata"][key] for key in ("name", "uid")}
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **identity}
        change = {"metadata": {"ownerReferences": [reference]}}
        # Beside other owners, with which it stays.
        request(self.api, "PATCH", path_of(item), body=change, content_type="application/strategic-merge-patch+json")

    def delete(self, item: Object) -> None:
        """Deletes exactly this object with its pods, and waits until it is gone."""
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": item["metadata"]["uid"]}}
        answer = request(self.api, "DELETE", path_of(item), body=options)
        if answer.code not in (200, 202, 404):
            raise Stop(f"The cluster refuses to delete the {title(item)}: {answer.reason}")
        end = time.monotonic() + GONE_SECONDS
        while (found := self.existing(item)) and found["metadata"]["uid"] == item["metadata"]["uid"]:
            if time.monotonic() > end:
                raise Stop(f"The {title(item)} is still ending after {GONE_SECONDS:.0f} s. Submit it again later.")
            time.sleep(0.5)


def _is_free_later(refusal: str) -> bool:
    """Whether a quota refuses a pod only because others use it now."""
    if not (found := Exceeded.of(refusal)):
        return False
    return all(
        (quantity(found.requested[key]) or 0) <= (quantity(most) or 0)
        for key, most in found.limited.items()
        if key in found.requested
    )


def _whole(body: object, item: Object) -> Object:
    """The object in an answer of the cluster. Stops if it is another one, or none."""
    metadata, stated = mapping(body, "metadata"), item["metadata"]
    known = (metadata.get("name"), metadata.get("namespace")) == (stated["name"], stated["namespace"])
    if not isinstance(body, dict) or not known or not metadata.get("uid"):
        raise Stop(f"The cluster answers with another object than the {title(item)}, which may exist. Try it again.")
    return body


def title(item: Object) -> str:
    """The kind, namespace and name of an object."""
    return ApiObject(item).title


def _message(answer: Answer) -> str:
    return str(value(parsed(answer.body), "message") or answer.reason)
