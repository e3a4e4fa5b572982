"""Calls of users' functions in `preproc` and `where`, each with a batch of the payload as a frame."""

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from caraway.dtypes.values import LENIENT, NEVER_NULL, Manner, is_null
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.functions import PythonFunction

# The values for the rows for which a function succeeds, in the order of the rows; and for each other row of the batch,
# by its position, the reason why the function fails.
Outcome = tuple[list[object], Mapping[int, str]]
FunctionCaller = Callable[[PythonFunction, pd.DataFrame], Outcome]


def call_here(function: PythonFunction, frame: pd.DataFrame) -> Outcome:
    """Call a function in this process with all rows; if it fails, row by row, so that only bad rows are refused.

    Raises `UnavailableError` if the function can't be loaded, as one that uses a module that isn't installed here: that
    is no fault of the rows.
    """
    try:
        call = _loaded(function.pickled)
    except Exception as error:
        raise UnavailableError(f"{function.name} can't be loaded here: {type(error).__name__}: {error}") from error
    try:
        return _series(call(frame), len(frame), function), {}
    except Exception:  # noqa: BLE001 (a user's function may raise anything)
        values: list[object] = []
        errors: dict[int, str] = {}
        for position in range(len(frame)):
            try:
                row = frame.iloc[[position]].reset_index(drop=True)
                values += _series(call(row), 1, function)
            except Exception as error:  # noqa: BLE001
                errors[position] = f"{function.name} raised {type(error).__name__}: {error}"
        return values, errors


def refuse_functions(function: PythonFunction, frame: pd.DataFrame) -> Outcome:
    """Refuse all rows: users' functions run only in processes of their own, and this process may not start any."""
    return [], dict.fromkeys(range(len(frame)), f"{function.name} can't run: no process runs users' functions here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The way in which a process converts rows: how lenient its casts are, and how it calls users' functions."""

    manner: Manner = LENIENT
    call: FunctionCaller = call_here


# The conversion of the mock client for tests: it runs users' functions in its own process, because they are code of the
# same program.
HERE = Conversion()


def without_nan(values: Iterable[object]) -> list[object]:
    """Return the values with None in place of all that stands for null in pandas."""
    values = list(values)
    # The set of a column's types shows quickly that no value stands for null.
    return values if set(map(type, values)) <= NEVER_NULL else [None if is_null(value) else value for value in values]


def _series(result: Any, rows: int, function: PythonFunction) -> list[object]:
    if not isinstance(result, pd.Series) or len(result) != rows:
        size = f" of {len(result)}" if hasattr(result, "__len__") else ""
        raise InvalidInputError(
            f"{function.name} returned {type(result).__name__}{size}; a Series with a value for each of the {rows} "
            "rows is expected"
        )
    return without_nan(result.tolist())


@lru_cache(maxsize=1024)
def _loaded(pickled: bytes) -> Any:
    """Return a user's function, unpickled once a process."""
    return pickle.loads(pickled)  # noqa: S301 (the definitions of those who run this process)
