"""Change data capture: conversion of Debezium's envelopes to inserts and deletes of a dataset.

An envelope is an object with `op`, `before`, `after`, `source` and `ts_ms`, bare or under `payload`. preproc and where
apply to `before` and `after` separately, as to rows of their own. Debezium's other messages change no row: heartbeats,
the begins and ends of transactions, changes of a table's columns, and messages that a program wrote into the log.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson
import pandas as pd

from caraway.compute.rows.batches import LeftOut, RecordError, Stage, batch_of_records
from caraway.compute.rows.calls import HERE, Conversion
from caraway.compute.rows.cdc_images import completed, is_whole
from caraway.compute.rows.cdc_types import in_logical_types
from caraway.compute.rows.records import MappedRows, Row, demanded_columns, map_batch, spell_error
from caraway.dtypes.values import is_null
from caraway.errors import InvalidInputError
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Computed, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec

ENVELOPE_COLUMNS = ("before", "after", "op")
# The names under which an envelope has its time, the most exact first, and their units in nanoseconds.
TIMES = (("ts_ns", 1), ("ts_us", 1_000), ("ts_ms", 1_000_000))
MICROSECOND_NS = 1_000


class ChangeKind(StrEnum):
    """The effect of a change on the row of its key."""

    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedChange:
    """A row of a dataset that holds from `at_us` on, or no longer holds from then on.

    `number` is that of the record from which the change comes. The row of a delete has at least the key fields. A
    delete never takes effect before the row that it deletes, whatever its time. An insert replaces the row of its key.
    """

    number: int
    kind: ChangeKind
    row: Row
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedChanges:
    """Changes of a dataset in the order of their records, and the reasons why other records made none.

    A record without an error makes a change, or is among those that are left out, by its number.
    """

    changes: tuple[CapturedChange, ...]
    errors: tuple[RecordError, ...]
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)


# The class isn't frozen, because one object is made for each row, and making a frozen one takes twice as long.
@dataclass(slots=True, kw_only=True)
class _Envelope:
    number: int
    op: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    at_us: int | None


def typed_changes(dataset: DatasetSpec, source: SourceSpec, frame: pd.DataFrame) -> list[CapturedChange]:
    """Return the changes of a dataset from a frame of envelopes: columns `before`, `after`, `op`, or one `payload`.

    Raises:
        InvalidInputError: A record isn't an envelope or doesn't fit; the text has dataset, source, row and field.
    """
    columns = [str(name) for name in frame.columns]
    if not frame.empty and "payload" not in columns and (missing := [c for c in ENVELOPE_COLUMNS if c not in columns]):
        raise InvalidInputError(
            f'dataset {dataset.name}, cdc="debezium": the frame has no column {", ".join(missing)}; a frame of '
            f"envelopes has before, after, op, source, ts_ms, or payload; columns: {', '.join(columns)}"
        )
    mapped = map_envelopes(
        dataset, source, [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    )
    if mapped.errors:
        raise InvalidInputError(spell_error(dataset, source, mapped.errors[0]))
    return list(mapped.changes)


def map_envelopes(
    dataset: DatasetSpec,
    source: SourceSpec,
    records: Sequence[Mapping[str, object] | None],
    how: Conversion = HERE,
    *,
    numbers: Sequence[int] | None = None,
) -> MappedChanges:
    """Return the changes of a dataset from envelopes; None is a tombstone, which changes nothing.

    `numbers` are those of the records, by default their places.
    """
    envelopes: list[_Envelope] = []
    errors: list[RecordError] = []
    left_out: dict[int, LeftOut] = {}
    needed, has_keys = _needed_columns(dataset, source), bool(dataset.keys)
    for number, record in zip(range(len(records)) if numbers is None else numbers, records, strict=True):
        try:
            envelope = _read(needed, number, record, has_keys=has_keys)
        except InvalidInputError as error:
            errors.append(RecordError(row=number, stage=Stage.ENVELOPE, field="", message=str(error)))
            continue
        if envelope is not None:
            envelopes.append(envelope)
        else:
            left_out[number] = LeftOut.NO_CHANGE
    before, after, failed = _mapped_sides(dataset, source, envelopes, how)
    bad = {error.row for error in failed}
    keys, timestamp = dataset.keys, dataset.timestamp
    changes: list[CapturedChange] = []
    for envelope in envelopes:
        if envelope.number in bad:
            continue
        old, new = before.get(envelope.number), after.get(envelope.number)
        if old is None and new is None:
            # An envelope that was read has a row before or after the change, or both. If neither is left here, `where`
            # rejected them.
            left_out[envelope.number] = LeftOut.WHERE
            continue
        try:
            changes += _changes(keys, timestamp, envelope, old, new)
        except InvalidInputError as error:
            failed.append(RecordError(row=envelope.number, stage=Stage.CDC, field="", message=str(error)))
    return MappedChanges(
        changes=tuple(changes),
        errors=tuple(sorted(errors + failed, key=lambda error: error.row)),
        left_out=left_out,
    )


def _needed_columns(dataset: DatasetSpec, source: SourceSpec) -> Collection[str] | None:
    """Return the columns that a source reads; None if a user's function may read any of them."""
    computed = [*(made for _, made in source.preproc), source.where]
    if any(isinstance(made, Computed) and isinstance(made.by, PythonFunction) for made in computed):
        return None
    return demanded_columns(dataset, source).keys()


