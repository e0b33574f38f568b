"""A snapshot has the listed fields of every kind, and nothing else of a cluster."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from gke_ai.forecast.snapshot import command, fields, format, kueue
from gke_ai.forecast.snapshot.fields import REQUIRED, SELECTED, kinds, selected_labels, trim, trim_all
from gke_ai.forecast.snapshot.format import InvalidSnapshot, Snapshot, build, read, shift
from gke_ai.kube.client import Answer
from gke_ai.terminal import Stop
from tests.support.schemas import schema_of

CANARY = "canary-of-a-secret"
TAKEN = datetime(2026, 11, 22, 10, tzinfo=UTC)


NUMBERS = ("count", "integer", "long", "int32", "int64")
NO_TEXTS = (*NUMBERS, "number", "bool", "share")
# The forms of fields.yaml that a type of the API may have. A text has any other form: the API writes quantities and
# times as texts too.
FORMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("int", "integer"), NUMBERS),
    **dict.fromkeys(("bool", "boolean"), ("bool",)),
    **dict.fromkeys(("str", "string"), ()),
    "datetime": ("time",),
}


class Planter:
    """Fills objects: a text of its own in every listed field, and the canary in every other."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def keep(self) -> str:
        self.kept.append(f"kept-{len(self.kept)}-end")
        return self.kept[-1]

    def fill(self, schema: Any, listed: Any, path: str, is_listed: bool = True) -> Any:
        """Returns a value of a schema (`tests.support.schemas`)."""
        if isinstance(schema, Mapping) and "*" in schema:
            return self._map(schema["*"], listed, path, is_listed)
        if isinstance(schema, Mapping):
            own = listed if is_listed and isinstance(listed, Mapping) else {}
            own = {key: part for key, part in own.items() if key != REQUIRED}
            if not path.endswith("conditions[]"):  # one list of fields serves the conditions of all kinds
                assert own.keys() <= schema.keys(), f"{path}: no such fields: {own.keys() - schema.keys()}"
            assert not is_listed or isinstance(listed, Mapping), f"{path} is an object"
            parts = {key: self.fill(part, own.get(key), f"{path}.{key}", key in own) for key, part in schema.items()}
            return {**parts, "unlistedField": CANARY}
        if isinstance(schema, list):
            assert not is_listed or isinstance(listed, list), f"{path} is a list"
            if is_listed and len(listed) > 1:
                self.kept += listed
                return [CANARY, *listed, CANARY]
            item = listed[0] if is_listed else None
            return [self.fill(schema[0], item, f"{path}[]", is_listed) for _ in range(2)]
        if is_listed and schema in FORMS:
            of_text = (schema in ("str", "string")) and listed not in NO_TEXTS
            assert of_text or listed in FORMS[schema], f"{path} is {schema}, and fields.yaml says {listed}"
        return self.keep() if is_listed else CANARY

    def _map(self, schema: Any, listed: Any, path: str, is_listed: bool) -> dict[str, Any]:
        unlisted = {f"example.com/{CANARY}": CANARY, CANARY: {CANARY: [CANARY]}}
        if not is_listed:
            return {CANARY: self.fill(schema, None, path, False)}
        if "*" in listed:
            return {self.keep(): self.fill(schema, listed["*"], path)}
        kept = {key: self.fill(schema, part, path) for key, part in listed.items() if key != SELECTED}
        return kept | unlisted


@pytest.mark.parametrize("kind", list(kinds()))
def test_every_listed_field_survives_and_no_other(kind: str) -> None:
    planter = Planter()
    schema = schema_of(kind)
    if isinstance(schema, str):
        assert "GKE_AI_CHARTS" not in os.environ, f"no chart has the kind {kind}"
        pytest.skip("the schema comes with a chart: run this under emulator/run")
    full = planter.fill(schema, kinds()[kind].fields, kind)
    text = json.dumps(trim(kind, full))
    assert CANARY in json.dumps(full)
    assert CANARY not in text
    assert [kept for kept in planter.kept if kept not in text] == []


