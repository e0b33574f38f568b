"""A trace is read as typed rows, and every mistake names its line and column; public formats become the same rows."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.fabric.topology import LEVELS
from gke_ai.forecast.simulate import generate as distributions
from gke_ai.forecast.simulate import imports, trace
from gke_ai.forecast.simulate.generate import Source, generate
from gke_ai.forecast.simulate.imports import import_philly, import_snapshot, import_table, window
from gke_ai.forecast.simulate.trace import COLUMNS, Submission, read, written
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.terminal import Stop

HEADER = ",".join(COLUMNS)
ROW = "12.5,team/gpus,low,2,1,4.5,16,3600,900,yes,required=block"


def file(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_become_submissions_in_order_of_time(tmp_path: Path) -> None:
    submission = Submission(12.5, "team/gpus", "low", 2, 1, 4.5, 16.0, 3600.0, 900.0, True, "required=block")
    assert read(file(tmp_path, HEADER, ROW)) == (submission,)
    shorter = (text.rsplit(",", 3)[0] for text in (HEADER, ROW))
    assert read(file(tmp_path, *shorter)) == (replace(submission, checkpoint=0.0, spot=False, topology=""),)
    assert [row.time for row in read(file(tmp_path, HEADER, ROW, ROW.replace("12.5", "3")))] == [3.0, 12.5]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rows = generate([Source("team/gpus", "low", 2, 1.5, 8.0)], 50, seed=3)
    path = tmp_path / "trace.csv"
    path.write_text(written(rows))
    assert "topology" not in path.read_text()
    assert read(path) == rows
    rows = (replace(rows[0], topology="preferred=host"), *rows[1:])
    path.write_text(written(rows))
    assert read(path) == rows
    bad = ROW.replace("3600", "long")
    with pytest.raises(Stop) as stop:
        read(file(tmp_path, HEADER, *[bad] * 50))
    assert [line.split(",")[1] for line in str(stop.value).splitlines()] == [f" line {n}" for n in range(2, 12)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("time", value) for value in ("", "-1", "nan", "inf", "1e300", "noon")),
        *(("queue", value) for value in ("", "gpus", "a/b/c", "Team/gpus", "team/../gpus")),
        *(("pods", value) for value in ("0", "1.5", "-1", "9999999999999", "٣")),
        *(("priority", "not a name"), ("accelerators", "-1"), ("cpu", "four"), ("memory", "16Gi")),
        *(("duration", value) for value in ("0", "-5", "1e12")),
        *(("checkpoint", "-1"), ("spot", "maybe")),
        *(("topology", value) for value in ("block", "required=rack", "unconstrained=block", "required=")),
    ],
)
def test_a_mistake_names_its_line_and_column(tmp_path: Path, column: str, value: str) -> None:
    values = dict(zip(COLUMNS, ROW.split(","), strict=True)) | {column: value}
    with pytest.raises(Stop, match=rf"trace.csv, line 3, column {column}: '{value}': use ".replace("/", "\\/")):
        read(file(tmp_path, HEADER, ROW, ",".join(values.values())))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((HEADER.replace("queue", "que"), ROW), "line 1: there is no column queue"),
        ((HEADER, ROW + ",more"), "line 2: the row does not have 11 values"),
        ((HEADER, "1,team/gpus"), "line 2: the row does not have 11 values"),
        ((HEADER, '"' + ROW), "line 2: this is no CSV"),
        ((HEADER,), "has no submissions"),
        (("",), "there is no column time"),
        ((HEADER, "x" * 200_000), "this is no CSV"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(Stop, match=message):
        read(file(tmp_path, *lines))


def test_hostile_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (binary, tmp_path, tmp_path / "missing.csv", Path("/dev/zero")):
        with pytest.raises(Stop):
            read(path)
    with pytest.raises(Stop) as stop:
        read(file(tmp_path, HEADER, ROW.replace("3600", "9" * 5000)))
    assert len(str(stop.value)) < 400
    monkeypatch.setattr(trace, "MAX_ROWS", 3)
    with pytest.raises(Stop, match="more than 3 rows"):
        read(file(tmp_path, HEADER, *[ROW] * 4))
    monkeypatch.setattr(trace.text_of, "__defaults__", (10,))
    with pytest.raises(Stop, match="MiB"):
        read(file(tmp_path, HEADER, ROW))


def test_the_same_seed_gives_the_same_trace_of_small_enough_runs_and_a_part_begins_at_zero() -> None:
    sources = [Source("team/gpus"), Source("team/tpus")]
    first, again, other = (generate(sources, 100, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {row.pods for row in generate([Source("team/a", most_pods=2)], 200, seed=1)} == {1, 2}
    rows = [Submission(hour * 3600.0, "team/gpus", "", 1, 1, 1, 1, 60) for hour in range(5)]
    assert [row.time for row in window(rows, start=1, hours=2)] == [0.0, 3600.0]


def test_a_generated_trace_has_the_stated_distributions() -> None:
    rows = generate([Source("team/a"), Source("team/b")], 20_000, seed=1)
    assert len(rows) == pytest.approx(20_000, rel=0.03)
    assert sum(row.queue == "team/a" for row in rows) / len(rows) == pytest.approx(0.5, abs=0.02)
    assert sorted(row.duration for row in rows)[len(rows) // 2] == pytest.approx(distributions.MEDIAN, rel=0.05)
    weights = dict(distributions.SIZES)
    assert {row.pods for row in rows} == weights.keys()
    for pods, weight in weights.items():
        assert sum(row.pods == pods for row in rows) / len(rows) == pytest.approx(weight, abs=0.02)
    by_hour = [sum(hour <= row.time / 3600 < hour + 2 for row in rows) for hour in (3, 15)]
    assert by_hour[0] / by_hour[1] == pytest.approx(distributions.NIGHT, abs=0.06)
    assert sum(row.checkpoint > 0 for row in rows) / len(rows) == pytest.approx(distributions.CHECKPOINTED, abs=0.02)
    assert sum(row.spot for row in rows) / len(rows) == pytest.approx(distributions.SPOT, abs=0.02)


QUEUES = {"": "team/gpus", "LS": "team/servers"}
ALIBABA = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
    "pod-a,8000,32768,2,1000,,BE,Succeeded,1000,4660,1060",
    "pod-b,500,1024,1,250,T4|P100,LS,Running,900,1500,900",
    "pod-c,500,1024,1,250,,LS,Pending,950,1500,",
)
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time",
    "1,ua,2,16,64,Pretrain,COMPLETED,2023-03-01 00:00:10+08:00,2023-03-01 00:00:20+08:00,2023-03-01 01:00:20+08:00,"
    "3600,10,57600.0",
    "2,ub,1,0,4,Other,CANCELLED,2023-03-01 00:00:00+08:00,,2023-03-01 00:00:30+08:00,,30,0.0",
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
    "7,ua,vcX,8,32,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0",
    "8,ua,vcX,8,32,1,CANCELLED,2020-06-09 18:42:27,2020-06-09 18:42:27,2020-06-09 18:42:27,0,0",
)


def test_public_formats_become_submissions(tmp_path: Path) -> None:
    # A task of Alibaba is one pod with whole GPUs. A job of Acme has a pod on each node.
    assert import_table(file(tmp_path, *ALIBABA), "alibaba", QUEUES) == (
        Submission(0, "team/servers", "", 1, 1, 0.5, 1.0, 600),
        Submission(100, "team/gpus", "", 1, 2, 8.0, 32.0, 3600),
    )
    job = Submission(0, "team/gpus", "", 2, 8, 32.0, 128.0, 3600)
    assert import_table(file(tmp_path, *ACME), "acme", QUEUES) == (job,)
    # A job of Helios that used no time is left out. One of Philly has the time of all attempts.
    job = Submission(0, "team/vc", "", 1, 8, 32.0, 128.0, 249)
    assert import_table(file(tmp_path, *HELIOS), "helios", {"vcX": "team/vc"}) == (job,)
    job = Submission(0, "team/gpus", "", 2, 2, 8.0, 32.0, 120)
    assert import_philly((Path(__file__).parent.parent / "data" / "philly.json"), QUEUES) == (job,)
    assert imports.FORMATS == ("alibaba", "acme", "helios", "philly", "snapshot")


def test_finished_and_running_workloads_of_a_snapshot_are_runs(tmp_path: Path) -> None:
    def workload(name: str, **conditions: str) -> dict[str, Any]:
        requests = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"}
        asked = {} if "Finished" in conditions else {"topologyRequest": {"required": LEVELS["block"]}}
        pod = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
        pod_sets = [{"name": "main", "count": 2, "template": pod, **asked}]
        times = {kind: f"2026-11-01T00:{minute}:00Z" for kind, minute in conditions.items()}
        true = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in times.items()]
        return {
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"queueName": "gpus", "priorityClassRef": {"name": "low"}, "podSets": pod_sets},
            "status": {"conditions": true},
        }

    workloads = [workload("done", Admitted="01", Finished="11"), workload("runs", Admitted="30"), workload("waits")]
    snapshot = Snapshot(takenAt=datetime(2026, 11, 1, 1, tzinfo=UTC), stack="prod", objects={"Workload": workloads})
    runs = import_snapshot(tmp_path / "snapshot.json", snapshot)
    done = Submission(0, "team/gpus", "low", 2, 1, 0.5, 2.0, 600)
    assert runs == (done, replace(done, duration=1800, topology="required=block"))


@pytest.mark.parametrize(
    ("form", "lines", "old", "new", "message"),
    [
        ("alibaba", ALIBABA, "8000", "many", "line 2, column cpu_milli: 'many': use a number"),
        ("acme", ACME, "2023-03-01 00:00:10+08:00", "yesterday", "line 2, column submit_time: 'yesterday': use a date"),
        ("acme", ACME, ",2,16,64", ",99999,16,64", "line 2, column node_num: 99999: use at most"),
        ("helios", HELIOS, "vcX", "vcY", "line 2, column vc: no local queue is named for 'vcY'"),
        ("helios", HELIOS, "vc,", "cluster,", "line 1: there is no column vc"),
    ],
)
def test_a_bad_row_of_a_format_is_named_with_its_column(
    tmp_path: Path, form: str, lines: tuple[str, ...], old: str, new: str, message: str
) -> None:
    path = file(tmp_path, *(line.replace(old, new, 1) for line in lines))
    with pytest.raises(Stop, match=message):
        import_table(path, form, {"vcX": "team/vc"} if form == "helios" else QUEUES)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"vc": "v"}]', "[" * 100_000, '[{"attempts": 5}]'])
def test_another_file_than_phillys_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Stop):
        import_philly(file(tmp_path, text), QUEUES)


def test_random_bytes_give_a_message_and_no_traceback(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(300):
        line = "".join(chance.choice('0123456789,."-\n team/gpus') for _ in range(chance.randrange(80)))
        with pytest.raises(Stop):
            read(file(tmp_path, HEADER, line, "x"))
