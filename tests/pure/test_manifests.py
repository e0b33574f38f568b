"""A change of manifests: what is read, what is refused, what is compared, and how it is applied."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from emulator.pods import programs
from gke_ai.catalog.documents import MAX_DEPTH
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse import applied, command, plain
from gke_ai.forecast.rehearse.applied import Applied
from gke_ai.forecast.rehearse.kustomization import render
from gke_ai.forecast.rehearse.manifests import MAX_BYTES, MAX_FILES, Change, Manifest, compare, parse, read
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.snapshot.values import MAX_PODS
from gke_ai.kube.client import Answer
from gke_ai.terminal import Stop
from tests.support.actions import commit
from tests.support.commands import gke_ai
from tests.support.repository import ROOT
from tests.support.snapshots import TAKEN

SAMPLE = ROOT / "examples" / "manifests" / "cluster"


def item(kind: str, name: str = "one", api: str = "batch/v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "research"}, **more}


def queue(name: str = "queue", quota: int = 9) -> dict[str, Any]:
    return {**item("ClusterQueue", name, "kueue.x-k8s.io/v1beta2"), "spec": {"quota": quota}}


def manifests(*items: Mapping[str, Any], file: str = "a.yaml") -> list[Manifest]:
    return parse(yaml.safe_dump_all(items), file)


def pod(image: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}


def write(folder: Path, **files: Any) -> Path:
    """A folder with files by name, with `__` for a slash."""
    for name, content in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return folder


# ------------------------------------------------------------------------------------------------------------- reading
def test_the_sample_has_kinds_of_kubernetes_and_kueue() -> None:
    kinds = {manifest.kind for manifest in read(SAMPLE, SAMPLE)}
    assert kinds == {"Namespace", "ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass", "Job"}
    assert all(manifest.is_rehearsed for manifest in read(SAMPLE, SAMPLE))


def test_all_documents_of_all_files_in_all_subfolders_are_read(tmp_path: Path) -> None:
    write(tmp_path, a="---\n" + yaml.safe_dump_all([item("Job", "a"), item("Job", "b")]), team__c=item("Job", "c"))
    (tmp_path / "d.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [item("Job", "d")]}))
    (tmp_path / "README.md").write_text("no manifest")
    write(tmp_path / ".github", values="a: 1")
    os.mkfifo(tmp_path / "e.yaml")
    assert [manifest.name for manifest in read(tmp_path, tmp_path)] == ["a", "b", "d", "c"]


def test_dates_and_booleans_are_read_as_kubectl_does() -> None:
    metadata = "{name: a, annotations: {since: 2026-01-01, power: on, quoted: 'on'}}"
    text = f"{{apiVersion: batch/v1, kind: Job, metadata: {metadata}, spec: {{suspend: yes}}}}"
    (manifest,) = parse(text, "a.yaml")
    # The API server refuses the boolean, as it does what kubectl sends.
    assert manifest.content["metadata"]["annotations"] == {"since": "2026-01-01", "power": True, "quoted": "on"}
    assert manifest.content["spec"] == {"suspend": True}


PAIRS = zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
BOMB = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}]\n" for old, new in PAIRS)
NO_MANIFEST = "Move it out of the folder"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"a.yaml has 8e\+06 values with its aliases"),
        ("a: &a [*a]", "an alias contains itself"),
        ("[" * 100_000, "nested too deeply"),
        ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "nested too deeply"),
        ("a: [", "is not valid YAML"),
        ("a: !!python/object/apply:os.system [id]", "is not valid YAML"),
        ("a: \x00", "is not valid YAML"),
        ("x" * (MAX_BYTES + 1), "more than 4 MiB"),
        ("replicas: 3", NO_MANIFEST),
        ("- kind: Job", NO_MANIFEST),
        ("just text", NO_MANIFEST),
        ("{kind: [Job], apiVersion: batch/v1, metadata: {name: a}}", NO_MANIFEST),
        ("{kind: Job, apiVersion: batch/v1}", r"metadata\.name: Job has no name"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: [a]}}", "has no name"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: n}}", "is read as false, as kubectl reads it.*in quotes"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: 7}}", "is read as 7, as kubectl reads it"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: ../../secrets/a}}", r"metadata\.name is not a DNS name"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: a, namespace: a/b}}", r"metadata\.namespace is not a"),
        ("{kind: Job, apiVersion: batch/.., metadata: {name: a}}", "is no version of an API"),
        ("{kind: Job, apiVersion: batch/v1, metadata: {name: a}, spec: {parallelism: 4000000}}", "parallelism is 4"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_hostile_or_broken_files_are_refused_with_the_file_and_the_cause(text: str, message: str) -> None:
    with pytest.raises(Stop, match=message) as refused:
        parse(text, "a.yaml")
    assert str(refused.value).startswith("a.yaml")


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("b.yaml", "secret", r"b\.yaml is a link"),
        ("b.yaml", ".", r"b\.yaml is a link"),
        ("kustomization.yaml", "secret", "links to a file outside"),
    ],
)
def test_links_are_refused(name: str, target: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("resources: []")
    folder = write(tmp_path / "folder", a=item("Job"))
    (folder / name).symlink_to(tmp_path / target)
    with pytest.raises(Stop, match=message):
        read(folder, folder)


def test_too_much_or_an_object_in_two_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = write(tmp_path / "many", **{f"f{n}": "" for n in range(MAX_FILES + 1)})
    with pytest.raises(Stop, match="A rehearsal reads 1000"):
        read(many, many)
    servers = [item("Deployment", f"a{n}", "apps/v1", spec={"replicas": MAX_PODS}) for n in range(2)]
    with pytest.raises(Stop, match="want 40000 pods"):
        read(write(tmp_path / "pods", a=yaml.safe_dump_all(servers)), tmp_path)
    with pytest.raises(Stop, match=r"b\.yaml, document 1: Job research/one is in a\.yaml, document 1 too"):
        read(write(tmp_path / "twice", a=item("Job"), b=item("Job")), tmp_path / "twice")
    monkeypatch.setattr("gke_ai.forecast.rehearse.manifests.MAX_OBJECTS", 1)
    with pytest.raises(Stop, match="has 2 objects"):
        read(write(tmp_path / "two", a=item("Job", "a"), b=item("Job", "b")), tmp_path)


def test_no_image_of_a_manifest_is_one_whose_program_the_emulator_runs() -> None:
    images = [program.image.rstrip("*") + "x" * program.image.endswith("*") + ":v1" for program in programs.PROGRAMS]
    assert all(programs.known(image) for image in images)
    (before, *_) = contents = [item("Job", spec=pod(image)) for image in images]
    for manifest in manifests(*contents):
        (container,) = manifest.content["spec"]["template"]["spec"]["containers"]
        assert programs.known(container["image"]) is None
    (same, other) = manifests(before, item("Job", spec=pod(images[0] + "-new")))
    assert manifests(before)[0].content == same.content
    assert same.content != other.content, "another image is still a change"


# ----------------------------------------------------------------------------------------------------------- comparing
def titles(side: Sequence[Manifest]) -> list[str]:
    return [manifest.title for manifest in side]


def test_new_and_changed_objects_are_applied_and_removed_ones_deleted() -> None:
    before = manifests(queue(), item("Job", "stays"), item("Job", "goes"), item("Job", "differs"))
    jobs = item("Job", "stays"), item("Job", "differs", spec={}), item("Job", "new")
    after = manifests(queue(quota=3), *jobs, file="another.yaml")
    change = compare(before, after)
    assert titles(change.apply) == ["ClusterQueue queue", "Job research/differs", "Job research/new"]
    assert titles(change.delete) == ["Job research/goes"]
    assert change.notes == ()


def test_namespaces_and_queues_come_first_and_deletions_in_the_opposite_order() -> None:
    namespace = item("Namespace", "research", "v1")
    local = item("LocalQueue", "local", "kueue.x-k8s.io/v1beta1")
    items = manifests(item("Job"), item("Deployment", "server", "apps/v1"), local, queue(), namespace)
    kinds = ["Namespace", "ClusterQueue", "LocalQueue", "Deployment", "Job"]
    assert [manifest.kind for manifest in compare([], items).apply] == kinds
    assert [manifest.kind for manifest in compare(items, []).delete] == kinds[::-1]


def test_objects_that_would_break_the_rehearsal_are_left_out_and_named() -> None:
    others = [
        item("ValidatingWebhookConfiguration", "all", "admissionregistration.k8s.io/v1"),
        item("APIService", "v1.x", "apiregistration.k8s.io/v1"),
        item("RayJob", "train", "ray.io/v1"),
        item("Node", "node", "v1"),
        item("CronJob", "nightly"),
        item("ConfigMap", "code", "v1"),
        item("Job", "other", "example.com/v1"),
        item("Job", "another", "batch/v1/x"),
    ]
    controller = item("Deployment", "kueue-controller-manager", "apps/v1")
    controller["metadata"]["namespace"] = "kueue-system"
    change = compare([], manifests(*others, controller, item("Namespace", "kube-system", "v1")))
    assert change.apply == ()
    kinds, system = change.notes
    assert kinds.endswith("1 APIService, 1 CronJob, 2 Job, 1 Node, 1 RayJob and 1 ValidatingWebhookConfiguration.")
    assert "Deployment kueue-system/kueue-controller-manager and Namespace kube-system" in system


def test_a_manifest_without_a_name_creates_an_object_when_it_is_new_or_changes() -> None:
    sample = item("Job")
    sample["metadata"] = {"generateName": "sample-job-", "namespace": "research"}
    changed = {**sample, "spec": {"parallelism": 2}}
    assert compare(manifests(sample), manifests(sample)) == Change()
    change = compare(manifests(sample), manifests(changed))
    assert [manifest.path for manifest in change.apply] == ["/apis/batch/v1/namespaces/research/jobs"]
    assert change.delete == ()
    assert change.notes == (
        "The manifest of Job research/sample-job- is removed or changed, but names no object, so none is deleted.",
    )


def test_a_change_of_many_objects_is_shortened() -> None:
    names = compare([], manifests(*(item("Job", f"job-{n:02}") for n in range(12)))).names()
    assert names[-2:] == ["Job research/job-07", "4 more"]


# ------------------------------------------------------------------------------------------------------- Kustomizations
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"resources": ["https://example.com/base.yaml"]}, "resources: 'https://example.com/base.yaml' is not a local"),
        ({"resources": ["github.com/example/base?ref=v1"]}, "a rehearsal fetches nothing"),
        ({"components": ["git@github.com:example/base"]}, "components: "),
        ({"resources": ["../../outside"]}, "is outside"),
        ({"resources": ["link"]}, "is outside"),
        ({"patches": [{"path": "../../outside/job.yaml"}]}, "patches: "),
        ({"configMapGenerator": [{"name": "a", "files": ["key=/etc/passwd"]}]}, "configMapGenerator: '/etc/passwd'"),
        ({"generators": ["plugin.yaml"]}, "generators: a rehearsal does not use this key"),
        ({"transformers": ["plugin.yaml"]}, "transformers: "),
        ({"helmCharts": [{"name": "kueue"}]}, "helmCharts: "),
        ({"configMapGenerator": [{"name": "a", "Files": ["https://127.0.0.1/x"]}]}, "configMapGenerator: Files: a reh"),
        ({"secretGenerator": [{"name": "a", "enVs": ["x"]}]}, "secretGenerator: enVs: "),
        ({"secretGenerator": [{"name": "a", "file\u017f": ["x"]}]}, "secretGenerator: file\u017f: "),
        ({"patches": [{"Path": "https://127.0.0.1/x"}]}, "patches: Path: "),
        ({"patchesJson6902": [{"PATH": "x", "target": {}}]}, "patchesJson6902: PATH: "),
        ({"replacements": [{"pAth": "x"}]}, "replacements: pAth: "),
        ({"Resources": ["https://127.0.0.1/x"]}, "Resources: a rehearsal does not use this key"),
        ({"replacements": ["https://127.0.0.1/x"]}, "replacements: https://127.0.0.1/x: "),
        ({"patches": "https://127.0.0.1/x"}, "patches: https://127.0.0.1/x: "),
        ({"resources": "https://127.0.0.1/x"}, "'https://127.0.0.1/x' is not a local"),
        ({"resources": [5]}, "resources: '5' is no path"),
        ({"resources": ["a\0b"]}, "is no path"),
        ({"resources": ["a" * 300]}, "is not a local file or folder"),
        ({"resources": ["github.com/example/base"]}, "could be a host. Write it as ./github.com/example/base"),
        ({"components": ["git@host:base"]}, "could be a host"),
        ({"resources": ["../nested"]}, "nested/kustomization.yaml: resources: 'https://example.com/x' is not a local"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_remote_bases_plugins_and_files_outside_are_refused(content: Any, message: str, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    write(tmp_path / "outside", job=item("Job"), kustomization={"resources": ["job.yaml"]})
    write(root / "nested", kustomization={"resources": ["https://example.com/x"]})
    folder = write(root / "folder", kustomization=content)
    for name in ("github.com/example/base", "git@host:base"):
        write(folder / name, kustomization={"resources": []})
    (folder / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(Stop, match=message):
        render(folder, root)


def test_every_path_of_a_kustomization_is_used(tmp_path: Path) -> None:
    write(tmp_path / "v1.2", job=item("Job", "a"), kustomization={"resources": ["job.yaml"]})
    write(tmp_path, patch=item("Job", "a", spec={"parallelism": 2}))
    (tmp_path / "values").write_text("a=1\n")
    generator = {"name": "c", "files": ["values", "key=values"], "envs": ["values"], "literals": ["b=on"]}
    content = {"resources": ["./v1.2"], "patches": [{"path": "patch.yaml"}], "configMapGenerator": [generator]}
    contents = {manifest.kind: manifest.content for manifest in read(write(tmp_path, kustomization=content), tmp_path)}
    assert contents["Job"]["spec"] == {"parallelism": 2}
    assert contents["ConfigMap"]["data"] == {"a": "1", "b": "on", "key": "a=1\n", "values": "a=1\n"}


def test_kustomize_itself_takes_a_key_in_any_case_and_a_local_folder_for_a_host(tmp_path: Path) -> None:
    """Why both are refused."""
    (tmp_path / "values").write_text("a: 1")
    write(tmp_path, kustomization={"configMapGenerator": [{"name": "a", "File\u017f": ["values"]}]})
    done = kustomize(tmp_path)
    assert "values: 'a: 1'" in done.stdout, done.stderr
    write(tmp_path / "github.com" / "example" / "base", kustomization={"resources": []})
    write(tmp_path, kustomization={"resources": ["github.com/example/base"]})
    assert "fetch --depth=1 https://github.com/example/base" in kustomize(tmp_path, GIT_ALLOW_PROTOCOL="none").stderr


def kustomize(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(["kubectl", "kustomize", folder], env=environment, capture_output=True, text=True, timeout=60)


def test_kustomizations_that_include_themselves_or_grow_without_end_are_refused(tmp_path: Path) -> None:
    for number in range(9):
        twice = [f"../k{number + 1}", f"../k{number + 1}"]
        write(tmp_path / f"k{number}", kustomization={"resources": twice, "namePrefix": "a-"})
    write(tmp_path / "k9", kustomization={"resources": []})
    write(tmp_path / "self", kustomization={"resources": ["../self"]})
    for name in ("k0", "self"):
        with pytest.raises(Stop, match="included more than 200 times"):
            render(tmp_path / name, tmp_path)


# ---------------------------------------------------------------------------------------------------------- both sides
def snapshot(version: str | None) -> Snapshot:
    return Snapshot(takenAt=TAKEN, stack="prod", objects={}, kueueVersion=version)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose branch changes a Job, removes one and adds one; the last is not committed."""
    folder = write(tmp_path / "repository" / "cluster", a=item("Job", "a"), b=item("Job", "b"))
    top = folder.parent
    commit(top, "init --initial-branch=main", "add .", "commit --message=base", "switch --create=change")
    (folder / "b.yaml").unlink()
    commit(top, "add .", "commit --message=change")
    write(folder, c=item("Job", "c"))
    return top


