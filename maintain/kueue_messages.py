"""`python -m maintain.kueue_messages`: compares gke_ai/catalog/kueue/messages.yaml with the source of the pinned Kueue.

It reads every text with a space in the files of SOURCES, except those of logs and wrapped errors, and writes the table
again: known texts keep their words, new ones have none, and vanished ones are left out. The test
maintain/tests/test_kueue_messages.py fails until each has words or a class.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from emulator.machine.paths import ROOT
from emulator.setup.toolchain import BY_NAME
from gke_ai.catalog.kueue.configuration import tool
from gke_ai.catalog.tables import table
from gke_ai.catalog.versions import KUEUE_VERSION

MODULE = "sigs.k8s.io/kueue"
NAME = "kueue/messages.yaml"
FILE = ROOT / "gke_ai" / "catalog" / NAME
# Where Kueue writes conditions and events of Workloads, conditions of queues, and the texts that they quote.
SOURCES = (
    *("scheduler/*.go", "scheduler/flavorassigner/*.go", "scheduler/preemption/preemption.go"),
    *(f"cache/scheduler/{name}.go" for name in ("clusterqueue", "tas_balanced_placement", "tas_flavor_snapshot")),
    *("controller/admissionchecks/provisioning/*.go", "controller/concurrentadmission/controller.go"),
    *("controller/core/workload_controller.go", "controller/jobframework/reconciler.go"),
    *("controller/jobs/statefulset/statefulset_reconciler.go", "controller/tas/node_controller.go"),
    *("dra/*.go", "util/limitrange/limitrange.go", "workload/*.go", "workload/evict/*.go", "workloadslicing/*.go"),
)
CONSTANTS = ("apis/kueue/v1beta2/workload_types.go",)
_NO_MESSAGE = re.compile(
    r"\.(Info|Error|V|Infof|WithValues|WithName)\(|log\.|panic\(|fmt\.Print|json:|setting index|^//"
)
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REASON = re.compile(
    r"^\s*(?:Workload(?:EvictedBy|EvictedDueTo|EvictedOn)\w+|Workload\w+Exceeded|Workload\w*Deactivated|In\w+Reason)"
    r'(?: string)? += "(\w+)"',
    re.M,
)


def source(release: str = KUEUE_VERSION) -> Path:
    command = ["go", "mod", "download", "-json", MODULE]
    environment = os.environ | {"GOWORK": "off", "GO111MODULE": "on"}
    folder = BY_NAME[tool(release)].module.source
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def forms(folder: Path) -> Mapping[str, list[str]]:
    """Returns the texts of each file that may be a message, in order, each once."""
    seen: set[str] = set()
    found: dict[str, list[str]] = {}
    for pattern in SOURCES:
        for file in sorted((folder / "pkg").glob(pattern)):
            texts = [] if file.name.endswith("_test.go") else _texts(file.read_text())
            if new := [text for text in dict.fromkeys(texts) if text not in seen]:
                found[str(file.relative_to(folder))] = new
                seen.update(new)
    return found


def _texts(code: str) -> Iterator[str]:
    for line in map(str.strip, code.splitlines()):
        for text in () if _NO_MESSAGE.search(line) else _TEXT.findall(line):
            if " " in text.strip() and "%w" not in text:
                yield json.loads(f'"{text}"')


def reasons(folder: Path) -> set[str]:
    return {reason for file in CONSTANTS for reason in _REASON.findall((folder / file).read_text())}


def written(found: Mapping[str, list[str]], head: str, words: Mapping[str, str]) -> str:
    lines = [head.rstrip(), f'release: "{KUEUE_VERSION}"', "messages:"]
    for file, texts in found.items():
        lines += [f"  {file}:", *(f"    {json.dumps(text)}: {json.dumps(words.get(text, ''))}" for text in texts)]
    return "\n".join(lines) + "\n"


def known() -> Mapping[str, str]:
    return {text: words for of_file in table(NAME)["messages"].values() for text, words in of_file.items()}


if __name__ == "__main__":
    FILE.write_text(written(forms(source()), FILE.read_text().partition("release: ")[0], known()))
