"""Violations of each environment and example: prod has none, the others have known ones with a reason."""

from typing import Any

import pytest

from tests.support import repository
from tests.support.recorder import configuration
from tests.support.registered import violated

# GKE's defaults. The source documents state no other.
OPEN_CLUSTER = {"control-plane-is-not-open", "nodes-are-private", "nodes-have-an-account-of-their-own"}
# An image without a tag, no probes, and a fine-tuning run that asks for GPUs alone.
SHORT = {"images-are-pinned", "resources-are-set", "servers-have-a-readiness-probe"}
DEFAULT_ACCOUNT = {"nodes-have-an-account-of-their-own"}  # of pools in a cluster that is there
# Policies that a configuration violates, each for a reason.
LEFT_OPEN: dict[str, set[str]] = {
    "Pulumi.dev.yaml": OPEN_CLUSTER,  # for a first look, from anywhere
    "Pulumi.prod.yaml": set(),
    # The source document has an image without a tag, and neither probes nor a disruption budget.
    "examples/cost-optimized-serving.yaml": {"images-are-pinned", "servers-have-a-readiness-probe"},
    # Its Jobs' images are `latest`, and they ask for TPUs alone; job-2 is privileged.
    "examples/flex-start-tpu.yaml": {"images-are-pinned", "no-privileged-pods", "resources-are-set", *DEFAULT_ACCOUNT},
    # The same Jobs in a cluster of which this stack has nothing: whose queues they pass by, nobody knows.
    "examples/flex-start-tpu-autopilot.yaml": {"accelerators-under-a-queue", "images-are-pinned", "resources-are-set"},
    # The server asks for TPUs alone.
    "examples/jetstream-autoscaling.yaml": {"resources-are-set", *DEFAULT_ACCOUNT},
    "examples/jetstream-autoscaling-prometheus.yaml": {"resources-are-set", *DEFAULT_ACCOUNT},
    "examples/vllm-autoscaling.yaml": OPEN_CLUSTER,
    "examples/mixed-training-inference.yaml": {*SHORT, *OPEN_CLUSTER},
    "examples/mixed-training-inference-autopilot.yaml": {*SHORT, *OPEN_CLUSTER},
    # JobSets that ask for TPUs alone; on Standard with the node's network, in privileged containers.
    "examples/multislice-training.yaml": {"no-privileged-pods", "resources-are-set", *OPEN_CLUSTER},
    "examples/multislice-training-autopilot.yaml": {"resources-are-set", *OPEN_CLUSTER},
    "examples/model-cache.yaml": OPEN_CLUSTER,
    "examples/training-job.yaml": OPEN_CLUSTER,
    "examples/shared-fleet.yaml": OPEN_CLUSTER,
    # A gateway inside the network, without a certificate.
    "examples/inference-gateway.yaml": {"gateways-encrypt", *OPEN_CLUSTER},
    "examples/sleeping-server.yaml": {"gateways-encrypt", *OPEN_CLUSTER},
}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("path", repository.CONFIGURATIONS)
def test_configuration_has_only_its_known_violations(path: str, preview: bool) -> None:
    violations = violated(path, preview)
    assert set(violations) == LEFT_OPEN[path], {name: violations[name] for name in set(violations) - LEFT_OPEN[path]}


def test_policies_are_mandatory_in_prod_alone() -> None:
    stated: dict[str, Any] = {path: configuration(path).get("gke-ai:policies", "advisory") for path in LEFT_OPEN}
    assert {path for path, level in stated.items() if level == "mandatory"} == {"Pulumi.prod.yaml"}
