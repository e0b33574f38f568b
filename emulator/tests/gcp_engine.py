"""Calls the gcp plugin as Pulumi's engine does, without a process, with inputs of `inputs.yaml`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2 as proto

from emulator.cloud.records import ClusterRecord, Endpoint, PoolRecord
from emulator.cloud.store import Store, project_number
from emulator.google.plugin import RESOURCES, Gcp
from emulator.pulumi.plugin import decode, encode

CLUSTER, NODE_POOL, BUCKET, MEMBER, ACCOUNT, ACCOUNT_MEMBER, PROJECT_MEMBER, *_ = RESOURCES
NO_CONTEXT: Any = None  # the plugin raises; only its server turns that into an answer
PROJECT = "my-project"
CLUSTER_ID = f"projects/{PROJECT}/locations/us-central1/clusters/llm-cluster"
POOL_ID = f"{CLUSTER_ID}/nodePools/gpupool"
Values = dict[str, Any]
# By name: a type, inputs that are accepted, and changes that are refused.
INPUTS: dict[str, Any] = yaml.load(Path(__file__).with_name("inputs.yaml").read_text(), yaml.CSafeLoader)


def accepted(name: str) -> Values:
    """Inputs that the emulator accepts."""
    inputs: Values = INPUTS[name]["inputs"]
    return inputs


STANDARD, AUTOPILOT = accepted("standard cluster"), accepted("autopilot cluster")
L4_POOL, MODEL_BUCKET, GRANT = accepted("node pool"), accepted("bucket"), accepted("member")


def but(values: Values, **changes: Any) -> Values:
    """`values` with changes. A name with dots, brackets or `__` is a path, and None removes a value."""
    changed: Values = json.loads(json.dumps(values))
    for path, value in changes.items():
        names = re.findall(r"\w+", path.replace("__", "."))
        *parents, last = [int(name) if name.isdigit() else name for name in names]
        place: Any = changed
        for parent in parents:
            place = place[parent] if isinstance(parent, int) else place.setdefault(parent, {})
        if isinstance(place, dict) and value is None:
            place.pop(last, None)
        elif value is None:
            place.pop(last)
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return changed


class Recorder:
    """Replaces emulator.cluster and records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.clusters: dict[str, ClusterRecord] = {}
        self.pools: dict[str, PoolRecord] = {}
        self.fails: dict[str, BaseException] = {}

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        self._called("create", name)
        self.clusters[name] = record
        return Endpoint("127.0.0.1:34567", "Q0E=")

    def delete(self, name: str) -> None:
        self._called("delete", name)
        self.clusters.pop(name, None)
        self.pools.clear()

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        self._called("set_pool", name, pool.name)
        self.pools[pool.name] = pool

    def remove_pool(self, name: str, pool: str) -> None:
        self._called("remove_pool", name, pool)
        self.pools.pop(pool, None)

    def _called(self, *call: str) -> None:
        self.calls.append(call)
        if call[0] in self.fails:
            raise self.fails.pop(call[0])


class Engine:
    """Calls the plugin as Pulumi's engine does, without a process."""

    def __init__(self, folder: Path, project: str | None = PROJECT) -> None:
        self.store = Store(folder)
        self.clusters = Recorder()
        self.gcp = Gcp(self.store, self.clusters)
        settings = {"project": project, "region": "us-central1"} if project else {}
        self.gcp.Configure(proto.ConfigureRequest(args=encode(settings), acceptSecrets=True), NO_CONTEXT)

    def check(
        self, token: str, inputs: Values, name: str = "it", olds: Values | None = None
    ) -> tuple[Values, list[tuple[str, str]]]:
        """Checks the inputs of a creation or, with the old inputs, of an update."""
        old_inputs = struct_pb2.Struct() if olds is None else encode(olds)
        request = proto.CheckRequest(urn=urn(token, name), news=encode(inputs), olds=old_inputs, randomSeed=b"seed")
        answer = self.gcp.Check(request, NO_CONTEXT)
        assert not any(failure.property for failure in answer.failures), "the engine would show its value"
        reasons = (failure.reason.partition(": ") for failure in answer.failures)
        return decode(answer.inputs), [(path, reason) for path, _, reason in reasons]

    def create(self, token: str, inputs: Values, *, preview: bool = False) -> tuple[str, Values]:
        checked, failures = self.check(token, inputs)
        assert failures == []
        request = proto.CreateRequest(urn=urn(token), properties=encode(checked), preview=preview)
        answer = self.gcp.Create(request, NO_CONTEXT)
        return answer.id, decode(answer.properties)

    def diff(self, token: str, old: Values, new: Values, state: Values | None = None) -> proto.DiffResponse:
        olds = encode({} if state is None else state)
        request = proto.DiffRequest(urn=urn(token), id="it", old_inputs=encode(old), olds=olds, news=encode(new))
        return self.gcp.Diff(request, NO_CONTEXT)

    def update(
        self, token: str, id: str, old: Values, new: Values, *, preview: bool = False, state: Values | None = None
    ) -> Values:
        assert self.check(token, new, olds=old)[1] == []
        olds = encode(old if state is None else state)
        request = proto.UpdateRequest(
            urn=urn(token), id=id, old_inputs=encode(old), news=encode(new), olds=olds, preview=preview
        )
        return decode(self.gcp.Update(request, NO_CONTEXT).properties)

    def read(self, token: str, id: str, inputs: Values | None = None) -> tuple[str, Values, Values]:
        encoded = struct_pb2.Struct() if inputs is None else encode(inputs)
        answer = self.gcp.Read(proto.ReadRequest(urn=urn(token), id=id, inputs=encoded), NO_CONTEXT)
        return answer.id, decode(answer.properties), decode(answer.inputs)

    def delete(self, token: str, id: str, state: Values) -> None:
        self.gcp.Delete(proto.DeleteRequest(urn=urn(token), id=id, properties=encode(state)), NO_CONTEXT)

    def invoke(self, token: str, **arguments: Any) -> Values:
        answer = self.gcp.Invoke(proto.InvokeRequest(tok=token, args=encode(arguments)), NO_CONTEXT)
        return decode(getattr(answer, "return"))


def urn(token: str, name: str = "it") -> str:
    return f"urn:pulumi:dev::gke-ai::gke-ai:index:GkeCluster${token}::{name}"


def mistakes(*names: str) -> list[Any]:
    """The changes of inputs that are refused: the type, the changed inputs, the property and the message."""
    kinds = [(name, INPUTS[name]["type"], accepted(name), row) for name in names for row in INPUTS[name]["refused"]]
    return [
        pytest.param(token, but(inputs, **row["but"]), row["at"], row["says"], id=f"{name}: {row['but']}")
        for name, token, inputs, row in kinds
    ]


FLEX_START = but(
    L4_POOL,
    nodeCount=None,
    initialNodeCount=0,
    autoscaling={"totalMinNodeCount": 0, "totalMaxNodeCount": 4, "locationPolicy": "ANY"},
    nodeConfig__flexStart=True,
    nodeConfig__maxRunDuration="3600s",
    nodeConfig__reservationAffinity={"consumeReservationType": "NO_RESERVATION"},
)


def principal(number: str = project_number(PROJECT), pool: str = f"{PROJECT}.svc.id.goog") -> str:
    pools = f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools"
    return f"{pools}/{pool}/subject/ns/llm/sa/default"
