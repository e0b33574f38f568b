"""Measures the program against lower bounds and prints a table.

    emulator/run python -m maintain.bench [--quick]

`--quick` measures everything once, on a small stack: to see that the bench works, not how fast the program is.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from tests.support.emulator import ROOT, Emulator, eventually, fresh, until_none
from tests.support.scale import POOLS, TEAMS, WORKLOADS
from tests.support.scale import sections as generated_sections

EXAMPLE = "examples/mixed-training-inference.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
EMPTY = "tests/data/empty.yaml"
BARE = Path(__file__).parent / "bare"


@dataclass(frozen=True)
class Effort:
    """How much the bench measures: rounds of each measurement, and teams of the generated stack."""

    rounds: int
    cluster_rounds: int
    warm_up: bool
    teams: int


FULL = Effort(rounds=5, cluster_rounds=3, warm_up=True, teams=TEAMS)
QUICK = Effort(rounds=1, cluster_rounds=1, warm_up=False, teams=2)


@dataclass(frozen=True)
class Row:
    """A measurement in seconds, the seconds that it is compared with if any, and the goal."""

    title: str
    ours: float
    theirs: float | None
    goal: str

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.ours / self.theirs


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def pairs(ours: Callable[[], object], theirs: Callable[[], object], rounds: int, warm_up: bool) -> tuple[float, float]:
    """Medians of two actions.

    They alternate, so a noisy machine slows down both.
    """
    if warm_up:
        ours()
        theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times)


def previews(emulator: Emulator, effort: Effort) -> tuple[float, float]:
    """A preview of the example, and of a bare program that registers as many resources with the same plugins."""
    config = emulator.configure(EXAMPLE)
    steps = json.loads(emulator.make("preview-json", config))["steps"]
    resources = []
    for state, urn in ((step["newState"], step["urn"]) for step in steps):
        if not state["type"].startswith("pulumi:"):
            inputs = state.get("inputs") if state.get("custom") else None
            resources.append({"type": state["type"], "name": urn.rpartition("::")[2], "inputs": inputs})
    file = emulator.state / "resources.json"
    file.write_text(json.dumps(resources))
    emulator.make("preview", config)  # creates the stack
    bare = Emulator(emulator.state, stack="bare", extra=(("BENCH_RESOURCES", str(file)),))
    folder = emulator.state / "bare"
    shutil.copytree(BARE, folder)
    shutil.copy(emulator.state / "config" / f"Pulumi.{emulator.stack}.yaml", folder / "Pulumi.bare.yaml")
    chosen = ("--stack", "bare", "-C", str(folder), "--non-interactive")
    bare.run("pulumi", "stack", "init", *chosen)

    def preview_bare() -> None:
        output = bare.run("pulumi", "preview", *chosen)
        # The two more are the stack and its provider.
        assert re.search(rf"\+ {len(resources) + 2} to create", output), output

    return pairs(lambda: emulator.pulumi("preview"), preview_bare, effort.rounds, effort.warm_up)


def large_stack(emulator: Emulator, effort: Effort) -> tuple[float, float]:
    """Seconds per resource of a preview, for the generated stack at full size and at half size."""
    half = Emulator(emulator.state, stack="half")
    counts = [generated(emulator, effort.teams), generated(half, effort.teams // 2)]
    rounds = min(effort.rounds, 2)
    times = pairs(lambda: emulator.pulumi("preview"), lambda: half.pulumi("preview"), rounds, effort.warm_up)
    return times[0] / counts[0], times[1] / counts[1]


def generated(emulator: Emulator, teams: int) -> int:
    """Creates the stack for this number of teams and returns its number of resources."""
    output = emulator.make("preview", emulator.configure(EMPTY, **generated_sections(teams)))
    match = re.search(r"\+ (\d+) to create", output)
    assert match, output
    return int(match[1])


def no_op(emulator: Emulator, effort: Effort) -> tuple[float, float]:
    """An update without changes, and a preview of the same stack."""
    up = ("up", "--yes", "--skip-preview", "--suppress-outputs")
    preview = partial(emulator.pulumi, "preview", "--suppress-outputs")
    return pairs(lambda: emulator.pulumi(*up), preview, effort.rounds, effort.warm_up)


def in_cluster(emulator: Emulator, effort: Effort) -> tuple[float, float]:
    """The in-cluster part of an update, and helm and kubectl with the same chart, objects and readiness."""
    cluster = yaml.safe_load((ROOT / AUTOPILOT).read_text())["config"]["gke-ai:cluster"]
    existing = {**{key: cluster[key] for key in ("name", "location")}, "mode": "existing", "existingMode": "autopilot"}
    emulator.run("existing", "create", cluster["name"], "--mode", "autopilot", "--location", cluster["location"])
    config = emulator.configure(AUTOPILOT, cluster=existing)

    def ours() -> None:
        emulator.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs")

    def manifests() -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
        recorded = emulator.exported()["resources"]
        release = next(r["inputs"] for r in recorded if r["type"] == "kubernetes:helm.sh/v3:Release")
        inputs = [r["inputs"] for r in recorded if r["type"].startswith("kubernetes:")]
        objects = [obj for obj in inputs if obj is not release and "kind" in obj]
        for obj in objects:
            if obj["kind"] == "Secret":
                obj.pop("data", None)
                obj["stringData"] = {"hf_api_token": "none"}
        first, queues = ("Namespace", "PriorityClass", "ClusterRole"), ("ResourceFlavor", "ClusterQueue", "LocalQueue")
        order = dict.fromkeys(first, 0) | dict.fromkeys(queues, 1)
        return release, [[o for o in objects if order.get(o["kind"], 2) == stage] for stage in range(3)]

    def wait_until_empty() -> None:  # both start with a cluster without nodes
        until_none(lambda: emulator.get("nodes"), "the nodes of the previous round are deleted")

    times: list[tuple[float, float]] = []
    for _ in range(effort.cluster_rounds):
        emulator.make("preview", config)  # creates the stack
        own = seconds(ours)
        emulator.kubeconfig()
        applied = manifests()
        emulator.make("down")
        wait_until_empty()
        times.append((own, seconds(partial(by_hand, emulator, *applied))))
        clean_by_hand(emulator, *applied)
        wait_until_empty()
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times)


def by_hand(emulator: Emulator, release: dict[str, Any], stages: list[list[dict[str, Any]]]) -> None:
    """The commands of a person: apply, helm install --wait, apply until the webhook answers, wait for one replica."""
    kubeconfig = emulator.kubeconfig()

    def apply(stage: list[dict[str, Any]]) -> None:
        file = emulator.state / "manifests.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": stage}))
        command = [str(ROOT / "emulator/run"), "kubectl", "--kubeconfig", kubeconfig, "apply", "--server-side", "-f"]
        run = partial(subprocess.run, [*command, str(file)], env=emulator.environment, capture_output=True)
        eventually(lambda: run().returncode == 0, "kubectl apply succeeds")

    values = emulator.state / "values.yaml"
    values.write_text(yaml.safe_dump(release["values"]))
    chart = "$GKE_AI_CHARTS/" + release["chart"].rpartition("/")[2]
    helm = f"helm install {release['name']} {chart} -n {release['namespace']} --create-namespace -f {values} --wait"
    apply(stages[0])
    emulator.run("sh", "-c", f"KUBECONFIG={kubeconfig} {helm}")
    apply(stages[1])
    apply(stages[2])
    server = next(o for o in stages[2] if o["kind"] == "Deployment")["metadata"]
    emulator.kubectl("-n", server["namespace"], "rollout", "status", f"deployment/{server['name']}")


def clean_by_hand(emulator: Emulator, release: dict[str, Any], stages: list[list[dict[str, Any]]]) -> None:
    """Undoes `by_hand`. Deletes the objects that Kueue manages before Kueue, and its namespace last."""
    first, queues, workloads = stages

    def delete(stage: list[dict[str, Any]]) -> None:
        for obj in reversed(stage):
            metadata = obj["metadata"]
            namespace = ["-n", metadata["namespace"]] if "namespace" in metadata else []
            emulator.kubectl("delete", obj["kind"], metadata["name"], *namespace, "--ignore-not-found")

    delete(workloads)
    delete(queues)
    uninstall = f"helm uninstall {release['name']} -n {release['namespace']}"  # with --wait it sometimes hangs
    emulator.run("sh", "-c", f"KUBECONFIG={emulator.kubeconfig()} {uninstall}")
    emulator.kubectl("wait", "--for=delete", "crd", "clusterqueues.kueue.x-k8s.io", "--timeout=60s")
    delete(first)


def first_registration(emulator: Emulator, effort: Effort) -> float:
    """Seconds from the start of the program, including imports, to its first registration."""
    probe = (
        "import time; started = time.perf_counter()\n"
        "import os, runpy, pulumi.resource\n"
        "def first(*_, **__): print(time.perf_counter() - started, flush=True); os._exit(0)\n"
        "pulumi.resource.register_resource = first\n"
        "runpy.run_path('__main__.py', run_name='__main__')"
    )
    sections = yaml.safe_load((ROOT / EXAMPLE).read_text())["config"]
    config = {k: v if isinstance(v, str) else json.dumps(v) for k, v in sections.items()}
    values = json.dumps({**config, "gcp:project": "bench-project"})
    configured = Emulator(emulator.state, extra=(("PULUMI_CONFIG", values),))
    return statistics.median(float(configured.run("python", "-c", probe).split()[-1]) for _ in range(effort.rounds))


def measure(effort: Effort) -> Iterator[Row]:
    with fresh() as emulator:
        ours, bare = previews(emulator, effort)
        yield Row("preview; a bare program with as many resources", ours, bare, "1.05×")
        start = first_registration(emulator, effort)
        yield Row("start of the program to its first registration", start, None, "0.5 s")
    with fresh() as emulator:
        pools, workloads = effort.teams * POOLS, effort.teams * WORKLOADS
        title = f"preview per resource: {pools} pools, {effort.teams} queues, {workloads} workloads; half as many"
        yield Row(title, *large_stack(emulator, effort), "1.1×")
    with fresh() as emulator:
        yield Row("up in an existing cluster; helm and kubectl", *in_cluster(emulator, effort), "1.2×")
    with fresh() as emulator:
        up = seconds(partial(emulator.make, "up", emulator.configure("Pulumi.dev.yaml")))
        yield Row("make up of a new stack until the server is admitted", up, None, "at most 60 s")
        yield Row("up without changes; a preview", *no_op(emulator, effort), "1.15×")


def cells(row: Row) -> tuple[str, ...]:
    times = [duration(row.ours), "–" if row.theirs is None else duration(row.theirs)]
    return row.title, *times, "–" if row.ratio is None else f"{row.ratio:.2f}×", row.goal


def duration(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def main(arguments: list[str] | None = None) -> list[Row]:
    """Measures everything, prints the table, and returns its rows."""
    parser = argparse.ArgumentParser(prog="maintain.bench")
    parser.add_argument("--quick", action="store_true", help="measure everything once, on a small stack")
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    columns = ("measurement", "ours", "compared with", "ratio", "goal")
    table = Table(*columns, title="Speed", title_justify="left", box=None)
    progress, rows = Console(stderr=True), []
    for row in measure(effort):
        progress.print(*cells(row)[:4])
        table.add_row(*cells(row))
        rows.append(row)
    Console(width=120).print(table)
    return rows


if __name__ == "__main__":
    main()
