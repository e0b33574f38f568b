"""The command `gke-ai`: its help, its options, and what it does outside the emulator."""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.cli import options
from gke_ai.cli.verbs import gke_ai as every_verb
from gke_ai.ops.lifecycle import deploy
from gke_ai.ops.status import command as status
from gke_ai.review.gitops.objects import MissingSecret
from gke_ai.terminal import Stop
from gke_ai.workspace import stack as stacks
from gke_ai.workspace.stack import Context, Stack
from tests.support.commands import gke_ai
from tests.support.local_server import answering
from tests.support.repository import ROOT

VERBS = every_verb.commands


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """`gke-ai WORDS` in a process of its own."""
    command = [sys.executable, "-m", "gke_ai", *words]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside the emulator."""
    for name in ("GKE_AI_STATE", "GKE_AI_ROOT"):
        monkeypatch.delenv(name, raising=False)


# ---------------------------------------------------------------------------------------------------------------- help
def test_the_help_lists_every_verb_in_a_section_with_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    gke_ai("--help")
    text = capsys.readouterr().out
    assert [name for name in VERBS if f"\n  {name} " not in text] == []
    assert sorted(name for names in every_verb.sections.values() for name in names) == sorted(VERBS)
    assert "Exit codes: 0 done" in text
    printed = " ".join(text.split())
    assert "..." not in printed.replace("[ARGS]...", "")
    assert [verb for verb in VERBS.values() if " ".join(verb.get_short_help_str(1000).split()) not in printed] == []


def test_a_shell_gets_its_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GKE_AI_COMPLETE", "zsh_source")
    assert "#compdef gke-ai" in run().stdout


@pytest.mark.parametrize("name", VERBS)
def test_each_example_of_a_verb_is_a_command_that_it_takes(name: str) -> None:
    verb = VERBS[name]
    assert verb.epilog
    examples = [line.strip() for line in verb.epilog.splitlines() if "gke-ai" in line]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0].partition(" > ")[0], comments=True)
        assert words[:2] == ["gke-ai", name]
        with click.Context(verb, info_name=name) as context:
            verb.parse_args(context, words[2:])


@pytest.mark.parametrize("name", VERBS)
def test_each_option_says_what_it_is(name: str) -> None:
    shown = [param for param in VERBS[name].params if isinstance(param, click.Option) and not param.hidden]
    assert [param.name for param in shown if not param.help] == []


def test_the_help_imports_no_pulumi_and_no_kubernetes() -> None:
    slow = ("pulumi", "kubernetes", "pydantic")
    code = f"import sys; from gke_ai.cli import verbs; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"


# ----------------------------------------------------------------------------------------------------------- exit codes
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("statsu",), 2, "No such command 'statsu'"),
        (("status", "--al"), 2, "No such option"),
        (("when",), 2, "Name either the file of a run, or a server"),
        (("simulate", "--begin", "tomorrow"), 2, "Invalid value for '--begin'"),
        (("simulate", "--config", "nowhere.yaml"), 1, "There is no configuration"),
    ],
)
def test_the_exit_code_says_whether_the_command_was_wrong(words: tuple[str, ...], code: int, says: str) -> None:
    done = run(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert says in done.stderr


# -------------------------------------------------------------------------------------------------- stacks and clusters
@pytest.mark.parametrize(
    ("stack", "config", "name"),
    [
        ("", None, "dev"),
        ("prod", None, "prod"),
        ("", "Pulumi.prod.yaml", "prod"),
        ("", "examples/flex-start-tpu.yaml", "flex-start-tpu"),
        ("mine", "examples/flex-start-tpu.yaml", "mine"),
    ],
)
def test_the_stack_is_the_stated_one_or_that_of_the_configuration(stack: str, config: str | None, name: str) -> None:
    assert options.name_of(stack, Path(config) if config else None) == name


@pytest.mark.parametrize("name", ["$(touch x)", "a b", "x;y", "--help\n", "`x`", "a'b"])
def test_a_printed_command_has_the_names_of_strangers_as_words(name: str, tmp_path: Path) -> None:
    context = Context(name, kubeconfig=tmp_path / name, namespace=name)
    cluster = ["--context", name, "--kubeconfig", str(tmp_path / name)]
    assert shlex.split(context.next("status")) == ["gke-ai", "status", *cluster, "--namespace", name]
    assert shlex.split(context.kubectl)[1:] == cluster or shlex.split(context.kubectl)[2:] == cluster
    assert shlex.split(MissingSecret("a", name, (name,)).command)[-2:] == [name, f"--from-literal={name}=VALUE"]
    for stack, config in ((name, None), ("", tmp_path / f"Pulumi.{name}.yaml")):
        with pytest.raises(Stop, match="is not the name of a stack"):
            options.name_of(stack, config)


@pytest.mark.usefixtures("google")
def test_a_variable_sets_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(status, "show", lambda *arguments: shown.append(arguments))
    monkeypatch.setenv("GKE_AI_STACK", "prod")
    monkeypatch.setenv("GKE_AI_ALL", "1")
    gke_ai("status", "--queue", "team")
    assert shown == [(Stack("prod"), status.Selection(True, "", "team"), None)]
    monkeypatch.setenv("GKE_AI_BLOCKS", "blocks.svg")
    gke_ai("status")
    assert shown[1] == (Stack("prod"), status.Selection(True), Path("blocks.svg").absolute())
    with pytest.raises(click.UsageError, match="--watch writes no file, so --blocks has no effect"):
        gke_ai("status", "--watch")


@pytest.mark.usefixtures("google")
def test_the_emulator_runs_the_command_again_with_the_tools_of_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(program: Path, words: list[str]) -> None:
        raise Stop(f"{program} {' '.join(words[1:])}")

    monkeypatch.setattr("os.execv", execute)
    monkeypatch.setenv("GKE_AI_PURPOSE", "")
    monkeypatch.setattr(sys, "argv", ["gke-ai", "when", "run.yaml", "--interval", "--stack", "prod"])
    with pytest.raises(Stop) as ended:
        gke_ai(*sys.argv[1:])
    tools = "kubernetes,etcd,kwok,helm,kueue,jobset,stack,kueue-simulation"
    assert str(ended.value) == f"{ROOT}/emulator/run --tools {tools} gke-ai when run.yaml --interval --stack prod"
    for upgrade, tools in (("pool/a", "stack"), ("kueue", "stack,kueue-0.18.4")):
        monkeypatch.setattr(sys, "argv", ["gke-ai", "rehearse", "--stack", "nowhere", "--upgrade", upgrade])
        with pytest.raises(Stop, match=f"--tools {tools} gke-ai rehearse"):
            gke_ai(*sys.argv[1:])
    monkeypatch.setattr(sys, "argv", ["gke-ai", "up", "--emulator", "--config", str(ROOT / "Pulumi.dev.yaml")])
    with pytest.raises(Stop, match=r"--tools stack,.*kueue gke-ai up --emulator --config"):
        gke_ai(*sys.argv[1:])


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize(("run", "version"), [("nowhere", PROJECT_VERSION), ("run", "0.3.0")])
def test_installed_emulator_has_the_commands_version(run: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "INSTALLED", True)
    monkeypatch.setattr(options, "RUN", ROOT / "emulator" / run)
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    with pytest.raises(Stop, match=f"pip install wheels/gke_ai_emulator-{PROJECT_VERSION}-py3"):
        gke_ai("up", "--emulator")


@pytest.mark.usefixtures("google")
def test_a_context_goes_alone_and_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Stop, match=r"no usable context team: .* List the contexts:  kubectl config get-contexts"):
        gke_ai("status", "--context", "team")
    shown: list[Stack] = []
    monkeypatch.setattr(status, "show", lambda stack, *_: shown.append(stack))
    gke_ai("status", "--context", "team")
    monkeypatch.setenv("GKE_AI_STACK", "prod")
    gke_ai("status", "--context", "team")
    assert shown == [Context("team"), Context("team")]
    for verb in ("status", "doctor", "snapshot"):
        with pytest.raises(click.UsageError, match="so --stack has no effect"):
            gke_ai(verb, "--context", "team", "--stack", "prod")


NODE_INFO = {"kubeletVersion": "v1.36.3-gke.1", "osImage": "Ubuntu 24.04"}
NODE = {
    "metadata": {"name": "gpu-1", "labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}},
    "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": NODE_INFO},
}
LABELS = {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
NO_CONTAINERS: dict[str, Any] = {"spec": {"containers": []}}
SUSPENDED = {"spec": {"suspend": True, "template": NO_CONTAINERS}, "status": {}}
JOB = {"metadata": {"name": "finetune", "namespace": "team", **LABELS}, **SUSPENDED}
REPLICAS = {"replicas": 2, "template": {"metadata": LABELS, **NO_CONTAINERS}}
SERVER = {"metadata": {"name": "gemma", "namespace": "team"}, "spec": REPLICAS}
QUEUED = {"spec": {"queueName": "gpus"}, "status": {"conditions": []}}
LISTS = {
    "/api/v1/nodes": [NODE],
    "/apis/batch/v1/jobs": [JOB],
    "/apis/apps/v1/deployments": [SERVER],
    "/apis/kueue.x-k8s.io/v1beta2/workloads": [
        {"metadata": {"name": f"job-{number}", "namespace": "team", "uid": f"{number}"}, **QUEUED}
        for number in range(status.ROWS + 1)
    ],
}


def answer(method: str, path: str, _: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The API of a cluster with Kueue of another version, without JobSet, with a node and a waiting Job."""
    if method == "POST":  # whether the user may list something: nodes are refused
        return 201, {"status": {"allowed": body["spec"]["resourceAttributes"]["resource"] != "nodes"}}
    if path == "/version":
        return 200, {"gitVersion": "v1.36.4-gke.1"}
    if path == "/apis/kueue.x-k8s.io":
        return 200, {"versions": [{"version": "v1alpha1"}]}
    if path not in LISTS and ("jobset" in path or "kueue.x-k8s.io" in path or "gateway" in path):
        return 404, {"message": "not found"}
    return 200, {"items": LISTS.get(path, [])}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """A kubeconfig whose context `team` is a cluster of which no stack is known."""
    request.getfixturevalue("google")
    with answering(answer) as address:
        kubeconfig = {
            "current-context": "other",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "team", "context": {"cluster": "c", "user": "u"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield


def test_a_shortened_status_of_the_emulator_names_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path))
    installed = "gke-ai status --emulator --stack dev --all  or --queue NAME"
    for is_installed, command in ((False, "make status STACK=dev ALL=1  or QUEUE=NAME"), (True, installed)):
        monkeypatch.setattr(stacks, "INSTALLED", is_installed)
        hint = next(status.next_steps(Stack("dev"), status.ClusterObjects(), shortened=True))
        assert hint == f"list everything, or the workloads of a queue:  {command}"


