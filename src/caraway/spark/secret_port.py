"""How Spark's workers get the secrets that users' functions ask them for: from the engine, which runs the driver.

A value is never in a plan, a checkpoint or Spark's settings (these stand on command lines): what travels with a
function is the address of a port, and the password of it, which is another one after each start of the engine. Both
sides prove that they know the password; on a cluster the values themselves go over the network as Spark's own data do.
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

# A changed secret is seen by running functions after this time.
KEPT_S = 10.0
PASSWORD_BYTES = 32
# What an answer is: the value, or why there is none.
_FOUND, _MISSING, _AWAY = "found", "missing", "away"


@dataclass(frozen=True, slots=True)
class SecretAddress:
    """Where a function asks for secrets."""

    host: str
    port: int
    password: bytes = field(repr=False)


class SecretPort:
    """Answers functions, in threads: one that accepts, and one for each worker that asks."""

    def __init__(self, get: SecretProvider, host: str = "127.0.0.1") -> None:
        """Answer what `get` knows, on a free port of `host`."""
        self._get = get
        password = secrets.token_bytes(PASSWORD_BYTES)
        self._listener = Listener((host, 0), family="AF_INET", authkey=password)
        self.address = SecretAddress(host, self._listener.address[1], password)
        self._closing = threading.Event()
        threading.Thread(target=self._accept, name="secret-port", daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._closing.set()
        with suppress(OSError):
            self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                caller = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                # Whoever it was didn't know the password, or went away.
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


# The port of this process, the driver's.
_ports: list[SecretPort] = []


def open_port(get: SecretProvider, host: str = "127.0.0.1") -> SecretPort:
    """Let the functions of jobs that are started from now on get secrets of `get`."""
    _ports[:] = [SecretPort(get, host)]
    return _ports[0]


def secret_address() -> SecretAddress | None:
    """Return what is to travel with functions; None if this process has no secrets for them."""
    return _ports[0].address if _ports else None


@lru_cache(maxsize=8)
def provider_of(address: SecretAddress) -> SecretProvider:
    """Return what asks for secrets at an address."""
    return _Asking(address, time.monotonic).get


class _Asking:
    """Asks for secrets, and keeps them for a while."""

    def __init__(self, address: SecretAddress, clock: Callable[[], float]) -> None:
        self._address = address
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}
        self._connection: Connection | None = None

    def get(self, name: str) -> str:
        """Return a secret.

        Raises:
            UnknownEntityError: There is none of this name.
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
