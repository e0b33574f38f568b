"""`make official [PROGRAMS=folder]`: compares the emulator's Pulumi plugins with the official ones.

A folder has the official programs, or some of them: `pulumi`, its language hosts, and both resource plugins. The
emulator has the others. Each configuration runs with the emulator's programs and with those of the folder. What was
registered, planned and said is then compared, plugin by plugin. `official_differences.yaml` has the known differences,
each with its reason. A new one ends the command with 1.

The official gcp plugin only previews, offline and without an account. No official program gets a credential.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Console
from rich.table import Table

from tests.support import repository
from tests.support.emulator import ROOT, Emulator, fresh
from tests.support.mistakes import PROJECT

Verdict = Literal["equal", "known", "account", "new"]
# Programs that Pulumi publishes, and what the emulator has in their place.
PROGRAMS: Mapping[str, str] = {
    "pulumi": "engine and CLI, built from Pulumi's Go module",
    "pulumi-language-yaml": "host of YAML, built from Pulumi's Go module",
    "pulumi-language-python": "host of Python, the emulator's own",
    "pulumi-resource-kubernetes": "kubernetes plugin, the emulator's own",
    "pulumi-resource-gcp": "gcp plugin, the emulator's own",
}
GCP, KUBERNETES = "pulumi-resource-gcp", "pulumi-resource-kubernetes"
# Stacks in an existing cluster, so that their deployment needs nothing of Google Cloud that the emulator lacks.
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "examples/flex-start-tpu-autopilot.yaml": {},
    "examples/mixed-training-inference-autopilot.yaml": {
        "cluster": {"name": "llm-cluster", "mode": "existing", "existingMode": "autopilot", "location": "us-central1"}
    },
}
YAML_PROGRAM = "examples/consumer-yaml"
DIFFERENCES = Path(__file__).with_name("official_differences.yaml")
# Of a phase. A plugin that waits for something else than the emulator's is found out by it.
LIMIT_SECONDS = 900
# What differs between two runs of the same program.
_VARYING = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|127\.0\.0\.1:\d+|/tmp/[^\s'\"]*|\b\d+(\.\d+)?m?s\b|-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b|\b[0-9a-f]{7,}\b"
)
_OF_A_CLUSTER = {"kubeconfig", "endpoint", "masterAuth", "clusterCaCertificate", "clusterIdentifier"}
# How often a component tries again depends on when Kueue's webhook answers.
_BY_CHANCE = "due to on-error hook request"
# Answers of Google Cloud, and of its libraries, to a program without an account.
_NO_ACCOUNT = re.compile(r"credential|oauth2|unauthenticated|\b40[13]\b|google_application|access token", re.IGNORECASE)


@dataclass(frozen=True)
class Seen:
    """What a phase of a run showed: values by plugin, resource and path, and messages without a path."""

    phase: str
    values: Mapping[tuple[str, str, str], str]


@dataclass(frozen=True)
class Finding:
    """A value on both sides. `-` stands for none."""

    system: str
    phase: str
    plugin: str
    resource: str
    path: str
    ours: str
    official: str
    verdict: Verdict = "new"
    reason: str = ""


@dataclass(frozen=True)
class Known:
    """A row of the list of known differences: patterns as in a shell, and the reason."""

    plugin: str
    reason: str
    resource: str = "*"
    path: str = "*"

    def covers(self, finding: Finding) -> bool:
        pairs = ((finding.plugin, self.plugin), (finding.resource, self.resource), (finding.path, self.path))
        return all(fnmatch.fnmatchcase(text, pattern) for text, pattern in pairs)


def known_differences(text: str) -> list[Known]:
    return [Known(**row) for row in yaml.safe_load(text) or []]


# What a run shows
def plugin_of(type_: str) -> str:
    """The plugin that a resource is of. Components, stacks and their outputs are the engine's."""
    own = type_.removeprefix("pulumi:providers:")
    return next((plugin for plugin in ("kubernetes", "gcp") if own.split(":")[0] == plugin), "engine")


def seen(phase: str, events: Iterable[Mapping[str, Any]]) -> Seen:
    """Reads the engine's events: each step with its inputs, each warning and each error."""
    values: dict[tuple[str, str, str], str] = {}
    for event in events:
        if step := event.get("resourcePreEvent", {}).get("metadata"):
            resource = step["urn"].split("::", 2)[2].rpartition("$")[2]
            plugin = plugin_of(step["type"])
            values[plugin, resource, "step"] = step["op"]
            if inputs := (step.get("new") or {}).get("inputs"):
                values |= {(plugin, resource, f"inputs{path}"): value for path, value in leaves(inputs)}
        said = event.get("diagnosticEvent", {})
        if _BY_CHANCE in said.get("message", ""):
            continue
        if said.get("severity") in ("warning", "error", "info#err") and not said.get("ephemeral"):
            urn = said.get("urn") or ""
            resource = urn.split("::", 2)[2].rpartition("$")[2] if urn.count("::") > 1 else ""
            text = settled(re.sub(r"<\{%.*?%\}>", "", said["message"])).strip()
            values[plugin_of(resource), resource, f"{said['severity']}: {text}"] = "said"
    return Seen(phase, values)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each scalar of a value with its path, without what differs between two runs."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if key not in _OF_A_CLUSTER:
                yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, settled(value if isinstance(value, str) else json.dumps(value))


