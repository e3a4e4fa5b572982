"""Chunks of captured tables: columns of values, marks that stay the same for good, and bounds in bytes."""

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caraway.ingest.sources.capture.digests import digest, digests
from caraway.ingest.sources.capture.log import Chunk, rows_within
from caraway.ingest.sources.capture.postgres.values import _LOADERS, BOOL, FLOAT8, INT8, Loader, loaded

TEXTS = st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)))


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_the_marks_of_rows_of_chunks_stay_the_same(contents: list[bytes]) -> None:
    def one(content: bytes) -> str:
        return urlsafe_b64encode(blake2b(content, digest_size=16).digest()).decode().rstrip("=")

    assert digests(contents) == [one(content) for content in contents]
    assert [digest(content) for content in contents] == digests(contents)


@given(TEXTS)
def test_texts_of_a_column_are_decoded_together_as_one_by_one(texts: list[str | None]) -> None:
    assert loaded([None if text is None else text.encode() for text in texts], None) == texts


@given(st.sampled_from([BOOL, INT8, FLOAT8]), st.lists(st.one_of(st.none(), st.integers(0, 1))))
def test_values_of_a_column_are_those_of_its_loader(oid: int, numbers: list[int | None]) -> None:
    load: Loader = _LOADERS[oid]
    texts = [
        None if number is None else b"tf"[number : number + 1] if oid == BOOL else b"%d" % number for number in numbers
    ]
    assert loaded(texts, load) == [None if text is None else load(text) for text in texts]


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