@pytest.mark.usefixtures("cluster")
def test_a_cluster_alone_needs_no_pulumi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Stack, "pulumi", lambda *_, **__: pytest.fail("Pulumi was run"))
    gke_ai("status", "--context", "team")
    printed = capsys.readouterr().out
    assert "team/finetune" in printed
    assert "show the status again:  gke-ai status --context team" in printed
    assert "delete the stack" not in printed
    # A hint without the context would change the cluster that is current in the kubeconfig.
    assert "free some:  kubectl --context team -n team scale deployment/gemma --replicas=1" in printed
    assert "gke-ai status --context team --all  or --queue NAME" in printed
    gke_ai("runs", "--context", "team")
    assert "team/finetune  Job   Suspended" in capsys.readouterr().out
    gke_ai("logs", "finetune", "--context", "team")
    assert "Job team/finetune: Suspended, 0 of 1 pods run" in capsys.readouterr().out
    gke_ai("snapshot", "--context", "team")
    assert json.loads(capsys.readouterr().out)["stack"] == "team"


@pytest.mark.usefixtures("cluster")
def test_the_doctor_of_a_cluster_names_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert gke_ai("doctor", "--context", "team") == 1
    printed = capsys.readouterr().out
    for text in (
        *("you may not list nodes of all namespaces", "gke-ai snapshot --role | kubectl --context team apply"),
        *("it serves v1alpha1, and not v1beta2, which gke-ai reads", "JobSet (advice)"),
        *("the node has accelerators and offers none", "kubectl --context team get pods -n kube-system"),
        *("pods there wait for their buckets forever", "2 missing"),
    ):
        assert text in " ".join(printed.split()), text


