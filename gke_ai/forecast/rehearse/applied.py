"""Applies a change of manifests to a cluster, as `kubectl apply --server-side --prune` does.

kubectl applies every object, and prunes only if none is refused:
https://github.com/kubernetes/kubectl/blob/v0.36.1/pkg/cmd/apply/apply.go (`Run`)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from gke_ai.forecast.rehearse import reduced
from gke_ai.forecast.rehearse.manifests import Change, Manifest, named
from gke_ai.forecast.snapshot.values import SHOWN
from gke_ai.formats.sentences import join_names
from gke_ai.kube.client import APPLY, Answer, ApiClient, send
from gke_ai.terminal import Stop

MANAGER = "rehearsal"
CREATED, NOT_FOUND, REFUSED, SERVER_ERROR = 201, 404, 400, 500
# A webhook may not answer for a moment.
TRIES, PAUSE_SECONDS = 5, 1.0
IN_USE = "kueue.x-k8s.io/resource-in-use"
_YAML = "application/yaml"


class Applied:
    """An applied change, in the form of an update by Pulumi. A refused object stops the deletions, not the others."""

    runs = False
    quiet = 0.0

    def __init__(self, api: ApiClient, change: Change, stop: Callable[[], None] = lambda: None) -> None:
        self.stop = stop
        self._api = api
        self._errors: list[str] = []
        self._done: list[str] = []
        self._notes = list(reduced.notes(api, change.apply))
        for manifest in change.apply:
            answer = apply(api, manifest)
            self._note("created" if answer.code == CREATED else "updated", manifest, answer)
        self._kept = change.delete if self._errors else ()
        self._deleted = () if self._errors else change.delete
        for manifest in self._deleted:
            answer = _send(api, "DELETE", manifest.path, {"propagationPolicy": "Background"})
            if answer.code != NOT_FOUND:
                self._note("deleted", manifest, answer)

    def _note(self, verb: str, manifest: Manifest, answer: Answer) -> None:
        if answer.code >= REFUSED:
            self._errors.append(f"{manifest.source}: {manifest.title}: {_reason(answer)}")
        else:
            self._done.append(f"{verb} {manifest.title}")

    def waits_for(self) -> str:
        """Nothing: an application waits for no object."""
        return ""

    def succeeded(self) -> bool:
        """Whether the cluster refused nothing."""
        return not self._errors

    def errors(self) -> str:
        """Why objects are refused, a line for each."""
        return "\n".join(self._errors)

    def done(self) -> list[str]:
        """What was done, such as `created Job llm/train`."""
        return self._done

    def notes(self) -> list[str]:
        """What the cluster could not judge, what a refusal kept from deletion, and what is still being deleted."""
        kept = join_names(named([manifest.title for manifest in self._kept]))
        notes = [f"kubectl deletes nothing after a refusal, so these stay: {kept}."] if kept else []
        return [*self._notes, *notes, *filter(None, map(self._terminating, self._deleted))]

    def _terminating(self, manifest: Manifest) -> str:
        """Says which finalizers hold a deleted object."""
        answer = _send(self._api, "GET", manifest.path, {})
        metadata = json.loads(answer.body)["metadata"] if answer.code < REFUSED else {}
        if not metadata.get("deletionTimestamp"):
            return ""
        finalizers = metadata.get("finalizers") or []
        text = f"{manifest.title} is terminating until its finalizers are removed: {', '.join(finalizers) or 'none'}."
        if IN_USE not in finalizers:
            return text
        return (
            f"{text} Kueue removes this one once nothing uses the {manifest.kind}, and admits nothing to it meanwhile."
        )


def apply(api: ApiClient, manifest: Manifest, strict: bool = True) -> Answer:
    """Applies a manifest by server-side apply, or creates an object if the manifest names none."""
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict" if strict else "Ignore"}
    if not manifest.is_named:
        return _send(api, "POST", manifest.path, query, json.dumps(manifest.content), _YAML)
    return _send(api, "PATCH", manifest.path, {**query, "force": "true"}, json.dumps(manifest.content), APPLY)


def _send(
    api: ApiClient, method: str, path: str, query: dict[str, str], body: str | None = None, content: str = APPLY
) -> Answer:
    headers = {"Accept": "application/json", "Content-Type": content}
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        answer = send(api, method, path, query, body, headers)
        if not answer.code:
            raise Stop(f"The cluster does not answer ({answer.error}): {api.configuration.host}")
        if answer.code < SERVER_ERROR:
            break
    return answer


def _reason(answer: Answer) -> str:
    try:
        message = " ".join(str(json.loads(answer.body)["message"]).split())
    except (ValueError, KeyError, TypeError):
        return answer.reason
    # The API server writes a whole field between the path and the cause.
    return message if len(message) <= 2 * SHOWN else f"{message[:SHOWN]} … {message[-SHOWN:]}"
