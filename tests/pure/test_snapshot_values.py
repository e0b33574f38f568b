"""Each listed field of a snapshot refuses what no cluster has there, with its path: cases are made from fields.yaml."""

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from gke_ai.forecast.snapshot import fields
from gke_ai.forecast.snapshot.fields import REQUIRED, SELECTED, kinds
from gke_ai.forecast.snapshot.format import InvalidSnapshot, read
from gke_ai.forecast.snapshot.values import invalid_values

ESCAPE = "\x1b]52;c;aWQ=\x07"
UID = "6f0c3b1e-58f0-4f0e-9a53-0d5b6f7a8c9d"
LABEL = "example.com/team"
# A value that each form allows.
OF_KUBERNETES = {"uid": UID, "key": "nvidia.com/gpu", "time": "2026-11-22T10:00:00Z", "duration": "5m0s"}
OF_RESOURCES = {"indexes": "0,2-4", "quantity": "2Gi", "amount": "-1500m", "share": "25%", "number": 0.5, "bool": False}
GOOD: Mapping[str, Any] = {
    **dict.fromkeys(("name", "label", "value", "part", "word", "text"), "a"),
    **dict.fromkeys(("count", "integer", "long", "int32", "int64"), 1),
    **OF_KUBERNETES,
    **OF_RESOURCES,
}
# What is written into every field, by what is wrong with it.
NOTHING: Mapping[str, Any] = {"null": None, "a list": [], "an object": {}, "an object in a list": [{}], "no text": ""}
TEXTS = {"a word": "many", "a path": "../a", "an escape sequence": ESCAPE, "upper case": "A-b", "a negative text": "-1"}
LONG = {"a long text": "a" * 5000, "a time that is none": "2026-99-99T99:99:99Z", "a huge quantity": "1e300"}
NUMBERS = {"true": True, "a fraction": 1.5, "negative": -1, "above 31 bits": 2**31, "above 63 bits": 2**63}
WRONG: Mapping[str, Any] = {**NOTHING, **TEXTS, **LONG, **NUMBERS, "huge": 10**300, "infinite": float("inf")}
_SHOWN = "nothing but a person reads it, and no control character is in it"
_NAMES_NOTHING = "a name that nothing has: see DANGLING"
_OF_OTHERS = "Kubernetes takes unknown words for those of other controllers"
_DOMAIN = "Kueue looks for a domain with these values, and evicts a workload whose domain is gone"
_LABELS = "a label may have any value"
# What a form allows of these, with the reason.
HARMLESS: Mapping[str, Mapping[str, str]] = {
    "text": dict.fromkeys(("a word", "no text", "a path", "upper case", "a negative text", "a huge quantity"), _SHOWN),
    "word": dict.fromkeys(("a word", "upper case", "a huge quantity"), _OF_OTHERS),
    "part": dict.fromkeys(("a word", "no text", "upper case", "a negative text", "a huge quantity"), _DOMAIN),
    "value": dict.fromkeys(("a word", "no text", "upper case", "a huge quantity"), _LABELS),
    "key": dict.fromkeys(("a word", "upper case", "a huge quantity"), "a resource or label that nothing has"),
    **dict.fromkeys(("name", "label"), dict.fromkeys(("a word", "a huge quantity"), _NAMES_NOTHING)),
    "bool": {"true": "the other one"},
    "number": {"a fraction": "a weight", "above 31 bits": "a weight"},
    "indexes": {"no text": "no index"},
    "int32": {"negative": "priorities and exit codes are signed"},
    "int64": {"negative": "a toleration ends at once", "above 31 bits": "64 bits"},
    "long": {"above 31 bits": "64 bits"},
    "amount": {"negative": "a measurement", "a negative text": "a measurement", "above 31 bits": "64 bits"},
    "quantity": {"above 31 bits": "64 bits"},
}


