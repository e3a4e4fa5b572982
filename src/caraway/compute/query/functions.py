"""Python steps, which call user code on pandas series."""

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle
import pandas as pd

from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.model import PythonStep
from caraway.dtypes.frames import to_timestamps
from caraway.dtypes.series import from_series, to_series
from caraway.errors import CarawayError, ExtractorError, InvalidInputError
from caraway.graph.runtime import LookupProvider, ShippedExtractor, lookup_provider

MakeProvider = Callable[[PythonStep, bool], LookupProvider]

REMEDY = "correct the function and commit it with a greater version"


class _Function:
    """A user's function, unpickled when it is first needed, so that a commit runs no user code in this process."""

    __slots__ = ("_function", "_lock", "_step")

    def __init__(self, step: PythonStep) -> None:
        self._step = step
        self._lock = threading.Lock()
        self._function: Callable[..., Any] | None = None

    def get(self) -> Callable[..., Any]:
        with self._lock:
            if self._function is None:
                self._function = self._load()
            return self._function

    def place(self, error: BaseException | None = None) -> str:
        """Return the file and line at which the user's code raised an error, else those of the function, in brackets.

        The place is in the module of the function, since the innermost line is often that of a library. Callers of
        queries see it, so it has the name of the file, and not the folders of the person who committed it. It is empty
        if the function couldn't be loaded.
        """
        loaded = self._function
        function = loaded.function if isinstance(loaded, ShippedExtractor) else loaded
        if not isinstance(function, FunctionType):
            return ""
        found = [(function.__code__.co_filename, function.__code__.co_firstlineno)]
        for frame, line in traceback.walk_tb(None if error is None else error.__traceback__):
            if frame.f_globals is function.__globals__:
                found.append((frame.f_code.co_filename, line))
        file, line = found[-1]
        return f" ({Path(file).name}:{line})"

    def _load(self) -> Callable[..., Any]:
        function = cloudpickle.loads(self._step.pickled)
        if not callable(function):
            raise TypeError(f"its pickled form is {type(function).__name__}, not a function")
        return function  # type: ignore[no-any-return]


def compile_function(step: PythonStep, make_provider: MakeProvider) -> Run:
    """Return the function that adds the outputs of a Python extractor to a batch.

    `make_provider` makes the provider of the extractor's lookups from the step, and from whether the caller of the
    query chose the times.
    """
    function = _Function(step)
    title = f"extractor {step.extractor} of featureset {step.featureset}"

    def run(batch: Batch) -> None:
        index = pd.RangeIndex(batch.rows)
        ts = pd.Series(to_timestamps(batch.instants()), index=index, name="ts")
        series = [to_series(batch.columns[c.name], c.dtype, name=c.name, index=index) for c in step.inputs]
        token = lookup_provider.set(make_provider(step, batch.past))
        try:
            result = function.get()(None, ts, *series)
        except CarawayError as error:
            raise ExtractorError(f"{title}: {error}{function.place(error)}") from error
        except (Exception, SystemExit) as error:
            told = f"{title} raised {type(error).__name__}: {error}{function.place(error)}; {REMEDY}"
            raise ExtractorError(told) from error
        finally:
            lookup_provider.reset(token)
        try:
            _take(step, title, result, batch)
        except ExtractorError as error:
            error.args = (f"{error}{function.place()}; {REMEDY}",)
            raise

    return run


def _take(step: PythonStep, title: str, result: object, batch: Batch) -> None:
    """Check the result of a function and add it to the batch; raise one error with all of its faults."""
    returned = _named(title, result)
    rows = batch.rows
    problems: list[str] = []
    columns: dict[str, list[object]] = {}
    series_of: dict[str, pd.Series[Any]] = {}
    for name, dtype in step.outputs:
        bare = name.partition(".")[2]
        series = returned.get(bare)
        if series is None:
            problems.append(
                f"{bare} isn't among the columns that it returned ({', '.join(map(str, returned)) or 'none'})"
            )
            continue
        if len(series) != rows:
            inputs = ", ".join(column.name for column in step.inputs) or "ts"
            problems.append(f"{bare} has {len(series)} rows, the inputs ({inputs}) have {rows}")
            continue
        series_of[name] = _aligned(series)
        try:
            columns[name] = from_series(series_of[name], dtype)
        except InvalidInputError as error:
            problems.append(f"{bare} {error}")
    if problems:
        raise ExtractorError(f"{title}: {'; '.join(problems)}")
    # The caller of a query may supply some of the features that this function computes. The supplied values take
    # precedence, so only the other outputs, which are in `kept`, are added.
    for name in step.kept:
        batch.columns[name] = columns[name]
        batch.returned[name] = series_of[name]


def _named(title: str, result: object) -> "Mapping[object, pd.Series[Any]]":
    match result:
        case pd.DataFrame():
            return {name: result[name] for name in result.columns if isinstance(result[name], pd.Series)}
        case pd.Series():
            if result.name is None:
                raise ExtractorError(
                    f"{title} returned a series without a name; name it after the feature: .rename('...')"
                )
            return {result.name: result}
        case _:
            raise ExtractorError(f"{title} returned {type(result).__name__}; a pandas Series or DataFrame is expected")


def _aligned(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return rows in the request's order: by label if the labels are 0 to n-1 in any order, otherwise by position."""
    labels: Sequence[object] = series.index.tolist()
    ordered = list(range(len(labels)))
    if labels == ordered:
        return series
    try:
        permuted = sorted(labels) == ordered  # type: ignore[type-var]
    except TypeError:
        permuted = False
    return series.loc[ordered] if permuted else series.reset_index(drop=True)
