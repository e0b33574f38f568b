"""What a stack publishes to a tenant, and that a run placed by it is the object that the program registers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.catalog.section_files import PREFIX
from gke_ai.kube.pods import requests, templates
from gke_ai.manifests.runs import objects_of, place_of
from gke_ai.ops.runs import checkpoints as directories
from gke_ai.ops.submit.fit import Fit
from gke_ai.ops.submit.workdir import PATH, pack
from gke_ai.settings.published import Published, place
from gke_ai.settings.resolved import Placed
from tests.support.recorder import Registration, configuration, shared_record
from tests.support.registered import published

SECTIONS = ("training", "batch")
EXAMPLES = (
    "Pulumi.dev.yaml",
    "examples/training-job.yaml",
    "examples/mixed-training-inference-autopilot.yaml",
    *(
        f"examples/{name}{mode}.yaml"
        for name in ("flex-start-tpu", "multislice-training")
        for mode in ("", "-autopilot")
    ),
)


def queues_for(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Queues with a flavor for the slice of each run."""
    slices = [{"pools": [run["pool"]]} if "pool" in run else {"tpu": run.get("tpu")} for run in runs]
    flavors = [{"name": f"slice-{index}", **nodes} for index, nodes in enumerate(slices)]
    quotas = [
        {"flavor": flavor["name"], "quota": {"google.com/tpu": "64", "ephemeral-storage": "64Gi"}} for flavor in flavors
    ]
    queues = {"clusterQueues": [{"name": "cq", "flavors": quotas}]}
    return {**queues, "flavors": flavors, "localQueues": [{"name": "lq", "clusterQueue": "cq"}]}


def with_tenant(example: str) -> dict[str, Any]:
    """The configuration of an example, with its runs and their queues in the namespace of a tenant."""
    values = configuration(example)
    runs = [run for name in SECTIONS for run in values.get(f"{PREFIX}{name}", [])]
    queues = values.setdefault(f"{PREFIX}queues", queues_for(runs))
    for item in (*runs, *queues.get("localQueues", [])):
        item["namespace"] = "team"
    for run in runs:
        run.setdefault("queue", "lq")
    names = [item["name"] for item in queues.get("priorityClasses", [])]
    for bucket in values.get(f"{PREFIX}buckets", []):
        bucket["grants"] = [{**grant, "namespace": "team"} for grant in bucket.get("grants", [])]
    for section in ("serving", "autoscaling"):
        values.pop(f"{PREFIX}{section}", None)
    cluster = values[f"{PREFIX}cluster"]
    if cluster.get("mode") == "existing":  # this one enforces no network policies
        values[f"{PREFIX}cluster"] = {"mode": cluster["existingMode"], "location": cluster["location"]}
    return {**values, f"{PREFIX}tenants": [{"name": "team", "priorityClasses": names, "podSecurity": "privileged"}]}


def registered(resource: Registration) -> dict[str, Any]:
    """A registered object without what only Pulumi reads."""
    metadata = resource.inputs["metadata"]
    annotations = {key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith("pulumi.")}
    return {**resource.inputs, "metadata": {**metadata, "annotations": annotations}}


def runs_of(values: dict[str, Any]) -> Iterator[tuple[Placed[Any], list[dict[str, Any]]]]:
    """The placed runs of the tenant, each with the objects that are submitted for it."""
    own = published(values, "team")
    for section in SECTIONS:
        for run in values.get(f"{PREFIX}{section}", []):
            placed, problems = place(own, section, run)
            assert placed
            assert problems == []
            yield placed, objects_of(placed.section, place_of(placed))


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_submitted_run_is_the_object_that_the_program_registers_and_names_its_checkpoints(example: str) -> None:
    values = with_tenant(example)
    record, runs = shared_record(values), list(runs_of(values))
    assert runs
    for placed, objects in runs:
        saved = placed.section.checkpoint_folder
        directory = directories.directory_of(next(templates(objects[-1]["kind"], objects[-1])))
        assert directory == (f"gs://{saved[0]}/{saved[1]}" if saved else "")
        for item in objects:
            resource = record.one(item["kind"], item["metadata"]["name"])
            assert {**item, "metadata": {"annotations": {}, **item["metadata"]}} == registered(resource)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_pod_of_every_kind_of_run_unpacks_local_code(example: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    code = pack(tmp_path)
    for _, objects in runs_of(with_tenant(example)):
        config_map, *others, run = code.inside(objects)
        assert others == objects[:-1]
        for template, before in zip(templates(run["kind"], run), templates(run["kind"], objects[-1]), strict=True):
            spec = template["spec"]
            (container,), (init,) = spec["containers"], spec["initContainers"]
            assert (container["workingDir"], init["image"]) == (PATH, container["image"])
            assert spec["volumes"][-1]["configMap"]["name"] == config_map["metadata"]["name"]
            assert requests(spec) == requests(before["spec"])


TENANT = {"name": "team-a", "members": ["user:ada@example.com"], "priorityClasses": ["training"]}


def two_teams() -> dict[str, Any]:
    """A stack with two teams, each with a queue of its own in one cohort."""
    values = configuration("examples/training-job.yaml")
    queues = values[f"{PREFIX}queues"]
    queue = queues["clusterQueues"][0]
    quota = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "1"}
    for team in ("team-a", "team-b"):
        own = {"name": team, "cohort": "all", "flavors": [{"flavor": queue["flavors"][0]["flavor"], "quota": quota}]}
        queues["clusterQueues"].append(own)
        queues["localQueues"].append({"name": "queue", "namespace": team, "clusterQueue": team})
    return {**values, f"{PREFIX}tenants": [TENANT, {"name": "team-b"}]}


