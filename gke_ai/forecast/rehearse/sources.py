"""A change of configurations of a stack. That of manifests is in `gke_ai.forecast.rehearse.plain`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gke_ai.catalog.section_files import names
from gke_ai.forecast.rehearse import beside, plain, prepared, release
from gke_ai.forecast.rehearse.engine import Update, deploy
from gke_ai.forecast.rehearse.git import checkout
from gke_ai.forecast.rehearse.restore import wait_for_webhooks
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.upgrades import Upgrade
from gke_ai.forecast.snapshot.command import take
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.client import client_of
from gke_ai.settings import ResolvedStack
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import no_configuration, read_calibration, read_keys, read_sections
from gke_ai.workspace.stack import ROOT


@dataclass(frozen=True)
class Configurations:
    """The two configurations of a stack, which the engine of Pulumi deploys."""

    stack: str
    base: Path
    config: Path
    snapshot: Snapshot | None
    upgrade: Upgrade | None
    compression: float

    def changes(self) -> list[str]:
        """The upgrade, or the keys that differ."""
        return [self.upgrade.title] if self.upgrade else differing_keys(self.base, self.config)

    def measured(self) -> Calibration:
        """What the configuration's calibration file has."""
        return read_calibration(self.config)

    def bring_up(self, emulator: Scratch) -> None:
        """Deploys the base with the cluster's release of Kueue, or starts the copy that an earlier rehearsal kept."""
        (before, after), others = self._releases, self._others
        for needed in dict.fromkeys((before, after, release.rehearsed(self.snapshot) if others else None)):
            if needed:
                release.build(emulator, needed)
        own = release.with_release(self.base, before)
        setup = beside.setup_of(emulator, others, self.snapshot) if others else {}
        kept = prepared.key(self.stack, emulator.copy("base", self.base, own), setup)

        def deploy_base() -> None:
            policies = {"gke-ai:policies": "advisory"}  # it is deployed already
            config = emulator.prepare("base", self.base, policies | own)
            if others:
                beside.install(emulator, others, setup)
            _deploy_base(emulator, self.stack, config)

        prepared.bring_up(emulator, kept, f"deploy the base, {self.base.name}, to a scratch emulator", deploy_base)

    def restored(self, emulator: Scratch) -> tuple[Snapshot | None, list[str]]:
        """Creates what the change expects to exist. Returns what the cluster is brought to, and notes."""
        api = client_of(emulator.kubeconfig(), 1)
        if not self.snapshot:  # else a restore starts the controllers again
            wait_for_webhooks(api)
        before, after = self._releases
        emulator.prepare("change", self.config, release.with_release(self.config, after))
        others = self._others
        if self.snapshot and others and others.queues.kueue == "existing":
            # Its Kueue may be in another namespace than that of the scratch cluster.
            return plain.adopt(self.snapshot, take(self.stack, api)), [*release.notes(self.snapshot)]
        notes = [*release.notes(self.snapshot)] if before else []
        if not (self.upgrade and "kueue" in self.upgrade.releases):
            notes += release.moves(self.base, self.config, self.snapshot.kueue_version if self.snapshot else None)
        return self.snapshot, notes

    @cached_property
    def _others(self) -> ResolvedStack | None:
        """The stack before the change, if it expects something of its cluster."""
        return beside.others(self.base, self.snapshot)

    @cached_property
    def _releases(self) -> tuple[str | None, str | None]:
        """The releases of Kueue that the stack installs before and after the change."""
        running = self.snapshot.kueue_version if self.snapshot else None
        return release.installed(self.base, running), release.installed(self.config)

    def start(self, emulator: Scratch) -> Update:
        """Starts the upgrade, or the update."""
        config = emulator.state / "rehearsed" / "change.yaml"
        if self.upgrade:
            return self.upgrade.start(emulator, self.stack, config, self.compression)
        return Update(emulator, self.stack, config)


def _deploy_base(emulator: Scratch, stack: str, config: Path) -> None:
    try:
        deploy(emulator, stack, config)
    except Stop as failed:
        raise Stop(f"The base does not deploy, so there is nothing to rehearse the change on:\n{failed}") from None


# -------------------------------------------------------------------------------------------------- the configurations
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
