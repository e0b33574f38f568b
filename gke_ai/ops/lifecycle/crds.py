"""`gke-ai crds --stack …`: upgrades JobSet's CRD to the version that the next `up` installs.

Helm installs the CRDs in a chart's folder `crds/`, and never upgrades them:
https://helm.sh/docs/chart_best_practices/custom_resource_definitions/
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import yaml

from gke_ai.catalog.versions import JOBSET_CHART, JOBSET_VERSION
from gke_ai.formats.console import PlainConsole
from gke_ai.kube.client import APPLY, request
from gke_ai.ops.lifecycle.down import jobset_release
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_sections
from gke_ai.workspace.stack import Stack

# Name of this field manager in `managedFields`.
MANAGER = "gke-ai"
console = PlainConsole(highlight=False, soft_wrap=True)


def crds(stack: Stack, chart: str | None = None) -> None:
    """Applies the CRDs of JobSet's chart, in the version of the stack's configuration.

    `chart` is the location of the chart. Default: its registry.
    """
    api = stack.api()
    if not jobset_release(stack.resources) or api is None:
        raise Stop(f"{stack.name} has no release of JobSet: there is no CRD to upgrade.")
    version = wanted(stack)
    for crd in of_chart(chart or JOBSET_CHART, version):
        name = crd["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        answer = request(api, "PATCH", path, {"fieldManager": MANAGER, "force": "true"}, crd, APPLY)
        if answer.code >= 400:
            raise Stop(f"The cluster refuses CRD {name}: {answer.reason}")
        console.print(f"CRD {name} now has the version of JobSet {version}. Next: {stack.next('up')}")


def wanted(stack: Stack) -> str:
    """Returns JobSet's version from the configuration, else the pinned version."""
    queues = read_sections(stack.file).get("gke-ai:queues")
    return str((queues if isinstance(queues, dict) else {}).get("jobsetVersion") or JOBSET_VERSION)


def of_chart(chart: str, version: str) -> list[dict[str, Any]]:
    """Returns the CRDs of a chart, as `helm show crds` prints them."""
    helm = shutil.which("helm")
    if helm is None:
        install = "Install it: https://helm.sh/docs/intro/install/"
        raise Stop(f"helm is not on PATH; it reads the CRDs of the chart. {install}")
    done = subprocess.run([helm, "show", "crds", chart, "--version", version], capture_output=True, text=True)
    if done.returncode:
        raise Stop(f"Helm cannot read the chart {chart} {version}: {done.stderr.strip()}")
    return [crd for crd in yaml.safe_load_all(done.stdout) if crd]
