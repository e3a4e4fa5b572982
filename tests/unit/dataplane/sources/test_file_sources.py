"""Files as sources: whatever files there are, and whenever the process ends, each row is taken once."""

import bz2
import gzip
import io
import json
import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import fastavro
import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.compute.rows.column_casts import ColumnCast
from caraway.dataplane.ingest.delivery import Deliverer
from caraway.dataplane.ingest.marks import Marks, expanded
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.files import decoders, reader
from caraway.dataplane.sources.files.pieces import ArrowTable
from caraway.dataplane.sources.files.reader import FilesReader
from caraway.dataplane.sources.reader import Position, SourceBatch
from caraway.dataplane.sources.rounds import Rounds
from caraway.dataplane.topics.blocks import split
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, DecimalType, OptionalType
from caraway.dtypes.values import ROWS as ROWS_MANNER
from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec
from caraway.graph.systems import CSVFormat, FilesSystem
from tests.effort import examples
from tests.unit.dataplane.ingest.contexts import context_of, ingest_of
from tests.unit.graph.building import dataset

AT = 1_700_000_000_000_000
EVERY_US = 60_000_000


def dataset_of(*keys: str, **columns: DataType) -> DatasetSpec:
    return dataset("Rows", {**columns, "at": DATETIME}, keys=keys)


ROWS = dataset_of(n=INT, text=OptionalType(STRING))


@dataclass
class Place:
    """A folder with files, and all that outlives a reader of it."""

    folder: Path
    format: str | CSVFormat = "json"
    dataset: DatasetSpec = ROWS
    suffix: str | None = None
    prefix: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    time: float = 1_700_000_000.0
    position: Position = field(default_factory=dict)
    items: dict[str, bytes] = field(default_factory=dict)
    allowed: tuple[str, ...] | None = None
    presorted: bool = False
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def source(self) -> SourceSpec:
        connector = FilesConnector(
            system=FilesSystem(name="drop"),
            container=str(self.folder),
            prefix=self.prefix,
            suffix=self.suffix,
            format=self.format,
            presorted=self.presorted,
        )
        given: dict[str, Any] = {"cdc": Cdc.APPEND, "disorder_us": 0, "every_us": EVERY_US, **self.more}
        return SourceSpec(connector=connector, **given)

    @property
    def plan(self) -> IngestPlan:
        return ingest_of(self.dataset, self.source)

    def open(self) -> FilesReader:
        plan = self.plan
        context = context_of(plan, local_folders=self.allowed or (str(self.folder),))
        rounds = Rounds(EVERY_US, now=lambda: self.time, sleep=self.sleep)
        connector = plan.source.connector
        assert isinstance(connector, FilesConnector)
        return FilesReader(connector, context, rounds=rounds, **self.limits)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def write(self, name: str, content: bytes, at: int = 0) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(AT * 1000 + at, AT * 1000 + at))

    def round(self, opened: FilesReader | None = None, rows: int = 10_000, size: int = 1 << 22) -> list[SourceBatch]:
        """Read until a round has ended, saving each position."""
        found: list[SourceBatch] = []
        mine = opened or self.open()
        if opened is None:
            mine.seek(self.position, dict(self.items))
        while True:
            batch = mine.poll(rows=rows, size=size, timeout_s=EVERY_US / 1e6)
            if batch is None:
                continue
            self.take(batch)
            found.append(batch)
            if not batch.position["reading"]:
                return found

    def take(self, batch: SourceBatch) -> None:
        self.position = json.loads(json.dumps(batch.position))
        for name, value in batch.items.items():
            if value is None:
                self.items.pop(name)
            else:
                self.items[name] = value


def objects(found: Sequence[SourceBatch]) -> list[object]:
    """Return all rows, those with faults as the reasons."""
    return [
        batch.rows.faults.get(number, batch.rows.row(number)) for batch in found for number in range(len(batch.rows))
    ]


def numbers(found: Sequence[SourceBatch]) -> list[object]:
    return [row["n"] if isinstance(row, dict) else row for row in objects(found)]


def row(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"row {number}", "at": 1_700_000_000 + number}


def json_lines(rows: Sequence[object]) -> bytes:
    return b"".join(orjson.dumps(each) + b"\n" for each in rows)


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return b"n,text,at\n" + b"".join(f'{each["n"]},"{each["text"]}",{each["at"]}\n'.encode() for each in rows)


