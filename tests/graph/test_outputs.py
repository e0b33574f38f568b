"""The stack writes the contract, the contract stays compatible, and the reader reports what is missing."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks
from pydantic import TypeAdapter

from gke_ai_outputs.model import Contract, Item, Key, MissingOutput, Producer, Queue, keys_of, parsed, parts
from gke_ai_outputs.stack_outputs import StackOutputs, value
from gke_ai_outputs.version import VERSION
from tests.support.recorder import TOKEN, configuration, run_program, shared_record, strings
from tests.support.repository import CONFIGURATIONS, ROOT

MIXED = "examples/mixed-training-inference.yaml"
EXPECTED = yaml.load((ROOT / "tests/data/expected/outputs.yaml").read_text(), yaml.CSafeLoader)


# --- the contract -----------------------------------------------------------------------------------------------------


def keys_since() -> dict[str, set[str]]:
    """Every key of the contract, by the version that added it."""
    keys: dict[str, set[str]] = {}
    for part, path in parts():
        for key in keys_of(part):
            keys.setdefault(key.since, set()).add(f"{path}{key.key}")
    return keys


def test_no_key_of_a_version_is_renamed_removed_or_added_later() -> None:
    assert keys_since() == {version: set(keys.split()) for version, keys in EXPECTED["versions"].items()}


def test_version_is_that_of_the_newest_key() -> None:
    assert max(map(parsed, keys_since())) == parsed(VERSION)


def test_outputs_package_installs_and_works_without_the_repository(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "gke_ai_outputs", source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--target", str(target), str(source)], cwd=tmp_path, env=alone, check=True)
    assert sorted(path.name for path in target.iterdir()) == [
        "gke_ai_outputs",
        f"gke_ai_outputs-{VERSION}.dist-info",
    ], "one import name, in the version of the contract"
    program = "import gke_ai_outputs as o; print(o.__file__, o.VERSION, o.StackOutputs.__name__)"
    printed = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=alone | {"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split() == [str(target / "gke_ai_outputs" / "__init__.py"), VERSION, "StackOutputs"]


def written_by(kind: type[Contract | Item], value: Mapping[str, Any], path: str = "") -> set[str]:
    """Keys of `value`, an instance of a contract class, and of its items. Lists of items must not be empty."""
    written = set()
    inside = {inner: place for inner, place in parts(kind) if place.count("[].") == 1}
    for key, item in value.items():
        written.add(f"{path}{key}")
        for inner, place in inside.items():
            if place == f"{key}[].":
                assert item, f"nothing is written under {key}"
                written |= written_by(inner, item[0], f"{path}{place}")
    return written


def full(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The outputs of a stack with every kind of item."""
    config = configuration("examples/mixed-training-inference-autopilot.yaml")
    config["gke-ai:cluster"] = {"name": "llm-cluster", "mode": "existing", "existingMode": "autopilot"}
    metric = {"metric": "slotsUsed", "target": "0.8"}
    server = {"name": "maxengine-server", "app": "maxengine-server"}
    config["gke-ai:autoscaling"] = [
        {"name": "jetstream", "deployment": server, "adapter": "prometheus", "maxReplicas": 2, "metrics": [metric]}
    ]
    config["gke-ai:computeClasses"] = configuration("examples/cost-optimized-serving.yaml")["gke-ai:computeClasses"]
    queues = config["gke-ai:queues"]
    queues["localQueues"].append({"name": "theirs", "namespace": "research", "clusterQueue": "cluster-queue"})
    bucket = config["gke-ai:buckets"][0]["name"]
    config["gke-ai:tenants"] = [{"name": "research", "buckets": [bucket], "quota": {"pods": "10"}}]
    config["gke-ai:monitoring"] = {}
    routed = {"name": "routed", "engine": "vllm", "model": "google/gemma-3-4b-it", "maxModelLen": 4096}
    config["gke-ai:serving"].append({**routed, "namespace": "llm", "accelerator": "nvidia-l4"})
    route = {"name": "main", "servers": [{"server": "routed"}]}
    config["gke-ai:gateway"] = {"certificate": "llm", "routes": [route]}
    return run_program(config, False, monkeypatch).outputs


