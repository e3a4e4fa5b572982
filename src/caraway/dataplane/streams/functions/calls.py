"""Calls of users' functions with batches of Arrow columns, in the same way as the in-process engine calls them.

A call fails for its batch as a whole. The batch is halved then, until each failing row stands alone. This module runs
in a process of its own (`caraway.dataplane.streams.functions.process`) and needs no PySpark.
"""

import pickle
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import cloudpickle
import pyarrow as pa

from caraway.compute.reference.operators.functions import assign_call, filter_call, transform_call
from caraway.dtypes.types import DataType, ListType, MapType, StructType, base_type
from caraway.errors import InvalidInputError
from caraway.graph.operators import AssignFunction, FilterFunction, Transform
from caraway.graph.redaction import redacted
from caraway.graph.schemas import Schema

# A dead letter contains at most this many last lines of a traceback: the innermost frames and the error.
TRACEBACK_LINES = 12
# A process caches the unpickled functions of this many steps, so that it needn't unpickle them for each batch.
_KEPT = 256

UserStep = FilterFunction | AssignFunction | Transform
_Columns = Mapping[str, Sequence[object]]
_Call = Callable[[_Columns, int], Mapping[str, Sequence[object]]]
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class UserCall:
    """A user's function, as it travels to the workers.

    Attributes:
        step: The step, without those before it.
        schema: The columns of the function's input.
        result: The columns that are taken from the function's result.
    """

    step: UserStep
    schema: Schema
    result: tuple[tuple[str, DataType], ...]

    @property
    def title(self) -> str:
        """Return the step and the name of its function, for messages."""
        match self.step:
            case AssignFunction(column=column):
                step = f"assign: column {column}"
            case FilterFunction():
                step = "filter"
            case Transform():
                step = "transform"
        return f"{step}: its function {self.step.function.name}"

    def packed(self) -> bytes:
        """Return the call as bytes, by which a worker also finds it in its cache of unpickled calls."""
        return pickle.dumps(self)


class ExhaustedError(Exception):
    """A user's function used up the memory of its process, which can't be trusted any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The reason why there is no value for a row."""

    message: str
    traceback: str | None


@dataclass(frozen=True, slots=True)
class CallBatch:
    """A request to a function process: the arguments of `run`, and whether the function may ask for secrets."""

    packed: bytes
    type_: pa.StructType
    called: pa.Array
    columns: tuple[pa.Array, ...]
    has_secrets: bool

    def part(self, low: int, high: int) -> "CallBatch":
        """Return the rows from one position to another."""
        if high - low == len(self.called):
            return self
        # pickle would write the whole array behind an Arrow slice, so the rows are copied into arrays of their own.
        rows = pa.array(range(low, high), pa.int64())
        return replace(self, called=self.called.take(rows), columns=tuple(c.take(rows) for c in self.columns))


def run(packed: bytes, type_: pa.StructType, called: pa.Array, columns: Sequence[pa.Array]) -> pa.StructArray:
    """Call a packed `UserCall` for a batch.

    Args:
        packed: The call.
        type_: The type of the answer: the result's columns, `message` and `traceback` of a row that failed.
        called: For each row, whether to call the function for it; the values of other rows are null.
        columns: The columns of the schema.
    """
    user = _unpacked(packed)
    rows = [row for row, wanted in enumerate(called.to_pylist()) if wanted]
    taken = pa.array(rows, pa.int64())
    given = {
        name: [read(value) for value in column.take(taken).to_pylist()]
        for (name, read), column in zip(user.read, columns, strict=True)
    }
    out: list[dict[str, object] | None] = [None] * len(called)
    for row, found in zip(rows, results(user.call, given, len(rows)), strict=True):
        if isinstance(found, Failed):
            trace = None if found.traceback is None else redacted(found.traceback)
            out[row] = {"message": redacted(found.message), "traceback": trace}
        else:
            out[row] = {name: write(value) for (name, write), value in zip(user.write, found, strict=True)}
    return struct_array([row or {} for row in out], type_)


def unpacked_call(packed: bytes) -> UserCall:
    """Return a call that the engine has packed; the user's function in it stays bytes."""
    user: UserCall = pickle.loads(packed)  # noqa: S301 (the engine made it)
    return user


