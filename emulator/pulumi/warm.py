"""Runs Python programs in processes that fork from a warm one, which has imported the third-party packages.

    python -I -S emulator/pulumi/warm.py [--ends-with-parent] [-P] [-u] -m MODULE | SCRIPT [ARGUMENT…]

After its own option, this takes the arguments of `python` and behaves as it: standard streams, working directory,
environment, signals and exit status are those of this process. The imports of Pulumi's SDKs, seconds of CPU time in
each Pulumi command, are done once. If there is no warm process, the program runs in this process, and a warm one starts
for the next program. It holds no module of a checkout, so it serves all checkouts, and edits count at once.

    GKE_AI_WARM  folder of the socket, private to the user and named after the lock file. If empty, nothing is forked.

The process name of this process becomes `fork-PID`, with the process id of the forked program.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable

IDLE_SECONDS = 300.0
PARENT_SECONDS = 0.2  # how often this process looks whether its parent lives
# Modules that the programs and plugins use. A test compares the list with the modules of the SDKs that they name.
MODULES = (
    *("httpx", "grpc", "yaml", "pydantic", "kubernetes.client", "google.protobuf.json_format"),
    *("pulumi", "pulumi.policy", "pulumi.provider.experimental", "pulumi.runtime.proto.provider_pb2_grpc"),
    *("pulumi_policy", "rich.console", "rich.table"),
    *(f"pulumi_gcp.{name}" for name in ("compute", "config", "container", "monitoring", "organizations")),
    *(f"pulumi_gcp.{name}" for name in ("projects", "secretmanager", "serviceaccount", "storage")),
    *(f"pulumi_kubernetes.{name}" for name in ("apiextensions", "helm.v3", "yaml")),
    *(f"pulumi_kubernetes.{name}.v1" for name in ("admissionregistration", "apiregistration", "apps", "batch", "core")),
    *(f"pulumi_kubernetes.{name}.v1" for name in ("meta", "networking", "policy", "rbac", "scheduling", "storage")),
    "pulumi_kubernetes.autoscaling.v2",
)
# Other variables of Python and coverage act when an interpreter starts.
KNOWN_VARIABLES = {"PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Runs a program, or serves forks if this is the warm process."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--serve"]:
        fork = serve(int(arguments[1]))
        if fork:
            become(*fork)
        return
    ends_with_parent = arguments[:1] == ["--ends-with-parent"]
    arguments = arguments[ends_with_parent:]
    folder = os.environ.get("GKE_AI_WARM")
    if folder and can_fork(arguments):
        parent = os.getppid()
        connection = connect(folder)
        if connection is None:
            start_server(folder)
        else:
            run_fork(connection, arguments, parent)
    if ends_with_parent:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.execv(sys.executable, [sys.executable, *arguments])


def can_fork(arguments: list[str]) -> bool:
    """Whether a fork behaves as this process would: one that reads from a terminal is in another session."""
    first = next((word for word in arguments if word not in ("-u", "-P")), "-")
    variables = {name for name in os.environ if name.startswith(("PYTHON", "COVERAGE_"))}
    return (first == "-m" or not first.startswith("-")) and variables <= KNOWN_VARIABLES and not os.isatty(0)


# ------------------------------------------------------------------------------------------ in the process of a program
def connect(folder: str) -> socket.socket | None:
    """Connects to the warm process of a folder. None if there is none that answers."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        # Through the descriptor, because the whole path may be too long for a socket.
        connection.connect(f"/proc/self/fd/{descriptor}/socket")
    except OSError:
        connection.close()
        return None
    finally:
        os.close(descriptor)
    return connection


def start_server(folder: str) -> None:
    """Starts the warm process of a folder, unless it is being started."""
    import fcntl

    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # the cache is read-only: programs run without a warm process
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return
    child = os.fork()
    if child:
        os.close(lock)
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, standard)
    os.set_inheritable(lock, True)  # the warm process holds the lock while it lives
    os.chdir(folder)
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PYTHONPYCACHEPREFIX") if name in os.environ}
    os.execve(sys.executable, [sys.executable, "-P", "-s", os.path.abspath(__file__), "--serve", str(lock)], kept)


def run_fork(connection: socket.socket, arguments: list[str], parent: int) -> None:
    """Runs a program in a forked process and ends as it ends. Returns if no process was forked."""
    import marshal

    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    ignored = [int(number) for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    request = marshal.dumps((arguments, dict(os.environ), _umask(), ignored))
    try:
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2, here])
        connection.sendall(request)
        number = connection.recv(4, socket.MSG_WAITALL)
    except OSError:
        return
    finally:
        os.close(here)
    if len(number) < 4:
        return
    fork = int.from_bytes(number, "big")
    sent: list[int] = []
    for forwarded in FORWARDED:
        if forwarded not in ignored:
            signal.signal(forwarded, _forward(fork, sent))
    with open("/proc/self/comm", "w") as name:
        name.write(f"fork-{fork}")
    try:
        connection.sendall(b"!")
    except BrokenPipeError:  # the fork was killed before it ran anything
        return
    connection.settimeout(PARENT_SECONDS)
    while True:
        try:
            answer = connection.recv(4, socket.MSG_WAITALL)
        except TimeoutError:
            if os.getppid() != parent and not sent:  # a fork that got a signal may need time to clean up
                os._exit(1)  # the end of the connection ends the fork
            continue
        except ConnectionError:
            answer = b""
        break
    if len(answer) < 4:
        os.write(2, b"The warm process of the emulator has ended. Run the command again.\n")
        os._exit(1)
    status = int.from_bytes(answer, "big", signed=True)
    if status < 0:  # ended by a signal
        if -status in FORWARDED:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _forward(fork: int, sent: list[int]) -> Callable[[int, object], None]:
    """Returns a handler that sends a signal to a fork and its children, as to the group of this process."""

    def forward(number: int, _: object) -> None:
        import contextlib

        sent.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(fork, number)

    return forward


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# -------------------------------------------------------------------------------------------------- in the warm process
Request = tuple[socket.socket, list[str], dict[str, str], int, list[int], list[int]]
"""Connection, arguments, environment, umask, ignored signals, descriptors (three streams and the working directory)."""


