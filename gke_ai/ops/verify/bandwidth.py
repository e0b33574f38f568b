"""`gke-ai verify --bandwidth POOL`: measures all-reduce between nodes of a pool, by a run in a tenant's queue.

The run is one that `gke-ai submit` would create, with what every run on the pool gets. It is deleted at the end.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import InvalidDocument
from gke_ai.catalog.fabric.bandwidth import FLOORS
from gke_ai.catalog.fabric.rdma import SETTINGS
from gke_ai.catalog.kueue.operators import TORCH_IMAGE
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.formats.console import new_console, new_table
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.objects import Object, annotation
from gke_ai.manifests.training_job import CONTAINER
from gke_ai.ops.runs import logs
from gke_ai.ops.runs.command import Run
from gke_ai.ops.submit.checks import Checked, check
from gke_ai.ops.submit.command import REFUSED, How, create, name_problems, run_of, tell
from gke_ai.ops.submit.follow import follow
from gke_ai.ops.submit.member import SUBMITTED, Member, title
from gke_ai.ops.submit.options import Options
from gke_ai.ops.submit.request import Request
from gke_ai.ops.submit.workdir import pack
from gke_ai.ops.verify.checks import FAIL, PASS, UNCHECKED
from gke_ai.settings.model import Pool
from gke_ai.settings.published import Published, resolved
from gke_ai.terminal import Stop, write
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import Stack

PROGRAM = Path(str(files("gke_ai"))) / "pods" / "bandwidth"
# The plug-in of NCCL is not installed on every machine.
COMMAND = ("bash", "-c", f"[ ! -f {SETTINGS} ] || source {SETTINGS}; exec torchrun all_reduce.py")
# With them NCCL prints the network that it uses, and the program refuses to measure CPUs.
VARIABLES = ("NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", "NEED_GPUS=1")
_NETWORK = re.compile(r"NCCL INFO Using network (\S+)")
_HANG = re.compile(r"Watchdog caught (collective operation timeout: .{,300}) before timing out")
_PLUGIN = "see whether the pods have NCCL's plug-in and the NICs (docs/rdma.md)"
_NO_GPU = "see whether all GPUs of the nodes work, and whether PyTorch of the image fits their driver"
# What to do about an error, by a part of its text in NCCL 2.28 or an earlier version.
_STEPS = {
    r"any NET plugin|network \S+ not found": _PLUGIN,
    r"PyTorch sees|NVIDIA|CUDA": _NO_GPU,
    r"(?i)timeout|timed out": "a process, GPU or NIC does not answer. Measure other nodes, and see what these drop",
}
# For each GPU; every GPU machine has more.
CPUS, MEMORY_GIB = 2, 8
MAX_LOG_BYTES = 16 * 1024 * 1024
FAILED_PODS, ERRORS, ERROR_LENGTH = 8, 5, 600  # what is read and shown of a failed test
LAUNCH_BYTES = 8 * 2**20  # a smaller message takes as long, but over TCP (docs/verify.md)


@dataclass(frozen=True)
class Measurement:
    """What is measured, and where. Without a namespace or queue: the first queue with nodes of the pool."""

    pool: str
    nodes: int = 2
    namespace: str = ""
    queue: str = ""
    image: str = TORCH_IMAGE
    minutes: float = 30


@dataclass(frozen=True)
class Result:
    """The lines that the program printed, and what they mean."""

    machine: str
    lines: list[dict[str, Any]]
    network: str
    """The network that NCCL says it used between nodes; empty if it says none."""

    @property
    def last(self) -> dict[str, Any]:
        """The line of the largest message."""
        return max(self.lines, key=lambda line: int(line["bytes"]))

    @property
    def what(self) -> str:
        """What was measured, in words."""
        last = self.last
        if last["backend"] != "nccl":
            return f"{last['backend']} on CPUs, {last['path']}: no figure of a GPU"
        inside = "NVLink or PCIe inside one node"
        where = f"the network between {last['nodes']} nodes ({self.network or 'NCCL names none'})"
        return f"NCCL over {where if last['nodes'] > 1 else inside}, {last['ranks']} GPUs ({last['device']})"

    @property
    def judged(self) -> tuple[str, str]:
        """Whether the largest message reaches the floor of the machine, and why."""
        last, floor = self.last, FLOORS.get(self.machine)
        if not all(line["correct"] for line in self.lines):
            return FAIL, "sums were wrong: the GPUs or the network corrupt data"
        if last["backend"] != "nccl":
            return FAIL, "PyTorch sees no GPU, and without GPUs there is nothing to compare"
        if last["nodes"] < 2:
            return UNCHECKED, "inside one node, the floor of the network does not apply"
        if floor is None:
            return UNCHECKED, f"no floor is published for {self.machine}"
        if last["bytes"] < floor.bytes:
            return UNCHECKED, f"the floor is that of messages of {_size(floor.bytes)}"
        bound = f"{floor.gb_per_s:g} GB/s less {floor.tolerance:.0%} ({floor.source})"
        good = last["bus_gb_per_s"] >= floor.accepted
        return (PASS if good else FAIL), f"{'at least' if good else 'below'} the floor of {self.machine}, {bound}"

    @property
    def step(self) -> str:
        """The next step; empty if there is none."""
        if self.judged[0] != FAIL:
            return ""
        if self.last["backend"] != "nccl":
            return _NO_GPU
        if self.network == "Socket":
            return f"NCCL used TCP sockets: {_PLUGIN}"
        return "measure again on other nodes. If these fail again, drain them and report them to Google"

    def as_json(self) -> dict[str, Any]:
        """The result as plain data."""
        state, why = self.judged
        measured = {"machine": self.machine, "measured": self.what, "network": self.network, "sizes": self.lines}
        return {**measured, "result": state, "why": why, "next": self.step}


def measure(stack: Stack, test: Measurement, file: Path | None = None) -> int:
    """Measures the bandwidth of a pool and prints it. Returns the exit code."""
    api = stack.cluster()
    namespace, queue, published = place_of(api, test)
    pool = next(pool for pool in resolved(published).pools if pool.name == test.pool)
    member = Member(api, namespace)
    checked = check(member, published, request_of(test, queue, pool))
    if problems := [*checked.problems, *name_problems(checked, How(again=True))]:
        tell("The test is refused, and nothing was created:")
        for problem in problems:
            tell(f"  - {problem}")
        return REFUSED
    if on_emulator():
        tell("Pods of the emulator run no program, so the test ends at its time limit, without figures.")
    output, failed = _run(member, checked, test, stack)
    result = parse(output, pool.node_machine_type)
    if failed and all(line["correct"] for line in result.lines):  # wrong ones end the program with 1 too
        raise Stop(f"The test failed, and is deleted. {cause(output)}")
    if not result.lines:
        raise Stop("The run completed, and printed no figures. Was its image one with torchrun?")
    _print(result)
    if file:
        write({file: json.dumps(result.as_json(), indent=2) + "\n"})
    return 1 if result.judged[0] == FAIL else 0


def place_of(api: ApiClient, test: Measurement) -> tuple[str, str, Published]:
    """Returns the namespace, the local queue, and what the stack published there. Stops without such a queue."""
    for namespace, queue, published in places(api, test.pool):
        if test.namespace in ("", namespace) and test.queue in ("", queue):
            return namespace, queue, published
    where = " ".join(filter(None, (test.namespace and f"in namespace {test.namespace}", test.queue)))
    raise Stop(
        f"No local queue of a tenant {where}{' ' * bool(where)}leads to pool {test.pool}, so no run can be "
        "submitted to it. Name a GPU pool of a flavor in gke-ai:queues, whose cluster queue a tenant uses."
    )


def places(api: ApiClient, pool: str) -> Iterator[tuple[str, str, Published]]:
    """Yields the local queues of tenants with a flavor on a pool."""
    for item in list_objects(api, "/api/v1/configmaps", fieldSelector=f"metadata.name={CONFIG_MAP}"):
        try:
            published = Published.parse(annotation(item, ANNOTATION))
        except InvalidDocument:
            continue  # any namespace may have a ConfigMap of this name
        if pool not in [known["name"] for known in published.sections["gpuPools"]]:
            continue
        queues = published.sections["queues"]
        flavors = {flavor["name"] for flavor in queues["flavors"] if pool in flavor.get("pools", [])}
        of_queues = {
            queue["name"]: {quota["flavor"] for quota in queue["flavors"]} for queue in queues["clusterQueues"]
        }
        for queue in queues["localQueues"]:
            if flavors & of_queues.get(queue["clusterQueue"], set()):
                yield queue["namespace"], queue["name"], published


def request_of(test: Measurement, queue: str, pool: Pool) -> Request:
    """The run of the test: a pod with all GPUs of its node, on each node."""
    gpus = pool.accelerators_per_node
    options = Options(
        f"bandwidth-{test.pool}"[:40].rstrip("-"),
        test.image,
        COMMAND,
        pods=test.nodes,
        gpus_per_pod=gpus,
        queue=queue,
        pool=test.pool,
        cpu=str(CPUS * gpus),
        memory=f"{MEMORY_GIB * gpus}Gi",
        env=VARIABLES,
        max_restarts=0,
    )
    return Request(options=options, code=pack(PROGRAM))


def _run(member: Member, checked: Checked, test: Measurement, stack: Stack) -> tuple[str, bool]:
    """Creates the run, and returns what it printed and whether it failed. The run is deleted in any case."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = run_of(create(member, checked, again=True))
        tell(f"The {run.kind} {run} measures {test.nodes} nodes. It is deleted at the end, also after Ctrl-C.")
        try:
            ended = follow(member.api, run, tell, test.minutes * 60)
        except TimeoutError as late:
            output = _logs(member.api, run, FAILED_PODS)
            free = f"Free nodes of pool {test.pool}, or set --minutes. What waits:  {stack.next('status')}"
            hang = f"PyTorch names a hang after 10 min of it: set --minutes. {cause(output)}"
            within = f"The test had no result within {test.minutes:g} min, and is deleted. {late}"
            raise Stop(f"{within} {hang if output else free}") from None
        return _logs(member.api, run, FAILED_PODS if ended else 1), bool(ended)
    except KeyboardInterrupt:
        raise Stop("The test was interrupted, and is deleted.") from None
    finally:
        _delete(member, checked)
        signal.signal(signal.SIGTERM, before)


