"""Only here: dev from the first `up` to `down`, with another team's program that uses its outputs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.pods.secret_sync import DUMMY_TOKEN
from gke_ai.catalog.versions import JOBSET_CHART, JOBSET_CRD, JOBSET_VERSION
from gke_ai.kube.client import client_of, request
from tests.support.emulator import ROOT, Emulator, Found, eventually, fresh, gone, objects_of, until_none
from tests.support.examples import section
from tests.support.mistakes import PROJECT
from tests.support.workloads import admitted, all_running, finish, row, running, token_in

DEV = "Pulumi.dev.yaml"
TEAM = "research"


class Consumer:
    """A stack of the program in `examples/consumer`, in its own folder, that uses the stack of an emulator."""

    def __init__(self, emulator: Emulator, name: str, namespace: str) -> None:
        # As installed by the other team: the view is on Python's path.
        self.emulator = Emulator(emulator.state, extra=(("PYTHONPATH", str(ROOT)),))
        self.folder = Path(shutil.copytree(ROOT / "examples" / "consumer", emulator.state / name))
        self.pulumi("stack", "init", name)
        self.pulumi("config", "set", "platform", f"organization/gke-ai/{emulator.stack}")
        self.pulumi("config", "set", "namespace", namespace)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        return self.emulator.run("pulumi", "-C", str(self.folder), *arguments, "--non-interactive", fails=fails)


@pytest.fixture(scope="module")
def platform() -> Iterator[Emulator]:
    """The dev environment, in which the team is a tenant. The tests below use it in order."""
    with fresh() as emulator:
        (emulator.state / "up").write_text(emulator.make("up", emulator.configure(DEV)))
        yield emulator


def lasting(emulator: Emulator) -> Any:
    """Names of all objects except pods and nodes, which controllers create and delete."""
    return {obj for obj in objects_of(emulator) if obj[0] not in ("Pod", "Node", "PodMetrics", "NodeMetrics")}


def test_first_up_serves_and_trains_and_a_missing_tenant_is_reported(platform: Emulator) -> None:
    status = (platform.state / "up").read_text()
    assert "1 of 1" in row(status, "llm/gemma ")
    assert "Admitted" in row(status, "llm/job/finetune-")
    assert row(status, TEAM, "nvidia.com/gpu"), "the other team's queue"
    platform.make("smoke")  # fails where a server does
    output = Consumer(platform, "misspelt", "reserach").pulumi("preview", fails=True)
    assert f"has no tenant reserach. It has: {TEAM}." in output
    assert "Traceback" not in output


def test_consumer_runs_on_its_queue_and_leaves_the_producer_as_it_was(platform: Emulator) -> None:
    before, exported = lasting(platform), platform.exported()["resources"]
    consumer = Consumer(platform, "team", TEAM)
    assert "Traceback" not in consumer.pulumi("preview")
    consumer.pulumi("up", "--yes", "--skip-preview")
    eventually(lambda: all(admitted(platform, kind, TEAM) for kind in ("Job", "Pod")), "Job and server are admitted")
    (job,) = platform.get("jobs", "-n", TEAM)

    def accelerators() -> list[str]:
        pods = running(platform, job["metadata"]["name"])
        return [pod["spec"]["nodeSelector"]["cloud.google.com/gke-accelerator"] for pod in pods]

    eventually(lambda: accelerators() == ["nvidia-l4"], "the Job runs on the nodes that the outputs name")
    eventually(lambda: answered(platform, f"{TEAM}/services/chat:8000"), "the server answers")
    # Nothing is to be done again, though Kueue has written to what it admitted.
    consumer.pulumi("preview", "--expect-no-changes")

    consumer.pulumi("destroy", "--yes", "--skip-preview")
    until_none(lambda: lasting(platform) - before, "what the consumer made is gone")
    assert before - lasting(platform) == set()
    assert platform.exported()["resources"] == exported
    assert platform.planned() == {}


def answered(emulator: Emulator, service: str) -> list[Any]:
    """A server's choices for a prompt. Empty while no server answers."""
    prompt = {"model": "Qwen/Qwen2.5-1.5B-Instruct", "prompt": "What is a tenant?", "max_tokens": 8}
    path = f"/api/v1/namespaces/{service}/proxy/v1/completions"
    return list(request(client_of(emulator.certified(), 1), "POST", path, body=prompt).body.get("choices", []))


def test_manifests_that_kubectl_applies_leave_a_preview_nothing_to_do(platform: Emulator, tmp_path: Path) -> None:
    """Every object but Secrets, queues and namespaces is deleted, and comes back from the folder alone."""
    folder = tmp_path / "clusters" / "dev"
    eventually(lambda: all_running(platform, "llm"), "the run has started")
    written = platform.run("gke-ai", "render", str(folder), "--for", "kubectl", "--stack", platform.stack)
    assert "kubectl -n llm create secret generic hf-secret --from-literal=hf_api_token=VALUE" in written
    applied = [folder / stage for stage in ("10-namespaces", "20-base", "40-queues", "50-workloads")]
    forced = ("--server-side", "--force-conflicts", "--recursive")
    for stage in applied:  # fails where an object differs
        platform.kubectl("diff", *forced, "-f", str(stage))

    deleted = [stage for stage in sorted(folder.iterdir()) if stage.name[:2] in ("20", "50", "60")]
    before = uids(platform, deleted)
    platform.kubectl("delete", "--recursive", *(word for stage in deleted for word in ("-f", str(stage))))
    for stage in applied:
        platform.kubectl("apply", *forced, "-f", str(stage))
    platform.kubectl("create", "--recursive", "-f", str(folder / "60-runs"))
    after = uids(platform, deleted)
    assert before.keys() == after.keys()
    assert not {*before.values()} & {*after.values()}
    platform.pulumi("refresh", "--yes", "--skip-preview")
    assert platform.planned() == {}

    started = eventually(lambda: all_running(platform, "llm"), "the server and the run start again")
    for stage in applied:
        platform.kubectl("apply", *forced, "-f", str(stage))
    again = ("--kubeconfig", platform.kubeconfig(), "create", "--recursive", "-f", str(folder / "60-runs"))
    assert "already exists" in platform.run("kubectl", *again, fails=True)
    assert started == all_running(platform, "llm"), "a second application disturbs nothing"