def test_stack_writes_every_key_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_by(Contract, full(monkeypatch)) == set().union(*keys_since().values())


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_outputs_of_every_configuration_match_the_contract(path: str) -> None:
    outputs = shared_record(configuration(path)).outputs
    keys = [key for key in vars(Contract).values() if isinstance(key, Key)]
    read = {key.alias: value(Producer(), key, outputs[key.alias]) for key in keys}
    assert TypeAdapter(dict[str, Any]).dump_python(read, by_alias=True) == outputs


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_no_output_holds_a_secret(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "hf_canary_of_the_outputs"
    record = run_program(configuration(MIXED), preview, monkeypatch, token=canary)
    assert record.secret_outputs == set(), "an output of the contract is readable by all who read it"
    assert not [text for text in strings(record.outputs) if canary in text]
    # The token is in what was made, so the canary would have been seen.
    assert canary in strings(record.one("Secret").inputs)
    if not preview:
        (user,) = yaml.safe_load(record.outputs["kubeconfig"])["users"]
        assert user["user"].keys() == {"exec"}, "the kubeconfig holds a credential"


def test_outputs_are_the_contract() -> None:
    outputs = dict(shared_record(configuration(MIXED)).outputs)
    kubeconfig = yaml.safe_load(outputs.pop("kubeconfig"))
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://192.0.2.1"
    assert outputs == EXPECTED["mixed"]


def granted(path: str, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> list[dict[str, Any]]:
    """The quota of the first queue of a configuration."""
    config = configuration(path) | {f"gke-ai:{name}": value for name, value in sections.items()}
    quota: list[dict[str, Any]] = run_program(config, False, monkeypatch).outputs["queues"][0]["quota"]
    return quota


def test_nodes_of_a_flavor_are_selected_by_its_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = granted("examples/multislice-training.yaml", monkeypatch)[0]
    assert slices["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu-v5-lite-podslice"
    assert [taint["key"] for taint in slices["tolerations"]] == ["google.com/tpu"]


def test_nodes_of_a_flavor_without_pools_are_selected_by_its_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = configuration("Pulumi.dev.yaml")["gke-ai:queues"]
    queues["flavors"] = [{"name": "l4", "accelerator": "nvidia-l4"}]
    (grant,) = granted("Pulumi.dev.yaml", monkeypatch, queues=queues)
    assert grant["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert [taint["key"] for taint in grant["tolerations"]] == ["nvidia.com/gpu"]


# --- reading it -------------------------------------------------------------------------------------------------------

QUEUE: dict[str, Any] = {"localQueue": "team", "namespace": "llm", "clusterQueue": "gpus"}
GRANT: dict[str, Any] = {"flavor": "l4", "resources": {"nvidia.com/gpu": "4"}}
NEWER: dict[str, Any] = {
    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "tolerations": [],
    "borrowingLimit": {},
}
OLD: dict[str, Any] = {
    "version": "1",
    "clusterName": "ai-dev",
    "clusterLocation": "us-central1",
    "kubeconfig": "apiVersion: v1",
    "queues": [{**QUEUE, "quota": [GRANT]}],
    "servers": [],
}
NEW: dict[str, Any] = {
    **OLD,
    "version": VERSION,
    "clusterIdentifier": "gke-1.example.com",
    "queues": [{**QUEUE, "cohort": "", "quota": [{**GRANT, **NEWER}]}],
    "tenants": [],
}


class Producing(mocks.Mocks):
    """An engine whose stack references return these outputs. Without outputs, they are unknown."""

    def __init__(self, outputs: Mapping[str, Any] | None, secrets: tuple[str, ...]) -> None:
        self.outputs = outputs
        self.secrets = secrets
        self.made: list[mocks.MockResourceArgs] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.made.append(args)
        if args.typ != "pulumi:pulumi:StackReference":
            return f"{args.name}-id", dict(args.inputs)
        if self.outputs is None:
            return None, {}
        state = {k: pulumi.Output.secret(v) if k in self.secrets else v for k, v in self.outputs.items()}
        return args.name, {"name": args.name, "outputs": state, "secretOutputNames": list(self.secrets)}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        raise AssertionError(f"unexpected call of {args.token}")


def seen(
    read: Callable[[StackOutputs], Any],
    outputs: Mapping[str, Any] | None,
    secrets: tuple[str, ...] = (),
    preview: bool = False,
) -> tuple[Any, bool, bool]:
    """The value that a consumer reads, whether it is known, and whether it is secret."""
    pulumi.runtime.set_mocks(Producing(outputs, secrets), project="consumer", stack="test", preview=preview)
    calls: list[tuple[Any, bool, bool]] = []

    async def look() -> None:
        output = pulumi.Output.from_input(read(StackOutputs("organization/gke-ai/dev")))
        known = await output.is_known()
        calls.append((await output.future(), known, await output.is_secret()))

    asyncio.get_event_loop().run_until_complete(look())  # that of Pulumi's root resource
    return calls[0]


def test_view_reads_all_outputs_of_a_stack() -> None:
    queue = seen(lambda dev: dev.queue("llm"), NEW)[0]
    assert isinstance(queue, Queue)
    assert seen(lambda dev: dev.queue("llm", "team").local_queue, NEW) == ("team", True, False)
    assert seen(lambda dev: dev.queue("llm").quota[0].node_selector, NEW)[0] == NEWER["nodeSelector"]
    assert seen(lambda dev: dev.version, NEW)[0] == VERSION


def test_view_reads_the_keys_that_an_old_stack_has() -> None:
    assert seen(lambda dev: dev.queue("llm").quota[0].amounts, OLD)[0] == GRANT["resources"]
    assert seen(lambda dev: dev.cluster_name, OLD)[0] == "ai-dev"


def test_view_ignores_unknown_keys_of_a_newer_stack() -> None:
    newer = {**NEW, "version": "1.9", "queues": [{**QUEUE, "quota": [GRANT], "kindOfQueue": "new"}], "more": {}}
    assert seen(lambda dev: dev.queue("llm").local_queue, newer)[0] == "team"


@pytest.mark.parametrize(
    ("read", "key"),
    [
        (lambda dev: dev.tenant("research"), "tenants"),
        (lambda dev: dev.queue("llm").quota[0].node_selector, "queues[].quota[].nodeSelector"),
        (lambda dev: dev.queue("llm").cohort, "queues[].cohort"),
    ],
)
def test_too_old_a_stack_is_named_with_the_version_that_it_needs(read: Callable[[StackOutputs], Any], key: str) -> None:
    with pytest.raises(MissingOutput) as error:
        seen(read, OLD)
    message = str(error.value)
    assert f"organization/gke-ai/dev has no output {key}." in message
    assert "Version 1.1 of the outputs added it" in message, "the version that has it"
    assert "was deployed with 1." in message, "the version of the stack"
    assert "pulumi up" in message, "the remedy"


def test_missing_output_of_a_current_stack_is_not_blamed_on_its_version() -> None:
    with pytest.raises(MissingOutput, match="has no output autoscalers, although its outputs have version"):
        seen(lambda dev: dev.autoscalers, NEW)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "never deployed"),
        ({"version": "4.2.0-beta"}, "never deployed"),
        ({**NEW, "version": "2.0"}, r"writes version 2\.0 of the outputs, and this program reads"),
        ({**NEW, "queues": "none"}, "queues: Input should be a valid list"),
        ({**NEW, "queues": [{**QUEUE, "namespace": 7}]}, r"queues\.0\.namespace: Input should be a valid string"),
    ],
)
def test_stack_of_another_program_is_refused(outputs: dict[str, Any], message: str) -> None:
    with pytest.raises(pulumi.RunError, match=message):
        seen(lambda dev: dev.queue("llm"), outputs)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda dev: dev.queue("research"), r"no local queue .* in namespace research\. It has: llm/team\."),
        (lambda dev: dev.queue("llm", "tema"), r"no local queue tema in namespace llm\. It has: llm/team\."),
        (lambda dev: dev.server("gemma"), r"no server gemma\. It has: none at all\."),
        (lambda dev: dev.tenant("research"), r"no tenant research\. It has: none at all\."),
    ],
)
def test_missing_item_is_reported_with_the_existing_ones(read: Callable[[StackOutputs], Any], message: str) -> None:
    with pytest.raises(pulumi.RunError, match=message):
        seen(read, NEW)


