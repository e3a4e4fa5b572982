"""Digests of rows stay the same for good, and batches have the rows of a statement in their order."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from caraway.dataplane.sources.tables.digests import Digests, Rows

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.text(max_size=40),
    st.binary(max_size=300),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)),
)
TABLES = st.lists(st.tuples(*[VALUES] * 4), max_size=30)
ROW = (datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC), 7, "Zoë", None, -0.0, Decimal("1.10"), b"\0x")


def encoded(values: Sequence[Any]) -> bytes:
    try:
        return msgspec.msgpack.Encoder(enc_hook=str).encode(values)
    except OverflowError:
        return repr(values).encode()


def digests(seed: int, *, digested: int = 4) -> Digests:
    return Digests(seed, keys=2, digested=digested, columns=4, has_key=True)


def test_the_digests_of_xxh3_are_those_of_all_versions_and_machines() -> None:
    seed = 0x0123_4567_89AB_CDEF
    keyed = Digests(seed, keys=2, digested=7, columns=7, has_key=True)
    whole = Digests(seed, keys=2, digested=7, columns=7, has_key=False)
    assert [digest.hex() for digest in keyed.of([ROW])[0]] == ["6e86f95b347dedf4f78a26c39c4249e3"]
    assert [digest.hex() for digest in whole.of([ROW])[0]] == ["bd3e569c540660ab5947c2a8f78124a9"]


@given(rows=TABLES, seed=st.integers(0, 2**64 - 1), other=st.integers(0, 2**64 - 1))
def test_a_digest_of_xxh3_has_the_key_in_its_first_half_and_depends_on_the_seed(
    rows: list[tuple[Any, ...]], seed: int, other: int
) -> None:
    found, sizes = digests(seed).of(rows)
    fewer, _ = digests(seed, digested=3).of(rows)
    assert [digest[:8] for digest in found] == [digest[:8] for digest in fewer]
    texts = [encoded(row) for row in rows]
    assert sizes == list(map(len, texts))
    assert len(set(found)) == len(set(texts))
    if seed != other:
        assert not set(found) & set(digests(other).of(rows)[0])
    # All columns may belong to the key. The halves are of two functions then, too.
    all_key, _ = Digests(seed, keys=4, digested=4, columns=4, has_key=True).of(rows)
    assert all(digest[:8] != digest[8:] for digest in all_key)


@given(chunks=st.lists(TABLES, max_size=5), takes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 2000))))
def test_batches_have_the_rows_of_all_chunks_up_to_their_bounds(
    chunks: list[list[tuple[Any, ...]]], takes: list[tuple[int, int]]
) -> None:
    def given_chunks() -> Iterator[list[tuple[Any, ...]]]:
        yield from chunks

    made = digests(7)
    rows = [row for chunk in chunks for row in chunk]
    sizes = [size for chunk in chunks for size in made.of(chunk)[1]]
    expected = [digest for chunk in chunks for digest in made.of(chunk)[0]]
    source = Rows(given_chunks(), made)
    at = 0
    for most, size in takes:
        taken = source.take(most, size)
        count = len(taken)
        assert [list(column) for column in taken.columns] == [
            [row[n] for row in rows[at : at + count]] for n in range(4)
        ]
        assert taken.digests == expected[at : at + count]
        assert taken.size == sum(sizes[at : at + count])
        assert count <= most
        # The last row is the one that reaches the size, and fewer rows are taken only where there are no more.
        assert sum(sizes[at : at + count - 1]) < size
        assert count == most or taken.size >= size or taken.is_all
        assert taken.is_all <= (at + count == len(rows))
        at += count
    source.close()
