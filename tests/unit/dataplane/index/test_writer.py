"""Records that can't be applied, and results at the edges of their types."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import DELETE, PUT, RecordCodec
from caraway.dataplane.topics.identity import position_id
from caraway.dataplane.topics.left_out import LeftOut
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import DATE, DATETIME, INT, STRING, DecimalType
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.plan.model import Column, IndexKind
from caraway.graph.windows import ContinuousWindow
from tests.unit.dataplane.index.naive import ALL_AGGREGATES, CODEC, SCHEMA, Sent, aggregate, index_plan

KEY = CODEC.encode_key(["a"]) or b""
PLAN = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=ALL_AGGREGATES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IndexStore]:
    with IndexStore(tmp_path / "index") as opened:
        yield opened


def put(offset: int, row: tuple[object, ...], record_id: bytes | None = None) -> Message:
    return Sent("a", record_id or position_id(offset, 0), b"", PUT, 10, row).message(offset)


def test_bad_records_are_told_and_counted_and_the_others_are_applied(store: IndexStore) -> None:
    told: list[LeftOut] = []
    writer = IndexWriter(store, leave_out=lambda _dataset, _topic, records: told.extend(records))
    other = RecordCodec(replace(SCHEMA, fingerprint=1))
    foreign = other.encode_value(op=PUT, time_us=0, ingested_us=0, row=["a", 1, 0.5, "1.00"])
    messages: list[Message] = [
        (KEY, b"garbage", 0, 0),
        (KEY, None, 0, 1),
        (KEY, foreign, 0, 2),
        put(3, ("text", 0.5, None)),
        put(4, (1, "text", None)),
        put(5, (1, 0.5, "1.234")),
        put(6, (1, 0.5, "text")),
        put(7, (True, 0.5, None)),
        Sent("a", position_id(8, 0), b"", DELETE, 10, (1, 0.5, None)).message(8),
        (b"k" * 70_000, put(9, (1, 0.5, None))[1], 0, 9),
        put(10, (1, 0.5, "1.00")),
    ]
    applied = writer.apply(PLAN, messages)
    assert (applied.written, applied.unchanged, applied.refused) == (1, 0, 10)
    assert [record.position for record in told] == [position_id(offset, 0) for offset in range(10)]
    assert all(record.reason for record in told)
    assert store.left_out(PLAN.asset) == 10
    assert store.offsets(PLAN.asset) == {0: 11}
    assert IndexReader(store).read(PLAN, [KEY], 100, ["count_None_None"]) == ([[1]], [True])


def test_nothing_is_left_out_that_cannot_be_told(store: IndexStore) -> None:
    def away(*_: object) -> None:
        raise UnavailableError("no broker")

    with pytest.raises(UnavailableError):
        IndexWriter(store, leave_out=away).apply(PLAN, [(KEY, b"garbage", 0, 0), put(1, (1, 0.5, None))])
    assert (store.offsets(PLAN.asset), store.left_out(PLAN.asset)) == ({}, 0)


def test_a_version_without_a_key_is_refused(store: IndexStore) -> None:
    versions = index_plan(IndexKind.VERSIONS, revised=False)
    applied = IndexWriter(store).apply(versions, [(None, put(0, (1, 0.5, None))[1], 0, 0)])
    assert applied.refused == 1


def test_a_position_is_the_id_of_a_record_without_one(store: IndexStore) -> None:
    versions = index_plan(IndexKind.VERSIONS, revised=False)
    values = [CODEC.encode_value(op=PUT, time_us=10, ingested_us=n, row=["a", n, None, None]) for n in range(3)]
    writer, reader = IndexWriter(store), IndexReader(store)
    # Among versions of equal times the one with the later position holds, whatever the order of delivery.
    writer.apply(versions, [(KEY, values[2], 0, 7), (KEY, values[1], 0, 6), (KEY, values[0], 3, 5)])
    assert reader.read(versions, [KEY], 10, ["n"]) == ([[2]], [True])
    totals = index_plan(IndexKind.AGGREGATE, revised=False, aggregates=ALL_AGGREGATES, asset=b"asset--2")
    for _ in range(2):
        writer.apply(totals, [(KEY, values[2], 0, 7), (KEY, values[2], 1, 7)])
    assert reader.read(totals, [KEY], 10, ["sum_n_None"]) == ([[4]], [True])


def test_a_sum_beyond_64_bits_reads_as_null_and_recovers(store: IndexStore, caplog: pytest.LogCaptureFixture) -> None:
    writer, reader = IndexWriter(store), IndexReader(store)
    writer.apply(PLAN, [put(0, (2**63 - 1, None, None)), put(1, (1, None, None))])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert reader.read(PLAN, [KEY], 100, ["sum_n_None", "average_n_None"]) == ([[None], [2.0**62]], [True])
    assert caplog.text.count("beyond 64 bits") == 1
    writer.apply(PLAN, [put(2, (-1, None, None))])
    assert reader.read(PLAN, [KEY], 100, ["sum_n_None"]) == ([[2**63 - 1]], [True])


def test_times_and_days_have_least_and_greatest(store: IndexStore) -> None:
    key = Column(name="k", dtype=STRING)
    columns = (key, Column(name="day", dtype=DATE), Column(name="at", dtype=DATETIME))
    schema = replace(SCHEMA, columns=columns)
    aggregates = tuple(
        AggregateSpec(
            function=function,
            into=f"{function.value}_{of}",
            of=of,
            window=ContinuousWindow(length_us=None),
            default=None,
            dtype=INT,
        )
        for function in (AggregateFunction.MIN, AggregateFunction.MAX)
        for of in ("day", "at")
    )
    plan = replace(PLAN, schema=schema, aggregates=aggregates)
    codec = RecordCodec(schema)
    values = [codec.encode_value(op=PUT, time_us=1, ingested_us=0, row=["a", d, t]) for d, t in [(5, 9), (3, 11)]]
    IndexWriter(store).apply(plan, [(KEY, value, 0, position) for position, value in enumerate(values)])
    names = [spec.into for spec in aggregates]
    assert IndexReader(store).read(plan, [KEY], 5, names) == ([[3], [9], [5], [11]], [True])


def test_decimals_of_28_digits_have_least_and_greatest(store: IndexStore) -> None:
    dtype = DecimalType(scale=28)
    schema = replace(SCHEMA, columns=(Column(name="k", dtype=STRING), Column(name="d", dtype=dtype)))
    plan = replace(
        PLAN,
        schema=schema,
        aggregates=tuple(
            AggregateSpec(
                function=function,
                into=function.value,
                of="d",
                window=ContinuousWindow(length_us=None),
                default=None,
                dtype=dtype,
            )
            for function in (AggregateFunction.MIN, AggregateFunction.MAX, AggregateFunction.SUM)
        ),
    )
    codec, writer = RecordCodec(schema), IndexWriter(store, cached_tiles=0)
    texts = [sign + "9." + "1" * 28 for sign in ("", "-")]
    for position, text in enumerate(texts):
        value = codec.encode_value(op=PUT, time_us=1, ingested_us=0, row=["a", text])
        assert not writer.apply(plan, [(KEY, value, 0, position)]).refused
        # The next record merges with the tile in the database.
        writer.take_over()
    expected = [[texts[1]], [texts[0]], ["0." + "0" * 28]]
    assert IndexReader(store).read(plan, [KEY], 5, ["min", "max", "sum"]) == (expected, [True])


def test_zero_has_no_sign(store: IndexStore) -> None:
    IndexWriter(store).apply(PLAN, [put(0, (0, -0.0, "-0.00")), put(1, (0, 0.0, "0.00"))])
    names = ["min_x_None", "max_x_None", "sum_x_None", "sum_d_None", "min_d_None"]
    columns, _ = IndexReader(store).read(PLAN, [KEY], 100, names)
    assert repr(columns) == "[[0.0], [0.0], [0.0], ['0.00'], ['0.00']]"


@pytest.mark.parametrize("kind", list(IndexKind))
def test_an_unknown_column_is_an_error(store: IndexStore, kind: IndexKind) -> None:
    plan = index_plan(kind, revised=False, aggregates=ALL_AGGREGATES if kind is IndexKind.AGGREGATE else ())
    with pytest.raises(InvalidInputError, match="D has no column oops; it has k, "):
        IndexReader(store).read(plan, [KEY], 0, ["oops"])


def test_text_can_not_be_aggregated(store: IndexStore) -> None:
    plan = replace(PLAN, aggregates=(aggregate(AggregateFunction.SUM, "k", None),))
    with pytest.raises(InvalidInputError, match="column k of type str has no numbers"):
        IndexWriter(store).apply(plan, [])


def test_no_keys_no_rows(store: IndexStore) -> None:
    assert IndexReader(store).read(PLAN, [], 0, ["k", "t"]) == ([[], []], [])


def test_a_failed_write_leaves_nothing_behind(store: IndexStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = IndexWriter(store), IndexReader(store)
    writer.apply(PLAN, [put(0, (1, 0.5, None))])

    def fail(batch: object) -> None:
        raise Exception("IO error: No space left on device")  # noqa: TRY002 - as RocksDB's binding does

    with monkeypatch.context() as broken:
        broken.setattr(store, "write", fail)
        with pytest.raises(Exception, match="No space left"):
            writer.apply(PLAN, [put(1, (1, 0.5, None))])
    assert reader.read(PLAN, [KEY], 100, ["count_None_None"]) == ([[1]], [True])
    writer.apply(PLAN, [put(1, (1, 0.5, None)), put(2, (1, 0.5, None))])
    assert reader.read(PLAN, [KEY], 100, ["count_None_None"]) == ([[3]], [True])
