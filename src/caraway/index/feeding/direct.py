"""Records of an index that computes its dataset's pipeline itself, from the records of the pipeline's input.

They have the bytes that a job would have written for the same rows, apart from rows whose key is too long: a job makes
a dead letter of such a row, and so does `DirectReader`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any, Protocol

import orjson

from caraway.dtypes.types import BOOL, DATETIME, DataType, optional, strip_optional
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Node
from caraway.expr.scalars.compiler import compile_scalar
from caraway.expr.scalars.scope import Row, Scalar
from caraway.graph import operators as ops
from caraway.index.records.delivery import Delivered, Puts
from caraway.index.records.versions import VersionFeed
from caraway.index.windows.aggregate_inputs import AggregateInputFeed
from caraway.plan.model import DirectFeed, IndexPlan, RecordSchema
from caraway.topics.codec import FORMAT, PUT, Record, RecordCodec
from caraway.topics.dead_letters import MAX_PAYLOAD
from caraway.topics.identity import position_ids
from caraway.topics.keys import MAX_KEY_BYTES, too_long
from caraway.topics.reader import Message

# The most encoded keys that are kept, and the most bytes of each.
KEPT_KEYS, KEPT_BYTES = 50_000, 100

# A feed of an index's records: `take` and `complete` prepare them for `apply` and `put`, which add them to a batch.
Feed = VersionFeed | AggregateInputFeed
# Returns whether the rows of a Kafka key are in this part of a divided index.
HoldsKey = Callable[[bytes], bool]
# Changes a row, and returns whether it is kept.
Step = Callable[[Row], bool]


class DeadLetterError(InvalidInputError):
    """A row that an index can't take, although its dataset's source accepted it; `letter` is the dead letter of it."""

    def __init__(self, message: str, letter: bytes) -> None:
        super().__init__(message)
        self.letter = letter


class DirectReader:
    """A reader of records of a pipeline's input, which returns those of the index."""

    def __init__(self, plan: IndexPlan, direct: DirectFeed, feed: Feed, holds: HoldsKey | None = None) -> None:
        """Compile the pipeline; rows of keys that aren't held are left out."""
        self._plan = plan
        self._direct = direct
        self._feed = feed
        self._holds = holds
        self._source = RecordCodec(direct.source)
        self._codec = RecordCodec(plan.schema)
        self._keys = len(plan.schema.keys)
        self._fingerprint = plan.schema.fingerprint
        self._make = compiled(plan.schema, direct)
        # By the value of the key column, or by a tuple of several values.
        self._known_keys: dict[object, bytes] = {}

    def read(self, key: bytes, value: bytes, position: bytes) -> Delivered | None:
        """Return the index's record for a record of the input; None if a step drops the row or it isn't held.

        `position` is the identity of a record that contains none.

        Raises:
            DeadLetterError: The index can't take the row.
            InvalidInputError: The record can't be read.
        """
        del key
        record = self._source.decode_value(value)
        if record.op != PUT or record.row is None:
            raise InvalidInputError("a record of events must be a put")
        made = self._make(record)
        if made is None:
            return None
        time_us, row = made
        kafka_key = self._codec.encode_key(row[: self._keys]) or b""
        if self._holds is not None and not self._holds(kafka_key):
            return None
        record_id = record.id or position
        if len(kafka_key) > MAX_KEY_BYTES:
            raise self._too_long(kafka_key, row, record, record_id)
        taken = Record(FORMAT, self._fingerprint, PUT, time_us, record.ingested, record_id, None, list(row))
        data = self._codec.encode_value(
            op=PUT, time_us=time_us, ingested_us=record.ingested, record_id=record_id, row=row
        )
        return self._feed.take(kafka_key, taken, record_id, data)

    def read_all(self, messages: Sequence[Message]) -> Puts | None:
        """Return the index's records for the records of several messages; None if they have to be read one by one.

        That is so if one of them can't be read or indexed.
        """
        try:
            return self._read_all(messages)
        except InvalidInputError:
            return None

    def _read_all(self, messages: Sequence[Message]) -> Puts | None:
        records: list[Record] = []
        ids: list[bytes] = []
        for _, value, partition, offset in messages:
            found = self._source.decode_message(value or b"")
            records += found
            ids += position_ids(offset, partition, len(found))
        orders = [record.id or record_id for record, record_id in zip(records, ids, strict=True)]
        ingested = [record.ingested for record in records]
        times, rows, kept = self._make.many(records)
        if kept is not None:
            orders, ingested = list(compress(orders, kept)), list(compress(ingested, kept))
        keys = self._encoded_keys(rows)
        if max(map(len, keys), default=0) > MAX_KEY_BYTES:
            return None
        if self._holds is not None:
            holds = {key: self._holds(key) for key in set(keys)}
            held = [holds[key] for key in keys]
            times, rows, keys = list(compress(times, held)), list(compress(rows, held)), list(compress(keys, held))
            orders, ingested = list(compress(orders, held)), list(compress(ingested, held))
        data = self._codec.encode_puts(rows, times, ingested, orders, decoded=self._make.picks)
        left_out = len(records) - len(rows)
        puts = Puts(keys, times, orders, data, newest_ingested_us=max(ingested, default=0), left_out=left_out)
        self._feed.complete(puts, rows)
        return puts

    def _encoded_keys(self, rows: Sequence[Sequence[object]]) -> list[bytes]:
        """Return the Kafka keys of rows. Those of frequent keys are kept, since encoding takes longer than a lookup."""
        known, encode, count = self._known_keys, self._codec.encode_key, self._keys
        if len(known) > KEPT_KEYS:
            known.clear()
        values: list[Any] = [row[0] for row in rows] if count == 1 else [tuple(row[:count]) for row in rows]
        try:
            found = list(map(known.get, values))
        except TypeError:
            # A list or map can't be looked up.
            return [encode(row[:count]) or b"" for row in rows]
        if None in found:
            for position, key in enumerate(found):
                if key is None:
                    found[position] = made = encode(rows[position][:count]) or b""
                    if len(made) <= KEPT_BYTES:
                        known[values[position]] = made
        return found  # type: ignore[return-value]

    def _too_long(self, key: bytes, row: Sequence[object], record: Record, record_id: bytes) -> DeadLetterError:
        keys = self._plan.schema.keys
        field, message = too_long(key, keys, row[: self._keys])
        columns = [column.name for column in self._direct.source.columns]
        shown: object = dict(zip(columns, record.row or (), strict=True))
        text = orjson.dumps(shown, default=_shown)
        letter = {
            "dataset": self._direct.label.rpartition(".")[0],
            "pipeline": self._direct.pipeline,
            "operator": "output",
            "index": self._direct.label,
            "reason": [{"field": field or None, "message": message}],
            "row": shown if len(text) <= MAX_PAYLOAD else text[:MAX_PAYLOAD].decode(errors="replace"),
            "id": record_id.hex().upper(),
            "rev": None,
            "event_time": record.time,
            "ingested": record.ingested,
            "time": time.time_ns() // 1_000,
        }
        return DeadLetterError(message, orjson.dumps(letter, default=_shown))


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


