"""A folder of written manifests: which files in it are those of an earlier render, and what another one changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gke_ai.review.gitops.objects import Stage
from gke_ai.terminal import Stop

PAGE, SYNCS = "README.md", "flux"
# What a render can write: nothing else in the folder is looked at.
OWN = (*(stage.value for stage in Stage), SYNCS, PAGE)


@dataclass(frozen=True)
class Outcome:
    """What a render did to a folder: paths that it wrote and removed, and the number of files without a change."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


def heading(path: str, stack: str) -> str:
    """The first line of a written file. It names the file, so that a copy of it is not taken for it."""
    text = f"{path} of the stack {stack}, written by gke-ai render. Change the configuration instead."
    return f"<!-- {text} -->" if path.endswith(".md") else f"# {text}"


def write(folder: Path, stack: str, files: Mapping[str, str]) -> Outcome:
    """Writes files by their path in a folder, and removes those of an earlier render that are no longer among them.

    Stops before it changes anything if a path is a file that no render of this stack wrote, or leads out of the folder.
    """
    texts = {path: f"{heading(path, stack)}\n{content}" for path, content in files.items()}
    earlier = {path: text for path, text in existing(folder) if text.partition("\n")[0] == heading(path, stack)}
    for path in texts:
        target = folder / path
        if not target.parent.resolve().is_relative_to(folder.resolve()) or target.is_symlink():
            raise Stop(f"{target} leads out of {folder} by a link. Nothing was written. Remove the link.")
        if target.exists() and path not in earlier:
            raise Stop(
                f"{target} is not a file that gke-ai render wrote for the stack {stack}. Nothing was written. Move the "
                "file, or use another folder."
            )
    removed = tuple(sorted(earlier.keys() - texts.keys()))
    written = tuple(path for path, text in sorted(texts.items()) if earlier.get(path) != text)
    for path in removed:
        (folder / path).unlink()
        remove_empty(folder, (folder / path).parent)
    for path in written:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(texts[path], encoding="utf-8")
    return Outcome(written, removed, len(texts) - len(written))


def existing(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields path and text of the files where a render writes. Follows no links."""
    for name in OWN:
        top = folder / name
        inside = [top] if top.is_file() else sorted(top.rglob("*")) if not top.is_symlink() else []
        for file in inside:
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(folder)), file.read_text(encoding="utf-8", errors="replace")


def remove_empty(folder: Path, inner: Path) -> None:
    """Removes folders inside a folder that have become empty."""
    while inner != folder and not any(inner.iterdir()):
        inner.rmdir()
        inner = inner.parent


def path_in_repository(folder: Path) -> str:
    """The path of a folder from the root of its Git repository; its name if it is in none."""
    resolved = folder.resolve()
    root = next((parent for parent in (resolved, *resolved.parents) if (parent / ".git").exists()), resolved.parent)
    return str(resolved.relative_to(root))
