"""The program of a process that runs one connector, until the server goes away or ends it.

The server sends what is to be made and which of its methods are to be called, pickled; what comes back is MessagePack
(`caraway.dataplane.confined.values`). Before it answers, the process may ask the server by name, as for a secret.
"""

import os
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pkgutil import resolve_name
from typing import Any

from caraway.dataplane.confined.values import packed
from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.graph.systems import Secretish
from caraway.process.collector import collect_rarely
from caraway.process.confinement.channel import Channel
from caraway.process.confinement.requests import received


class Platform:
    """The server, as the process of a connector may ask it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def ask(self, name: str, *arguments: object) -> Any:
        """Return the server's answer to a question, or raise its `UnavailableError` or `UnknownEntityError`."""
        try:
            self._channel.send(packed(["ask", name, list(arguments)]))
            answer, kind, reason = received(self._channel)
        except (EOFError, OSError):
            # The server has ended this connector. An exception would look to the connector's library like an error of
            # its system.
            os._exit(0)
        if kind:
            raise UnknownEntityError(reason) if kind == "UnknownEntityError" else UnavailableError(reason)
        return answer

    def resolve(self, secret: Secretish) -> str:
        """Return the value of a secret, for which the server is asked. Raises what `ask` does."""
        if isinstance(secret, str):
            return secret
        return str(self.ask("secret", secret.arn, secret.role_arn, list(secret.path)))


def serve(channel: Channel) -> None:
    """Make what the server names, and call its methods."""
    collect_rarely()
    hold, environment, factory, arguments = received(channel)
    os.environ.update(environment)
    held = nullcontext if hold is None else hold.held
    made: list[Any] = []

    def make() -> None:
        with held():
            made.append(resolve_name(factory)(Platform(channel), *arguments))

    channel.send(_answer(make))
    try:
        while True:
            method, given = received(channel)

            def call(method: str = method, given: tuple[object, ...] = given) -> object:
                with held():
                    return getattr(made[0], method)(*given)

            channel.send(_answer(call))
            if (work_ahead := getattr(made[0], "work_ahead", None)) is not None:
                with held():
                    work_ahead()
    finally:
        # The connector is also closed if the server has disappeared. Nobody would see an error of it then.
        with suppress(Exception):
            made[0].close()


def warm_up() -> None:
    """Load what most connectors need, so that all processes share it."""
    for module in ("confluent_kafka", "pyarrow.parquet", "httpx2", "psycopg"):
        with suppress(ImportError):
            __import__(module)


def _answer(work: Callable[[], object]) -> bytes:
    """Return the message about a call."""
    try:
        return packed(["answer", work()])
    except CarawayError as error:
        return packed(["error", type(error).__name__, str(error)])
    except MemoryError:
        return packed(["error", "MemoryError", ""])
    except Exception as error:  # noqa: BLE001 (whatever a library raises is told)
        traceback.print_exc()
        return packed(["error", type(error).__name__, f"{type(error).__name__}: {error}"])
