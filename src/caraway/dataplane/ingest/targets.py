"""The conversion of a source's payload to records of a dataset, with an error for each row that can't be one."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from caraway.compute.expectations.strict import strict_checks
from caraway.compute.rows.batches import LeftOut, RecordError, Stage, keeps_empty_text, member
from caraway.compute.rows.calls import Conversion, FunctionCaller, refuse_functions
from caraway.compute.rows.cdc import CapturedChange, ChangeKind
from caraway.compute.rows.changes import admits_all, admitted_changes, is_plain
from caraway.compute.rows.column_casts import MISSING, ColumnCast
from caraway.compute.rows.records import demanded_columns, too_far_ahead
from caraway.dataplane.ingest.table import Table
from caraway.dataplane.topics.codec import DELETE, MAX_RECORD_BYTES, PUT, RecordCodec
from caraway.dataplane.topics.keys import MAX_KEY_BYTES, too_long
from caraway.dtypes.types import DATETIME
from caraway.dtypes.values import ROWS
from caraway.errors import InvalidInputError, shortened
from caraway.graph.expectations import strict_part
from caraway.graph.functions import PythonFunction
from caraway.graph.plan.model import Column, IngestPlan
from caraway.graph.sources import Computed, Constant, Ref

# The most characters of a message about a refused row, which goes to the client and into the dead letter. So many are
# enough for a reason, while a large value in it is cut.
MAX_MESSAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """Why a dataset didn't take a row; `field` is empty if the row as a whole is at fault."""

    row: int
    dataset: str
    field: str
    message: str
    stage: Stage = Stage.CAST