def _read(
    needed: Collection[str] | None, number: int, record: Mapping[str, object] | None, *, has_keys: bool
) -> _Envelope | None:
    """Return the envelope in a record; None if the record changes nothing."""
    if record is None:
        return None
    schema = _object(record.get("schema"), "schema")
    inner = _object(record["payload"], "payload") if "payload" in record else record
    if inner is None:
        return None
    op = inner.get("op")
    if op == "m" or (op is None and _is_notice(inner)):
        return None
    if op == "t":
        raise InvalidInputError(
            "op is 't': the table was truncated, which removes its rows without naming them; a dataset keeps them"
        )
    if not isinstance(op, str) or op not in {"c", "r", "u", "d"}:
        raise InvalidInputError(f"op is {op!r}; one of c, r, u, d is expected")
    before = in_logical_types(_object(inner.get("before"), "before"), schema, "before")
    after = in_logical_types(_object(inner.get("after"), "after"), schema, "after")
    if op == "d" and before is None:
        raise InvalidInputError("op d needs before, with the key of the row that is deleted")
    if op != "d" and after is None:
        raise InvalidInputError(f"op {op} needs after, the row that is inserted")
    if not has_keys and op in {"u", "d"}:
        raise InvalidInputError(f"op {op} changes a row, and the dataset has no keys: it only takes inserts")
    if after is not None:
        after = completed(after, before, needed)
    source = _object(inner.get("source"), "source")
    return _Envelope(
        number=number,
        op=op,
        before=before if op in {"u", "d"} else None,
        after=after if op != "d" else None,
        at_us=_time_us(inner, source),
    )


def _object(value: Any, name: str) -> Mapping[str, object] | None:
    """Return an object; in text files it is JSON text."""
    if value is None or type(value) is dict:
        return value
    if is_null(value) or value == "":
        return None
    if isinstance(value, (str, bytes)):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise InvalidInputError(f"{name} is text that isn't JSON: {error}") from None
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} is {type(value).__name__} {value!r}; an object is expected")
    return value


def _is_notice(inner: Mapping[str, object]) -> bool:
    """Return whether an object without op is a message of Debezium that changes no row."""
    names = inner.keys()
    is_heartbeat = bool(names) and names <= {"ts_ms", "ts_us", "ts_ns"}
    return is_heartbeat or names >= {"status", "id"} or "ddl" in names or "tableChanges" in names


