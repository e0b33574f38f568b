"""The hash in the name of a run, from its content and from the first default of each key.

A later version of this project may have other defaults. If these were part of the name, an upgrade would start every
run without the key again, beside the existing one (docs/decisions/0002-runs.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from typing import Any

from gke_ai.settings.model.workloads import Workload

# Never change these: names of existing runs contain their hash. A key that is not here counts only where it is set.
_WORKLOAD = {"namespace": "llm", "service_account": "default", "resources": {}, "labels": {}, "env": {}}
_TPU_RUN = {
    "image": "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu:jax0.9.0-rev1",
    "container": "jax-tpu",
    "command": [],
    "args": [],
    "ports": [8471, 8431],
    "privileged": False,
}
FIRST_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "FineTune": {
        **_WORKLOAD,
        "token_secret": {"name": "hf-secret", "key": "hf_api_token"},
        "image": "us-docker.pkg.dev/google-samples/containers/gke/gemma-fine-tuning:v1.0.0",
        "base_model": "google/gemma-2-2b",
        "new_model": "gemma-ft",
        "model_path": "/model-data/model-gemma2/experiment",
        "experiment": "finetune-experiment",
        "dataset": {"name": "b-mc2/sql-create-context", "limit": 5000},
        "epochs": 1,
        "gradient_accumulation_steps": 2,
        "checkpoint_steps": 10,
        "pods": 2,
        "gpus_per_pod": 2,
        "volume": {
            "mount_path": "/model-data",
            "mount_options": "implicit-dirs",
            "logging_severity": "warning",
            "sidecar_memory_limit": "35Gi",
        },
        "rendezvous_port": 29500,
        "backoff_limit": 4,
        "termination_grace_period_seconds": 60,
    },
    "Multislice": {**_WORKLOAD, **_TPU_RUN, "pools": [], "host_network": False, "max_restarts": 4},
    "TpuBatch": {**_WORKLOAD, **_TPU_RUN},
    "TrainingRun": {
        **_WORKLOAD,
        "command": [],
        "args": [],
        "pods": 1,
        "gpus_per_pod": 1,
        "rendezvous_port": 29500,
        "volumes": [],
        "checkpoints": {"keep": 2, "mount_path": "/checkpoints"},
        "max_restarts": 4,
        "termination_grace_period_seconds": 60,
    },
}
# Keys of a run that are not part of its content.
_NOT_CONTENT = {"name", "fixed_name", "kind"}


def hash_suffix(run: Workload, place: Set[str] = frozenset()) -> str:
    """A hyphen and six hex digits of the run's content: the keys that are set, and the first defaults of the others.

    The same configuration always has the same hash, independent of this version's defaults. A changed run has another
    name, so that it is created beside the old one.

    Args:
        run: The section.
        place: Keys that say where it runs. It moves there and continues.
    """
    stated = run.model_dump(mode="json", exclude_unset=True, exclude={*_NOT_CONTENT, *place})
    content = _known(_merged(FIRST_DEFAULTS[type(run).__name__], stated))
    content |= {"further": run.further} if run.further else {}
    return "-" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]


def _merged(defaults: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    # Mappings such as labels have no defaults of their own, so they are used as a whole.
    both = {
        key: _merged(defaults[key], value) if isinstance(value, dict) and defaults.get(key) else value
        for key, value in stated.items()
    }
    return {**defaults, **both}


def _known(value: Any) -> Any:
    """The value without unset keys, including those of sections in lists."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value
