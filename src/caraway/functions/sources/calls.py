"""Users' functions in preproc and where, called in a process of their own that may only compute."""

import threading

import pandas as pd

from caraway.errors import UnavailableError
from caraway.functions.confinement.policy import Confinement
from caraway.functions.confinement.requests import EndedError, RestartedProcess
from caraway.graph.functions import PythonFunction
from caraway.graph.runtime import SecretProvider
from caraway.rows.calls import Outcome

TARGET = "caraway.functions.sources.process:serve"
# The most rows of one batch for which a function may hang or end its process; at the next one the whole source waits.
# Otherwise a function that does so for every row would turn all rows into dead letters, each after the time limit.
MAX_ENDED = 3


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
        """Return the values of a function; see `caraway.rows.calls.call_here`.

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
        """Return the values of a function; raises as `RestartedProcess.ask` does."""

        def read(answer: object) -> Outcome:
            match answer:
                case ["unsendable", str(reason)]:
                    return [], dict.fromkeys(range(len(frame)), f"{function.name} returned values: {reason}")
                case _:
                    return _outcome(answer, len(frame))

        return self._process.ask((function, frame), self._seconds, self._secrets, read)


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
