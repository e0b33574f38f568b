"""A repository of one's own: `init` writes it or refuses, and `upgrade` says what a version changes in it."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from types import SimpleNamespace

import click
import pytest
import yaml

from gke_ai.catalog.versions import KUEUE_VERSION, PROJECT_VERSION
from gke_ai.ops.repository import template
from gke_ai.ops.repository.from_cluster import Described
from gke_ai.ops.repository.template import RECORD, digest
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration, resolve
from tests.support.commands import gke_ai
from tests.support.repository import ROOT, tracked

FILES = {*template.files(["dev"]), "Pulumi.dev.yaml", RECORD}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A new repository."""
    folder = tmp_path / "own"
    gke_ai("init", folder, "--project", "my-project")
    return folder


def written(folder: Path) -> dict[str, str]:
    """Every file of a folder."""
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def recorded(folder: Path, without: str = "", **texts: str) -> None:
    """Changes the record of a repository: an earlier version wrote these texts, and deployed an earlier Kueue."""
    record = json.loads((folder / RECORD).read_text())
    record["files"].pop(without, "")
    record["versions"] |= {"gke-ai": "0.3.0", "Kueue": "0.16.2"}
    record["files"] |= {name: digest(text) for name, text in texts.items()}
    (folder / RECORD).write_text(json.dumps(record))


# ---------------------------------------------------------------------------------------------------------------- init
CONTEXT = "gke_my-project_europe-west4-a_shared"


