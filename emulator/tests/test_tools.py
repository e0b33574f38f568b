"""Set-up builds each tool once and completely, or reports a remedy; emulator/run adds almost no time."""

import dataclasses
import json
import os
import pwd
import re
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from emulator.machine.paths import CACHE, ROOT
from emulator.machine.progress import Canceled, Progress, Stop, duration, roughly
from emulator.setup import go_build, toolchain
from emulator.setup.go_build import go_version
from emulator.setup.installation import GROUPS, selected
from emulator.setup.toolchain import BY_NAME, NIGHTLY, TOOLS, Edit, Module, Shipped, Tool
from emulator.tests.harness import RUN, Emulator, eventually, run
from gke_ai.catalog.kueue.operators import KUBERAY, TRAINER, Operator
from gke_ai.catalog.versions import EARLIER_JOBSET_VERSION, EARLIER_KUEUE_VERSIONS

REAL_GO = shutil.which("go") or "go"
# A Go that takes a while to build and notes each build; it fails if the module has a file named `broken`.
GO = """#!/bin/sh
case "$*" in
"env GOVERSION") echo "${GO_SAYS:-go1.26.0}" ;;
"mod download -json "*) printf '{"Dir": "%s"}' "$PWD/cached" ;;
"list -deps "*) ;;
"build "*" std") ;;
"build "*)
    if [ -d edited ]; then cp go.mod edited/wait.go "$GO_KEEPS"; fi
    if [ -f broken ]; then
        echo go: downloading example.com/thing v1.2.3
        echo example.com/thing/part
        cat broken
        exit 1
    fi
    while [ "$1" != -o ]; do shift; done
    printf half >"$2/built"
    echo built >>builds
    sleep "${GO_TAKES:-0}"
    printf whole >"$2/built"
    ;;
esac
"""
INSTALL = """
import sys
from pathlib import Path
from typing import Any
from emulator.setup import go_build, toolchain
from emulator.machine.progress import Progress
toolchain.MODULES = Path(sys.argv[1])
packages = {"thing": "example.com/thing/cmd/built"}
tool = toolchain.Tool("thing", toolchain.Module("thing"), "example.com/thing", packages, seconds=1)
print(go_build.install([tool], Path(sys.argv[2]), Progress().step("thing")))
"""


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool with a module in a folder of the test, and a Go that needs no compiler."""
    source = tmp_path / "tools" / "thing"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module x\n\nrequire (\n\texample.com/thing v1.2.3 // indirect\n)\n")
    (source / "go.sum").write_text("example.com/thing v1.2.3 h1:sum\n")
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(toolchain, "MODULES", source.parent)
    packages = {"thing": "example.com/thing/cmd/built"}
    return Tool("thing", Module("thing"), "example.com/thing", packages, seconds=1)


def install(tool: Tool, folder: Path) -> str:
    return go_build.install([tool], folder, Progress().step(tool.title))


def in_a_process(tool: Tool, folder: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", INSTALL, str(tool.module.source.parent), str(folder)]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_every_tool_has_a_module_where_go_pins_its_version_and_knows_its_programs() -> None:
    """`go build tool` and `go mod tidy` keep what the module needs for them."""
    assert {path.name for path in toolchain.MODULES.iterdir()} == {tool.module.name for tool in TOOLS}
    for tool in TOOLS:
        assert tool.version.startswith("v"), tool.name
        assert {path.name for path in tool.module.source.iterdir()} == {"go.mod", "go.sum"}
        pins = (tool.module.source / "go.mod").read_text()
        for package in tool.packages.values():
            assert re.search(rf"^(tool )?\s*{re.escape(package)}$", pins, re.M), package
    # With a module for each, seven versions of the Kubernetes libraries would be compiled.
    for module, together in (("kubernetes", {"etcd"}), ("kueue", {"kwok", "helm", "jobset", "kueue-simulation"})):
        assert {BY_NAME[name].module.name for name in (module, *together)} == {module}


@pytest.mark.parametrize("operator", [TRAINER, KUBERAY], ids=lambda operator: operator.release)
def test_the_controllers_of_trainjobs_and_of_ray_have_the_versions_of_the_catalog(operator: Operator) -> None:
    assert BY_NAME[operator.release].version == f"v{operator.version}"
    (chart,) = BY_NAME[operator.release].module.ships
    assert BY_NAME[operator.release].module.version(chart.module) == f"v{operator.version}"


def test_tools_are_selected_by_name_or_group_and_an_unknown_one_is_refused() -> None:
    assert [tool.name for tool in selected("stack,kueue,helm")] == [*GROUPS["stack"][:3], "helm", "kueue", "pulumi"]
    assert [tool.name for tool in selected("all")] == list(BY_NAME)
    with pytest.raises(Stop, match=r"The emulator has no tool kubectl\. Choose from: stack, all, tests, kubernetes,"):
        selected("stack,kubectl")


def test_earlier_and_edited_programs_are_named_by_the_versions_that_go_pins() -> None:
    earlier = {f"kueue-{version}" for version in EARLIER_KUEUE_VERSIONS} | {f"jobset-{EARLIER_JOBSET_VERSION}"}
    assert earlier | {TRAINER.release, KUBERAY.release} == NIGHTLY
    for tool in map(BY_NAME.__getitem__, earlier):
        name, _, version = tool.name.partition("-")
        assert [*tool.packages] == [f"{name}-v{version}"]
        assert tool.version == f"v{version}"
        assert tool.title == f"{name} {version}"
    edited = [tool for tool in TOOLS if tool.edits]
    versions = [BY_NAME["kueue"].version, BY_NAME["endpoint-picker"].version]
    names = [f"kueue-{versions[0]}-simulated", f"epp-{versions[1]}-proxied"]
    assert [name for tool in edited for name in tool.packages] == names


def test_an_edited_program_is_built_from_a_changed_copy_of_its_module_or_not_at_all(
    thing: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setenv("GO_KEEPS", str(kept))
    released = thing.module.source / "cached"
    released.mkdir()
    (released / "wait.go").write_text("const wait = 1 * time.Second\n")
    edit = Edit("example.com/thing", "wait.go", "1 * time.Second", "1 * time.Millisecond")
    tool = dataclasses.replace(thing, edits=(edit,))
    cache = tmp_path / "w ü" / "cache"
    assert install(tool, cache) == "built"
    parsed = subprocess.run([REAL_GO, "mod", "edit", "-json", kept / "go.mod"], capture_output=True, check=True)
    (replacement,) = json.loads(parsed.stdout)["Replace"]
    assert replacement["New"]["Path"] == "./edited", "Go writes the path into the program"
    assert (kept / "wait.go").read_text() == "const wait = 1 * time.Millisecond\n"
    assert (released / "wait.go").read_text() == "const wait = 1 * time.Second\n"
    assert [path.name for path in cache.iterdir()] == ["bin"]
    (released / "wait.go").write_text("const wait = time.Minute\n")
    with pytest.raises(Stop, match=r"example.com/thing has '1 \* time.Second' not exactly once in wait.go"):
        install(tool, tmp_path / "other")


def test_programs_print_their_version_and_charts_are_in_one_folder() -> None:
    expected = {"kube-apiserver --version": f"Kubernetes {BY_NAME['kubernetes'].version}"}
    expected["pulumi version"] = BY_NAME["pulumi"].version
    for command, output in expected.items():
        assert subprocess.check_output(command.split(), text=True) == f"{output}\n"
    charts = Path(os.environ["GKE_AI_CHARTS"])
    assert {chart.parent.name for chart in charts.glob("*/Chart.yaml")} == {"kueue", "jobset"}


def test_a_changed_pin_flag_or_compiler_rebuilds_and_the_version_is_stamped_into_variables(thing: Tool) -> None:
    before = thing.module.folder("go1.26.0")
    assert thing.module.folder("go1.26.0") == before
    assert thing.module.folder("go1.27.0") != before
    stamps = {"x.Version": "{version}@example.com/thing", "x.Minor": "{minor}@example.com/thing"}
    stamped = dataclasses.replace(thing.module, stamps=stamps)
    assert stamped.linker_flags() == "-s -w -X x.Version=v1.2.3 -X x.Minor=2"
    assert stamped.folder("go1.26.0") != before
    (thing.module.source / "go.sum").write_text("example.com/thing v1.2.3 h1:other\n")
    assert thing.module.folder("go1.26.0") != before


def test_a_built_tool_has_its_name_and_the_files_that_its_module_ships(thing: Tool, tmp_path: Path) -> None:
    chart = thing.module.source / "cached" / "charts" / "thing"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: thing\n")
    (chart / "Chart.yaml").chmod(0o444)
    chart.chmod(0o555)  # as Go's module cache is
    ships = (Shipped("example.com/thing", "charts/thing", "charts/thing"),)
    tool = dataclasses.replace(thing, module=Module("thing", ships=ships))
    assert install(tool, tmp_path / "made") == "built"
    assert (tmp_path / "made" / "bin" / "thing").read_text() == "whole"
    assert (tmp_path / "made" / "charts" / "thing" / "Chart.yaml").read_text() == "name: thing\n"
    shutil.rmtree(tmp_path / "made")  # a copy that can't be removed would stay for ever


def test_a_killed_build_leaves_nothing_incomplete_and_the_next_one_succeeds(thing: Tool, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "thing-key"
    killed = in_a_process(thing, folder, GO_TAKES="600")
    eventually((thing.module.source / "builds").exists, "the first build has begun")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not folder.exists()
    assert install(thing, folder) == "built"
    assert (folder / "bin" / "thing").read_text() == "whole"
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["thing-key"]


def test_two_set_ups_at_once_build_once(thing: Tool, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "thing-key"
    both = [in_a_process(thing, folder, GO_TAKES="1") for _ in range(2)]
    outputs = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert outputs == ["built", "found, built by another set-up,"]
    assert (thing.module.source / "builds").read_text() == "built\n"


@pytest.mark.parametrize(
    ("compiler", "remedy"),
    [
        ("write /x: no space left on device", "disk space"),
        ("reading https://proxy/x: 403 Forbidden", "GOPROXY"),
        ("dial tcp: lookup proxy: no such host", "GOPROXY"),
        ("verifying module: checksum mismatch", "doesn't match go.sum"),
        ("compile: signal: killed", "GOFLAGS=-p=1"),
        ("mkdir /home/go: read-only file system", "set GOCACHE and GOMODCACHE"),
        ("x.go:1: syntax error", "lines above"),
    ],
)
def test_a_failed_build_shows_the_output_of_go_and_a_remedy(
    thing: Tool, tmp_path: Path, compiler: str, remedy: str
) -> None:
    (thing.module.source / "broken").write_text(f"{compiler}\n")
    with pytest.raises(Stop) as stop:
        install(thing, tmp_path / "made")
    texts = ["Go could not build thing 1.2.3", compiler, remedy]
    assert [text for text in [*texts, "downloading"] if text in str(stop.value)] == texts  # progress is no error
    assert [path for path in tmp_path.iterdir() if path.name.startswith((".made-", "made"))] == []


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9"])
def test_an_old_go_is_refused_with_what_to_install(thing: Tool, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("GO_SAYS", version)
    monkeypatch.setattr(go_build, "TOOLS", (thing,))
    with pytest.raises(Stop, match=r"Go 1\.26 or newer is needed; this is .*Install Go"):
        go_build.go_version()


@pytest.mark.parametrize(
    ("says", "taken"),
    [("v1.2.3", True), ("1.2.3+g1234567", True), ("v1.2.3-rc.1", False), ("v1.2.30", False), ("v11.2.3", False)],
)
def test_a_program_on_path_is_used_only_with_the_pinned_version(
    thing: Tool, tmp_path: Path, says: str, taken: bool
) -> None:
    # `echo` is a program that says the version it is told.
    packages = {"echo": "example.com/thing/cmd/built"}
    tool = dataclasses.replace(thing, packages=packages, version_arguments={"echo": (says,)})
    assert install(tool, tmp_path / "made") == ("copied from PATH" if taken else "built")
    script = tmp_path / "path" / "thing"
    script.write_text("#!/bin/sh\necho v1.2.3\n")
    script.chmod(0o755)
    tool = dataclasses.replace(thing, version_arguments={"thing": ("version",)})
    assert install(tool, tmp_path / "script") == "built", "a script is not copied"


def test_progress_shows_the_running_steps_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("emulator.machine.progress.time.monotonic", lambda: clock)
    progress = Progress(usual=600)
    progress.step("kubernetes 1.36.1").note("812 packages compiled")
    progress.step("pulumi 3.250.0")
    clock = 130.0
    assert progress.line() == (
        "  2 min 10 s, about 8 min left: kubernetes 1.36.1 (812 packages compiled); pulumi 3.250.0"
    )
    clock = 700.0
    assert "longer than usual" in progress.line()
    assert [roughly(seconds) for seconds in (10, 65, 600)] == ["under a minute", "about 1 min", "about 10 min"]
    assert [duration(seconds) for seconds in (0.4, 41.2, 59.7, 185)] == ["0 s", "41 s", "1 min 00 s", "3 min 05 s"]


def test_a_failed_step_ends_the_others() -> None:
    progress = Progress()
    threading.Timer(0.2, progress.canceled.set).start()
    began = time.monotonic()
    with pytest.raises(Canceled):
        progress.step("slow").run(["sleep", "60"], parse_line=lambda _: None)
    assert time.monotonic() - began < 30


def test_compiled_modules_are_kept_even_if_the_caller_keeps_none(tmp_path: Path) -> None:
    show = "import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)"
    done = run("python", "-c", show, state=tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == f"False {CACHE / 'bytecode'}\n"


def test_output_exit_status_and_signals_are_those_of_the_command(tmp_path: Path) -> None:
    done = run("sh", "-c", "echo mine; exit 7", state=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "mine\n", "")
    process = Emulator(tmp_path).start("sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM


def test_states_are_separate_even_in_nested_runs(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "in ner"
    variables = 'echo "$PULUMI_HOME|$PULUMI_BACKEND_URL|$KUBECONFIG"'
    done = run("env", f"GKE_AI_STATE={inner}", RUN, "sh", "-c", variables, state=outer)
    assert done.stdout == f"{inner}/pulumi|file://{inner}/backend?metadata=skip|{inner}/kubeconfig\n"
    assert run("pulumi", "stack", "ls", "--all", state=inner, cwd=tmp_path).returncode == 0


def test_a_relative_state_folder_is_relative_to_the_callers_folder(tmp_path: Path) -> None:
    done = run("sh", "-c", 'echo "$GKE_AI_STATE"', state=Path("here"), cwd=tmp_path)
    assert done.stdout == f"{tmp_path}/here\n"


def test_other_users_can_not_enter_a_state_folder_unless_it_was_for_all(tmp_path: Path) -> None:
    new, own, shared = tmp_path / "folder" / "new", tmp_path / "own", tmp_path / "shared"
    for folder, mode in ((own, 0o755), (shared, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
    for folder, mode in ((new, 0o700), (own, 0o700), (shared, 0o1777)):
        assert run("true", state=folder).returncode == 0
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        assert stat.S_IMODE((folder / "backend").stat().st_mode) == 0o700


def test_credentials_of_a_real_backend_do_not_reach_the_emulator(tmp_path: Path) -> None:
    names = ("ACCESS_TOKEN", "BACKEND_URL", "CONFIG_PASSPHRASE", "CONFIG_PASSPHRASE_FILE")
    variables: dict[str, Any] = {f"PULUMI_{name}": "canary" for name in names}
    done = run("env", state=tmp_path, **variables)
    assert "PULUMI_BACKEND_URL" in done.stdout
    assert "canary" not in done.stdout


@pytest.mark.parametrize(
    ("variable", "dummy"), [("HF_TOKEN", "hf_emulator"), ("GATEWAY_API_KEY", "emulator-gateway-key")]
)
def test_a_secret_reaches_the_emulator_only_under_its_own_name(tmp_path: Path, variable: str, dummy: str) -> None:
    def value(*command: str, **variables: Any) -> str:
        return run(*command, "printenv", variable, state=tmp_path, **variables).stdout

    assert value(**{variable: "canary"}) == value(**{variable: ""}) == f"{dummy}\n"
    assert value(RUN, **{f"EMULATOR_{variable}": "stated"}) == "stated\n", "also through a second run"


@pytest.mark.parametrize("verb", ["bucket", "chart", "existing", "ready"])
def test_a_command_of_the_emulator_runs_from_any_folder(tmp_path: Path, verb: str) -> None:
    done = run(verb, "--help", state=tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"emulator/run {verb}" in done.stdout


def test_the_official_gcp_plugin_on_path_is_never_used(tmp_path: Path) -> None:
    done = run("sh", "-c", 'echo $PULUMI_IGNORE_AMBIENT_PLUGINS; ls "$PULUMI_HOME"/plugins', state=tmp_path)
    assert done.stdout.startswith("true\n")
    assert "resource-gcp-v" in done.stdout


def test_a_completed_set_up_adds_almost_no_time(tmp_path: Path) -> None:
    def once() -> float:
        began = os.times()
        run("true", state=tmp_path)
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    assert statistics.median(once() for _ in range(5)) < 0.1, "seconds of CPU time, which other work doesn't lengthen"


def test_a_service_without_a_home_uses_that_of_the_user_database(tmp_path: Path) -> None:
    done = run("sh", "-c", "echo $HOME", state=tmp_path, HOME="", GKE_AI_CACHE=str(CACHE))
    assert (done.returncode, done.stdout.strip()) == (0, pwd.getpwuid(os.getuid()).pw_dir), done.stderr


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that has the Python environment and no tool."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "venv").symlink_to(CACHE / "venv")
    return tmp_path / "cache"


def shown(cache: Path, *command: str) -> str:
    """The standard output of a command that succeeds."""
    done = run(*command, state=cache.parent / "state", GKE_AI_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_command_builds_only_the_tools_that_it_names(cache: Path) -> None:
    """Lint and tests without a cluster build no Kubernetes. Other tools are built on the first run."""
    output = shown(cache, "sh", "-c", "command -v kubectl prometheus")
    assert not list(cache.glob("tools/*/bin/*"))
    assert {Path(line).parent.parent.name for line in output.split()} == {"shims"}


def test_an_empty_tool_in_the_cache_is_noticed(cache: Path) -> None:
    """It would succeed and do nothing."""
    tool = BY_NAME["helm"]
    (program,) = tool.programs(cache / tool.module.folder(go_version()).relative_to(CACHE))
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert Path(shown(cache, "sh", "-c", "command -v helm").strip()).parent.parent.name == "shims"
    assert not tool.exists(program.parent.parent)


def test_a_tool_that_is_built_on_the_first_run_gets_the_arguments(cache: Path) -> None:
    """The shim builds the tool, here from the compiler's cache, and then runs it."""
    done = run("actionlint", "-version", state=cache.parent / "state", GKE_AI_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(BY_NAME["actionlint"].version)
    assert "actionlint" in done.stderr


def test_a_missing_tool_is_noticed_and_without_go_a_remedy_is_shown(cache: Path) -> None:
    (cache / "tools").symlink_to(CACHE / "tools")
    shown(cache, "true")
    (cache / "tools").unlink()
    state = cache.parent / "state"
    done = run("pulumi", "version", state=state, GKE_AI_CACHE=str(cache), PATH="/usr/bin:/bin")
    assert done.returncode != 0
    assert "Go isn't on PATH" in done.stderr
    assert "Traceback" not in done.stderr
