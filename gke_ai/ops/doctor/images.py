"""Checks of the images that the stack runs, against their registries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gke_ai.catalog.project.registries import registry_of
from gke_ai.ops.doctor.visit import ADVICE, MISSING, UNCHECKED, Finding, Visit


@dataclass
class ImageChecks(Visit):
    """Checks of container images. A registry that wants a credential is not asked further."""

    def images(self) -> Iterator[Finding]:
        """Each tag exists, and still has the digest that the stack pins."""
        unreachable: dict[str, str] = {}
        for image in dict.fromkeys(image for workload in self.resolved.workloads for image in workload.images):
            name, _, pinned = image.partition("@")
            host = registry_of(image)
            if host in unreachable:
                continue
            answer = self.call(f"DIGEST {name}")
            if answer.code == 404:
                text = f"{host} has no {name}. Pods with it would not start"
                yield Finding(MISSING, "image", text, f"docker manifest inspect {name}  # then set another image")
            elif answer.code != 200:
                reason = f"answers {answer.code}" if answer.code else f"does not respond: {answer.error}"
                unreachable[host] = f"{host} {reason}"
            elif pinned and answer.body and answer.body != pinned:
                text = f"the tag of {name} is now {answer.body}, and the stack runs {pinned}, which the tag had before"
                yield Finding(ADVICE, "image", text, f"docker manifest inspect {name}@{pinned}  # is it still there?")
        for text in unreachable.values():
            yield Finding(UNCHECKED, "image", text)
