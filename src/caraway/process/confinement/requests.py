"""Requests of the platform to a process of users' functions, which may ask for secrets before it answers.

`RestartedProcess`, `pickled` and `secret_answer` are for the platform, `received` and `secrets_through` for the
process.
"""

import pickle
import time
from collections.abc import Callable
from typing import Any, TypeVar

from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.process.confinement.channel import Channel
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.process import ConfinedProcess
from caraway.process.confinement.values import packed, unpacked
from caraway.process.secrets.provider import SecretProvider

Answer = TypeVar("Answer")


class EndedError(Exception):
    """A process of users' functions was ended, or has ended, without an answer; the text says why."""


class RestartedProcess:
    """A process that answers one request after the other. It is started by the first request, and again if it ended."""

    def __init__(self, target: str, confinement: Confinement, memory_mb: int | None) -> None:
        """Prepare a process that runs `target`, a "module:function", with these rights and at most `memory_mb`."""
        self._start: Callable[[], ConfinedProcess] = lambda: ConfinedProcess(target, confinement, memory_mb)
        self._process: ConfinedProcess | None = None

    @property
    def fresh(self) -> bool:
        """Return whether the next request is the first one of a new process."""
        return self._process is None

    def ask(
        self,
        request: object,
        seconds: float,
        secrets: SecretProvider | None,
        read: Callable[[object], Answer],
        unpack: Callable[[bytes], object] = unpacked,
    ) -> Answer:
        """Send a request, answer the questions for secrets that follow, and return what `read` makes of the answer.

        Args:
            request: The request, which is pickled.
            seconds: The time for the answer, without the time to start a process.
            secrets: The secrets that the function may ask for; None means none.
            read: Parses the answer, which may be any value, since a function can write to the channel. It raises
                `EOFError` for a value that is no answer.
            unpack: Returns the value of the bytes of an answer.

        Raises:
            EndedError: There was no answer in time, or the process has ended.
            UnavailableError: No process can be started.
        """
        try:
            process = self._process = self._process or self._start()
        except OSError as error:
            raise UnavailableError(f"no process for users' functions can be started: {error}") from error
        deadline = time.monotonic() + seconds
        message = request
        try:
            while True:
                process.channel.send(pickled(message), deadline)
                match unpack(process.channel.receive(deadline)):
                    case ["secret", str(name)] if secrets is not None:
                        message = secret_answer(secrets, name)
                    case answer:
                        return read(answer)
        except TimeoutError as error:
            self.end()
            raise EndedError(f"did not end within {seconds:g} s") from error
        except (EOFError, ConnectionError) as error:
            raise EndedError(f"ended its process ({self.end()})") from error

    def end(self) -> str:
        """End the process if it still runs, and return how it ended."""
        process, self._process = self._process, None
        return "not started" if process is None else process.end()


def pickled(message: object) -> bytes:
    """Return a message of the platform as bytes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def secret_answer(secrets: SecretProvider, name: object) -> tuple[str | None, str, bool]:
    """Return a secret's value or the reason why there is none, and whether the secrets can't be reached now."""
    try:
        return secrets(str(name)), "", False
    except CarawayError as error:
        return None, str(error), isinstance(error, UnavailableError)


def received(channel: Channel) -> Any:
    """Wait for a message of the platform, in a process of users' functions."""
    # Unpickling can run code that the sender chooses. Here that is safe: only the platform sends to this process, and
    # the platform has more rights than this process.
    return pickle.loads(channel.receive())  # noqa: S301


def secrets_through(channel: Channel) -> SecretProvider:
    """Return a provider that asks the platform for each secret, in a process of users' functions."""

    def get(name: str) -> str:
        channel.send(packed(["secret", name]))
        value, reason, unavailable = received(channel)
        if value is None:
            raise UnavailableError(reason) if unavailable else UnknownEntityError(reason)
        found: str = value
        return found

    return get
