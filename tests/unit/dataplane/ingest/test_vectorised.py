"""Many rows at a time are converted as each row by itself would be: decoded, cast, encoded and marked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from caraway.dataplane.ingest.marks import expanded
from caraway.dataplane.ingest.table import InsertColumns, InsertTable, RowTable
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.decoding.json_objects import TOGETHER, decode_json
from caraway.dataplane.sources.reader import SourceRecord, batch_of
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    ListType,
    MapType,
    StructType,
    optional,
)
from caraway.graph.plan.model import Column, RecordSchema
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Constant, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph
from tests.unit.dataplane.ingest.contexts import CAPTURED, TOPIC

SOURCE = SourceSpec(connector=TOPIC, cdc=Cdc.UPSERT, disorder_us=0)
POINT = StructType("Point", (("x", FLOAT), ("tag", STRING)))

NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2))
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0]), st.integers(-(2**53), 2**53))
# The types of columns, with values of which most fit them.
VALUES: Mapping[DataType, st.SearchStrategy[Any]] = {
    INT: NUMBERS,
    FLOAT: FLOATS,
    optional(FLOAT): st.one_of(st.none(), FLOATS),
    STRING: st.one_of(st.text(max_size=5), st.just("x" * 70_000)),
    BOOL: st.booleans(),
    optional(BOOL): st.one_of(st.none(), st.booleans()),
    DATE: st.dates().map(str),
    DecimalType(2): st.sampled_from(["1.50", "-3.00", 7]),
    ListType(FLOAT): st.lists(FLOATS, max_size=2),
    MapType(FLOAT): st.dictionaries(st.text(max_size=2), FLOATS, max_size=2),
    POINT: st.fixed_dictionaries({"x": FLOATS, "tag": st.text(max_size=2)}),
}
TYPES = sorted(VALUES, key=str)
TIMES = st.one_of(st.integers(0, 2_000_000_000), st.datetimes().map(str), st.just("no time"))
AT = FieldSpec(name="at", dtype=DATETIME, timestamp=True)
BAD = {"at": "this isn't a time"}


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[FieldSpec, ...], list[object]]:
    """Return the fields of a dataset, some of which may be keys, and rows for it."""
    types = draw(st.lists(st.sampled_from(TYPES), max_size=5))
    keys = draw(st.integers(0, len(types)))
    fields = tuple(FieldSpec(name=f"f{n}", dtype=dtype, key=n < keys) for n, dtype in enumerate(types))
    values = {f"f{n}": VALUES[dtype] for n, dtype in enumerate(types)} | {"at": TIMES}
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=4))
    return (*fields, AT), rows  # type: ignore[return-value]


def target_of(fields: tuple[FieldSpec, ...], source: SourceSpec = SOURCE) -> Target:
    if source.cdc is Cdc.UPSERT and not any(field.key for field in fields):
        source = replace(source, cdc=Cdc.APPEND)
    dataset = DatasetSpec(name="D", version=1, history_us=0, fields=fields, index=None, sources=(source,))
    return Target(plan_graph(Graph(datasets=(dataset,))).ingests[0])


@given(tables())
@example(((FieldSpec(name="f0", dtype=STRING, key=True), AT), [{"f0": "x" * 70_000, "at": 1}, {"f0": "y", "at": 1}]))
@example(((FieldSpec(name="f0", dtype=STRING), AT), [{"f0": "x" * 1_000_000, "at": 1}, {"f0": "y", "at": 1}]))
def test_rows_are_encoded_together_as_one_by_one(table: tuple[tuple[FieldSpec, ...], list[object]]) -> None:
    fields, rows = table
    target = target_of(fields)
    together = target.encode(RowTable(rows, {}), 0, len(rows), 5)
    # A row that doesn't fit keeps its neighbours from being encoded together.
    apart = target.encode(RowTable([*rows, BAD], {}), 0, len(rows) + 1, 5)
    assert together.records == apart.records
    assert together.errors == [error for error in apart.errors if error.row < len(rows)]


MADE = st.sampled_from([None, Ref(path=("other",)), Ref(path=("f0",)), Constant(value=3, dtype=INT)])


@given(tables(), st.lists(MADE, min_size=6, max_size=6), st.lists(st.booleans(), min_size=4, max_size=4))
def test_copied_fields_are_encoded_together_as_one_by_one(
    table: tuple[tuple[FieldSpec, ...], list[dict[str, object]]], made: list[Ref | Constant | None], has: list[bool]
) -> None:
    fields, rows = table
    preproc = tuple((field.name, how) for field, how in zip(fields, made, strict=False) if how is not None)
    rows = [{**row, "other": 2} if is_there else row for row, is_there in zip(rows, has, strict=False)]
    target = target_of(fields, replace(SOURCE, preproc=preproc))
    together = target.encode(RowTable(rows, {}), 0, len(rows), 5)
    apart = target.encode(RowTable([*rows, "no row"], {len(rows): "isn't a row"}), 0, len(rows) + 1, 5)
    assert together.records == apart.records
    assert together.errors == [error for error in apart.errors if error.row < len(rows)]
    # A database's log has the same rows in envelopes.
    captured = target_of(fields, SourceSpec(connector=CAPTURED, cdc=Cdc.NATIVE, disorder_us=0, preproc=preproc))
    envelopes = [{"op": "r", "before": None, "after": row, "source": {"ts_us": 7}} for row in rows]
    bare = captured.encode(InsertTable(rows, envelopes.__getitem__), 0, len(rows), 5)
    assert bare == captured.encode(RowTable(envelopes, {}), 0, len(rows), 5)
    assert bare.records == together.records
    names = sorted({name for row in rows for name in row})
    if all(set(row) == set(names) for row in rows):
        # A chunk of a table has its rows by column.
        columns = InsertColumns({name: [row[name] for row in rows] for name in names}, len(rows), envelopes.__getitem__)
        assert captured.encode(columns, 0, len(rows), 5) == bare
        assert captured.encode(columns, 1, len(rows), 5) == captured.encode(RowTable(envelopes, {}), 1, len(rows), 5)


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.data()), min_size=1, max_size=4), st.integers(0, 4))
def test_columns_have_the_bytes_of_their_rows(drawn: list[tuple[DataType, st.DataObject]], keys: int) -> None:
    columns = tuple(Column(name=f"c{n}", dtype=dtype) for n, (dtype, _) in enumerate(drawn))
    schema = RecordSchema(keys=columns[:keys], columns=columns, timestamp="t", fingerprint=7)
    codec = RecordCodec(schema)
    # A struct is a sequence of its fields in stored form.
    cells = [data.draw(st.lists(VALUES[dtype], min_size=3, max_size=3)) for dtype, data in drawn]
    stored = [[list(v.values()) if t is POINT else v for v in cell] for (t, _), cell in zip(drawn, cells, strict=True)]
    rows = list(zip(*stored, strict=True))
    formed = list(zip(*codec.in_form(stored), strict=True))
    values = codec.encode_puts(formed, [1] * 3, [2] * 3, [None] * 3, decoded=True)
    assert values == [codec.encode_value(op=PUT, time_us=1, ingested_us=2, row=row) for row in rows]
    if schema.keys:
        assert codec.encode_keys(rows) == [codec.encode_key(row[: len(schema.keys)]) for row in rows]


TEXTS = st.one_of(
    st.sampled_from([b'{"a":1}', b'{"a":[{},{}]}', b"{}", b"[]", b"null", b"", b'{"a":1},{"b":2}', b'{"a":[1', b"2]}"]),
    st.sampled_from([b"[" * 65 + b"]" * 65, b'{"a":"' + b"[" * 70 + b'"}', b'{"a":' * 65 + b"1" + b"}" * 65]),
    st.sampled_from([b'{"a":"' + b"x" * 70_000 + b'"}', b'{"a":"\xff"}', b'{"a":1e400}', b'{"a":%d}' % 2**64]),
    st.binary(max_size=4),
)


@given(st.lists(TEXTS, max_size=2 * TOGETHER + 3))
@example([b'{"a":1}'] * (2 * TOGETHER + 1))
@example([b'{"a":1}', b"[]"])
@example([b'{"a":1},{"b":2}', b'{"c":[1', b"2]}"])
def test_texts_are_decoded_together_as_one_by_one(texts: list[bytes]) -> None:
    rows, faults = decode_json(texts)
    # A text that isn't JSON keeps its neighbours from being decoded together.
    alone = [decode_json([text, b"not JSON"]) for text in texts]
    assert rows == [found[0] for found, _ in alone]
    assert faults == {at: reasons[0] for at, (_, reasons) in enumerate(alone) if 0 in reasons}


@given(st.lists(st.tuples(st.sampled_from("01"), st.integers(1, 3), st.booleans()), min_size=1, max_size=12), st.data())
def test_the_marks_of_consecutive_rows_are_one_text(steps: list[tuple[str, int, bool]], data: st.DataObject) -> None:
    offsets = {"0": 7, "1": 0}
    records = []
    for partition, step, is_row in steps:
        offsets[partition] += step
        records.append(SourceRecord(partition, offsets[partition], b"{}" if is_row else None))
    batch = batch_of(records, decode_json, {})
    of_rows = [f"{record.partition}/{record.offset}" for record in records if record.value is not None]
    assert [batch.mark(row) for row in range(len(batch.rows))] == of_rows
    assert batch.run is not None
    assume(of_rows)
    start = data.draw(st.integers(0, len(of_rows) - 1))
    stop = data.draw(st.integers(start + 1, len(of_rows)))
    text = batch.run(start, stop)
    assert list(expanded(text)) == of_rows[start:stop]
    assert len(text) <= len(",".join(of_rows[start:stop]))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_dataset_may_have_no_column_but_its_time(rows: int) -> None:
    target = target_of((AT,))
    encoded = target.encode(RowTable([{"at": 1}] * rows, {}), 0, rows, 5)
    assert len(encoded.records) == rows
