"""Programs of Caraway in processes that are forked, so that each begins within milliseconds.

To start Python and to import such a program takes seconds. A fork server has imported it, runs none of its code, and
forks once for each start. A forked process has an environment, arguments and an exit code of its own.

    python -m caraway.process.children.forking FD IDLE_SECONDS TARGET,CONTROL,HELD|- MODULE...

The programs may call users' functions, whose processes another fork server forks (`caraway.process.confinement`). They
use the one of whoever started their own fork server.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import TextIOWrapper
from math import isinf
from pathlib import Path
from typing import Any, cast

from caraway.process.children.launch import die_with_parent
from caraway.process.children.process import tied
from caraway.process.confinement.process import adopt_fork_server, shared_fork_server
from caraway.process.private_files import opener

# The longest request to a fork server, in bytes. A request is one message, with the whole environment of the program.
MOST_BYTES = 1024 * 1024
# The time without a request after which a fork server ends, since it takes some 200 MB.
IDLE_SECONDS = 300.0
# The most bytes of a process's name; Linux cuts longer ones.
MOST_NAME_BYTES = 15


class Forked:
    """A process that a fork server has forked: what its users need of `subprocess.Popen`.

    Attributes:
        pid: The number of the process.
        returncode: The exit code once it is known; less than 0 if a signal ended the process.
    """

    def __init__(self, channel: socket.socket) -> None:
        """Wait for the number of the process. Raises `EOFError` if the fork server has ended."""
        self._channel = channel
        self._lock = threading.Lock()
        # The channel closes with this object, so a caller may kill the process and drop the object without `wait`.
        weakref.finalize(self, channel.close)
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while the process lives."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the process has ended.

        Raises:
            subprocess.TimeoutExpired: It lives on after `timeout` seconds.
        """
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._channel, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._lock:
                if self.returncode is None:
                    try:
                        self.returncode = self._number()
                    except (EOFError, OSError):
                        # The fork server has ended without sending the exit code. In that case the kernel ends its
                        # forks with SIGTERM (`die_with_parent`), so this signal is reported.
                        self.returncode = -signal.SIGTERM
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def _number(self) -> int:
        """Read a number from the fork server, which sends each with the end of a line."""
        text = b""
        while not text.endswith(b"\n"):
            # The number is read byte by byte, because the next one may have arrived already: the exit code of a process
            # that has ended at once.
            part = self._channel.recv(1)
            if not part:
                raise EOFError("the fork server has ended")
            text += part
        return int(text)


class ForkServer:
    """Forks programs; it is started when it is needed, and ends after a while without requests. Thread safe."""

    def __init__(
        self, programs: Sequence[str], *, functions: str | None = None, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """Prepare; nothing is started.

        Args:
            programs: The modules that can be run, such as "caraway.offline".
            functions: The target of the processes for users' functions that the programs start; None: they start none.
            idle_seconds: The seconds without requests or processes after which the fork server ends; infinite: never.
        """
        self._programs = programs
        self._functions = functions
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        log: Path | None = None,
    ) -> Forked:
        """Start `python -m program argument…`, with an environment of its own.

        On Linux the process gets SIGTERM when the fork server ends, which ends with the thread that started it.

        Args:
            program: One of the programs of this fork server.
            arguments: Its arguments.
            environment: All of its environment.
            log: The file to which its output is appended; None: it writes to the output of this process.

        Raises:
            OSError: The fork server can't be started, or ends at once.
        """
        request = {"program": program, "arguments": list(arguments), "environment": dict(environment)}
        message = json.dumps({**request, "folder": str(Path.cwd())}).encode()
        with ExitStack() as stack, self._lock:
            output = [] if log is None else [stack.enter_context(open(log, "ab", opener=opener)).fileno()]
            try:
                return self._fork(message, output)
            except (OSError, EOFError):
                # The fork server has ended: it was idle, or was killed, maybe before it read this request. The next
                # attempt starts another fork server.
                self._forget()
            try:
                return self._fork(message, output)
            except EOFError as error:
                self._forget()
                raise OSError(f"the fork server of {', '.join(self._programs)} ends at once") from error

    def end(self) -> None:
        """End the fork server; on Linux its processes end with it."""
        with self._lock:
            self._forget()

    def _fork(self, message: bytes, output: Sequence[int]) -> Forked:
        if self._channel is None:
            self._channel = self._begin()
        with ExitStack() as failing:
            ours, theirs = map(failing.enter_context, socket.socketpair())
            socket.send_fds(self._channel, [message], [theirs.fileno(), *output])
            theirs.close()
            forked = Forked(ours)
            failing.pop_all()
        return forked

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        shared = () if self._functions is None else shared_fork_server(self._functions)
        functions = ",".join([self._functions or "-", *map(str, shared)])
        own = [str(theirs.fileno()), str(self._idle_seconds), functions]
        program = [sys.executable, "-m", __name__, *own, *self._programs]
        with theirs:
            self._process = subprocess.Popen(
                [*tied(signal.SIGTERM), "--", *program],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *shared],
            )
        return ours

    def _forget(self) -> None:
        if self._channel is not None:
            # The fork server ends when this end of the socket is closed, since nobody can send it requests any more.
            self._channel.close()
        if self._process is not None:
            self._process.wait()
        self._channel = self._process = None


