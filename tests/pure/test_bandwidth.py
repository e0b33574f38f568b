"""`gke-ai verify --bandwidth`: the run that measures, its end in every case, and what its figures mean."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gke_ai.catalog.fabric.bandwidth import FLOORS
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.ops.submit.command import REFUSED
from gke_ai.ops.submit.image import ImageCheck
from gke_ai.ops.verify import bandwidth
from gke_ai.ops.verify.bandwidth import Measurement, Result, cause, measure, parse
from gke_ai.ops.verify.checks import FAIL, PASS, UNCHECKED
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Context
from tests.support import submitted
from tests.support.submitted import PUBLISHED, line

Object = dict[str, Any]
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets"


@pytest.mark.parametrize(
    ("machine", "lines", "state", "why"),
    [
        ("a3-megagpu-8g", [line(1.0, bytes=2**20), line(340.0)], PASS, "at least the floor of a3-megagpu-8g, 250 GB/s"),
        ("a3-megagpu-8g", [line(225.0)], PASS, "less 10%"),
        ("a3-megagpu-8g", [line(4.0)], FAIL, "below the floor"),
        ("a3-megagpu-8g", [line(340.0, correct=False, bytes=2**20), line(340.0)], FAIL, "sums were wrong"),
        ("a3-megagpu-8g", [line(340.0, bytes=2**30)], UNCHECKED, "of messages of 16 GiB"),
        # NVLink's figures never pass for those of the network.
        ("a3-megagpu-8g", [line(460.0, nodes=1, ranks=8)], UNCHECKED, "the floor of the network does not apply"),
        ("a3-megagpu-8g", [line(0.3, backend="gloo")], FAIL, "PyTorch sees no GPU"),
        ("a4-highgpu-8g", [line(340.0)], UNCHECKED, "no floor is published for a4-highgpu-8g"),
    ],
)
def test_largest_message_is_compared_with_the_floor(machine: str, lines: list[Object], state: str, why: str) -> None:
    judged, reason = Result(machine, lines, "FasTrak").judged
    assert (judged, why in reason) == (state, True), reason


def test_a_floor_has_its_source() -> None:
    assert all(floor.source.startswith("https://github.com/NVIDIA/aicr/blob/") for floor in FLOORS.values())


def test_figures_are_read_between_the_lines_of_nccl() -> None:
    figures = [json.dumps(line(1.0, bytes=2**20)), json.dumps(line())]
    text = "\n".join(["node:1:2 [0] NCCL INFO Using network gIB", '{"not": "a figure"}', "{broken", *figures])
    result = parse(text, "a4-highgpu-8g")
    assert (len(result.lines), result.network, result.last["bytes"]) == (2, "gIB", 2**34)
    assert result.what == "NCCL over the network between 2 nodes (gIB), 16 GPUs (NVIDIA H100)"
    inside = parse(f"NCCL INFO Using network Socket\n{json.dumps(line(nodes=1))}", "a4-highgpu-8g")
    assert inside.what.startswith("NCCL over NVLink or PCIe inside one node")
    assert (inside.network, inside.as_json()["network"]) == ("", "")
    assert parse(json.dumps(line(backend="gloo")), "x").what.startswith("gloo on CPUs")
    assert "TCP sockets" in parse(f"NCCL INFO Using network Socket\n{json.dumps(line(4.0))}", "a3-megagpu-8g").step


# What the program printed on 2026-11-28 on a machine with two H200 GPUs (PyTorch 2.11.0, NCCL 2.28.9), shortened.
# torchrun ends each log with its summary.
SUMMARY = "\n".join(
    [
        *(f'  File "torch/distributed/run.py", line {number}, in run' for number in range(20)),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -9 (pid: 1593)",
        "  traceback : Signal 9 (SIGKILL) received by PID 1593",
    ]
)
HIDDEN = '{"error": "RuntimeError: PyTorch sees 1 of 2 GPUs", "host": "vm"}'
NONE = '{"error": "RuntimeError: No CUDA GPUs are available", "host": "vm"}'
NCCL_ERROR = (
    "DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid usage (run with "
    "NCCL_DEBUG=WARN for details), NCCL version 2.28.9\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
    "library.\nLast error:\n"
)
NO_PLUGIN, OLDER = (
    json.dumps({"error": NCCL_ERROR + last, "host": "vm"})
    for last in ("Failed to initialize any NET plugin", "Error: network gIB not found.")
)
TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=70, OpType=ALLREDUCE, NumelIn=1048576, "
    "NumelOut=1048576, Timeout(ms)=20000) ran for 20019 milliseconds before timing out."
)
HANG = "\n".join(
    [
        json.dumps(line(41.3, bytes=2**21)),
        f"[rank0]:[E1128 12:35:07.256673204 ProcessGroupNCCL.cpp:689] [Rank 0] {TIMEOUT}",
        '{"error": "DistBackendError: NCCL communicator was aborted on rank 0.", "host": "vm"}',
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated: {TIMEOUT}",
    ]
)
LATE = '{"error": "DistNetworkError: The client socket has timed out after 60000ms", "host": "node-1"}'


@pytest.mark.parametrize(
    ("log", "reason", "step"),
    [
        (HIDDEN, "before the first figure:\n  - RuntimeError: PyTorch sees 1 of 2 GPUs", "GPUs of the nodes work"),
        (NONE, "No CUDA GPUs are available (on vm)", "PyTorch of the image fits their driver"),
        (NONE * 2, "No CUDA GPUs are available (on vm)", "PyTorch of the image fits their driver"),
        (NO_PLUGIN, "Last error: Failed to initialize any NET plugin (on vm)", "have NCCL's plug-in"),
        (OLDER, "Last error: Error: network gIB not found. (on vm)", "have NCCL's plug-in"),
        (HANG, "after the messages of 2 MiB:\n  - collective operation timeout: WorkNCCL(SeqNum=70", "does not answer"),
        (LATE, "timed out after 60000ms (on node-1)", "does not answer"),
        ("bash: line 1: exec: torchrun: not found", "The end of its log:\nbash: line 1: exec: torchrun", ""),
        (SUMMARY, "Signal 9 (SIGKILL) received by PID 1593", ""),
        ("", "It has no log.", ""),
    ],
)
def test_the_reason_of_a_failure_is_shown_and_not_the_summary_of_torchrun(log: str, reason: str, step: str) -> None:
    output = f"{log}\n{SUMMARY}" if '"error"' in log else log
    shown = cause(f"{output}\n{output}" if step else output)
    assert reason in shown
    assert (shown.count(reason), step in shown, "→" in shown) == (1, True, bool(step))
    assert ("ChildFailedError" in shown) == (log == SUMMARY)


def test_a_log_of_errors_is_shown_in_part() -> None:
    errors = (json.dumps({"error": f"E{number}: {'x' * 10_000}"}) for number in range(1000))
    assert len(cause("\n".join(["[" * 100_000, '{"a":' * 100_000, *errors]))) < 10_000


# ----------------------------------------------------------------------------------------------------------------- run
QUOTA = {"flavor": "l4", "quota": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}}
QUEUES = {**PUBLISHED.sections["queues"], "clusterQueues": [{"name": "cq", "flavors": [QUOTA]}]}
SECTIONS = {**PUBLISHED.sections, "queues": QUEUES}
# What the stack publishes: a queue with quota for two nodes of the pool.
PUBLISHES = yaml.safe_dump({"version": PUBLISHED.version, "project": "p", "sections": SECTIONS, "nodes": []})


class Cluster(submitted.Cluster):
    """A cluster with a queue for the pool, in which runs end as stated. Their pods print a text."""

    def __init__(self, end: str = "Completed") -> None:
        super().__init__()
        self.end = end
        published = {"metadata": {"name": CONFIG_MAP, "annotations": {ANNOTATION: PUBLISHES}}}
        self.objects["/api/v1/configmaps"] = {"items": [published]}
        pod = {"metadata": {"name": "pod-0", "namespace": "team-a"}, "status": {"phase": "Succeeded"}}
        self.objects["/api/v1/namespaces/team-a/pods"] = {"items": [pod]}

    def answer(self, method: str, path: str, query: str, body: Object) -> tuple[int, Object] | None:
        answer = super().answer(method, path, query, body)
        if method == "GET" and path.startswith(f"{JOBSETS}/") and answer and answer[0] == 200:
            return 200, {**answer[1], "status": {"terminalState": self.end}}
        return answer

    @property
    def left(self) -> list[str]:
        """What the test created and did not delete."""
        return [name for name in self.created if name in self.objects]


@pytest.fixture(autouse=True)
def prints(monkeypatch: Patch) -> Callable[[str], None]:
    """Sets what pods print: figures, unless a test sets something else."""

    def set_log(log: str) -> None:
        monkeypatch.setattr(bandwidth, "_log", lambda *_: log)

    monkeypatch.setattr(ImageCheck, "_ask", lambda *_: None)
    set_log("\n".join(json.dumps(line(bus, bytes=size)) for bus, size in ((1.0, 2**20), (340.0, 2**34))))
    return set_log


def run(cluster: Cluster, folder: Path, test: Measurement, file: Path | None = None) -> int:
    with submitted.serve(cluster, folder) as kubeconfig:
        return measure(Context("ml", kubeconfig=kubeconfig, namespace="team-a"), test, file)


def test_a_run_through_the_queue_measures_and_is_deleted(tmp_path: Path, capsys: Capture) -> None:
    cluster, file, kept = Cluster(), tmp_path / "result.json", dict[str, Object]()
    original: Callable[..., Any] = cluster.answer

    def answer(method: str, path: str, query: str, body: Object) -> Any:
        if method == "POST" and "dryRun" not in query and "metadata" in body:
            kept[body["kind"]] = body
        return original(method, path, query, body)

    cluster.answer = answer  # type: ignore[method-assign]
    assert run(cluster, tmp_path, Measurement("gpus"), file) == 0
    (job,) = kept["JobSet"]["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["parallelism"], kept["JobSet"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == (2, "lq")
    assert container["command"] == list(bandwidth.COMMAND)
    assert "all_reduce.py" in container["command"][2]
    assert kept["JobSet"]["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert sorted(kept) == ["ConfigMap", "JobSet", *(["SelfSubjectAccessReview"] if len(kept) > 2 else [])]
    assert cluster.left == []
    printed = capsys.readouterr().out
    assert "16 GiB" in printed
    assert "340.0 GB/s" in printed
    assert printed.count("(launch time)") == 1  # of 1 MiB
    assert {"name": "NEED_GPUS", "value": "1"} in container["env"]
    assert "no floor is published" in printed
    result = json.loads(file.read_text())
    assert (result["result"], [size["bytes"] for size in result["sizes"]]) == (UNCHECKED, [2**20, 2**34])


@pytest.mark.parametrize(
    ("end", "minutes", "fault", "message"),
    [
        ("", 0, None, "had no result within 0 min, and is deleted. Queue lq: Kueue has"),
        ("", 30, KeyboardInterrupt, "was interrupted, and is deleted"),
        ("Failed", 30, None, "The test failed, and is deleted. The end of its log"),
    ],
)
def test_the_run_is_deleted_however_it_ends(
    end: str, minutes: int, fault: Any, message: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    def interrupted(*_: Any) -> int:
        raise fault

    if fault:
        monkeypatch.setattr(bandwidth, "follow", interrupted)
    cluster = Cluster(end)
    with pytest.raises(Stop, match=message):
        run(cluster, tmp_path, Measurement("gpus", minutes=minutes))
    assert len(cluster.created) == 2
    assert cluster.left == []


@pytest.mark.parametrize(("log", "reason"), [(HIDDEN, "sees 1 of 2"), (NO_PLUGIN, "any NET"), (HANG, "on timeout")])
@pytest.mark.parametrize(("end", "minutes"), [("Failed", 30), ("", 0)])
def test_a_test_that_fails_or_hangs_ends_with_its_reason(
    end: str, minutes: int, log: str, reason: str, tmp_path: Path, prints: Callable[[str], None]
) -> None:
    prints(f"{log}\n{SUMMARY}")
    with pytest.raises(Stop, match=f"is deleted[^→]*{reason}[^→]*→"):
        run(Cluster(end), tmp_path, Measurement("gpus", minutes=minutes))


def test_the_reason_of_a_failure_may_be_in_the_log_of_any_pod(tmp_path: Path, monkeypatch: Patch) -> None:
    cluster = Cluster("Failed")
    (pod,) = cluster.objects["/api/v1/namespaces/team-a/pods"]["items"]
    other = {**pod, "metadata": {**pod["metadata"], "name": "pod-1"}}
    cluster.objects["/api/v1/namespaces/team-a/pods"] = {"items": [pod, other]}
    monkeypatch.setattr(bandwidth, "_log", lambda _, pod: HIDDEN if pod["metadata"]["name"] == "pod-1" else SUMMARY)
    with pytest.raises(Stop, match="PyTorch sees 1 of 2 GPUs"):
        run(cluster, tmp_path, Measurement("gpus"))


@pytest.mark.parametrize(
    ("end", "fault", "message"),
    [
        ("Failed", {"correct": False}, "fail: 340.0 GB/s on the bus. sums were wrong"),
        ("Completed", {"correct": False}, "fail: 340.0 GB/s on the bus. sums were wrong"),
        ("Completed", {"backend": "gloo"}, "fail: 340.0 GB/s on the bus. PyTorch sees no GPU"),
    ],
)
def test_wrong_sums_and_cpus_fail_with_their_figures(
    end: str, fault: Object, message: str, tmp_path: Path, prints: Callable[[str], None], capsys: Capture
) -> None:
    prints(f"{json.dumps(line(**fault))}\n{SUMMARY}")
    cluster = Cluster(end)
    assert run(cluster, tmp_path, Measurement("gpus")) == 1
    assert message in capsys.readouterr().out
    assert cluster.left == []


def test_figures_over_tcp_are_no_launch_times_and_a_log_without_figures_is_no_result(
    tmp_path: Path, prints: Callable[[str], None], capsys: Capture
) -> None:
    prints(f"NCCL INFO Using network Socket\n{json.dumps(line(2.5, bytes=2**20))}")
    assert run(Cluster(), tmp_path, Measurement("gpus")) == 0
    printed = capsys.readouterr().out
    assert ("2.5 GB/s" in printed, "launch time" in printed) == (True, False)
    prints("hello")
    with pytest.raises(Stop, match="printed no figures"):
        run(Cluster(), tmp_path, Measurement("gpus"))


def test_unreachable_pool_and_a_too_large_test_are_refused(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(Stop, match="No local queue of a tenant leads to pool other"):
        run(Cluster(), tmp_path, Measurement("other"))
    with pytest.raises(Stop, match="in namespace team-b leads to pool gpus"):
        run(Cluster(), tmp_path, Measurement("gpus", namespace="team-b"))
    cluster = Cluster()
    assert run(cluster, tmp_path, Measurement("gpus", nodes=1000)) == REFUSED
    assert cluster.created == []
    assert "The test is refused, and nothing was created" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- program
class Tensor:
    """Numbers of one process. With one process, a sum over all is what it was."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers

    def item(self) -> float:
        return self.numbers[0]

    def fill_(self, number: float) -> None:
        self.numbers = [number]

    def __eq__(self, other: object) -> Any:
        return SimpleNamespace(all=lambda: self.numbers == [other])

    __hash__ = object.__hash__


