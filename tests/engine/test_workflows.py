"""Checks of the workflows beyond actionlint and zizmor: references exist, permissions are minimal, scripts work."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.tests.harness import Project
from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.cli.verbs import gke_ai
from gke_ai.forecast.render.markdown import rehearsal_page
from gke_ai.review.report.page import COMMENT_LIMIT

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".github"
PATHS = sorted(FOLDER.glob("workflows/*.yml"))
WORKFLOWS = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in PATHS}
FILES = [*sorted(FOLDER.glob("actions/*/action.yml")), *PATHS]
STACKS = ["dev", "prod"]
# Those that repositories of manifests copy.
SAMPLES = ROOT / "examples" / "manifests" / ".github" / "workflows"
COPIED = {path.stem: yaml.safe_load(path.read_text()) for path in SAMPLES.iterdir()}
BOTH = WORKFLOWS | COPIED
JOBS = [(f"{name}.{job}", body) for name, workflow in BOTH.items() for job, body in workflow["jobs"].items()]


def steps() -> Iterator[dict[str, Any]]:
    for path in FILES:
        content = yaml.safe_load(path.read_text())
        for job in content.get("jobs", {"": content.get("runs")}).values():
            yield from job["steps"]


def signs_in(job: dict[str, Any]) -> bool:
    return any(step.get("uses", "").endswith("/actions/set-up") for step in job["steps"])


def attests(job: dict[str, Any]) -> bool:
    return any(step.get("uses", "").startswith("actions/attest-build-provenance@") for step in job["steps"])


# -------------------------------------------------------------------------------------------------- what they name
def test_commands_of_steps_exist_in_this_project() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    scripts = [step["run"] for step in steps() if "run" in step]
    scripts.append((ROOT / ".ci" / "run").read_text())
    named = [target for script in scripts for target in re.findall(r"^\s*make ([a-z-]+)", script, re.M)]
    assert named
    assert set(named) <= targets
    modules = {module for script in scripts for module in re.findall(r"python -m ([a-z_.]+)", script)} - {"pip"}
    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module
    for script in scripts:
        for path in re.findall(r"(?:^|\s)(\.ci/\S+|emulator/\S+|requirements\S+)", script):
            assert list(ROOT.glob(path)), path
    for path in re.findall(r"docs/[\w.-]+\.md", "".join(file.read_text() for file in FILES)):
        assert (ROOT / path).exists(), path


def test_options_of_the_commands_exist() -> None:
    commands = [step["run"] for step in steps() if "-m gke_ai" in step.get("run", "")]
    assert len(commands) == 2
    for command in commands:
        verb, *words = re.sub(r" (>|\|\|).*", "", command).partition("-m gke_ai ")[2].split()
        gke_ai.commands[verb].make_context(verb, words)


def test_each_action_is_pinned_to_one_commit_with_its_version_beside_it() -> None:
    for path in FILES:
        for line in path.read_text().splitlines():
            if "uses:" in line and "./.github/actions/" not in line:
                assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), f"{path.name}: {line}"
    used = {step["uses"] for step in steps() if "uses" in step}
    assert len({name.partition("@")[0] for name in used}) == len(used)


def test_pulumi_has_the_version_that_the_tests_use() -> None:
    (stated,) = {step["with"]["pulumi-version"] for step in steps() if "pulumi-version" in step.get("with", {})}
    assert f"\npulumi=={stated} " in (ROOT / "requirements/all.lock").read_text()


def test_every_environment_has_preview_deployment_and_drift_detection() -> None:
    for name in ("preview.preview", "preview.rehearse", "drift.look"):
        assert dict(JOBS)[name]["strategy"]["matrix"]["stack"] == STACKS
    assert list(WORKFLOWS["deploy"]["jobs"]) == STACKS
    for script in (step["run"] for step in steps() if "for stack in" in step.get("run", "")):
        assert set(re.findall(r"for stack in (.*);", script)) == {" ".join(STACKS)}
    for stack in STACKS:
        assert (ROOT / f"Pulumi.{stack}.yaml").exists()
        assert WORKFLOWS["deploy"]["jobs"][stack]["environment"] == stack
        (command,) = (step["run"] for step in WORKFLOWS["deploy"]["jobs"][stack]["steps"] if "run" in step)
        assert f"--stack {stack} " in command
        assert "--policy-pack policy" in command
        assert "--skip-preview" not in command, "its preview is what asks the policies before anything is made"


def test_documented_environments_share_no_project_bucket_key_or_trust() -> None:
    """Roles on a project reach all that is in it: with one project for both, a job of dev could change prod."""
    page = (ROOT / "docs" / "github.md").read_text()
    commands = "".join(re.findall(r"^```\n(.*?)^```", page, re.M | re.S))
    assert "STACK=dev PROJECT=" in commands
    assert "for stack in" not in commands, "each environment is set up by itself"
    assert "assertion.environment in ['$STACK', '$STACK-preview']" in commands
    for name in ("gs://$PROJECT-pulumi", "--project=$PROJECT", "gcpkms://projects/$PROJECT/", "Pulumi.$STACK.yaml"):
        assert name in page


# --------------------------------------------------------------------------------------------------- who may do what
@pytest.mark.parametrize("job", [job for _, job in JOBS], ids=[name for name, _ in JOBS])
def test_jobs_have_only_the_permissions_that_they_need(job: dict[str, Any]) -> None:
    granted = job["permissions"]
    assert (granted.get("id-token") == "write") == (signs_in(job) or attests(job))
    assert (granted.get("attestations") == "write") == attests(job)
    assert not signs_in(job) or "environment" in job, "Google Cloud trusts an environment, not the whole repository"
    assert not attests(job) or len([step for step in job["steps"] if "uses" in step]) == 1, "it checks nothing out"
    writes = {scope for scope, right in granted.items() if right == "write"} - {"id-token", "attestations"}
    assert not writes or not any("uses" in step for step in job["steps"])
    assert job["timeout-minutes"] <= 180


def test_a_fork_gets_no_credentials_can_only_write_the_artifact_and_never_runs_code_with_a_token() -> None:
    assert "head.repo.full_name == github.repository" in WORKFLOWS["preview"]["jobs"]["preview"]["if"]
    assert all("pull_request_target" not in path.read_text() for path in FILES)
    rehearse, comment = COPIED["rehearse"], COPIED["comment"]
    assert rehearse["jobs"]["rehearse"]["permissions"] == {"contents": "read"}
    assert comment[True] == {"workflow_run": {"workflows": [rehearse["name"]], "types": ["completed"]}}
    assert all("uses" not in step for step in comment["jobs"]["comment"]["steps"])
    assert comment["permissions"] == rehearse["permissions"] == {}


def test_updates_are_not_canceled_and_prod_follows_dev() -> None:
    groups = [job["concurrency"] for job in WORKFLOWS["deploy"]["jobs"].values()]
    assert [group["cancel-in-progress"] for group in groups] == [False] * len(STACKS)
    assert len({group["group"] for group in groups}) == len(STACKS)
    assert WORKFLOWS["deploy"]["jobs"]["prod"]["needs"] == "dev"


def test_required_check_always_reports_and_fails_with_the_preview() -> None:
    job = WORKFLOWS["preview"]["jobs"]["previews"]
    assert "matrix" not in job["name"], "skipped, it would report under a name that no rule asks for"
    assert (job["needs"], job["if"]) == ("preview", "${{ always() }}")
    assert f"`{job['name']}`" in (ROOT / "docs" / "github.md").read_text()
    (step,) = job["steps"]
    bash = ["bash", "-eo", "pipefail", "-c", step["run"]]
    for result, passes in {"success": True, "skipped": True, "failure": False, "cancelled": False}.items():
        assert (subprocess.run(bash, env={"PREVIEWED": result}, timeout=30).returncode == 0) == passes, result


# ------------------------------------------------------------------------------------- their scripts, on a fake gh
GH = """\
#!{python}
import json, os, pathlib, sys
words, state = sys.argv[1:], pathlib.Path({state!r})
known = json.loads(state.read_text())
def body(file): return pathlib.Path(file).read_text()
known["calls"].append(words[:3])
if words[:2] == ["run", "download"]:
    name, folder = words[words.index("--name") + 1], pathlib.Path(words[words.index("--dir") + 1])
    if name not in known["artifacts"]: sys.exit("no artifact matches any of the names or patterns provided")
    folder.mkdir(); file, text = folder / known["file"], known["artifacts"][name]
    file.symlink_to(text[5:]) if text.startswith("LINK ") else file.write_bytes(text.encode())
