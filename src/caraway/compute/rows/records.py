"""Conversion of a source's raw rows to rows of a dataset: preproc, where, selection of the fields, cast, restrictions.

These are pure functions, which the in-process engine and the server share. Each dataset starts from its own copy of the
payload, so datasets don't affect each other.

* `typed_rows` converts a frame that a test logs: all rows or an error.
* `map_records` converts self-describing records: rows for those that fit, and an error for each of the others.
* `rejection` is the last filter: since, until and sample.

`caraway.compute.rows.cdc` takes the envelopes of change data capture apart.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from caraway.compute.rows.batches import LeftOut, RecordError, RowBatch, Stage, batch_of_frame, batch_of_records
from caraway.compute.rows.calls import HERE, Conversion
from caraway.compute.rows.making import keep_wanted, make_columns
from caraway.compute.rows.sampling import sampler
from caraway.dtypes.durations import print_duration
from caraway.dtypes.instants import iso_instant
from caraway.errors import InvalidInputError
from caraway.graph.sources import Computed, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec

# A row of a dataset in stored form (docs/inside/records.md), by field.
Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedRows:
    """Rows of a dataset with their numbers in the payload, and the errors of the others."""

    rows: tuple[tuple[int, Row], ...]
    errors: tuple[RecordError, ...]


def typed_rows(dataset: DatasetSpec, source: SourceSpec, frame: pd.DataFrame) -> list[Row]:
    """Return a dataset's rows from a frame: all rows that `where` admits, in order.

    The frame needs every column that isn't made by preproc, optional ones too. The source has cdc "append", "upsert" or
    "native"; its since, until and sample aren't applied here.

    Raises `InvalidInputError` if a column is missing, or a value doesn't fit; the text has the dataset, source, field,
    number of the row and the value.
    """
    if frame.empty:
        return []
    require_columns(dataset, source, [str(name) for name in frame.columns])
    mapped = map_batch(dataset, source, batch_of_frame(frame))
    if mapped.errors:
        raise InvalidInputError(spell_error(dataset, source, mapped.errors[0]))
    return [row for _, row in mapped.rows]


def map_records(
    dataset: DatasetSpec,
    source: SourceSpec,
    records: Sequence[Mapping[str, object]],
    how: Conversion = HERE,
    *,
    numbers: Sequence[int] | None = None,
) -> MappedRows:
    """Return a dataset's rows from self-describing records; an absent optional field is null."""
    return map_batch(dataset, source, batch_of_records(records, numbers), how)


def map_batch(
    dataset: DatasetSpec,
    source: SourceSpec,
    batch: RowBatch,
    how: Conversion = HERE,
    *,
    fields: Sequence[str] | None = None,
) -> MappedRows:
    """Run a batch through preproc, where and cast; with `fields`, only these are made, and where is skipped."""
    now_us = time.time_ns() // 1_000
    types = {f.name: f.dtype for f in dataset.fields}
    batch.how = how
    batch.is_text = source.connector.format_name == "csv"
    make_columns(batch, source, types, now_us, only=fields)
    if fields is None:
        keep_wanted(batch, source, types, now_us)
    names = list(types) if fields is None else list(fields)
    for name in names:
        batch.cast(name, types[name], stage=Stage.CAST)
    if dataset.timestamp in names:
        batch.refuse(
            Stage.CAST, dataset.timestamp, too_far_ahead(source, batch.typed[dataset.timestamp].stored, now_us)
        )
    columns = [batch.typed[name].stored for name in names]
    rows = tuple(
        (number, dict(zip(names, values, strict=True)))
        for number, values in zip(batch.numbers, zip(*columns, strict=True), strict=True)
    )
    return MappedRows(rows=rows, errors=tuple(sorted(batch.errors, key=lambda error: error.row)))


def rejection(dataset: DatasetSpec, source: SourceSpec) -> Callable[[Row], LeftOut | None]:
    """Compile the filter by since, until and sample, which returns why a row is left out; None if it is admitted."""
    timestamp = dataset.timestamp
    since, until = source.since_us, source.until_us
    sampled = sampler(dataset, source)

    def reason(row: Row) -> LeftOut | None:
        at = row[timestamp]
        assert isinstance(at, int)  # noqa: S101 (a row in stored form)
        if since is not None and at < since:
            return LeftOut.SINCE
        if until is not None and at >= until:
            return LeftOut.UNTIL
        return None if sampled(row) else LeftOut.SAMPLE

    return reason


def too_far_ahead(source: SourceSpec, times: Sequence[object], now_us: int) -> dict[int, str]:
    """Return why rows, by their places, have event times further ahead of the clock than their source allows."""
    most_us = source.max_future_us
    if most_us is None:
        return {}
    return {
        place: f"{iso_instant(at)} is more than {print_duration(most_us)} (max_future) ahead of the clock"
        for place, at in enumerate(times)
        if isinstance(at, int) and at > now_us + most_us
    }


def demanded_columns(dataset: DatasetSpec, source: SourceSpec) -> dict[str, str]:
    """Return the columns that a payload must have, each with the part that needs it."""
    made = {name for name, _ in source.preproc}
    needed = {f.name: f"field {f.name}" for f in dataset.fields if f.name not in made}
    for name, value in source.preproc:
        if isinstance(value, Ref):
            needed.setdefault(value.path[0], f"preproc of {name}")
    for name, computed in [*source.preproc, ("", source.where)]:
        if isinstance(computed, Computed):
            for column, _ in computed.schema:
                # `where` runs after preproc. If preproc made a field, `where` reads that field, and the payload needn't
                # have a column of the same name.
                if not name and column in made:
                    continue
                needed.setdefault(column, f"the schema of preproc of {name}" if name else "the schema of where")
    return needed


def require_columns(dataset: DatasetSpec, source: SourceSpec, columns: Sequence[str]) -> None:
    """Raise `InvalidInputError` if a frame lacks columns; the message lists them, and those that are there."""
    missing = {name: why for name, why in demanded_columns(dataset, source).items() if name not in columns}
    if missing:
        shown = ", ".join(f"{name} ({why})" for name, why in missing.items())
        raise InvalidInputError(
            f"dataset {dataset.name}, source {source.connector.identifier}: the frame has no column {shown}; "
            f"columns: {', '.join(columns)}"
        )


def spell_error(dataset: DatasetSpec, source: SourceSpec, error: RecordError) -> str:
    """Return the text of an error with all that it concerns."""
    stage = "" if error.stage is Stage.CAST else f", {error.stage}"
    field = f", field {error.field}" if error.field else ""
    return (
        f"dataset {dataset.name}, source {source.connector.identifier}{stage}{field}, row {error.row}: {error.message}"
    )
