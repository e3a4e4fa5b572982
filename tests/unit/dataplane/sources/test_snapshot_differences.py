"""Laws of the comparison of two snapshots: rows are equal if their values are, however they are stored."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.sources.snapshots.differences import Differences
from caraway.dataplane.sources.snapshots.digests import digests, key_digests
from caraway.dataplane.sources.snapshots.rows import Rows
from tests.effort import examples

INSTANTS = st.integers(-(10**16), 10**16).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
# Few values, so that rows are often equal, and ones whose texts run into one another: "a" and "bc", "ab" and "c".
TEXTS = st.text("ab\x00é", max_size=3)
TYPES: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int8(), st.integers(-2, 2)),
    (pa.int64(), st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2) | st.integers(0, 2**64 - 1)),
    (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, math.inf])),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, math.inf]) | st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), st.binary(max_size=2)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.date32(), st.dates(date(1900, 1, 1), date(1900, 1, 3))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us", "UTC"), INSTANTS),
    (pa.duration("us"), st.timedeltas(timedelta(0), timedelta(days=2))),
    (pa.decimal128(6, 2), st.decimals(-9, 9, places=2)),
    (pa.decimal256(60, 2), st.decimals(-9, 9, places=2)),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 2), max_size=2)),
    (
        pa.map_(pa.string(), pa.int8()),
        st.dictionaries(TEXTS, st.integers(0, 2), max_size=2).map(lambda d: [*d.items()]),
    ),
    (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.sampled_from([0.0, -0.0, math.nan]), "b": st.none() | TEXTS}),
    ),
    (pa.null(), st.none()),
)
SCHEMAS = st.lists(st.sampled_from(TYPES), max_size=4)


def batch(columns: Sequence[tuple[pa.DataType, Sequence[object]]], rows: int) -> Any:
    arrays = [pa.array(values, kind) for kind, values in columns]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, [str(at) for at in range(len(arrays))])


@st.composite
def batches(draw: st.DrawFn) -> Any:
    schema, rows = draw(SCHEMAS), draw(st.integers(0, 8))
    values = [(kind, draw(st.lists(st.none() | each, min_size=rows, max_size=rows))) for kind, each in schema]
    return batch(values, rows)


def texts(found: Any) -> list[str]:
    """Return the text of each row, by which rows are compared."""
    return [repr(row) for row in found.to_pylist()]


@given(found=batches(), data=st.data())
@settings(max_examples=examples(600))
def test_digests_are_equal_for_equal_rows_and_for_no_others(found: Any, data: st.DataObject) -> None:
    wanted, made = texts(found), digests(found)
    assert len(made) == len(wanted)
    assert {len(digest) for digest in made} <= {16}
    for first in range(len(wanted)):
        for second in range(first):
            assert (made[first] == made[second]) == (wanted[first] == wanted[second])
    # A part of a batch has an offset in the buffers of the whole one.
    start = data.draw(st.integers(0, len(wanted)))
    stop = data.draw(st.integers(start, len(wanted)))
    assert digests(found.slice(start, stop - start)) == made[start:stop]


def test_values_behind_nulls_do_not_count() -> None:
    for kind, width in ((pa.int64(), 8), (pa.decimal128(6, 2), 16)):
        values = np.arange(1, 1 + 4 * width, dtype=np.uint8)
        valid = pa.py_buffer(bytes([0b0000]))
        column = pa.Array.from_buffers(kind, 4, [valid, pa.py_buffer(values)])
        assert len(set(digests(pa.RecordBatch.from_arrays([column], ["n"])))) == 1


def test_digests_of_a_key_take_its_columns_in_their_order() -> None:
    one = pa.RecordBatch.from_pydict({"a": ["x", "y"], "b": [1, 2], "c": [None, Decimal(1)]})
    other = pa.RecordBatch.from_pydict({"b": [1, 2], "a": ["x", "z"]})
    assert key_digests(one, ("a", "b"))[0] == key_digests(other, ("a", "b"))[0]
    assert key_digests(one, ("a", "b"))[1] != key_digests(other, ("a", "b"))[1]
    assert len(set(key_digests(other, ("missing",)))) == 1


def rows_of(sides: Sequence[Sequence[int]]) -> list[Rows]:
    found, begin = [], 0
    for values in sides:
        table = pa.RecordBatch.from_pydict({"k": [n % 5 for n in values], "v": list(values)})
        found.append(Rows(np.arange(begin, begin + len(values)), table))
        begin += len(values)
    return found


PIECES = st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=4)


@given(gone=PIECES, there=PIECES)
@settings(max_examples=examples(400))
def test_rows_in_both_sides_are_left_out_as_often_as_they_are_in_both(
    gone: list[list[int]], there: list[list[int]]
) -> None:
    differences = Differences(rows_of(gone), rows_of(there), ["k"], "the table t")
    removed, added = (Counter(n for piece in side for n in piece) for side in (gone, there))
    assert differences.is_empty == (not removed & added)
    for side, all_of, others in ((gone, removed, added), (there, added, removed)):
        changed = differences.side()
        left: Counter[int] = Counter()
        seen: Counter[int] = Counter()
        for piece, rows in zip(side, rows_of(side), strict=True):
            for n, is_changed in zip(piece, changed(rows).tolist(), strict=True):
                # The first ones among equal rows are taken to be those of the other side.
                seen[n] += 1
                assert is_changed == (seen[n] > others[n])
                left[n] += is_changed
        assert left == all_of - others
    keys = {n % 5 for n in added}
    for rows in rows_of(gone):
        assert differences.replaced(rows).tolist() == [k in keys for k in rows.batch.column("k").to_pylist()]
