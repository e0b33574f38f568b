"""`gke-ai trial`: deploys a system, verifies and measures it, and deletes it, within a budget of money and time.

The deletion begins while there is still time for it: when everything was measured, when a step fails, when the budget
ends, or at Ctrl-C. A record in the state says what a killed trial has left, which `--clean` deletes.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

from gke_ai.catalog.versions import JOBSET_VERSION, KUEUE_VERSION, PROJECT_VERSION
from gke_ai.formats.console import new_console
from gke_ai.ops.lifecycle import deploy
from gke_ai.ops.lifecycle.recover import recover
from gke_ai.ops.smoke import command as smoke
from gke_ai.ops.verify.command import checked
from gke_ai.ops.verify.live import caller
from gke_ai.review.report.changes import planned
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop, echo
from gke_ai.trial import outcome as parts
from gke_ai.trial.budget import ON_EMULATOR, ON_GOOGLE_CLOUD, Limit, hourly_cost, limit, shown
from gke_ai.trial.outcome import DONE, FAILED, INTERRUPTED, OUT_OF_BUDGET, Outcome, Step
from gke_ai.trial.record import Process, Record, folder, read, refusal
from gke_ai.workspace.configuration_file import read_configuration, read_keys, read_prices, read_sections, write_keys
from gke_ai.workspace.emulated import prepare
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.prices import Prices
from gke_ai.workspace.stack import ROOT, Stack

# How long an interrupted update may take to finish what it has begun, before it is killed.
FINISH_SECONDS = 120
# Of the output of a failed update, to look for reasons.
LAST_LINES = 40


@dataclass(frozen=True)
class Options:
    """What to try, and within which limits: see `gke-ai trial --help`. `confirm` asks before the deployment."""

    config: Path
    budget: Decimal
    prices: Path
    minutes: int
    output: Path
    confirm: Callable[[str], None]
    project: str = ""
    show_project: bool = False

    @property
    def system(self) -> str:
        """The name of the configuration."""
        return self.config.stem

    @property
    def stack(self) -> str:
        """The name of the stack."""
        return stack_name(self.system)


def stack_name(system: str) -> str:
    """The name of the stack of a system's trial."""
    return f"trial-{system}"


class Ended(BaseException):
    """The time or the user ends the steps before the deletion. The text is the result of the step.

    As for KeyboardInterrupt, no code that handles errors takes it for one.
    """


def trial(options: Options) -> None:
    """Tries a system, and writes the file. Exits with 1 if a step fails or is cut off, or if something is left.

    Refuses before it deploys: if a trial of the system runs or was killed, a price is missing, or the budget is too
    small for one `up`, `verify` and `down`.
    """
    prices = read_prices(options.prices)
    if prices is None:
        raise Stop("A trial keeps a budget by prices of your own, not by list prices. Add --prices: docs/costs.md")
    if earlier := read(options.stack):
        raise Stop(refusal(earlier))
    if not os.access(options.output.parent, os.W_OK):
        raise Stop(f"{options.output} cannot be written. Nothing was deployed. Use --output in a folder that you own.")
    record = Record(options.stack, str(written_configuration(options)), Process.of(os.getpid()))
    refuse_existing(stack_of(record, deploying=True))
    record.create()
    limits = None
    try:
        with cut_off(options.minutes * 60):
            limits = planned_limits(options, prices, record)
    except Ended:
        raise Stop("The trial was stopped. Nothing was deployed.") from None
    finally:
        if limits is None:
            delete(stack_of(record), interrupted=False)  # it has no resources yet
            record.remove()
    outcome = run(options, record, limits)
    options.output.write_text(outcome.written())
    print(f"\n{outcome.written()}\nWritten: {options.output}. Read it, then send it back.")
    if not outcome.deleted:
        raise Stop(f"Not everything is deleted. {refusal(replace(record, trial=Process(0, '')))}")
    raise SystemExit(0 if outcome.result == DONE else 1)


def planned_limits(options: Options, prices: Prices, record: Record) -> Limit:
    """Creates the stack, and returns the limits of its trial, from a preview. Stops if the budget is too small."""
    stack = stack_of(record)
    create(stack)
    machines = planned(stack, "Nothing was deployed.").after
    times = ON_EMULATOR if on_emulator() else ON_GOOGLE_CLOUD
    hourly = hourly_cost(machines, prices)
    limits = limit(hourly, prices.currency, options.budget, options.minutes, times)
    options.confirm(
        f"Deploy {options.system} for at most {shown(limits.seconds)} and {limits.cost(limits.seconds)} "
        f"{limits.currency}, then delete it?"
    )
    return limits