def test_init_names_what_a_cluster_has_and_writes_nothing_without_a_kueue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = {"kueue": "existing", "flavors": [{"name": "l4", "mode": "existing", "accelerator": "nvidia-l4"}]}
    described = iter(
        [Described({}, ("The cluster has no Kueue.",)), Described(queues, ("Flavor tas: it has a topology.",))]
    )
    monkeypatch.setattr("gke_ai.workspace.stack.client_of_context", lambda *_: None)
    monkeypatch.setattr("gke_ai.ops.repository.create.describe", lambda _: next(described))
    with pytest.raises(Stop, match=r"The cluster has no Kueue\. Nothing was written\. Leave --from-cluster out"):
        gke_ai("init", tmp_path / "own", "--from-cluster", CONTEXT)
    assert not (tmp_path / "own").exists()
    gke_ai("init", tmp_path / "own", "--from-cluster", CONTEXT)
    config = read_configuration(tmp_path / "own" / "Pulumi.dev.yaml")["config"]
    assert (config["gcp:project"], config["gcp:region"]) == ("my-project", "europe-west4")
    cluster = resolve(config).cluster
    assert (cluster.name, cluster.location, cluster.mode) == ("shared", "europe-west4-a", "existing")
    assert config["gke-ai:queues"] == queues
    assert "Left out: Flavor tas: it has a topology." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-cluster", "kind", "--project", "p"], r"does not say where its cluster is.*State --region"),
        (["--from-cluster", CONTEXT, "--team", "vision"], "creates nothing, so --team has no effect"),
        ([], "--project is needed"),  # without a terminal
    ],
)
def test_init_refuses_options_that_miss_something_or_have_no_effect(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(click.UsageError, match=message):
        gke_ai("init", tmp_path / "own", *arguments)
    assert written(tmp_path) == {}


def test_a_repository_depends_on_the_package_by_its_version(repository: Path) -> None:
    texts = written(repository)
    assert texts.keys() == FILES
    wheel = f"./wheels/gke_ai-{PROJECT_VERSION}-py3-none-any.whl[command,policies]"
    assert texts["requirements.txt"].splitlines()[-1] == wheel
    emulator = f"./wheels/gke_ai_emulator-{PROJECT_VERSION}-py3-none-any.whl"
    assert texts["requirements-emulator.txt"] == f"-r requirements.txt\n{emulator}\n"
    assert len(texts["__main__.py"].splitlines()) == 3
    assert [name for name, text in texts.items() if "@@" in text] == []


def test_init_copies_the_wheels_that_it_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = {}
    for package in ("gke-ai", "gke-ai-emulator"):
        wheel = tmp_path / f"{package.replace('-', '_')}-{PROJECT_VERSION}-py3-none-any.whl"
        wheel.write_text(package)
        files = {"direct_url.json": json.dumps({"url": wheel.as_uri()})}
        installed[package] = SimpleNamespace(read_text=files.get)  # as pip installs a package from a file
    monkeypatch.setattr(template, "distribution", installed.__getitem__)
    folder = tmp_path / "own"
    gke_ai("init", folder, "--project", "my-project")
    lines = [(folder / name).read_text() for name in ("requirements.txt", "requirements-emulator.txt")]
    named = re.findall(r"^\./(.*whl)(?:\[.*\])?$", "".join(lines), re.M)
    assert [(folder / name).read_text() for name in named] == [*installed]
    assert "pip wheel" not in capsys.readouterr().out


def test_init_says_how_to_build_the_wheels_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gke_ai("init", tmp_path / "own", "--project", "my-project")
    step, commit = [line for line in capsys.readouterr().out.splitlines() if "pip wheel" in line or "git add" in line]
    root = quote(str(ROOT))
    assert f"--wheel-dir wheels {root} {root}/emulator " in step, "before the commit, which has them"
    assert "git add ." in commit


def test_no_installation_asks_an_index_for_our_names() -> None:
    """On a package index, they can belong to somebody else."""
    texts = {**template.files(["dev"]), **{str(page): page.read_text() for page in tracked("**/*.md")}}
    lines = [line for text in texts.values() for line in text.splitlines()]
    installs = [line for line in lines if re.match(r" *(python3? -m )?pip", line)]
    words = [word.strip("'\"") for line in installs for word in line.split("#")[0].split() if " @ " not in line]
    assert "wheels/*.whl" in words
    assert [word for word in words if re.match(r"gke[-_]ai", word)] == []


def test_a_job_that_signs_in_installs_only_what_is_checked(repository: Path) -> None:
    """By hashes, or from the repository itself. Steps of an action belong to the job that uses it."""
    texts = written(repository)
    assert texts["requirements.lock"] == (ROOT / "requirements/program.lock").read_text()
    action = texts[".github/actions/set-up/action.yml"]
    workflows = [yaml.safe_load(text) for name, text in texts.items() if name.startswith(".github/workflows/")]
    jobs = [yaml.safe_dump(job, width=1000) for workflow in workflows for job in workflow["jobs"].values()]
    signing = [job for job in jobs if "id-token: write" in job]
    assert len(signing) == 3
    assert [job for job in signing if "./.github/actions/set-up" not in job] == []
    installs = re.findall(r"pip install.*", "\n".join([action, *signing]))
    assert len(installs) == 2
    assert [line for line in installs if not re.search("--no-deps (--require-hashes|--no-index) ", line)] == []


def test_the_answers_are_a_configuration(tmp_path: Path) -> None:
    place = ("--project", "my-project", "--region", "europe-west4", "--cluster", "shared")
    gke_ai("init", tmp_path / "own", *place, "--machine", "a3-highgpu-1g", "--team", "vision")
    stack = resolve(read_configuration(tmp_path / "own" / "Pulumi.dev.yaml")["config"])
    cluster, (pool,), (tenant,) = stack.settings.cluster, stack.settings.gpu_pools, stack.settings.tenants
    assert (cluster.name, cluster.mode, cluster.location) == ("shared", "existing", "europe-west4")
    # Google does not offer this machine on demand.
    assert (pool.machine_type, pool.capacity.mode, tenant.name) == ("a3-highgpu-1g", "spot", "vision")
    assert stack.settings.queues is not None
    (queue,) = stack.settings.queues.local_queues
    assert (queue.namespace, queue.cluster_queue) == ("vision", "gpus")


def test_questions_are_asked_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def prompt(text: str, default: str | None, **_: object) -> str:
        asked.append(text)
        return default or "my-project"

    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    gke_ai("init", tmp_path / "own", "--team", "vision")
    assert [text.partition(" ")[0] for text in asked] == ["Id", "Region", "New,", "Machine"]
    assert yaml.safe_load((tmp_path / "own" / "Pulumi.dev.yaml").read_text())["config"]["gcp:project"] == "my-project"


@pytest.mark.parametrize(
    ("option", "value", "path"),
    [
        ("project", "$(touch marker)", "gcp:project"),
        ("project", "x: {a: b}", "gcp:project"),
        ("region", "../..", "gcp:region"),
        ("cluster", "a\nb: c", "gke-ai:cluster.name"),
        ("machine", "a100", "gke-ai:gpuPools[0].machineType"),
        ("machine", "ct5lp-hightpu-4t", "gke-ai:gpuPools[0].machineType"),
        ("team", "kube-system", "gke-ai:tenants[0].name"),
        ("team", "1e3", "gke-ai:tenants[0].name"),
        ("team", "a" * 64, "gke-ai:tenants[0].name"),
        ("team", "\x1b[2J", "gke-ai:tenants[0].name"),
        ("team", "${{ secrets.TOKEN }}", "gke-ai:tenants[0].name"),
    ],
)
def test_hostile_answer_is_refused_before_a_file_is_written(option: str, value: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(Stop) as refused:
        gke_ai("init", tmp_path / "own", "--project", "my-project", f"--{option}={value}")
    assert f"- {path}: " in str(refused.value)
    assert written(tmp_path) == {}


@pytest.mark.parametrize(
    ("prepare", "named"),
    [
        (lambda folder: (folder / "__main__.py").write_text("mine"), "__main__.py"),
        (lambda folder: (folder / "policy").write_text("mine"), "policy/PulumiPolicy.yaml, policy/__main__.py"),
        (lambda folder: (folder / ".gitignore").symlink_to("nowhere"), ".gitignore"),
    ],
)
def test_no_file_is_overwritten(prepare: Callable[[Path], object], named: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    before = written(tmp_path)
    with pytest.raises(Stop, match=f"has {named}[.] Nothing was written"):
        gke_ai("init", tmp_path, "--project", "my-project")
    assert written(tmp_path) == before


def test_all_files_that_exist_are_named_at_once(repository: Path) -> None:
    before = written(repository)
    with pytest.raises(Stop) as refused:
        gke_ai("init", repository, "--project", "my-project")
    assert [name for name in FILES if name not in str(refused.value)] == []
    assert written(repository) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Stop, match="own can't be written: Permission denied"):
        gke_ai("init", tmp_path / "own", "--project", "my-project")


# ------------------------------------------------------------------------------------------------------------- upgrade
def test_a_new_repository_has_nothing_to_upgrade(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(repository)
    capsys.readouterr()
    assert gke_ai("upgrade", repository, "--write") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"gke-ai {PROJECT_VERSION}"
    assert written(repository) == before


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["as recorded", "with the ends of lines of Windows"])
def test_an_unchanged_file_is_shown_and_then_written(
    end: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, earlier = (repository / "requirements.txt").read_text(), "gke-ai==0.3.0\n"
    (repository / "requirements.txt").write_text(earlier, newline=end)
    recorded(repository, **{"requirements.txt": earlier})
    assert gke_ai("upgrade", repository) == 0
    printed = capsys.readouterr().out
    assert f"gke-ai 0.3.0 → {PROJECT_VERSION}\nKueue 0.16.2 → {KUEUE_VERSION}\n" in printed
    assert "requirements.txt: this version writes it.\n--- a/requirements.txt" in printed
    assert "\n-gke-ai==0.3.0\n+# The wheel of" in printed
    assert (repository / "requirements.txt").read_text() == earlier
    assert gke_ai("upgrade", repository, "--write") == 0
    assert (repository / "requirements.txt").read_text() == new
    capsys.readouterr()
    gke_ai("upgrade", repository)
    assert "→" not in capsys.readouterr().out


@pytest.mark.parametrize("change", ["mine\n", None, "LINK"])
def test_changed_file_is_not_written(change: str | None, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = repository / ".gitignore"
    file.unlink()
    if change == "LINK":
        (repository / "other").write_text("earlier\n")
        file.symlink_to("other")
    elif change:
        file.write_text(change)
    recorded(repository, **{".gitignore": "earlier\n"})
    before = written(repository)
    assert gke_ai("upgrade", repository, "--write") == 1
    assert ".gitignore: you changed it, so it stays as it is." in capsys.readouterr().out
    after = written(repository)
    assert after.pop(RECORD) != before.pop(RECORD)
    assert after == before


def test_change_of_an_untouched_file_is_not_reported(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / ".gitignore").write_text("mine\n")
    (repository / "policy" / "__main__.py").unlink()
    recorded(repository)
    assert gke_ai("upgrade", repository, "--write") == 0
    assert re.findall(r"\.gitignore|policy", capsys.readouterr().out) == []


def test_added_file_is_written_and_dropped_one_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(repository, "policy/__main__.py", **{"former.py": "x", "../outside": "x"})
    (repository / "policy" / "__main__.py").unlink()
    for name in ("former.py", "../outside"):
        (repository / name).write_text("x")
    assert gke_ai("upgrade", repository, "--write") == 1
    printed = capsys.readouterr().out
    assert "former.py: this version has it no more. Delete it." in printed
    assert "outside" not in printed
    assert (repository / "policy" / "__main__.py").exists()


def test_another_stack_comes_into_the_workflows_if_it_is_a_name_of_a_job(repository: Path) -> None:
    (repository / "Pulumi.prod.yaml").write_text((repository / "Pulumi.dev.yaml").read_text())
    assert gke_ai("upgrade", repository, "--write") == 0
    workflows = (repository / ".github" / "workflows").glob("*.yml")
    jobs = {file.stem: yaml.safe_load(file.read_text())["jobs"] for file in workflows}
    assert [(name, job.get("needs")) for name, job in jobs["deploy"].items()] == [("dev", None), ("prod", "dev")]
    for job in (jobs["preview"]["preview"], jobs["drift"]["look"]):
        assert job["strategy"]["matrix"]["stack"] == ["dev", "prod"]
    (repository / "Pulumi.$(x).yaml").write_text("config: {}\n")
    with pytest.raises(Stop, match="names a stack that no workflow can have as a job"):
        gke_ai("upgrade", repository)


def test_renamed_keys_are_named_with_the_new_ones(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = repository / "Pulumi.dev.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"]["gke-ai:gpuPools"][0]["createFirst"] = True
    file.write_text(yaml.safe_dump(content))
    before = written(repository)
    assert gke_ai("upgrade", repository, "--write") == 1
    printed = capsys.readouterr().out
    assert "Pulumi.dev.yaml: gke-ai:gpuPools[0].createFirst: createFirst was renamed." in printed
    assert "Write createBeforeDelete instead." in printed
    assert written(repository) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "is not a repository of gke-ai init"),
        ("{}", "is damaged"),
        ('{"versions": {"gke-ai": 1}, "files": {}}', "is damaged"),
        ("[", "is not valid YAML"),
    ],
)
def test_a_missing_or_damaged_record_is_refused(text: str | None, says: str, repository: Path) -> None:
    (repository / RECORD).unlink()
    if text:
        (repository / RECORD).write_text(text)
    with pytest.raises(Stop, match=says):
        gke_ai("upgrade", repository, "--write")
