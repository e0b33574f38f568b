"""Sections of a configuration in files of their own: what is read, what is refused, and who reads them."""

import json
import os
import subprocess
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from emulator.cloud.store import Store
from emulator.commands import existing, ready
from gke_ai import settings
from gke_ai.catalog import section_files
from gke_ai.catalog.documents import MAX_BYTES
from gke_ai.cli.tools import needed
from gke_ai.forecast.rehearse import prepared, sources
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.upgrades import Upgrade
from gke_ai.forecast.simulate.command import queues_of
from gke_ai.ops.repository.upgrade import mistakes
from gke_ai.settings import BadConfiguration
from gke_ai.settings.model import Settings
from gke_ai.settings.reading import section_types
from gke_ai.settings.schema import schema
from gke_ai.terminal import Stop
from gke_ai.trial import command as trial
from gke_ai.workspace import emulated
from gke_ai.workspace.configuration_file import read_sections, resolve
from gke_ai.workspace.stack import Stack
from tests.support.commands import gke_ai
from tests.support.mistakes import TOKEN, good

PREFIX = section_files.PREFIX
SERVERS: list[dict[str, Any]] = good()["serving"]


def write(path: Path, **sections: object) -> Path:
    """A configuration file in a folder that may not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {"gcp:project": "my-project", **{f"{PREFIX}{key}": value for key, value in sections.items()}}
    path.write_text(yaml.safe_dump({"config": config}))
    return path


def in_files(path: Path, sections: Mapping[str, object]) -> Path:
    """A configuration file of which each section is in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for key, value in sections.items():
        (path.parent / f"{key}.yaml").write_text(yaml.safe_dump(value))
    return write(path, **{key: {"file": f"{key}.yaml"} for key in sections})


def problems(values: Mapping[str, object], folder: Path) -> list[str]:
    with pytest.raises(BadConfiguration) as refused:
        settings.load(values, "my-project", folder=folder)
    return [str(problem) for problem in refused.value.problems]


def test_a_configuration_in_files_is_the_same_as_in_one_and_files_of_teams_are_joined(tmp_path: Path) -> None:
    path = in_files(tmp_path / "Pulumi.dev.yaml", good())
    assert read_sections(path) == {"gcp:project": "my-project", **{f"{PREFIX}{key}": v for key, v in good().items()}}
    values = {key: {"file": f"{key}.yaml"} for key in good()}
    assert settings.load(values, "my-project", folder=tmp_path).settings == settings.load(good(), "my-project").settings
    for text in ("config: [1]", "config: text", "config:", "{}"):
        (tmp_path / "Pulumi.dev.yaml").write_text(text)
        assert read_sections(tmp_path / "Pulumi.dev.yaml") == {}
    for team in ("a", "b"):
        (tmp_path / "teams" / team).mkdir(parents=True)
        (tmp_path / "teams" / team / "serving.yaml").write_text(f"- name: {team}\n")
    files = ["teams/b/serving.yaml", "teams/a/serving.yaml"]
    joined = section_files.read({"serving": {"files": files}}, tmp_path)
    assert joined.values == {"serving": [{"name": "b"}, {"name": "a"}]}


def test_a_mistake_is_named_by_its_file_and_the_path_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(SERVERS))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump([{**SERVERS[0], "name": "second", "gpus": 0}]))
    values = {**good(), "serving": {"files": ["a.yaml", "b.yaml"]}}
    assert problems(values, tmp_path) == ["b.yaml: [0].gpus: 0 is below the minimum, 1. Set it to 1 or more."]
    (tmp_path / "b.yaml").write_text(yaml.safe_dump([{**SERVERS[0], "name": "second", "queue": "nowhere"}]))
    (of_rule,) = problems(values, tmp_path)
    assert of_rule.startswith("b.yaml: [0].queue: ")
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump({**good()["queues"], "localQueue": []}))
    (unknown,) = problems({**good(), "queues": {"file": "queues.yaml"}}, tmp_path)
    assert unknown.startswith("queues.yaml: localQueue: ")
    (tmp_path / "queues.yaml").write_text("[]")
    (shape,) = problems({**good(), "queues": {"file": "queues.yaml"}}, tmp_path)
    assert shape.startswith("queues.yaml: ")
    assert "a mapping" in shape