def test_one_of_several_queues_must_be_named() -> None:
    several = {**NEW, "queues": [*NEW["queues"], {**NEW["queues"][0], "localQueue": "other"}]}
    with pytest.raises(pulumi.RunError, match=r"several .* It has: llm/team, llm/other\."):
        seen(lambda dev: dev.queue("llm"), several)
    assert seen(lambda dev: dev.queue("llm", "other").local_queue, several)[0] == "other"


def test_secret_output_stays_secret_and_no_other_becomes_secret() -> None:
    outputs = {**NEW, "theirs": TOKEN}
    assert seen(lambda dev: dev.kubeconfig, outputs, ("kubeconfig", "theirs"))[2]
    assert seen(lambda dev: dev.queue("llm").local_queue, outputs, ("kubeconfig", "theirs")) == ("team", True, False)


def test_refusal_never_shows_the_value() -> None:
    with pytest.raises(pulumi.RunError) as error:
        seen(lambda dev: dev.queues, {**NEW, "queues": [{**QUEUE, "quota": TOKEN}]}, ("queues",))
    assert TOKEN not in str(error.value)


def test_unknown_outputs_stay_unknown_in_a_preview() -> None:
    for read in (lambda dev: dev.cluster_name, lambda dev: dev.queue("llm").quota[0].node_selector):
        assert seen(read, None, preview=True)[1] is False


def test_provider_is_of_the_cluster_and_stays_with_it() -> None:
    """It identifies the cluster and not the endpoint, whose change would replace every object."""
    monitor = Producing(NEW, ())
    pulumi.runtime.set_mocks(monitor, project="consumer", stack="test", preview=False)

    async def make() -> None:
        await StackOutputs("organization/gke-ai/dev").provider().urn.future()

    asyncio.get_event_loop().run_until_complete(make())
    (inputs,) = [resource.inputs for resource in monitor.made if resource.typ == "pulumi:providers:kubernetes"]
    assert inputs["kubeconfig"] == NEW["kubeconfig"]
    assert inputs["clusterIdentifier"] == NEW["clusterIdentifier"]
