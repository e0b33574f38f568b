"""Names of labels and annotations of the pinned Kueue, JobSet, Trainer and KubeRay, and why teams set few of them.

They are read from the sources.
"""

import re
from pathlib import Path

import yaml

from emulator.setup.go_build import sources
from emulator.setup.toolchain import KUBERAY, KUEUE, TRAINER
from gke_ai.components.queues.tenant_policy import ANNOTATIONS, LABELS

# Folders of the sources with names that the managers read or write, by Go module, with what pins it.
FOLDERS = {
    "sigs.k8s.io/kueue": (KUEUE, ("apis", "pkg")),
    "sigs.k8s.io/jobset": (KUEUE, ("api", "pkg")),
    "github.com/kubeflow/trainer/v2": (TRAINER, ("pkg",)),
    "github.com/ray-project/kuberay/ray-operator": (KUBERAY, ("apis", "controllers")),
}
# A name of these, in Go's quotes. Kubernetes accepts none that begins or ends with another sign than a letter or a
# digit, such as the value `_UNTRACKED_VALUE_` of a metric's label.
_NAME = re.compile(
    r'["`]([\w.-]*(?:kueue|jobset|\btrainer\.kubeflow\.org|\bray\.io)[\w.-]*/(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)?)["`]'
)
# The prefix of parameters of a ProvisioningRequest, which Kueue completes.
PARAMETER = "provreq.kueue.x-k8s.io/"

# Names that no team may set, by reason.
REFUSED: dict[str, list[str]] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)


def allowed() -> set[str]:
    """Names that a team may set on some kind, or that Kueue's webhooks set on what it creates."""
    return {name for kinds in (LABELS, ANNOTATIONS) for names in kinds.values() for name in names}


def names() -> set[str]:
    """All names in the sources. The prefix of parameters stands for every parameter."""
    return {
        name
        for module, (pins, folders) in FOLDERS.items()
        for folder in folders
        for path in (sources(pins, module) / folder).rglob("*.go")
        if not path.name.endswith("_test.go") and not {"test", "testing", "testingjobs"} & set(path.parts)
        for line in path.read_text().splitlines()
        for name in _NAME.findall(line.partition("//")[0])
    }
