"""`make test-vllm`: starts a real vLLM as the program registers it, asks it, and writes recorded.yaml."""

import platform
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emulator.machine.processes import free_ports
from maintain.real_vllm import environment, model
from maintain.real_vllm.asking import Process
from maintain.real_vllm.observing import observed, running
from maintain.real_vllm.served import FILE, HEAD, WITH_FLAG, WITHOUT_FLAG, Served, command, dumped, servers

# Time of `--shutdown-timeout`, and to wait for an event that never is. Answers with time need less, here and there.
SHUTDOWN_SECONDS, PATIENCE = 10, 30.0


def main() -> None:
    """Records what a real vLLM does. Takes minutes; its log is shown if it fails."""
    folder = environment.create()
    with TemporaryDirectory(prefix="vllm-") as home:
        log = Path(home) / "log"
        try:
            recording = record(folder, Path(home), log)
        except BaseException:
            sys.stderr.write(log.read_text()[-20_000:] if log.exists() else "")
            raise
    FILE.write_text(HEAD + dumped(recording))
    print(f"Wrote {FILE}")


def record(folder: Path, home: Path, log: Path) -> dict[str, Any]:
    """Starts the servers of the example one after the other."""
    ports = free_ports(2)
    listed = servers({WITH_FLAG: ports[0], WITHOUT_FLAG: ports[1]}, SHUTDOWN_SECONDS)
    model.write(home / "hub", listed[WITH_FLAG].route.model)

    def start(server: Served) -> AbstractContextManager[Process]:
        print(f"Starting {' '.join(server.command)} …", flush=True)
        return running(server.command, {**environment.variables(folder, home), **server.environment}, log)

    versions = environment.versions()
    names = (environment.PACKAGE, "torch", "transformers", "fastapi", "uvicorn")
    recording: dict[str, Any] = {
        "made with": {**{name: versions[name] for name in names}, "python": platform.python_version()},
        "commands": {name: command(server) for name, server in listed.items()},
        "observed": {},
    }
    for subject, seen in observed(listed, start, PATIENCE):
        recording["observed"][subject] = seen
        print(dumped({subject: seen}), flush=True)
    return recording


if __name__ == "__main__":
    main()