class Filler:
    """Fills every listed field of an object, and remembers the path and the form of each."""

    def __init__(self, of_form: Any) -> None:
        self.of_form = of_form
        self.forms: dict[str, str] = {}

    def fill(self, listed: Any, path: str) -> Any:
        if isinstance(listed, Mapping):
            return {
                name: self.fill(part, f"{path}.{name}")
                for key, part in listed.items()
                if key != REQUIRED and (name := LABEL if key in ("*", SELECTED) else key)
            }
        if isinstance(listed, list):
            return [self.fill("|".join(listed) if len(listed) > 1 else listed[0], f"{path}[0]")]
        self.forms[path] = listed
        return self.of_form(listed)


def good(form: str) -> Any:
    return form.split("|")[0] if "|" in form else copy.deepcopy(GOOD[form])


def mistakes(listed: Any, item: Any) -> set[str]:
    return {path for path, _ in invalid_values(item, listed, "it", frozenset({LABEL}))}


PARTS = {**{name: kind.fields for name, kind in kinds().items()}, "kueue": fields.table()["kueueConfiguration"]}


@pytest.mark.parametrize("name", PARTS)
def test_every_field_of_a_good_object_is_accepted(name: str) -> None:
    assert mistakes(PARTS[name], Filler(good).fill(PARTS[name], "it")) == set()


@pytest.mark.parametrize("wrong", WRONG)
def test_every_field_refuses_a_wrong_value_with_its_path_or_has_a_reason(wrong: str) -> None:
    for name, listed in PARTS.items():
        filler = Filler(lambda _: copy.deepcopy(WRONG[wrong]))
        found = mistakes(listed, filler.fill(listed, "it"))
        allowed = {path for path, form in filler.forms.items() if wrong in HARMLESS.get(form, {})}
        assert found == filler.forms.keys() - allowed, f"{name}: {found ^ (filler.forms.keys() - allowed)}"


def test_each_form_and_each_harmless_value_is_used_and_each_reference_may_lead_nowhere_for_a_reason() -> None:
    filler = Filler(good)
    for name, listed in PARTS.items():
        filler.fill(listed, name)
    assert {form for form in filler.forms.values() if "|" not in form} == GOOD.keys()
    assert {wrong for allowed in HARMLESS.values() for wrong in allowed} <= WRONG.keys()
    words = {path: [*path.replace("[0]", "").split(".")] for path, form in filler.forms.items() if form == "name"}
    assert [path for path, steps in words.items() if DANGLING.keys().isdisjoint(steps)] == []
    assert DANGLING.keys() - {step for steps in words.values() for step in steps} == set()


