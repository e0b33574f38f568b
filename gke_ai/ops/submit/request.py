"""What a user asks to submit: a run as it stands in a configuration, one from options, or a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gke_ai.ops.submit.options import OPTIONS, Options
from gke_ai.ops.submit.workdir import LABEL, Code
from gke_ai.settings.published import Published
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration
from gke_ai.workspace.run_file import run_of


@dataclass(frozen=True)
class Request:
    """A run to submit: in a file as it stands in a configuration, or from options."""

    file: Path | None = None
    options: Options | None = None
    code: Code | None = None
    """The code that it brings along."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of the file. Stops if it is a manifest."""
        content = read_configuration(self.file) if self.file else {}
        if "apiVersion" in content:
            raise Stop(f"{self.file} is a manifest. Submit it with --manifest {self.file}")
        return content

    @property
    def stated_namespace(self) -> str:
        """The namespace in the file; empty if it states none."""
        if not self.file:
            return ""
        _, item = run_of(self.file, self.content, set())
        return str(item.get("namespace") or "") if isinstance(item, dict) else ""

    def run(self, published: Published | None, namespace: str) -> tuple[str, dict[str, Any]]:
        """Returns the section of the run and the run, in a namespace. Stops if the file has no run."""
        section, item = self.options.run(published) if self.options else ("training", {})
        if self.file:
            tpu_pools = published.sections["tpuPools"] if published else []
            section, item = run_of(self.file, self.content, {pool["name"] for pool in tpu_pools})
        if not isinstance(item, dict):
            raise Stop(f"{self.file} has no run. Write one entry of training or batch.")
        # By the label, another code is another run.
        labels = {"labels": {**(item.get("labels") or {}), LABEL: self.code.digest}} if self.code else {}
        return section, {**item, "namespace": namespace, **labels}

    def named(self, path: str) -> str:
        """Returns where a user wrote a key of the run: in the file, or as an option. `path` begins with the section."""
        inside = path.partition("[0]")[2].removeprefix(".")
        if self.file:
            return f"{self.file}: {inside}" if inside else str(self.file)
        key = next((key for key in sorted(OPTIONS, key=len, reverse=True) if inside.startswith(key)), "")
        return OPTIONS.get(key, inside)
