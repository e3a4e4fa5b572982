"""Values of rows cross to another process and back as they are, and the marks of a batch by a short text."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.rows.column_casts import MISSING
from caraway.dataplane.confined.values import Foreign, packed, unpacked
from caraway.dataplane.sources.reader import SourceRecord, batch_of
from caraway.dataplane.sources.remote import _Runs

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))])
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
)
OTHERS = [
    st.datetimes(),
    st.datetimes(timezones=ZONES),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.just(MISSING),
]
VALUES = st.recursive(
    PLAIN | st.one_of(OTHERS), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


def typed(value: Any) -> Any:
    """Return a value with its types, since 1 == 1.0 == True."""
    match value:
        case list():
            return [typed(item) for item in value]
        case dict():
            return {name: typed(item) for name, item in value.items()}
        case datetime():
            return type(value), value, value.utcoffset()
        case _:
            return type(value), value


class Seconds(float):
    """Such a number has `tenacity` for the length of a pause."""


class Content(bytes):
    """Such bytes has `bson`."""


class Money(Decimal):
    """Such decimals have libraries of databases."""


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Seconds(1.5), 1.5),
        (Content(b"x"), b"x"),
        (Money("1.50"), Decimal("1.50")),
        (pd.Timestamp("2024-01-02T03:04:05.000006Z"), datetime(2024, 1, 2, 3, 4, 5, 6, UTC)),
        (pd.Timedelta(microseconds=3), timedelta(microseconds=3)),
        (pd.NaT, None),
    ],
)
def test_types_of_libraries_become_those_of_python(value: Any, plain: Any) -> None:
    assert typed(unpacked(packed(value))) == typed(plain)
    assert typed(unpacked(packed([value, None]))) == [typed(plain), typed(None)]


@given(VALUES | st.one_of(*(st.lists(st.none() | each) for each in OTHERS)))
def test_values_come_back_as_they_were(value: Any) -> None:
    assert typed(unpacked(packed(value))) == typed(value)


def test_values_of_libraries_become_plain_or_foreign() -> None:
    given = [np.int64(3), np.array([1, 2]), memoryview(b"x"), {1}, (1, 2), {3: 4}, object]
    assert unpacked(packed(given)) == [3, [1, 2], b"x", [1], [1, 2], {"3": 4}, Foreign("type", str(object))]


@pytest.mark.parametrize(
    "content", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", packed([date(1, 1, 1)])[:-1], b"\xd4\x7fx", b"\xd4\x09x"]
)
def test_bytes_that_are_no_message_are_refused(content: bytes) -> None:
    with pytest.raises(EOFError):
        unpacked(content)


def test_a_message_of_very_many_values_is_refused_before_they_are_made() -> None:
    with pytest.raises(EOFError, match="too many"):
        unpacked(msgspec.msgpack.encode([[] for _ in range(10)]) + b"\x90" * (80 << 20))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), min_size=1, max_size=30), st.data())
def test_marks_are_those_of_the_reader(records: Sequence[tuple[str, int]], data: st.DataObject) -> None:
    found = [SourceRecord(partition, offset, b"") for partition, offset in records]
    batch = batch_of(found, lambda values: (list(values), {}), {})
    assert batch.run is not None
    told = _Runs(batch.run(0, len(found)), len(found))
    assert [told.mark(row) for row in range(len(found))] == [batch.mark(row) for row in range(len(found))]
    start = data.draw(st.integers(0, len(found) - 1))
    stop = data.draw(st.integers(start + 1, len(found)))
    assert told.run(start, stop) == batch.run(start, stop)


TIMES = [time(1, 2, 3, 4), timedelta(days=-1, microseconds=5), Decimal("1E+5"), UUID(int=7), Decimal("NaN")]


def test_exact_texts() -> None:
    assert repr(unpacked(packed(TIMES))) == repr(TIMES)
