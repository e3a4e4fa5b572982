"""The table of served features: its columns, and the rows of the log's records in them."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

NAME = "served features"
"""The name of the table, which stands where other tables of the archive have that of their dataset."""

TIME = "at"
PARTITION, OFFSET, NUMBER = "_partition", "_offset", "row"
# A row of a query is on the topic once, so the position of its record and the row's number in the query identify it.
POSITION = (PARTITION, OFFSET, NUMBER)
_INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("served_at", _INSTANT),
        (TIME, _INSTANT),
        ("branch", pa.string()),
        ("commit", pa.string()),
        ("workflow", pa.string()),
        ("query", pa.string()),
        (NUMBER, pa.int64()),
        ("inputs", pa.string()),
        ("outputs", pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
    ]
)
# The columns by which the rows of an erased key are found.
COMMIT, INPUTS, OUTPUTS = "commit", "inputs", "outputs"

# The values of a row in the order of `SCHEMA`, times in microseconds.
Row = tuple[Any, ...]


def rows_of(data: bytes, partition: int, offset: int) -> Iterator[Row]:
    """Yield the rows of a record, in the order of `SCHEMA`.

    Raises `ValueError` if the bytes aren't a record of `caraway.dataplane.archive.served_log`.
    """
    record = orjson.loads(data)
    try:
        inputs, outputs, at = record["inputs"], record["outputs"], record["at_us"]
        head = record["branch"], record["commit"], record["workflow"], record["query"]
        for place, row in enumerate(record["rows"]):
            yield (
                record["served_us"],
                at if isinstance(at, int) else at[place],
                *head,
                row,
                orjson.dumps({name: column[place] for name, column in inputs.items()}).decode(),
                orjson.dumps({name: column[place] for name, column in outputs.items()}).decode(),
                partition,
                offset,
            )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"it is no record of served features: {error!r}") from error


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows as an Arrow table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