def settled(text: str) -> str:
    return _VARYING.sub("…", text)


# Comparison
def compare(system: str, ours: Seen, official: Seen, known: Iterable[Known], account: bool = True) -> Iterator[Finding]:
    """Every value of either side with its verdict.

    Without an account, Google Cloud answers the official gcp plugin nothing: what a program did not reach for that
    reason is no difference.
    """
    stopped = not account and any(p.startswith("error: ") and _NO_ACCOUNT.search(p) for _, _, p in official.values)
    for plugin, resource, path in dict.fromkeys([*ours.values, *official.values]):
        key = plugin, resource, path
        mine, theirs = ours.values.get(key, "-"), official.values.get(key, "-")
        finding = Finding(system, ours.phase, plugin, resource, path, mine, theirs)
        reason = next((row.reason for row in known if row.covers(finding)), "")
        verdict: Verdict = "new"
        if mine == theirs:
            verdict = "equal"
        elif reason:
            verdict = "known"
        elif stopped and (theirs == "-" or path.startswith("error: ")):
            verdict = "account"
        yield replace(finding, verdict=verdict, reason=reason)


# Runs
@dataclass(frozen=True)
class Side:
    """The programs of one side: those of a folder, before the emulator's own."""

    name: str
    folder: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)

    def has(self, program: str) -> bool:
        return self.folder is not None and os.access(self.folder / program, os.X_OK)

    def run(self, emulator: Emulator, *command: str) -> tuple[bool, str]:
        """Runs a command of the emulator with this side's programs first on PATH."""
        if self.folder:
            command = ("sh", "-c", 'PATH="$0:$PATH" exec "$@"', str(self.folder), *command)
        process = emulator.start(*command)
        try:
            output = process.communicate(timeout=LIMIT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return False, f"error: it did not end within {LIMIT_SECONDS} s"
        return process.returncode == 0, output

    def phase(self, emulator: Emulator, phase: str, *arguments: str) -> Seen:
        """Runs a command of Pulumi and reads what it showed. A failed one shows its errors."""
        log = emulator.state / "events.json"
        log.unlink(missing_ok=True)
        done, output = self.run(emulator, "pulumi", *arguments, "--non-interactive", "--event-log", str(log))
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if not done:
            self.failures[phase] = "\n".join(re.findall(r"error: .*", output)) or output[-600:]
            said = {"severity": "error", "message": f"{phase} failed"}
            events.append({"diagnosticEvent": said})
        return seen(phase, events)


def stack_of(emulator: Emulator, source: str, sections: Mapping[str, Any]) -> list[str]:
    """Creates a stack for a configuration, and the existing cluster that it names. Returns Pulumi's options for it."""
    config = emulator.configure(source, **sections)
    cluster = yaml.safe_load(config.read_text())["config"].get("gke-ai:cluster", {})
    if cluster.get("mode") == "existing":
        mode, location = cluster.get("existingMode", "standard"), cluster.get("location", "us-central1")
        emulator.run("existing", "create", cluster["name"], "--mode", mode, "--location", location)
    code = (
        "import pathlib, sys; from gke_ai.workspace.emulated import prepare; "
        "from gke_ai.ops.lifecycle.deploy import ensure; ensure(prepare(sys.argv[1], pathlib.Path(sys.argv[2])))"
    )
    emulator.run("python", "-c", code, emulator.stack, str(config))
    return [*emulator.of_stack]


def previewed(side: Side, source: str) -> list[Seen]:
    """A preview of a configuration on a new stack. The official gcp plugin gets no account, and no address of one."""
    nowhere = {
        "GOOGLE_OAUTH_ACCESS_TOKEN": "none",
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "CLOUDSDK_CONFIG": "/nonexistent",
    }
    with fresh(PULUMI_DEBUG_COMMANDS="1", **(nowhere if side.has(GCP) else {})) as emulator:
        if source == YAML_PROGRAM:
            return [side.phase(emulator, "preview", *yaml_program(emulator), "preview")]
        options = stack_of(emulator, source, {})
        if side.folder and side.has(GCP):
            for plugin in (emulator.state / "pulumi" / "plugins").glob("resource-gcp-v*/pulumi-resource-gcp"):
                plugin.unlink()
                plugin.symlink_to(side.folder / GCP)
        return [side.phase(emulator, "preview", "preview", *options)]


def yaml_program(emulator: Emulator) -> list[str]:
    """Creates a stack of the program in YAML, whose components come from this checkout."""
    folder = emulator.state / "yaml"
    folder.mkdir()
    text = (ROOT / YAML_PROGRAM / "Pulumi.yaml").read_text()
    (folder / "Pulumi.yaml").write_text(text.replace("../../components/plugin", str(ROOT / "components" / "plugin")))
    emulator.run("pulumi", "-C", str(folder), "stack", "init", "dev", "--non-interactive")
    emulator.run("pulumi", "-C", str(folder), "config", "set", "project", PROJECT, "--non-interactive")
    return ["-C", str(folder)]


def deployed(side: Side, source: str) -> list[Seen]:
    """An `up` of a system in an existing cluster, a second preview, and a `destroy`."""
    with fresh(PULUMI_DEBUG_COMMANDS="1") as emulator:
        options = stack_of(emulator, source, SYSTEMS[source])
        now = ["--yes", "--skip-preview"]
        return [
            side.phase(emulator, "up", "up", *now, *options),
            side.phase(emulator, "second preview", "preview", *options, "--expect-no-changes"),
            side.phase(emulator, "destroy", "destroy", *now, *options),
        ]


# Report
def report(console: Console, findings: list[Finding]) -> None:
    """Prints a line for each phase and plugin, then every difference."""
    table = Table(
        "configuration", "phase", "plugin", "equal", "known", "no account", "new", box=None, header_style="bold"
    )
    counts: dict[tuple[str, str, str], Counter[Verdict]] = {}
    for item in findings:
        counts.setdefault((item.system, item.phase, item.plugin), Counter())[item.verdict] += 1
    for place, by in counts.items():
        table.add_row(*place, *(str(by[verdict]) for verdict in ("equal", "known", "account", "new")))
    console.print(table)
    for title, verdict in (("Known differences", "known"), ("Not seen without an account", "account"), ("New", "new")):
        rows = Counter(
            (
                item.plugin,
                item.resource.rpartition("::")[0] or item.resource,
                item.path,
                item.ours,
                item.official,
                item.reason,
            )
            for item in findings
            if item.verdict == verdict
        )
        if rows:
            console.print(f"\n{title}", style="bold")
        for (plugin, resource, path, ours, official, reason), times in rows.items():
            sides = f"emulator {ours[:80]}, official {official[:80]}"
            console.print(f"  {plugin} {resource} {path[:200]}: {sides} ({times}×)" + (f". {reason}" if reason else ""))


def sides_table(console: Console, official: Side) -> None:
    table = Table("program", "this run compares", box=None, header_style="bold")
    for program, own in PROGRAMS.items():
        table.add_row(program, f"official, {official.folder}" if official.has(program) else own)
    console.print(table)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make official", description="Compares the plugins with the official ones.")
    parser.add_argument("--programs", type=Path, help="folder with official programs of Pulumi")
    parser.add_argument("--only", default="*", help="pattern of the configurations: examples/flex*")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its clusters end with it
    console = Console(width=160, highlight=False, soft_wrap=True)
    folder = chosen.programs.resolve() if chosen.programs else None
    own, official = Side("emulator"), Side("official", folder)
    if folder and not any(official.has(program) for program in PROGRAMS):
        print(
            f"{folder} has none of {', '.join(PROGRAMS)}. Nothing was compared. Name another folder.", file=sys.stderr
        )
        return 2
    sides_table(console, official)
    configurations = [str(path.relative_to(ROOT)) for path in repository.examples()]
    runs = [(previewed, source) for source in (*configurations, YAML_PROGRAM)] + [
        (deployed, source) for source in SYSTEMS
    ]
    known, findings, failed = known_differences(DIFFERENCES.read_text()), list[Finding](), list[str]()
    for run, source in runs:
        if not fnmatch.fnmatchcase(source, chosen.only):
            continue
        ours = run(own, source)
        failed += [f"{source}: {phase}\n{text}" for phase, text in own.failures.items()]
        own.failures.clear()
        theirs = run(official, source) if folder else ours
        for mine, other in zip(ours, theirs, strict=True):
            print(f"{source}: {mine.phase} has run", file=sys.stderr)
            findings += compare(source, mine, other, known, account=run is deployed or not official.has(GCP))
    report(console, findings)
    new = sum(item.verdict == "new" for item in findings)
    console.print("\nNext", style="bold")
    for text in failed:
        console.print(f"The emulator's own programs failed. {text}")
    if not folder:
        console.print(
            f"No official program was given, so {len(findings)} values were read and none was compared.\n"
            "→ compare:  make official PROGRAMS=FOLDER, with programs of https://www.pulumi.com/docs/install/versions/"
        )
    elif new:
        console.print(
            f"{new} values differ, and no known difference covers them.\n"
            f"→ change the emulator's plugin, or add a row with the reason to {DIFFERENCES.relative_to(ROOT)}"
        )
    else:
        console.print("Nothing differs that is not known.")
    for row in known if folder else ():
        if not any(item.verdict == "known" and row.covers(item) for item in findings):
            console.print(
                f"Not seen any more: {row.plugin} {row.resource} {row.path}. Remove the row if all configurations ran."
            )
    return 1 if new or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