PLACE = {"namespace": "team-a", "queue": "queue", "pool": "gpupool", "resources": {"cpu": 4, "memory": "16Gi"}}
RUN: dict[str, Any] = {"kind": "job", "name": "first", "image": "i:1", **PLACE}


def test_a_tenant_gets_its_own_queues_with_what_they_may_borrow_and_no_names_of_others() -> None:
    sections = published(two_teams(), "team-a").sections
    (queue,) = sections["queues"]["clusterQueues"]
    assert (queue["name"], queue["flavors"][0]["quota"]["nvidia.com/gpu"]) == ("team-a", "2")
    assert [item["namespace"] for item in sections["queues"]["localQueues"]] == ["team-a"]
    assert "team-b" not in yaml.safe_dump(dict(sections))
    assert "ada" not in yaml.safe_dump(dict(sections))


def test_the_program_publishes_it_after_the_policy_that_guards_it() -> None:
    record = shared_record(two_teams())
    (own,) = (item for item in record.all("ConfigMap") if item.inputs["metadata"].get("namespace") == "team-a")
    assert own.object_name == CONFIG_MAP
    sections = Published.parse(own.inputs["metadata"]["annotations"][ANNOTATION]).sections
    assert sections["tenants"] == [{"name": "team-a", "priorityClasses": ["training"]}]
    assert "ValidatingAdmissionPolicyBinding tenant-team-a" in record.waits_for(own)


@pytest.mark.parametrize(
    ("change", "path", "cause"),
    [
        ({"gpusPerPod": 9}, "gpusPerPod", "a node of pool gpupool (g2-standard-24) has 2 GPUs for pods"),
        ({"pods": 3}, "pods", "together request 3 GPUs, and cluster queue team-a has at most 2 GPUs"),
        ({"queue": "other"}, "queue", "local queue other does not exist"),
        ({"priorityClass": "high"}, "priorityClass", "priority class high does not exist"),
        ({"priorityClass": "serving"}, "priorityClass", "priority class serving is not allowed for tenant team-a"),
        ({"checkpoints": {"bucket": "saved"}}, "checkpoints.bucket", "bucket saved does not exist"),
        ({"pool": "gpus"}, "pool", "pool gpus does not exist"),
        ({"serviceAccount": "deployer"}, "serviceAccount", "no pod may run as it"),
        ({"image": ""}, "image", "image is empty"),
        ({"gpus": 1}, "gpus", "gpus is not a key of a training job"),
    ],
)
def test_a_run_that_the_program_would_refuse_is_refused(change: dict[str, Any], path: str, cause: str) -> None:
    _, problems = place(published(two_teams(), "team-a"), "training", {**RUN, **change})
    causes = [problem.cause for problem in problems if problem.path == f"gke-ai:training[0].{path}"]
    assert any(cause in text for text in causes), problems


@pytest.mark.parametrize("keys", [{}, {"checkpoints": {"bucket": "saved"}}], ids=["", "with a sidecar"])
@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("cpu", [4, 22, 23, 24])
def test_a_manifest_fits_a_node_exactly_if_the_same_run_from_keys_does(cpu: int, gpus: int, keys: Any) -> None:
    own = published(two_teams(), "team-a")
    run = {**RUN, **keys, "gpusPerPod": gpus, "resources": {"cpu": cpu, "memory": "16Gi"}}
    placed, problems = place(own, "training", run)
    fit = Fit.of_queue(own, "queue")
    assert placed
    assert fit
    (jobset,) = objects_of(placed.section, place_of(placed))
    reason = fit.without_nodes(1, next(templates("JobSet", jobset)))
    assert bool(reason) is any("a node of pool gpupool" in problem.cause for problem in problems), (reason, problems)


def test_without_it_a_run_names_its_accelerator_and_the_flavor_chooses_the_nodes() -> None:
    _, (problem,) = place(None, "training", RUN)
    assert "the stack publishes nothing to this namespace" in problem.cause
    run = {key: value for key, value in RUN.items() if key != "pool"} | {"accelerator": "nvidia-l4"}
    placed, problems = place(None, "training", run)
    assert (placed and placed.node_selector, problems) == ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, [])
    _, (problem,) = place(None, "training", {**run, "sharedMemory": "99Gi"})
    assert "counts toward the memory of the container" in problem.cause