def _time_us(envelope: Mapping[str, object], source: Mapping[str, object] | None) -> int | None:
    for inner in (source or {}, envelope):
        for name, unit_ns in TIMES:
            found = inner.get(name)
            if found is None:
                continue
            if type(found) is int:
                return found * unit_ns // MICROSECOND_NS
            if isinstance(found, (int, float)) and not is_null(found):
                return int(found) * unit_ns // MICROSECOND_NS
            # All cells of a CSV file are texts.
            if isinstance(found, str) and found.isascii() and found.isdecimal():
                return int(found) * unit_ns // MICROSECOND_NS
    return None


def _mapped_sides(
    dataset: DatasetSpec, source: SourceSpec, envelopes: Sequence[_Envelope], how: Conversion
) -> tuple[dict[int, Row], dict[int, Row], list[RecordError]]:
    """Return the rows before and after the changes, by the numbers of their envelopes, and the errors.

    A row before a change may have only its key. Rows that `where` doesn't admit are left out.
    """

    def mapped(rows: Mapping[int, Mapping[str, object]], fields: Sequence[str] | None = None) -> MappedRows:
        return map_batch(dataset, source, batch_of_records(list(rows.values()), list(rows)), how, fields=fields)

    after = mapped({e.number: e.after for e in envelopes if e.after is not None})
    errors = list(after.errors)
    demanded, keys = demanded_columns(dataset, source).keys(), _key_columns(dataset, source)
    whole: dict[int, Mapping[str, object]] = {}
    partial: dict[int, Mapping[str, object]] = {}
    for envelope in envelopes:
        row = envelope.before
        if row is None and envelope.op == "u" and source.where is not None:
            # The log has the old row's key only if the update changed it, so here the old row has the key of the new
            # row. If `where` admitted the old row but doesn't admit the new one, the old row has to be deleted by this
            # key.
            row = envelope.after
            assert row is not None  # noqa: S101 (an update has one)
            partial[envelope.number] = row
        elif row is not None:
            (whole if is_whole(row, demanded, keys) else partial)[envelope.number] = row
    before = mapped(whole)
    # Only the keys are read from the old rows in `partial`: Postgres sends no more by default, or the rest of the row
    # doesn't fit the dataset. A delete needs only the key.
    partial |= {error.row: whole[error.row] for error in before.errors}
    of_keys = mapped(partial, dataset.keys)
    # A delete whose key can't be read is an error. An update inserts the new row, and deletes the old key if that is
    # another one. If the old key can't be read, the new row is still inserted, and nothing is deleted.
    deletes = {envelope.number for envelope in envelopes if envelope.op == "d"}
    errors += [error for error in of_keys.errors if error.row in deletes]
    return dict(before.rows) | dict(of_keys.rows), dict(after.rows), errors


def _key_columns(dataset: DatasetSpec, source: SourceSpec) -> frozenset[str]:
    """Return the columns of a payload of which the keys are made."""
    made = dict(source.preproc)
    found: set[str] = set()
    for name in dataset.keys:
        match made.get(name):
            case None:
                found.add(name)
            case Ref(path=(first, *_)):
                found.add(first)
            case Computed(schema=schema):
                found.update(column for column, _ in schema)
    return frozenset(found)


def _changes(
    keys: Sequence[str], timestamp: str, envelope: _Envelope, before: Row | None, after: Row | None
) -> list[CapturedChange]:
    changes = []
    if before is not None and (after is None or any(before[name] != after[name] for name in keys)):
        at_us = envelope.at_us
        if at_us is None:
            raise InvalidInputError("neither source.ts_ms nor ts_ms tells when the row was deleted")
        own = before.get(timestamp)
        if isinstance(own, int):
            at_us = max(at_us, own)
        changes.append(CapturedChange(number=envelope.number, kind=ChangeKind.DELETE, row=before, at_us=at_us))
    if after is not None:
        at = after[timestamp]
        assert isinstance(at, int)  # noqa: S101 (a row in stored form)
        changes.append(CapturedChange(number=envelope.number, kind=ChangeKind.INSERT, row=after, at_us=at))
    return changes
