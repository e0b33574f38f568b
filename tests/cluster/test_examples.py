"""Only here: each example that no other file deploys comes up from an empty cloud, stays stable, and leaves nothing.

Every stack at the root of the checkout previews, whatever its users have edited or added.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gke_ai.catalog.fabric.rdma import AGENT_ROLE
from gke_ai.catalog.versions import JOBSET_API, JOBSET_CRD
from tests.support import repository
from tests.support.emulator import Emulator, begun, cloud_of, gone, killed_up, recovered, settled
from tests.support.examples import EXAMPLE, set_up

EXAMPLES = [path.name for path in repository.examples()]
# Examples whose whole life another file goes through, with what is to be seen on the way.
ELSEWHERE: dict[str, str] = {
    "cost-optimized-serving.yaml": "test_cost_optimized.py",
    "flex-start-tpu.yaml": "test_flex_start.py",
    "flex-start-tpu-autopilot.yaml": "test_flex_start.py",
    "inference-gateway.yaml": "test_canary.py",
    "jetstream-autoscaling-prometheus.yaml": "test_jetstream.py",
    "mixed-training-inference.yaml": "test_convergence.py",
    "mixed-training-inference-autopilot.yaml": "test_mixed.py",
    "model-cache.yaml": "test_model_cache.py",
    "multislice-training.yaml": "test_multislice.py",
    "training-job.yaml": "test_training_job.py",
    "vllm-autoscaling.yaml": "test_vllm_autoscaling.py",
}


@pytest.mark.nightly
@pytest.mark.parametrize("example", [name for name in EXAMPLES if name not in ELSEWHERE])
def test_example_deploys_stays_stable_and_is_deleted(example: str, emulator: Emulator) -> None:
    config = emulator.configure(f"examples/{example}")
    before = begun(emulator, config)
    emulator.make("up", config)
    settled(emulator)
    emulator.make("down")
    gone(emulator, before)


@pytest.mark.nightly
def test_example_of_a_machine_leaves_only_its_buckets_and_the_role_of_gke(emulator: Emulator) -> None:
    config = emulator.configure("examples/machines/a4.yaml")
    begun(emulator, config)
    emulator.make("up", config)
    settled(emulator)
    emulator.make("down")
    left = sorted(cloud_of(emulator))
    kept = ("training-", "checkpoint-", AGENT_ROLE)
    assert [[part for part in kept if part in identity] for identity in left].count([]) == 0, left
    assert len(left) == len(kept), left


@pytest.mark.parametrize(("example", "file"), ELSEWHERE.items())
def test_example_without_a_case_here_is_tested_in_another_file(example: str, file: str) -> None:
    assert example in EXAMPLES
    folders = (Path(__file__).parent, Path(__file__).parents[1] / "nightly")
    (text,) = ((folder / file).read_text() for folder in folders if (folder / file).exists())
    assert f'"examples/{example}"' in text or (f"examples/{example}" == EXAMPLE and "configure(EXAMPLE" in text)
    assert "settled(" in text
    assert any(end in text for end in ("gone(", "assert_nothing_left(", "deployed_and_deleted("))


@pytest.mark.nightly
def test_killed_up_of_a_jobset_recovers_and_leaves_the_cluster(emulator_with: Callable[..., Emulator]) -> None:
    emulator = emulator_with(GKE_AI_WEBHOOK_DELAY="4", GKE_AI_CLOUD_LATENCY="1")
    cluster = {"name": "team", "mode": "existing", "existingMode": "standard", "location": "us-west4"}
    config = emulator.configure("examples/multislice-training.yaml", cluster=cluster)
    before = begun(emulator, config)
    killed_up(emulator, config, f"kubernetes:{JOBSET_API}:JobSet")
    recovered(emulator, config)
    names = [jobset["metadata"]["name"] for jobset in emulator.get("jobsets", "-n", "default")]
    assert sorted(names) == ["multislice-1slice", "multislice-2slice", "multislice-3slice"]
    assert JOBSET_CRD in emulator.make("down")  # which Helm would leave behind
    gone(emulator, before)


@pytest.mark.parametrize("file", repository.stacks_of_the_user(), ids=lambda file: file.name)
def test_a_stack_previews_on_the_emulator(file: Path, emulator: Emulator) -> None:
    # What a stack expects to exist, such as a secret, is created as the emulator says.
    while missing := json.loads(emulator.run("ready", str(file)))["missing"]:
        emulator.run(*shlex.split(missing["command"])[1:])
    assert "to create" in emulator.make("preview", file)


def test_a_stack_with_a_salt_and_an_encrypted_token_previews(emulator: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(set_up("Pulumi.dev.yaml"))
    assert "to create" in emulator.make("preview", file)
