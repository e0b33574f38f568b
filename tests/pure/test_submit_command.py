"""The whole command `gke-ai submit` against a stub of a cluster: what it refuses, and connections that break."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.catalog.versions import JOBSET_API
from gke_ai.cli.verbs import gke_ai
from gke_ai.ops.submit import member
from gke_ai.ops.submit.image import ImageCheck
from gke_ai.terminal import Stop
from tests.support.submitted import PUBLISHED, TEXT, Cluster, job, serve

Object = dict[str, Any]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and no registry."""
    monkeypatch.setattr(member, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(ImageCheck, "_ask", lambda *_: None)


OPTIONS = {"--image": "i:1", "--pool": "gpus", "--cpu": "4", "--queue": "lq"}
# Without what the stack publishes, pools are not known.
ON_L4 = {**OPTIONS, "--pool": None, "--accelerator": "nvidia-l4"}


def submit(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(gke_ai, ["submit", "--kubeconfig", str(file), "--detach", *arguments])


def submitted(cluster: Cluster, folder: Path, *arguments: str) -> Result:
    with serve(cluster, folder) as file:
        return submit(file, *arguments)


def of(options: Object) -> list[str]:
    return ["first", *(word for option, value in options.items() if value is not None for word in (option, str(value)))]


NOT_CHECKED = "Not checked: fit on the machine, quota, pool, priority class, bucket (namespace team-a has no ConfigMap"
# What a user changes, the message, and whether it is the same without what the stack publishes. Else it is not checked.
WRONG: list[tuple[Object, str, bool]] = [
    ({"--image": "Not An Image"}, '"Not An Image" is not the name of an image', True),
    ({"--gpus": 0}, "--gpus: 0 is below the minimum, 1", True),
    ({"--pods": "0"}, "--pods: 0 is below the minimum, 1", True),
    ({"--memory": "much"}, "--memory: 'much' is not a Kubernetes quantity", True),
    ({"--env": "HF_TOKEN=x"}, "--env: ", True),
    ({"--grace-period": -1}, "--grace-period: -1 is below the minimum, 0", True),
    ({"--resume-from": "other"}, "--resume-from: ", True),
    ({"--shared-memory": "99Gi", "--memory": "8Gi"}, "--shared-memory: ", True),
    ({"--restarts": -1}, "--restarts: -1 is below the minimum, 0", True),
    ({"--queue": "other"}, "local queue other", True),
    ({"--accelerator": "nvidia-l5", "--pool": None}, "--accelerator: ", True),
    ({"--gpus": 9}, "--gpus: a pod of the JobSet requests 9 GPUs, and a node of pool gpus", False),
    ({"--pods": 3}, "--pods: the 3 pods of training first together request", False),
    ({"--priority": "high"}, "--priority: priority class high is not allowed for tenant team-a", False),
    ({"--priority": "urgent"}, "--priority: priority class urgent does not exist", False),
    ({"--checkpoints": "saved"}, "--checkpoints: bucket saved does not exist", False),
    ({"--mount": "data;/data"}, "--mount: bucket data does not exist", False),
    ({"--service-account": "deployer"}, "--service-account: ", False),
]


@pytest.mark.parametrize(
    ("kind", "metadata", "spec"),
    [
        ("WorkloadPriorityClass", {"labels": {"kueue.x-k8s.io/priority-class": "absent"}}, {}),
        ("PriorityClass", {}, {"priorityClassName": "absent"}),
    ],
)
def test_a_missing_priority_class_is_refused(kind: str, metadata: Object, spec: Object, tmp_path: Path) -> None:
    """Kueue creates no Workload for it, and says so only in its log."""
    item = job({"cpu": "2", "memory": "1Gi"}, **spec)
    item["metadata"]["labels"] |= metadata.get("labels", {})
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(item))
    with serve(Cluster(published=False), tmp_path) as file:
        result = submit(file, "--manifest", str(manifest), "--dry-run")
        manifest.write_text(manifest.read_text().replace("absent", "unknown"))
        unknown = submit(file, "--manifest", str(manifest), "--dry-run")
    assert result.exit_code == 3, result.output
    assert f"{kind} absent does not exist. Kueue would never see the run." in " ".join(result.output.split())
    assert unknown.exit_code == 0, "who may not read the class is not refused"


@pytest.mark.parametrize(("change", "message", "always"), WRONG, ids=[str(row[0]) for row in WRONG])
@pytest.mark.parametrize("published", [True, False], ids=["published", "nothing published"])
def test_wrong_run_creates_nothing(change: Object, message: str, always: bool, published: bool, tmp_path: Path) -> None:
    cluster = Cluster(published=published)
    result = submitted(cluster, tmp_path, *of({**(OPTIONS if published else ON_L4), **change}))
    output = " ".join(result.output.split())
    assert (NOT_CHECKED in output) is not published
    if published or always:
        assert result.exit_code == 3, result.output
        assert message.removeprefix("local queue ") in output
        assert cluster.created == []
    else:
        assert result.exit_code == 0, result.output
        assert message not in output


def requests(kind: str, folder: Path) -> list[str]:
    """The arguments of a run: from options, with code, in a file with two objects, and as a manifest."""
    if kind in ("options", "code"):
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text("print()")
        return [*of(ON_L4), *(["--workdir", str(folder / "code")] if kind == "code" else [])]
    file = folder / f"{kind}.yaml"
    if kind == "file":
        run = {"kind": "fineTune", "name": "tuned", "queue": "lq", "accelerator": "nvidia-l4", "pods": 1}
        run |= {"volume": {"bucket": "saved"}, "gpusPerPod": 1, "resources": {"cpu": 4}}
        file.write_text(yaml.safe_dump(run))
    else:
        file.write_text(yaml.safe_dump(job({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "lq")))
    return [f"--{kind}", str(file)]


KINDS = {"options": 1, "code": 2, "file": 2, "manifest": 1}
"""Each way to state a run, with the number of its objects."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "breaks",
    [[], ["before"], ["after"], ["before", "after"], ["after", "after"], ["after", "before", "before"], ["", "after"]],
    ids=",".join,
)
def test_a_connection_lost_on_the_way_leaves_one_run(kind: str, breaks: list[str], tmp_path: Path) -> None:
    cluster = Cluster([*breaks], published=False)
    with serve(cluster, tmp_path) as file:
        arguments = requests(kind, tmp_path)
        results = [submit(file, *arguments) for _ in range(2)]
    assert [result.exit_code for result in results] == [0, 0], [result.output for result in results]
    assert len(cluster.created) == len({*cluster.created}) == KINDS[kind]
    assert "was submitted before" in results[1].output
    *others, run = (cluster.objects[name] for name in cluster.created)
    assert [item["metadata"]["ownerReferences"][0]["uid"] for item in others] == [run["metadata"]["uid"]] * len(others)


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_stays_lost_leaves_none_and_the_next_command_creates_it(kind: str, tmp_path: Path) -> None:
    cluster = Cluster(["before"] * 4, published=False)
    with serve(cluster, tmp_path) as file:
        arguments = requests(kind, tmp_path)
        assert "submit it again, and it is created only if it does not" in str(submit(file, *arguments).exception)
        assert cluster.created == []
        assert submit(file, *arguments).exit_code == 0
    assert len(cluster.created) == KINDS[kind]


@pytest.mark.parametrize("kind", ["options", "manifest"])
@pytest.mark.parametrize(("end", "code"), [("2020-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 0)])
def test_the_end_of_a_reservation_is_printed_and_refuses_a_run(kind: str, end: str, code: int, tmp_path: Path) -> None:
    sections: Any = deepcopy(PUBLISHED.sections)
    sections["gpuPools"][0]["capacity"] = {"mode": "reservation", "reservation": "r", "until": end}
    sections["queues"]["clusterQueues"][0]["flavors"][0]["quota"]["memory"] = "8Gi"
    content: Object = {"version": PUBLISHED.version, "project": "p", "sections": sections, "nodes": []}
    cluster = Cluster()
    (published,) = (item for name, item in cluster.objects.items() if name.endswith(CONFIG_MAP))
    published["metadata"]["annotations"][ANNOTATION] = yaml.safe_dump(content)
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(yaml.safe_dump(job({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "lq")))
    result = submitted(cluster, tmp_path, *(of(OPTIONS) if kind == "options" else ["--manifest", str(manifest)]))
    assert result.exit_code == code, result.output
    where = "--pool" if kind == "options" else str(manifest)
    refused = f"{where}: the reservation of pool gpus has ended, and Google deleted its nodes."
    assert (refused in result.output) == (code == 3)
    assert (f"Google deletes the nodes of pool gpus at {end}, in" in result.output) == (code == 0)
    assert bool(cluster.created) == (code == 0)


def test_code_that_somebody_deleted_comes_again_and_a_run_that_ended_runs_once_more_with_it(tmp_path: Path) -> None:
    cluster = Cluster(published=False)
    with serve(cluster, tmp_path) as file:
        arguments = requests("code", tmp_path)
        submit(file, *arguments)
        code, run = cluster.created
        del cluster.objects[code]
        assert "was submitted before" in submit(file, *arguments).output
        assert cluster.created == [code, run, code]
        before = cluster.objects[code]
        assert before["metadata"]["ownerReferences"][0]["uid"] == cluster.objects[run]["metadata"]["uid"]
        cluster.objects[run]["status"] = {"terminalState": "Completed"}
        assert "Submit it once more with --again" in submit(file, *arguments).output
        assert submit(file, *arguments, "--again").exit_code == 0
    assert cluster.created == [code, run, code, code, run]
    assert cluster.objects[code]["binaryData"] == before["binaryData"]
    assert cluster.objects[code]["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_run_that_is_refused_after_all_leaves_no_code(tmp_path: Path) -> None:
    cluster = Cluster(["", "refused"], published=False)
    result = submitted(cluster, tmp_path, *requests("code", tmp_path))
    assert "The cluster refuses the JobSet team-a/first-" in str(result.exception)
    assert len(cluster.created) == 1
    assert [name for name in cluster.objects if name in cluster.created] == []


def test_a_dry_run_prints_the_code_and_a_secret_or_a_large_folder_is_refused(tmp_path: Path) -> None:
    cluster = Cluster(published=False)
    stated = of(ON_L4)
    with serve(cluster, tmp_path) as file:
        folder = tmp_path / "code"
        folder.mkdir()
        (folder / "train.py").write_text("print()")
        (folder / ".env").write_text("SECRET=x")
        result = submit(file, *stated, "--workdir", str(folder), "--dry-run")
        config_map, run = yaml.safe_load_all(result.stdout)
        assert (config_map["kind"], run["kind"]) == ("ConfigMap", "JobSet")
        assert "Left out: .env." in result.stderr
        (folder / "key.pem").write_text("-----BEGIN " + "PRIVATE KEY-----")
        refused = submit(file, *stated, "--workdir", str(folder), "--gpus", "0")
        assert refused.exit_code == 3
        for text in ("--workdir: key.pem has a private key", "--gpus: 0 is below the minimum"):
            assert text in refused.output
        missing = submit(file, *stated, "--workdir", str(tmp_path / "none"))
        assert (missing.exit_code, "does not exist" in missing.output) == (2, True)
        manifest = submit(file, "--manifest", str(file), "--workdir", str(folder))
        assert (manifest.exit_code, "has no effect on a manifest" in manifest.output) == (2, True)
    assert cluster.created == []


def with_settings(folder: Path, name: str = "mine", token: str = "t") -> list[str]:
    """The arguments of a run with a ConfigMap and a Secret beside it."""
    run = job({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "lq")
    run["metadata"]["name"] = name
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"rate": "1"}}
    metadata = {"name": "token", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": token}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": token}}
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump_all([secret, settings, run]))
    return ["--manifest", str(file)]


SETTINGS, TOKEN = "/api/v1/namespaces/team-a/configmaps/settings", "/api/v1/namespaces/team-a/secrets/token"


def test_a_dry_run_prints_no_value_of_a_secret_and_asks_once_about_equal_pods(tmp_path: Path) -> None:
    result = submitted(Cluster(published=False), tmp_path, *with_settings(tmp_path, token="canary"), "--dry-run")
    secret, settings, _ = yaml.safe_load_all(result.stdout)
    assert (secret["stringData"], settings["data"]) == ({"key": "(hidden)"}, {"rate": "1"})
    assert "canary" not in result.output
    run: Any = job({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, "lq")
    jobs = [{"name": f"j{index}", "replicas": 1, "template": {"spec": run["spec"]}} for index in range(50)]
    item = {**run, "apiVersion": JOBSET_API, "kind": "JobSet", "spec": {"replicatedJobs": jobs}}
    cluster, manifest = Cluster(published=False), tmp_path / "run.yaml"
    manifest.write_text(yaml.safe_dump(item))
    submitted(cluster, tmp_path, "--manifest", str(manifest), "--dry-run")
    assert len([name for name in cluster.tried if "/pods/" in name]) == 1


def test_an_object_that_existed_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    cluster = Cluster(published=False)
    theirs: Object = {"kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "team-a", "uid": "theirs"}}
    cluster.objects[SETTINGS] = deepcopy(theirs)
    result = submitted(cluster, tmp_path, *with_settings(tmp_path))
    assert "ConfigMap team-a/settings exists already, with another content" in str(result.exception)
    assert cluster.objects[SETTINGS] == theirs
    assert TOKEN not in cluster.objects  # a refusal leaves nothing


def test_an_object_beside_two_runs_stays_with_the_other_one(tmp_path: Path) -> None:
    cluster = Cluster(published=False)
    with serve(cluster, tmp_path) as file:
        for name in ("first", "second"):
            assert submit(file, *with_settings(tmp_path, name)).exit_code == 0
        runs = [cluster.objects[path] for path in cluster.created if path.rpartition("/")[2] in ("first", "second")]
        owners = [owner["uid"] for owner in cluster.objects[TOKEN]["metadata"]["ownerReferences"]]
        assert owners == [run["metadata"]["uid"] for run in runs]
        runs[0]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        token = deepcopy(cluster.objects[TOKEN])
        assert submit(file, *with_settings(tmp_path, "first"), "--again").exit_code == 0
        assert cluster.objects[TOKEN]["metadata"]["uid"] == token["metadata"]["uid"]
        cluster.breaks = ["", "", "refused"]
        assert submit(file, *with_settings(tmp_path, "third")).exit_code == 1
        assert {TOKEN, SETTINGS} <= cluster.objects.keys()


# --------------------------------------------------------------------------------------------- answers of another shape
NESTED = [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 40)]
BOMB = "\n".join(["a0: &a0 {x: 1}", *NESTED])
SHAPES: list[Any] = [
    *([], None, "text", 7),
    *({"items": None}, {"metadata": None}, {"metadata": []}, {"items": [None]}, {"items": {}}),
]


def submitted_with(published: str, folder: Path) -> Result:
    """The submission to a cluster that publishes this text."""
    cluster = Cluster()
    own = cluster.objects[f"/api/v1/namespaces/team-a/configmaps/{CONFIG_MAP}"]
    own["metadata"]["annotations"] = {ANNOTATION: published}
    return submitted(cluster, folder, *of(ON_L4))


@pytest.mark.parametrize("text", [BOMB, "[]", "null", "", "a: [", "{sections: []}", "x" * 10, "!!python/name:os.x y"])
def test_what_is_published_by_a_stranger_is_not_read(text: str, tmp_path: Path) -> None:
    done = submitted_with(text, tmp_path)
    assert done.exit_code == 0, done.output
    assert "Not checked: fit on the machine" in done.output


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        *(("sections.queues", None), ("sections.tenants", []), ("sections.tenants", [[]])),
        ("sections.queues.localQueues", [{"name": []}]),
        ("sections.queues.clusterQueues", [{"name": "cq", "flavors": [{"flavor": "l4", "quota": {"cpu": "x"}}]}]),
        ("sections.queues.clusterQueues", [{"name": "cq", "flavors": [{"flavor": "l4", "quota": "derive"}]}]),
        *(("sections.gpuPools", {"name": "gpus"}), ("nodes", [None]), ("sections", [])),
    ],
)
def test_what_is_published_in_another_shape_is_named(path: str, wrong: Any, tmp_path: Path) -> None:
    content = inner = yaml.safe_load(TEXT)
    *around, last = path.split(".")
    for key in around:
        inner = inner[key]
    inner[last] = wrong
    done = submitted_with(yaml.safe_dump(content), tmp_path)
    assert done.exit_code == 0, done.output
    assert f"ConfigMap {CONFIG_MAP} of namespace team-a has another form than this version reads" in done.output


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("part", ["configmaps", "jobsets", "localqueues", "selfsubjectaccessreviews"])
def test_an_answer_of_another_shape_is_an_error_in_words(part: str, shape: Any, tmp_path: Path) -> None:
    """For every request about one thing, whatever its status."""

    class Strange(Cluster):
        code = 200

        def answer(self, method: str, path: str, query: str, body: Object) -> tuple[int, Object] | None:
            return (self.code, shape) if f"/{part}" in path else super().answer(method, path, query, body)

    for code in (200, 201, 403, 500):
        cluster = Strange()
        cluster.code = code
        stated = {**OPTIONS, "--queue": "other" if part == "localqueues" else "lq"}
        done = submitted(cluster, tmp_path, *of(stated))
        assert isinstance(done.exception, Stop | SystemExit | None), (code, done.exception)