def source(folder: Path, base: Path | None = None, version: str | None = KUEUE_VERSION) -> plain.Manifests:
    return plain.source(folder, base, snapshot(version), "snapshot.json")


def test_the_base_is_the_folder_where_the_branch_left_main_and_empty_for_a_new_folder(checkout: Path) -> None:
    change = source(checkout / "cluster").change
    assert (titles(change.apply), titles(change.delete)) == (["Job research/c"], ["Job research/b"])
    assert titles(source(write(checkout / "new", a=item("Job", "z"))).change.apply) == ["Job research/z"]


def test_a_kept_base_is_for_clusters_with_the_same_controllers(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base of a cluster with JobSet or with another Kueue is another one."""
    kept = []
    monkeypatch.setattr("gke_ai.forecast.rehearse.release.build", lambda *_: None)
    monkeypatch.setattr("gke_ai.forecast.rehearse.prepared.bring_up", lambda _, name, *__: kept.append(name))
    setups: list[dict[str, Any]] = [{"jobset": False}, {"jobset": True}, {"jobset": False, "kueue": {"release": "0.1"}}]
    for setup in (*setups, setups[0]):
        monkeypatch.setattr(plain, "controllers", lambda *_, setup=setup: setup)
        source(checkout / "cluster").bring_up(SimpleNamespace(state=checkout.parent / "state"))  # type: ignore[arg-type]
    assert len(set(kept)) == 3
    assert kept[0] == kept[3]


def test_the_base_of_a_kustomization_has_the_other_folders_of_the_checkout(checkout: Path) -> None:
    write(checkout / "cluster", kustomization={"resources": ["a.yaml"]})
    write(checkout / "overlay", kustomization={"resources": ["../cluster"], "namePrefix": "prod-"})
    commit(checkout, "switch main", "add .", "commit --message=overlay", "switch --create=another")
    write(checkout / "overlay", kustomization={"resources": ["../cluster"], "namePrefix": "next-"})
    change = source(checkout / "overlay").change
    assert (titles(change.apply), titles(change.delete)) == (["Job research/next-a"], ["Job research/prod-a"])


def test_a_stated_base_replaces_that_of_git_and_is_needed_without_git(checkout: Path, tmp_path: Path) -> None:
    base = write(tmp_path / "base", c=item("Job", "c"))
    assert titles(source(checkout / "cluster", base).change.apply) == ["Job research/a"]
    with pytest.raises(Stop, match=r"does not know where .* left main.*--base folder"):
        source(base)


def test_a_link_of_the_base_is_not_followed(checkout: Path) -> None:
    (checkout / "cluster" / "d.yaml").symlink_to("/etc/hostname")
    commit(checkout, "switch main", "add cluster/d.yaml", "commit --message=link", "switch --create=without")
    (checkout / "cluster" / "d.yaml").unlink()
    assert titles(source(checkout / "cluster").change.apply) == ["Job research/c"]


def test_a_kueue_that_is_older_than_every_release_of_the_emulator_is_refused_with_the_oldest() -> None:
    cause = r"snapshot\.json: kueueVersion: the cluster runs Kueue 0\.15\.1, .* Upgrade the cluster to 0\.16\.2"
    with pytest.raises(Stop, match=cause):
        source(SAMPLE, version="0.15.1")


def test_an_unknown_version_of_kueue_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("client_of", "wait_for_webhooks", "_apply_base", "take", "adopt"):
        monkeypatch.setattr(plain, name, lambda *_: None)
    monkeypatch.setattr(Scratch, "kubeconfig", lambda _: "")
    monkeypatch.setattr(Scratch, "run", lambda *_, **__: "")
    for version, is_said in ((None, True), (KUEUE_VERSION, False)):
        _, notes = source(SAMPLE, SAMPLE, version).restored(Scratch(tmp_path))
        assert ("lacks Kueue's version" in " ".join(notes)) is is_said


def test_manifests_need_a_snapshot_and_no_configuration_and_the_same_ones_are_no_change(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(snapshot(KUEUE_VERSION).to_json())
    with pytest.raises(Stop, match=r"--snapshot snapshot\.json"):
        gke_ai("rehearse", "--manifests", SAMPLE)
    with pytest.raises(Stop, match="--manifests and --config are two"):
        gke_ai("rehearse", "--manifests", SAMPLE, "--config", "x.yaml", "--snapshot", file)
    assert command.rehearse(command.Options(manifests=SAMPLE, base=SAMPLE, snapshot=file)) is None


# ----------------------------------------------------------------------------------------------------------- a cluster
def test_a_refused_object_stops_the_deletions_and_no_other_object(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, Any]] = []
    refusal = json.dumps({"message": f"spec.template: Invalid value: {'x' * 5000}: field is immutable"})

    def send(_: Any, method: str, path: str, query: Any, *more: Any) -> Answer:
        assert len(more) == 2, "body and headers"
        sent.append((method, query))
        statuses = {"refused": 422, "new": 201}
        return Answer(statuses.get(path.rpartition("/")[2], 200), refusal if path.endswith("/refused") else "{}")

    monkeypatch.setattr(applied, "send", send)
    before = manifests(item("Job", "gone"), item("Job", "changed"))
    after = manifests(item("Job", "refused"), item("Job", "changed", spec={}), item("Job", "new"))
    update: Any = Applied(None, compare(before, after))  # type: ignore[arg-type]
    assert update.done() == ["updated Job research/changed", "created Job research/new"]
    assert update.notes() == ["kubectl deletes nothing after a refusal, so these stay: Job research/gone."]
    assert not update.succeeded()
    assert update.errors().startswith("a.yaml, document 1: Job research/refused: spec.template: Invalid value: xxx")
    assert update.errors().endswith("xxx: field is immutable"), "the cause stands at the end of a long message"
    assert len(update.errors()) < 600
    assert [(method, query["fieldManager"]) for method, query in sent] == [("PATCH", applied.MANAGER)] * 3


def test_a_webhook_that_does_not_answer_at_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Answer(500, "{}"), Answer(201, "{}")]
    monkeypatch.setattr(applied, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(applied, "send", lambda *_: answers.pop(0))
    assert Applied(None, compare([], manifests(item("Job")))).done() == ["created Job research/one"]  # type: ignore[arg-type]


def test_a_removed_queue_that_is_in_use_stays_terminating(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"metadata": {"deletionTimestamp": "now", "finalizers": [applied.IN_USE]}}
    there = {"queue": held, "two": {"metadata": {"deletionTimestamp": "now", "finalizers": ["a/b"]}}}

    def send(_: Any, method: str, path: str, *__: Any) -> Answer:
        kept = there.get(path.rpartition("/")[2])
        return Answer(200, json.dumps(kept)) if method == "DELETE" or kept else Answer(404, "{}")

    monkeypatch.setattr(applied, "send", send)
    removed = manifests(queue(), item("Job", "two"), item("Job", "three"))
    update = Applied(None, compare(removed, []))  # type: ignore[arg-type]
    assert len(update.done()) == 3
    assert update.notes() == [
        "Job research/two is terminating until its finalizers are removed: a/b.",
        "ClusterQueue queue is terminating until its finalizers are removed: kueue.x-k8s.io/resource-in-use. Kueue "
        "removes this one once nothing uses the ClusterQueue, and admits nothing to it meanwhile.",
    ]
