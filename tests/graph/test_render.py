"""The manifests of each configuration equal what the program registers, for every tool, and hold no secret."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import yaml

from gke_ai.catalog.documents import Reader, read
from gke_ai.review.gitops.command import files
from gke_ai.review.gitops.objects import Stage
from gke_ai.review.gitops.tools import TOOLS
from tests.support.recorder import GATEWAY_KEY, TOKEN, Record, configuration, shared_record, strings
from tests.support.registered import tool
from tests.support.repository import CONFIGURATIONS

# Annotations for tools are in these domains.
OF_TOOLS = ("argocd.argoproj.io/", "client.lifecycle.config.k8s.io/", "config.kubernetes.io/", "kustomize.toolkit.")
DEV = configuration("Pulumi.dev.yaml")
CHARTS = Stage.CHARTS.value


def written(name: str, record: Record) -> dict[str, list[dict[str, Any]]]:
    """The documents of each file, as kubectl reads them. No file has a secret."""
    texts = list(files(tool(name, record)))
    assert len({path for path, _ in texts}) == len(texts), "two objects have one file"
    assert [path for path, text in texts if TOKEN in text or GATEWAY_KEY in text] == []
    return {path: read(text, Reader.KUBECTL) for path, text in texts if path.endswith(".yaml")}


def without_tools(item: Mapping[str, Any]) -> dict[str, Any]:
    """An object without the annotations of tools."""
    metadata = {field: value for field, value in item["metadata"].items() if field != "ownerReferences"}
    kept = {key: text for key, text in metadata.pop("annotations", {}).items() if not key.startswith(OF_TOOLS)}
    return {**item, "metadata": {**metadata, **({"annotations": kept} if kept else {})}}


def by_key(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Objects without the annotations of tools by what they are, each once."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for item in map(without_tools, items):
        metadata = item["metadata"]
        key = item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"]
        assert key not in found
        found[key] = item
    return found


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_every_object_is_written_as_it_is_registered_and_no_other(path: str, name: str) -> None:
    record = shared_record(configuration(path))
    registered = [
        resource.inputs
        for resource in record.resources.values()
        if resource.type.startswith("kubernetes:")
        and resource.inputs.get("kind") not in (None, "Secret")
        # A tool deletes no run, so that none needs an owner.
        and not resource.object_name.startswith("runs-of-")
    ]
    files_of_objects = {
        file: inside for file, inside in written(name, record).items() if not file.startswith((CHARTS, "flux/"))
    }
    assert by_key(item for inside in files_of_objects.values() for item in inside) == by_key(registered)
    assert [file for file, inside in files_of_objects.items() if len(inside) > 1 and CHARTS not in file] == []


def releases(name: str, documents: Mapping[str, list[dict[str, Any]]]) -> dict[str, tuple[str, str, Any]]:
    """Address, version and values of each chart, by the name of its release, as a tool gets them."""
    found = {}
    for first, *others in (inside for file, inside in documents.items() if file.startswith(CHARTS)):
        spec = first["spec"]
        if name == "flux":
            release = others[0]["spec"]
            found[release["releaseName"]] = (spec["url"], spec["ref"]["tag"], release["values"])
        elif name == "argocd":
            source, helm = spec["source"], spec["source"]["helm"]
            address = f"oci://{source['repoURL']}/{source['chart']}"
            found[helm["releaseName"]] = (address, source["targetRevision"], helm["valuesObject"])
        else:
            helm = spec["helm"]
            found[helm["releaseName"]] = (f"{helm['repo']}/{helm['chart']}", helm["version"], helm["values"])
    return found


@pytest.mark.parametrize("name", ["argocd", "flux", "config-sync"])
@pytest.mark.parametrize("path", ["Pulumi.prod.yaml", "examples/multislice-training.yaml"])
def test_a_tool_installs_the_charts_that_the_program_installs(path: str, name: str) -> None:
    record = shared_record(configuration(path))
    charts = [release.inputs for release in record.all("Release")]
    assert len(charts) == 2
    expected = {chart["name"]: (chart["chart"], chart["version"], chart["values"]) for chart in charts}
    assert releases(name, written(name, record)) == expected


def page_of(name: str, record: Record) -> str:
    """The page with the steps of a tool."""
    (page,) = (text for path, text in files(tool(name, record)) if path == "README.md")
    return page


def test_helm_gets_the_charts_in_the_order_of_the_folders() -> None:
    record = shared_record(DEV)
    lines = page_of("kubectl", record).splitlines()
    commands = [line.split() for line in lines if line.startswith(("kubectl a", "kubectl c", "helm u"))]
    assert [command[-1][:2] for command in commands] == ["10", "20", "30", "30", "40", "50", "60"]
    for release in (item.inputs for item in record.all("Release")):
        (command,) = (words for words in commands if words[3] == release["name"])
        version, namespace = ("--version", release["version"]), ("--namespace", release["namespace"])
        assert command[4:9] == [release["chart"], *version, *namespace]
        (content,) = written("kubectl", record)[command[-1]]
        assert content == release["values"]


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_what_an_object_needs_is_in_an_earlier_folder(path: str) -> None:
    content = tool("kubectl", shared_record(configuration(path))).content
    stage = {(item.kind, item.namespace, item.name): [*Stage].index(item.stage) for item in content.objects}
    for item in content.objects:
        own = [*Stage].index(item.stage)
        assert stage.get(("Namespace", "", item.namespace), -1) < own
        if item.is_run:
            assert all(stage[needed] < own for needed in item.needs if needed in stage)


def annotated_with(name: str, kind: str, record: Record) -> dict[str, str]:
    """The annotations of a tool on the only object of a kind."""
    (item,) = (item for inside in written(name, record).values() for item in inside if item.get("kind") == kind)
    found = item["metadata"].get("annotations", {})
    return {key: text for key, text in found.items() if key.startswith(OF_TOOLS)}


def test_runs_are_created_once_and_stay_when_they_leave_the_folder() -> None:
    """A tool that applied a run again would suspend what Kueue has admitted."""
    record = shared_record(DEV)
    assert record.one("Job").retained
    assert record.one("Job").inputs["spec"]["suspend"] is True
    once = {"ssa": "IfNotPresent", "prune": "disabled"}
    flux = {f"kustomize.toolkit.fluxcd.io/{key}": value for key, value in once.items()}
    assert annotated_with("flux", "Job", record) == flux
    assert annotated_with("flux", "Deployment", record) == {}
    assert annotated_with("config-sync", "Job", record) == {
        "config.kubernetes.io/depends-on": "kueue.x-k8s.io/namespaces/llm/LocalQueue/team",
        "client.lifecycle.config.k8s.io/mutation": "ignore",
        "client.lifecycle.config.k8s.io/deletion": "detach",
    }
    wave, options = "argocd.argoproj.io/sync-wave", "argocd.argoproj.io/sync-options"
    assert annotated_with("argocd", "Job", record) == {wave: "4", options: "Prune=false"}
    # It applies a wave once the one before is healthy, and no run waits for a server:
    # https://argo-cd.readthedocs.io/en/stable/user-guide/sync-waves/
    assert annotated_with("argocd", "Deployment", record)[wave] == "4"
    part = yaml.safe_load(page_of("argocd", record).partition("```yaml\n")[2].partition("```")[0])
    assert {entry["kind"] for entry in part["spec"]["ignoreDifferences"]} == {"Job", "JobSet"}


# As the charts of each release have them: JobSet, Trainer, KubeRay and NVIDIA's driver in `crds/`, Kueue in templates.
WITH_CRDS = {"jobset": True, "kueue": False, "kubeflow-trainer": True, "kuberay-operator": True}


def test_flux_and_kubectl_upgrade_the_crds_that_helm_does_not() -> None:
    queues = {**DEV["gke-ai:queues"], "trainer": "install", "ray": "install"}
    record = shared_record({**DEV, "gke-ai:queues": queues})
    documents = [inside for inside in written("flux", record).values() if inside[0]["kind"].endswith("Repository")]
    upgrades = {chart["spec"]["releaseName"]: chart["spec"].get("upgrade") for _, chart in documents}
    assert upgrades == {name: {"crds": "CreateReplace"} if crds else None for name, crds in WITH_CRDS.items()}
    lines = page_of("kubectl", record).splitlines()
    for name, crds in WITH_CRDS.items():
        (at,) = (number for number, line in enumerate(lines) if line.startswith(f"helm upgrade --install {name} "))
        chart = lines[at].partition(f" {name} ")[2].partition(" --namespace")[0]
        step = f"helm show crds {chart} | kubectl apply --server-side --force-conflicts -f -"
        assert (lines[at - 1] == step) == crds


def test_flux_applies_each_stage_after_the_one_before() -> None:
    documents = written("flux", shared_record(DEV))
    stages = [inside[0] for path, inside in sorted(documents.items()) if path.startswith("flux/")]
    assert [sync["spec"]["path"] for sync in stages] == [f"./clusters/test/{stage.value}" for stage in Stage]
    names = [sync["metadata"]["name"] for sync in stages]
    assert [sync["spec"].get("dependsOn", []) for sync in stages] == [[], *([{"name": name}] for name in names[:-1])]


def test_a_missing_secret_is_listed_with_the_keys_that_pods_read() -> None:
    record = shared_record(DEV)
    command = "kubectl -n llm create secret generic hf-secret --from-literal=hf_api_token=VALUE"
    assert [secret.command for secret in tool("kubectl", record).content.secrets] == [command]
    assert TOKEN in strings(record.one("Secret").inputs), "the canary would have been seen"