def leaves(listed: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(listed, Mapping):
        for key, part in listed.items():
            if key != REQUIRED:
                yield from leaves(part, (*path, key))
    elif isinstance(listed, list) and not isinstance(listed[0], str):
        yield from leaves(listed[0], (*path, 0))
    else:
        yield path, listed


def around(path: tuple[Any, ...], value: Any) -> Any:
    """An object with a value at a path, and the canary beside the path on every level."""
    if not path:
        return value
    step, *rest = path
    inner = around(tuple(rest), value)
    if step == 0:
        return [CANARY, {"env": [{"value": CANARY}]}, [CANARY], inner]
    return {f"un.listed/{CANARY}": CANARY, "data": {CANARY: CANARY}, "command": [CANARY], step: inner}


@pytest.mark.parametrize("wrong", [{CANARY: CANARY}, [{CANARY: CANARY}], {"value": {"secret": CANARY}}], ids=str)
def test_a_listed_field_of_another_shape_carries_nothing(wrong: Any) -> None:
    for name, kind in kinds().items():
        for path, listed in leaves(kind.fields):
            if "*" not in path and SELECTED not in path:
                assert CANARY not in json.dumps(trim(name, around(path, wrong))), (name, path, listed)


PRIVATE = {"contact": CANARY, "kubectl.kubernetes.io/last-applied-configuration": CANARY}
CLAIMS = [{"name": "nics", "resourceClaimTemplateName": "rdma"}]
STATUSES = [{"name": "nics", "resourceClaimName": "p-nics-x7k2p"}]
RESOURCES = {"limits": {"nvidia.com/gpu": "2"}, "claims": [{"name": "nics"}]}
ENV = [{"name": "HF_TOKEN", "value": CANARY}]
POD = {
    "metadata": {"name": "p", "namespace": "research", "labels": {"app": "gemma", **PRIVATE}, "annotations": PRIVATE}
    | {"managedFields": [{"manager": CANARY}], "finalizers": [CANARY, "batch.kubernetes.io/job-tracking"]},
    "spec": {"serviceAccountName": CANARY, "imagePullSecrets": [{"name": CANARY}], "resourceClaims": CLAIMS}
    | {"volumes": [{"name": CANARY, "secret": {"secretName": CANARY}}]}
    | {"containers": [{"name": "server", "image": CANARY, "args": [CANARY], "env": ENV, "resources": RESOURCES}]},
    "status": {"phase": "Running", "message": CANARY, "podIP": CANARY, "resourceClaimStatuses": STATUSES},
}
PLACE = {"name": "p", "namespace": "n"}
BUDGET = {"metadata": {"name": "b", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": "gemma"}}}}


# What Kueue's webhook sets on a pod of a StatefulSet: pkg/controller/jobs/pod/pod_controller.go
GROUP = ("pod-group-name", "pod-group-total-count", "pod-group-pod-index-label", "prebuilt-workload-name", "role-hash")


def test_a_pod_keeps_what_the_scheduler_reads_and_its_group_without_which_kueue_refuses_it() -> None:
    metadata = {"name": "p", "namespace": "research", "labels": {}, "annotations": {}}
    assert trim("Pod", POD) == {
        "metadata": metadata | {"finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"containers": [{"name": "server", "resources": RESOURCES}], "resourceClaims": CLAIMS},
        "status": {"phase": "Running", "resourceClaimStatuses": STATUSES},
    }
    annotations = {f"kueue.x-k8s.io/{name}": "web" for name in GROUP}
    pod = {**POD, "metadata": {"name": "p", "annotations": annotations}}
    assert trim("Pod", pod)["metadata"]["annotations"] == annotations


def test_labels_that_any_form_of_selection_names_survive_and_no_other() -> None:
    trimmed = trim_all({"Pod": [POD], "PodDisruptionBudget": [BUDGET]})
    assert trimmed["Pod"][0]["metadata"]["labels"] == {"app": "gemma"}
    assert CANARY not in json.dumps(trimmed)
    term = {"matchExpressions": [{"key": "expression", "operator": "Exists"}]}
    pods = {"topologyKey": "rack", "matchLabelKeys": ["match"], "mismatchLabelKeys": ["mismatch"]}
    spec = {
        "nodeSelector": {"node": "x"},
        "tolerations": [{"key": "taint", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [pods]},
        },
    }
    flavor, topology = {"spec": {"nodeLabels": {"flavor": "x"}}}, {"spec": {"levels": [{"nodeLabel": "block"}]}}
    keys = {key for item in (spec, flavor, topology) for key in selected_labels(item)}
    assert keys == {"node", "expression", "rack", "match", "mismatch", "flavor", "block"}


# --------------------------------------------------------------------------------------------------------------- format
def snapshot(**objects: list[dict[str, Any]]) -> Snapshot:
    return build("prod", objects, TAKEN)


def test_a_snapshot_is_read_as_it_was_written_with_objects_in_the_order_of_their_names() -> None:
    written = snapshot(Pod=[POD], PodDisruptionBudget=[BUDGET])
    assert read(written.to_json()) == written
    assert json.loads(written.to_json())["takenAt"] == "2026-11-22T10:00:00Z"
    items = [{"metadata": {"name": name, "namespace": "n"}} for name in ("b", "a")]
    assert [item["metadata"]["name"] for item in snapshot(Pod=items).of("Pod")] == ["a", "b"]
    selector = {"matchLabels": {"name": "A_b", "namespace": "A_b", "uid": "A_b"}}
    budget = {"metadata": {**PLACE, "labels": selector["matchLabels"]}, "spec": {"selector": selector}}
    assert read(snapshot(PodDisruptionBudget=[budget]).to_json()).of("PodDisruptionBudget") == [budget]


def content(**more: Any) -> str:
    base = {"version": fields.version(), "takenAt": "2026-11-22T10:00:00Z", "stack": "prod", "objects": {}}
    return json.dumps(base | more)


def test_an_older_snapshot_misses_the_kinds_and_settings_that_were_not_yet_part_of_one() -> None:
    """A restored cluster keeps its own objects of these kinds, instead of losing them."""
    objects: dict[str, list[Any]] = {kind: [] for kind in kinds() if kind != "LimitRange"}
    assert read(content(version=3, objects=objects)).missing == ["LimitRange"]
    assert read(content(objects=objects)).missing == []
    assert read(content(version=1)).kueue is None
    with pytest.raises(InvalidSnapshot, match=r"has version 99 .* Update the checkout"):
        read(content(version=99, somethingNew=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: List", "no JSON"),
        ("[]", "no snapshot: the file"),
        (content(takenAt="yesterday"), "takenAt"),
        (content(objects={"Secret": []}), "no objects of kind 'Secret'"),
        (content(objects={"Pod": [{"metadata": {}, "spec": {}}]}), r"objects.Pod\[0\].metadata.name is missing"),
        (content(objects={"Pod": [{"metadata": PLACE, "spec": {}, "x": "x"}]}), r"Pod\[0\].x is a field that"),
        (content(objects={"Pod": [{"spec": {}}]}), r"objects.Pod\[0\].metadata is missing"),
        (content(kueue={"webhook": {"port": 1}}), r"kueue\.webhook is a field that a snapshot never contains"),
    ],
)
def test_what_is_no_snapshot_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSnapshot, match=message) as refused:
        read(text)
    assert "gke-ai snapshot" in str(refused.value)


UID = "6f0c3b1e-58f0-4f0e-9a53-0d5b6f7a8c9d"


@pytest.mark.parametrize("value", ["/home/user", "..", "../x", "a/b", "", "A", 7, "a b", "x" * 254, "a\n"])
@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
def test_name_that_no_cluster_accepts_is_refused_with_its_path(key: str, value: Any) -> None:
    pod: dict[str, Any] = {"metadata": {**PLACE, "uid": UID}, "spec": {}}
    assert read(content(objects={"Pod": [pod]}))
    pod["metadata"][key] = value
    with pytest.raises(InvalidSnapshot, match=re.escape(f"objects.Pod[0].metadata.{key} is not a")) as refused:
        read(content(objects={"Pod": [pod]}))
    assert "gke-ai snapshot" in str(refused.value)


def test_claims_and_devices_keep_what_the_scheduler_reads_and_no_parameters_and_addresses() -> None:
    exactly = {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": 8}
    config = [{"opaque": {"driver": "dra.net", "parameters": {"password": CANARY}}}]
    requests = [{"name": "nics", "exactly": exactly}]
    results = [{"request": "nics", "driver": "dra.net", "pool": "n-dra.net", "device": "nic-1"}]
    status = {
        "allocation": {"devices": {"results": results, "config": config}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": UID}],
        "devices": [{"driver": "dra.net", "networkData": {"ips": [CANARY]}, "data": {"key": CANARY}}],
    }
    item = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests, "config": config}}, "status": status}
    (claim,) = snapshot(ResourceClaim=[item]).of("ResourceClaim")
    assert CANARY not in json.dumps(claim)
    assert claim["status"]["allocation"] == {"devices": {"results": results}}
    assert claim["status"]["reservedFor"] == status["reservedFor"]
    assert claim["spec"]["devices"] == {"requests": requests}
    kept = {"dra.net/rdma": {"bool": True}, "dra.net/mtu": {"int": 8896}, "dra.net/pciVendor": {"string": "v"}}
    kept |= {"type": {"string": "channel"}, "id": {"int": 0}}
    addresses = {f"dra.net/{name}": {"string": CANARY} for name in ("mac", "ipv4", "alias")}
    device = {"name": "nic-1", "attributes": {**kept, **addresses}}
    (found,) = snapshot(ResourceSlice=[{"metadata": {"name": "s"}, "spec": {"devices": [device]}}]).of("ResourceSlice")
    assert found["spec"]["devices"] == [{"name": "nic-1", "attributes": kept}]


def claims(spec: Any = None, status: Any = None) -> dict[str, list[Any]]:
    return {"ResourceClaim": [{"metadata": PLACE, "spec": spec or {}, "status": status or {}}]}


REQUEST = {"name": "nics", "exactly": {"deviceClassName": "mrdma.google.com"}}
DEVICES: dict[str, list[Any]] = {"devices": [{"name": f"nic-{number}"} for number in range(129)]}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (claims({"devices": {"requests": [{**REQUEST, "exactly": {"count": 10**9}}]}}), "a whole number"),
        (claims({"devices": {"requests": [REQUEST] * 33}}), "a list of at most 32 items"),
        (claims(status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}]}), "a UUID"),
        (claims({"devices": {"config": [{"opaque": {}}]}}), "spec.devices.config is a field that"),
        ({"ResourceSlice": [{"metadata": {"name": "s"}, "spec": DEVICES}]}, "a list of at most 128 items"),
    ],
)
def test_a_claim_that_no_cluster_accepts_is_refused(objects: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InvalidSnapshot, match=message):
        read(content(objects=objects))


