"""A cluster for what a member submits: what its stack publishes, and a stub of its API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import yaml

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.published import Published
from tests.support.local_server import answering

Object = dict[str, Any]
_SECTIONS: Object = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)
PUBLISHED = Published(_SECTIONS, Calibration(), "my-project", "0.4.0")


def job(requests: Object, queue: str = "lq", pods: int = 1, **spec: Any) -> Object:
    container = {"name": "main", "image": "i:1", "resources": {"requests": requests}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never", **spec}}
    metadata = {"name": "mine", "labels": {QUEUE_LABEL: queue} if queue else {}}
    stated = {"parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": stated}


def kubeconfig(server: str) -> str:
    entry = {"name": "ml", "cluster": {"server": server}}
    context = {"name": "ml", "context": {"cluster": "ml", "user": "me", "namespace": "team-a"}}
    users = [{"name": "me", "user": {"token": "t"}}]
    return yaml.safe_dump({"clusters": [entry], "contexts": [context], "users": users, "current-context": "ml"})


TEXT = yaml.safe_dump({"version": PUBLISHED.version, "project": "p", "sections": PUBLISHED.sections, "nodes": []})
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues"


class Cluster:
    """An API server that keeps objects, and breaks the connection of some creations: before or after they happen."""

    def __init__(self, breaks: list[str] | None = None, published: bool = True) -> None:
        self.breaks, self.created, self.tried = breaks or [], list[str](), list[str]()
        self.objects: dict[str, Object] = {
            f"{QUEUES}/lq": {"metadata": {"name": "lq"}},
            "/api/v1/namespaces/team-a/secrets/hf-secret": {"metadata": {}, "data": {"hf_api_token": "eA=="}},
        }
        if published:
            path = f"/api/v1/namespaces/team-a/configmaps/{CONFIG_MAP}"
            self.objects[path] = {"metadata": {"name": CONFIG_MAP, "annotations": {ANNOTATION: TEXT}}}
        self._changing = Lock()

    def answer(self, method: str, path: str, query: str, body: Object) -> tuple[int, Object] | None:
        with self._changing:
            if method == "GET" and "priorityclasses" in path and path.rpartition("/")[2] != "absent":
                return 403, {"message": "a member of a tenant may not read it"}
            if method == "GET":
                below = [item for name, item in self.objects.items() if name.rpartition("/")[0] == path]
                found = self.objects.get(path, {"items": below} if path.endswith("localqueues") else None)
                return (200, found) if found else (404, {"message": "not found"})
            if path.endswith("selfsubjectaccessreviews"):
                return 201, {"status": {"allowed": True}}
            if method == "DELETE":
                return 200, self.objects.pop(path)
            if method == "PATCH":
                owners = self.objects[path]["metadata"].setdefault("ownerReferences", [])
                owners += [new for new in body["metadata"]["ownerReferences"] if new not in owners]
                return 200, self.objects[path]
            name = f"{path}/{body['metadata']['name']}"
            if "dryRun" in query:
                self.tried.append(name)
                return (409 if name in self.objects else 201), body
            lost = self.breaks.pop(0) if self.breaks else ""
            if lost == "before":
                return None
            if lost == "refused":
                return 403, {"message": "a webhook refuses it"}
            if name in self.objects:
                return 409, {"message": "already exists"}
            self.objects[name] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{len(self.created)}"}}
            self.created.append(name)
            return None if lost == "after" else (201, self.objects[name])


@contextmanager
def serve(cluster: Cluster, folder: Path) -> Iterator[Path]:
    with answering(cluster.answer) as address:
        file = folder / "kubeconfig"
        file.write_text(kubeconfig(f"http://{address}"))
        yield file


def line(bus: float = 340.0, **other: Any) -> Object:
    """A line that the program prints, of the largest message."""
    known = {"backend": "nccl", "device": "NVIDIA H100", "library": "2.27.5", "nodes": 2, "ranks": 16}
    figures = {"path": "between nodes", "bytes": 2**34, "seconds": 0.1, "algorithm_gb_per_s": bus / 1.875}
    return {**known, **figures, "bus_gb_per_s": bus, "correct": True, **other}