def _logs(api: ApiClient, run: Run, count: int) -> str:
    """Returns the logs of the first pods of a run. The reason of a failure may be in any of them."""
    return "\n".join(filter(None, (_log(api, pod) for pod in sorted(run.pods(api), key=logs.order)[:count])))


def _log(api: ApiClient, pod: Object) -> str:
    answer = logs.read(api, pod, CONTAINER, limitBytes=str(MAX_LOG_BYTES))
    return str(answer.body) if answer.code == 200 else ""


def _delete(member: Member, checked: Checked) -> None:
    """Deletes what the test created, the run first."""
    for item in reversed(checked.objects):
        with suppress(Stop):
            found = member.existing(item)
            if found is not None and annotation(found, SUBMITTED) == annotation(item, SUBMITTED):
                member.delete({**found, "kind": item["kind"]})
        if _is_there(member, item):
            tell(f"Not deleted: the {title(item)}. Delete it yourself.")


def _is_there(member: Member, item: Object) -> bool:
    try:
        found = member.existing(item)
    except Stop:
        return True
    return found is not None and not found["metadata"].get("deletionTimestamp")


def parse(output: str, machine: str) -> Result:
    """Returns the result that a log has, between the lines of NCCL."""
    lines = list(_json(output, "bus_gb_per_s"))
    # NCCL names a network inside one node too, and does not use it there.
    network = _NETWORK.search(output) if any(line["nodes"] > 1 for line in lines) else None
    return Result(machine, lines, network[1] if network else "")