def required(listed: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the fields without which no cluster has an object."""
    if isinstance(listed, Mapping):
        yield from ((*path, key) for key in listed.get(REQUIRED, ()))
        for key, part in listed.items():
            yield from required(part, (*path, LABEL if key in ("*", SELECTED) else key)) if key != REQUIRED else ()
    elif isinstance(listed, list):
        yield from required(listed[0], (*path, 0))


@pytest.mark.parametrize("name", PARTS)
def test_a_required_field_that_is_missing_is_named(name: str) -> None:
    whole = Filler(good).fill(PARTS[name], "it")
    for *around, last in required(PARTS[name]):
        item = copy.deepcopy(whole)
        part = item
        for step in around:
            part = part[step]
        del part[last]
        path = "it" + "".join(f"[{step}]" if step == 0 else f".{step}" for step in (*around, last))
        assert mistakes(PARTS[name], item) == {path}


# Fields with the name of another object, which may be gone in a cluster too, and what follows from that in the copy.
_KUEUE_SAYS = "Kueue says that it does not exist, in a condition or in a message, as in the cluster"
_KEPT_IN_USE = "Kueue keeps it by a finalizer while it is used; without it, the workload is evicted"
_NOT_STARTED = "pods that name it are not created or do not start, as in the cluster"
DANGLING: Mapping[str, str] = {
    **dict.fromkeys(
        ("clusterQueue", "cohortName", "parentName", "queueName", "topologyName", "onFlavors"), _KUEUE_SAYS
    ),
    **dict.fromkeys(("flavors", "admissionChecks", "unhealthyNodes", "priorityClassRef", "parameters"), _KUEUE_SAYS),
    **dict.fromkeys(("flavorsReservation", "flavorsUsage"), "Kueue counts what its Workloads hold"),
    **dict.fromkeys(("priorityClassName", "runtimeClassName", "schedulerName", "deviceClassName"), _NOT_STARTED),
    **dict.fromkeys(("resourceClaimName", "resourceClaimTemplateName", "deviceClassNames", "driver"), _NOT_STARTED),
    **dict.fromkeys(
        ("nodeName", "nominatedNodeName", "matchFields"), "the garbage collector deletes pods without a node"
    ),
    **dict.fromkeys(("podTemplateRef", "provisioningClassName"), "the request fails, and Kueue retries"),
    **dict.fromkeys(("scaleTargetRef", "describedObject"), "the autoscaler does nothing"),
    "ownerReferences": "a restore leaves out references to owners that the snapshot lacks",
    "reservedFor": "the claim is deallocated",
    "metadata": "its own name",
}


def whole() -> dict[str, Any]:
    """A snapshot with one object of each kind, which has each listed field."""
    number = count(1)

    def unique(form: str) -> Any:
        return f"{next(number):08x}-0000-0000-0000-000000000000" if form == "uid" else good(form)

    objects = {name: [Filler(unique).fill(kind.fields, name)] for name, kind in kinds().items()}
    for items in objects.values():  # a selector names the label
        for item in items:
            item["metadata"]["labels"] = {key: text for key, text in item["metadata"]["labels"].items() if key != LABEL}
    return {"version": fields.version(), "takenAt": "2026-11-22T10:00:00Z", "stack": "prod", "objects": objects}


def refused(document: Any) -> str:
    with pytest.raises(InvalidSnapshot) as found:
        read(json.dumps(document))
    return str(found.value)


def test_a_snapshot_with_every_field_is_read_unless_two_objects_have_one_name() -> None:
    document = whole()
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "JobSet", "Job"):
        assert document["objects"][kind]
    assert len(read(json.dumps(document)).objects) == len(kinds())
    document = whole()
    document["objects"]["Cohort"].append({"metadata": {"name": "a"}})
    assert refused(document).startswith("objects.Cohort[1].metadata.name is the name of another object")


@pytest.mark.parametrize(
    ("kind", "path", "value", "reason"),
    [
        ("ClusterQueue", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "many", "is not a quantity"),
        ("ClusterQueue", "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "-1", "is not a quantity"),
        ("Workload", "spec.queueName", f"a{ESCAPE}", "is not a DNS name in lower case"),
        ("Workload", "status.admission.podSetAssignments[0].name", "other", "are not those of its pod sets, a"),
        ("Job", "spec.template.spec.priority", "high", "is not a whole number of 32 bits"),
        ("LocalQueue", "spec.stopPolicy", "Halt", "is not one of None, Hold, HoldAndDrain"),
        ("Pod", "metadata.namespace", None, "is not a name of lower-case letters"),
        ("Pod", "metadata.uid", "00000001-0000-0000-0000-000000000000", "is the uid of another object"),
        ("Node", "metadata.namespace", "a", "is a field that a snapshot never contains"),
    ],
)
def test_a_snapshot_that_stops_a_controller_is_refused_by_path(kind: str, path: str, value: Any, reason: str) -> None:
    document = whole()
    part = document["objects"][kind][0]
    *around, last = path.replace("[0]", ".0").split(".")
    for step in around:
        part = part[0 if step == "0" else step]
    part[last] = value
    at = path.partition("[0].name")[0]
    assert refused(document).startswith(f"objects.{kind}[0].{at} {reason}")
