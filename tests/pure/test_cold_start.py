"""The estimate of how long a new replica takes to read its model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.engines.model_cache import COMPILED_SINCE
from gke_ai.catalog.nodes import durations
from gke_ai.catalog.nodes.cold_start import HUB, PER_STREAM, STREAMS, Way, seconds, ways
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.kube import starts
from gke_ai.ops.status import command as status
from gke_ai.ops.status.downloads import cold_starts
from gke_ai.review.report.changes import plan
from gke_ai.review.report.page import Options, page
from gke_ai.review.report.policies import verdict
from gke_ai.review.report.preview import Preview, of_interest
from gke_ai.settings.estimates import cold_start
from gke_ai.settings.rules import warnings
from tests.support.examples import cache_example
from tests.support.recorder import configuration, load_stack
from tests.support.replicas import replica

SIZE = 2_614_341_888 * 2
DISK = 140e6 + 0.28e6 * 200


def estimates(config: dict[str, Any]) -> list[cold_start.ColdStart]:
    stack = load_stack(config)
    return list(cold_start.estimates(stack.servers, stack.measured))


def estimate(**keys: Any) -> cold_start.ColdStart:
    cache = keys.pop("cache", {})
    config = cache_example(cache, **keys)
    if cache is None:
        del config["gke-ai:serving"][0]["modelCache"]
    (found,) = estimates(config)
    return found


def test_the_slowest_part_limits_a_server_and_the_estimate_names_what_each_faster_setting_would_take() -> None:
    on_disk = estimate()
    assert on_disk.size == SIZE
    assert on_disk.seconds == pytest.approx(SIZE / DISK)
    ways = "by Cloud Storage at 1.49 GB/s and pd-balanced of 200 GB at 0.20 GB/s"
    took = "about 27 s, limited by pd-balanced of 200 GB. On a new node, its container starts in about 230 s"
    others = (
        "Estimates with other settings: imageStreaming 20 s, secondaryBootDisk 8 s, modelCache.reader: streamer 4 s."
    )
    assert f"llm/gemma reads 5.2 GB {ways}" in str(on_disk)
    assert took in str(on_disk)
    assert str(on_disk).endswith(others)
    from_hub = estimate(cache=None)
    assert [part.name for part in from_hub.parts] == ["Hugging Face", "pd-balanced of 200 GB"]
    assert from_hub.seconds == pytest.approx(SIZE / DISK)
    assert str(from_hub).endswith("modelCache.reader: streamer 4 s.")
    for cache, image in (({"fileCacheMedium": "memory"}, None), ({"reader": "streamer"}, "vllm/vllm-openai:v0.11.2")):
        assert estimate(cache=cache, image=image).seconds == pytest.approx(SIZE / (STREAMS * PER_STREAM))


def test_the_page_shows_the_estimates_of_its_example() -> None:
    page = Path("docs/model-cache.md").read_text()
    assert str(estimate()) in page.replace("\n", " ")
    for key, took in (("imageStreaming: true", 20), ("secondaryBootDisk", 8), ("modelCache.reader: streamer", 4)):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{key}`"))
        assert f"| {took} s |" in row


def on_pool(image: str, **pool: Any) -> dict[str, Any]:
    config = cache_example(image=image)
    config["gke-ai:gpuPools"][0] |= pool
    return config


HUB_IMAGE = "vllm/vllm-openai:v0.31.0"
MIRRORED = f"us-central1-docker.pkg.dev/example/docker-hub/{HUB_IMAGE}"
STREAMED = {"imageStreaming": True}
PULLED, BOOT_DISK = "starts in about 230 s (its image pulled).", {"secondaryBootDisk": "global/images/vllm"}
FROM_DISK = "about 8 s (secondaryBootDisk). Estimates with other settings: modelCache.reader: streamer 4 s."


@pytest.mark.parametrize(
    ("image", "pool", "text"),
    [
        (MIRRORED, {}, PULLED),
        (MIRRORED, STREAMED, "starts in about 20 s (imageStreaming). Estimates with other settings: "),
        (MIRRORED.replace("us-central1-", "us-"), STREAMED, "about 20 s (imageStreaming)."),
        (MIRRORED.replace("us-central1-", "us-east4-"), STREAMED, PULLED),
        (HUB_IMAGE, STREAMED, PULLED),
        (HUB_IMAGE, STREAMED | BOOT_DISK, FROM_DISK),
    ],
)
def test_a_container_starts_by_how_its_image_reaches_the_node(image: str, pool: dict[str, Any], text: str) -> None:
    (found,) = estimates(on_pool(image, **pool))
    assert text in str(found)


def on_two_gpus(**keys: Any) -> dict[str, Any]:
    config = cache_example({"reader": "streamer"}, gpus=2, **keys)
    config["gke-ai:gpuPools"][0]["machineType"] = "g2-standard-24"
    return config


OLD_IMAGE = "vllm/vllm-openai:v0.20.1"
OTHER_FLAG = ['--model-loader-extra-config={"concurrency":8}']


@pytest.mark.parametrize(("keys", "readers"), [({}, 2), ({"image": OLD_IMAGE}, 1), ({"arguments": OTHER_FLAG}, 1)])
def test_several_gpus_with_the_flag_divide_the_reading_of_the_streamer(keys: dict[str, Any], readers: int) -> None:
    (found,) = estimates(on_two_gpus(**keys))
    assert found.seconds == pytest.approx(SIZE / (readers * STREAMS * PER_STREAM))


def test_a_server_with_several_gpus_shares_the_reading_of_the_streamer() -> None:
    def flags(config: dict[str, Any]) -> list[str]:
        (server,) = load_stack(config).servers
        return [flag for flag in server.section.command_line.flags if flag.startswith("--model-loader-extra-config")]

    assert flags(on_two_gpus()) == ['--model-loader-extra-config={"distributed":true}']
    assert flags(on_two_gpus(image=OLD_IMAGE)) == []
    assert flags(cache_example({"reader": "streamer"})) == []
    assert flags(cache_example(gpus=2) | {"gke-ai:gpuPools": on_two_gpus()["gke-ai:gpuPools"]}) == [], "mounted bucket"


def test_a_pool_that_streams_images_warns_of_an_image_that_it_pulls() -> None:
    def warned(image: str, **pool: Any) -> list[str]:
        return warnings.images_without_streaming(load_stack(on_pool(image, **pool)).servers)

    hub = f"docker.io/{HUB_IMAGE}"
    assert warned(hub, **STREAMED) == [
        f"gke-ai:serving[0].image: {hub} is not in Artifact Registry in us-central1, so "
        "gke-ai:gpuPools[0].imageStreaming does not apply to it. "
        f"Set us-central1-docker.pkg.dev/PROJECT/REPOSITORY/{HUB_IMAGE}, of a remote repository of its registry."
    ]
    assert warned(MIRRORED, **STREAMED) == warned(hub) == []
    assert warned(hub, **STREAMED, **BOOT_DISK) == []


def test_a_model_of_unknown_size_has_no_estimate() -> None:
    assert estimates(cache_example({"fileCache": "20Gi"}, model="example/unheard-of")) == []
    assert seconds(100, [Way("a", 10), Way("b", 5)]) == 20, "the slowest part decides"
    assert ways("hub", None) == [Way("Hugging Face", HUB)]


@pytest.mark.parametrize(
    ("step", "took", "text"),
    [
        ("modelLoad", 41, "Cold start: llm/gemma loads its model in 41 s, as measured. On a new node,"),
        ("containerStart", 33, "Its container starts in 33 s, as measured. Estimates with other settings: modelCache"),
    ],
)
def test_a_measurement_replaces_the_estimate(step: str, took: int, text: str, tmp_path: Path) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(
        f"durations:\n- {{step: {step}, of: llm/gemma, seconds: {took}, maxSeconds: 60, count: 3, "
        "measuredOn: 2026-11-01, gkeVersion: '1.34'}\n"
    )
    (found,) = estimates(cache_example() | {"gke-ai:calibration": str(file)})
    assert text in str(found)
    if step == "modelLoad":
        assert (found.seconds, "modelCache" in str(found)) == (41, False), "no estimate stands beside a measurement"


def test_the_report_has_a_section_with_the_estimates() -> None:
    event = {"diagnosticEvent": {"severity": "info", "message": f"{estimate()}\n"}}
    preview = Preview("dev", events=tuple(kept for kept in [of_interest(event)] if kept))
    text = page(plan(preview), verdict(preview), Options())
    assert "## Cold starts" in text
    assert "- llm/gemma reads 5.2 GB by Cloud Storage" in text


def test_status_shows_how_long_a_new_replica_reads_its_model() -> None:
    servers = [{"namespace": "llm", "name": name, "coldStartSeconds": s} for name, s in (("a", 94), ("b", 0))]
    spec = {"replicas": 2, "template": {"metadata": {"labels": {QUEUE_LABEL: "q"}}}}
    deployments: list[Mapping[str, Any]] = [
        {"metadata": {"namespace": "llm", "name": name}, "spec": spec, "status": {"readyReplicas": 1}} for name in "ab"
    ]
    snapshot = status.ClusterObjects(deployments=deployments, cold_starts=cold_starts({"servers": servers}))
    rows = [("llm/a", "1 of 2", "1", "about 94 s", "–"), ("llm/b", "1 of 2", "1", "–", "–")]
    assert list(status.server_rows(snapshot)) == rows


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        ({}, ["its container", "the weights", "the engine's processes", "compilation", "CUDA graphs"]),
        (
            {"cache": {"compileCache": True}, "serviceAccount": "gemma"},
            ["compilation if nothing is kept", "CUDA graphs"],
        ),
        ({"arguments": ["--enforce-eager"]}, ["the weights", "the engine's processes"]),
        ({"engine": "tgi"}, ["the weights", "the engine"]),
    ],
)
def test_the_parts_of_a_start_are_those_of_its_engine(keys: dict[str, Any], parts: list[str]) -> None:
    (server,) = load_stack(cache_example(**{"cache": None, **keys})).servers
    found = [name for name, _ in cold_start.start_parts(server)]
    assert found[-len(parts) :] == parts
    assert cold_start.start_seconds(server) == round(sum(seconds for _, seconds in cold_start.start_parts(server)))


DEPLOYMENT: dict[str, Any] = {
    "metadata": {"namespace": "llm", "name": "gemma"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "gemma"}},
        "template": {"metadata": {"labels": {QUEUE_LABEL: "q"}}},
    },
    "status": {"readyReplicas": 1},
}


def test_status_shows_what_the_start_of_the_newest_replica_took() -> None:
    pods = [
        replica("old", "00:00", "00:01", "00:02", "00:03"),
        replica("new", "01:00", "02:35", "02:47", "03:48"),
        replica("another", "09:00", "09:01", "09:02", "09:03", labels="other"),
    ]
    (row,) = status.server_rows(status.ClusterObjects(deployments=[DEPLOYMENT], pods=pods))
    assert row[-1] == "168 s: quota and node 95 s, container 12 s, engine 61 s"
    restarted = replica("new", "01:00", "02:35", "02:47", "03:48", restarts=1)
    (row,) = status.server_rows(status.ClusterObjects(deployments=[DEPLOYMENT], pods=[restarted]))
    assert row[-1] == "–", "the time of a second start does not follow from that of the pod"
    again = replica("new", "01:00", "02:35", "02:47", "59:48")
    again["spec"]["containers"][0]["startupProbe"] = {"failureThreshold": 60, "periodSeconds": 10}
    (row,) = status.server_rows(status.ClusterObjects(deployments=[DEPLOYMENT], pods=[again]))
    assert row[-1] == "–", "a pod that is ready again has not started again"
    spec: dict[str, Any] = DEPLOYMENT["spec"]
    by_expression = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["other"]}]}
    odd = {**DEPLOYMENT, "spec": {**spec, "selector": by_expression}}
    (row,) = status.server_rows(status.ClusterObjects(deployments=[odd], pods=pods))
    assert row[-1] == "3 s: quota and node 1 s, container 1 s, engine 1 s"


# Lines of public logs of the releases 0.8 and 0.19: https://github.com/vllm-project/vllm/issues/20264 and 38820,
# https://github.com/ai-dynamo/dynamo/issues/10695
EARLIER = """INFO 06-19 23:05:01 [loader.py:447] Loading weights took 0.69 seconds
INFO 06-19 23:05:18 [monitor.py:33] torch.compile takes 7.51 s in total
INFO 06-19 23:05:35 [gpu_model_runner.py:1608] Graph capturing finished in 17 secs, took 0.48 GiB"""
LATER = """(Worker_TP0 pid=34322) INFO 05-06 20:59:57 [default_loader.py:384] Loading weights took 24.84 seconds
(Worker_TP1 pid=34323) INFO 05-06 20:59:59 [default_loader.py:384] Loading weights took 26.93 seconds
(EngineCore pid=42) INFO 06-13 19:23:07 [monitor.py:53] torch.compile took 22.56 s in total"""


def test_the_log_of_vllm_says_what_its_parts_took() -> None:
    assert dict(starts.logged(EARLIER)) == {"weights": 0.69, "compilation": 7.51, "CUDA graphs": 17}
    assert dict(starts.logged(LATER)) == {"weights": 26.93, "compilation": 22.56}, "the slowest of its processes"
    draft = LATER.replace("(Worker_TP1 pid=34323)", "(Worker_TP0 pid=34322)")
    assert dict(starts.logged(draft))["weights"] == pytest.approx(51.77), "a process loads one model after the other"
    for odd in ("", "torch.compile took ... s in total", "Loading weights took 1.2.3 s"):
        assert dict(starts.logged(odd)) == {}
    # A log is written by whoever made the image. This one takes an hour if each line is searched to the end of the log.
    assert dict(starts.logged("(\n" * 1_500_000)) == {}


def test_the_pages_state_the_seconds_of_the_catalog() -> None:
    pages = {
        name: " ".join(Path(f"docs/{name}.md").read_text().split()) for name in ("sleeping", "model-cache", "evidence")
    }
    stack = load_stack(configuration("examples/sleeping-server.yaml"))
    (waking,) = cold_start.wakings(stack.scaled, stack.placed)
    assert str(waking) in pages["sleeping"].replace("> ", "")
    weights = 4
    processes, graphs = durations.ENGINE_PROCESSES.seconds, durations.ENGINE_GRAPHS.seconds
    eager, kept = weights + processes, weights + processes + graphs
    compiled = kept + durations.ENGINE_COMPILATION.seconds
    assert f"started in {kept} s in place of {compiled}" in pages["model-cache"]
    assert f"and {eager} s with `--enforce-eager`. About {weights} s of each read the weights" in pages["evidence"]
    assert f"needs vLLM {'.'.join(map(str, COMPILED_SINCE[:2]))}," in pages["model-cache"]