def program(monkeypatch: Patch, sums: Callable[[Tensor], None] = lambda _: None, **cuda: Any) -> Any:
    """The program, with a PyTorch that has one process and these functions of `torch.cuda`."""
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    ranks = SimpleNamespace(
        init_process_group=nothing,
        get_world_size=lambda: 1,
        get_rank=lambda: 0,
        get_backend=lambda: "gloo",
        all_reduce=lambda tensor, **_: sums(tensor),
        barrier=nothing,
        destroy_process_group=nothing,
        ReduceOp=SimpleNamespace(MIN=0, MAX=1),
    )
    torch = SimpleNamespace(
        cuda=SimpleNamespace(**{"is_available": lambda: False, **cuda}),
        device=lambda *_: "cpu",
        tensor=lambda numbers, **_: Tensor(numbers),
        full=lambda _, number, **__: Tensor([number]),
        distributed=ranks,
        int64=0,
        float32=0,
        float64=0,
        __version__="0",
    )
    known = {"torch": torch, "torch.distributed": ranks}
    monkeypatch.setattr("importlib.import_module", lambda name: known[name])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2" if cuda else "1")
    return lambda name="program": runpy.run_path(str(bandwidth.PROGRAM / "all_reduce.py"), run_name=name)


def test_program_measures_without_gpus_too(monkeypatch: Patch, capsys: Capture) -> None:
    assert program(monkeypatch)()["main"]() == 0
    result = parse(capsys.readouterr().out, "g2-standard-4")
    assert [figure["bytes"] for figure in result.lines] == [2**size for size in range(20, 27)]
    assert {(figure["backend"], figure["nodes"], figure["correct"]) for figure in result.lines} == {("gloo", 1, True)}