def cause(output: str) -> str:
    """Returns why a test has no result, by its log: the errors of its processes, else the end of the log."""
    errors = _HANG.findall(output) + [f"{line['error']} (on {line.get('host')})" for line in _json(output, "error")]
    if not errors:
        return "\n".join(["The end of its log:", *output.splitlines()[-20:]] if output else ["It has no log."])
    where = [f"after the messages of {_size(line['bytes'])}" for line in _json(output, "bus_gb_per_s")]
    shown = [f"  - {' '.join(error.split())[:ERROR_LENGTH]}" for error in dict.fromkeys(errors)]
    steps = [f"→ {step}" for known, step in _STEPS.items() if re.search(known, errors[0])]
    return "\n".join((f"It ended {(where or ['before the first figure'])[-1]}:", *shown[:ERRORS], *steps[:1]))


def _json(output: str, key: str) -> Iterator[dict[str, Any]]:
    """Yields the lines of a log that are JSON objects with a key. Processes may have written two on one line."""
    for text in output.replace("}{", "}\n{").splitlines():
        with suppress(ValueError, RecursionError):
            line = json.loads(text) if text.startswith("{") else None
            if isinstance(line, dict) and key in line:
                yield line


def _size(count: int) -> str:
    return f"{count / 2**30:g} GiB" if count >= 2**30 else f"{count / 2**20:g} MiB"


def _print(result: Result) -> None:
    columns = ("message", "time", "algorithm", "bus", "sums")
    launch = " (launch time)" * (result.last["backend"] == "nccl" and result.network != "Socket")
    rows = []
    for line in result.lines:
        algorithm, bus = (f"{line[key]:.1f} GB/s" for key in ("algorithm_gb_per_s", "bus_gb_per_s"))
        bus += launch * (line["bytes"] < LAUNCH_BYTES)
        time = f"{line['seconds'] * 1000:.3f} ms"
        sums = "right" if line["correct"] else "wrong"
        rows.append((_size(line["bytes"]), time, algorithm, bus, sums))
    console = new_console()
    console.print(new_table(columns, rows, f"All-reduce on {result.machine}: {result.what}"))
    state, why = result.judged
    console.print(f"\n{state}: {result.last['bus_gb_per_s']:.1f} GB/s on the bus. {why}.", soft_wrap=True)
    if result.step:
        console.print(f"→ {result.step}", soft_wrap=True)
