"""The connections of sources and sinks, each of which is checked at the address to which it is opened.

A thread that reads a source or writes a sink is *held*, and so are the threads that it starts. In a held thread

* Python's own sockets, which most libraries use, are checked by a hook of the interpreter (PEP 578), after the name of
  a host has become an address;
* libpq connects to addresses that were checked (`pinned`);
* what else a library connects to is only opened by the platform, if that is possible
  (`caraway.process.confinement.connections`), so these checks have errors come early, and tell the reason.
"""

import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from caraway.dataplane.addresses.networks import Networks
from caraway.errors import CommitError, UnavailableError

_KAFKA_PORT = 9092

# Seconds for which errors are put down to an earlier refusal: a library repeats its attempts before it raises an error.
_DUE_S = 60.0


@dataclass(slots=True)
class Hold:
    """The limits of one source or sink.

    Attributes:
        networks: The networks.
        metadata: True if it may use the server's identity.
        own_rights: The addresses below which it may; None: there is no limit.
    """

    networks: Networks
    metadata: bool = False
    own_rights: tuple[str, ...] | None = None
    _refused: tuple[float, str] = field(default=(0.0, ""))

    def refusal(self, address: str, port: int) -> str:
        """Return why an address isn't reached, and note it; empty if it is."""
        text = self.networks.refusal(address, port, metadata=self.metadata)
        if text:
            self._refused = (time.monotonic(), text)
        return text

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold this thread; an error of the block tells the refusal that is its cause, whatever the library says."""
        _install()
        thread = threading.current_thread()
        before = _HELD.get(thread)
        _HELD[thread] = self
        try:
            yield
        except (UnavailableError, CommitError) as error:
            at, text = self._refused
            if not text or text in str(error) or time.monotonic() > at + _DUE_S:
                raise
            kind = CommitError if isinstance(error, CommitError) else UnavailableError
            raise kind(f"{text} ({error})") from error
        finally:
            if before is None:
                del _HELD[thread]
            else:
                _HELD[thread] = before


_HELD: WeakKeyDictionary[threading.Thread, Hold] = WeakKeyDictionary()


def current() -> Hold | None:
    """Return what holds this thread; None if nothing does."""
    return _HELD.get(threading.current_thread())


@cache
def _install() -> None:
    sys.addaudithook(_look)
    start = threading.Thread.start

    def start_held(self: threading.Thread) -> None:
        hold = current()
        if hold is not None:
            _HELD[self] = hold
        start(self)

    # Libraries such as MongoDB's connect in threads of their own. A new thread gets the limits (`Hold`) of the thread
    # that starts it, in which `start` runs.
    threading.Thread.start = start_held  # type: ignore[method-assign]


def _look(event: str, args: tuple[Any, ...]) -> None:
    # The interpreter calls this for all of its audit events, so the test for a connection comes first.
    if event == "socket.connect":
        hold = current()
        if hold is not None and args[0].family in {socket.AF_INET, socket.AF_INET6}:
            host, port = args[1][:2]
            if text := hold.refusal(str(host), int(port)):
                raise PermissionError(errno.EACCES, text)


def pinned(host: str, port: int) -> dict[str, Any]:
    """Return libpq's parameters of a host, or of several with commas between them, with addresses that were checked.

    Raises `UnavailableError` if the host isn't known, or may not be reached.
    """
    hold = current()
    if hold is None:
        return {"host": host, "port": port}
    hosts: list[str] = []
    addresses: list[str] = []
    refused = ""
    for name in host.split(","):
        for address in _found(name, port):
            if text := hold.refusal(address, port):
                refused = text
            else:
                hosts.append(name)
                addresses.append(address)
    if not addresses:
        raise UnavailableError(refused)
    return {
        "host": ",".join(hosts),
        "hostaddr": ",".join(addresses),
        "port": ",".join([str(port)] * len(hosts)) if len(hosts) > 1 else port,
    }


def _found(name: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(name.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"the host {name} isn't known: {error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def check_brokers(servers: str) -> None:
    """Raise `UnavailableError` at once if none of some brokers of Kafka may be reached; see `check_hosts`."""
    check_hosts(servers, _KAFKA_PORT)


def check_hosts(hosts: str, port: int) -> None:
    """Raise `UnavailableError` at once if none of some hosts may be reached, where a library would try for long.

    Args:
        hosts: The names of hosts, each maybe with its own port, and commas between them.
        port: The port of a host without one.
    """
    hold = current()
    if hold is None:
        return
    refusals = [_refused(hold, each, port) for each in hosts.split(",")]
    if all(refusals):
        raise UnavailableError(refusals[0])


def _refused(hold: Hold, server: str, default: int) -> str:
    """Return why a host isn't reached; empty if one of its addresses is, or its name isn't known now."""
    host, _, port = server.strip().rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        host, port = f"{host}:{port}".strip(":"), str(default)
    try:
        found = _found(host, int(port))
    except UnavailableError:
        return ""
    texts = [hold.refusal(address, int(port)) for address in found]
    return texts[0] if all(texts) else ""
