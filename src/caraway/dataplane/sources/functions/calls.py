"""Users' functions in preproc and where, called in a process of their own that may only compute."""

import threading
import time
from collections.abc import Callable

import pandas as pd

from caraway.compute.rows.calls import Outcome
from caraway.errors import UnavailableError
from caraway.graph.functions import PythonFunction
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.requests import EndedError, RestartedProcess
from caraway.process.secrets.provider import SecretProvider

TARGET = "caraway.dataplane.sources.functions.process:serve"
# For at most this many rows of a batch, a function may hang or end its process. With one row more, the batch fails, and
# the whole source waits. Otherwise a function that fails so for every row would turn all rows into dead letters, each
# after the time limit.
MAX_ENDED = 3
# The most idle processes of `SeparateCalls`, and the seconds after which an idle one is ended.
MAX_IDLE = 8
IDLE_S = 600.0


class FunctionCalls:
    """Calls functions in one process, which is started when it is first needed. Thread safe."""

    def __init__(
        self, seconds: float, memory_mb: int | None, *, confinement: Confinement, secrets: SecretProvider
    ) -> None:
        """Prepare calls of at most `seconds` each and `memory_mb` MiB; `secrets` answers `secrets.get`."""
        self._seconds = seconds
        self._secrets = secrets
        self._lock = threading.Lock()
        self._process = RestartedProcess(TARGET, confinement, memory_mb)

    def __call__(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        """Return the values of a function; see `caraway.compute.rows.calls.call_here`.

        Raises:
            UnavailableError: No process can be started, or the function ended it for several rows.
        """
        with self._lock:
            try:
                return self._asked(function, frame)
            except EndedError:
                return self._row_by_row(function, frame)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            self._process.end()

    def stop_if_idle(self) -> bool:
        """End the process if it isn't running a function, and return whether that is so."""
        idle = self._lock.acquire(blocking=False)
        if idle:
            try:
                self._process.end()
            finally:
                self._lock.release()
        return idle

    def _row_by_row(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        values: list[object] = []
        errors: dict[int, str] = {}
        ended = 0
        for position in range(len(frame)):
            row = frame.iloc[[position]].reset_index(drop=True)
            try:
                made, reasons = self._asked(function, row)
            except EndedError as error:
                ended += 1
                if ended > MAX_ENDED:
                    raise UnavailableError(f"{function.name} {error}, for {ended} rows of one batch") from None
                made, reasons = [], {0: f"{function.name} {error}"}
            values += made
            errors |= dict.fromkeys((position for _ in reasons), next(iter(reasons.values()), ""))
        return values, errors

    def _asked(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        """Return the values of a function.

        Raises `UnavailableError` if the function can't be loaded, and else as `RestartedProcess.ask` does.
        """

        def read(answer: object) -> Outcome:
            match answer:
                case ["unloadable", str(reason)]:
                    raise UnavailableError(reason)
                case ["unsendable", str(reason)]:
                    return [], dict.fromkeys(range(len(frame)), f"{function.name} returned values: {reason}")
                case _:
                    return _outcome(answer, len(frame))

        return self._process.ask((function, frame), self._seconds, self._secrets, read)


class SeparateCalls:
    """Calls each function in a process that runs no other function. Thread safe.

    The functions of webhooks belong to several branches, whose authors may not see each other's rows.
    """

    def __init__(self, make: Callable[[], FunctionCalls]) -> None:
        """Prepare calls; `make` returns the calls of one function."""
        self._make = make
        self._lock = threading.Lock()
        # The calls of each function, by its pickle, with the time of its last call. The function that was called last
        # is at the end.
        self._made: dict[bytes, tuple[FunctionCalls, float]] = {}

    def __call__(self, function: PythonFunction, frame: pd.DataFrame) -> Outcome:
        """Return the values of a function; see `FunctionCalls`."""
        with self._lock:
            known = self._made.pop(function.pickled, None)
            calls = self._make() if known is None else known[0]
            self._made[function.pickled] = calls, time.monotonic()
        self._end(len(self._made) - MAX_IDLE, 0.0)
        return calls(function, frame)

    def end_idle(self) -> None:
        """End the processes that no call has used for `IDLE_S`."""
        self._end(len(self._made), IDLE_S)

    def stop(self) -> None:
        """End all processes."""
        with self._lock:
            made, self._made = self._made, {}
        for calls, _ in made.values():
            calls.stop()

    def _end(self, most: int, idle_s: float) -> None:
        """End at most so many processes that no call has used for so long."""
        before = time.monotonic() - idle_s
        with self._lock:
            for pickled, (calls, used_at) in list(self._made.items()):
                if most > 0 and used_at <= before and calls.stop_if_idle():
                    del self._made[pickled]
                    most -= 1


def _outcome(answer: object, rows: int) -> Outcome:
    """Return the values and errors in an answer.

    Raises `EOFError` if the answer isn't about `rows` rows, which shows that a function has taken the process over.
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
