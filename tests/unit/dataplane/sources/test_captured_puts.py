"""Changes that a log hands over by column are the same as changes one by one, wherever reading begins again."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.cdc.batch import COMMITTED_AT
from caraway.dataplane.sources.cdc.log import Begin, Change, Commit, Coordinate, Event, Puts
from caraway.dataplane.sources.cdc.postgres.columns import columns_of, values_of
from caraway.dataplane.sources.cdc.postgres.pgoutput import Relation, fields, heads
from caraway.dataplane.sources.cdc.postgres.values import _LOADERS, BOOL, FLOAT8, INT8, JSON, OID, loaded
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.reader import Position
from caraway.dtypes.types import DATETIME, INT, STRING, DataType, OptionalType
from caraway.expr import col
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Computed, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph
from tests.unit.dataplane.ingest.contexts import CAPTURED
from tests.unit.dataplane.sources.captured import EmptyLog, reader_of
from tests.unit.graph.building import dataset

# Texts that look like the bytes around them, nulls, and one text whose length needs three bytes.
TEXTS = st.none() | st.text("tnuabä", max_size=5).map(str.encode) | st.sampled_from([b"t" * 256, b"n" * 70_000])


def message(kind: bytes, texts: Sequence[bytes | None]) -> bytes:
    """Return a message of pgoutput that has a new row."""
    shown = [b"n" if text is None else b"t" + struct.pack(">I", len(text)) + text for text in texts]
    return kind + struct.pack(">I", 7) + b"N" + struct.pack(">H", len(texts)) + b"".join(shown)


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(TEXTS, min_size=width, max_size=width), min_size=1)),
    st.sampled_from([b"I", b"U"]),
)
@example([[b"a", None], [b"tt", b""]], b"I")
@example([[None], [None]], b"U")
def test_texts_that_are_found_together_are_those_of_each_message(rows: list[list[bytes | None]], kind: bytes) -> None:
    names = tuple("abcd"[: len(rows[0])])
    relation = Relation(("public", "t"), names, (25,) * len(names), (None,) * len(names))
    messages = [message(kind, row) for row in rows]
    assert all(each[:8] in heads(7, relation) for each in messages)
    found = columns_of(messages, len(names))
    assert found is not None
    one_by_one = [fields(each, 6, relation)[0] for each in messages]
    together = zip(*(column.to_pylist() for column in found), strict=True)
    assert list(map(list, together)) == rows == [list(row.values()) for row in one_by_one]


def test_a_message_that_lacks_a_value_has_no_columns() -> None:
    unchanged = message(b"U", [b"x", b"y"])[:-6] + b"u"
    assert columns_of([message(b"U", [b"x", b"y"]), unchanged], 2) is None


FLOATS = st.floats() | st.sampled_from([0.1, -0.0, 5e-324, 1e22, 123456789012345680.0])
VALUES = {
    INT8: st.integers(-(2**63), 2**63 - 1).map(str),
    OID: st.integers(0, 2**32 - 1).map(str),
    FLOAT8: FLOATS.map(lambda value: repr(value).replace("inf", "Infinity").replace("nan", "NaN")),
    BOOL: st.sampled_from("tf"),
    JSON: st.sampled_from(["{}", "[1,null]"]),
    25: st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8),
}


@given(st.sampled_from(list(VALUES)).flatmap(lambda oid: st.tuples(st.just(oid), st.lists(st.none() | VALUES[oid]))))
@example((FLOAT8, ["NaN", "Infinity", "-Infinity", None]))
def test_values_of_texts_that_are_found_together_are_those_of_the_loader(case: tuple[int, list[str | None]]) -> None:
    oid, texts = case
    load = _LOADERS.get(oid)
    encoded = [None if text is None else text.encode() for text in texts]
    expected = [None if text is None else text.decode() if load is None else load(text) for text in encoded]
    # A log gives the texts as a column, and a chunk as fields.
    for found in (values_of(pa.array(encoded, pa.large_binary()), load), loaded(encoded, load)):
        assert list(map(repr, found)) == list(map(repr, expected))


# Transactions: the changes of each, as the operation, the key, and the name of the new row.
CHANGES = st.tuples(st.sampled_from("ccccuuud"), st.integers(0, 5), st.sampled_from([None, "a", "b"]))
TRANSACTIONS = st.lists(st.lists(CHANGES, max_size=12), max_size=4)


class Scripted(EmptyLog):
    """A log of some transactions, which hands over puts by column or one by one."""

    def __init__(self, transactions: Sequence[Sequence[tuple[str, int, str | None]]], *, by_column: bool) -> None:
        self._transactions = transactions
        self._by_column = by_column
        self._waiting: list[Event] = []

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        assert at is not None
        assert not loading
        for number, changes in enumerate(self._transactions):
            if number >= at[0]:
                self._waiting.append(Begin((number,), 1_000_000 * number, {"txId": number}))
                self._waiting += map(_change, changes)
                self._waiting.append(Commit((number + 1,)))

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        assert rows > 0
        assert size > 0
        if not self._waiting:
            return None
        puts: list[Change] = []
        while self._by_column and len(puts) < rows and (found := self._waiting[0]) is not None:
            if not isinstance(found, Change) or found.op == "d":
                break
            puts.append(found)
            del self._waiting[0]
        if not puts:
            return self._waiting.pop(0)
        names = ("id", "name") if puts[0].after is not None else ()
        columns = {name: [(put.after or {})[name] for put in puts] for name in names}
        return Puts([put.op for put in puts], columns, [[str(put.key and put.key[0]) for put in puts]], len(puts))


def _change(made: tuple[str, int, str | None]) -> Change:
    op, key, name = made
    row = {"id": key, "name": name}
    before, after = (row, None) if op == "d" else (None, row)
    return Change(op, before, after, (str(key),), None, 1)


def source_of(*, keyed: bool, admits_some: bool) -> DatasetSpec:
    source = SourceSpec(
        connector=CAPTURED,
        cdc=Cdc.NATIVE,
        disorder_us=0,
        preproc=(("at", Ref(path=(COMMITTED_AT,))),),
        where=Computed(by=(col("id") > 1).node) if admits_some else None,
    )
    columns: dict[str, DataType] = {"id": INT, "name": OptionalType(STRING), "at": DATETIME}
    return dataset("D", columns, keys=["id"] if keyed else [], sources=(source,))


def read(
    log: Scripted, of: DatasetSpec, sizes: Iterator[int], *, restarts: bool
) -> tuple[list[tuple[str, object]], list[object], Position]:
    """Return all changes with their marks, the records and errors that they make, and the last position."""
    target = Target(plan_graph(Graph(datasets=(of,))).ingests[0])
    position: Position = {"log": {}, "load": 1, "committed_us": 0, "seed": "0", "at": [0]}
    changes: list[tuple[str, object]] = []
    records: list[object] = []
    reader: CaptureReader | None = None
    while True:
        if reader is None or restarts:
            reader = reader_of(Scripted(log._transactions, by_column=log._by_column), of)
            reader.seek(orjson.loads(orjson.dumps(position)), {})
        most = next(sizes)
        batch = reader.poll(rows=most, size=1 << 20, timeout_s=0.0)
        if batch is None:
            return changes, records, position
        count = len(batch.rows)
        assert count <= most
        for row in range(count):
            changes.append((batch.mark(row), batch.rows.row(row)))
            # Each row alone is what it is among the others.
            encoded = target.encode(batch.rows, row, row + 1, 5)
            records.append(([record[1:] for record in encoded.records], [error.message for error in encoded.errors]))
        together = target.encode(batch.rows, 0, count, 5)
        assert [record[1:] for record in together.records] == [r for made in records[-count:] for r in made[0]]  # type: ignore[index]
        position = batch.position


@given(TRANSACTIONS, st.lists(st.integers(1, 9), min_size=1, max_size=5), st.booleans(), st.booleans(), st.booleans())
def test_puts_by_column_are_changes_one_by_one(
    transactions: list[list[tuple[str, int, str | None]]],
    sizes: list[int],
    keyed: bool,
    admits_some: bool,
    restarts: bool,
) -> None:
    made = source_of(keyed=keyed, admits_some=admits_some)
    expected = read(Scripted(transactions, by_column=False), made, iter([100] * 100), restarts=False)
    found = read(Scripted(transactions, by_column=True), made, cycle(sizes), restarts=restarts)
    assert found[:2] == expected[:2]
    count = sum(map(len, transactions))
    assert len(expected[0]) == len({mark for mark, _ in found[0]}) == count
    if transactions and count:
        # The position is behind the last change, or inside its transaction.
        position = found[2]
        at, inside = position["at"][0], position.get("transaction", [position["at"][0]])[0]
        last = max(number for number, changes in enumerate(transactions) if changes)
        assert (at, inside) >= (last, last)
