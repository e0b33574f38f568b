"""Whether the images of a run exist, as far as their registry says so without a credential."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from threading import Thread

from gke_ai.kube.client import Answer
from gke_ai.ops.doctor.registry import digest_of

# https://github.com/distribution/reference/blob/main/reference.go, in short
_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
PATIENCE = 0.6  # seconds for all registries together, beside the questions to the cluster


class ImageCheck:
    """Asks the registry of each image on a thread of its own, which no exit waits for."""

    def __init__(self, images: Sequence[str]) -> None:
        self._answers: dict[str, Answer | None] = dict.fromkeys(images)
        named = filter(_REFERENCE.fullmatch, images)
        self._threads = [Thread(target=self._ask, args=(image,), daemon=True) for image in named]
        self._end = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.start()

    def _ask(self, image: str) -> None:
        self._answers[image] = digest_of(image)

    def result(self) -> tuple[list[str], list[str]]:
        """Returns what is wrong with images, and which of them could not be checked."""
        for thread in self._threads:
            thread.join(max(0.0, self._end - time.monotonic()))
        problems, unknown = [], []
        for image, answer in dict(self._answers).items():
            if not _REFERENCE.fullmatch(image):
                problems.append(f'"{image}" is not the name of an image. Write REGISTRY/PATH:TAG')
            elif answer is not None and answer.code == 404:
                problems.append(f"the registry has no image {image}, so the pods would not start. Push it first")
            elif answer is None or answer.code != 200:
                reason = "does not answer" if answer is None or not answer.code else f"answers {answer.code}"
                unknown.append(f"image {image} (its registry {reason})")
        return problems, unknown
