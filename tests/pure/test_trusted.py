"""A pod does not choose what runs on this machine: every way to another command, code or file is refused."""

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import yaml

from emulator.cloud.folder import Folder
from emulator.cloud.program import LocalProgram
from emulator.cloud.records import ClusterRecord
from emulator.cloud.store import BUCKET_IAM_MEMBER, Record, Store, project_number
from emulator.google.storage import BUCKET
from emulator.machine import paths
from emulator.machine.folders import Outside
from emulator.pods import model_cache, trusted
from emulator.pods.hub import Hub
from emulator.pods.local_launch import Launch, Launcher
from emulator.pods.local_spec import NotStarted
from gke_ai.catalog.engines.model_cache import ACCOUNT
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.catalog.project.identities import principal
from gke_ai.components.serving.model_download import FILES, PROGRAMS
from gke_ai.components.serving.model_download import pod as download_pod
from gke_ai.manifests.job import Place
from gke_ai.manifests.training_job import pod as run_pod
from gke_ai.settings.model import TokenSecret
from gke_ai.settings.model.training import TrainingRun
from gke_ai.settings.resolved import Download

Object = dict[str, Any]
EVIL = b"raise SystemExit('code of the cluster runs')"
CONFIG_MAP = {"name": "code", "configMap": {"name": "code"}}


@pytest.fixture
def program(tmp_path: Path) -> LocalProgram:
    """A program that the user named, with one command."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])")
    return LocalProgram("trainer", str(tmp_path / "own"), "/app", sys.prefix, ["python", "train.py", "..."])


@pytest.fixture
def launcher_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the launcher of a pod, in a cloud with the bucket `b` and a cluster with hostile ConfigMaps."""
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path / "state" / "clusters")
    folder, store = Folder("c"), Store(tmp_path / "state" / "cloud")
    folder.write(ClusterRecord("c", "p", "us-central1", "standard", [], "1"), "127.0.0.1:1", True)
    store.put(Record("b", BUCKET, "p", {}))
    for namespace, account in (("llm", "default"), (MODEL_CACHE, ACCOUNT)):
        member = {"role": "r", "member": principal(project_number("p"), "p", namespace, account)}
        store.put(Record(f"b/b/r/{member['member']}", BUCKET_IAM_MEMBER, "p", member))

    def answer(request: httpx.Request) -> httpx.Response:
        if "/secrets/" in request.url.path:
            return httpx.Response(200, json={"data": {"token": base64.b64encode(b"hf_x").decode()}})
        files = {name: EVIL.decode() for name in (*FILES, "train.py")}
        return httpx.Response(200, json={"data": files})

    def launcher(pod: Object) -> Launcher:
        api = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://c")
        member = Mock(port=lambda _, port: 30000 + port % 10)
        member.name = ("llm", "run", "run-0")
        return Launcher(folder, api, store, pod, member, tmp_path / "state" / "private")

    return launcher


def pod(spec: Object, *volumes: Object, **metadata: object) -> Object:
    own = {"namespace": "llm", "name": "run-0-x", "uid": "u", "annotations": {"gke-gcsfuse/volumes": "true"}}
    content = {"containers": [spec], "volumes": list(volumes), "subdomain": "run"}
    return {"metadata": {**own, **metadata}, "spec": content, "status": {}}


def container(*words: str, variables: Mapping[str, str] | None = None, **more: object) -> Object:
    env = [{"name": name, "value": value} for name, value in (variables or {}).items()]
    return {"name": "c", "image": "trainer", "command": list(words) or ["python", "train.py"], "env": env, **more}


def mount(path: str, name: str = "code", **more: str) -> Object:
    return {"name": name, "mountPath": path, **more}


def bucket_volume(**attributes: str) -> Object:
    driver = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b", **attributes}}
    return {"name": "data", "csi": driver}


