"""The port at which Spark's workers get secrets for users' functions from the engine, which runs the driver.

No secret is in a plan, a checkpoint or Spark's settings (which stand on command lines). A function carries only the
address of a port and its password, which is new at each start of the engine. The engine and the worker prove to each
other that they know the password. On a cluster the secrets themselves go over the network in the same way as Spark's
own data.
"""

import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge

from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.process.secrets.provider import SecretProvider

# Seconds for which a worker of Spark uses a secret without asking the engine again. A running function sees a changed
# secret after at most this time plus the delay with which the engine itself sees it.
KEPT_S = 10.0
# The random bytes of a password, too many to guess.
PASSWORD_BYTES = 32
# Seconds for which the port waits for each message of a caller who hasn't proved yet that it knows the password, and
# the most such callers at a time. If there is one more, the one that has waited longest is disconnected.
PROVING_S, PROVING = 5, 64
# Seconds until the port accepts the next caller if it couldn't accept one.
REFUSED_S = 0.05
# The kinds of answers of the engine: the secret's value; that there is no such secret; and that it can't be read at the
# moment, since its store doesn't answer. With the latter two comes the reason, as text.
_FOUND, _MISSING, _AWAY = "found", "missing", "away"


@dataclass(frozen=True, slots=True)
class SecretAddress:
    """The address of a `SecretPort`."""

    host: str
    port: int
    password: bytes = field(repr=False)


class SecretPort:
    """Sends secrets to workers, in threads: one that accepts connections, and one for each connection.

    Callers prove in their own threads that they know the password, so that a silent one keeps nobody else waiting.
    """

    def __init__(self, get: SecretProvider, host: str = "127.0.0.1") -> None:
        """Serve the secrets of `get` on a free port of `host`."""
        self._get = get
        password = secrets.token_bytes(PASSWORD_BYTES)
        # The listener itself has no password. With one it would check each caller before it accepts the next one, so a
        # silent caller would keep all others waiting.
        self._listener = Listener((host, 0), family="AF_INET", backlog=PROVING)
        # The sockets of the callers who haven't proved yet that they know the password, the oldest first.
        self._proving: list[socket.socket] = []
        self._lock = threading.Lock()
        self.address = SecretAddress(host, self._listener.address[1], password)
        self._closing = threading.Event()
        threading.Thread(target=self._accept, name="secret-port", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._closing.set()
        with suppress(OSError):
            self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            caller: Connection | None = None
            try:
                caller = self._listener.accept()
                proving = socket.socket(fileno=os.dup(caller.fileno()))
            except OSError:
                # The caller has closed the connection, the port is closed, or the process has no file descriptors left.
                # Descriptors may be missing for a while, and without a pause this loop would use a whole processor
                # meanwhile.
                if caller is not None:
                    caller.close()
                self._closing.wait(REFUSED_S)
                continue
            with self._lock:
                if len(self._proving) >= PROVING:
                    with suppress(OSError):
                        self._proving.pop(0).shutdown(socket.SHUT_RDWR)
                self._proving.append(proving)
            threading.Thread(target=self._answer, args=(caller, proving), name="secret-port", daemon=True).start()

    def _prove(self, caller: Connection, proving: socket.socket) -> None:
        """Check that the caller knows the password, and prove the same to the caller; slow callers are let go."""
        proving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PROVING_S, 0))
        try:
            deliver_challenge(caller, self.address.password)
            answer_challenge(caller, self.address.password)
        finally:
            # The socket leaves the list before it is closed. So `_accept` never shuts down a file descriptor whose
            # number has been given to another connection since.
            with self._lock, suppress(ValueError):
                self._proving.remove(proving)
        proving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))

    def _answer(self, caller: Connection, proving: socket.socket) -> None:
        with suppress(EOFError, OSError, AuthenticationError), caller:
            with proving:
                self._prove(caller, proving)
            while True:
                name = caller.recv_bytes().decode()
                try:
                    caller.send((_FOUND, self._get(name)))
                except UnavailableError as error:
                    caller.send((_AWAY, str(error)))
                except CarawayError as error:
                    caller.send((_MISSING, str(error)))


# The port that this process, the driver, has opened; at most one.
_ports: list[SecretPort] = []


def open_port(get: SecretProvider, host: str = "127.0.0.1") -> SecretPort:
    """Open the port at which functions of jobs that are started from now on get the secrets of `get`."""
    _ports[:] = [SecretPort(get, host)]
    return _ports[0]


def secret_address() -> SecretAddress | None:
    """Return the address that functions carry; None if this process serves no secrets."""
    return _ports[0].address if _ports else None


@lru_cache(maxsize=8)
def provider_of(address: SecretAddress) -> SecretProvider:
    """Return a provider that gets secrets from the port at `address`."""
    return _Asking(address, time.monotonic).get


class _Asking:
    """A client of a `SecretPort`, which keeps secrets for `KEPT_S`."""

    def __init__(self, address: SecretAddress, clock: Callable[[], float]) -> None:
        self._address = address
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}
        self._connection: Connection | None = None

    def get(self, name: str) -> str:
        """Return a secret.

        Raises:
            UnknownEntityError: There is no secret of this name.
            UnavailableError: The engine doesn't answer.
        """
        known = self._known.get(name)
        if known is not None and self._clock() < known[0] + KEPT_S:
            return known[1]
        kind, text = self._ask(name)
        if kind != _FOUND:
            raise UnknownEntityError(text) if kind == _MISSING else UnavailableError(text)
        self._known[name] = self._clock(), text
        return text

    def _ask(self, name: str) -> tuple[str, str]:
        try:
            if self._connection is None:
                self._connection = Client((self._address.host, self._address.port), authkey=self._address.password)
            self._connection.send_bytes(name.encode())
            answer: tuple[str, str] = self._connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            self._connection = None
            raise UnavailableError(f"the engine doesn't answer when asked for secret {name!r}") from error
        return answer