def name_of(program: str) -> str:
    """Return the name of the processes of a program that the tools of the system show, as far as Linux keeps it."""
    return program.replace(".", "-")[:MOST_NAME_BYTES]


# In the fork server ---------------------------------------------------------------------------------------------------


def serve(descriptor: int, idle_seconds: float, functions: str, programs: Sequence[str]) -> None:
    """Fork whatever is asked for over a socket, until its other end is closed or nothing was asked for a while."""
    if functions != "-":
        target, control, held = functions.split(",")
        # All forks inherit the connection to the fork server of users' functions, so none has to start one of its own.
        adopt_fork_server(target, (int(control), int(held)))
    for program in programs:
        importlib.import_module(f"{program}.__main__")
    # Python's garbage collector doesn't visit frozen objects. Otherwise the collections of a fork would write to the
    # memory pages that it shares with the other forks, and the kernel would copy these pages.
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=descriptor)
    woken, wake = socket.socketpair()
    for one in (woken, wake):
        os.set_blocking(one.fileno(), False)
    # Python writes to the wake-up descriptor only for signals that have a handler, so SIGCHLD gets one that does
    # nothing. When a fork ends, the write makes `select` return, and `_report` sends its exit code.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {
                key.fileobj for key, _ in selector.select(None if children or isinf(idle_seconds) else idle_seconds)
            }
            if not ready and not children:
                return
            if woken in ready:
                woken.recv(4096)
                _report(children)
            if channel in ready:
                message, received, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
                if not message:
                    return
                answers, *output = received
                parent = os.getpid()
                child = os.fork()
                if child == 0:
                    # The fork must not keep any socket of the fork server open, for example the fork server's ends of
                    # other forks' sockets.
                    for one in (channel, woken, wake, *children.values()):
                        os.close(one.detach())
                    os.close(answers)
                    _become(json.loads(message), output, parent)
                for log in output:
                    os.close(log)
                children[child] = socket.socket(fileno=answers)
                with suppress(OSError):
                    children[child].sendall(f"{child}\n".encode())


def _report(children: dict[int, socket.socket]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        # If the process that asked for this fork has ended, nobody needs the exit code, so the error is ignored.
        with children.pop(child) as channel, suppress(OSError):
            channel.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, Any], output: Sequence[int], parent: int) -> None:
    """Run a program in this process, which was just forked, to its end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for log in output:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    die_with_parent(parent, signal.SIGTERM)
    for stream in (sys.stdout, sys.stderr):
        cast("TextIOWrapper", stream).reconfigure(write_through=True)
    with suppress(OSError):
        # All forks have the command of the fork server, so this name tells them apart in `top` and `ps`. (Linux.)
        Path("/proc/self/comm").write_text(name_of(request["program"]))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["program"], *request["arguments"]]
    # `serve` has imported the module so that all forks share what the module imports. The module itself is removed
    # here, because `runpy` warns if the module that it runs is imported already.
    sys.modules.pop(f"{request['program']}.__main__", None)
    runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