def struct_array(rows: Sequence[Mapping[str, object]], type_: pa.StructType) -> pa.StructArray:
    """Return `rows` as an array of structs."""
    array = pa.array(rows, type=type_)
    assert isinstance(array, pa.StructArray)  # noqa: S101 (that is what the type says)
    return array


def results(call: _Call, columns: _Columns, rows: int) -> list[tuple[object, ...] | Failed]:
    """Return for each row its values, or the reason why it has none.

    Raises `ExhaustedError` if the function has used up the memory, which it may still hold.
    """
    if not rows:
        return []
    try:
        return list(zip(*call(columns, rows).values(), strict=True)) or [()] * rows
    except InvalidInputError as error:
        if isinstance(error.__cause__, MemoryError):
            raise ExhaustedError from error
        if rows == 1:
            return [Failed(str(error), _last_lines(error))]
    half = rows // 2
    parts = (
        ({name: values[:half] for name, values in columns.items()}, half),
        ({name: values[half:] for name, values in columns.items()}, rows - half),
    )
    return [found for part, size in parts for found in results(call, part, size)]


@dataclass(frozen=True, slots=True)
class _Unpacked:
    call: _Call
    read: tuple[tuple[str, _Convert], ...]
    write: tuple[tuple[str, _Convert], ...]


@lru_cache(maxsize=_KEPT)
def _unpacked(packed: bytes) -> _Unpacked:
    user = unpacked_call(packed)
    # A function that can't be unpickled must fail the job and not each row, so it is unpickled once here.
    cloudpickle.loads(user.step.function.pickled)
    return _Unpacked(
        _compiled(user),
        tuple((name, _nullable(_from_arrow(dtype))) for name, dtype in user.schema.columns.items()),
        tuple((name, _nullable(_to_arrow(dtype))) for name, dtype in user.result),
    )


def _compiled(user: UserCall) -> _Call:
    names = [name for name, _ in user.result]
    match user.step:
        case FilterFunction():
            verdicts = filter_call(user.step, user.schema)
            return lambda columns, rows: {names[0]: verdicts(columns, rows)}
        case AssignFunction():
            values = assign_call(user.step, user.schema)
            return lambda columns, rows: {names[0]: values(columns, rows)}
        case Transform():
            made = transform_call(user.step, user.schema)
            return partial(_selected, made, names)


def _selected(call: _Call, names: Sequence[str], columns: _Columns, rows: int) -> _Columns:
    made = call(columns, rows)
    return {name: made[name] for name in names}


def _last_lines(error: BaseException) -> str | None:
    """Return the end of the traceback of an error of the user's function; None if its result was invalid."""
    cause = error.__cause__
    if cause is None or isinstance(cause, InvalidInputError):
        return None
    text = "".join(traceback.format_exception(cause)).rstrip()
    return "\n".join(text.splitlines()[-TRACEBACK_LINES:])


def _nullable(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _from_arrow(dtype: DataType) -> _Convert:
    """Return the conversion of Spark's values (`streams.spark.types`), as read from Arrow, to the stored form."""
    match base_type(dtype):
        case ListType(of):
            item = _nullable(_from_arrow(of))
            return lambda value: [item(each) for each in value]
        case MapType(of):
            member = _nullable(_from_arrow(of))
            # Stored maps are sorted by key.
            return lambda value: {key: member(each) for key, each in sorted(value)}
        case StructType(_, fields):
            members = [(name, _nullable(_from_arrow(of))) for name, of in fields]
            return lambda value: [member(value[name]) for name, member in members]
        case _:
            return lambda value: value


def _to_arrow(dtype: DataType) -> _Convert:
    match base_type(dtype):
        case ListType(of):
            item = _nullable(_to_arrow(of))
            return lambda value: [item(each) for each in value]
        case MapType(of):
            member = _nullable(_to_arrow(of))
            return lambda value: [(key, member(each)) for key, each in value.items()]
        case StructType(_, fields):
            members = [(name, _nullable(_to_arrow(of))) for name, of in fields]
            return lambda value: {name: member(each) for (name, member), each in zip(members, value, strict=True)}
        case _:
            return lambda value: value