def test_every_time_moves_and_every_age_stays() -> None:
    pod = {"metadata": {"name": "2026-11-22", "creationTimestamp": "2026-11-22T09:58:30Z"}}
    lease = {"status": {"conditions": [{"lastTransitionTime": "2026-11-22T09:00:00.000001Z"}]}}
    moved = snapshot(Pod=[pod]).at(TAKEN + timedelta(days=40))
    assert moved.taken_at == datetime(2027, 1, 1, 10, tzinfo=UTC)
    assert moved.of("Pod")[0]["metadata"] == {"name": "2026-11-22", "creationTimestamp": "2027-01-01T09:58:30Z"}
    shifted = shift(lease, timedelta(hours=1))
    assert shifted["status"]["conditions"][0]["lastTransitionTime"] == "2026-11-22T10:00:00.000001Z"


# -------------------------------------------------------------------------------------------------------------- command
class Cluster:
    """A cluster with three pods, which it lists in pages of two, that refuses to list nodes."""

    def __init__(self, expires: bool = False) -> None:
        self.expires = expires

    def answer(self, api: object, method: str, path: str, query: Mapping[str, str] | None = None) -> Answer:
        if path == "/api/v1/nodes":
            return Answer(403, {}, f"User {CANARY} cannot list resource nodes")
        if path != "/api/v1/pods":
            return Answer(404, {}, "not found")
        items = [{"metadata": {"name": name, "namespace": "n"}, "spec": {}} for name in ("a", "b", "c")]
        if not query:
            return Answer(200, {"items": items})
        if query.get("continue") == "2":
            return Answer(410, {}, "expired") if self.expires else Answer(200, {"items": items[2:], "metadata": {}})
        return Answer(200, {"items": items[:2], "metadata": {"continue": "2"}})


