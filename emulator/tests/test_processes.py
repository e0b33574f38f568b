"""What the processes of a cluster inherit from the shell that starts them, their ports, and waits for them."""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.commands import discard
from emulator.machine import paths, processes
from emulator.machine.polling import poll_until

CREDENTIALS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "EMULATOR_HF_TOKEN", "GATEWAY_API_KEY", "EMULATOR_GATEWAY_API_KEY"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_CONFIG", "CLOUDSDK_AUTH_ACCESS_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "GITHUB_TOKEN", "SSH_AUTH_SOCK"),
    *("KUBECONFIG", "PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE", "HTTPS_PROXY", "LD_PRELOAD", "PYTHONPATH"),
)


def test_processes_of_a_cluster_inherit_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "canary")
    assert "canary" not in processes.environment(tmp_path).values()


def test_a_port_on_which_a_program_listens_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one on another address of this machine, since endpoint pickers listen on all."""
    for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
        with socket.create_server((address, 0)) as taken:
            port = taken.getsockname()[1]
            (free,) = processes.free_ports(1)
            drawn = iter([port, free])
            monkeypatch.setattr(random, "randrange", lambda *_, drawn=drawn: next(drawn))
            monkeypatch.setattr(processes, "_returned", [])
            assert processes.free_ports(1) == [free]
            monkeypatch.undo()


def test_a_discarded_state_has_no_process_left_but_the_shells_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*command: str, **variables: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        return subprocess.Popen(command, env=environment, start_new_session=True)

    state, beside, inside = tmp_path / "state", tmp_path / "state2", tmp_path / "state" / "rehearsal"
    cluster = inside / "clusters" / "scratch"
    cluster.mkdir(parents=True)
    (state / "backend").mkdir()
    for name, folder in (("STATE", state), ("CLUSTERS", state / "clusters"), ("CACHE", tmp_path / "cache")):
        monkeypatch.setattr(paths, name, folder)
    tool = paths.CACHE / "tools" / "program"
    tool.parent.mkdir(parents=True)
    tool.symlink_to(sys.executable)
    sleeps = ("-c", "import time; time.sleep(60)")
    # A killed `when` leaves a state inside this one, of which nothing knows any more.
    ended = [start(str(tool), *sleeps, GKE_AI_STATE=folder) for folder in (state, inside)]
    ended.append(start(sys.executable, *sleeps, GKE_AI_CLUSTER=cluster))
    stay = [start("sleep", "60", GKE_AI_STATE=state), start(str(tool), *sleeps, GKE_AI_STATE=beside)]
    stay.append(start(sys.executable, *sleeps, GKE_AI_CLUSTER=beside / "clusters" / "scratch"))
    try:
        assert discard.main([]) == 0
        assert all(process.wait(10) != 0 for process in ended)
        assert [process.poll() for process in stay] == [None] * len(stay)
        assert not state.exists()
    finally:
        for left in (*ended, *stay):
            left.kill()
            left.wait()


def test_a_wait_ends_once_its_condition_is_true_fails_or_has_been_evaluated_in_time() -> None:
    results = iter([0, "", "ready"])
    assert poll_until(lambda: next(results), timeout=60, pause=0)
    assert list(results) == []
    evaluated: list[int] = []
    assert not poll_until(lambda: evaluated.append(1), timeout=-1, pause=0)
    assert evaluated == [1]
    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: 1 / 0, timeout=60)
