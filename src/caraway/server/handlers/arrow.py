"""Arrow IPC streams as bodies of queries: columns go in and out without JSON, for batches of many rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from caraway.dtypes.arrow import arrow_array
from caraway.dtypes.types import DataType
from caraway.errors import InvalidInputError
from caraway.query import StoredColumns
from caraway.server.handlers.queries import check_rows
from caraway.server.http.body import too_large
from caraway.server.http.messages import MAX_BODY_BYTES, Response

CONTENT_TYPE = "application/vnd.apache.arrow.stream"


def read_columns(body: bytes) -> dict[str, list[Any]]:
    """Read the columns of a stream.

    Raises:
        InvalidInputError: It is no stream of record batches.
        TooLargeError: It has too many rows, or its buffers are compressed and larger than a body may be.
    """
    columns: dict[str, list[Any]] = {}
    rows = size = 0
    try:
        with pa.ipc.open_stream(body) as stream:
            names = stream.schema.names
            if len(set(names)) < len(names):
                raise InvalidInputError("two columns have one name")
            columns = {name: [] for name in names}
            for batch in stream:
                batch.validate(full=True)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                check_rows(rows)
                if size > MAX_BODY_BYTES:
                    raise too_large("more once decompressed")
                for name, column in zip(names, batch.columns, strict=True):
                    columns[name] += column.to_pylist()
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the body is no Arrow IPC stream: {error}") from error
    return columns


def arrow_response(columns: StoredColumns, outputs: Sequence[tuple[str, DataType | None]]) -> Response:
    """Make an answer of stored values.

    Raises:
        InvalidInputError: The type of an output isn't known.
    """
    arrays: Mapping[str, pa.Array] = {name: _array(name, columns[name], dtype) for name, dtype in outputs}
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Response(200, [("content-type", CONTENT_TYPE)], sink.getvalue().to_pybytes())


def _array(name: str, values: Sequence[Any], dtype: DataType | None) -> pa.Array:
    if dtype is None:
        raise InvalidInputError(f"{name} has no type that the definitions tell, so it can't be a column of Arrow")
    return arrow_array(values, dtype)
