"""Processes of Caraway's programs that tests start without each importing all modules anew.

A fork server, one for each process of pytest, has imported the programs, and forks for each start. A forked process
is like any other, with its own environment, output and exit code, which a test may kill. Tests of a whole stack
start the same programs by their commands (`tests/e2e`), so that a module that is only there by chance is noticed.

    python -m tests.services.forking FD
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from caraway import request_ids

PROGRAMS = (
    "caraway.server",
    "caraway.archive",
    "caraway.offline",
    "caraway.quality",
    "caraway.skew",
    "caraway.drift_watch",
)
# A request is one message, with the whole environment.
_MOST_BYTES = 1024 * 1024


class Forked:
    """A process that the fork server has forked: what tests need of `subprocess.Popen`."""

    def __init__(self, channel: socket.socket) -> None:
        """Wait for the number of the process."""
        self._channel = channel
        # A test that has killed a process need not wait for it.
        weakref.finalize(self, channel.close)
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, less than 0 if a signal ended the process; None while it lives."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
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
            self.returncode = self._number()
            self._channel.close()
        return self.returncode

    def _number(self) -> int:
        """Read a number from the fork server, which sends each with the end of a line."""
        text = b""
        while not text.endswith(b"\n"):
            part = self._channel.recv(64)
            if not part:
                raise EOFError("the fork server of the tests has ended")
            text += part
        return int(text)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """Forks programs; started when the first one is asked for."""

    def __init__(self) -> None:
        """Keep what is needed; nothing is started."""
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None

    def start(self, program: str, environment: Mapping[str, str], log: Path) -> Forked:
        """Start `python -m program` with an environment, and append its output to a file."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"program": program, "environment": dict(environment), "folder": str(Path.cwd())})
        with self._lock, theirs, log.open("ab") as output:
            if self._channel is None:
                self._channel = _started()
            socket.send_fds(self._channel, [request.encode()], [theirs.fileno(), output.fileno()])
        return Forked(ours)


def _started() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    with theirs:
        command = [sys.executable, "-m", __spec__.name, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def end() -> None:
        # It ends by itself when nobody can ask it any more; what it has forked goes on.
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


FORKS = ForkServer()


# In the fork server ---------------------------------------------------------------------------------------------------


def main(fd: int) -> None:
    """Fork whatever is asked for over a socket, until its other end is closed."""
    for program in PROGRAMS:
        importlib.import_module(f"{program}.__main__")
    # The collector of a child doesn't touch the pages that it shares with all others.
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=fd)
    told, tell = socket.socketpair()
    tell.setblocking(False)
    told.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(told, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if told in ready:
                told.recv(4096)
                _report(children)
            if channel in ready:
                message, fds, _, _ = socket.recv_fds(channel, _MOST_BYTES, 2)
                if not message:
                    return
                child = os.fork()
                if child == 0:
                    # Nothing of the fork server's may stay open: its ends of other children's sockets, for example.
                    for one in (channel, told, tell, *children.values()):
                        os.close(one.detach())
                    os.close(fds[0])
                    _become(json.loads(message), fds[1])
                os.close(fds[1])
                children[child] = socket.socket(fileno=fds[0])
                children[child].sendall(f"{child}\n".encode())


def _report(children: dict[int, socket.socket]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with children.pop(child) as channel:
            # A test that has ended doesn't ask any more.
            try:
                channel.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            except OSError:
                continue


def _become(request: dict[str, Any], output: int) -> None:
    """Run a program in this process, which was just forked, to its end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        cast("TextIOWrapper", stream).reconfigure(write_through=True)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Each process draws its own when it imports the module.
    request_ids._PROCESS = secrets.token_hex(6)
    sys.argv = [request["program"]]
    runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
