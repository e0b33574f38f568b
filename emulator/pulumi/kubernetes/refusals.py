"""Errors that the user sees when the API server refuses an object or can't be reached."""

from __future__ import annotations

from emulator.pulumi.kubernetes import objects
from emulator.pulumi.kubernetes.api import ApiError, UnreachableError
from emulator.pulumi.kubernetes.objects import Object, Properties, metadata
from emulator.pulumi.plugin import Refused, plain, type_of


def display_name(inputs: Properties) -> str:
    """Kind, namespace and name of an object, as errors show it."""
    obj = plain(inputs)
    namespace = metadata(obj).get("namespace")
    return f"{obj['kind']} {f'{namespace}/' if namespace else ''}{metadata(obj).get('name')}"


def no_match(obj: Object) -> str:
    """The error of Kubernetes clients for a kind that the API server doesn't serve."""
    return f'no matches for kind "{obj["kind"]}" in version "{obj["apiVersion"]}"'


def create_refused(urn: str, inputs: Properties, error: ApiError) -> Refused:
    """The error for an object that the API server did not create, with remedies if the object exists."""
    message = objects.redacted(error.message, inputs)
    text = f"{display_name(inputs)} was not created by the Kubernetes API server: {message}"
    if error.code == 409 and error.reason == "AlreadyExists":
        text += (
            "\nThe object exists in the cluster, but not in this stack under this name. If the program renamed the"
            f" resource, give it an alias. To adopt the object, run `pulumi import {type_of(urn)} …`. If nobody needs"
            " it, delete it from the cluster."
        )
    return Refused(text)


def update_refused(inputs: Properties, error: ApiError) -> Refused:
    """The error for an object that the API server did not update, with remedies for a conflict of field managers."""
    text = f"{display_name(inputs)} was not updated by the Kubernetes API server: "
    owners = [cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict"]
    if not owners:
        return Refused(text + objects.redacted(error.message, inputs))
    fields = "; ".join(f"{cause.get('field')} ({cause.get('message')})" for cause in owners)
    return Refused(
        f"{text}conflict: another manager owns {fields}. To leave the field to that manager, remove it from the program"
        f' or add it to `ignoreChanges`. To take it over, set the annotation {objects.PATCH_FORCE}: "true".'
    )


def cluster_unreachable(error: UnreachableError) -> Refused:
    """The error of a create or an update while the cluster is unreachable."""
    return Refused(f"configured Kubernetes cluster is unreachable: {error}")


def object_unreachable(object_id: str, error: UnreachableError) -> Refused:
    """The error of a read or a deletion while the cluster is unreachable, with the remedy."""
    return Refused(
        f"{object_id}: configured Kubernetes cluster is unreachable: {error}. If the cluster was deleted, run the "
        "command again with PULUMI_K8S_DELETE_UNREACHABLE=true, which removes its objects from the state."
    )
