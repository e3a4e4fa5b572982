"""Records of the archive as frames of polars.

Only readers need polars, which takes half as long to read a table as pyarrow. Writers have no memory for it.
"""

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from caraway.dataplane.archive.store.columns import TableColumns
from caraway.errors import UnavailableError
from caraway.expr.polars.values import INSTANT


def frame_of(
    files: Sequence[str],
    options: Mapping[str, str],
    columns: Sequence[str],
    kept: pl.Expr | None = None,
    some: tuple[int, int | None] = (0, None),
) -> pl.DataFrame:
    """Return the records of a table's files for which `kept` is true, all by default, in no particular order.

    `some` are the first of the files' records that is read, and how many are read; None: all from there on.

    Raises `UnavailableError` if the object store doesn't answer, or a file is gone.
    """
    try:
        rows = pl.scan_parquet(list(files), storage_options=dict(options) or None, hive_partitioning=False)
        rows = rows.slice(*some)
        return (rows if kept is None else rows.filter(kept)).select(columns).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UnavailableError(f"the archive's file {files[0]} or another one can't be read: {error}") from error


def framed(rows: pa.Table, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return some columns of a table as polars has them, in these types."""
    return pl.DataFrame([pl.Series(name, pl.from_arrow(rows[name])).cast(dtype) for name, dtype in types.items()])


def control_types(columns: TableColumns) -> dict[str, pl.DataType]:
    """Return the types of the columns beside those of the rows."""
    return {
        columns.time: INSTANT,
        columns.op: pl.Int8(),
        columns.ingested: INSTANT,
        columns.partition: pl.Int32(),
        columns.offset: pl.Int64(),
        columns.number: pl.Int32(),
        columns.id: pl.Binary(),
        columns.rev: pl.Binary(),
    }
