"""The results of offline queries: Parquet files, a part after the other, and a manifest that names them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from caraway.compute.query.model import TypedColumn
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dtypes.types import type_name
from caraway.offline.queries.evaluation import Evaluated
from caraway.offline.queries.model import MANIFEST, OfflineQuery, part_name

TIME_TYPE = pa.timestamp("us", tz="UTC")
HISTORY, ERROR = "_history", "_error"


def result_table(
    outputs: Sequence[TypedColumn],
    evaluated: Evaluated,
    timestamp_column: str,
    others: pa.Table,
    short: Sequence[str | None],
) -> pa.Table:
    """Return the results of rows: the features, the time, the other columns of the input, and two of texts.

    The last column but one tells which datasets have less history than a row asks for (`short`), the last one why a row
    failed; both are null for rows that are all right.
    """
    columns: dict[str, Any] = {column.name: evaluated.columns[column.name] for column in outputs}
    columns[timestamp_column] = pa.array(evaluated.times, pa.int64()).cast(TIME_TYPE)
    for name in others.column_names:
        columns.setdefault(name, others[name])
    columns[free_name(HISTORY, columns)] = pa.array(short, pa.string())
    columns[free_name(ERROR, columns)] = pa.array(evaluated.errors, pa.string())
    return pa.table(columns)


def free_name(name: str, names: Mapping[str, object]) -> str:
    """Return the name of one of our columns, with underscores in front until it differs from all others."""
    while name in names:
        name = f"_{name}"
    return name


def write_part(objects: ObjectFolder, prefix: str, number: int, table: pa.Table) -> int:
    """Write a part, as a whole or not at all, and return the bytes of its file.

    Raises `UnavailableError` if the object store doesn't answer.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    objects.write(_within(prefix, part_name(number)), content)
    return len(content)


def read_part(objects: ObjectFolder, prefix: str, number: int) -> pa.Table:
    """Return a part. Raises `UnavailableError` if the object store lacks it or doesn't answer."""
    return pq.read_table(pa.BufferReader(objects.read(_within(prefix, part_name(number)))))


def write_manifest(objects: ObjectFolder, prefix: str, query: OfflineQuery, outputs: Sequence[TypedColumn]) -> None:
    """Write the manifest of a query that has ended."""
    request = query.request
    manifest = {
        "request_id": query.id,
        "branch": query.branch,
        "commit": query.commit,
        "inputs": request.inputs,
        "outputs": {column.name: None if column.dtype is None else type_name(column.dtype) for column in outputs},
        "timestamp_column": request.timestamp_column,
        "as_known": request.as_known,
        "rows": query.rows_done,
        "rows_failed": query.rows_failed,
        "rows_short": query.rows_short,
        "seconds": query.seconds,
        "files": [
            {
                "name": part_name(number),
                "rows": part.rows,
                "rows_failed": part.failed,
                "rows_short": part.short,
                "bytes": part.bytes,
            }
            for number, part in enumerate(query.parts)
        ],
        "read_up_to": {topic: {str(p): end for p, end in ends.items()} for topic, ends in (query.cuts or {}).items()},
        "written_at": datetime.now(UTC).isoformat(),
    }
    objects.write(_within(prefix, MANIFEST), orjson.dumps(manifest, option=orjson.OPT_INDENT_2))


def _within(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name