@pytest.mark.parametrize(("rank", "status"), [("0", 1), ("1", 0)])
def test_wrong_sums_fail_the_first_process(rank: str, status: int, monkeypatch: Patch, capsys: Capture) -> None:
    def corrupt(tensor: Tensor) -> None:
        if tensor.numbers == [1.0]:
            tensor.numbers = [3.0]

    monkeypatch.setenv("RANK", rank)
    assert program(monkeypatch, corrupt)()["main"]() == status
    assert parse(capsys.readouterr().out, "g2-standard-4").judged[1].startswith("sums were wrong")


def no_driver() -> None:
    raise RuntimeError("Found no NVIDIA driver on your system")


ONE_GPU = {"init": lambda: None, "is_available": lambda: True, "device_count": lambda: 1}


@pytest.mark.parametrize(
    ("cuda", "error"),
    [({"init": no_driver}, "Found no NVIDIA driver on your system"), (ONE_GPU, "PyTorch sees 1 of 2 GPUs")],
)
def test_a_failed_process_prints_its_error(cuda: Object, error: str, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setenv("NEED_GPUS", "1")
    with pytest.raises(RuntimeError):
        program(monkeypatch, **cuda)("__main__")
    printed = capsys.readouterr().out
    assert json.loads(printed)["error"] == f"RuntimeError: {error}"
    assert f"  - RuntimeError: {error} (on " in cause(f"{printed}{SUMMARY}")
