"""`gke-ai render`: writes what a stack registers in its cluster as manifests, one file for each object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from gke_ai.review.gitops.documents import document
from gke_ai.review.gitops.folder import PAGE, Outcome, path_in_repository, write
from gke_ai.review.gitops.objects import InCluster, KubernetesObject, in_cluster
from gke_ai.review.gitops.tools import TOOLS, Kubectl, release_path
from gke_ai.review.report.changes import planned
from gke_ai.workspace.stack import Stack

SECRETS = """
## Secrets

No Secret is in this folder. Create each in the cluster before the workloads, by hand or by a tool such as External
Secrets Operator. For the token of Hugging Face, set `gke-ai:hfTokenSecret`: then it comes from Secret Manager, and this
folder has the objects that copy it.
"""


def render(stack: Stack, folder: Path, tool: str) -> None:
    """Writes the manifests of a stack for a tool, and prints what changed and which Secrets are missing.

    Stops if the preview fails, a value is not known before an update, or the folder has other files in the way.
    """
    content = in_cluster(planned(stack, "Nothing was written.").after.values(), stack.next("up"))
    form = TOOLS[tool](stack.name, path_in_repository(folder), content)
    show(folder, write(folder, stack.name, dict(files(form))), content)


def files(tool: Kubectl) -> Iterator[tuple[str, str]]:
    """Yields path and content of every file."""
    for item in tool.content.objects:
        yield path_of(item), document(annotated(item, tool))
    for release in tool.content.releases:
        yield release_path(release), tool.release(release)
    yield from tool.syncs()
    yield PAGE, "\n".join(page(tool)) + "\n"


def path_of(item: KubernetesObject) -> str:
    """The path of an object's file, such as `40-queues/llm/localqueue-team.yaml`."""
    name = f"{item.kind.lower()}-{quote(item.name, safe='')}.yaml"
    return "/".join(filter(None, (item.stage.value, item.namespace, name)))


def annotated(item: KubernetesObject, tool: Kubectl) -> dict[str, object]:
    """Returns an object as it is registered, with the annotations that the tool needs."""
    metadata = dict(item.content["metadata"])
    if added := tool.annotations(item):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **added}
    return {**item.content, "metadata": metadata}


def page(tool: Kubectl) -> Iterator[str]:
    """Yields the lines of the page that says how to apply the folder, and which Secrets are missing."""
    yield f"# Objects of the stack {tool.stack}\n"
    yield from tool.steps()
    if tool.content.secrets:
        yield SECRETS
        yield "```"
        yield from (secret.command for secret in tool.content.secrets)
        yield "```"


def show(folder: Path, outcome: Outcome, content: InCluster) -> None:
    """Prints what a render did, and the Secrets that are not written."""
    for path in outcome.written:
        print(f"Written: {folder / path}")
    for path in outcome.removed:
        print(f"Removed: {folder / path}")
    count = len(content.objects)
    print(f"{folder} has {count} objects and {len(content.releases)} charts; {outcome.unchanged} files are unchanged.")
    for secret in content.secrets:
        print(f"Not written, because it is secret. Create it:  {secret.command}")
