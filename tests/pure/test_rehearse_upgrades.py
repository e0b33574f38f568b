"""The parts of a rehearsed upgrade that need no cluster: what is upgraded, and for how long nothing is admitted."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.versions import EARLIER_JOBSET_VERSION, EARLIER_KUEUE_VERSIONS, JOBSET_VERSION, KUEUE_VERSION
from gke_ai.forecast.rehearse.standstill import conversions, leaderless, refused
from gke_ai.forecast.rehearse.upgrades import Upgrade, parse
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.terminal import Stop
from tests.support.snapshots import TAKEN


def configuration(folder: Path, **queues: Any) -> Path:
    path = folder / "Pulumi.prod.yaml"
    path.write_text(yaml.safe_dump({"config": {"gke-ai:queues": queues, "gke-ai:serving": []}}))
    return path


def snapshot(**more: Any) -> Snapshot:
    return Snapshot(takenAt=TAKEN, stack="prod", objects={}, **more)


def pins(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())["config"]["gke-ai:queues"]
    return content


def test_an_upgrade_is_of_kueue_of_jobset_of_both_or_of_a_pool_and_has_a_title() -> None:
    assert parse("") is None
    assert parse("kueue") == Upgrade(("kueue",))
    assert parse("jobset,kueue") == Upgrade(("kueue", "jobset"))
    assert parse("pool/gpu-l4") == Upgrade(pool="gpu-l4")
    assert parse("pool/gpu,maxSurge=2,maxUnavailable=0") == Upgrade(pool="gpu", settings="maxSurge=2,maxUnavailable=0")
    for text in ("kueue", "kueue,jobset", "pool/gpu-l4", "pool/gpu,maxSurge=2"):
        assert str(parse(text)) == text
    kueue = f"Kueue from {EARLIER_KUEUE_VERSIONS[-1]} to {KUEUE_VERSION}"
    jobset = f"JobSet from {EARLIER_JOBSET_VERSION} to {JOBSET_VERSION}"
    assert Upgrade(("kueue", "jobset")).title == f"the upgrade of {kueue} and {jobset}"
    assert Upgrade(pool="gpu").title == "the upgrade of pool gpu"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("helm", r"helm is no upgrade\. Use kueue, jobset, kueue,jobset or pool/NAME"),
        ("pool/", "pool/ is no upgrade"),
        ("kueue,pool/gpu", "is no upgrade"),
        ("pool/gpu,surge=2", "surge=2 is no upgrade setting"),
        ("pool/gpu,maxSurge=0", "could upgrade no node"),
    ],
)
def test_another_upgrade_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_the_configuration_before_has_the_earlier_release_and_the_one_after_the_pinned(tmp_path: Path) -> None:
    own = configuration(tmp_path, flavors=[], kueueVersion=KUEUE_VERSION, jobsetVersion=JOBSET_VERSION)
    before, after = Upgrade(("kueue",)).configurations(own, tmp_path)
    assert pins(before) == {"flavors": [], "kueueVersion": EARLIER_KUEUE_VERSIONS[-1], "jobsetVersion": JOBSET_VERSION}
    assert pins(after) == {"flavors": [], "jobsetVersion": JOBSET_VERSION}


@pytest.mark.parametrize(
    ("stated", "running", "earlier"),
    [
        *((None, None, "0.18.4"), (KUEUE_VERSION, None, "0.18.4"), ("0.16.2", None, "0.16.2")),
        *(("0.17.3", None, "0.16.2"), ("0.16.2", "0.18.6", "0.18.4"), (None, "0.16.9", "0.16.2")),
    ],
)
def test_kueue_is_upgraded_from_the_release_of_the_cluster(
    stated: str | None, running: str | None, earlier: str, tmp_path: Path
) -> None:
    own = configuration(tmp_path, **({"kueueVersion": stated} if stated else {}))
    upgrade = Upgrade(("kueue",)).of(own, snapshot(kueueVersion=running) if running else None)
    assert upgrade.title == f"the upgrade of Kueue from {earlier} to {KUEUE_VERSION}"
    before, after = upgrade.configurations(own, tmp_path)
    assert (pins(before), pins(after)) == ({"kueueVersion": earlier}, {})


@pytest.mark.parametrize("running", [KUEUE_VERSION, "0.20.1", "0.15.2"])
def test_a_cluster_without_an_earlier_release_has_no_upgrade_of_kueue(running: str, tmp_path: Path) -> None:
    own = configuration(tmp_path)
    with pytest.raises(Stop, match=rf"runs Kueue {running}, .* there is no upgrade of Kueue to rehearse"):
        Upgrade(("kueue",)).of(own, snapshot(kueueVersion=running))
    assert Upgrade(("jobset",)).of(own, snapshot(kueueVersion=running)) == Upgrade(("jobset",))


def test_a_jobset_that_the_emulator_does_not_have_and_a_stack_without_queues_are_refused(tmp_path: Path) -> None:
    message = rf"jobsetVersion 0\.10\.1\. .* To rehearse from {EARLIER_JOBSET_VERSION}, remove the key"
    with pytest.raises(Stop, match=message):
        Upgrade(("jobset",)).configurations(configuration(tmp_path, jobsetVersion="0.10.1"), tmp_path)
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(yaml.safe_dump({"config": {"gke-ai:serving": []}}))
    with pytest.raises(Stop, match="has no Kueue to upgrade"):
        Upgrade(("kueue",)).configurations(path, tmp_path)


def test_a_webhook_refuses_and_kueue_has_no_leader_from_the_last_sign_to_the_next() -> None:
    assert refused([(0, True), (1, True), (2, False), (3, False), (5, True), (6, True)]) == 4
    assert refused([(0, True), (1, True)]) == 0
    assert refused([]) == 0

    def lease(holder: str, acquired: int, renewed: int) -> dict[str, str]:
        time = "2026-11-23T10:00:{:02}.000000Z"
        return {"holderIdentity": holder, "acquireTime": time.format(acquired), "renewTime": time.format(renewed)}

    first, second = lease("a", 0, 10), lease("b", 17, 17)
    assert leaderless([first, first, second, lease("b", 17, 19)]) == 7
    assert leaderless([first, lease("", 0, 12), second]) == 5, "the first leader resigned"
    assert leaderless([first]) == 0


def crd(kind: str, stored: str, *served: str) -> dict[str, Any]:
    """A CRD with its stored and its other served versions."""
    versions = [{"name": name, "served": True, "storage": name == stored} for name in sorted({stored, *served})]
    return {"spec": {"names": {"kind": kind}, "versions": versions}}


def test_stored_objects_are_converted_only_if_the_stored_version_changes() -> None:
    before = [crd("Workload", "v1beta1", "v1beta2"), crd("Cohort", "v1beta2")]
    after = [crd("Workload", "v1beta2"), crd("Cohort", "v1beta2")]
    assert list(conversions("Kueue", before, after)) == [
        "Kueue now stores Workload in another version, v1beta1 to v1beta2. "
        "An object is converted when it is next written.",
        "Kueue no longer serves Workload in v1beta1.",
    ]
    same = [crd("Workload", "v1beta2", "v1beta1")]
    (note,) = conversions("Kueue", same, [*same, crd("Topology", "v1beta2")])
    assert note == "Both releases of Kueue store v1beta2, so no stored object is converted."
