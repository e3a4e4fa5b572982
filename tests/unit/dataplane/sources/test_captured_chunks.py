"""Chunks of captured tables: columns of values, marks that stay the same for good, and bounds in bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.sources.cdc.log import Chunk, Coordinate, Event, Started, Watermark, rows_within
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.row_digests import seeded_digests
from caraway.dtypes.types import DATETIME, INT
from caraway.graph.sources import Cdc, SourceSpec
from tests.unit.dataplane.ingest.contexts import CAPTURED
from tests.unit.dataplane.sources.captured import EmptyLog, reader_of
from tests.unit.graph.building import dataset


@given(
    st.lists(st.lists(st.tuples(st.integers(), st.text(max_size=3), st.binary(max_size=9)), max_size=6), max_size=6),
    st.integers(1, 60),
)
def test_a_chunk_has_rows_up_to_the_one_that_reaches_its_bytes(
    pieces: list[list[tuple[int, str, bytes]]], most: int
) -> None:
    chunk, expected, size = Chunk(), [], 0
    for piece in pieces:
        for row in piece:
            if size < most:
                expected.append(row)
                size += len(row[2])
        columns: dict[str, list[Any]] = {"n": [n for n, _, _ in piece], "name": [name for _, name, _ in piece]}
        chunk.add(columns, [[name for _, name, _ in piece]], [content for _, _, content in piece], most)
    assert chunk.rows() == [{"n": n, "name": name} for n, name, _ in expected]
    assert [chunk.key(number) for number in range(len(chunk))] == [(name,) for _, name, _ in expected]
    assert (chunk.contents, chunk.size) == ([content for _, _, content in expected], size)
    assert rows_within(chunk.contents, most) == len(chunk)


class OneChunk(EmptyLog):
    """A log with nothing in it, beside a table of three rows that are one chunk."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def open(self, state: Mapping[str, Any], at: Coordinate | None, *, loading: bool) -> None:
        assert loading
        self._events = [] if at is not None else [Started((1,), 1_000_000, state)]

    def next(self, timeout_s: float, *, rows: int, size: int) -> Event | None:
        assert timeout_s >= 0
        assert rows
        assert size
        return self._events.pop(0) if self._events else None

    def chunk(self, after: Sequence[str | None] | None, *, rows: int, size: int) -> Chunk | None:
        assert after is None
        assert rows
        found = Chunk(last=True)
        found.add({"id": [1, 2, 3]}, [["1", "2", "3"]], CONTENTS, size)
        self._events.append(Watermark())
        return found

    def loaded(self) -> None:
        pass


CONTENTS = [b"1", b"2", b"3"]


def opened() -> CaptureReader:
    source = SourceSpec(connector=CAPTURED, cdc=Cdc.NATIVE, disorder_us=0)
    return reader_of(OneChunk(), dataset("D", {"id": INT, "at": DATETIME}, keys=["id"], sources=(source,)))


def marks_of_load(reader: CaptureReader) -> list[str]:
    for _ in range(5):
        batch = reader.poll(rows=2, size=1 << 20, timeout_s=0.0)
        if batch is not None and len(batch.rows):
            # A chunk may be handed over in several batches.
            second = reader.poll(rows=2, size=1 << 20, timeout_s=0.0)
            assert second is not None
            assert (len(batch.rows), len(second.rows)) == (2, 1)
            assert batch.rows.row(1) == {
                "op": "r",
                "before": None,
                "after": {"id": 2},
                "source": {"snapshot": "true", "ts_ms": 1_000, "ts_us": 1_000_000},
            }
            return [batch.mark(0), batch.mark(1), second.mark(0)]
    raise AssertionError("nothing came")


def test_a_load_keeps_the_digests_with_which_it_began() -> None:
    first = opened()
    position = first.seek({}, {})
    marks = marks_of_load(first)
    assert marks == [f"s/1/0/{text}" for text in seeded_digests(CONTENTS, int(position["seed"], 16))]
    again = opened()
    # The source was killed before it saved another position.
    assert again.seek(orjson.loads(orjson.dumps(position)), {}) == position
    assert marks_of_load(again) == marks
    assert opened().seek({}, {})["seed"] != position["seed"]


def test_the_digests_of_xxh3_are_those_of_all_versions_and_machines() -> None:
    found = seeded_digests([b"", b"1\0Zo\xc3\xab"], 0x0123_4567_89AB_CDEF)
    assert found == ["a4cb05dbbf09907aaaa287af24a9bb3a", "c50f16953da9bd85f29151a1eb142613"]