def serve(lock: int) -> Request | None:
    """Imports the packages, then forks a process for each program, until none has come for a while.

    The working directory is the folder of the socket. Returns in each fork what it is to run, and None at the end.
    """
    import gc
    import importlib
    import select

    os.set_inheritable(lock, False)
    for module in MODULES:
        getattr(importlib.import_module(module), "__all__", None)  # loads a module that the SDK loads lazily
    gc.collect()
    gc.freeze()  # a collection in a fork would write to these objects, and so copy their pages
    listener = socket.socket(socket.AF_UNIX)
    if os.path.exists("socket"):
        os.unlink("socket")  # of a killed process: this one holds the lock
    listener.bind("socket")
    os.chmod("socket", 0o600)
    listener.listen(128)
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([listener.fileno(), ended], [], [], IDLE_SECONDS)[0]
        if ended in ready:
            os.read(ended, 4096)
            _report_ends(running)
        if listener.fileno() in ready:
            connection = listener.accept()[0]
            request = _request(connection)
            fork = os.fork() if request else -1
            if request and not fork:
                signal.set_wakeup_fd(-1)
                for other in (listener, *running.values()):
                    other.close()
                for descriptor in (lock, ended, wake):
                    os.close(descriptor)
                return request
            if fork < 0:
                connection.close()
            else:
                running[fork] = connection
            for descriptor in request[-1] if request else ():
                os.close(descriptor)
        if not ready and not running:
            os.unlink("socket")  # a program that connected just before sees its connection end and runs by itself
            return None


def _request(connection: socket.socket) -> Request | None:
    """Reads what a program sends. None if it isn't this user's or breaks off."""
    import marshal
    import struct

    descriptors: list[int] = []
    try:
        connection.settimeout(5)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return None
        size, descriptors, _, _ = socket.recv_fds(connection, 4, 4)
        content = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        arguments, environment, umask, ignored = marshal.loads(content)
        connection.settimeout(None)
    except (OSError, EOFError, ValueError, TypeError):
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return connection, arguments, environment, umask, ignored, descriptors


def _report_ends(running: dict[int, socket.socket]) -> None:
    import contextlib

    while running:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        fork = ended.si_pid
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with running.pop(fork) as connection:
            try:
                connection.sendall(status.to_bytes(4, "big", signed=True))
            except OSError:  # who started the program was killed, so its children end too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(fork, signal.SIGKILL)
        os.waitpid(fork, 0)  # only now another process can get the id


# ------------------------------------------------------------------------------------------------------------ in a fork
def become(
    connection: socket.socket,
    arguments: list[str],
    environment: dict[str, str],
    umask: int,
    ignored: list[int],
    descriptors: list[int],
) -> None:
    """Runs a program in this process as if Python had started for it."""
    import runpy
    import threading

    os.setpgid(0, 0)
    for standard, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, standard)
    os.fchdir(descriptors[3])
    for descriptor in descriptors:
        os.close(descriptor)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in FORWARDED:  # the warm process may have inherited others
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    connection.sendall(os.getpid().to_bytes(4, "big"))
    if not connection.recv(1):
        os._exit(1)

    def end_with_connection() -> None:
        connection.recv(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_connection, daemon=True, name="warm").start()
    unbuffered, safe_path = bool(environment.get("PYTHONUNBUFFERED")), False
    while arguments[0] in ("-u", "-P"):
        unbuffered, safe_path = unbuffered or arguments[0] == "-u", safe_path or arguments[0] == "-P"
        arguments = arguments[1:]
    _open_streams(unbuffered)
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_module = arguments[0] == "-m"
    name = arguments[1] if is_module else arguments[0]
    sys.argv = [name, *arguments[1 + is_module :]]
    with open("/proc/self/comm", "w") as process_name:
        process_name.write(os.path.basename(name)[-15:])
    if not safe_path and (is_module or not os.path.isdir(name)):  # run_path itself inserts a folder
        sys.path.insert(0, os.getcwd() if is_module else os.path.dirname(os.path.abspath(name)))
    try:
        if is_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(name, run_name="__main__")
    except Exception as error:  # noqa: BLE001 - shown as Python shows it, without the frames of this file
        trace = error.__traceback__
        while trace and trace.tb_next and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _open_streams(unbuffered: bool) -> None:
    """Opens the standard streams as Python does: with `-u`, not even the bytes below the text are buffered."""
    import io

    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        raw = unbuffered and number > 0
        stream = io.TextIOWrapper(
            open(number, "wb" if number else "rb", 0 if raw else -1, closefd=False),  # noqa: SIM115 - until the end
            encoding,
            errors if number < 2 else "backslashreplace",
            line_buffering=number == 2 or os.isatty(number),
            write_through=raw,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main()
