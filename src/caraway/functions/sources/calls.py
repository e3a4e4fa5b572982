"""Users' functions in preproc and where, called in a process of their own that may only compute."""

import pickle
import threading
import time

import pandas as pd

from caraway.errors import CarawayError, UnavailableError
from caraway.functions.confinement.policy import Confinement
from caraway.functions.confinement.process import ConfinedProcess
from caraway.functions.confinement.values import unpacked
from caraway.graph.functions import PythonFunction
from caraway.graph.runtime import SecretProvider
from caraway.rows.calls import Outcome

TARGET = "caraway.functions.sources.process:serve"
# Rows of one batch for which a function may hang or end its process before the whole source waits: a function that does
# so for every row would otherwise turn all rows into dead letters, each after the time limit.
MAX_ENDED = 3


class _EndedError(Exception):
    """The process gave no answer; the text says why."""


class FunctionCalls:
    """Calls functions in one process, which is started when it is first needed. Thread safe."""

    def __init__(
        self, seconds: float, memory_mb: int | None, *, confinement: Confinement, secrets: SecretProvider
    ) -> None:
        """Prepare calls of at most `seconds` each and `memory_mb` MiB; `secrets` answers `secrets.get`."""
        self._seconds = seconds
        self._memory_mb = memory_mb
        self._confinement = confinement
        self._secrets = secrets
        self._lock = threading.Lock()
        self._process: ConfinedProcess | None = None

    def __call__(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        """Return the values of a function; see `caraway.rows.calls.call_here`.

        Raises:
            UnavailableError: No process can be started, or the function ended it for several rows.
        """
        with self._lock:
            try:
                return self._asked(function, frame)
            except _EndedError:
                return self._row_by_row(function, frame)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _row_by_row(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        values: list[object] = []
        errors: dict[int, str] = {}
        ended = 0
        for position in range(len(frame)):
            row = frame.iloc[[position]].reset_index(drop=True)
            try:
                made, reasons = self._asked(function, row)
            except _EndedError as error:
                ended += 1
                if ended > MAX_ENDED:
                    raise UnavailableError(f"{function.name} {error}, for {ended} rows of one batch") from None
                made, reasons = [], {0: f"{function.name} {error}"}
            values += made
            errors |= dict.fromkeys((position for _ in reasons), next(iter(reasons.values()), ""))
        return values, errors

    def _asked(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        """Send a frame and wait for the answer.

        Raises:
            _EndedError: There was no answer in time, or the process has ended.
            UnavailableError: No process can be started.
        """
        if self._process is None:
            try:
                self._process = ConfinedProcess(TARGET, self._confinement, self._memory_mb)
            except OSError as error:
                raise UnavailableError(f"no process for users' functions can be started: {error}") from error
        channel = self._process.channel
        deadline = time.monotonic() + self._seconds
        message: object = (function, frame)
        try:
            while True:
                channel.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), deadline)
                match unpacked(channel.receive(deadline)):
                    case ["secret", str(name)]:
                        message = self._secret(name)
                    case ["unsendable", str(reason)]:
                        return [], dict.fromkeys(range(len(frame)), f"{function.name} returned values: {reason}")
                    case answer:
                        return _outcome(answer, len(frame))
        except TimeoutError:
            self._end()
            raise _EndedError(f"did not end within {self._seconds:g} s") from None
        except (EOFError, ConnectionError):
            raise _EndedError(f"ended its process ({self._end()})") from None

    def _secret(self, name: str) -> tuple[str | None, str]:
        try:
            return self._secrets(name), ""
        except CarawayError as error:
            return None, str(error)

    def _end(self) -> str:
        process, self._process = self._process, None
        return "" if process is None else process.end()


def _outcome(answer: object, rows: int) -> Outcome:
    """Return the values and errors in an answer.

    Raises `EOFError` if they aren't those of as many rows, so a function has taken the process over.
    """
    match answer:
        case ["done", [list(values), list(reasons)]]:
            pass
        case _:
            raise EOFError
    errors: dict[int, str] = {}
    for reason in reasons:
        match reason:
            case [int(position), str(message)] if 0 <= position < rows:
                errors[position] = message
            case _:
                raise EOFError
    if len(values) + len(errors) != rows:
        raise EOFError
    return values, errors