# -------------------------------------------------------------------------------------------------------- Google Cloud
class Pulumi:
    """A Pulumi CLI that records its commands, and whose stack exists or not."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str, **_: object) -> subprocess.CompletedProcess[str]:
        """Runs a command."""
        self.commands.append(arguments)
        failed = arguments == ("stack", "select") and self.error
        return subprocess.CompletedProcess(arguments, int(bool(failed)), "", self.error)


@pytest.fixture
def pulumi(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Pulumi:
    """Pulumi, with a stack that exists."""
    request.getfixturevalue("google")
    recorder = Pulumi()
    monkeypatch.setattr(Stack, "pulumi", lambda _, *arguments, **named: recorder(*arguments, **named))
    monkeypatch.setattr(Stack, "resources", [])
    monkeypatch.setattr(status, "show", lambda *_: None)
    monkeypatch.setattr("gke_ai.ops.lifecycle.down.down", lambda stack: recorder("destroy", stack.name))
    return recorder


@pytest.mark.parametrize(
    ("config", "words", "options"),
    [("{}", [], set()), ("{}", ["--yes"], {"--yes"}), ("{'gke-ai:policies': mandatory}", [], {"--policy-pack"})],
    ids=["it asks", "it does not ask", "mandatory policies must pass before"],
)
def test_up_shows_a_preview(config: str, words: list[str], options: set[str], pulumi: Pulumi, tmp_path: Path) -> None:
    (tmp_path / "prod.yaml").write_text(f"config: {config}\n")
    gke_ai("up", "--config", tmp_path / "prod.yaml", *words)
    command = pulumi.commands[-1]
    assert command[0] == "up"
    assert {"--yes", "--skip-preview", "--policy-pack"} & {*command} == options


@pytest.mark.parametrize(
    ("error", "says"),
    [("error: no stack named 'prod' found", "pulumi stack init prod"), ("error: not logged in", "not logged in")],
)
def test_a_stack_is_not_created_on_google_cloud(error: str, says: str, pulumi: Pulumi) -> None:
    """Its user chooses the backend and the secrets provider."""
    pulumi.error = error
    with pytest.raises(Stop, match=says):
        gke_ai("up", "--stack", "prod")
    assert pulumi.commands == [("stack", "select")]


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("", False)])
def test_down_asks_and_keeps_the_state(
    answer: str, deleted: bool, pulumi: Pulumi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    try:
        gke_ai("down", "--stack", "prod")
    except click.Abort:
        assert not deleted
    assert (("destroy", "prod") in pulumi.commands) == deleted
    pulumi.commands.clear()
    gke_ai("down", "--stack", "prod", "--yes")
    assert ("destroy", "prod") in pulumi.commands
    deploy.delete(Stack("prod"))
    assert ("stack", "rm") not in [command[:2] for command in pulumi.commands]
