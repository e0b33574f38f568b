"""Only here: `pulumi import` of a cluster and its pools that exist, and the preview of the program after it."""

from __future__ import annotations

import json
from typing import Any

from tests.support.emulator import Emulator

PROJECT = "my-project"
SECTIONS: dict[str, Any] = {
    "cluster": {"name": "shared", "mode": "standard", "location": "us-central1-a"},
    "gpuPools": [{"name": "gpus", "machineType": "g2-standard-24", "nodesPerZone": 1}],
}


def test_after_an_import_a_preview_shows_what_differs_and_creates_no_second_cluster(emulator: Emulator) -> None:
    config, file = emulator.written(**SECTIONS), emulator.state / "import.json"
    place = ("--location", "us-central1-a", "--project", PROJECT)
    emulator.run("emulator/run", "existing", "create", "shared", *place)
    machine = ("--cluster", "shared", "--machine-type", "g2-standard-24")
    emulator.run("emulator/run", "existing", "pool", "gpus", *machine, *place)
    emulator.run("gke-ai", "preview", "--stack", "test", "--config", str(config), "--import-file", str(file))
    emulator.pulumi("import", "--file", str(file), "--yes", "--protect=false", "--generate-code=false")
    printed = emulator.pulumi("preview", "--json", "--suppress-progress")
    steps = [step for step in json.loads(printed[printed.index("{") :])["steps"] if step["op"] not in ("same", "read")]
    differing = {step["urn"].rpartition("$")[2]: (step["op"], {*(step["detailedDiff"] or ())}) for step in steps}
    assert differing == {
        "gcp:container/cluster:Cluster::shared": (
            "update",
            {"costManagementConfig", "monitoringConfig.enableComponents"},
        ),
        "gcp:container/nodePool:NodePool::gpus": (
            "update",
            {"nodeConfig.diskSizeGb", "nodeConfig.labels", "nodeConfig.taints"},
        ),
        "gcp:container/nodePool:NodePool::shared/default-pool": (  # its nodes were created without these scopes
            "replace",
            {"nodeConfig.oauthScopes", "nodeConfig.workloadMetadataConfig"},
        ),
        "pulumi:providers:kubernetes::shared": ("create", set()),
    }
