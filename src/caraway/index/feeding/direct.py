"""Records of an index that computes its dataset's pipeline itself, from the records of the pipeline's input.

They have the bytes that a job would have written for the same rows, apart from rows whose key is too long: a job makes
a dead letter of such a row, and so does `DirectReader`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson

from caraway.dtypes.types import BOOL, DATETIME, DataType, optional, strip_optional
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Node
from caraway.expr.scalars.compiler import compile_scalar
from caraway.expr.scalars.scope import Row, Scalar
from caraway.graph import operators as ops
from caraway.index.records.delivery import Delivered, Message, Puts
from caraway.index.records.versions import VersionFeed
from caraway.index.windows.aggregate_inputs import AggregateInputFeed
from caraway.plan.model import DirectFeed, IndexPlan
from caraway.topics.codec import FORMAT, PUT, Record, RecordCodec
from caraway.topics.dead_letters import MAX_PAYLOAD
from caraway.topics.identity import position_id
from caraway.topics.keys import MAX_KEY_BYTES, too_long

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
        self._make = _compiled(plan, direct)
        self._known_keys: dict[tuple[object, ...], bytes] = {}

    def read(self, key: bytes, value: bytes, partition: int, offset: int) -> Delivered | None:
        """Return the index's record for a record of the input; None if a step drops the row or it isn't held.

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
        record_id = record.id or position_id(offset, partition)
        if len(kafka_key) > MAX_KEY_BYTES:
            raise self._too_long(kafka_key, row, record, record_id)
        taken = Record(FORMAT, self._fingerprint, PUT, time_us, record.ingested, record_id, None, row)
        data = self._codec.encode_value(
            op=PUT, time_us=time_us, ingested_us=record.ingested, record_id=record_id, row=row
        )
        return self._feed.take(kafka_key, taken, record_id, data)

    def read_all(self, messages: Sequence[Message]) -> Puts | None:
        """Return the index's records for several records of the input; None if they have to be read one by one.

        That is so if one of them can't be read or indexed.
        """
        try:
            return self._read_all(messages)
        except InvalidInputError:
            return None

    def _read_all(self, messages: Sequence[Message]) -> Puts | None:
        records = self._source.decode_puts([value or b"" for _, value, _, _ in messages])
        made = [
            (*found, record.ingested, record.id or position_id(offset, partition))
            for record, (_, _, partition, offset) in zip(records, messages, strict=True)
            if (found := self._make(record)) is not None
        ]
        keys = self._encoded_keys([row for _, row, _, _ in made])
        if max(map(len, keys), default=0) > MAX_KEY_BYTES:
            return None
        if self._holds is not None:
            held = {key: self._holds(key) for key in set(keys)}
            made = [found for found, key in zip(made, keys, strict=True) if held[key]]
            keys = [key for key in keys if held[key]]
        times, rows, ingested, ids = zip(*made, strict=True) if made else ((), (), (), ())
        data = self._codec.encode_puts(rows, times, ingested, ids)
        puts = Puts(keys, times, ids, data, newest_ingested_us=max(ingested, default=0))
        self._feed.complete(puts, rows)
        return puts

    def _encoded_keys(self, rows: Sequence[Sequence[object]]) -> list[bytes]:
        """Return the Kafka keys of rows. Those of frequent keys are kept, since encoding takes longer than a lookup."""
        known, encode = self._known_keys, self._codec.encode_key
        if len(known) > KEPT_KEYS:
            known.clear()
        found: list[bytes] = []
        for row in rows:
            values = tuple(row[: self._keys])
            try:
                key = known.get(values)
                if key is None:
                    key = encode(values) or b""
                    if len(key) <= KEPT_BYTES:
                        known[values] = key
            except TypeError:
                # A list or map can't be looked up.
                key = encode(values) or b""
            found.append(key)
        return found

    def _too_long(self, key: bytes, row: list[object], record: Record, record_id: bytes) -> DeadLetterError:
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


Make = Callable[[Record], tuple[int, list[Any]] | None]


def _compiled(plan: IndexPlan, direct: DirectFeed) -> Make:
    """Return the function from a record of the input to the time and the row of the index's record."""
    operator, source = direct.operator, direct.source
    names = [column.name for column in source.columns]
    columns = [column.name for column in plan.schema.columns]
    end = operator.of if isinstance(operator, ops.Aggregate | ops.Latest) else operator
    along = operator.along if isinstance(operator, ops.Aggregate) else None
    original = _originals(end)
    if original is not None and along is None:
        return _picked([names.index(original.get(column, column)) for column in columns])
    steps = _Steps({column.name: column.dtype for column in source.columns}, source.timestamp).compiled(end)

    def make(record: Record) -> tuple[int, list[Any]] | None:
        row: dict[str, Any] = dict(zip(names, record.row or (), strict=True))
        row[source.timestamp] = record.time
        for step in steps:
            if not step(row):
                return None
        return (record.time if along is None else row[along]), [row[name] for name in columns]

    return make


def _picked(positions: list[int]) -> Make:
    """Return the function if the row consists of values of the input at these positions."""
    if len(positions) == 1:
        (only,) = positions
        return lambda record: (record.time, [record.row[only]])  # type: ignore[index]  # a put has a row
    pick: Callable[[Any], tuple[Any, ...]] = itemgetter(*positions)
    return lambda record: (record.time, list(pick(record.row)))


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
