"""Upgrades to rehearse: of Kueue and JobSet from earlier releases that the emulator has, and of the nodes of a pool."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gke_ai.catalog.kueue.configuration import nearest
from gke_ai.catalog.nodes.upgrades import BadUpgradeSettings, read_settings, settings
from gke_ai.forecast.rehearse.engine import Update
from gke_ai.forecast.rehearse.release import QUEUES, queues_of
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.standstill import RELEASES, Standstill
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_keys, read_sections, write_keys

FORMS = "Use kueue, jobset, kueue,jobset or pool/NAME, with settings pool/NAME,maxSurge=2"


@dataclass(frozen=True)
class Upgrade:
    """An upgrade: of releases, or of a pool with the settings of the API instead of its own.

    `kueue` is the release of Kueue that is upgraded. Default: the newest earlier one.
    """

    releases: tuple[str, ...] = ()
    pool: str = ""
    settings: str = ""
    kueue: str = RELEASES["kueue"].earlier[-1]

    def __str__(self) -> str:
        """The upgrade as a user names it."""
        return f"pool/{self.pool}{self.settings and f',{self.settings}'}" if self.pool else ",".join(self.releases)

    @property
    def title(self) -> str:
        """The upgrade in a few words, which begin with `the`."""
        if self.pool:
            return f"the upgrade of pool {self.pool}"
        moves = (
            f"{RELEASES[name].title} from {self._earlier(name)} to {RELEASES[name].pinned}" for name in self.releases
        )
        return f"the upgrade of {' and '.join(moves)}"

    def _earlier(self, name: str) -> str:
        return self.kueue if name == "kueue" else RELEASES[name].earlier[-1]

    def of(self, config: Path, snapshot: Snapshot | None) -> Upgrade:
        """Returns the upgrade from the release of Kueue that a snapshot has, else from the one that a file states.

        Stops if the cluster runs a release that the emulator does not have in an earlier version.
        """
        release = RELEASES["kueue"]
        stated = queues_of(config).get(release.key)
        running = (snapshot.kueue_version if snapshot else None) or (stated if stated != release.pinned else None)
        if "kueue" not in self.releases or not running:
            return self
        if (earlier := nearest(str(running))) not in release.earlier:
            raise Stop(
                f"The cluster runs Kueue {running}, and this program installs {release.pinned}. The emulator upgrades "
                f"from {' and '.join(release.earlier)} alone, so there is no upgrade of Kueue to rehearse."
            )
        return replace(self, kueue=earlier)

    def configurations(self, config: Path, folder: Path) -> tuple[Path, Path]:
        """Returns the configurations before and after the upgrade. They are written to `folder`."""
        if self.pool:
            return config, config
        if not isinstance(queues := read_sections(config).get(QUEUES), dict):
            raise Stop(f"{config.name} has no {QUEUES}, so the stack has no Kueue to upgrade.")
        before, after = dict(queues), dict(queues)
        for name in self.releases:
            release, earlier = RELEASES[name], self._earlier(name)
            stated = str(queues.get(release.key, release.pinned))
            if name == "jobset" and stated not in (earlier, release.pinned):
                raise Stop(
                    f"{config.name} has {release.key} {stated}. The emulator does not have this release. "
                    f"To rehearse from {earlier}, remove the key in a copy of the file: --config FILE."
                )
            before[release.key] = earlier
            after.pop(release.key, None)
        first = write_keys(folder / "before.yaml", {**read_keys(config), QUEUES: before}, config)
        return first, write_keys(folder / "after.yaml", {**read_keys(config), QUEUES: after}, config)

    def start(self, emulator: Scratch, stack: str, config: Path, compression: float) -> Update:
        """Begins the upgrade of a scratch emulator, to a configuration."""
        if self.pool:
            return _PoolUpdate(emulator, stack, config, self, compression)
        return _ReleaseUpdate(emulator, stack, config, self)


def parse(text: str) -> Upgrade | None:
    """Returns the upgrade that a text names; None for an empty one. Raises ValueError with what to write."""
    if not text:
        return None
    if pool := re.fullmatch(r"pool/(?P<name>[a-z0-9-]+)(,(?P<settings>.+))?", text):
        stated = pool["settings"] or ""
        try:
            settings(read_settings(stated))
        except BadUpgradeSettings as bad:
            raise ValueError(f"{bad}.") from None
        return Upgrade(pool=pool["name"], settings=stated)
    releases = text.split(",")
    if not set(releases) <= RELEASES.keys():
        raise ValueError(f"{text} is no upgrade. {FORMS}.")
    return Upgrade(tuple(name for name in RELEASES if name in releases))


class _PoolUpdate(Update):
    """GKE's upgrade of a pool, which the emulator plays."""

    def __init__(self, emulator: Scratch, stack: str, config: Path, upgrade: Upgrade, compression: float) -> None:
        command = ("upgrade", upgrade.pool, upgrade.settings, "--compression", str(compression))
        super().__init__(emulator, stack, config, command)

    def notes(self) -> list[str]:
        """Returns what the emulator says of it."""
        return self.lines()


class _ReleaseUpdate(Update):
    """An `up` that changes the releases of Kueue or JobSet, and how long they admit nothing."""

    def __init__(self, emulator: Scratch, stack: str, config: Path, upgrade: Upgrade) -> None:
        self._standstill = Standstill(emulator.kubeconfig(), [RELEASES[name] for name in upgrade.releases])
        super().__init__(emulator, stack, config)

    def waits_for(self) -> str:
        """Returns nothing: what Helm waits for comes, or Helm gives up."""
        return ""

    def stop(self) -> None:
        """Ends the update and the watch."""
        self._standstill.stop()
        super().stop()

    def notes(self) -> list[str]:
        """Returns for how long nothing was admitted, and which stored objects are converted."""
        return list(self._standstill.notes())
