"""The two configurations of a rehearsal: the base that the cluster has, and the change."""

from __future__ import annotations

from pathlib import Path

from gke_ai.catalog.section_files import names
from gke_ai.forecast.rehearse.git import checkout
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import no_configuration, read_keys, read_sections
from gke_ai.workspace.stack import ROOT


def changed(stack: str, config: Path | None) -> Path:
    """Returns the configuration with the change. Default: Pulumi.STACK.yaml of the working tree."""
    path = config or ROOT / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        raise no_configuration(path)
    read_sections(path, deploying=True)
    return path


def base(stack: str, stated: Path | None, config: Path, folder: Path) -> Path:
    """Returns the configuration before the change.

    Default: the version of Pulumi.STACK.yaml where the working tree's branch left `main`. It is written to `folder`.
    """
    if stated:
        if not stated.is_file():
            raise Stop(
                f"There is no base configuration {stated}. Name the one that is deployed: --base Pulumi.{stack}.yaml"
            )
        read_sections(stated)
        return stated
    name = f"Pulumi.{stack}.yaml"
    own = ROOT / name
    if config != own and own.is_file():
        return own  # --config changed.yaml: the file in the working tree is what is deployed
    path = folder / "base.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    with checkout(ROOT) as around:
        for commit in around.merge_bases() if around else []:
            if around and (text := around.text(commit, name)):
                path.write_text(text)
                for section in names(read_keys(path)):
                    around.export(commit, section, folder)
                return path
    raise Stop(
        f"Git has no {name} at the point where this branch left main. Name the deployed configuration: --base FILE"
    )


def differing_keys(before: Path, after: Path) -> list[str]:
    """Returns the keys of the configurations that differ, without their namespace."""
    sides = [read_sections(path) for path in (before, after)]
    keys = sorted({*sides[0], *sides[1]})
    return [key.rpartition(":")[2] for key in keys if sides[0].get(key) != sides[1].get(key)]