def clean(system: str) -> None:
    """Deletes what a killed trial of a system has left. Stops if the trial runs."""
    record = read(stack_name(system))
    if record is None:
        print(f"There is no trial of {system}: nothing to delete.")
        return
    if record.trial.runs:
        raise Stop(refusal(record))
    if record.update:
        end(record.update)
    if not delete(stack_of(record), interrupted=True):
        raise Stop(f"Not everything is deleted. {refusal(record)}")
    record.remove()


def run(options: Options, record: Record, limits: Limit) -> Outcome:
    """Deploys, verifies, measures, and deletes, whatever happens before the deletion."""
    steps: list[Step] = []
    place = "the emulator" if on_emulator() else "Google Cloud"
    found = Outcome(options.system, place, options.project if options.show_project else "", versions(), limits, ())
    with cut_off(limits.until_down):
        try:
            stack = stack_of(record)
            if timed(steps, "up", lambda: update(stack, record)):
                stack = stack_of(record)  # with the resources of now
                found = timed(steps, "verify", lambda: verified(stack, found)) or found
                found = timed(steps, "smoke", lambda: smoked(stack, found)) or found
        except Ended as ended:
            if not steps or steps[-1].result == DONE:  # between two steps
                steps.append(Step("next step", str(ended), 0))
            print(f"\nThe trial ends ({ended}), and deletes {record.stack} …", flush=True)
    began = time.monotonic()
    deleted = delete(stack_of(record), interrupted=any(step.result != DONE for step in steps))
    steps.append(Step("down", DONE if deleted else FAILED, time.monotonic() - began))
    if deleted:
        record.remove()
    return replace(found, steps=tuple(steps), deleted=deleted)


