"""`--workdir` without a cluster: what is packed, left out and refused, and that pods unpack the same."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.project import credentials
from gke_ai.kube.pods import requests
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.ops.submit import workdir
from gke_ai.ops.submit.ignored import read_rules
from gke_ai.ops.submit.member import SUBMITTED
from gke_ai.ops.submit.options import Options
from gke_ai.ops.submit.request import Request
from gke_ai.ops.submit.workdir import LABEL, MAX_BYTES, PATH, Code, pack
from gke_ai.settings.published import place
from tests.support.repository import ROOT
from tests.support.unpacked import names, unpack

Files = dict[str, str | bytes]
PROGRAM: Files = {"train.py": "import own.model\n", "own/model.py": "print('step 0')\n", "own/__init__.py": ""}


def folder(path: Path, files: Files) -> Path:
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def packed(tmp_path: Path, files: Files) -> Code:
    """The code of a folder with these files beside the program."""
    return pack(folder(tmp_path / "code", {**PROGRAM, **files}))


def problem_of(tmp_path: Path, files: Files) -> str:
    """The only problem of a folder with these files beside the program."""
    (problem,) = packed(tmp_path, files).problems
    return problem


def unpacked(code: Code, target: Path) -> Path:
    """What the pod of a run has in its working directory."""
    config_map, run = objects(code)
    return unpack(spec_of(run), config_map, target)


def spec_of(run: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def objects(code: Code | None, **keys: Any) -> list[dict[str, Any]]:
    """The objects of a run from options, with further keys."""
    stated = Options("first", "i:1", ("python", "train.py"), accelerator="nvidia-l4", queue="lq", cpu="4", memory="8Gi")
    section, item = Request(options=stated, code=code).run(None, "team-a")
    placed, problems = place(None, section, {**item, **keys})
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


def test_a_run_with_code_is_the_object_of_the_program_and_the_code_and_another_code_another_run(tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    first, same = (objects(pack(path))[-1]["metadata"]["name"] for _ in range(2))
    folder(path, {"own/model.py": "print('step 1')\n"})
    changed, without = (objects(stated)[-1]["metadata"]["name"] for stated in (pack(path), None))
    assert first == same
    assert len({first, changed, without}) == 3
    code = packed(tmp_path, {})
    config_map, run = objects(code)
    (same_run,) = objects(None, labels={LABEL: code.digest})
    metadata = {"name": f"{run['metadata']['name']}-workdir", "namespace": "team-a"}
    assert config_map["metadata"] == {**metadata, "annotations": {SUBMITTED: code.digest}}
    assert config_map["immutable"] is True
    spec = spec_of(run)
    (container,), (init,) = spec["containers"], spec.pop("initContainers")
    assert container.pop("workingDir") == PATH
    assert container["volumeMounts"].pop() == {"name": "workdir", "mountPath": PATH}
    assert spec["volumes"].pop() == {"name": "workdir-archive", "configMap": {"name": config_map["metadata"]["name"]}}
    assert spec["volumes"].pop() == {"name": "workdir", "emptyDir": {}}
    assert run == same_run
    # No accelerator, and no more than the container: the pod requests the same.
    assert requests({**spec, "initContainers": [init]}) == requests(spec)
    asked = {"cpu": "4", "memory": "8Gi"}
    assert (init["image"], init["resources"]) == ("i:1", {"requests": asked, "limits": asked})
    (run,) = objects(None)
    spec_of(run)["containers"][0]["resources"]["claims"] = [{"name": "nics"}]
    (init,) = spec_of(code.inside([run])[-1])["initContainers"]
    assert init["resources"].keys() == {"requests", "limits"}, "it claims no NICs"


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
        ({"data/a": "", ".gcloudignore": "data/\n*.log\n", "own/x.log": ""}, [".gcloudignore", "data", "own/x.log"]),
        ({"data/a.bin": "", ".gitignore": "data\n", ".gcloudignore": "#!include:.gitignore\n"}, ["data"]),
        ({"x.log": "", "own/x.log": "", ".dockerignore": "*.log\n"}, ["x.log"]),
        ({"x.py": "", "src/x.py": "", ".dockerignore": "*\n!src\n!train.py\n!own\n"}, ["x.py"]),
        ({".gitignore": "*.log\n", ".gcloudignore": "", "x.log": ""}, [".gcloudignore", ".gitignore"]),
    ],
)
def test_hidden_files_and_those_of_patterns_stay_at_home(files: Files, left_out: list[str], tmp_path: Path) -> None:
    code = packed(tmp_path, files)
    assert {*left_out} <= {*code.left_out}
    assert [name for name in code.left_out if name not in left_out and not Path(name).name.startswith(".")] == []
    assert all(name in code.summary for name in left_out)
    every = {str(path) for name in {*files, *PROGRAM} for path in (Path(name), *Path(name).parents)} - {"."}
    below = {name for name in every for path in code.left_out if f"{name}/".startswith(f"{path}/")}
    assert names(unpacked(code, tmp_path / "pod")) == sorted(every - below)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        *(("*.pt", "deep/down/model.pt", True), ("/*.pt", "deep/model.pt", False), ("out", "deep/out", True)),
        *(("deep/out", "other/deep/out", False), ("**/out/x", "a/b/out/x", True), ("out/**", "out/a/b", True)),
        *(("a/**/b", "a/b", True), ("a/**/b", "a/x/y/b", True), ("run-?", "run-1", True), ("run-[0-9]", "run-7", True)),
        *(("run-[!0-9]", "run-7", False), ("run-[!0-9]", "run-x", True), ("[z-a]", "a", False), (r"\#x", "#x", True)),
        *(("# x", "# x", False), ("a.b", "axb", False), ("x   ", "x", True), ("(a|b)+", "a", False)),
        *((r"x\ ", "x ", True), ("x/", "x", False), ("./x", "x", False), ("[[:digit:]]", "7", True)),
        *(("[[:upper:]]", "u", False), ("out/**", "out", False), ("a**b", "axxb", True)),
    ],
)
def test_patterns_are_read_as_git_reads_them(pattern: str, name: str, matches: bool, tmp_path: Path) -> None:
    (tmp_path / ".gcloudignore").write_text(f"{pattern}\n")
    rules, leaves_out = read_rules(tmp_path), False
    *folders, last = name.split("/")
    for inner in folders:
        leaves_out, below = rules.leave_out(inner, True)
        if below is None:
            break
        rules = below
    else:
        leaves_out, _ = rules.leave_out(last, False)
    assert leaves_out is matches
    git = ["git", "-c", f"core.excludesFile={tmp_path / '.gcloudignore'}", "check-ignore", "--no-index", "-q", name]
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert (subprocess.run(git, cwd=tmp_path, check=False).returncode == 0) is matches


# What BuildKit sends for a .dockerignore: github.com/tonistiigi/fsutil a72de9dcf763 with moby/patternmatcher 0.6.1.
TREE = ("a/b/x.py", "a/x.py", "data/keep.txt", "data/raw/keep.txt", "data/raw/x", "src/a/x", "src/data/x", "train.py")


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("data\n!data/keep.txt", "a/b/x.py a/x.py data/keep.txt src/a/x src/data/x train.py"),
        ("data/\n!**/keep.txt", "a/b/x.py a/x.py data/keep.txt data/raw/keep.txt src/a/x src/data/x train.py"),
        ("*\n!src", "src/a/x src/data/x"),
        ("*\n!src\n**/data", "src/a/x"),
        ("**\n!a/*/x.py", "a/b/x.py"),
        ("a\n!a", " ".join(TREE)),
        ("!a\na", " ".join(name for name in TREE if not name.startswith("a/"))),
        ("*/x.py\n!a", " ".join(name for name in TREE if name != "a/x.py")),
        ("  /a/../src/  \n", " ".join(name for name in TREE if not name.startswith("src/"))),
        ("tr[!b]in.py\n[^t]*", "train.py"),
        ("data/**\n!data/raw\ndata/raw/x", "a/b/x.py a/x.py data/raw/keep.txt src/a/x src/data/x train.py"),
    ],
)
def test_patterns_are_read_as_docker_reads_them(lines: str, kept: str, tmp_path: Path) -> None:
    code = pack(folder(tmp_path / "code", {**dict.fromkeys(TREE, "x"), ".dockerignore": lines}))
    target = unpacked(code, tmp_path / "pod")
    assert " ".join(name for name in names(target) if (target / name).is_file()) == kept


@pytest.mark.parametrize("pattern", ["*a" * 25 + "b", "**/a/" * 25 + "b", "?*" * 25 + "b", "[a]*" * 25 + "b"])
def test_a_pattern_of_a_stranger_takes_no_time(pattern: str, tmp_path: Path) -> None:
    """Each took longer than anyone waits. Without the bound, this test does not end."""
    deep = "/".join("a" * 60)
    code = pack(folder(tmp_path / "code", {".gitignore": pattern, "a" * 200: "", f"{deep}/c": ""}))
    assert code.left_out == [".gitignore"]


EMPTY = (".git/config", ".netrc", "own/.aws/credentials", ".kube/config", ".config/gcloud/x.db", ".ssh/known_hosts")
NEVER: Files = {
    **dict.fromkeys((*EMPTY, ".npmrc", ".bash_history"), ""),
    ".env": "A=b",
    ".env.local": "A=b",
    ".docker/config.json": "{}",
}


@pytest.mark.parametrize("file", [".gcloudignore", ".dockerignore", ".gitignore"])
@pytest.mark.parametrize("lines", ["!.*", "!.*\n!**/.*\n!.*/**", "!.env\n!.git\n!.env/\n!.config\n!.config/gcloud"])
def test_no_pattern_brings_credentials_along_and_what_is_hidden_is_named(file: str, lines: str, tmp_path: Path) -> None:
    code = packed(tmp_path, {**NEVER, ".config/app": "x", file: lines})
    brought = names(unpacked(code, tmp_path / "pod"))
    assert [name for name in brought if name in NEVER] == []
    assert ".config/app" in brought
    assert "Hidden and brought along: .config" in code.summary


@pytest.mark.parametrize("lines", ["!*", "!**", "!?*", "!**/*", "*\n!*", "![.]*", "*\n!own\n!train.py"])
@pytest.mark.parametrize("file", [".dockerignore", ".gitignore"])
def test_a_wildcard_keeps_nothing_hidden(file: str, lines: str, tmp_path: Path) -> None:
    hidden: Files = {".secret": "", "own/.cache/x": "", ".venv/lib/x.py": "", "own/__pycache__/x.pyc": ""}
    code = packed(tmp_path, {**hidden, file: lines})
    brought = names(unpacked(code, tmp_path / "pod"))
    assert "train.py" in brought
    assert [name for name in brought if "/." in f"/{name}" or "pycache" in name] == []
    assert "Hidden" not in code.summary


@pytest.mark.parametrize("name", [".a\nThe run is submitted.", ".\x1b[2J", ".\udcff"])
def test_a_name_cannot_write_to_the_terminal(name: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    (path / name).write_text("")
    summary = pack(path).summary
    assert summary.isprintable()
    assert repr(name) in summary
    folder(path, {".gitignore": "!.*"})
    code = pack(path)
    assert all(text.isprintable() for text in (code.summary, *code.problems))


@pytest.mark.parametrize("file", [".gcloudignore", ".dockerignore", ".gitignore"])
@pytest.mark.parametrize("text", ["a\n" * 200_000, "*a\n" * 2_000, "**/" * 3_000 + "x", "x" * 2**20])
def test_an_endless_file_of_patterns_is_refused(text: str, file: str, tmp_path: Path) -> None:
    problem = problem_of(tmp_path, {file: text})
    assert f"{file} has more than" in problem
    assert problem.endswith("Reading the folder could take hours. Shorten it.")


def test_an_endless_included_file_and_too_many_folders_or_names_for_the_patterns_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    included: Files = {".gcloudignore": "#!include:.gitignore\n", ".gitignore": "a\n" * 200_000}
    assert ".gitignore has more than 128 KiB" in problem_of(tmp_path / "included", included)
    path = folder(tmp_path / "many", {})
    for index in range(10_001):
        (path / f"{index}").mkdir(parents=True)
    (problem,) = pack(path).problems
    assert "has more than 10,000 files and folders" in problem
    assert "largest files" not in problem
    monkeypatch.setattr(workdir, "MAX_COMPARISONS", 20)
    path = folder(tmp_path / "code", {**{f"{index}.bin": "" for index in range(10)}, ".gitignore": "*.bin\n*.pt\n"})
    (problem,) = pack(path).problems
    assert "has more than 10 files and folders to compare with 2 patterns" in problem


# Written in two parts, so that no scanner takes this file for a leak.
JWT = ".".join(("ey" + "JhbGciOiJSUzI1NiJ9", "ey" + "JzdWIiOiJ4IiwieCI6MX0", "x" * 40))
TOKENS: dict[str, tuple[str, str | bytes]] = {
    "token.txt": ("a Hugging Face token", "hf_" + "a" * 34),
    "key.pem": ("a private key", "-----BEGIN RSA " + "PRIVATE KEY-----\n"),
    "pgp.asc": ("a private key", "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\n"),
    "account.json": ("a private key", '{"private_key": "-----BEGIN ' + 'PRIVATE KEY-----\\nMII"}'),
    "base64.yaml": ("a private key", "key: LS0tLS1CRUdJTiBSU0EgUFJ" + "JVkFURSBLRVktLS0tLQo="),
    "google.py": ("a Google API key", 'KEY = "AIza' + "x" * 35 + '"'),
    "adc.json": ("a Google OAuth token", '{"refresh_token": "1//' + "x" * 60 + '"}'),
    "github.yaml": ("a GitHub token", "token: ghp_" + "x" * 36),
    "oauth.yaml": ("a GitHub token", "token: gho_" + "x" * 36),
    "server.yaml": ("a GitHub token", "token: ghs_" + "x" * 36),
    "fine.yaml": ("a GitHub token", "github_pat_" + "1" * 22 + "_" + "x" * 59),
    "gitlab.py": ("a GitLab token", "glpat-" + "x" * 20),
    "aws.ini": ("an AWS access key", "aws_access_key_id = AKIA" + "Q" * 16),
    "session.sh": ("an AWS access key", "export AWS_ACCESS_KEY_ID=ASIA" + "Q" * 16),
    "secret.ini": ("an AWS access key", "aws_secret_access_key = " + "aB3/" * 10),
    "slack.py": ("a Slack token", "xoxb-" + "1" * 12 + "-" + "x" * 24),
    "openai.py": ("an OpenAI key", "sk-" + "x" * 48),
    "project.py": ("an OpenAI key", "sk-proj-" + "x_-" * 30),
    "claude.py": ("an Anthropic key", "sk-ant-" + "api03-" + "x" * 80),
    "npm.txt": ("an npm token", "npm_" + "x" * 36),
    "pypi.ini": ("a PyPI token", "password = pypi-" + "AgEIcHlwaS5vcmc" + "x" * 60),
    "wandb.env": ("a Weights & Biases key", "WANDB_API" + "_KEY=" + "0a" * 20),
    "wandb.py": ("a Weights & Biases key", 'os.environ["WANDB_API' + '_KEY"] = "' + "0a" * 20 + '"'),
    "netrc": ("a password of a netrc file", "machine api.wandb.ai\n  login user\n  password " + "0a" * 20),
    "docker.json": ("a password of a registry", '{"auths": {"r.io": {"auth": "' + "dXNlcjpwYXNzd29yZA==" + '"}}}'),
    "kubeconfig": ("a token of a kubeconfig or another JWT", f"    token: {JWT}"),
    "client.yaml": ("a key of a kubeconfig", "client-key-data: " + "aB3/" * 40),
    "utf-16.env": ("a Hugging Face token", ("hf_" + "a" * 34).encode("utf-16")),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_file_with_a_credential_is_refused_by_name(name: str, tmp_path: Path) -> None:
    title, content = TOKENS[name]
    problem = problem_of(tmp_path, {name: content})
    assert problem.startswith(f"--workdir: {name} has {title}, and every member can read a ConfigMap.")
    assert str(content) not in problem
    assert packed(tmp_path, {".gcloudignore": name}).problems == []


def test_the_page_lists_the_credentials_that_are_found_and_a_file_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = " ".join((ROOT / "docs" / "for-people-who-train.md").read_text().split())
    assert [title for title in dict.fromkeys(title for title, _, _ in credentials.forms()) if title not in page] == []

    def refuse(file: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "can't be read (Permission denied)" in problem_of(tmp_path, {})


ENDLESS = ["eyJaaaaaaaaaaa-", "sk-", "machine x login y ", "-----BEGIN", '"auth": "aA', "gl-xoxa-,"]


@pytest.mark.parametrize("text", ENDLESS)
def test_a_file_of_a_stranger_is_searched_in_bounded_time(text: str) -> None:
    """By squares of the length, each would take hours."""
    start = time.monotonic()
    assert credentials.find(text * (2**21 // len(text)) + "PRIVATE KEY password .eyJ") == ""
    assert time.monotonic() - start < 20


LOOKALIKES = (
    "from x import hf_tokenizer_fast, hf_hub_download",
    'task-0123456789abcdef0123456789abcdef = sk-learn; "auth": "required"; password = input()',
    "https://github.com/o/r/commit/" + "0a" * 20,
    ".sk-estimator-doc-link:hover { } .sk-toggleable__control { }",
    "AKIAfoo, pypi-publish, npm_config_cache, xoxo-, glpat-, eyJhbGciOiJub25lIn0, WANDB_API_KEY=$KEY",
)


@pytest.mark.parametrize("text", LOOKALIKES)
def test_what_only_looks_like_a_token_is_no_credential(text: str, tmp_path: Path) -> None:
    assert pack(folder(tmp_path, {"train.py": text})).problems == []


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: (path / "data").symlink_to("/data"), "'data' is a link to '/data', out of the folder"),
        (lambda path: (path / "own" / "up").symlink_to("../../x"), "'own/up' is a link to '../../x', out of the"),
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


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 40 * 1024 * 1024])
def test_a_folder_that_no_config_map_holds_is_refused_with_its_largest_files(size: int, tmp_path: Path) -> None:
    path = folder(tmp_path / "code", PROGRAM)
    (path / "model.bin").write_bytes(os.urandom(size) if size < 2 * MAX_BYTES else b"")
    os.truncate(path / "model.bin", size)
    problem = problem_of(tmp_path, {})
    assert "a ConfigMap takes 1.0 MiB" in problem
    assert "The largest files are model.bin" in problem
    assert "mount it with --mount" in problem
    assert packed(tmp_path, {".gcloudignore": "*.bin"}).problems == []
