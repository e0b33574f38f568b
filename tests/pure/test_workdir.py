"""`--workdir` without a cluster: what is packed, left out and refused, and that pods unpack the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gke_ai.kube.pods import requests
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.ops.submit.ignored import Rules, read_rules
from gke_ai.ops.submit.member import SUBMITTED
from gke_ai.ops.submit.request import Options, Request
from gke_ai.ops.submit.workdir import LABEL, MAX_BYTES, PATH, Code, pack
from gke_ai.settings.published import place
from tests.unpacked import names, unpack

Files = dict[str, str | bytes]
PROGRAM: Files = {"train.py": "import own.model\n", "own/model.py": "print('step 0')\n", "own/__init__.py": ""}


def folder(path: Path, files: Files) -> Path:
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def unpacked(code: Code, target: Path) -> Path:
    """What the pod of a run has in its working directory."""
    config_map, run = objects(code)
    return unpack(spec_of(run), config_map, target)


def spec_of(run: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def objects(code: Code | None, **keys: Any) -> list[dict[str, Any]]:
    """The objects of a run from options."""
    stated = {"accelerator": "nvidia-l4", "queue": "lq", **keys}
    request = Request(options=Options("first", "i:1", ("python", "train.py"), stated, "4", "8Gi"), code=code)
    placed, problems = place(None, *request.run(None, "team-a"))
    assert placed, problems
    assert not problems
    made = objects_of(placed.section, place_of(placed))
    return code.inside(made) if code else made


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    first = folder(tmp_path / "first", PROGRAM)
    second = folder(tmp_path / "second", dict(reversed(PROGRAM.items())))
    (second / "train.py").chmod(0o600)
    os.utime(second / "train.py", (1, 1))
    (second / "own").chmod(0o700)
    folder(second, {"own/__pycache__/model.cpython-312.pyc": b"x"})
    assert pack(first).archive == pack(second).archive
    (second / "train.py").chmod(0o755)
    assert pack(first).digest != pack(second).digest


def test_another_code_is_another_run_and_the_same_code_the_same_run(tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    first, same = (objects(pack(path))[-1]["metadata"]["name"] for _ in range(2))
    folder(path, {"own/model.py": "print('step 1')\n"})
    changed, without = (objects(code)[-1]["metadata"]["name"] for code in (pack(path), None))
    assert first == same
    assert len({first, changed, without}) == 3


def test_a_run_with_code_is_the_object_of_the_program_and_the_code(tmp_path: Path) -> None:
    code = pack(folder(tmp_path / "code", PROGRAM))
    config_map, run = objects(code)
    (without,) = objects(None, labels={LABEL: code.digest})
    assert config_map["metadata"] == {
        "name": f"{run['metadata']['name']}-workdir",
        "namespace": "team-a",
        "annotations": {SUBMITTED: code.digest},
    }
    assert config_map["immutable"] is True
    spec = spec_of(run)
    (container,), (init,) = spec["containers"], spec.pop("initContainers")
    assert container.pop("workingDir") == PATH
    assert container["volumeMounts"].pop() == {"name": "workdir", "mountPath": PATH}
    assert spec["volumes"].pop() == {"name": "workdir-archive", "configMap": {"name": config_map["metadata"]["name"]}}
    assert spec["volumes"].pop() == {"name": "workdir", "emptyDir": {}}
    assert run == without
    # No accelerator, and no more than the container: the pod requests the same.
    assert requests({**spec, "initContainers": [init]}) == requests(spec)
    asked = {"cpu": "4", "memory": "8Gi"}
    assert (init["image"], init["resources"]) == ("i:1", {"requests": asked, "limits": asked})


def test_the_container_that_unpacks_claims_no_nics(tmp_path: Path) -> None:
    code = pack(folder(tmp_path / "code", PROGRAM))
    (run,) = objects(None)
    spec_of(run)["containers"][0]["resources"]["claims"] = [{"name": "nics"}]
    spec = spec_of(code.inside([run])[-1])
    assert spec["initContainers"][0]["resources"].keys() == {"requests", "limits"}


def test_a_pod_unpacks_what_was_packed_and_the_program_runs(tmp_path: Path) -> None:
    files: Files = {
        **PROGRAM,
        "run.sh": "#!/bin/sh\n",
        "-rf": "",
        "with space/ä 'quoted' $(x).txt": "x",
        f"{'long-' * 30}/{'name' * 40}.py": "x",
    }
    path = folder(tmp_path / "code", files)
    (path / "run.sh").chmod(0o755)
    (path / "empty").mkdir()
    (path / "own" / "link.py").symlink_to("../train.py")
    code = pack(path)
    assert code.problems == []
    target = unpacked(code, tmp_path / "pod")
    assert names(target) == names(path)
    assert os.readlink(target / "own" / "link.py") == "../train.py"
    assert os.access(target / "run.sh", os.X_OK)
    assert not os.access(target / "train.py", os.X_OK)
    done = subprocess.run([sys.executable, "train.py"], cwd=target, capture_output=True, text=True, check=True)
    assert done.stdout == "step 0\n"


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        ({".git/config": "", ".env": "A=b", ".venv/bin/python": "", "own/.env": ""}, [".env", ".git", ".venv"]),
        (
            {"data/a.bin": "", ".gcloudignore": "data/\n*.log\n", "own/x.log": ""},
            [".gcloudignore", "data", "own/x.log"],
        ),
        ({"data/a.bin": "", ".gitignore": "data\n", ".gcloudignore": "#!include:.gitignore\n"}, ["data"]),
        ({"x.log": "", "own/x.log": "", ".dockerignore": "*.log\n"}, ["x.log"]),
        ({"x.py": "", "src/x.py": "", ".dockerignore": "*\n!src\n!train.py\n!own\n"}, ["x.py"]),
        ({".gitignore": "*.log\n", ".gcloudignore": "", "x.log": ""}, [".gcloudignore", ".gitignore"]),
    ],
)
def test_hidden_files_and_those_of_one_file_of_patterns_stay_at_home(
    files: Files, left_out: list[str], tmp_path: Path
) -> None:
    code = pack(folder(tmp_path / "code", {**PROGRAM, **files}))
    assert {*left_out} <= {*code.left_out}
    assert [name for name in code.left_out if name not in left_out and not Path(name).name.startswith(".")] == []
    assert all(name in code.summary for name in left_out)
    assert names(unpacked(code, tmp_path / "pod")) == sorted(
        {
            *(name for name in {*files, *PROGRAM} if not _below(name, code.left_out)),
            *(
                str(parent)
                for name in {*files, *PROGRAM}
                for parent in Path(name).parents
                if str(parent) != "." and not _below(str(parent), code.left_out)
            ),
        }
    )


def _below(name: str, folders: Any) -> bool:
    return any(f"{name}/".startswith(f"{path}/") for path in folders)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.pt", "deep/down/model.pt", True),
        ("/*.pt", "deep/model.pt", False),
        ("out", "deep/out", True),
        ("deep/out", "other/deep/out", False),
        ("**/out/x", "a/b/out/x", True),
        ("out/**", "out/a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("run-?", "run-1", True),
        ("run-[0-9]", "run-7", True),
        ("run-[!0-9]", "run-7", False),
        ("run-[!0-9]", "run-x", True),
        ("[z-a]", "z", False),
        (r"\#x", "#x", True),
        ("# x", "# x", False),
        ("a.b", "axb", False),
        ("x   ", "x", True),
        ("(a|b)+", "a", False),
        ("[", "[", True),
    ],
)
def test_patterns_are_read_as_git_reads_them(pattern: str, name: str, matches: bool, tmp_path: Path) -> None:
    (tmp_path / ".gcloudignore").write_text(f"{pattern}\n")
    rules: Rules = read_rules(tmp_path)
    assert rules.leave_out(name, False) is matches


@pytest.mark.parametrize("pattern", ["*a" * 25 + "b", "**/a/" * 25 + "b", "?*" * 25 + "b", "[a]*" * 25 + "b"])
def test_a_pattern_of_a_stranger_takes_no_time(pattern: str, tmp_path: Path) -> None:
    """Each took longer than anyone waits. Without the bound, this test does not end."""
    deep = "/".join("a" * 60)
    code = pack(folder(tmp_path / "code", {".gitignore": pattern, "a" * 200: "", f"{deep}/c": ""}))
    assert code.left_out == [".gitignore"]


def test_a_pattern_with_a_mark_keeps_a_hidden_file(tmp_path: Path) -> None:
    code = pack(folder(tmp_path / "code", {**PROGRAM, ".gcloudignore": "!.config\n", ".config/x": "x"}))
    assert names(unpacked(code, tmp_path / "pod"))[:2] == [".config", ".config/x"]


# Written in two parts, so that no scanner takes this file for a leak.
TOKENS = {
    "token.txt": "hf_" + "a" * 34,
    "key.pem": "-----BEGIN RSA " + "PRIVATE KEY-----\n",
    "account.json": '{"private_key": "-----BEGIN ' + 'PRIVATE KEY-----\\nMII"}',
    "google.py": 'KEY = "AIza' + "x" * 35 + '"',
    "github.yaml": "token: ghp_" + "x" * 36,
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_file_with_a_credential_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "code", {**PROGRAM, name: TOKENS[name]})
    (problem,) = pack(path).problems
    assert problem.startswith(f"--workdir: {name} has a private key or a token")
    assert TOKENS[name] not in problem
    folder(path, {".gcloudignore": name})
    assert pack(path).problems == []


def test_what_only_looks_like_a_token_is_no_credential(tmp_path: Path) -> None:
    assert pack(folder(tmp_path, {"train.py": "from x import hf_tokenizer_fast, hf_hub_download"})).problems == []


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: (path / "data").symlink_to("/data"), "'data' is a link to '/data', out of the folder"),
        (
            lambda path: (path / "own" / "up").symlink_to("../../x"),
            "'own/up' is a link to '../../x', out of the folder",
        ),
        (lambda path: os.mkfifo(path / "pipe"), "'pipe' is no file, folder or link"),
        (lambda path: (path / "a\nb").write_text(""), r"'a\nb' has a character that is not printable"),
        (lambda path: (path / "\x1b[31m").write_text(""), r"'\x1b[31m' has a character that is not printable"),
        (lambda path: open(os.fsencode(path) + b"/\xff", "w").close(), r"'\udcff' has a character"),
    ],
)
def test_what_no_pod_could_have_is_refused_by_name(make: Any, problem: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    make(path)
    (text,) = pack(path).problems
    assert text.startswith(f"--workdir: {problem}"), text


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "code", PROGRAM)

    def refuse(file: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (problem,) = pack(path).problems
    assert "can't be read (Permission denied)" in problem


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 40 * 1024 * 1024])
def test_a_folder_that_no_config_map_holds_is_refused_with_its_largest_files(size: int, tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    (path / "model.bin").write_bytes(os.urandom(size) if size < 2 * MAX_BYTES else b"")
    os.truncate(path / "model.bin", size)
    (problem,) = pack(path).problems
    assert "a ConfigMap takes 1.0 MiB" in problem
    assert "The largest files are model.bin" in problem
    assert "mount it with --mount" in problem
    folder(path, {".gcloudignore": "*.bin"})
    assert pack(path).problems == []