def test_a_named_command_gets_values_of_the_pod(launcher_for: Any, program: LocalProgram) -> None:
    variables = {"RANK": "0", "MASTER_ADDR": "run-0.run", "MASTER_PORT": "29500", "CHECKPOINT_DIR": "/data/run"}
    args, mounts = ["--out=/data/x", "--rank=$(RANK)"], [mount("/data", "data")]
    spec = container(variables=variables, args=args, volumeMounts=mounts)
    launch: Launch = asyncio.run(launcher_for(pod(spec, bucket_volume())).launch(spec, program))
    data = launch.paths.folders["/data"]
    assert launch.command == ["python", "train.py", f"--out={data}/x", "--rank=0"]
    assert launch.working_directory == program.folder
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "30000", "CHECKPOINT_DIR": f"{data}/run"}
    assert {name: launch.environment[name] for name in variables} == {"RANK": "0", **given}
    environment = {**launch.environment, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
    printed = subprocess.check_output(launch.command, env=environment, cwd=launch.working_directory, text=True)
    assert printed == f"{program.folder} ['--out={data}/x', '--rank=0']\n"


OTHER_COMMANDS = [("/bin/sh", "-c", "id"), ("python", "-c", "code", "train.py"), ("python",), ("python", "/x/train.py")]
NO_PATHS = ("/", "python", "/x/../app", "/a;id")


@pytest.mark.parametrize(
    ("spec", "volumes", "message"),
    [
        # Another command, or an interpreter's options before the program.
        *((container(*words), [], "is not one that you named") for words in OTHER_COMMANDS),
        # Another working directory, where a file has the name of the program.
        (container(workingDir="/code", volumeMounts=[mount("/code")]), [CONFIG_MAP], "the working directory /code"),
        (container(workingDir="/"), [], "the working directory / is not"),
        # A volume in place of the program, of its folder, or of a word of the command.
        (container(volumeMounts=[mount("/app")]), [CONFIG_MAP], "would replace the program in /app"),
        (container(volumeMounts=[mount("train.py", subPath="train.py")]), [CONFIG_MAP], "is not an absolute path"),
        *((container(volumeMounts=[mount(path)]), [CONFIG_MAP], "is not an absolute path") for path in NO_PATHS),
        # A folder of the user, or a script for a shell, as the path in a volume.
        (container(volumeMounts=[mount("/data", "data")]), [bucket_volume(mountOptions="only-dir=../..")], "leads out"),
        (container(volumeMounts=[mount("/data", "data")]), [bucket_volume(mountOptions="only-dir=a;id")], "plain"),
        (container(volumeMounts=[mount("/d", subPathExpr="$(RANK)")], variables={"RANK": ".."}), [CONFIG_MAP], "leads"),
        (container(), [{"name": "host", "hostPath": {"path": "/"}}], ""),
        (container(volumeMounts=[mount("/h", "h")]), [{"name": "h", "hostPath": {"path": "/"}}], "has no files"),
        # Files of this machine.
        (container(args=["--out=/etc/passwd"]), [], "/etc/passwd in '--out=/etc/passwd' is in no volume"),
        (container(args=["--out=../x"]), [], "is in no volume"),
        (container(args=["/tmp/../x"]), [], "is in no volume"),
        (container(variables={"CHECKPOINT_DIR": "/home/user"}), [], "/home/user in '/home/user' is in no volume"),
        # Objects of Python from another machine.
        (container(variables={"MASTER_ADDR": "evil.example.com"}), [], "MASTER_ADDR is evil.example.com"),
        (container(variables={"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1"}), [], "JAX_COORDINATOR_ADDRESS is 10.0.0.1:1"),
    ],
)
def test_a_pod_does_not_choose_what_runs(
    launcher_for: Any, program: LocalProgram, spec: Object, volumes: list[Object], message: str
) -> None:
    launching = launcher_for(pod(spec, *volumes)).launch(spec, program)
    if not message:  # a volume that no container mounts
        assert asyncio.run(launching).command == ["python", "train.py"]
        return
    with pytest.raises((NotStarted, Outside), match=message.replace("(", r"\(")):
        asyncio.run(launching)


def test_a_word_of_the_command_is_never_a_file_of_the_cluster_and_arguments_need_permission(
    launcher_for: Any, tmp_path: Path, program: LocalProgram
) -> None:
    named = LocalProgram("trainer", str(tmp_path), "/app", sys.prefix, ["/opt/python", "/code/train.py", "..."])
    spec = container("/opt/python", "/code/train.py", volumeMounts=[mount("/opt", "data"), mount("/code")])
    with pytest.raises(NotStarted, match="in a volume whose files come from the cluster"):
        asyncio.run(launcher_for(pod(spec, CONFIG_MAP, bucket_volume())).launch(spec, named))
    spec["volumeMounts"].pop()
    assert asyncio.run(launcher_for(pod(spec, bucket_volume())).launch(spec, named)).command[0] == "/opt/python"
    exact = LocalProgram(**{**program.__dict__, "command": ["python", "train.py", "--steps=3"]})
    for spec in (container(args=["--steps=4"]), container(), container("python", "train.py", "--steps=3", "--more")):
        with pytest.raises(NotStarted, match="is not one that you named"):
            asyncio.run(launcher_for(pod(spec)).launch(spec, exact))
    for spec in (container(args=["--steps=3"]), {"name": "c", "image": "trainer"}):
        launch = asyncio.run(launcher_for(pod(spec)).launch(spec, exact))
        assert launch.command == ["python", "train.py", "--steps=3"]


OF_PYTHON = ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONHOME", "PET_RUN_PATH", "PET_RDZV_ENDPOINT")
OF_OTHERS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME", "BASH_ENV", "ENV", "CC", "GCONV_PATH", "PET_NO_PYTHON")


@pytest.mark.parametrize("name", [*OF_PYTHON, *OF_OTHERS, "HF_ENDPOINT", "GKE_AI_CLUSTER", "GKE_AI_POD", "MY_VARIABLE"])
def test_variable_that_nobody_allowed_stops_the_container(launcher_for: Any, program: LocalProgram, name: str) -> None:
    spec = container(variables={name: "x"})
    with pytest.raises(NotStarted, match=f"--env {name}"):
        asyncio.run(launcher_for(pod(spec)).launch(spec, program))
    allowed = LocalProgram(**{**program.__dict__, "variables": [name]})
    assert asyncio.run(launcher_for(pod(spec)).launch(spec, allowed)).environment[name] == "x"


def test_the_run_of_the_tutorial_needs_no_more_than_the_command_that_the_tutorial_names(tmp_path: Path) -> None:
    config = yaml.safe_load((paths.ROOT / "examples" / "training-job.yaml").read_text())["config"]
    (spec,) = run_pod(TrainingRun.model_validate(config["gke-ai:training"][0]), Place())["containers"]
    named = LocalProgram("pretrain", str(tmp_path), "/app", sys.prefix, ["python", "train_jax.py", "..."])
    assert trusted.arguments(spec, named) == spec["args"]
    trusted.check_folder(spec, named)
    trusted.check_variables((variable["name"] for variable in spec["env"]), named)


def download() -> Object:
    """The pod of a Job that fills a bucket, as the product creates it."""
    spec = download_pod(Download("b", "google/gemma", "main", TokenSecret(name="hf", key="token"), 60), "program")
    metadata = {"namespace": MODEL_CACHE, "name": "p", "uid": "u", "annotations": {"gke-gcsfuse/volumes": "true"}}
    return {"metadata": metadata, "spec": spec, "status": {}}


def test_a_job_of_the_model_cache_runs_the_program_of_this_checkout(launcher_for: Any) -> None:
    job, hub = download(), Hub()
    (spec,) = job["spec"]["containers"]
    assert model_cache.fills(job, spec)
    launch: Launch = asyncio.run(launcher_for(job).fill(spec, hub.url))
    assert launch.environment["HF_TOKEN"] == "hf_x"
    place: Any = {"env": launch.environment, "cwd": launch.working_directory}
    done = subprocess.run(launch.command, **place, capture_output=True, text=True)
    hub.stop()
    assert "google/gemma is complete" in done.stdout, done
    assert (launch.paths.folders["/models"] / "google" / "gemma" / "main" / "COMPLETE").exists()
    # The ConfigMap of this cluster has other files than the checkout: none of them ran.
    assert EVIL.decode() != (PROGRAMS / FILES[0]).read_text()
    assert "code of the cluster" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "change",
    [
        *({"command": ["/bin/sh", "-c", "id"]}, {"args": ["-c", "code"]}, {"image": "example.com/python"}),
        *({"namespace": "llm"}, {"serviceAccountName": "default"}),
    ],
)
def test_no_other_pod_with_the_image_runs_anything(change: dict[str, Any]) -> None:
    job = download()
    (spec,) = job["spec"]["containers"]
    for part in (job["metadata"], job["spec"], spec):
        part |= {key: value for key, value in change.items() if key in part or (part is spec and key == "args")}
    assert not model_cache.fills(job, spec)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("MODEL_DIRECTORY", "/home/user"), ("MODEL_DIRECTORY", "/models/../../home")),
        *(("MODEL", "../.."), ("REVISION", "../../../.."), ("PYTHONPATH", "/elsewhere")),
    ],
)
def test_a_job_of_the_model_cache_writes_only_to_its_folder(launcher_for: Any, name: str, value: str) -> None:
    job = download()
    (spec,) = job["spec"]["containers"]
    stated = {variable["name"]: variable for variable in spec["env"]}
    stated[name]["value"] = value
    if name in ("MODEL", "REVISION"):
        model, revision = stated["MODEL"]["value"], stated["REVISION"]["value"]
        stated["MODEL_DIRECTORY"]["value"] = f"/models/{model}/{revision}"
    with pytest.raises((NotStarted, Outside)):
        asyncio.run(launcher_for(job).fill(spec, "http://127.0.0.1:1"))


def test_no_variable_of_a_job_of_the_model_cache_reaches_python(launcher_for: Any) -> None:
    job = download()
    (spec,) = job["spec"]["containers"]
    spec["env"] = [*spec["env"], *({"name": name, "value": "canary"} for name in ("LD_PRELOAD", "HF_ENDPOINT", "PATH"))]
    launch: Launch = asyncio.run(launcher_for(job).fill(spec, "http://127.0.0.1:1"))
    assert "canary" not in launch.environment.values()
    assert "PYTHONPATH" not in launch.environment
