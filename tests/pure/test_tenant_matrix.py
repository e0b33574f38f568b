"""Every field, name and option that a member of a tenant may write has a verdict in `tenant_matrix.yaml`."""

from collections import Counter

import pytest

from gke_ai.components.queues.tenant_policy import FURTHER_KINDS
from gke_ai.components.queues.tenant_policy import KINDS as JUDGED
from tests.support.tenant_matrix import (
    KINDS,
    TABLE,
    Field,
    judged_options,
    missing,
    names,
    options,
    places,
    structs,
    structs_of,
    verdicts,
    written,
)


def test_every_field_of_every_kind_has_a_verdict_and_no_verdict_is_of_another() -> None:
    lines = [f"{kind}: {', '.join(names)}" for kind, names in sorted(missing(structs()).items())]
    assert not lines, "judge these in tests/support/tenant_matrix.yaml, by kind:\n" + "\n".join(lines)
    assert missing({**structs(), "core.SleepAction": []}) == {"nothing": ["core.SleepAction.seconds"]}


@pytest.mark.parametrize(
    ("struct", "field", "kinds"),
    [
        ("core.PodSpec", "runAnywhere", {"Pod", "Job", "Deployment", "JobSet", "RayJob", "RayCluster"}),
        ("batch.JobSpec", "keepPods", {"Job", "JobSet"}),
        ("trainer.PodSpecPatch", "runAnywhere", {"TrainJob"}),
        ("meta.ObjectMeta", "keepForever", set(KINDS)),
    ],
)
def test_a_new_field_of_a_release_is_named_by_kind(struct: str, field: str, kinds: set[str]) -> None:
    changed = {**structs(), struct: [*structs()[struct], Field(field, "", False)]}
    assert missing(changed) == {kind: [f"{struct}.{field}"] for kind in kinds}


def test_structs_are_read_as_go_reads_them() -> None:
    text = """
import (
\tmetav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)
// Spec has a comment.
type Spec struct {
\tmetav1.TypeMeta `json:",inline"`
\t// Parts are many.
\tParts []*Part `json:"parts,omitempty" protobuf:"bytes,1,rep,name=parts"`
\tBy map[string]string `json:"by"`
\thidden string
\tMeta  *metav1.ObjectMeta  `json:"meta,omitempty"`
}
"""
    fields = structs_of(text, "x", {"k8s.io/apimachinery/pkg/apis/meta/v1": "meta"})["x.Spec"]
    embedded, parts = Field("", "meta.TypeMeta", False), Field("parts", "x.Part", True)
    assert fields == [embedded, parts, Field("by", "", False), Field("meta", "meta.ObjectMeta", False)]


def test_no_field_has_two_verdicts_for_one_kind() -> None:
    for name, judged in verdicts().items():
        sections = Counter((verdict.section, verdict.is_top, kind) for verdict in judged for kind in verdict.kinds)
        free = sections.keys() & {(section, False, kind) for section in ("free", "bounded") for kind in KINDS}
        assert len(judged) == 1 or not free, name


def test_every_name_of_kubernetes_has_a_verdict() -> None:
    judged = [name for group in TABLE["names"].values() for name in group]
    different = sorted(names() ^ set(judged))
    assert not different, f"judge these in tests/support/tenant_matrix.yaml, or remove them: {', '.join(different)}"
    assert len(judged) == len(set(judged))


def test_every_option_and_resource_that_a_member_may_write_is_in_the_table() -> None:
    assert options() == judged_options()
    judged = {resource for _, _, resource, _ in [*JUDGED, *FURTHER_KINDS.values()]}
    whole = {resource for resource in written() if "/" not in resource}
    assert whole < judged
    assert written() - whole == set(TABLE["parts"])
    assert len(whole) == len(KINDS)
    assert {name.partition("@")[0] for name in TABLE["accepted"]} <= places().keys()
