"""Lists objects of a cluster as `kubectl get -o json` does, without a process for each question."""

import argparse
import json
import time
from functools import lru_cache
from typing import Any, NamedTuple

from kubernetes.client import ApiClient

from gke_ai.kube.client import client_of, send

Object = dict[str, Any]
# One document for all groups: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery
DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
PARSER = argparse.ArgumentParser()
PARSER.add_argument("kinds")
PARSER.add_argument("-n", dest="namespace", default="default")
PARSER.add_argument("-A", dest="everywhere", action="store_true")
PARSER.add_argument("-l", dest="labels", default="")
PARSER.add_argument("--field-selector", dest="fields", default="")


class Kind(NamedTuple):
    """A kind of objects: the path of its version, its name in paths, and whether its objects are in namespaces."""

    path: str
    plural: str
    in_namespaces: bool
    api_version: str
    kind: str


class Objects:
    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._kinds: dict[str, Kind] = {}

    def get(self, *arguments: str) -> list[Object]:
        """The objects that `kubectl get` finds with these arguments: kinds, -n, -A, -l and --field-selector."""
        options = PARSER.parse_args(arguments)
        query = {"labelSelector": options.labels, "fieldSelector": options.fields}
        objects: list[Object] = []
        for name in options.kinds.split(","):
            kind = self._kind(name)
            scope = f"/namespaces/{options.namespace}" if kind.in_namespaces and not options.everywhere else ""
            listed = self._ask(f"{kind.path}{scope}/{kind.plural}", {key: text for key, text in query.items() if text})
            # A list of a built-in kind names the kind of its items only once.
            objects += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in listed["items"]]
        return objects

    def _kind(self, name: str) -> Kind:
        """The first kind of that name in the order of the API server, as kubectl chooses."""
        if name not in self._kinds:
            self._kinds = self._discovered()
        assert name in self._kinds, f"the API server has no resource {name}"
        return self._kinds[name]

    def _discovered(self) -> dict[str, Kind]:
        kinds: dict[str, Kind] = {}
        for root in ("/api", "/apis"):
            for group in self._ask(root, headers=DISCOVERY)["items"]:
                group_name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    api_version = f"{group_name}/{version['version']}" if group_name else version["version"]
                    for resource in version.get("resources", []):
                        plural, in_namespaces = resource["resource"], resource["scope"] == "Namespaced"
                        name = resource["responseKind"]["kind"]
                        kind = Kind(f"{root}/{api_version}", plural, in_namespaces, api_version, name)
                        names = [plural, resource.get("singularResource", ""), *resource.get("shortNames", ())]
                        for known in (*names, f"{plural}.{group_name}" if group_name else plural):
                            kinds.setdefault(known, kind)
        return kinds

    def _ask(self, path: str, query: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Any:
        accept = headers or {"Accept": "application/json"}
        answer = send(self._api, "GET", path, query, headers=accept)
        for pause in (0, 1, 2, 4, 8):
            if answer.code:  # else the API server may have closed the idle connection
                break
            time.sleep(pause)
            answer = send(self._api, "GET", path, query, headers=accept)
        assert answer.code == 200, f"{path}: {answer.code} {answer.error} {answer.body}"
        return json.loads(answer.body)


@lru_cache
def objects_of_cluster(kubeconfig: str) -> Objects:
    """The objects of the cluster of a kubeconfig, with one connection for all questions."""
    return Objects(client_of(kubeconfig, 1))
