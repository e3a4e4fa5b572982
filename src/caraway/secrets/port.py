"""The port at which Spark's workers get secrets for users' functions from the engine, which runs the driver.

No secret is in a plan, a checkpoint or Spark's settings (which stand on command lines). A function carries only the
address of a port and its password, which is new at each start of the engine. The engine and the worker prove to each
other that they know the password. On a cluster the secrets themselves go over the network in the same way as Spark's
own data.
"""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.graph.runtime import SecretProvider

# Seconds for which a worker of Spark uses a secret without asking the engine again. So a running function sees a
# changed secret after at most this time and the engine's own delay.
KEPT_S = 10.0
# The random bytes of a password, too many to guess.
PASSWORD_BYTES = 32
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
    """Sends secrets to workers, in threads: one that accepts connections, and one for each connection."""

    def __init__(self, get: SecretProvider, host: str = "127.0.0.1") -> None:
        """Serve the secrets of `get` on a free port of `host`."""
        self._get = get
        password = secrets.token_bytes(PASSWORD_BYTES)
        self._listener = Listener((host, 0), family="AF_INET", authkey=password)
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
            try:
                caller = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                # The caller didn't know the password, or closed the connection.
                continue
            threading.Thread(target=self._answer, args=(caller,), name="secret-port", daemon=True).start()

    def _answer(self, caller: Connection) -> None:
        with suppress(EOFError, OSError), caller:
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