elif words[:3] == ["api", "--method", "GET"]:
    fields = dict(words[n + 1].split("=", 1) for n, word in enumerate(words) if word == "--field")
    for pull in known["pulls"]:
        open_there = fields["state"] == "open" and fields["head"] == pull["head"]
        if open_there and os.environ["SHA"] == pull["sha"]: print(pull["number"])
elif words[0] == "api" and "--jq" in words:
    assert "--paginate" in words and os.environ["MARK"]
    for comment in known["comments"]:
        if comment["body"].startswith(os.environ["MARK"]): print(comment["id"])
elif words[:3] == ["api", "--method", "PATCH"]:
    (comment,) = (comment for comment in known["comments"] if str(comment["id"]) == words[3].rpartition("/")[2])
    comment["body"] = body(words[words.index("--field") + 1].partition("=@")[2])
elif words[0] == "api":
    text = body(words[words.index("--field") + 1].partition("=@")[2])
    known["comments"].append(dict(id=len(known["comments"]) + 1, body=text))
elif words[:2] == ["issue", "list"]:
    for issue in known["issues"]:
        if issue["open"] and issue["title"] == os.environ["TITLE"]: print(issue["number"])
elif words[:2] == ["issue", "create"]:
    title, text = words[words.index("--title") + 1], body(words[words.index("--body-file") + 1])
    known["issues"].append(dict(number=len(known["issues"]) + 1, title=title, body=text, open=True))