def test_the_folder_upgrades_the_crd_of_an_earlier_jobset(platform: Emulator, tmp_path: Path) -> None:
    """Helm alone would not. What JobSet 0.12 accepts and 0.11 does not is an action of a failed child Job."""
    action, folder = '"RestartJobAndIgnoreMaxRestarts"', tmp_path / "dev"
    platform.run("gke-ai", "render", str(folder), "--for", "kubectl", "--stack", platform.stack)
    page = (folder / "README.md").read_text().splitlines()
    upgrade = [line for line in page if line.startswith("helm") and JOBSET_CHART in line]
    crd = json.loads(platform.kubectl("get", "crd", JOBSET_CRD, "-o", "json"))
    earlier = tmp_path / "crd.json"
    earlier.write_text(re.sub(f"{action}, |, {action}", "", json.dumps(crd)))
    platform.kubectl("replace", "-f", str(earlier))

    def has_action(*commands: str) -> bool:
        # The chart as it is built here: there is no registry.
        chart = platform.run("chart", JOBSET_CHART, JOBSET_VERSION).strip()
        for command in commands:
            text = command.replace(JOBSET_CHART, chart).replace(f"--version {JOBSET_VERSION}", "")
            shell = f"cd {folder} && export KUBECONFIG={platform.kubeconfig()} && {text}"
            platform.run("sh", "-ec", shell)
        return action in platform.kubectl("get", "crd", JOBSET_CRD, "-o", "json")

    assert not has_action(upgrade[-1]), "the release alone"
    assert has_action(*upgrade)


def uids(emulator: Emulator, stages: list[Path]) -> dict[tuple[str, str], str]:
    """The objects of the cluster that folders have."""
    folders = [word for stage in stages for word in ("-f", str(stage))]
    live = json.loads(emulator.kubectl("get", "--recursive", *folders, "-o", "json"))["items"]
    return {(item["kind"], item["metadata"]["name"]): item["metadata"]["uid"] for item in live}


def test_token_of_secret_manager_replaces_the_one_of_the_program_and_disturbs_nothing(platform: Emulator) -> None:
    before = eventually(lambda: all_running(platform, "llm"), "the run has started")
    platform.run("existing", "secret", "hf-token", "--project", PROJECT)
    platform.make("up", platform.configure(DEV, hfTokenSecret="hf-token"))
    eventually(lambda: token_in(platform, "llm") == DUMMY_TOKEN, "the token comes from Secret Manager from now on")
    assert before <= {pod["metadata"]["uid"] for pod in platform.get("pods", "-n", "llm")}
    assert platform.planned() == {}


def test_finished_job_is_not_run_again_and_a_changed_one_runs_beside_it(platform: Emulator) -> None:
    (first,) = platform.get("jobs", "-n", "llm")
    wanted = first["spec"]["parallelism"]
    eventually(lambda: platform.get("jobs", "-n", "llm")[0]["status"].get("ready") == wanted, "all its pods run")
    finish(platform, first["metadata"]["name"], "llm")
    eventually(lambda: platform.get("jobs", "-n", "llm")[0]["status"].get("completionTime"), "the run has ended")

    platform.pulumi("refresh", "--yes", "--skip-preview")
    platform.make("up")
    (same,) = platform.get("jobs", "-n", "llm")
    assert same["metadata"]["uid"] == first["metadata"]["uid"]

    (training,) = section("training", DEV)
    queues = section("queues", DEV)
    queues["localQueues"].append({"name": "late", "namespace": "late", "clusterQueue": "research"})
    changed = {"training": [{**training, "epochs": 3}], "queues": queues}
    platform.make("up", platform.configure(DEV, hfTokenSecret="hf-token", **changed))
    jobs = {job["metadata"]["name"]: job for job in platform.get("jobs", "-n", "llm")}
    assert len(jobs) == 2
    assert jobs[first["metadata"]["name"]]["metadata"]["uid"] == first["metadata"]["uid"]
    assert platform.planned() == {}

    # The namespace is new, and Kueue has it in hand from its first pod on.
    manager = platform.get("pods", "-n", "kueue-system", "-l", "control-plane=controller-manager")
    assert len(manager) == 1
    queued = "--labels=kueue.x-k8s.io/queue-name=late"
    platform.kubectl("run", "early", "-n", "late", "--image=registry.k8s.io/pause:3.10", queued)
    (early,) = platform.get("pods", "-n", "late")
    assert early["metadata"]["labels"].get("kueue.x-k8s.io/managed") == "true"


def test_idle_nodes_go_and_down_leaves_nothing(platform: Emulator) -> None:
    platform.kubectl("-n", "llm", "delete", "job", "--all", "--wait=false")
    platform.kubectl("-n", "llm", "scale", "deployment/gemma", "--replicas=0")
    until_none(lambda: platform.get("nodes", "-l", "cloud.google.com/gke-accelerator"), "GPU nodes go when idle", 60)
    platform.make("down")
    platform.run("existing", "forget", "hf-token", "--project", PROJECT)
    gone(platform, Found(frozenset(), frozenset()))