NO_PATH = "names no YAML files in the folder of the configuration"
NO_PATHS = [
    *("../outside.yaml", "teams/../../outside.yaml", "/etc/hosts.yaml", "~/servers.yaml", ".git/config"),
    *("serving.yaml\n", "\x1b[2J.yaml", f"{'a' * 300}.yaml", "", None, 3, ["good.yaml"]),
]
NO_LISTS_OF_PATHS: list[Any] = ["good.yaml", [], ["good.yaml", 3], ["good.yaml", "good.yaml"]]
OUTSIDE = "is not in the folder of the configuration"


@pytest.mark.parametrize(
    ("stated", "cause"),
    [
        *(({"file": path}, NO_PATH) for path in NO_PATHS),
        *(({"files": paths}, NO_PATH) for paths in NO_LISTS_OF_PATHS),
        *(({"file": "good.yaml", **more}, NO_PATH) for more in ({"more": 1}, {"files": ["good.yaml"]})),
        *(({"file": path}, f"{path} {OUTSIDE}") for path in ("missing.yaml", "link.yaml", "elsewhere/outside.yaml")),
        ({"file": "loop.yaml"}, "loop.yaml "),
        *(({"file": path}, f"{path} is not a file of at most 1 MiB") for path in ("folder.yaml", "large.yaml")),
        ({"file": "broken.yaml"}, "broken.yaml is not valid YAML: line 3"),
        *(({"file": path}, f"{path} has no list or mapping") for path in ("empty.yaml", "text.yaml", "two.yaml")),
        ({"files": ["good.yaml", "mapping.yaml"]}, "mapping.yaml has no list"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_no_section_in_a_file_is_refused_alone(stated: dict[str, Any], cause: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "folder.yaml").mkdir(parents=True)
    outside = tmp_path / "outside.yaml"
    outside.write_text("- name: somebody-elses\n")
    (folder / "link.yaml").symlink_to(outside)
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "loop.yaml").symlink_to("loop.yaml")
    texts = {"good": yaml.safe_dump(SERVERS), "mapping": "{}", "text": "text", "empty": "# a\n", "two": "[]\n---\n[]"}
    for name, text in {**texts, "broken": "[\n{", "large": " " * (MAX_BYTES + 1)}.items():
        (folder / f"{name}.yaml").write_text(text)
    (problem,) = problems({**good(), "serving": stated}, folder)
    assert problem.startswith(f"{PREFIX}serving: ")
    assert cause in problem
    assert "somebody-elses" not in problem


def test_tokens_keys_with_a_plain_value_and_waivers_are_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "serving.yaml").write_text(yaml.safe_dump([{**SERVERS[0], "arguments": [f"--token={TOKEN}"]}]))
    (problem,) = problems({**good(), "serving": {"file": "serving.yaml"}}, tmp_path)
    assert problem.startswith("serving.yaml: [0].arguments")
    assert TOKEN not in problem
    (tmp_path / "token.yaml").write_text(f"[{TOKEN}]")
    with pytest.raises(BadConfiguration, match="contains the token in plain text"):
        resolve({"gcp:project": "my-project", f"{PREFIX}hfToken": {"file": "token.yaml"}}, tmp_path)
    (tmp_path / "list.yaml").write_text("[mandatory]")
    (tmp_path / "waivers.yaml").write_text("[{policy: no-privileged-pods, resource: '*', reason: because}]")
    (problem,) = problems({**good(), "policies": {"file": "list.yaml"}}, tmp_path)
    assert problem.startswith("list.yaml: ")
    (problem,) = problems({**good(), "waivers": {"file": "waivers.yaml"}}, tmp_path)
    assert problem.startswith(f"{PREFIX}waivers: ")


def test_the_schema_accepts_the_sections_that_the_program_reads_from_files() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    for field in Settings.model_fields.values():
        is_section = bool(section_types(field.annotation)) and field.alias != section_files.WITHOUT_FILE
        is_list = is_section and str(field.annotation).startswith("list[")
        forms = {"file": "teams/a.yaml"}, {"files": ["a.yaml", "b.yml"]}
        accepted = [validator.is_valid({"config": {f"{PREFIX}{field.alias}": form}}) for form in forms]
        assert accepted == [is_section, is_list], field.alias
    single: list[dict[str, Any]] = [{"file": "../a.yaml"}, {"files": []}, {"file": "a.txt"}]
    for wrong in (*single, {"file": "a.yaml", "files": ["b.yaml"]}):
        assert not validator.is_valid({"config": {f"{PREFIX}serving": wrong}})


def large(path: Path) -> Path:
    """A configuration that is too large for Pulumi."""
    env = {f"V{number}": "x" * 1000 for number in range(140)}
    return write(path, **{**good(), "training": [{"kind": "job", "name": "large", "env": env}]})


def test_the_size_is_that_of_the_environment_variable() -> None:
    """Pulumi's engine and its official host write Go's JSON: a text in a text, with three characters escaped."""
    rest = len('PULUMI_CONFIG={"gke-ai:x":""}\0')
    assert section_files.oversize({"gke-ai:x": "x" * (section_files.LIMIT - rest)}) == []
    ((path, cause, _),) = section_files.oversize({"gke-ai:x": "x" * (section_files.LIMIT - rest + 1)})
    assert (path, "131,073 bytes" in cause) == ("gke-ai:x", True)
    quoted = len('{"gke-ai:x":"[\\"\\"]"}') + len("PULUMI_CONFIG=") + 1
    assert section_files.oversize({"gke-ai:x": ["&" * ((section_files.LIMIT - quoted) // 7)]}) == []
    assert section_files.oversize({"gke-ai:x": ["&" * ((section_files.LIMIT - quoted) // 7 + 1)]})


@pytest.mark.parametrize("verb", ["up", "preview", "policies", "report", "render folder --for kubectl"])
def test_a_verb_that_deploys_or_previews_refuses_what_is_too_large_before_pulumi_starts(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GKE_AI_STATE", raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(Stop) as stopped:
        gke_ai(*verb.split(), "--config", large(tmp_path / "large.yaml"))
    assert str(stopped.value).startswith("large.yaml: gke-ai:training: the configuration has 14")
    assert "131,072" in str(stopped.value)
    assert "gke-ai:training: {file: training.yaml}" in str(stopped.value)


def test_checks_refuse_what_is_too_large(tmp_path: Path) -> None:
    file = large(tmp_path / "Pulumi.dev.yaml")
    with pytest.raises(BadConfiguration, match="Move this section to a file"):
        resolve(yaml.safe_load(file.read_text())["config"])
    assert any("Move this section to a file" in mistake for mistake in mistakes(tmp_path, ["dev"]))
    with pytest.raises(Stop, match="Move this section to a file"):
        sources.changed("dev", file)


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator without resources."""

    def answer(verb: str, file: str) -> str:
        assert verb == "ready"
        keys = section_files.read(yaml.safe_load(Path(file).read_text())["config"], section_files.folder_of(Path(file)))
        return json.dumps(ready.answer(keys.values))

    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(existing, "Store", lambda: Store(tmp_path / "cloud"))
    monkeypatch.setattr(emulated, "emulator", answer)


@pytest.mark.usefixtures("emulator")
def test_the_copy_of_the_emulator_has_the_files_and_outlives_them(tmp_path: Path) -> None:
    source = in_files(tmp_path / "team" / "mine.yaml", good())
    assert read_sections(emulated.prepare("mine", source, deploying=True).file)[f"{PREFIX}serving"] == SERVERS
    in_files(tmp_path / "other" / "mine.yaml", {**good(), "serving": []})
    emulated.prepare("other", tmp_path / "other" / "mine.yaml")
    (tmp_path / "team" / "serving.yaml").write_text("[")
    with pytest.raises(Stop, match=r"serving\.yaml is not valid YAML"):
        emulated.prepare("mine", None, deploying=True)
    assert read_sections(emulated.prepare("mine", None).file)[f"{PREFIX}serving"] == SERVERS
    (tmp_path / "team" / "serving.yaml").unlink()
    source.unlink()
    assert read_sections(emulated.prepare("mine", None).file)[f"{PREFIX}serving"] == SERVERS
    # A cluster that a file names is missing.
    cluster = {"name": "team", "mode": "existing", "location": "us-east5"}
    with pytest.raises(Stop, match="existing create team"):
        emulated.prepare("mine", in_files(tmp_path / "mine.yaml", {"cluster": cluster}), deploying=True)


def test_pulumi_passes_the_folder_to_the_program_and_one_that_looks_like_a_copy_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(section_files.FOLDER, "before")
    Stack("mine", tmp_path / "mine.yaml").command("preview", configured=True)
    assert os.environ[section_files.FOLDER] == str(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "serving.yaml").write_text("- name: somebody-elses\n")
    config = write(tmp_path / "own" / "Pulumi.dev.yaml", serving={"file": "serving.yaml"})
    config.with_suffix(".sections").symlink_to(tmp_path / "outside")
    with pytest.raises(Stop, match=OUTSIDE):
        read_sections(config)


def test_a_rehearsal_reads_the_files_of_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path / "own", check=True, capture_output=True)

    monkeypatch.setattr(sources, "ROOT", tmp_path / "own")
    file = in_files(tmp_path / "own" / "Pulumi.prod.yaml", {"serving": [1], "training": [1]})
    (file.parent / "teams").mkdir()
    (file.parent / "teams" / "batch.yaml").write_text("[1]")
    write(file, **{key: {"file": f"{key}.yaml"} for key in ("serving", "training")}, batch={"file": "teams/batch.yaml"})
    for words in (("init", "--initial-branch=main"), ("add", "."), ("commit", "--message=base")):
        git(*words)
    git("switch", "--create=change")
    (file.parent / "serving.yaml").write_text("[2]")
    (file.parent / "teams" / "batch.yaml").write_text("[2]")
    git("commit", "--all", "--message=change")
    base = sources.base("prod", None, sources.changed("prod", None), tmp_path / "folder")
    sections = {f"{PREFIX}{key}": [1] for key in ("batch", "serving", "training")}
    assert read_sections(base) == {"gcp:project": "my-project", **sections}
    assert sources.differing_keys(base, file) == ["batch", "serving"]

    scratch = Scratch(tmp_path / "scratch")
    copies = [scratch.copy(name, side, {f"{PREFIX}training": [3]}) for name, side in (("base", base), ("change", file))]
    assert read_sections(copies[0]) == {**read_sections(base), f"{PREFIX}training": [3]}
    assert len({prepared.key("prod", side, None) for side in copies}) == 2


def test_every_reader_of_a_section_reads_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = {**good()["queues"], "jobsetVersion": "0.11.1"}
    file = in_files(tmp_path / "Pulumi.dev.yaml", {**good(), "queues": queues})
    assert queues_of(file).by_local
    assert list(mistakes(tmp_path, ["dev"])) == []
    (tmp_path / "copies").mkdir()
    before, after = Upgrade(("jobset",)).configurations(file, tmp_path / "copies")
    assert {"jobsetVersion" in read_sections(side)[f"{PREFIX}queues"] for side in (before, after)} == {True, False}
    assert read_sections(after)[f"{PREFIX}serving"] == SERVERS
    assert {"kueue", "helm"} <= set(needed("up", {"GKE_AI_CONFIG": str(file)}))
    monkeypatch.setattr(trial, "folder", lambda: tmp_path / "trials")
    options = trial.Options(file, Decimal(1), file, 1, file, print, "acme")
    written = read_sections(trial.written_configuration(options))
    assert written[f"{PREFIX}serving"] == SERVERS
    assert "protect" not in written[f"{PREFIX}cluster"]