class MakesRows(Protocol):
    """Makes the records of the index from those of the input. If it `picks`, their values are those of the input."""

    picks: bool

    def __call__(self, record: Record) -> tuple[int, Sequence[Any]] | None:
        """Return the time and the row of the index's record; None if a step drops the row."""
        ...

    def many(self, records: Sequence[Record]) -> tuple[list[int], list[Sequence[Any]], list[bool] | None]:
        """Return the times and rows that several records make, and which records make one; None if all do."""
        ...


def compiled(schema: RecordSchema, direct: DirectFeed) -> MakesRows:
    """Return what makes rows with the columns of a schema from records of the pipeline's input."""
    operator, source = direct.operator, direct.source
    names = [column.name for column in source.columns]
    columns = [column.name for column in schema.columns]
    end = operator.of if isinstance(operator, ops.Aggregate | ops.Latest) else operator
    along = operator.along if isinstance(operator, ops.Aggregate) else None
    original = _originals(end)
    if original is not None and along is None:
        return _Picker([names.index(original.get(column, column)) for column in columns])
    steps = _Steps({column.name: column.dtype for column in source.columns}, source.timestamp).compiled(end)
    return _Chain(names, source.timestamp, steps, along, columns)


class _Picker:
    """Makes rows of values of the input at some positions."""

    picks = True

    def __init__(self, positions: Sequence[int]) -> None:
        self._pick: Callable[[Any], Sequence[Any]] = itemgetter(*positions)
        if len(positions) == 1:
            (only,) = positions
            self._pick = lambda row: (row[only],)

    def __call__(self, record: Record) -> tuple[int, Sequence[Any]]:
        return record.time, self._pick(record.row)

    def many(self, records: Sequence[Record]) -> tuple[list[int], list[Sequence[Any]], None]:
        return [record.time for record in records], list(map(self._pick, [record.row for record in records])), None


