"""The newest rows of a dataset, from the topic that has them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from caraway.dataplane.index.feeding.writer import singles_of
from caraway.dataplane.index.storage.intervals import last_end
from caraway.dataplane.topics.codec import PUT, Record, RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, is_erasure
from caraway.dataplane.topics.markers import is_marker
from caraway.dataplane.topics.newest import Wanted
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.instants import iso_instant
from caraway.dtypes.types import optional
from caraway.dtypes.values import to_json
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column, GraphPlan, IndexPlan, RecordSchema, TopicKind
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import HoppingWindow, SessionWindow

# Reading stops after this many bytes of records, even if the sample has fewer rows than are wanted.
MAX_BYTES = 2 * 1024 * 1024
# The number of records that are read for each wanted row, and the least number for all rows together. More records than
# rows are read, since some are retractions, deletes or earlier revisions, and many of an aggregation have the same key.
RECORDS_PER_ROW, LEAST_RECORDS = 4, 100
# The least revision, which records without one have.
NO_REVISION = b""

Json = dict[str, Any]
# Looks rows up by their keys: returns which were found, and the columns of values as JSON.
LookUp = Callable[[Sequence[Json]], tuple[Sequence[bool], Mapping[str, Sequence[object]]]]


class Newest(Protocol):
    """Reads the newest messages of a topic: `caraway.dataplane.topics.newest.NewestReader`."""

    def newest(self, topic: str, records: int, *, max_bytes: int, wanted: Wanted) -> list[Message]:
        """Return about `records` of a topic, newest first."""
        ...


@dataclass(frozen=True, slots=True)
class _Row:
    """The event time of a row, and its columns in stored form."""

    time_us: int
    values: Mapping[str, object]


def newest_rows(
    spec: DatasetSpec, plan: GraphPlan, count: int, *, reader: Newest, erased: ErasedKeys, look_up: LookUp
) -> list[Json]:
    """Return up to `count` of the newest rows of a dataset as JSON, newest first. Blocks.

    Rows of an aggregation are those of the keys whose aggregate inputs came last. Rows that were deleted later, and
    those of erased keys, are left out.

    Args:
        spec: The dataset.
        plan: The plan of the graph that has it.
        count: The most rows.
        reader: Reads topics.
        erased: The erased keys.
        look_up: Looks up rows of the dataset by key.

    Raises:
        InvalidInputError: The rows are sessions, which can't be found by their aggregate inputs.
        UnavailableError: Kafka doesn't answer in time, or this process can't tell which keys are erased.
    """
    records = max(LEAST_RECORDS, RECORDS_PER_ROW * count)
    index = next((found for found in plan.indexes if found.dataset == spec.name), None)
    topic = next(found for found in plan.topics if found.dataset == spec.name)
    if index is not None and index.emits is not None:
        rows = _rows(reader, index.emits.name, index.emits.schema, records)
        return _shown(spec, _kept(rows, index.topic, index.schema, erased), count)
    rows = _rows(reader, topic.name, topic.schema, records)
    if index is not None and topic.kind is TopicKind.AGGREGATE_INPUTS:
        return _looked_up(spec, index, rows, look_up, count)
    return _shown(spec, _kept(rows, topic.name, topic.schema, erased), count)


def _rows(reader: Newest, topic: str, schema: RecordSchema, records: int) -> list[_Row]:
    return [_row(schema, record.time, record.row or ()) for record in _records(reader, topic, schema, records)]


def _records(reader: Newest, topic: str, schema: RecordSchema, records: int) -> list[Record]:
    """Return the puts among the newest records of a topic, of each identity that of the greatest revision."""
    codec = RecordCodec(schema)
    found: dict[bytes, Record] = {}
    messages = reader.newest(topic, records, max_bytes=MAX_BYTES, wanted=_has_rows)
    # The newest message comes first, but the records within a message are in the order in which they were written. So
    # these are reversed.
    for message in messages:
        for _, value, position in reversed(singles_of(message)):
            try:
                record = codec.decode_value(value or b"")
            except InvalidInputError:
                # Indexes and jobs leave out such a record, too, and report it.
                continue
            identity = record.id or position
            known = found.get(identity)
            if known is None or _order(known) < _order(record):
                found[identity] = record
    return [record for record in found.values() if record.op == PUT and record.row is not None]


def _order(record: Record) -> tuple[bytes, bool]:
    # A put wins against a retraction of the same revision.
    return record.rev or NO_REVISION, record.op == PUT


def _has_rows(key: bytes | None) -> bool:
    return not (is_marker(key) or is_erasure(key))


def _row(schema: RecordSchema, time_us: int, values: Sequence[object]) -> _Row:
    columns = {column.name: value for column, value in zip(schema.columns, values, strict=True)}
    return _Row(time_us, {**columns, schema.timestamp: columns.get(schema.timestamp, time_us)})


def _kept(rows: Sequence[_Row], scope: str, schema: RecordSchema, erased: ErasedKeys) -> Iterator[_Row]:
    """Yield the rows whose keys aren't erased."""
    for row in rows:
        known: dict[Column, object] = {column: row.values[column.name] for column in schema.columns}
        if not erased.hides_values(scope, known):
            yield row


def _shown(spec: DatasetSpec, rows: Iterator[_Row], count: int) -> list[Json]:
    """Return rows as JSON; types are optional here, since a null that shouldn't be there is to be seen."""
    converts = {field.name: to_json(optional(field.dtype)) for field in spec.fields}
    shown: list[Json] = []
    for row in rows:
        if len(shown) == count:
            break
        stamped = {**row.values, spec.timestamp: row.time_us}
        shown.append({name: convert(stamped.get(name)) for name, convert in converts.items()})
    return shown


def _looked_up(spec: DatasetSpec, index: IndexPlan, rows: Sequence[_Row], look_up: LookUp, count: int) -> list[Json]:
    """Return the rows of an aggregation that the index has now for the keys of its newest aggregate inputs."""
    keys: dict[str, Json] = {}
    converts = [(column.name, to_json(column.dtype)) for column in index.schema.keys]
    for row in rows:
        group = {name: convert(row.values[name]) for name, convert in converts}
        for key in _with_window(spec, index, group, row.time_us):
            keys.setdefault(repr(key), key)
    asked = list(keys.values())[: 2 * count if index.window is not None else count]
    if not asked:
        return []
    found, data = look_up(asked)
    every = [{name: column[place] for name, column in data.items()} for place in range(len(asked))]
    return [row for row, there in zip(every, found, strict=True) if there][:count]


def _with_window(spec: DatasetSpec, index: IndexPlan, group: Json, time_us: int) -> list[Json]:
    """Return the keys of the rows that an aggregate input at a time may be in."""
    match index.window:
        case None:
            return [group]
        case HoppingWindow(length_us=int(length_us)) as window:
            # The last window that contains the input may still be open and have no row. So the last window that was
            # complete at the input's time is looked up, too.
            ends = dict.fromkeys((last_end(window, time_us + length_us), last_end(window, time_us)))
            return [{**group, "window": _window(end - length_us, end)} for end in ends]
        case HoppingWindow() | SessionWindow():
            raise InvalidInputError(
                f"the rows of {spec.name} are sessions, whose begins and ends only its index knows; look up a row by "
                "its key"
            )


def _window(begin_us: int, end_us: int) -> Json:
    return {"begin": iso_instant(begin_us), "end": iso_instant(end_us)}