def parquet(rows: pa.Table | Sequence[Mapping[str, Any]], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows)), out, **options)
    return out.getvalue()


AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "at", "type": "long"},
    ],
}


def avro(rows: Sequence[Any]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, AVRO_SCHEMA, rows, sync_interval=100)
    return out.getvalue()


def snappy_block(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def snappy_framed(data: bytes) -> bytes:
    chunks = [
        b"\x00" + (len(b := snappy_block(data[n : n + 5])) + 4).to_bytes(3, "little") + b"sum!" + b
        for n in range(0, len(data), 5)
    ]
    return b"\xff\x06\x00\x00sNaPpY" + b"\xfe\x01\x00\x00x" + b"".join(chunks) + b"\x01\x05\x00\x00sum!\n"


def snappy_hadoop(data: bytes) -> bytes:
    def chunk(some: bytes) -> bytes:
        return struct.pack(">I", len(block := snappy_block(some))) + block

    blocks = [data[n : n + 20] for n in range(0, len(data), 20)]
    return b"".join(struct.pack(">I", len(b)) + chunk(b[:12]) + (chunk(b[12:]) if b[12:] else b"") for b in blocks)


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, codec) as stream:
            stream.write(data)
        return bytes(out.getvalue())

    return pack


FORMATS: dict[str, tuple[str | CSVFormat, Callable[[Any], bytes]]] = {
    "json": ("json", json_lines),
    "csv": (CSVFormat(), csv_lines),
    "parquet": ("parquet", parquet),
    "avro": ("avro", avro),
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".GZ": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
    ".bz2": bz2.compress,
    ".zst": arrow("zstd"),
    ".lz4": arrow("lz4"),
    ".snappy": snappy_framed,
    ".snappy of Hadoop": snappy_hadoop,
    "": lambda data: data,
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_rows_come_from_each_format(name: str, tmp_path: Path) -> None:
    made, write = FORMATS[name]
    place = Place(tmp_path, format=made)
    rows = [row(number) for number in range(50)]
    place.write("a/part", write(rows[:30]))
    place.write("b", write(rows[30:]), at=1)
    found = place.round()
    wanted = [{key: str(value) for key, value in each.items()} if name == "csv" else each for each in rows]
    assert objects(found) == wanted
    assert records(place, found) == ([[each["n"], each["text"]] for each in rows], [])


@pytest.mark.parametrize("extension", COMPRESSIONS)
@pytest.mark.parametrize("name", ["json", "csv"])
def test_compressed_files_are_read(extension: str, name: str, tmp_path: Path) -> None:
    made, write = FORMATS[name]
    place = Place(tmp_path, format=made)
    content = write([row(number) for number in range(20)])
    place.write(f"part{extension.partition(' ')[0]}", COMPRESSIONS[extension](content))
    assert [int(cast("str", number)) for number in numbers(place.round())] == list(range(20))


def records(place: Place, found: Sequence[SourceBatch]) -> tuple[list[list[object]], list[dict[str, Any]]]:
    """Return the rows that the server makes of batches, and the dead letters."""
    target = Target(place.plan)
    rows: list[list[object]] = []
    letters: list[dict[str, Any]] = []
    for batch in found:
        marks = Marks(header="h", key="rows", mark=batch.mark, run=batch.run)
        deliverer = Deliverer([target], batch.rows, origin=batch.origin, erased=ErasedKeys(dict), marks=marks)
        delivery = deliverer.deliver(target, 0, len(batch.rows), 0)
        for _, value, _ in delivery.items.get(target.topic, []):
            parts = split(value) if value[0] == 0xDC else [value]
            rows += [msgspec.msgpack.decode(part)[7] for part in parts]
        letters += [orjson.loads(value) for _, value, _ in delivery.items.get(DEAD_LETTERS, [])]
    return rows, letters


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), max_size=5),
    name=st.sampled_from(sorted(FORMATS)),
    data=st.data(),
)
def test_each_row_is_read_once_whatever_polls_and_crashes(
    sizes: list[int], name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made, write = FORMATS[name]
    place = Place(tmp_path_factory.mktemp("files"), format=made, presorted=data.draw(st.booleans(), label="presorted"))
    marks: dict[str, int] = {}
    saved: set[str] = set()
    first = 0
    for at, size in enumerate(sizes):
        place.write(f"{at % 2}/{at}", write([row(number) for number in range(first, first + size)]), at=size)
        first += size
        if data.draw(st.booleans(), label="a round between"):
            drain(place, marks, saved, data)
    drain(place, marks, saved, data)
    drain(place, marks, saved, data)
    assert Counter(marks.values()) == Counter(range(first))


def drain(place: Place, marks: dict[str, int], saved: set[str], data: st.DataObject) -> None:
    """Read a round with crashes, noting the row of each mark; `saved` are the marks before the saved position."""
    for crash in [*data.draw(st.lists(st.integers(0, 5), max_size=3), label="crashes"), 10**6]:
        opened = place.open()
        opened.seek(place.position, dict(place.items))
        unsaved: set[str] = set()
        pending: list[SourceBatch] = []
        for _ in range(crash):
            place.time += data.draw(st.sampled_from([0.0, 61.0, -1e6]), label="jump")
            batch = opened.poll(rows=data.draw(st.integers(1, 9), label="rows"), size=1 << 20, timeout_s=61)
            if batch is None:
                continue
            pending.append(batch)
            for number in range(len(batch.rows)):
                mark = batch.mark(number)
                found = cast("Any", batch.rows.row(number))["n"]
                assert marks.setdefault(mark, int(found)) == int(found)
                unsaved.add(mark)
                assert not opened.is_ahead(mark)
            # Sometimes rows are written, and the process ends before their position is saved.
            if not batch.position["reading"] or data.draw(st.booleans(), label="saved"):
                for each in pending:
                    place.take(each)
                saved |= unsaved
                unsaved, pending = set(), []
            if not batch.position["reading"]:
                opened.close()
                return
        again = place.open()
        again.seek(place.position, dict(place.items))
        assert all(again.is_ahead(mark) for mark in unsaved - saved)
        assert not any(again.is_ahead(mark) for mark in saved)
        opened.close()


def test_a_mark_of_many_rows_stands_for_each(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("a", json_lines([row(number) for number in range(5)]))
    place.write("b", json_lines([row(number) for number in range(5, 9)]), at=1)
    (batch,) = [batch for batch in place.round() if len(batch.rows)]
    assert batch.run is not None
    for start in range(9):
        for stop in range(start + 1, 10):
            marks = [batch.mark(number) for number in range(start, stop)]
            assert list(expanded(batch.run(start, stop))) == marks


def test_new_files_and_changed_ones_are_read_in_the_next_round(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("a", json_lines([row(1)]))
    opened = place.open()
    opened.seek({}, {})
    assert numbers(place.round(opened)) == [1]
    place.write("b", json_lines([row(2)]))
    assert opened.lag() == 0
    begun = place.time
    assert numbers(place.round(opened)) == [2]
    assert place.time - begun == EVERY_US / 1e6
    assert numbers(place.round(opened)) == []
    assert opened.idle_at() is not None
    # A longer one, one that was only touched, and one that was replaced by another of equal length and time.
    place.write("a", json_lines([row(1), row(3)]))
    place.write("b", json_lines([row(2)]), at=5)
    assert sorted(cast("list[int]", numbers(place.round(opened)))) == [1, 2, 3]
    assert opened.idle_at() is None
    (tmp_path / "a").unlink()
    assert numbers(place.round(opened)) == []


def test_a_file_that_is_removed_or_replaced_while_it_is_read_is_left(tmp_path: Path) -> None:
    place = Place(tmp_path)
    rows = [row(number) for number in range(20_000)]
    for name in ("a", "b", "c"):
        place.write(name, json_lines(rows), at=ord(name))
    opened = place.open()
    opened.seek({}, {})
    batch = opened.poll(rows=10_000, size=1 << 22, timeout_s=0)
    assert batch is not None
    assert len(batch.rows) == 10_000
    (tmp_path / "a").unlink()
    place.write("b", json_lines(rows[:7]), at=10**12)
    found = numbers([batch, *place.round(opened)])
    assert found == [*range(10_000), *range(20_000)]
    assert numbers(place.round(opened)) == list(range(7))


def test_files_that_are_gone_are_forgotten_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BATCH_GONE", 2)
    place = Place(tmp_path, limits={"max_files": 5})
    for name in "abcde":
        place.write(name, json_lines([row(ord(name))]))
    place.round()
    for name in "abcde":
        (tmp_path / name).unlink()
    place.write("f", json_lines([row(1)]))
    told = [len(batch.items) for batch in place.round()]
    assert (sum(told), max(told)) == (6, 3)
    assert len(place.items) == 1


def test_files_that_are_gone_stay_known_until_there_are_too_many(tmp_path: Path) -> None:
    place = Place(tmp_path, limits={"max_files": 3})
    for name in ("a", "b", "c"):
        place.write(name, json_lines([row(ord(name))]))
    place.round()
    # A folder that is away for a while isn't read again.
    away = (tmp_path / "a").rename(tmp_path.parent / f"{tmp_path.name}-away")
    assert numbers(place.round()) == []
    away.rename(tmp_path / "a")
    assert numbers(place.round()) == []
    (tmp_path / "b").unlink()
    place.write("d", json_lines([row(1)]))
    assert numbers(place.round()) == [1]
    assert len(place.items) == 3
    place.write("e", json_lines([row(1)]))
    with pytest.raises(UnavailableError, match="more than 3 files"):
        place.round()


def test_bad_rows_become_dead_letters_with_their_places(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("x.json", b'{"n": 1, "at": 1}\n\n[2]\nnonsense\n{"n": "x", "at": 1}\n{"n": 3, "at": 5}\n{"n": 4, "a')
    rows, letters = records(place, place.round())
    assert [each[0] for each in rows] == [1, 3]
    assert [(letter["file"], letter["line"]) for letter in letters] == [("x.json", line) for line in (3, 4, 5, 7)]
    assert letters[1]["row"] == "nonsense"


def test_bad_rows_of_csv_keep_their_places(tmp_path: Path) -> None:
    place = Place(tmp_path, format=CSVFormat(delimiter=";", headers=("n", "text", "at")))
    place.write("x", b'1;a;1\n2;b\n3;"x\ny";3\n4;\xff;4\n5;;5;5\n6;"q""q";6\nx;;7\n8;a')
    found = place.round()
    rows, letters = records(place, found)
    assert rows == [[1, "a"], [3, "x\ny"], [6, 'q"q']]
    assert [letter["row"] if isinstance(letter["row"], dict) else letter["reason"][0]["message"] for letter in letters]
    assert [(letter["file"]) for letter in letters] == ["x"] * 5
    # `row` is the row that was refused, and hides the number of the row.
    marks = [batch.mark(number) for batch in found for number in range(len(batch.rows))]
    assert [int(mark.partition("/")[2]) for mark in marks] == list(range(8))
    # Read from any row on, the rest is the same.
    for first in range(9):
        decoded = decoders.decoder_of(place.format)
        with (tmp_path / "x").open("rb") as stream:
            pieces = decoded("x", cast("Any", stream), first, decoders.Decoding(columns=None))
            count = sum(len(piece) for piece in pieces if piece.first >= first)
        assert count == 8 - first


def test_csv_by_the_table_of_empty_cells(tmp_path: Path) -> None:
    rows = dataset_of(a=STRING, b=OptionalType(STRING), c=OptionalType(INT), d=OptionalType(FLOAT))
    place = Place(tmp_path, format=CSVFormat(), dataset=rows)
    place.write("x.csv", b"\xef\xbb\xbfa,b,c,other,d,at\n,,,1,,2024-01-01\nNULL,NA,7,,0.5,2024-01-01T00:00:00Z\n")
    assert records(place, place.round()) == ([["", None, None, None], ["NULL", "NA", 7, 0.5]], [])


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["", "007", "-0", "+1", " 1", "1_000", "0x1F", "1.", ".5", "1e3", "true", "NaN", "1,5", "\u0661"]),
)


@settings(max_examples=examples(200), deadline=None)
@given(texts=st.lists(NUMBERS, max_size=4), dtype=st.sampled_from([INT, FLOAT]), is_optional=st.booleans())
def test_texts_of_numbers_are_cast_alike_by_arrow_and_one_by_one(
    texts: list[str], dtype: DataType, is_optional: bool
) -> None:
    whole: DataType = OptionalType(dtype) if is_optional else dtype
    cast_one = ColumnCast(whole, ROWS_MANNER)
    batch = pa.RecordBatch.from_pydict({"x": pa.array(texts, pa.string())})
    fast = cast_one([None if v == "" else v for v in ArrowTable(batch, {"x": whole}).column("x", 0, len(texts))])
    slow = cast_one([None if text == "" else text for text in texts])
    assert repr(fast.values) == repr(slow.values)
    assert fast.errors.keys() == slow.errors.keys()


def test_empty_files_and_files_of_one_header_have_no_rows(tmp_path: Path) -> None:
    place = Place(tmp_path, format=CSVFormat())
    place.write("empty", b"")
    place.write("header", b"n,text,at\n")
    place.write("empty.gz", gzip.compress(b""))
    assert objects(place.round()) == []
    assert len(place.items) == 3


def test_half_a_file_is_one_dead_letter_and_the_whole_one_is_read_later(tmp_path: Path) -> None:
    whole = parquet([row(number) for number in range(100)])
    place = Place(tmp_path, format="parquet")
    place.write("a", whole[:-10])
    place.write("b", whole, at=1)
    rows, letters = records(place, place.round())
    assert [each[0] for each in rows] == list(range(100))
    assert [(letter["file"], letter["reason"][0]["message"].split(":")[0]) for letter in letters] == [("a", "decode")]
    assert records(place, place.round()) == ([], [])
    place.write("a", whole)
    assert len(records(place, place.round())[0]) == 100


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
def test_a_cut_file_gives_the_rows_before_the_cut_and_one_dead_letter(name: str, tmp_path: Path) -> None:
    made, write = FORMATS[name]
    place = Place(tmp_path, format=made)
    content = write([row(number) for number in range(100_000 if name != "avro" else 100)])
    packed = content if name == "avro" else gzip.compress(content, 1)
    place.write("a" if name == "avro" else "a.gz", packed[:-30])
    rows, letters = records(place, place.round())
    assert [each[0] for each in rows] == list(range(len(rows)))
    assert len(rows) > 10
    assert len(letters) == 1
    assert "the rest of the file can't be read" in letters[0]["reason"][0]["message"]


def test_a_line_that_is_too_long_is_one_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "MAX_LINE", 100)
    place = Place(tmp_path)
    place.write("a", json_lines([row(1), {**row(2), "more": "x" * 200}, row(3)]))
    rows, letters = records(place, place.round())
    assert [each[0] for each in rows] == [1, 3]
    assert letters[0]["line"] == 2
    assert "longer than 100 bytes" in letters[0]["reason"][0]["message"]


def test_only_needed_columns_and_row_groups_of_parquet_are_read(tmp_path: Path) -> None:
    rows = [
        {**row(number), "at": pa.scalar(AT + number * 10**6, pa.timestamp("us", "UTC")).as_py()}
        for number in range(100)
    ]
    wide = [{**each, "extra": "x" * 100} for each in rows]
    place = Place(tmp_path, format="parquet", more={"since_us": AT + 45_000_000, "until_us": AT + 61_000_000})
    place.write("a", parquet(wide, row_group_size=10))
    found = place.round()
    assert set(cast("Any", objects(found)[0])) == {"n", "text", "at"}
    assert numbers(found) == list(range(40, 70))
    assert [each[0] for each in records(place, found)[0]] == list(range(45, 61))
    marks = [batch.mark(number) for batch in found for number in range(len(batch.rows))]
    assert [int(mark.partition("/")[2]) for mark in marks] == list(range(40, 70))


def test_the_types_of_parquet_become_those_of_the_dataset(tmp_path: Path) -> None:
    types: dict[str, DataType] = {"i": INT, "f": FLOAT, "d": DecimalType(2), "s": STRING, "w": DATETIME}
    table = pa.table(
        {
            "i": pa.array([1, None, 255], pa.uint8()),
            "f": pa.array([float("nan"), 0.5, None], pa.float32()),
            "d": pa.array([None, "1.25", "3"], pa.string()).cast(pa.decimal128(10, 2)),
            "s": pa.array(["a", "a", None]).dictionary_encode(),
            "w": pa.array([0, 1_700_000_000_123_456_789, None], pa.timestamp("ns")),
            "at": pa.array([0, -1, AT], pa.timestamp("us", "Europe/Berlin")),
        }
    )
    dtypes = {name: OptionalType(dtype) for name, dtype in types.items()}
    place = Place(tmp_path, format="parquet", dataset=dataset_of(**dtypes))
    place.write("a", parquet(table))
    rows, letters = records(place, place.round())
    assert letters == []
    assert rows == [
        [1, None, None, "a", 0],
        [None, 0.5, "1.25", "a", 1_700_000_000_123_456],
        [255, None, "3.00", None, None],
    ]
    # Both ways from rows to records, by columns and one by one, give the same.
    other = replace(place, more={"since_us": -10}, position={}, items={})
    assert records(other, other.round()) == (rows, [])


def test_files_may_have_different_schemas(tmp_path: Path) -> None:
    place = Place(tmp_path, format="parquet")
    schemas: list[dict[str, list[Any]]] = [
        {"n": [1], "text": ["a"], "at": [AT]},
        # More columns in another order, none of the optional one, and numbers as texts.
        {"new": [[{"x": 1}]], "at": [AT], "text": ["b"], "n": [2]},
        {"n": [3], "at": [AT]},
        {"n": ["4"], "text": ["d"], "at": ["2024-01-01T00:00:00Z"]},
        {"n": [[5]], "text": ["e"], "at": [AT]},
        {"text": ["f"], "at": [AT]},
    ]
    for at, columns in enumerate(schemas):
        place.write(str(at), parquet(pa.table(columns)), at=at)
    rows, letters = records(place, place.round())
    assert rows == [[1, "a"], [2, "b"], [3, None], [4, "d"]]
    assert [(letter["file"], letter["reason"][0]["field"]) for letter in letters] == [("4", "n"), ("5", "n")]


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_column_that_is_there_twice_is_one_dead_letter_if_it_is_needed(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path, format=FORMATS[name][0])
    for other in ("n", "m"):
        table = pa.table([pa.array([1]), pa.array([2]), pa.array([AT]), pa.array([3])], ["n", other, "at", "m"])
        content = f"n,{other},at,m\n1,2,{AT},3\n".encode() if name == "csv" else parquet(table)
        place.write(other, content, at=ord(other))
    rows, letters = records(place, place.round())
    assert rows == [[1, None]]
    assert ["n is there more than once" in letter["reason"][0]["message"] for letter in letters] == [True]


def test_values_without_json_form_are_shown_in_dead_letters(tmp_path: Path) -> None:
    place = Place(tmp_path, format="parquet")
    place.write("a", parquet(pa.table({"n": [b"\xff\x00"], "text": [None], "at": pa.array([AT], pa.timestamp("us"))})))
    rows, letters = records(place, place.round())
    assert rows == []
    assert letters[0]["row"]["n"] == {"base64": "/wA="}


def _cell(value: Any) -> str:
    """Return a value as the cell of a CSV file: objects are JSON text."""
    if isinstance(value, dict):
        return '"' + json.dumps(value).replace('"', '""') + '"'
    return "" if value is None else str(value)


@pytest.mark.parametrize("name", ["json", "csv", "parquet"])
def test_envelopes_in_files_are_changes(name: str, tmp_path: Path) -> None:
    envelopes: list[dict[str, Any]] = [
        {"op": "c", "before": None, "after": row(1), "ts_ms": 1_700_000_000_000},
        {"op": "u", "before": row(1), "after": {**row(1), "text": "new"}, "ts_ms": 1_700_000_001_000},
        {"op": "d", "before": row(1), "after": None, "ts_ms": 1_700_000_002_000},
        {"op": "t", "before": None, "after": None, "ts_ms": 1_700_000_003_000},
    ]
    place = Place(tmp_path, dataset=dataset_of("n", n=INT, text=STRING), more={"cdc": Cdc.DEBEZIUM})
    if name == "csv":
        place.format = CSVFormat(delimiter="|")
        quoted = ["|".join(map(_cell, each.values())) for each in envelopes]
        place.write("a", "\n".join(["op|before|after|ts_ms", *quoted]).encode())
    elif name == "json":
        place.write("a", json_lines(envelopes))
    else:
        place.format = "parquet"
        place.write("a", parquet(envelopes))
    rows, letters = records(place, place.round())
    assert rows == [[1, "row 1"], [1, "new"], [1, "row 1"]]
    assert len(letters) == 1
    assert "op is 't'" in letters[0]["reason"][0]["message"]


def test_paths_choose_files_and_order_them(tmp_path: Path) -> None:
    place = Place(tmp_path, prefix="raw/", suffix="*/day=%Y-%m-%d/*.json", more={"since_us": AT})
    for at, name in enumerate(["raw/x/day=2023-11-16/b.json", "raw/y/day=2023-11-15/a.json"]):
        place.write(name, json_lines([row(at)]), at=at)
    for name in ("raw/x/day=2023-11-01/a.json", "raw/x/day=2023-11-16/b.csv", "raw/day=2023-11-16/b.json", "b.json"):
        place.write(name, json_lines([row(-1)]))
    for name in ("raw/x/day=2023-11-16/_part.json", "raw/.tmp/day=2023-11-16/b.json"):
        place.write(name, b"half of a f")
    assert numbers(place.round()) == [1, 0]


def test_a_prefix_may_end_within_a_name(tmp_path: Path) -> None:
    place = Place(tmp_path, prefix="raw/2024-")
    for at, name in enumerate(["raw/2024-01.json", "raw/2024-02/a/b.json", "raw/2023/a.json", "2024-01.json"]):
        place.write(name, json_lines([row(at)]), at=at)
    assert numbers(place.round()) == [0, 1]


def test_a_folder_must_be_allowed_and_links_do_not_lead_out_of_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir()
    (outside / "secret.json").write_bytes(json_lines([row(666)]))
    place = Place(inside)
    place.write("a.json", json_lines([row(1)]))
    (inside / "link.json").symlink_to(outside / "secret.json")
    (inside / "folder").symlink_to(outside)
    (inside / "circle").symlink_to(inside)
    (inside / "same.json").symlink_to(inside / "a.json")
    assert numbers(place.round()) == [1, 1]
    (tmp_path / "way").symlink_to(outside)
    for folder in (outside, tmp_path / "way", inside / ".." / "out", Path("/")):
        opened = replace(place, folder=folder, allowed=(str(inside),)).open()
        opened.seek({}, {})
        with pytest.raises(UnavailableError, match=r"sources\.local_folders"):
            opened.poll(rows=1, size=1, timeout_s=0)
        with pytest.raises(UnavailableError, match=r"sources\.local_folders"):
            opened.peek(1)


def test_a_folder_that_is_away_is_an_error(tmp_path: Path) -> None:
    place = Place(tmp_path / "missing", allowed=(str(tmp_path),))
    with pytest.raises(UnavailableError, match=r"Files drop, folder .*missing"):
        place.round()


def test_a_peek_shows_the_last_file_and_changes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, format=CSVFormat())
    assert objects([place.open().peek(5)]) == []
    place.write("a", csv_lines([row(1)]))
    place.write("b", csv_lines([row(number) for number in range(10, 30)]), at=1)
    assert [int(cast("str", number)) for number in numbers([place.open().peek(3)])] == [10, 11, 12]


def test_progress_is_in_bytes_of_the_round(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name in ("a", "b", "c"):
        place.write(name, json_lines([row(1)]))
    size = len(json_lines([row(1)]))
    opened = place.open()
    opened.seek({}, {})
    seen = []
    for _ in range(3):
        batch = opened.poll(rows=1, size=1, timeout_s=0)
        assert batch is not None
        progress = opened.progress()
        assert progress is not None
        assert (progress.total, progress.unit) == (3 * size, "bytes")
        seen.append(progress.done)
    assert seen == [size, 2 * size, 3 * size]
    assert opened.lag() is None


def test_avro_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(UnavailableError, match=r"pip install caraway\[avro\]"):
        Place(tmp_path, format="avro").open()


def test_many_small_files_come_in_few_batches(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number in range(reader.BATCH_FILES + 10):
        place.write(str(number), json_lines([row(number)]), at=number)
    found = place.round()
    assert len(found) <= 3
    assert numbers(found) == list(range(reader.BATCH_FILES + 10))