class _Chain:
    """Makes rows by steps."""

    picks = False

    def __init__(
        self, names: Sequence[str], timestamp: str, steps: Sequence[Step], along: str | None, columns: Sequence[str]
    ) -> None:
        """Take the input's columns `names` through steps; `along` is the column that has the time, if any has."""
        self._names = names
        self._timestamp = timestamp
        self._steps = steps
        self._along = along
        self._columns = columns

    def __call__(self, record: Record) -> tuple[int, Sequence[Any]] | None:
        row: dict[str, Any] = dict(zip(self._names, record.row or (), strict=True))
        row[self._timestamp] = record.time
        for step in self._steps:
            if not step(row):
                return None
        time_us = record.time if self._along is None else row[self._along]
        return time_us, [row[name] for name in self._columns]

    def many(self, records: Sequence[Record]) -> tuple[list[int], list[Sequence[Any]], list[bool] | None]:
        found = list(map(self, records))
        made = [one for one in found if one is not None]
        kept = None if len(made) == len(found) else [one is not None for one in found]
        return [time_us for time_us, _ in made], [row for _, row in made], kept


def _originals(operator: ops.Operator) -> dict[str, str] | None:
    """Return the names in the input of renamed columns, if all steps only choose and rename columns; otherwise None."""
    match operator:
        case ops.Input():
            return {}
        case ops.Select() | ops.Drop():
            return _originals(operator.of)
        case ops.Rename():
            found = _originals(operator.of)
            if found is None:
                return None
            for old, new in operator.pairs:
                found[new] = found.pop(old, old)
            return found
        case _:
            return None


class _Steps:
    """The compiler of steps, with the types of the columns before the next step."""

    def __init__(self, types: Mapping[str, DataType], timestamp: str) -> None:
        self._types = {**types, timestamp: DATETIME}

    def compiled(self, operator: ops.Operator) -> list[Step]:
        """Return the steps of a tree in their order."""
        match operator:
            case ops.Input():
                return []
            case ops.Select() | ops.Drop():
                # Columns that are left out may stay in the row, since no later step refers to them.
                return self.compiled(operator.of)
            case ops.Rename(of=of, pairs=pairs):
                steps = self.compiled(of)
                for old, new in pairs:
                    self._types[new] = self._types.pop(old)
                return [*steps, _renaming(pairs)]
            case ops.DropNull(of=of, columns=columns):
                steps = self.compiled(of)
                for column in columns:
                    self._types[column] = strip_optional(self._types[column])
                return [*steps, lambda row: all(row[column] is not None for column in columns)]
            case ops.Filter(of=of, predicate=node) | ops.FilterFunction(of=of, traced=node) if node is not None:
                steps = self.compiled(of)
                passes = self._scalar(node, optional(BOOL))
                return [*steps, lambda row: passes(row) is True]
            case ops.Assign(of=of, columns=assigned):
                return self._assigning(of, [(column.name, column.dtype, column.expr) for column in assigned])
            case ops.AssignFunction(of=of, column=name, dtype=dtype, traced=node) if node is not None:
                return self._assigning(of, [(name, dtype, node)])
            case _:
                raise TypeError(f"{type(operator).__name__} can't be computed by an index")

    def _assigning(self, of: ops.Operator, columns: list[tuple[str, DataType, Node]]) -> list[Step]:
        steps = self.compiled(of)
        computed = [(name, self._scalar(node, dtype)) for name, dtype, node in columns]
        self._types |= {name: dtype for name, dtype, _ in columns}
        return [*steps, _assigning(computed)]

    def _scalar(self, node: Node, dtype: DataType) -> Scalar:
        scalar = compile_scalar(node, dtype, self._types)
        if scalar is None:
            raise TypeError(f"{type(node).__name__} can't be computed row by row")
        return scalar


def _assigning(computed: list[tuple[str, Scalar]]) -> Step:
    if len(computed) == 1:
        ((name, scalar),) = computed

        def assign_one(row: Row) -> bool:
            row[name] = scalar(row)
            return True

        return assign_one

    def assign(row: Row) -> bool:
        # All expressions see the row as it was before the step.
        row.update([(name, scalar(row)) for name, scalar in computed])
        return True

    return assign


def _renaming(pairs: tuple[tuple[str, str], ...]) -> Step:
    def rename(row: Row) -> bool:
        for old, new in pairs:
            row[new] = row.pop(old)
        return True

    return rename