def test_all_pages_are_read_and_a_forbidden_kind_is_named_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for expires in (False, True):
        monkeypatch.setattr(command, "request", Cluster(expires).answer)
        pods = command.list_all(None, kinds()["Pod"])  # type: ignore[arg-type]
        assert [pod["metadata"]["name"] for pod in pods] == ["a", "b", "c"]
    monkeypatch.setattr(command, "request", Cluster().answer)
    taken = command.take("prod", None)  # type: ignore[arg-type]
    assert (taken.missing, "Node" in taken.objects, taken.objects["Job"]) == (["Node"], False, [])
    assert "no objects of kind Node: User" in capsys.readouterr().err
    assert CANARY not in taken.to_json()
    assert format.read(taken.to_json()) == taken
    monkeypatch.setattr(command, "request", lambda *_: Answer(403, {}, "User system:anonymous cannot list"))
    with pytest.raises(Stop, match="refuses to list every kind, so there is no snapshot"):
        command.take("prod", None)  # type: ignore[arg-type]


def test_the_role_may_list_the_kinds_of_a_snapshot_and_nothing_else() -> None:
    *of_kinds, kueue = yaml.safe_load(command.role())["rules"]
    listed = {(group, name) for rule in of_kinds for group in rule["apiGroups"] for name in rule["resources"]}
    assert listed == {(kind.group, kind.plural) for kind in kinds().values()}
    assert {verb for rule in of_kinds for verb in rule["verbs"]} == {"list"}
    assert (kueue["resourceNames"], kueue["verbs"]) == (["kueue-manager-config"], ["get"])
    assert not listed & {("", "secrets"), ("", "configmaps"), ("", "serviceaccounts"), ("", "events")}


