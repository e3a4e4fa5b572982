"""Messages come out of the archive as they went in, in the order of their offsets, however the table is written."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from caraway.dataplane.archive.store.columns import Encoder, columns_of
from caraway.dataplane.archive.store.messages import ArchivedMessages
from caraway.dataplane.archive.store.tables import ArchiveTable
from caraway.dataplane.topics.blocks import block_of, split
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.graph.plan.model import Column, RecordSchema
from tests.unit.dataplane.archive.test_columns import COLUMNS, KEYLESS, ROWS

USER, NUMBER, X = Column(name="user", dtype=STRING), Column(name="number", dtype=INT), Column(name="x", dtype=FLOAT)
EVENTS = RecordSchema(keys=(), columns=(USER, NUMBER, X), timestamp="at", fingerprint=11)
VERSIONS = RecordSchema(keys=(USER,), columns=(USER, NUMBER, X), timestamp="at", fingerprint=12)
PATH = "archive/t/id"


def archived(folder: Path, schema: RecordSchema, written: Sequence[Sequence[Message]]) -> ArchiveTable:
    """Return a table to which messages were written in several commits."""
    columns = columns_of(schema)
    table = ArchiveTable.opened(str(folder), PATH, columns.arrow, dataset="T")
    for messages in written:
        positions = {partition: offset + 1 for _, _, partition, offset in messages}
        table.append(Encoder("t", columns).table(messages), positions)
    return table


def read(folder: Path, schema: RecordSchema, begin: Mapping[int, int], most: int) -> dict[int, list[Message]]:
    """Return the messages from some offsets on by partition, read so many records at a time."""
    messages = ArchivedMessages.opened(str(folder), PATH, schema, list(begin))
    assert messages is not None
    positions, found = dict(begin), {partition: list[Message]() for partition in begin}
    while spans := messages.next_spans(positions, most):
        for message in messages.read(spans):
            assert spans[message[2]][0] <= message[3] < spans[message[2]][1]
            found[message[2]].append(message)
        positions |= {partition: end for partition, (_, end) in spans.items()}
    assert positions == {p: max(messages.positions[p], begin[p]) for p in begin}
    return found


def events(random_: random.Random, partition: int, count: int) -> list[Message]:
    """Return random messages of a dataset without keys: records, blocks and markers, out of order in time."""
    codec = RecordCodec(EVENTS)
    messages: list[Message] = []
    for offset in range(count):
        if random_.random() < 0.1:
            messages.append((MARKER_KEY, b"t" * 16, partition, offset))
            continue
        values = [
            codec.encode_value(
                op=PUT,
                time_us=random_.randrange(10**9),
                ingested_us=offset,
                row=[f"u{random_.randrange(5)}", random_.randrange(-9, 9), random_.random()],
            )
            for _ in range(random_.choice((1, 2, 7)))
        ]
        messages.append((None, values[0] if len(values) == 1 else block_of(values), partition, offset))
    return messages


def versions(random_: random.Random, partition: int, count: int) -> list[Message]:
    """Return random messages of a dataset with keys: puts, deletes and retractions with revisions."""
    codec = RecordCodec(VERSIONS)
    messages: list[Message] = []
    for offset in range(count):
        user = f"u{random_.randrange(5)}"
        own = random_.random() < 0.5
        value = codec.encode_value(
            op=random_.choice((PUT, DELETE, RETRACT)),
            time_us=random_.randrange(10**9),
            ingested_us=offset,
            row=[user, random_.randrange(-9, 9), random_.random()],
            record_id=random_.randbytes(12) if own else None,
            rev=random_.randbytes(8) if own else None,
        )
        messages.append((codec.encode_key([user]), value, partition, offset))
    return messages


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("schema", "made"), [(EVENTS, events), (VERSIONS, versions)], ids=["events", "versions"])
def test_messages_come_out_as_they_went_in(tmp_path: Path, schema: RecordSchema, made: object, seed: int) -> None:
    random_ = random.Random(seed)
    assert callable(made)
    by_partition = {partition: made(random_, partition, random_.randrange(1, 60)) for partition in (0, 1)}
    left = {partition: list(messages) for partition, messages in by_partition.items()}
    table = archived(tmp_path, schema, [])
    while any(left.values()):
        taken = [message for messages in left.values() for message in _taken(messages, random_.randrange(20))]
        if taken:
            table.append(
                Encoder("t", columns_of(schema)).table(taken), {partition: o + 1 for _, _, partition, o in taken}
            )
        if random_.random() < 0.3:
            table.compact()
    begin = {partition: random_.choice((0, 3, 10**6)) for partition in by_partition}
    expected = {
        partition: [m for m in messages if m[0] != MARKER_KEY and m[3] >= begin[partition]]
        for partition, messages in by_partition.items()
    }
    assert read(tmp_path, schema, begin, random_.choice((1, 10, 1000))) == expected


def _taken(messages: list[Message], count: int) -> list[Message]:
    taken = messages[:count]
    del messages[:count]
    return taken


@given(found=ROWS)
@settings(max_examples=10)
def test_values_of_all_types_keep_their_bits(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, dict[str, Any]]]
) -> None:
    folder = tmp_path_factory.mktemp("types")
    codec = RecordCodec(KEYLESS)
    sent: list[Message] = [
        (None, codec.encode_value(op=PUT, time_us=time, ingested_us=1, row=[row[c.name] for c in COLUMNS]), 0, offset)
        for offset, (time, row) in enumerate(found)
    ]
    archived(folder, KEYLESS, [sent])
    assert read(folder, KEYLESS, {0: 0}, 3) == {0: sent}


def test_records_of_a_block_keep_their_identities_when_others_are_erased(tmp_path: Path) -> None:
    codec = RecordCodec(EVENTS)
    values = [codec.encode_value(op=PUT, time_us=n, ingested_us=0, row=["u", n, 0.0]) for n in range(6)]
    table = archived(tmp_path, EVENTS, [[(None, block_of(values[:3]), 1, 7), (None, block_of(values[3:]), 1, 8)]])
    table._table.delete("number in (1, 4, 5)")
    first, second = read(tmp_path, EVENTS, {1: 0}, 100)[1]
    assert [codec.decode_value(value).id for value in split(first[1] or b"")] == [
        position_id(7, 1, 0),
        position_id(7, 1, 2),
    ]
    # The first record of a block has the identity that it would have as a message of its own.
    assert codec.decode_value(second[1] or b"").id in {None, position_id(8, 1, 0)}
    assert second[2:] == (1, 8)


def test_a_topic_that_was_never_archived_has_no_messages(tmp_path: Path) -> None:
    assert ArchivedMessages.opened(str(tmp_path), PATH, EVENTS, [0]) is None
    archived(tmp_path, EVENTS, [])
    assert read(tmp_path, EVENTS, {0: 0, 1: 5}, 10) == {0: [], 1: []}
