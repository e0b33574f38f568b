"""Only here: dashboards and alerts ask for metrics that the real Kueue sends, with their collector's credential."""

import base64
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support import prometheus
from tests.support.emulator import Emulator, deployed_and_deleted, eventually, settled

EXAMPLE = "examples/mixed-training-inference.yaml"
# Of those that a queue has at once; the others come with the first eviction, preemption or end of a workload.
LATER = {"kueue_evicted_workloads_total", "kueue_preempted_workloads_total", "kueue_finished_workloads_total"}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Emulator]:
    channels = {"monitoring": {"channels": ["projects/my-project/notificationChannels/1"]}}
    with deployed_and_deleted(EXAMPLE, channels) as emulator:
        yield emulator


def of_type(emulator: Emulator, kind: str) -> list[dict[str, Any]]:
    return [item["inputs"] for item in emulator.exported()["resources"] if item["type"].endswith(f":{kind}")]


def token(emulator: Emulator) -> str:
    secret = json.loads(emulator.kubectl("get", "secret", "-n", "kueue-system", "metrics-reader-token", "-o", "json"))
    return base64.b64decode(secret["data"]["token"]).decode()


def scraping(emulator: Emulator) -> Path:
    """The targets that Managed Service for Prometheus would scrape."""
    (file,) = (emulator.state / "clusters").glob("*/prometheus.yaml")
    return file


def test_kueue_shows_its_metrics_to_their_collector_alone(deployed: Emulator) -> None:
    settled(deployed)
    for state in (deployed.exported(), deployed.outputs()):
        assert token(deployed) not in json.dumps(state)
    jobs = yaml.safe_load(scraping(deployed).read_text())["scrape_configs"]
    (job,) = (job for job in jobs if "kueue" in job["job_name"])
    url = f"https://{job['static_configs'][0]['targets'][0]}/metrics"
    other = deployed.kubectl("create", "token", "default", "-n", "default").strip()
    # Kueue signs its certificate for this port itself.
    with httpx.Client(verify=False) as client:
        assert client.get(url).is_error
        assert client.get(url, headers={"Authorization": f"Bearer {other}"}).status_code == 403
        exposition = client.get(url, headers={"Authorization": f"Bearer {token(deployed)}"}).raise_for_status().text
    boards = json.dumps([dashboard["dashboardJson"] for dashboard in of_type(deployed, "Dashboard")])
    alerts = json.dumps(of_type(deployed, "AlertPolicy"))
    queried = {name.removesuffix("_bucket") for name in re.findall(r"kueue_[a-z_]+", boards + alerts)}
    assert len(queried) >= 9
    exposed = set(re.findall(r"^# TYPE (kueue_\w+)", exposition, re.MULTILINE))
    assert queried - exposed <= LATER, "Kueue has no such metric"


def test_prometheus_draws_the_queue_from_what_it_scrapes(deployed: Emulator, tmp_path: Path) -> None:
    boards = [dashboard["dashboardJson"] for dashboard in of_type(deployed, "Dashboard")]
    board = next(json.loads(board) for board in boards if "queues" in board)
    lines = [line for tile in board["mosaicLayout"]["tiles"] for line in tile["widget"]["xyChart"]["dataSets"]]
    queries = [line["timeSeriesQuery"]["prometheusQuery"] for line in lines]
    at_once = {query for query in queries if not re.search(r"increase|rate", query)}
    assert len(at_once) == 3
    # Scraped as the PodMonitoring says, only sooner.
    configuration = scraping(deployed)
    content = yaml.safe_load(configuration.read_text())
    for job in content["scrape_configs"]:
        job["scrape_interval"] = "1s"
    sooner = configuration.with_name("sooner.yaml")
    sooner.write_text(yaml.safe_dump(content))
    with prometheus.running(tmp_path, sooner) as server:
        for query in at_once:
            all_series = eventually(partial(server.latest, query), f"{query} gives something", 30)
            assert {series["metric"].get("cluster_queue") for series in all_series} == {"cluster-queue"}
        (policy,) = (item for item in of_type(deployed, "AlertPolicy") if "a queue is stuck" in item["displayName"])
        (stuck, silent) = (item["conditionPrometheusQueryLanguage"]["query"] for item in policy["conditions"])
        assert server.latest(silent) == []
        assert server.latest(stuck) == [], "Kueue has just admitted the server"