def kueue_of(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    def answer(_: object, __: str, path: str, ___: object = None) -> Answer:
        data = {"controller_manager_config.yaml": text, "other": CANARY}
        is_there = path == "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
        return Answer(200, {"data": data}) if is_there else Answer(404, {}, "not found")

    monkeypatch.setattr(command, "request", answer)
    return read(command.take("prod", None).to_json()).kueue  # type: ignore[arg-type]


def test_a_snapshot_has_the_settings_of_kueue_that_decide_and_a_rehearsal_says_in_which_its_own_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mapping = {"name": "mrdma.google.com/nics", "deviceClassNames": ["mrdma.google.com"]}
    decides = {"resources": {"deviceClassMappings": [mapping]}, "featureGates": {"X": True}}
    decides |= {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    others = {"webhook": {"port": 1}, "clientConnection": {"qps": CANARY}, "multiKueue": {"origin": CANARY}}
    assert kueue_of(yaml.safe_dump(decides | others), monkeypatch) == decides
    assert kueue_of("a: [", monkeypatch) is None
    fair: dict[str, object] = {"fairSharing": {"preemptionStrategies": []}}
    (note,) = kueue.differing(fair | {"integrations": {}}, {"integrations": {}})
    assert note.startswith("Kueue is configured otherwise in the cluster: fairSharing. ")
    assert [*kueue.differing(fair, fair)] == []
    (note,) = kueue.differing(None, fair)
    assert "lacks the configuration of Kueue" in note
