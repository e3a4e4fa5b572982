"""Tests of Arrow IPC as a body: all types there and back, and bodies that are no streams."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.apps.server.handlers import arrow_bounds, queries
from caraway.apps.server.handlers.arrow import CONTENT_TYPE, arrow_response, read_columns
from caraway.compute.query.inputs import cast_input
from caraway.dtypes.types import DataType, optional
from caraway.errors import InvalidInputError, TooLargeError
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


def batches(columns: dict[str, pa.Array], compression: str | None = None, times: int = 1) -> bytes:
    """Return a stream of equal batches."""
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(times):
            writer.write_batch(batch)
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
    monkeypatch.setattr(arrow_bounds, "MAX_BODY_BYTES", 10)
    with pytest.raises(TooLargeError):
        read_columns(WHOLE)


NAT = pa.array([0, -(2**63)], pa.int64())


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")], ids=str)
def test_nat_is_no_time(kind: pa.DataType) -> None:
    times = NAT.cast(kind)
    first = pa.scalar(0, kind).as_py()
    columns = [
        times,
        times.dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2], times),
        pa.StructArray.from_arrays([times], ["f"]),
        pa.ListArray.from_arrays([0, 2], pa.StructArray.from_arrays([times], ["f"])),
    ]
    for column in columns:
        with pytest.raises(InvalidInputError, match=r"column .a. of type .* holds NaT as a value; send null"):
            read_columns(batches({"a": column}))
    assert read_columns(batches({"a": pa.array([None, 0], kind)})) == {"a": [None, first]}


def test_names_are_told_apart() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInputError, match="one name"):
        read_columns(stream(table))


def test_an_output_without_a_type_has_no_column() -> None:
    with pytest.raises(InvalidInputError, match=r"A\.x"):
        arrow_response({"A.x": [1]}, [("A.x", None)])


def dictionary(text: str, rows: int) -> bytes:
    """Return a stream that names one text in each row."""
    return stream(pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * rows), pa.array([text]))}))


def test_a_text_that_is_named_many_times_counts_each_time() -> None:
    assert read_columns(dictionary("x", 3)) == {"a": ["x"] * 3}
    with pytest.raises(TooLargeError, match="once decoded"):
        read_columns(dictionary("x" * 1_000_000, 2_000))


LONG = 50_000_000


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(pa.array([0, LONG], pa.int32()), pa.nulls(LONG)),
        pa.FixedSizeListArray.from_arrays(pa.nulls(LONG), LONG),
        pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, LONG], pa.int32()), pa.nulls(LONG))], ["f"]),
    ],
)
def test_values_without_bytes_are_counted(column: pa.Array) -> None:
    body = batches({"a": column})
    assert len(body) < 2_000
    with pytest.raises(TooLargeError, match="1,000,000 values"):
        read_columns(body)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_count_by_their_plain_size(compression: str) -> None:
    small = {"a": pa.array(range(1_000)), "b": pa.array(["x"] * 1_000)}
    assert read_columns(batches(small, compression)) == {"a": list(range(1_000)), "b": ["x"] * 1_000}
    zeros = pa.array(["\0" * 40_000_000])
    body = batches({"a": zeros}, compression)
    assert len(body) < 1_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLargeError, match="once decompressed"):
        read_columns(body)
    assert pa.total_allocated_bytes() <= before + 1_000_000


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(TooLargeError, match="2,000 messages"):
        read_columns(batches({"a": pa.array([], pa.int64())}, times=2_001))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("s")),
        pa.array([2**62], pa.timestamp("s", "UTC")),
        pa.array([1], pa.timestamp("s", "Mars/Olympus")),
        pa.array([2**31 - 1], pa.int32()).view(pa.date32()),
        pa.array([2**62 - 2**62 % 86_400_000], pa.int64()).view(pa.date64()),
        pa.array([2**62], pa.duration("s")),
        pa.array(["a"], pa.string_view()),
    ],
)
def test_values_that_python_has_not_are_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidInputError, match="column 'a'"):
        read_columns(batches({"a": column}))
