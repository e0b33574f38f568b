"""The files that this version writes into a repository, apart from its configurations, and the record of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from string import Template
from typing import cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from gke_ai.catalog.versions import JOBSET_VERSION, KUEUE_VERSION, PROJECT_VERSION
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration

FOLDER = Path(__file__).with_name("template")
SUFFIX = ".template"
RECORD = ".gke-ai.json"
# What a stack's name may be as a job of a workflow.
_STACK = re.compile("[a-z][a-z0-9-]*")


class _File(Template):
    """A text with `@@name`: a dollar sign belongs to the shell and to GitHub."""

    delimiter = "@@"


@dataclass(frozen=True)
class Record:
    """What a version of the package wrote: what it deploys, and the hash of each file."""

    versions: Mapping[str, str] = field(
        default_factory=lambda: {"gke-ai": PROJECT_VERSION, "Kueue": KUEUE_VERSION, "JobSet": JOBSET_VERSION}
    )
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Record:
        """The record of texts that this version writes."""
        return cls(files={name: digest(text) for name, text in texts.items()})

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Reads the record of a repository. Stops if there is none."""
        file = folder / RECORD
        if not file.is_file():
            raise Stop(f"{file} is missing, so {folder} is not a repository of gke-ai init. Next: gke-ai init")
        content = read_configuration(file)
        versions, names = _texts(content.get("versions")), _texts(content.get("files"))
        if versions is None or names is None:
            raise Stop(f"{file} is damaged: it needs versions and files. Restore it:  git checkout -- {RECORD}")
        return cls(versions, names)

    def text(self) -> str:
        """The text of the record."""
        return json.dumps(asdict(self), indent=2) + "\n"


def _texts(content: object) -> Mapping[str, str] | None:
    """A map of texts; None if it is none."""
    is_map = isinstance(content, dict) and all(isinstance(text, str) for text in content.values())
    return cast("dict[str, str]", content) if is_map else None


def digest(text: str) -> str:
    """The hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def files(stacks: Sequence[str]) -> dict[str, str]:
    """Returns the text of each file for a repository with these stacks, which are deployed in this order."""
    if wrong := [stack for stack in stacks if not _STACK.fullmatch(stack)]:
        raise Stop(
            f"Pulumi.{wrong[0]}.yaml names a stack that no workflow can have as a job. "
            "Rename it: lowercase letters, digits and '-', from a letter."
        )
    deployment = _File((FOLDER.parent / f"deployment{SUFFIX}").read_text())
    jobs = [
        deployment.substitute(stack=stack, needs=f"    needs: {before}\n" if before else "")
        for before, stack in zip(("", *stacks), stacks, strict=False)
    ]
    values = {
        "version": PROJECT_VERSION,
        "pulumi": version("pulumi"),
        "listed": ", ".join(stacks),
        "stacks": " ".join(stacks),
        "deployments": "".join(jobs),
    }
    return {
        str(file.relative_to(FOLDER)).removesuffix(SUFFIX): _File(file.read_text()).substitute(values)
        for file in sorted(FOLDER.rglob(f"*{SUFFIX}"))
    }


def copy_wheels(folder: Path) -> list[str]:
    """Copies the wheels from which pip installed this version into a repository. Returns those that it lacks then."""
    lacking = []
    for package in ("gke-ai", "gke-ai-emulator"):
        target = folder / "wheels" / f"{package.replace('-', '_')}-{PROJECT_VERSION}-py3-none-any.whl"
        try:  # https://packaging.python.org/en/latest/specifications/direct-url/
            origin = json.loads(distribution(package).read_text("direct_url.json") or "{}").get("url", "")
        except PackageNotFoundError:
            origin = ""
        wheel = Path(url2pathname(urlsplit(origin).path))
        if wheel.name == target.name and wheel.is_file() and target.parent.is_dir() and not os.path.lexists(target):
            shutil.copyfile(wheel, target)
        lacking += [] if target.is_file() else [target.name]
    return lacking


def stacks_of(folder: Path) -> list[str]:
    """Returns the stacks of a repository in the order of their deployment: dev first, prod last."""
    names = [file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in folder.glob("Pulumi.*.yaml")]
    return sorted(names, key=lambda name: (name == "prod", name != "dev", name))
