"""The bound on the bytes of the rows that one read of the index collects."""

from pathlib import Path

import pytest

from caraway.dataplane.index import reader as readers
from caraway.dataplane.index.feeding.writer import IndexWriter
from caraway.dataplane.index.reader import COUNTED_ROWS, IndexReader
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import PUT, RecordCodec
from caraway.dtypes.types import STRING
from caraway.errors import TooLargeError
from caraway.graph.plan.model import Column, IndexKind, IndexPlan, RecordSchema

KEY = Column(name="k", dtype=STRING)
SCHEMA = RecordSchema(keys=(KEY,), columns=(KEY, Column(name="v", dtype=STRING)), timestamp="t", fingerprint=7)
PLAN = IndexPlan(
    dataset="Notes",
    asset=b"versions",
    kind=IndexKind.VERSIONS,
    topic="notes",
    schema=SCHEMA,
    revised=False,
    aggregates=(),
    fields=SCHEMA.columns,
)
BYTES = 1_000
MOST = 10 * COUNTED_ROWS * BYTES


def test_rows_of_too_many_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_READ_BYTES", MOST)
    codec = RecordCodec(SCHEMA)
    keys = [codec.encode_key([str(number)]) or b"" for number in range(20 * COUNTED_ROWS)]
    values = [
        codec.encode_value(op=PUT, time_us=0, ingested_us=1, record_id=None, rev=b"", row=[str(n), "x" * BYTES])
        for n in range(len(keys))
    ]
    with IndexStore(tmp_path / "index") as store:
        rows = [(key, value, 0, offset) for offset, (key, value) in enumerate(zip(keys, values, strict=True))]
        IndexWriter(store).apply(PLAN, rows)
        reader = IndexReader(store)
        (texts,), found = reader.read(PLAN, keys[: 10 * COUNTED_ROWS], 1, ["v"])
        assert (sum(map(len, texts)), all(found)) == (MOST, True)  # type: ignore[arg-type]
        with pytest.raises(TooLargeError, match="read of Notes may have"):
            reader.read(PLAN, keys, 1, ["k", "v"])
        # A read with a time for each key reads equal keys anew.
        with pytest.raises(TooLargeError):
            reader.read(PLAN, [keys[0]] * len(keys), [1] * len(keys), ["v"])
        (names,), _ = reader.read(PLAN, keys, 1, ["k"])
        assert len(names) == len(keys)
        assert len(IndexReader(store, bounded=False).read(PLAN, keys, 1, ["v"])[1]) == len(keys)
