"""The inputs of a query, cast to the types of the features."""

from collections.abc import Mapping, Sequence

from caraway.compute.query.model import InputColumn
from caraway.dtypes.types import (
    BoolType,
    DataType,
    OptionalType,
    StringType,
    base_type,
    is_optional,
    type_name,
)
from caraway.dtypes.values import INPUTS, Manner, cast
from caraway.errors import InvalidInputError

Table = Sequence[object] | Mapping[str, object]

# The types for which a value of exactly this Python type is in stored form already.
_AS_IT_IS: dict[DataType, type] = {BoolType(): bool, StringType(): str}


def input_columns(inputs: Sequence[InputColumn], data: Table) -> tuple[dict[str, list[object]], int]:
    """Return the input columns in rows (a list of objects) or columns (an object of lists), cast to their types.

    Columns that aren't inputs are ignored. Values that a caller supplies needn't meet the restrictions of a type. The
    columns are returned by name, with the number of rows.

    Raises `InvalidInputError` if a column is missing, columns differ in length, or a value can't be cast.
    """
    raw, rows = _from_columns(inputs, data) if isinstance(data, Mapping) else _from_rows(inputs, data)
    return {column.name: cast_input(column.name, column.dtype, raw[column.name]) for column in inputs}, rows


def _from_rows(inputs: Sequence[InputColumn], data: Sequence[object]) -> tuple[dict[str, list[object]], int]:
    names = [column.name for column in inputs]
    raw: dict[str, list[object]] = {}
    try:
        for name in names:
            raw[name] = [row[name] for row in data]  # type: ignore[index]
    except (KeyError, TypeError, IndexError):
        raise _row_error(names, data) from None
    if not names:
        _require_objects(data)
    return raw, len(data)


def _row_error(names: Sequence[str], data: Sequence[object]) -> InvalidInputError:
    _require_objects(data)
    for number, row in enumerate(data):
        if isinstance(row, dict):
            for name in names:
                if name not in row:
                    return InvalidInputError(f"data: row {number} has no value for the input {name}")
    return InvalidInputError("data: the rows can't be read")


def _require_objects(data: Sequence[object]) -> None:
    for number, row in enumerate(data):
        if not isinstance(row, dict):
            raise InvalidInputError(f"data: row {number} is {type(row).__name__}, an object is expected")


def _from_columns(inputs: Sequence[InputColumn], data: Mapping[str, object]) -> tuple[dict[str, list[object]], int]:
    raw: dict[str, list[object]] = {}
    for column in inputs:
        values = data.get(column.name)
        if column.name not in data:
            raise InvalidInputError(f"data: there is no column for the input {column.name}")
        if not isinstance(values, list):
            raise InvalidInputError(f"data: column {column.name} is {type(values).__name__}, a list is expected")
        raw[column.name] = values
    lengths = {name: len(values) for name, values in raw.items()}
    if not lengths:
        lengths = {name: len(values) for name, values in data.items() if isinstance(values, list)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInputError(f"data: the columns differ in length: {shown}")
    return raw, next(iter(lengths.values()), 0)


def cast_input(name: str, dtype: DataType | None, values: list[object], manner: Manner = INPUTS) -> list[object]:
    """Return a column cast to a type without its restriction, by the rules of `manner`; unchanged if the type is None.

    Raises `InvalidInputError` if a value can't be cast; the message has the column, row, type and value.
    """
    if dtype is None:
        return values
    base = base_type(dtype)
    kind = _AS_IT_IS.get(base)
    if kind is not None and set(map(type, values)) == {kind}:
        return values
    convert = cast(OptionalType(base) if is_optional(dtype) else base, manner)
    done: list[object] = []
    try:
        for value in values:
            done.append(convert(value))  # noqa: PERF401 (its length is the row of an error)
    except InvalidInputError as error:
        raise InvalidInputError(f"input {name} ({type_name(dtype)}), row {len(done)}: {error}") from None
    return done