@contextmanager
def cut_off(seconds: float) -> Iterator[None]:
    """Raises Ended in the block after a time, or at the first Ctrl-C or SIGTERM. Ignores those that follow."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)

    def stop(number: int, _: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(OUT_OF_BUDGET if number == signal.SIGALRM else INTERRUPTED)

    for number in numbers:
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)


def timed(steps: list[Step], name: str, work: Callable[[], Any]) -> Any:
    """Does a step, and adds its result. Returns what it returns, or None if it fails; Ended goes on."""
    began, ending, why, result = time.monotonic(), DONE, "", None
    try:
        result = work()
        failed = isinstance(result, Outcome) and has_failures(result, name)
        ending = FAILED if failed else DONE
    except Ended as ended:
        ending = str(ended)
        raise
    except Stop as stop:
        print(stop, file=sys.stderr)
        ending, why = FAILED, str(stop)
    finally:
        steps.append(Step(name, ending, time.monotonic() - began, parts.reasons(why)))
    return result


def has_failures(outcome: Outcome, step: str) -> bool:
    """Whether `verify` or `smoke` found a failure."""
    if step == "verify":
        return any(claim.result == "fail" for claim in outcome.claims)
    return any(server.failed or not server.requests for server in outcome.servers)


def update(stack: Stack, record: Record) -> bool:
    """Runs `pulumi up` in a process group of its own, which a signal to this process does not reach."""
    command = stack.command("up", "--yes", "--skip-preview", "--suppress-outputs", configured=True, quiet=True)
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    lines: list[str] = []
    try:
        record.update_is(Process.of(process.pid))
        for line in process.stdout or ():
            lines.append(line)
            echo(line, end="")
        process.wait()
    except Ended:
        # Nobody reads what it still prints: without a reader it would wait for one.
        threading.Thread(target=process.communicate, daemon=True).start()
        end(Process.of(process.pid))
        raise
    if process.returncode:
        raise Stop("".join(lines[-LAST_LINES:]) + f"The update of {stack.name} failed.")
    return True


def end(update: Process) -> None:
    """Interrupts the process group of an update, as Ctrl-C does, and kills it if it does not end."""
    for number, seconds in ((signal.SIGINT, FINISH_SECONDS), (signal.SIGKILL, 10)):
        until = time.monotonic() + seconds
        if update.runs:
            os.killpg(update.pid, number)
        while update.runs and time.monotonic() < until:
            time.sleep(0.2)


def verified(stack: Stack, found: Outcome) -> Outcome:
    """Returns the outcome with the results of `verify` and the version of the cluster."""
    checks, measured, version = checked(stack.resources, caller(stack.cluster()), Calibration())
    claims = Counter((check.claim, check.state) for check in checks)
    for check in checks:
        if check.state == "fail":
            echo(f"fail: {check.claim} of {check.subject}: {check.relied_on}, and the cluster has {check.found}")
    return replace(
        found,
        versions=(*found.versions, ("Kubernetes", version)),
        claims=tuple(parts.Claim(*claim, count) for claim, count in sorted(claims.items())),
        durations=tuple(
            parts.Measured(item.step, item.seconds, item.max_seconds, item.count) for item in measured.durations
        ),
    )


def smoked(stack: Stack, found: Outcome) -> Outcome:
    """Returns the outcome with the results of `smoke`."""
    results = smoke.check_servers(stack, stack.outputs(), new_console())
    for line in smoke.failures(results):
        echo(line)
    answers = []
    for result in results:
        times = smoke.median_and_most(reply.seconds for reply in result.good)
        answers.append(parts.Answers(result.server, result.engine, len(result.replies), len(result.failed), *times))
    return replace(found, servers=tuple(answers))


def delete(stack: Stack, interrupted: bool) -> bool:
    """Deletes a stack with everything in it; repairs it first if its update was cut off. Returns whether it is gone."""
    try:
        if not deploy.exists(stack):
            return True
        if interrupted:
            try:
                recover(stack)
            except Stop as stop:
                print(stop, file=sys.stderr)  # the deletion may succeed nevertheless
        deploy.delete(stack)
        if not on_emulator():
            stack.pulumi("stack", "rm", "--yes", quiet=True)
        return not deploy.exists(stack)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return False


def written_configuration(options: Options) -> Path:
    """Writes the configuration of a trial: the system's, in the user's project, with nothing protected or kept."""
    config, sections = read_keys(options.config), read_sections(options.config)
    if options.project:
        config["gcp:project"] = options.project
    elif not on_emulator() and "gcp:project" not in config:
        raise Stop("A trial on Google Cloud needs a project: --project my-project. Nothing was deployed.")
    cluster = sections.get("gke-ai:cluster")
    if isinstance(cluster, dict):
        config["gke-ai:cluster"] = {key: item for key, item in cluster.items() if key != "protect"}
    if isinstance(buckets := sections.get("gke-ai:buckets"), Sequence):
        config["gke-ai:buckets"] = [{**bucket, "protect": False, "onDestroy": "delete"} for bucket in buckets]
    file = folder() / options.stack / f"Pulumi.{options.stack}.yaml"
    environment = read_configuration(options.config).get("environment")
    write_keys(file, config, options.config, {"environment": environment} if environment and not on_emulator() else {})
    read_sections(file, deploying=True)
    return file


def stack_of(record: Record, deploying: bool = False) -> Stack:
    """Returns the stack of a trial, without what was read of it before."""
    config = Path(record.config)
    return prepare(record.stack, config, deploying) if on_emulator() else Stack(record.stack, config)


def refuse_existing(stack: Stack) -> None:
    """Stops if there is the stack already: it may have something that is not the trial's."""
    if deploy.exists(stack):
        raise Stop(f"There is a stack {stack.name} already. Delete it first:  {stack.next('down')}")


def create(stack: Stack) -> None:
    """Creates the stack. On Google Cloud, its secrets provider is the default of the backend."""
    if on_emulator():
        deploy.ensure(stack)
        return
    beside = stack.file.parent
    (beside / "Pulumi.yaml").write_text("name: gke-ai\nruntime: python\n")
    done = stack.pulumi("stack", "init", "-C", str(beside), quiet=True)
    if done.returncode:
        raise Stop(done.stderr.strip())


def versions() -> tuple[tuple[str, str], ...]:
    """Versions of this project and of what it deploys and runs with."""
    pulumi = subprocess.run(["pulumi", "version"], capture_output=True, text=True, check=False).stdout.strip()
    own = {"gke-ai": PROJECT_VERSION, "Python": platform.python_version(), "Pulumi": pulumi}
    return tuple({**own, "Kueue": KUEUE_VERSION, "JobSet": JOBSET_VERSION}.items())
