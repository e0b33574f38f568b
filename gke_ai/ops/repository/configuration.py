"""The first configuration of a repository."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from gke_ai.catalog.documents import InvalidDocument, Reader, read
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import region_of
from gke_ai.ops.repository.answers import NEW, Answers, Place
from gke_ai.settings import BadConfiguration
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import resolve

NEW_CLUSTER = "ai-dev"
_BESIDE = """\
# The stack dev: what the cluster has, by name. It creates nothing: add workloads, or pools and queues of its own.
# Every key: docs/settings of gke-ai.
"""
_HEAD = """\
# The stack dev: a cluster, a pool of GPUs that is empty until a workload needs it, and a queue for the first team.
# Every key: docs/settings of gke-ai. A team's members: gke-ai:tenants[0].members, such as group:research@example.com.
"""


def configuration(answers: Answers) -> dict[str, object]:
    """Returns the keys of a configuration with a cluster, a pool, and a queue for a team."""
    # The first mode in which Google offers the machine. The reader refuses a machine that is not in the catalog.
    machine = MACHINES.get(answers.machine)
    mode = next(mode for mode in MODES if machine is None or mode in machine.modes)
    sized = {"capacity": {"mode": mode}, "autoscaling": {"minNodes": 0, "maxNodes": 2}}
    is_new = answers.cluster == NEW
    cluster = {"name": NEW_CLUSTER, "mode": "standard"} if is_new else {"name": answers.cluster, "mode": "existing"}
    return {
        "gcp:project": answers.project,
        "gcp:region": answers.region,
        "gke-ai:policies": "advisory",
        "gke-ai:cluster": {**cluster, "location": answers.region},
        "gke-ai:gpuPools": [{"name": "gpus", "machineType": answers.machine, **sized}],
        "gke-ai:queues": {
            "flavors": [{"name": "gpus", "pools": ["gpus"]}],
            "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "gpus", "quota": "derive"}]}],
            "localQueues": [{"name": "gpus", "namespace": answers.team, "clusterQueue": "gpus"}],
            "priorityClasses": [{"name": "training", "value": 20}, {"name": "serving", "value": 30}],
        },
        "gke-ai:tenants": [{"name": answers.team, "priorityClasses": ["training"]}],
    }


def beside(place: Place, queues: Mapping[str, object]) -> dict[str, object]:
    """Returns the keys of a configuration that uses what a cluster has by name, and creates nothing."""
    return {
        "gcp:project": place.project,
        "gcp:region": region_of(place.region),
        "gke-ai:policies": "advisory",
        "gke-ai:cluster": {"name": place.cluster, "mode": "existing", "location": place.region},
        "gke-ai:queues": dict(queues),
    }


def written(config: Mapping[str, object]) -> str:
    """Returns the text of a configuration file. Stops if its reader refuses it, with every mistake."""
    head = _HEAD if "gke-ai:tenants" in config else _BESIDE
    text = head + yaml.safe_dump({"config": dict(config)}, sort_keys=False, default_flow_style=None, width=120)
    try:
        (content,) = read(text, Reader.PULUMI)
        resolve(content["config"])
    except InvalidDocument as invalid:
        raise Stop(f"The answers make a file that {invalid} Nothing was written.") from None
    except BadConfiguration as bad:
        problems = "\n".join(f"  - {problem}" for problem in bad.problems)
        raise Stop(f"The answers make no valid configuration, so nothing was written:\n{problems}") from None
    return text
