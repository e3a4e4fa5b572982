"""Arrow IPC streams as bodies of queries: columns are read and written without JSON, for batches of many rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from caraway.apps.server.handlers.arrow_bounds import Decoded, check_messages, check_schema, check_times
from caraway.apps.server.handlers.queries import check_rows
from caraway.apps.server.http.messages import HttpResponse
from caraway.compute.query.executor import StoredColumns
from caraway.dtypes.frames import arrow_array
from caraway.dtypes.types import DataType
from caraway.errors import InvalidInputError, shortened

CONTENT_TYPE = "application/vnd.apache.arrow.stream"


def decoded_bytes(body: bytes) -> int:
    """Return the bytes that a stream may take in memory once it is read."""
    try:
        return check_messages(body)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(error) from error


def checked_schema(body: bytes) -> pa.Schema:
    """Return the schema of a stream whose rows are read later, by another process.

    Raises `InvalidInputError` if it is no stream, has no rows, or has columns that can't be read.
    """
    decoded_bytes(body)
    try:
        with pa.ipc.open_stream(body) as stream:
            check_schema(stream.schema)
            if not any(batch.num_rows for batch in stream):
                raise InvalidInputError("the body has no rows")
            return stream.schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(error) from error


def read_columns(body: bytes) -> dict[str, list[Any]]:
    """Return the columns of a stream."""
    decoded_bytes(body)
    columns: dict[str, list[Any]] = {}
    decoded, rows = Decoded(), 0
    try:
        with pa.ipc.open_stream(body) as stream:
            check_schema(stream.schema)
            columns = {name: [] for name in stream.schema.names}
            for batch in stream:
                rows += batch.num_rows
                check_rows(rows)
                batch.validate(full=True)
                for column in batch.columns:
                    decoded.add(column)
                for name, column in zip(columns, batch.columns, strict=True):
                    check_times(name, column)
                    columns[name] += _values(name, column)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(error) from error
    return columns


def _refused(error: Exception) -> InvalidInputError:
    if isinstance(error, InvalidInputError):
        return error
    return InvalidInputError(f"the body is no Arrow IPC stream: {shortened(str(error))}")


def _values(name: str, column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, LookupError, TypeError) as error:
        # PyArrow raises these for instants and days beyond the range of Python's types, and for unknown time zones.
        raise InvalidInputError(
            f"column {shortened(name)!r} of type {shortened(str(column.type))} holds a value that can't be taken: "
            f"{shortened(str(error))}"
        ) from error
    return values


def arrow_response(columns: StoredColumns, outputs: Sequence[tuple[str, DataType | None]]) -> HttpResponse:
    """Build an answer from stored values."""
    arrays: Mapping[str, pa.Array] = {name: _array(name, columns[name], dtype) for name, dtype in outputs}
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return HttpResponse(200, [("content-type", CONTENT_TYPE)], sink.getvalue().to_pybytes())


def _array(name: str, values: Sequence[Any], dtype: DataType | None) -> pa.Array:
    if dtype is None:
        raise InvalidInputError(f"{name} has no type that the definitions tell, so it can't be a column of Arrow")
    return arrow_array(values, dtype)
