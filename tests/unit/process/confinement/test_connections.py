"""Tests that the connections which the platform opens for a process neither hold it up nor differ from the kernel's."""

import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from caraway.process.confinement import connections
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.process import ConfinedProcess
from tests.unit.process.children.waiting import eventually
from tests.unit.process.confinement.attempts import connected
from tests.unit.process.confinement.test_confinement import TARGET, Try, trying

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="macOS has no means that Caraway uses; docs/operate/security.md says so"
    ),
]

MANY = 20


def asking() -> AbstractContextManager[Try]:
    """Return how to attempt something in a process whose connections the platform opens."""
    return trying(Confinement(network=True), None, lambda _host, _port: "")


@pytest.fixture
def hole() -> Iterator[int]:
    """Yield a port of this machine that answers no attempt to connect: all places of its queue are taken."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = int(listener.getsockname()[1])
        for _ in range(3):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            assert one.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
        yield port


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def gates() -> int:
    return sum(thread.name == "connector gate" for thread in threading.enumerate())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_that_never_come_leave_neither_threads_nor_descriptors(hole: int) -> None:
    with asking():
        # The fork server has started.
        pass
    eventually(lambda: gates() == 0)
    before = descriptors()
    for _ in range(2):
        with asking() as attempt:
            assert attempt("block", f"{hole} {MANY}") == str(MANY)
            eventually(lambda: descriptors() > before + MANY)
            assert gates() == 1
            assert attempt("pid"), "other connections go on"
        eventually(lambda: gates() == 0)
        assert descriptors() == before


def test_a_process_that_has_a_socket_block_again_holds_no_thread_either(
    hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of it may do so at any moment, here between each of the platform's calls."""
    monkeypatch.setattr(os, "set_blocking", lambda *_: None)
    with asking() as attempt:
        assert attempt("block", f"{hole} 1") == "1"
        gate = next(thread for thread in threading.enumerate() if thread.name == "connector gate")
        eventually(lambda: _is_connecting(gate))
    eventually(lambda: gates() == 0)


def _is_connecting(thread: threading.Thread) -> bool:
    call = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text(encoding="ascii").split()[0]
    return call == str(connections._CALLS[os.uname().machine][2])


def test_connections_are_as_without_the_platform(port: int, hole: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    with asking() as attempt:
        for way, result in (
            (f"{port} blocks", 0),
            (f"{port} polls", errno.EINPROGRESS),
            (f"{closed} blocks", errno.ECONNREFUSED),
            (f"{closed} polls", errno.EINPROGRESS),
            (f"{hole} polls", errno.EINPROGRESS),
            (f"{hole} own timeout", errno.EINPROGRESS),
        ):
            found = attempt("connected", way)
            assert found.startswith(f"[{result}, "), way
            assert found == str(connected(way)), way


def test_a_thread_waits_for_a_connection_for_some_time_only(hole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 0.1)
    with asking() as attempt:
        assert attempt("connected", f"{hole} stubborn") == f"[{errno.ETIMEDOUT}, True, 0, {errno.ETIMEDOUT}]"


def test_without_a_thread_nothing_is_started_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with asking():
        pass
    eventually(lambda: gates() == 0)
    before = descriptors()

    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(OSError, match="can't start new thread"):
        ConfinedProcess(TARGET, Confinement(network=True), None, lambda _host, _port: "")
    assert descriptors() == before
