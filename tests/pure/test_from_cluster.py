"""The section for a cluster that has Kueue: it can be loaded, the cluster has all of it, and the rest has a reason."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gke_ai import settings
from gke_ai.kube.existing import Content, refusals
from gke_ai.kube.kueue import ExistingKueue
from gke_ai.ops.repository.from_cluster import SHOWN, described
from gke_ai.settings.resolved import needs

ALL: dict[str, Any] = {"spec": {"namespaceSelector": {}}}
GPU, TPU = "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"


def flavor(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {**({"nodeLabels": labels} if labels else {}), **spec}}


KUEUE = ExistingKueue("0.18.4", "queueing", "manager", cluster_queues={"research": ALL, "unused": ALL})
CLUSTER = Content(
    KUEUE,
    jobset=True,
    namespaces={"team-a": {}, "team-b": {}},
    flavors={
        "any": flavor(),
        "l4": flavor({GPU: "nvidia-l4"}),
        "v6e": flavor({TPU: "tpu-v6e-slice", TOPOLOGY: "4x4"}),
        "of-a-team": flavor({"team": "a"}),
    },
    local_queues={("team-a", "research"): {"spec": {"clusterQueue": "research"}}},
    priority_classes={
        "high": {"value": 1000},
        "low": {"value": -5, "preemptionPolicy": "Never", "globalDefault": True},
        "system-node-critical": {"value": 2000001000},
        "gmp-critical": {"value": 1000000000},
    },
)


def test_the_section_names_what_is_there_and_creates_nothing() -> None:
    found = described(CLUSTER, [])
    assert found.queues == {
        "kueue": "existing",
        "jobset": "existing",
        "flavors": [
            {"name": "any", "mode": "existing"},
            {"name": "l4", "mode": "existing", "accelerator": "nvidia-l4"},
            {"name": "v6e", "mode": "existing", "tpu": {"version": "v6e", "topology": "4x4"}},
            {"name": "of-a-team", "mode": "existing"},
        ],
        "localQueues": [{"name": "research", "mode": "existing", "namespace": "team-a", "clusterQueue": "research"}],
        "priorityClasses": [
            {"name": "high", "mode": "existing", "value": 1000},
            {"name": "low", "mode": "existing", "value": -5, "preemption": "Never", "globalDefault": True},
        ],
    }
    assert found.left_out == ("Cluster queue unused: no local queue above leads to it. Add one to use it.",)
    written = yaml.safe_load(yaml.safe_dump(found.queues))
    stack = settings.load({"cluster": {"name": "shared", "mode": "existing"}, "queues": written}, "my-project")
    assert [*refusals(needs.of_cluster(stack), CLUSTER)] == []
    modes = [flavor.mode for flavor in stack.queues.flavors]
    modes += [queue.mode for queue in stack.queues.local_queues]
    modes += [priority.mode for priority in stack.queues.priority_classes]
    assert (set(modes), stack.own_namespaces) == ({"existing"}, [])


def test_what_a_stack_can_not_use_is_left_out_with_the_reason() -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    cluster = replace(
        CLUSTER,
        flavors={
            "with.dot": flavor(),
            "new-gpu": flavor({GPU: "nvidia-x900"}),
            "half": flavor({TPU: "tpu-v6e-slice"}),
            "tainted": flavor(nodeTaints=[taint]),
            "racks": flavor(topologyName="racks"),
        },
        local_queues={
            ("kube-system", "q"): {"spec": {"clusterQueue": "research"}},
            ("team-a", "nowhere"): {"spec": {"clusterQueue": "gone"}},
            ("team-a", "broken"): {"spec": {}},
            ("team-a", "{project}"): {"spec": {"clusterQueue": "research"}},
        },
        priority_classes={"text": {"value": "high"}, "x" * 64: {"value": 1}},
    )
    found = described(cluster, ["urgent"])
    assert found.queues == {"kueue": "existing", "jobset": "existing"}
    reasons = dict(line.split(": ", 1) for line in found.left_out)
    assert reasons["Flavor with.dot"].startswith('"with.dot"')
    assert "nvidia-x900" in reasons["Flavor new-gpu"]
    assert "Flavor half" in reasons
    assert "has the taint team, which workloads of this stack do not tolerate" in reasons["Flavor tainted"]
    assert reasons["Flavor racks"] == "it has a topology, for which a configuration has no keys."
    assert reasons["Local queue q"].startswith("namespace kube-system belongs to the cluster")
    assert "has no cluster queue gone" in reasons["Local queue nowhere"]
    assert {"Local queue broken", "Local queue {project}", "Priority class text"} <= reasons.keys()
    assert reasons["WorkloadPriorityClass urgent"] == "workloads of a stack have a Kubernetes PriorityClass."
    assert len(found.left_out) == 5 + 4 + 2 + 2 + 1


def test_hostile_names_neither_reach_the_section_nor_a_terminal() -> None:
    hostile = "\x1b[2J${env:SECRET}\nkueue: install" + "a" * 500
    cluster = replace(CLUSTER, flavors={hostile: flavor()}, local_queues={(hostile, hostile): {"spec": {}}})
    found = described(replace(cluster, priority_classes={hostile: {"value": 1}}), [hostile])
    assert "flavors" not in found.queues
    assert "SECRET" not in yaml.safe_dump(found.queues)
    assert all("\x1b" not in line and "\n" not in line and len(line) <= SHOWN + 1 for line in found.left_out)


def test_a_cluster_without_a_usable_kueue_has_no_section_and_queues_of_the_default_namespace_are_left_out() -> None:
    assert described(Content(), []) == described(Content(), ["x"])
    assert described(Content(), []).left_out == ("The cluster has no Kueue.",)
    old = replace(CLUSTER, kueue=replace(KUEUE, version="0.14.1", cluster_queues=None))
    reason = "The cluster has Kueue 0.14.1, which does not serve kueue.x-k8s.io/v1beta2."
    assert described(old, []).left_out == (reason,)
    queues = {**CLUSTER.local_queues, ("default", "any"): {"spec": {"clusterQueue": "research"}}}
    found = described(replace(CLUSTER, local_queues=queues), [])
    assert [queue["namespace"] for queue in found.queues["localQueues"]] == ["team-a"]
    assert found.left_out[0].startswith("Local queue any: runs in namespace default would outlive the stack.")


def test_a_run_is_not_sent_to_a_queue_of_the_default_namespace_where_another_rule_refuses_it() -> None:
    local = {"name": "any", "mode": "existing", "namespace": "default", "clusterQueue": "research"}
    run = {"name": "r", "queue": "any", "pods": 1, "accelerator": "nvidia-l4"}
    run |= {"volume": {"bucket": "ck-{project}"}, "resources": {"cpu": "1", "memory": "1Gi", "ephemeralStorage": "1Gi"}}
    queues = {"kueue": "existing", "flavors": [{"name": "any", "mode": "existing"}], "localQueues": [local]}
    bucket = {"name": "ck-{project}", "grants": [{"namespace": "llm"}]}
    values = {"cluster": {"name": "c", "mode": "existing"}, "queues": queues, "buckets": [bucket]}
    with pytest.raises(settings.BadConfiguration) as bad:
        settings.load({**values, "training": [run]}, "project-id")
    remedies = {problem.path: problem.remedy for problem in bad.value.problems}
    entry = "{name: any, namespace: llm, clusterQueue: research}"
    assert remedies["gke-ai:training[0].queue"] == f"Add {entry} to gke-ai:queues.localQueues"