# The oldest and the newest event time of some rows, in microseconds since the epoch.
Span = tuple[int, int]
# A record for a dataset's topic: the number of the row that it comes from, its number among the records of that row (a
# change may delete one key and insert another), key and value.
EncodedRecord = tuple[int, int, bytes | None, bytes]
# The parts of a record before it is encoded: the two numbers, the operation, the event time and the row's columns.
_Change = tuple[int, int, int, object, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A slice of a payload, encoded for one dataset: records of valid rows, errors of invalid ones.

    `left_out` counts the rows that make neither, by the reason. `span` is that of the event times; None without any.
    """

    records: list[EncodedRecord]
    errors: list[RowError]
    left_out: Mapping[LeftOut, int]
    span: Span | None


class Target:
    """A dataset that a source feeds."""

    def __init__(self, plan: IngestPlan, call: FunctionCaller = refuse_functions) -> None:
        """Compile the conversion of rows; `call` runs the users' functions in preproc and where."""
        self.dataset = plan.topic.dataset
        self.topic = plan.topic.name
        self.source = plan.source.connector.identifier
        self.system = plan.source.connector.system_name
        self.format = plan.source.connector.format_name or ""
        schema = plan.topic.schema
        self.schema = schema
        self.keys = schema.keys
        erasable = {field.name for field in plan.dataset.fields if field.erase_key} | {key.name for key in self.keys}
        self._erasable = tuple(column for column in schema.columns if column.name in erasable)
        self.plan = plan
        self._casts = {column.name: ColumnCast(column.dtype, ROWS) for column in plan.fields}
        # A cell of a CSV file is always a text. An empty cell is null, except for fields that keep a text as it is: for
        # these it is the empty text.
        self._empty_is_null = frozenset(
            column.name for column in plan.fields if self.format == "csv" and not keeps_empty_text(column.dtype)
        )
        self._columns = tuple(column.name for column in schema.columns)
        self._codec = RecordCodec(schema)
        self._how = Conversion(manner=ROWS, call=call)
        self._strict = strict_checks(plan.dataset)
        self.is_plain = is_plain(plan.source)
        """True if rows are only cast, which takes so little time that the event loop may do it."""
        checks = repr((schema.columns, strict_part(plan.dataset.expectations))).lower()
        self.has_patterns = "regex" in checks or "json_schema" in checks
        """True if texts are matched with patterns, for which a long text may take a second."""
        # The columns and constants from which preproc makes fields; None if preproc does anything else, or rows are
        # filtered out. With them, rows are converted by column instead of one by one.
        self._copied = None if self.is_plain else _copied_fields(plan)
        self._has_envelopes = plan.source.cdc.has_envelopes
        self.newest_us: int | None = None
        """The newest event time among the rows that were encoded, in microseconds since the epoch; None at first."""
        self.columns = _columns_read(plan)
        """The columns of a payload that count; None if a user's function may read any of them."""

    def encode(self, table: Table, start: int, stop: int, ingested_us: int) -> Encoded:
        """Return rows `start` to `stop`, cast and encoded."""
        errors = [
            self._error(row, fault, stage=Stage.DECODE) for row, fault in table.faults.items() if start <= row < stop
        ]
        if self.is_plain:
            return self._encode_columns(table, start, stop, ingested_us, errors)
        if self._copied is not None and not errors and (table.has_inserts or not self._has_envelopes):
            encoded = self._encode_copied(self._copied, table, start, stop, ingested_us)
            if encoded is not None:
                return encoded
        rows = {row: table.row(row) for row in range(start, stop) if row not in table.faults}
        return self._encode_changes(rows, ingested_us, errors)

    def row_of(self, value: bytes) -> Sequence[object] | None:
        """Return the columns of an encoded record, in the order of the schema; None if it has none."""
        return self._codec.decode_value(value).row

    def erasable_of(self, row: object) -> dict[Column, object]:
        """Return the values of the keys and erase keys of a payload's row that are known and fit their types."""
        values: dict[Column, object] = {}
        for column in self._erasable:
            cast = self._casts[column.name]([self._raw(row, column.name)])
            if not cast.errors:
                values[column] = cast.values[0]
        return values

    def _raw(self, row: object, name: str) -> object:
        """Return the value of a payload that becomes a field; `MISSING` if there is none or it is computed."""
        source = self.plan.source
        if source.cdc.has_envelopes and isinstance(row, dict):
            envelope = row.get("payload", row)
            sides = [envelope.get(side) for side in ("after", "before")] if isinstance(envelope, dict) else []
            row = next((side for side in sides if isinstance(side, dict)), None)
        if not isinstance(row, dict):
            return MISSING
        match dict(source.preproc).get(name):
            case Constant(value=value):
                return value
            case Computed():
                return MISSING
            case Ref(path=(first, *rest)):
                value = row.get(first, MISSING)
                try:
                    for part in rest:
                        value = member(value, part)
                except InvalidInputError:
                    return MISSING
                return value
            case _:
                return row.get(name, MISSING)

    def _encode_columns(self, table: Table, start: int, stop: int, ingested_us: int, errors: list[RowError]) -> Encoded:
        bad = {error.row for error in errors}
        columns: dict[str, list[object]] = {}
        for name, cast in self._casts.items():
            cells = table.column(name, start, stop)
            if name in self._empty_is_null:
                cells = [None if cell == "" else cell for cell in cells]
            column = cast(cells)
            columns[name] = column.values
            for position, message in column.errors.items():
                if start + position not in table.faults:
                    errors.append(self._error(start + position, message, name))
                    bad.add(start + position)
        if self._strict is not None:
            kept = [row for row in range(start, stop) if row not in bad]
            values = {name: [column[row - start] for row in kept] for name, column in columns.items()}
            errors += self._unexpected(kept, values)
            bad.update(error.row for error in errors)
        times = columns[self._codec.schema.timestamp]
        ahead = too_far_ahead(self.plan.source, times, ingested_us)
        errors += [self._error(start + place, message, self.schema.timestamp) for place, message in ahead.items()]
        bad.update(start + place for place in ahead)
        span = self._see([None if place in ahead else at for place, at in enumerate(times)] if ahead else times)
        numbers = range(start, stop)
        stored = [columns[name] for name in self._columns]
        records = None if bad else self._puts(numbers, repeat(0), times, stored, ingested_us)
        if records is None:
            changes = zip(numbers, repeat(0), repeat(PUT), times, _rows(stored, len(numbers)), strict=False)
            records = self._records(changes, bad, ingested_us, errors)
        errors.sort(key=lambda error: error.row)
        return Encoded(records, errors, {}, span)

    def _puts(
        self,
        numbers: Sequence[int],
        places: Iterable[int],
        times: Sequence[object],
        columns: Sequence[list[object]],
        ingested_us: int,
    ) -> list[EncodedRecord] | None:
        """Return the records of rows, given by column, encoded together; None if some row can't be a record.

        `places` are the numbers of the records among those of their rows.
        """
        codec, keys = self._codec, None
        try:
            if self.keys:
                # The key columns come first in a row.
                keys = codec.encode_keys(_rows(columns[: len(self.keys)], len(numbers)))
            rows = _rows(codec.in_form(columns), len(numbers))
            values = codec.encode_puts(rows, times, repeat(ingested_us), repeat(None), decoded=True)  # type: ignore[arg-type]
        except InvalidInputError:
            return None
        if max(map(len, values), default=0) > MAX_RECORD_BYTES:
            return None
        if keys is None:
            return list(zip(numbers, places, repeat(None), values, strict=False))
        if max(map(len, keys), default=0) > MAX_KEY_BYTES:
            return None
        return list(zip(numbers, places, keys, values, strict=False))

    def _encode_copied(
        self, copied: Mapping[str, Ref | Constant], table: Table, start: int, stop: int, ingested_us: int
    ) -> Encoded | None:
        """Return the records of inserts whose fields are columns or constants; None if a row can't be a record.

        None of the rows has a fault. The error of a row that can't be a record is that of `_encode_changes`, which
        takes several times as long.
        """
        columns: dict[str, list[object]] = {}
        for name, cast in self._casts.items():
            match copied.get(name):
                case Constant(value=value):
                    cells = [value] * (stop - start)
                case Ref(path=(column,)):
                    cells = table.column(column, start, stop)
                    if MISSING in cells:
                        return None
                case _:
                    cells = table.column(name, start, stop)
            done = cast(cells)
            if done.errors:
                return None
            columns[name] = done.values
        if self._unexpected(range(start, stop), columns):
            return None
        times = columns[self._codec.schema.timestamp]
        if too_far_ahead(self.plan.source, times, ingested_us):
            return None
        records = self._puts(
            range(start, stop), repeat(0), times, [columns[name] for name in self._columns], ingested_us
        )
        if records is None:
            return None
        return Encoded(records, [], {}, self._see(times))

    def _encode_changes(self, rows: Mapping[int, object], ingested_us: int, errors: list[RowError]) -> Encoded:
        """Return the records of rows for which a cast of their columns isn't enough."""
        objects = {number: row for number, row in rows.items() if isinstance(row, dict)}
        mapped = admitted_changes(self.plan.dataset, self.plan.source, objects, self._how)
        errors += [self._error(error.row, _spelled(error), error.field, error.stage) for error in mapped.errors]
        changes = mapped.changes
        span = self._see([change.at_us for change in changes])
        if self._strict is not None:
            inserts = [change for change in changes if change.kind is ChangeKind.INSERT]
            columns = {name: [change.row.get(name) for change in inserts] for name in self._casts}
            columns[self.schema.timestamp] = [change.at_us for change in inserts]
            unexpected = self._unexpected([change.number for change in inserts], columns)
            errors += unexpected
            # A row that moves to another key makes two changes: an insert, and a delete of the old key. If the insert
            # is refused, so is the delete.
            refused = {error.row for error in unexpected}
            changes = tuple(change for change in changes if change.number not in refused)
        made: Counter[int] = Counter(error.row for error in errors)
        places: list[int] = []
        for change in changes:
            places.append(made[change.number])
            made[change.number] += 1
        records = self._of_changes(changes, places, ingested_us, errors)
        errors.sort(key=lambda error: error.row)
        left_out = Counter(mapped.left_out.get(number, LeftOut.NO_CHANGE) for number in rows if number not in made)
        return Encoded(records, errors, left_out, span)

    def _of_changes(
        self, changes: Sequence[CapturedChange], places: Sequence[int], ingested_us: int, errors: list[RowError]
    ) -> list[EncodedRecord]:
        """Return the records of changes; `places` are their numbers among the changes of their rows."""
        numbers, times = [change.number for change in changes], [change.at_us for change in changes]
        columns = [[change.row.get(name) for change in changes] for name in self._columns]
        kinds = [change.kind for change in changes]
        if ChangeKind.DELETE not in kinds:
            records = self._puts(numbers, places, times, columns, ingested_us)
            if records is not None:
                return records
        ops = [DELETE if kind is ChangeKind.DELETE else PUT for kind in kinds]
        each = zip(numbers, places, ops, times, _rows(columns, len(changes)), strict=True)
        return self._records(each, frozenset(), ingested_us, errors)

    def _records(
        self, changes: Iterable[_Change], bad: Collection[int], ingested_us: int, errors: list[RowError]
    ) -> list[EncodedRecord]:
        """Return the records of changes, except for `bad` rows; rows that can't be records are added to the errors."""
        encode_key, encode_value = self._codec.encode_key, self._codec.encode_value
        keys = len(self.keys)
        records: list[EncodedRecord] = []
        for number, change, op, time_us, row in changes:
            if number in bad:
                continue
            try:
                # The key columns come first in a row.
                key = encode_key(row[:keys]) if keys else None
                if key is not None and len(key) > MAX_KEY_BYTES:
                    field, message = too_long(key, self.keys, row)
                    errors.append(self._error(number, message, field))
                    continue
                value = encode_value(op=op, time_us=time_us, ingested_us=ingested_us, row=row)  # type: ignore[arg-type]
            except InvalidInputError as error:
                errors.append(self._error(number, str(error)))
                continue
            if len(value) > MAX_RECORD_BYTES:
                message = f"takes {len(value):,} bytes, at most {MAX_RECORD_BYTES:,} are possible"
                errors.append(self._error(number, message))
                continue
            records.append((number, change, key, value))
        return records

    def _unexpected(self, numbers: Sequence[int], columns: Mapping[str, Sequence[object]]) -> list[RowError]:
        """Return why rows, given by numbers and columns, aren't as the dataset's strict expectations have them."""
        found = [] if self._strict is None else self._strict.refused(columns, len(numbers))
        stage = Stage.EXPECTATION
        return [self._error(numbers[refusal.row], refusal.message, refusal.field, stage) for refusal in found]

    def _see(self, times: Iterable[object]) -> Span | None:
        """Note event times, and return their span; those of rows that can't be read are None."""
        known = [time_us for time_us in times if isinstance(time_us, int)]
        if not known:
            return None
        newest = max(known)
        self.newest_us = newest if self.newest_us is None else max(newest, self.newest_us)
        return min(known), newest

    def _error(self, row: int, message: str, field: str = "", stage: Stage = Stage.CAST) -> RowError:
        return RowError(
            row=row, dataset=self.dataset, field=field, message=shortened(message, MAX_MESSAGE), stage=stage
        )


def _rows(columns: Sequence[list[object]], count: int) -> list[tuple[object, ...]]:
    """Return the rows of columns; a dataset without a column but its timestamp has empty rows."""
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _spelled(error: RecordError) -> str:
    """Return the message of an error, with its stage, unless that is the cast."""
    return error.message if error.stage is Stage.CAST else f"{error.stage}: {error.message}"


def _copied_fields(plan: IngestPlan) -> Mapping[str, Ref | Constant] | None:
    """Return how preproc makes fields, if it only copies columns and constants and every insert is admitted."""
    source = plan.source
    # `_encode_copied` casts each cell to the type of its field, whatever the cell's format. That would be wrong for
    # files of CSV, in which the meaning of an empty cell depends on the type of the field. It would be wrong for a
    # constant that is a datetime, too: such a constant has the type of its field already.
    if not admits_all(source) or source.connector.format_name == "csv":
        return None
    copied: dict[str, Ref | Constant] = {}
    for name, made in source.preproc:
        match made:
            case Ref(path=(_,)):
                copied[name] = made
            case Constant(dtype=dtype) if dtype != DATETIME:
                copied[name] = made
            case _:
                return None
    return copied


def _columns_read(plan: IngestPlan) -> frozenset[str] | None:
    """Return the columns of a payload that a dataset reads; None if they can't be known."""
    source = plan.source
    computed = [made for _, made in source.preproc if isinstance(made, Computed)]
    if source.where is not None:
        computed.append(source.where)
    if source.cdc.has_envelopes or any(isinstance(made.by, PythonFunction) for made in computed):
        return None
    fields = {column.name for column in plan.fields}
    return frozenset(fields | demanded_columns(plan.dataset, source).keys())
