"""The stack writes the contract, the contract stays compatible, and the reader reports what is missing."""

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


def keys_since() -> dict[str, set[str]]:
    """Every key of the contract, by the version that added it."""
    keys: dict[str, set[str]] = {}
    for part, path in parts():
        for key in keys_of(part):
            keys.setdefault(key.since, set()).add(f"{path}{key.key}")
    return keys


def test_no_key_of_a_version_is_renamed_removed_or_added_later() -> None:
    assert keys_since() == {version: set(keys.split()) for version, keys in EXPECTED["versions"].items()}
    assert max(map(parsed, keys_since())) == parsed(VERSION), "the version is that of the newest key"


def test_outputs_package_installs_and_works_without_the_repository(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "gke_ai_outputs", source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--target", str(target), str(source)], cwd=tmp_path, env=alone, check=True)
    names = sorted(path.name for path in target.iterdir())
    assert names == ["gke_ai_outputs", f"gke_ai_outputs-{VERSION}.dist-info"], "one name, in the contract's version"
    program = "import gke_ai_outputs as o; print(o.__file__, o.VERSION, o.StackOutputs.__name__)"
    alone["PYTHONPATH"] = str(target)
    printed = subprocess.check_output([sys.executable, "-P", "-c", program], cwd=tmp_path, env=alone, text=True)
    assert printed.split() == [str(target / "gke_ai_outputs" / "__init__.py"), VERSION, "StackOutputs"]


def written_by(kind: type[Contract | Item], value: Mapping[str, Any], path: str = "") -> set[str]:
    """Keys of `value`, an instance of a contract class, and of its items. Lists of items must not be empty."""
    written = {f"{path}{key}" for key in value}
    for inner, place in parts(kind):
        if place.count("[].") == 1 and (key := place.removesuffix("[].")) in value:
            assert value[key], f"nothing is written under {key}"
            written |= written_by(inner, value[key][0], f"{path}{place}")
    return written


def full() -> dict[str, Any]:
    """The outputs of a stack with every kind of item."""
    config = configuration("examples/mixed-training-inference-autopilot.yaml")
    config["gke-ai:cluster"] = {"name": "llm-cluster", "mode": "existing", "existingMode": "autopilot"}
    server = {"name": "maxengine-server", "app": "maxengine-server"}
    bounds = {"maxReplicas": 2, "metrics": [{"metric": "slotsUsed", "target": "0.8"}]}
    scaler = {"name": "jetstream", "deployment": server, "adapter": "prometheus", **bounds}
    config["gke-ai:autoscaling"] = [scaler]
    config["gke-ai:computeClasses"] = configuration("examples/cost-optimized-serving.yaml")["gke-ai:computeClasses"]
    theirs = {"name": "theirs", "namespace": "research", "clusterQueue": "cluster-queue"}
    config["gke-ai:queues"]["localQueues"].append(theirs)
    bucket = config["gke-ai:buckets"][0]["name"]
    config["gke-ai:tenants"] = [{"name": "research", "buckets": [bucket], "quota": {"pods": "10"}}]
    config["gke-ai:monitoring"] = {}
    routed = {"name": "routed", "engine": "vllm", "model": "google/gemma-3-4b-it", "maxModelLen": 4096}
    config["gke-ai:serving"].append({**routed, "namespace": "llm", "accelerator": "nvidia-l4"})
    route = {"name": "main", "servers": [{"server": "routed"}]}
    config["gke-ai:gateway"] = {"certificate": "llm", "routes": [route]}
    return shared_record(config).outputs


def test_stack_writes_every_key_and_no_other() -> None:
    assert written_by(Contract, full()) == set().union(*keys_since().values())


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


def test_nodes_of_a_flavor_are_selected_by_its_pools_and_without_pools_by_its_accelerator() -> None:
    with_pools, without = configuration("examples/multislice-training.yaml"), configuration("Pulumi.dev.yaml")
    without["gke-ai:queues"]["flavors"] = [{"name": "l4", "accelerator": "nvidia-l4"}]
    slices, *_ = shared_record(with_pools).outputs["queues"][0]["quota"]
    assert slices["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu-v5-lite-podslice"
    assert [taint["key"] for taint in slices["tolerations"]] == ["google.com/tpu"]
    (grant,) = shared_record(without).outputs["queues"][0]["quota"]
    assert grant["nodeSelector"] == SELECTOR
    assert [taint["key"] for taint in grant["tolerations"]] == ["nvidia.com/gpu"]


QUEUE: dict[str, Any] = {"localQueue": "team", "namespace": "llm", "clusterQueue": "gpus"}
GRANT: dict[str, Any] = {"flavor": "l4", "resources": {"nvidia.com/gpu": "4"}}
SELECTOR = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
NEWER: dict[str, Any] = {**GRANT, "nodeSelector": SELECTOR, "tolerations": [], "borrowingLimit": {}}
CLUSTER = {"clusterName": "ai-dev", "clusterLocation": "us-central1", "kubeconfig": "apiVersion: v1"}
OLD: dict[str, Any] = {"version": "1", **CLUSTER, "queues": [{**QUEUE, "quota": [GRANT]}], "servers": []}
NEW: dict[str, Any] = {**OLD, "version": VERSION, "clusterIdentifier": "gke-1.example.com", "tenants": []}
NEW["queues"] = [{**QUEUE, "cohort": "", "quota": [NEWER]}]


class Producing(mocks.Mocks):
    """An engine whose stack references return these outputs. Without outputs, they are unknown."""

    def __init__(self, outputs: Mapping[str, Any] | None, secrets: tuple[str, ...]) -> None:
        self.outputs, self.secrets = outputs, secrets
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


Read = Callable[[StackOutputs], Any]
Seen = tuple[Any, bool, bool]


def seen(read: Read, outputs: Mapping[str, Any] | None, secrets: tuple[str, ...] = (), preview: bool = False) -> Seen:
    """The value that a consumer reads, whether it is known, and whether it is secret."""
    pulumi.runtime.set_mocks(Producing(outputs, secrets), project="consumer", stack="test", preview=preview)

    async def look() -> Seen:
        output = pulumi.Output.from_input(read(StackOutputs("organization/gke-ai/dev")))
        known = await output.is_known()
        return await output.future(), known, await output.is_secret()

    return asyncio.get_event_loop().run_until_complete(look())  # that of Pulumi's root resource


def test_view_reads_all_outputs_of_a_stack() -> None:
    assert isinstance(seen(lambda dev: dev.queue("llm"), NEW)[0], Queue)
    assert seen(lambda dev: dev.queue("llm", "team").local_queue, NEW) == ("team", True, False)
    assert seen(lambda dev: dev.queue("llm").quota[0].node_selector, NEW)[0] == SELECTOR
    assert seen(lambda dev: dev.version, NEW)[0] == VERSION
    assert seen(lambda dev: dev.queue("llm", "other").local_queue, SEVERAL)[0] == "other"


def test_view_reads_the_keys_that_an_old_stack_has_and_ignores_unknown_ones_of_a_newer() -> None:
    assert seen(lambda dev: dev.queue("llm").quota[0].amounts, OLD)[0] == GRANT["resources"]
    assert seen(lambda dev: dev.cluster_name, OLD)[0] == "ai-dev"
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
def test_too_old_a_stack_is_named_with_the_version_that_it_needs_and_the_remedy(read: Read, key: str) -> None:
    with pytest.raises(MissingOutput) as error:
        seen(read, OLD)
    parts = (f"organization/gke-ai/dev has no output {key}.", "Version 1.1 of the outputs added it", "pulumi up")
    assert [part for part in (*parts, "was deployed with 1.") if part not in str(error.value)] == []


SEVERAL = {**NEW, "queues": [*NEW["queues"], {**NEW["queues"][0], "localQueue": "other"}]}
OF_A_NUMBER = {**NEW, "queues": [{**QUEUE, "namespace": 7}]}


def only_queue(dev: StackOutputs) -> Any:
    return dev.queue("llm")


@pytest.mark.parametrize(
    ("read", "outputs", "message"),
    [
        (only_queue, {}, "never deployed"),
        (only_queue, {"version": "4.2.0-beta"}, "never deployed"),
        (only_queue, {**NEW, "version": "2.0"}, r"writes version 2\.0 of the outputs, and this program reads"),
        (only_queue, {**NEW, "queues": "none"}, "queues: Input should be a valid list"),
        (only_queue, OF_A_NUMBER, r"queues\.0\.namespace: Input should be a valid string"),
        (only_queue, SEVERAL, r"several .* It has: llm/team, llm/other\."),
        (lambda dev: dev.queue("research"), NEW, r"no local queue .* in namespace research\. It has: llm/team\."),
        (lambda dev: dev.queue("llm", "tema"), NEW, r"no local queue tema in namespace llm\. It has: llm/team\."),
        (lambda dev: dev.server("gemma"), NEW, r"no server gemma\. It has: none at all\."),
        (lambda dev: dev.tenant("research"), NEW, r"no tenant research\. It has: none at all\."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_stack_does_not_have_is_refused_in_plain_words(read: Read, outputs: Any, message: str) -> None:
    with pytest.raises(pulumi.RunError, match=message):
        seen(read, outputs)


def test_missing_output_of_a_current_stack_is_not_blamed_on_its_version() -> None:
    with pytest.raises(MissingOutput, match="has no output autoscalers, although its outputs have version"):
        seen(lambda dev: dev.autoscalers, NEW)


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
    assert (inputs["kubeconfig"], inputs["clusterIdentifier"]) == (NEW["kubeconfig"], NEW["clusterIdentifier"])
