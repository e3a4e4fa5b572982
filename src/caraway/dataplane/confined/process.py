"""The server's side of the process of a connector."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog

from caraway.dataplane.addresses.limits import ConnectorLimits
from caraway.dataplane.addresses.reach import Hold, current
from caraway.dataplane.confined.forms import Form, plain
from caraway.dataplane.confined.rights import Rights
from caraway.dataplane.confined.values import unpacked
from caraway.errors import CarawayError, CommitError, UnavailableError, UnknownEntityError
from caraway.process.confinement.policy import Report
from caraway.process.confinement.process import ConfinedProcess
from caraway.process.confinement.requests import pickled

LOG = structlog.get_logger(__name__)

TARGET = "caraway.dataplane.confined.host:serve"
# A message from a process may have at most this many bytes. A batch is read from up to some 4 MiB, and its values take
# a few times as much.
LARGEST = 64 << 20
# A call fails if the process sends nothing for `SILENT_S` seconds, or if the whole call takes `CALL_S` seconds. A query
# of a large table, or the first list of many files, may be silent for many minutes. A load that asks the server again
# and again whether it may go on can take longer.
SILENT_S, CALL_S = 1_800.0, 12 * 3_600.0
# The seconds in which a process has to end its connections before it is killed.
CLOSE_S = 5.0
ERRORS: Mapping[str, type[CarawayError]] = {
    each.__name__: each for each in (UnavailableError, UnknownEntityError, CommitError)
}

S = TypeVar("S")
T = TypeVar("T")
# A function of the server that answers a question of a process.
Answer = Callable[..., object]
_told: list[Report] = []
# The processes that run, each with the ident of the thread that uses it.
_running: dict[ConfinedProcess, int] = {}


def end_of(thread: threading.Thread) -> None:
    """End the processes of connectors that a thread uses; its call raises `UnavailableError` then."""
    for process, ident in list(_running.items()):
        if ident == thread.ident:
            process.kill()


class ConnectorProcess:
    """A process with one connector, which does what it is told. It is used by one thread."""

    def __init__(
        self,
        where: str,
        limits: ConnectorLimits,
        rights: Rights,
        *,
        factory: str,
        arguments: tuple[object, ...],
        answers: Mapping[str, Answer],
        errors: Mapping[str, type[CarawayError]] = ERRORS,
        seconds: float | None = None,
    ) -> None:
        """Start the process, and make its connector; the thread is held to the limits of the connector.

        Args:
            where: The connector, for messages.
            limits: The limits of connectors.
            rights: The rights of this one.
            factory: The class that is made in the process, as "module:class"; it gets a `Platform` and the arguments.
            arguments: Its arguments; the process may see all of them.
            answers: The functions that answer the process, by the names of its questions.
            errors: The classes of errors that it may raise, by their names; others become `UnavailableError`.
            seconds: The time in which it must be made, and all its calls be answered; None: each call has its own.

        Raises:
            CarawayError: The connector can't be made; the class is one of `errors`.
            UnavailableError: No process can be started, or it has ended.
        """
        self._where, self._memory_mb = where, limits.memory_mb
        self._answers, self._errors = answers, errors
        self.calls = 0
        """The number of calls that have begun."""
        hold = current()
        try:
            self._process: ConfinedProcess | None = ConfinedProcess(
                TARGET, rights.confinement, limits.memory_mb, None if hold is None else hold.refusal
            )
        except OSError as error:
            raise UnavailableError(f"{where}: no process can be started for it: {error}") from error
        self._process.channel.largest = LARGEST
        _running[self._process] = threading.get_ident()
        self._until = None if seconds is None else time.monotonic() + seconds
        _tell(self._process.report)
        try:
            self._asked((_sent(hold), rights.environment, factory, arguments), CALL_S)
        except BaseException:
            self.end()
            raise

    def call(self, method: str, *arguments: object, seconds: float = CALL_S) -> Any:
        """Return what a method of the connector returns.

        Raises:
            CarawayError: The error of the method; the class is one of `errors`.
            UnavailableError: The process has ended, or was ended after so many seconds, or those of its life.
        """
        self.calls += 1
        return self._asked((method, arguments), seconds)

    def read(self, form: Form[T], value: object) -> T:
        """Return a value of the process in the form that it must have.

        Raises `UnavailableError` if it hasn't got it; the process is then ended.
        """
        return self.checked(form.of, value)

    def checked(self, check: Callable[[S], T], value: S) -> T:
        """Return what a check makes of a value of the process, which is ended if that is `ValueError`; see `read`."""
        try:
            return check(value)
        except ValueError as error:
            raise self.distrusted(error) from None

    def distrusted(self, error: Exception) -> UnavailableError:
        """End the process, which has sent what it must not; return the error to raise."""
        self.end()
        reason = plain(str(error))
        return UnavailableError(f"{self._where}: its process answered what it must not, and was ended: {reason}")

    def close(self) -> None:
        """Have the connector end its connections, and end the process."""
        if self._process is not None:
            with suppress(CarawayError):
                self.call("close", seconds=CLOSE_S)
        self.end()

    def end(self) -> str:
        """End the process, and return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "it was ended before"
        _running.pop(process, None)
        return process.end()

    def _asked(self, request: object, seconds: float) -> Any:
        if self._process is None:
            raise UnavailableError(f"{self._where}: its process has ended")
        channel = self._process.channel
        begun = time.monotonic()
        last = min(begun + seconds, self._until or math.inf)
        message = request
        try:
            while True:
                deadline = min(last, time.monotonic() + SILENT_S)
                channel.send(pickled(message), deadline)
                match unpacked(channel.receive(deadline)):
                    case ["ask", str(name), [*arguments]] if name in self._answers:
                        message = _answered(self._answers[name], arguments)
                    case answer:
                        return self._read(answer)
        except TimeoutError:
            self.end()
            taken = time.monotonic() - begun
            raise UnavailableError(f"{self._where}: it didn't answer within {taken:.0f} s, and was ended") from None
        except (EOFError, OSError):
            raise UnavailableError(
                f"{self._where}: its process has ended ({self.end()}), as by an error in a library, or because it "
                f"needed more memory than {self._bound()}; nothing else is concerned, and it is started again"
            ) from None

    def _read(self, answer: object) -> Any:
        match answer:
            case ["answer", value]:
                return value
            case ["error", "MemoryError", str()]:
                raise UnavailableError(f"{self._where}: it needs more memory than {self._bound()}")
            case ["error", str(kind), str(text)]:
                raise self._errors.get(kind, UnavailableError)(plain(text))
            case _:
                raise EOFError("an answer of no known kind")

    def _bound(self) -> str:
        return "there is" if self._memory_mb is None else f"the {self._memory_mb} MiB of connectors.memory_mb"


def _answered(answer: Answer, arguments: list[object]) -> tuple[object, str, str]:
    """Return the answer to a question, or the class and the text of its error."""
    try:
        return answer(*arguments), "", ""
    except CarawayError as error:
        return None, type(error).__name__, str(error)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        # The arguments come from a process that isn't trusted. Wrong ones are reported to the process, and aren't an
        # error of the server.
        return None, "UnavailableError", str(error)


def _sent(hold: Hold | None) -> Hold | None:
    """Return limits as they are sent to a process, whose connections the platform checks a second time."""
    if hold is None:
        return None
    networks = replace(hold.networks, services=partial(tuple, list(hold.networks.services())), _known={})
    return replace(hold, networks=networks, _refused=(0.0, ""))


def _tell(report: Report) -> None:
    """Log the confinement of connectors once, and again if it changes."""
    if report in _told:
        return
    _told[:] = [report]
    if report.missing:
        LOG.warning("processes of connectors lack a part of their confinement", confinement=str(report))
    else:
        LOG.info("connectors run in processes of their own", confinement=str(report))
