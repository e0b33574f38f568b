"""A stranger's checkout: its commits are read, and no program runs that its configuration names."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse import git, plain
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.terminal import Stop
from tests.support.actions import commit

ABSENT = ("1" * 40, "2" * 40)
JOB = "{apiVersion: batch/v1, kind: Job, metadata: {name: NAME, namespace: research}}"
CHANGED = (["c"], ["b"])


def source(folder: Path) -> plain.Manifests:
    content = {"takenAt": "2026-11-22T10:00:00Z", "stack": "prod", "objects": {}, "kueueVersion": KUEUE_VERSION}
    return plain.source(folder, None, Snapshot.model_validate(content), "snapshot.json")


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.yaml").write_text(JOB.replace("NAME", name))
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose branch removes Job b and adds Job c."""
    folder = write(tmp_path / "repository" / "cluster", "a", "b")
    commit(folder.parent, "init --initial-branch=main", "add .", "commit --message=base", "switch --create=change")
    (folder / "b.yaml").unlink()
    write(folder, "c")
    commit(folder.parent, "add .", "commit --message=change")
    return folder.parent


def changed(folder: Path) -> tuple[list[str], list[str]]:
    change = source(folder).change
    return [item.name for item in change.apply], [item.name for item in change.delete]


def needs_a_fetch(repository: Path, marker: Path) -> None:
    """Makes git ask a remote for the commits of both branches. `uploadpack` is a command of the shell."""
    repository.mkdir(exist_ok=True)
    for name in ("objects", "refs/heads"):
        (repository / name).mkdir(parents=True, exist_ok=True)
    (repository / "HEAD").write_text(f"{ABSENT[0]}\n")
    (repository / "refs/heads/main").write_text(f"{ABSENT[1]}\n")
    remote = f'[remote "origin"]\n\turl = {repository}\n\tpromisor = true\n\tuploadpack = touch {marker};\n'
    version = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tpartialClone = origin\n"
    (repository / "config").write_text(version + remote)


def everything(repository: Path, marker: Path) -> None:
    """Names a program in each key for one that git has for reading commands, and in an included file."""
    program, hooks = repository / "program", repository / "hooks"
    hooks.mkdir(exist_ok=True)
    events = ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc")
    for file in (program, *(hooks / event for event in events)):
        file.write_text(f"#!/bin/sh\ntouch {marker}\n")
        file.chmod(0o755)
    core = ("fsmonitor", "pager", "sshCommand", "gitProxy", "askPass", "editor", "alternateRefsCommand")
    keys = "".join(f"\t{key} = {program}\n" for key in core)
    drivers = "".join(
        f'[{kind} "all"]\n' + "".join(f"\t{key} = {program}\n" for key in ("textconv", "command", "smudge", "process"))
        for kind in ("diff", "filter", "merge")
    )
    (repository / "included").write_text(f"[diff]\n\texternal = {program}\n[alias]\n\tls-tree = !{program}\n{drivers}")
    with (repository / "config").open("a") as config:
        config.write(f"[core]\n{keys}\thooksPath = {hooks}\n[credential]\n\thelper = {program}\n")
        config.write("[include]\n\tpath = included\n")
        config.write(f"[gpg]\n\tprogram = {program}\n[log]\n\tshowSignature = true\n")
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info" / "attributes").write_text("* diff=all filter=all merge=all\n")


