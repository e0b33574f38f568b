"""Measures the program against lower bounds and prints a table."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from tests.bench.scale import POOLS, TEAMS, WORKLOADS, sections
from tests.end_to_end.conftest import fresh
from tests.end_to_end.emulator import ROOT, Emulator, eventually, until_none

EXAMPLE = "examples/mixed-training-inference.yaml"
AUTOPILOT = "examples/mixed-training-inference-autopilot.yaml"
EMPTY = "tests/bench/empty.yaml"
ROUNDS = 5
BARE = Path(__file__).parent / "bare"


def seconds(action: Callable[[], object]) -> float:
    """Returns the duration of an action in seconds."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def pairs(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    """Medians of two actions after a warm-up round.

    They alternate, so a noisy machine slows down both.
    """
    times = [(seconds(ours), seconds(theirs)) for _ in range(rounds + 1)][1:]
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times)


def previews(emulator: Emulator) -> tuple[float, float]:
    """A preview of the example, and of a bare program that registers as many resources with the same plugins."""
    config = emulator.configure(EXAMPLE)
    steps = json.loads(emulator.make("preview-json", config))["steps"]
    resources = [
        {
            "type": step["newState"]["type"],
            "name": step["urn"].rpartition("::")[2],
            "inputs": step["newState"].get("inputs") if step["newState"].get("custom") else None,
        }
        for step in steps
        if not step["newState"]["type"].startswith("pulumi:")
    ]
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

    return pairs(lambda: emulator.pulumi("preview"), preview_bare)


def large_stack(emulator: Emulator) -> tuple[float, float]:
    """Seconds per resource of a preview, for the generated stack at full size and at half size."""
    half = Emulator(emulator.state, stack="half")
    counts = [generated(emulator, TEAMS), generated(half, TEAMS // 2)]
    times = pairs(lambda: emulator.pulumi("preview"), lambda: half.pulumi("preview"), rounds=2)
    return times[0] / counts[0], times[1] / counts[1]


def generated(emulator: Emulator, teams: int) -> int:
    """Creates the stack for this number of teams and returns its number of resources."""
    output = emulator.make("preview", emulator.configure(EMPTY, **sections(teams)))
    match = re.search(r"\+ (\d+) to create", output)
    assert match, output
    return int(match[1])


def no_op(emulator: Emulator) -> tuple[float, float]:
    """An update without changes, and a preview of the same stack."""
    emulator.make("up", emulator.configure(EXAMPLE))
    up = ("up", "--yes", "--skip-preview", "--suppress-outputs")
    return pairs(lambda: emulator.pulumi(*up), lambda: emulator.pulumi("preview", "--suppress-outputs"))


def in_cluster(emulator: Emulator) -> tuple[float, float]:
    """The in-cluster part of an update, and helm and kubectl with the same chart, objects and readiness."""
    cluster = yaml.safe_load((ROOT / AUTOPILOT).read_text())["config"]["gke-ai:cluster"]
    existing = {
        "name": cluster["name"],
        "location": cluster["location"],
        "mode": "existing",
        "existingMode": "autopilot",
    }
    emulator.run("existing", "create", cluster["name"], "--mode", "autopilot", "--location", cluster["location"])
    config = emulator.configure(AUTOPILOT, cluster=existing)

    def ours() -> None:
        emulator.pulumi("up", "--yes", "--skip-preview", "--suppress-outputs")

    def manifests() -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
        recorded = emulator.exported()["resources"]
        release = next(r["inputs"] for r in recorded if r["type"] == "kubernetes:helm.sh/v3:Release")
        objects = [
            r["inputs"]
            for r in recorded
            if r["type"].startswith("kubernetes:") and r["inputs"] is not release and "kind" in r["inputs"]
        ]
        for obj in objects:
            if obj["kind"] == "Secret":
                obj.pop("data", None)
                obj["stringData"] = {"hf_api_token": "none"}
        order = {
            "Namespace": 0,
            "PriorityClass": 0,
            "ClusterRole": 0,
            "ResourceFlavor": 1,
            "ClusterQueue": 1,
            "LocalQueue": 1,
        }
        return release, [[o for o in objects if order.get(o["kind"], 2) == stage] for stage in range(3)]

    def wait_until_empty() -> None:  # both start with a cluster without nodes
        until_none(lambda: emulator.get("nodes"), "the nodes of the previous round are deleted")

    times: list[tuple[float, float]] = []
    for _ in range(3):
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
        command = [
            str(ROOT / "emulator/run"),
            "kubectl",
            "--kubeconfig",
            kubeconfig,
            "apply",
            "--server-side",
            "-f",
            str(file),
        ]
        eventually(
            lambda: subprocess.run(command, env=emulator.environment, capture_output=True).returncode == 0,
            "kubectl apply succeeds",
        )

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


def first_registration(emulator: Emulator) -> float:
    """Seconds from the start of the program, including imports, to its first registration."""
    probe = (
        "import time; started = time.perf_counter()\n"
        "import os, runpy, pulumi.resource\n"
        "def first(*_, **__): print(time.perf_counter() - started, flush=True); os._exit(0)\n"
        "pulumi.resource.register_resource = first\n"
        "runpy.run_path('__main__.py', run_name='__main__')"
    )
    values = yaml.safe_load((ROOT / EXAMPLE).read_text())["config"]
    config = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    os.environ |= {"PULUMI_CONFIG": json.dumps({**config, "gcp:project": "bench-project"})}
    return statistics.median(float(emulator.run("python", "-c", probe).split()[-1]) for _ in range(ROUNDS))


def main() -> None:
    """Measures everything and prints the table."""
    table = Table(
        "measurement", "ours", "compared with", "ratio", "goal", title="Speed", title_justify="left", box=None
    )
    progress = Console(stderr=True)

    def row(title: str, medians: tuple[float, float], goal: str) -> None:
        ours, theirs = medians
        table.add_row(title, f"{ours:.2f} s", f"{theirs:.2f} s", f"{ours / theirs:.2f}×", goal)

    with fresh() as emulator:
        progress.print("preview against a bare program …")
        row("preview; a bare program with as many resources", previews(emulator), "1.15×, at most 2×")
        progress.print("time until the first registration …")
        table.add_row(
            "start of the program to its first registration",
            f"{first_registration(emulator):.2f} s",
            "–",
            "–",
            "at most 1 s",
        )
    with fresh() as emulator:
        progress.print(f"a stack of {TEAMS * POOLS} pools and {TEAMS * WORKLOADS} workloads, and half as large …")
        full, half = large_stack(emulator)
        table.add_row(
            f"preview per resource: {TEAMS * POOLS} pools, {TEAMS} queues, {TEAMS * WORKLOADS} workloads; half as many",
            f"{full * 1000:.1f} ms",
            f"{half * 1000:.1f} ms",
            f"{full / half:.2f}×",
            "1.1×",
        )
    with fresh() as emulator:
        progress.print("in-cluster part of up against helm and kubectl …")
        row("up in an existing cluster; helm and kubectl", in_cluster(emulator), "at most 1.25×")
    with fresh() as emulator:
        progress.print("up without changes against a preview …")
        row("up without changes; a preview", no_op(emulator), "at most 1.15×")
    with fresh() as emulator:
        progress.print("up of a new stack until the server is admitted …")
        config = emulator.configure("Pulumi.dev.yaml")
        table.add_row(
            "make up of a new stack until the server is admitted",
            f"{seconds(lambda: emulator.make('up', config)):.1f} s",
            "–",
            "–",
            "at most 60 s",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
