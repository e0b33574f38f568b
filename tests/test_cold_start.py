"""The estimate of how long a new replica takes to read its model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog.cold_start import HUB, PER_STREAM, STREAMS, Way, seconds, ways
from catalog.quota import QUEUE_LABEL
from ops import status
from ops.downloads import cold_starts
from report.changes import plan
from report.page import Options, page
from report.policies import verdict
from report.preview import Preview, of_interest
from settings import cold_start
from tests.recorder import load_stack
from tests.test_model_cache import example

SIZE = 2_614_341_888 * 2
DISK = 140e6 + 0.28e6 * 200


def estimates(config: dict[str, Any]) -> list[cold_start.ColdStart]:
    stack = load_stack(config)
    return list(cold_start.estimates(stack.servers, stack.measured))


def estimate(**keys: Any) -> cold_start.ColdStart:
    cache = keys.pop("cache", {})
    config = example(cache, **keys)
    if cache is None:
        del config["gke-ai:serving"][0]["modelCache"]
    (found,) = estimates(config)
    return found


def test_a_cache_on_the_disk_is_limited_by_the_disk() -> None:
    assert estimate().size == SIZE
    assert estimate().seconds == pytest.approx(SIZE / DISK)
    text = str(estimate())
    assert "llm/gemma reads 5.2 GB by Cloud Storage at 1.49 GB/s and pd-balanced of 200 GB at 0.20 GB/s" in text
    assert "about 27 s, limited by pd-balanced of 200 GB" in text


def test_a_cache_in_memory_and_the_streamer_are_limited_by_cloud_storage() -> None:
    for cache, image in (({"fileCacheMedium": "memory"}, None), ({"reader": "streamer"}, "vllm/vllm-openai:v0.11.2")):
        assert estimate(cache=cache, image=image).seconds == pytest.approx(SIZE / (STREAMS * PER_STREAM))


def test_a_download_from_hugging_face_passes_the_disk_too() -> None:
    found = estimate(cache=None)
    assert [part.name for part in found.parts] == ["Hugging Face", "pd-balanced of 200 GB"]
    assert found.seconds == pytest.approx(SIZE / DISK)


def test_the_slowest_part_decides() -> None:
    assert seconds(100, [Way("a", 10), Way("b", 5)]) == 20
    assert ways("hub", None) == [Way("Hugging Face", HUB)]


def test_a_model_of_unknown_size_has_no_estimate() -> None:
    assert estimates(example({"fileCache": "20Gi"}, model="example/unheard-of")) == []


def test_a_measurement_replaces_the_estimate(tmp_path: Path) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(
        "durations:\n- {step: modelLoad, of: llm/gemma, seconds: 41, maxSeconds: 60, count: 3, "
        "measuredOn: 2026-11-01, gkeVersion: '1.34'}\n"
    )
    (found,) = estimates(example() | {"gke-ai:calibration": str(file)})
    assert found.seconds == 41
    assert str(found) == "Cold start: llm/gemma loads its model in 41 s, as measured."


def test_the_report_has_a_section_with_the_estimates() -> None:
    event = {"diagnosticEvent": {"severity": "info", "message": f"{estimate()}\n"}}
    preview = Preview("dev", events=tuple(kept for kept in [of_interest(event)] if kept))
    text = page(plan(preview), verdict(preview), Options())
    assert "## Cold starts" in text
    assert "- llm/gemma reads 5.2 GB by Cloud Storage" in text


def test_status_shows_how_long_a_new_replica_reads_its_model() -> None:
    servers = [{"namespace": "llm", "name": name, "coldStartSeconds": s} for name, s in (("a", 94), ("b", 0))]
    deployments: list[Mapping[str, Any]] = [
        {
            "metadata": {"namespace": "llm", "name": name},
            "spec": {"replicas": 2, "template": {"metadata": {"labels": {QUEUE_LABEL: "q"}}}},
            "status": {"readyReplicas": 1},
        }
        for name in "ab"
    ]
    snapshot = status.ClusterObjects(deployments=deployments, cold_starts=cold_starts({"servers": servers}))
    assert list(status.server_rows(snapshot)) == [
        ("llm/a", "1 of 2", "1", "about 94 s"),
        ("llm/b", "1 of 2", "1", "–"),
    ]