def test_a_folder_that_is_a_bare_repository_runs_no_program(checkout: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    needs_a_fetch(checkout / "cluster", marker)
    _runs_with_git_itself(checkout / "cluster", marker, "merge-base", "main", "HEAD")
    assert changed(checkout / "cluster") == CHANGED
    assert not marker.exists()


def _runs_with_git_itself(folder: Path, marker: Path, *command: str) -> None:
    """Otherwise the attack shows nothing."""
    git = ["git", "-c", "safe.bareRepository=all", "-c", "safe.directory=*", *command]
    subprocess.run(git, cwd=folder, capture_output=True, timeout=60, check=False)
    assert marker.exists()
    marker.unlink()


def test_the_repository_of_an_archive_runs_no_program(tmp_path: Path) -> None:
    folder, marker = write(tmp_path / "archive" / "cluster", "a"), tmp_path / "marker"
    needs_a_fetch(folder.parent / ".git", marker)
    _runs_with_git_itself(folder.parent / ".git", marker, "merge-base", "main", "HEAD")
    with pytest.raises(Stop, match="Git does not know where the branch"):
        source(folder)
    assert not marker.exists()


def test_a_whole_repository_with_programs_in_every_key_is_read_and_runs_none(checkout: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    everything(checkout / ".git", marker)
    _runs_with_git_itself(checkout, marker, "status")
    assert changed(checkout / "cluster") == CHANGED
    assert not marker.exists()


def test_git_reads_only_its_own_configuration(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shows it for every key that git has or will have."""
    everything(checkout / ".git", tmp_path / "marker")
    for name, value in (("COUNT", "1"), ("KEY_0", "core.fsmonitor"), ("VALUE_0", "id")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_DIR", str(checkout / ".git"))
    with git.checkout(checkout / "cluster") as around:
        assert around
        listed = around._git("config", "--list").decode().split()
    assert listed == ["core.repositoryformatversion=0", "core.bare=true"]


def test_git_never_runs_in_a_strangers_folder(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = list[Path]()
    run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run

    def record(command: list[str], **more: object) -> subprocess.CompletedProcess[bytes]:
        folders.append(Path(str(more["cwd"])))
        assert command[:2] == ["git", f"--git-dir={folders[-1]}"]
        return run(command, **more)

    monkeypatch.setattr("gke_ai.forecast.rehearse.git.subprocess.run", record)
    assert changed(checkout / "cluster") == CHANGED
    assert folders
    assert not any(folder.is_relative_to(tmp_path / "repository") for folder in folders)
    assert not any(folder.exists() for folder in folders), "nothing stays behind"


def test_a_worktree_a_packed_repository_and_a_clone_are_read(checkout: Path, tmp_path: Path) -> None:
    commit(checkout, "gc --quiet", f"worktree add --detach {tmp_path / 'tree'}")
    assert (tmp_path / "tree" / ".git").is_file()
    assert changed(tmp_path / "tree" / "cluster") == CHANGED
    commit(tmp_path, f"clone --quiet --branch change {checkout} {tmp_path / 'clone'}")
    commit(tmp_path / "clone", "branch main origin/change")
    assert changed(tmp_path / "clone" / "cluster") == CHANGED, "the branch main of the remote comes first"


def test_a_kustomization_at_the_top_that_the_change_removes_is_rendered(checkout: Path) -> None:
    (checkout / "kustomization.yaml").write_text("resources: [cluster/a.yaml]\nnamePrefix: old-\n")
    commit(checkout, "switch main", "add .", "commit --message=top", "switch --create=without")
    (checkout / "kustomization.yaml").unlink()
    assert changed(checkout) == (["a", "b"], ["old-a"])


def test_a_base_that_git_cannot_read_is_not_empty(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["git", "rev-parse", "main:cluster/b.yaml"]
    blob = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    (checkout / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Stop, match=r"Git cannot read files of .* --base folder"):
        source(checkout / "cluster")
    head = checkout / ".git" / "refs" / "heads" / "main"
    head.unlink()
    os.mkfifo(head)
    monkeypatch.setattr(git, "SECONDS", 1)
    with pytest.raises(Stop, match="does not end in 1 s"):
        source(checkout / "cluster")
    monkeypatch.setenv("PATH", str(checkout))
    without_git = r"Git is not on PATH, and it reads what .*/repository had before the change.* --base"
    with pytest.raises(Stop, match=without_git):
        source(checkout / "cluster")
