"""Arrow IPC as a body: all types there and back, and what is no stream."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes.types import DataType, optional
from caraway.errors import InvalidInputError
from caraway.query import cast_input
from caraway.server.handlers import arrow, queries
from caraway.server.handlers.arrow import CONTENT_TYPE, arrow_response, read_columns
from caraway.server.http.errors import TooLargeError
from tests.unit.expr.polars_results import same
from tests.unit.expr.typed_nodes import TYPES
from tests.unit.expr.typed_values import values

COLUMNS = st.sampled_from(TYPES).flatmap(
    lambda of: st.tuples(st.just(of), st.lists(st.none() | values(of), max_size=4))
)


@given(column=COLUMNS)
def test_what_goes_out_comes_in(column: tuple[DataType, list[Any]]) -> None:
    dtype, given_values = column
    response = arrow_response({"A.x": given_values}, [("A.x", optional(dtype))])
    assert response.headers == [("content-type", CONTENT_TYPE)]
    found = cast_input("A.x", optional(dtype), read_columns(response.body)["A.x"])
    assert len(found) == len(given_values)
    assert all(same(ours, theirs) for ours, theirs in zip(found, given_values, strict=True))


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return bytes(sink.getvalue())


def test_batches_are_put_together() -> None:
    assert read_columns(stream(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}))) == {
        "a": [1, 2, 3],
        "b": ["x", None, "z"],
    }


WHOLE = stream(pa.table({"a": [1, 2, 3]}))


@given(cut=st.integers(0, len(WHOLE) - 1), flipped=st.integers(0, len(WHOLE) - 1), by=st.integers(1, 255))
def test_damaged_streams_are_refused_or_read(cut: int, flipped: int, by: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[flipped] ^= by
    for body in (WHOLE[:cut], bytes(damaged)):
        try:
            read_columns(body)
        except (InvalidInputError, TooLargeError) as error:
            assert str(error)  # noqa: PT017 (both ways are right)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_ROWS", 2)
    with pytest.raises(TooLargeError, match="2 rows"):
        read_columns(WHOLE)
    monkeypatch.setattr(queries, "MAX_ROWS", 5)
    monkeypatch.setattr(arrow, "MAX_BODY_BYTES", 10)
    with pytest.raises(TooLargeError):
        read_columns(WHOLE)


def test_names_are_told_apart() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInputError, match="one name"):
        read_columns(stream(table))


def test_an_output_without_a_type_has_no_column() -> None:
    with pytest.raises(InvalidInputError, match=r"A\.x"):
        arrow_response({"A.x": [1]}, [("A.x", None)])