elif words[:2] in (["issue", "edit"], ["issue", "close"]):
    (issue,) = (issue for issue in known["issues"] if str(issue["number"]) == words[2])
    if words[1] == "close": issue["open"] = False
    else: issue["body"] = body(words[words.index("--body-file") + 1])
else:
    sys.exit("unknown to this gh: " + " ".join(words))
state.write_text(json.dumps(known))
"""


@dataclass(frozen=True)
class Hub:
    """A fake of GitHub's CLI for one repository."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "github.json"

    def known(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.state.read_text())
        return content

    def run(self, job: str, artifacts: dict[str, str], file: str, **more: str) -> None:
        """Runs the only script of a job as a runner's shell does, after a run with these artifacts."""
        known = {"comments": [], "issues": [], "pulls": []} | (self.known() if self.state.exists() else {})
        self.state.write_text(json.dumps({**known, "artifacts": artifacts, "file": file, "calls": []}))
        (step,) = dict(JOBS)[job]["steps"]
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "gh").write_text(GH.format(python=sys.executable, state=str(self.state)))
        (programs / "gh").chmod(0o755)
        work = self.folder / f"work{len(list(self.folder.iterdir()))}"
        work.mkdir()
        env = {name: text for name, text in step["env"].items() if "${{" not in text}
        env |= {"GITHUB_RUN_ID": "1", "GH_REPO": "example/repo", "RUN": "https://example.com/run", "NUMBER": "7"}
        env |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(bash, cwd=work, env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_previews_and_rehearsals_are_written_into_one_comment_and_those_of_others_stay(hub: Hub) -> None:
    hub.state.write_text(json.dumps({"comments": [{"id": 1, "body": "mine"}]}))
    pages = {"report-dev": "dev as it is\n", "report-prod": "prod as it is\n", "rehearsal-prod": "evicts 2 runs\n"}
    hub.run("preview.comment", pages, "report.md")
    _, first = hub.known()["comments"]
    places = [first["body"].index(text) for text in ("dev as it is", "evicts 2 runs", "prod as it is")]
    assert places == sorted(places)
    hub.run("preview.comment", {"report-dev": "dev anew\n"}, "report.md")
    others, edited = hub.known()["comments"]
    assert (others["body"], edited["id"]) == ("mine", first["id"])
    assert "dev anew" in edited["body"]
    assert "as it is" not in edited["body"]
    assert "# prod\nThere is no preview: [the run](https://example.com/run)" in edited["body"]
    hub.run("preview.comment", {}, "report.md")
    assert "# dev" in hub.known()["comments"][1]["body"]


FORK = {"head": "stranger:change", "sha": "abc", "number": 7}


def commented(hub: Hub, rehearsal: str | None, pulls: list[dict[str, Any]], **more: str) -> list[str]:
    """The comments after the workflow of a repository of manifests, whose rehearsal left this artifact."""
    comments = hub.known()["comments"] if hub.state.exists() else []
    hub.state.write_text(json.dumps({"comments": comments, "pulls": pulls}))
    place = {"HEAD": "stranger:change", "SHA": "abc", "RUN_ID": "1", "CONCLUSION": "success"}
    hub.run("comment.comment", {} if rehearsal is None else {"rehearsal": rehearsal}, "rehearsal.md", **place | more)
    return [comment["body"] for comment in hub.known()["comments"]]


def test_a_rehearsal_of_manifests_is_written_into_one_comment_that_notifies_nobody(hub: Hub) -> None:
    (first,) = commented(hub, "**evicts 2 runs** @everybody\n", [FORK])
    mark, disclaimer, empty, *block = first.splitlines()
    run = "[The run](https://example.com/run)"
    assert disclaimer.startswith(f"{run} of the pull request's own workflow wrote this. Nobody")
    assert (mark[:4], empty) == ("<!--", "")
    assert [line for line in block if line] == ["````", f"**evicts 2 runs** @{GAP}everybody", "````"]
    (edited,) = commented(hub, None, [FORK])
    assert "No manifest changes that decides in the queue." in edited
    (failed,) = commented(hub, None, [FORK], CONCLUSION="failure")
    assert "There is no rehearsal." in failed


GAP = "\u200b"
HOSTILE = {
    "comment": "Approved by the bot\n<!--",
    "mention": "@org/team @somebody",
    "entities": "&#64;org/team &#x40;somebody &commat;team",
    "fence": "```\n````\nApproved\n`````\n~~~~\nApproved\n",
    "backticks": "`" * 70_000,
    "mentions": "@" * 60_000,
    "characters": "é" * 70_000 + "\n````\nApproved",
    "lines": "\r````\rApproved\n\n````\n# Approved",
    "large": "Approved\n" * 400_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_result_stays_a_block_of_code_after_the_disclaimer(hub: Hub, name: str) -> None:
    (comment,) = commented(hub, HOSTILE[name], [FORK])
    before, inside, after = re.split(r"(?:^|[\r\n])````(?:[\r\n]|$)", comment)
    assert "Nobody has approved or checked it." in before
    assert "pproved by" not in before
    assert after == ""
    assert "```" not in inside, "nothing ends the block, or begins another one"
    assert not re.search("[@&](?!\u200b)", inside)
    assert len(comment) < COMMENT_LIMIT


def test_a_result_that_is_a_link_is_not_read(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token")
    (comment,) = commented(hub, f"LINK {tmp_path / 'secret'}", [FORK])
    assert "token" not in comment


@pytest.mark.parametrize("pulls", [[], [{**FORK, "sha": "newer"}], [{**FORK, "head": "somebody:change"}]])
def test_no_comment_is_written_on_another_pull_request(hub: Hub, pulls: list[dict[str, Any]]) -> None:
    assert commented(hub, "number: 1\n", pulls) == []


def test_the_workflow_states_only_inputs_that_the_action_has() -> None:
    (step,) = (step for step in dict(JOBS)["rehearse.rehearse"]["steps"] if "rehearse@" in step.get("uses", ""))
    repository, _, tag = step["uses"].partition("/.github/")[2].partition("@")
    assert tag == f"v{PROJECT_VERSION}"
    action = yaml.safe_load((FOLDER / repository / "action.yml").read_text())
    required = {name for name, stated in action["inputs"].items() if stated["required"]}
    assert required <= step["with"].keys() <= action["inputs"].keys()


def test_pages_of_all_stacks_fit_into_one_comment() -> None:
    (command,) = (step["run"] for step in steps() if "gke_ai report" in step.get("run", ""))
    of_report = int(command.split("--limit ")[1].split()[0])
    of_rehearsal = inspect.signature(rehearsal_page).parameters["limit"].default
    assert len(STACKS) * (of_report + of_rehearsal) + 500 < COMMENT_LIMIT


def test_a_rehearsal_has_no_credentials_and_says_what_its_snapshot_holds() -> None:
    job = dict(JOBS)["preview.rehearse"]
    assert job["needs"] == "preview", "so it too skips forks"
    assert "needs.preview.result != 'skipped'" in job["if"]
    assert job["permissions"] == {"actions": "read", "contents": "read"}
    assert "environment" not in job
    (command,) = (step["run"] for step in steps() if "gke_ai snapshot" in step.get("run", ""))
    assert "--hash-names" in command
    (kept,) = (step["with"] for step in steps() if step.get("with", {}).get("name", "").startswith("snapshot-"))
    assert kept["retention-days"] == 1
    page = (ROOT / "docs" / "github.md").read_text()
    assert "`snapshot-STACK`" in page
    assert "[snapshots.md](snapshots.md) says what it holds" in page


def test_drift_is_reported_in_one_issue_that_is_closed_afterwards(hub: Hub) -> None:
    def issues(artifacts: dict[str, str], looked: str) -> list[dict[str, Any]]:
        hub.run("drift.tell", artifacts, "drift.txt", LOOKED=looked)
        return list(hub.known()["issues"])

    assert issues({}, "success") == []
    (issue,) = issues({"drift-prod": "~ Cluster\n"}, "failure")
    assert "## prod\n~~~~~\n~ Cluster\n~~~~~" in issue["body"]
    assert "## dev" not in issue["body"]
    (issue,) = issues({"drift-dev": "~ Bucket\n"}, "failure")
    assert "~ Bucket" in issue["body"]
    assert "~ Cluster" not in issue["body"]
    (issue,) = issues({}, "success")
    assert not issue["open"]


def test_drift_contains_only_changes_made_outside_the_program(tmp_path: Path) -> None:
    (command,) = (step["run"] for step in steps() if "--expect-no-changes" in step.get("run", ""))
    words = shlex.split(command.partition("2>&1")[0].replace("\\\n", " ").replace('"$STACK"', "dev"))
    project = Project.create(tmp_path / "sample", tmp_path / "state")
    bucket = "import pulumi_gcp as gcp\ngcp.storage.Bucket('b', name='sample-b', location='US', project='my-project')\n"
    project.write("__main__.py", bucket)
    assert project.up()[0] == 0
    status, output = project.pulumi(*words[1:])
    assert status == 0, output
    (record,) = (project.state / "cloud").glob("*.json")
    drift = json.loads(record.read_text())
    record.write_text(json.dumps({**drift, "inputs": {**drift["inputs"], "labels": {"by": "hand"}}}))
    status, output = project.pulumi(*words[1:])
    assert status != 0
    assert "hand" in output


# ---------------------------------------------------------------------------------------------------- the linters
@pytest.mark.parametrize(
    ("linter", "spoilt", "said"),
    [
        (["actionlint", "-shellcheck=", "-pyflakes="], ("runs-on: ubuntu-24.04", "run-on: ubuntu-24.04"), "run-on"),
        (["zizmor", "--offline", "--no-progress"], ("persist-credentials: false", "fetch-depth: 1"), "artipacked"),
    ],
)
def test_linters_find_their_mistakes(linter: list[str], spoilt: tuple[str, str], said: str, tmp_path: Path) -> None:
    file = tmp_path / ".github" / "workflows" / "ci.yml"
    file.parent.mkdir(parents=True)
    file.write_text((FOLDER / "workflows" / "ci.yml").read_text().replace(*spoilt))
    done = subprocess.run([*linter, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
