"""What a preview warns of, although the configuration deploys."""

from typing import Any

from gke_ai.settings import load
from gke_ai.settings.rules import warnings
from tests.support.mistakes import PROJECT, good


def warned_of_arguments(*arguments: str, **server: Any) -> list[str]:
    values = good()
    values["serving"][0] |= {"arguments": list(arguments), **server}
    return warnings.uncertain_arguments(load(values, PROJECT, True).settings.serving)


def test_an_argument_that_the_pinned_release_refuses_is_a_warning_with_an_image_of_another_release() -> None:
    for image in ("vllm/vllm-openai:v0.32.0", "us-docker.pkg.dev/my-project/serving/server:0.31.0"):
        (warning,) = warned_of_arguments("--new-flag=1", "--max-num-seqs=4", image=image)
        assert warning == (
            "gke-ai:serving[0].arguments[0]: vLLM 0.31.0 has no flag --new-flag. The server would not start. "
            "Remove it. Its image may be of another release, so this is no error."
        )
        assert warned_of_arguments("--max-num-seqs=4", image=image) == []


def test_a_compact_pool_of_a3_mega_on_spot_is_a_warning() -> None:
    def warned(machine_type: str, mode: str, *, compact: bool = True) -> list[str]:
        pool = {"name": "p", "machineType": machine_type, "zones": ["us-central1-a"], "nodesPerZone": 1}
        values = {"cluster": {"name": "c", "mode": "standard", "location": "us-central1"}}
        capacity: dict[str, Any] = {"capacity": {"mode": mode}, "compactPlacement": compact}
        return warnings.compact_spot_pools(load({**values, "gpuPools": [pool | capacity]}, PROJECT, True).pools)

    (warning,) = warned("a3-megagpu-8g", "spot")
    assert warning.startswith("gke-ai:gpuPools[0].compactPlacement: two reports saw compact pools of a3-megagpu-8g")
    assert warned("a3-megagpu-8g", "spot", compact=False) == warned("a3-megagpu-8g", "onDemand") == []
    assert warned("a2-highgpu-8g", "spot") == []
