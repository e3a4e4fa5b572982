"""Decoders: the rows of a file of each format, in pieces of bounded size.

A decoder yields the rows from a given one on. The pieces of a file are the same whenever it is read, so a row has the
same number each time. A decoder raises `InvalidInputError` or an error of Arrow where the content can't be decoded;
errors of the store are `UnavailableError`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from caraway.dataplane.sources.decoding.json_objects import decode_json
from caraway.dataplane.sources.files.compression import decompressed
from caraway.dataplane.sources.files.pieces import Piece
from caraway.dataplane.sources.files.stored import StoreFile, VanishedError
from caraway.dataplane.sources.files.templates import Wanted
from caraway.dtypes.instants import instant_us
from caraway.errors import InvalidInputError, UnavailableError, shortened
from caraway.graph.systems import CSVFormat

# The most rows of a piece, and about the most bytes of its content.
PIECE_ROWS, PIECE_BYTES = 10_000, 4 * 1024 * 1024
# The most bytes of a line of JSON. No record of a topic may be as large.
MAX_LINE = PIECE_BYTES
# The most bytes that are read ahead of each column of a Parquet file, and of all its columns together. A row group is
# never read as a whole.
COLUMN_BYTES, COLUMNS_BYTES = 1024 * 1024, 32 * 1024 * 1024
# The bytes that are decompressed at a time. They are few, so that little is lost before the place at which a file is
# damaged.
STEP_BYTES = 64 * 1024
# The errors by which a decoder says that the content is damaged; errors of the store are others.
ABOUT_CONTENT = (InvalidInputError, pa.ArrowException, OSError)
# The most characters of a bad line that a dead letter shows.
SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The needs of a source that a decoder must know besides the file.

    Attributes:
        columns: The columns that are needed; None: all.
        timestamp: The column that becomes the event time as it is; None if there is none.
        wanted: The event times that the source takes.
    """

    columns: frozenset[str] | None = None
    timestamp: str | None = None
    wanted: Wanted = Wanted()  # noqa: RUF009 (it is frozen)


# A function that yields the rows of the file `path`, from the row of the given number on.
Decoder = Callable[[str, StoreFile, int, Decoding], Iterator[Piece]]


def decoder_of(format: str | CSVFormat) -> Decoder:  # noqa: A002 (the connector's name for it)
    """Return the decoder of a format.

    Raises:
        UnavailableError: The library for the format isn't installed.
    """
    if isinstance(format, CSVFormat):
        return partial(_csv, format)
    if format == "avro":
        return partial(_avro, _avro_library())
    return {"json": _json, "parquet": _parquet}[format]


def _parquet(path: str, file: StoreFile, first: int, how: Decoding) -> Iterator[Piece]:
    """Yield the rows of a Parquet file. Row groups without wanted event times are left out."""
    del path
    content = pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=_ahead(how.columns), pre_buffer=False)
    names = content.schema_arrow.names
    columns = _needed(names, how.columns)
    begin = 0
    for group in range(content.num_row_groups):
        meta = content.metadata.row_group(group)
        end = begin + meta.num_rows
        if end > first and _may_have(meta, how):
            at = begin
            for batch in content.iter_batches(_rows_of(meta), row_groups=[group], columns=columns, use_threads=False):
                piece = Piece(first=at, rows=batch)
                at += len(batch)
                if at > first:
                    yield piece.cut(max(0, first - piece.first), len(piece))
        begin = end


def _needed(names: Sequence[str], columns: frozenset[str] | None) -> list[str]:
    """Return the columns of a file that are needed. Raises `InvalidInputError` if one of these is there twice."""
    needed = [name for name in names if columns is None or name in columns]
    if repeated := sorted({name for name in needed if needed.count(name) > 1}):
        raise InvalidInputError(f"the column {', '.join(repeated)} is there more than once")
    return needed


def _ahead(columns: frozenset[str] | None) -> int:
    """Return how many bytes are read ahead of each column; of unknown ones there may be some hundreds."""
    return min(COLUMN_BYTES, COLUMNS_BYTES // max(1, 256 if columns is None else len(columns)))


def _rows_of(meta: Any) -> int:
    """Return how many rows of a row group are decoded at a time, by the mean size of a row."""
    mean = meta.total_byte_size // max(1, meta.num_rows)
    return int(max(1, min(PIECE_ROWS, PIECE_BYTES // max(1, mean))))


def _may_have(meta: Any, how: Decoding) -> bool:
    """Return whether a row group may have wanted event times, by the least and the greatest of them."""
    if how.timestamp is None or (how.wanted.since_us is None and how.wanted.until_us is None):
        return True
    for at in range(meta.num_columns):
        column = meta.column(at)
        if column.path_in_schema == how.timestamp:
            found = column.statistics
            # The statistics are of use only for dates and times: texts and numbers could be instants in several forms.
            # A row group with a null is read too, since its row becomes a dead letter.
            if found is None or not found.has_min_max or not found.has_null_count or found.null_count:
                return True
            if not isinstance(found.min, date) or not isinstance(found.max, date):
                return True
            since, until = how.wanted.since_us, how.wanted.until_us
            # Old writers may cut statistics to milliseconds, so the greatest time may be up to a millisecond later than
            # they say.
            is_late = until is not None and _us(found.min) >= until
            return not is_late and (since is None or _us(found.max) + 1_000 > since)
    return True


def _us(at: date) -> int:
    return instant_us(at.replace(tzinfo=UTC) if isinstance(at, datetime) and at.tzinfo is None else at)


def _csv(settings: CSVFormat, path: str, file: StoreFile, first: int, how: Decoding) -> Iterator[Piece]:
    """Yield the rows of a CSV file, whose cells are texts; a row with too few or too many cells is bad."""
    bad: list[tuple[int, str]] = []
    header = settings.headers is None

    content = Salvaged(decompressed(path, file))

    def refuse(row: Any) -> str:
        # Arrow counts rows from 1, including the line with the names.
        bad.append((row.number - (2 if header else 1), _wrong_cells(row)))
        return "skip"

    # A needed column that the file lacks isn't an error here, since the dataset's own rules say what that means.
    try:
        reader = csv.open_csv(
            pa.PythonFile(content, mode="r"),
            read_options=csv.ReadOptions(
                use_threads=False,
                block_size=PIECE_BYTES,
                column_names=None if settings.headers is None else list(settings.headers),
            ),
            parse_options=csv.ParseOptions(
                delimiter=settings.delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            # Cells are read as bytes, since as texts, a single one that isn't UTF-8 would make the whole block
            # unreadable.
            convert_options=csv.ConvertOptions(default_column_type=pa.binary(), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise
        content.check()
        return
    names = reader.schema.names
    _needed(names, how.columns)
    at = 0
    for batch in reader:
        for piece in _numbered(_texts(batch, how.columns), bad, at):
            at = piece.first + len(piece)
            for start in range(max(0, first - piece.first), len(piece), PIECE_ROWS):
                yield piece.cut(start, start + PIECE_ROWS)
    for number, fault in bad:
        if number >= max(first, at):
            yield Piece(first=number, rows=[fault], faults={0: fault})
    content.check()


def _wrong_cells(row: Any) -> str:
    return (
        f"decode: the row has {row.actual_columns} cells, {row.expected_columns} are expected: "
        f"{shortened(row.text, SHOWN)}"
    )


def _texts(batch: Any, columns: frozenset[str] | None) -> tuple[Any, dict[int, str]]:
    """Return the needed columns of a batch as texts, and the rows in which one isn't UTF-8."""
    faults: dict[int, str] = {}
    cells: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if columns is not None and name not in columns:
            continue
        try:
            cells[name] = column.cast(pa.string())
        except pa.ArrowInvalid:
            values = [value.as_py() for value in column]
            for row, value in enumerate(values):
                try:
                    value.decode()
                except UnicodeDecodeError:
                    faults[row] = f"decode: the cell of {name} isn't UTF-8"
            cells[name] = pa.array([value.decode(errors="replace") for value in values])
    made = pa.RecordBatch.from_pydict(cells) if cells else batch.select([])
    return made, faults


def _numbered(found: tuple[Any, dict[int, str]], bad: list[tuple[int, str]], at: int) -> Iterator[Piece]:
    """Yield the rows of a batch, with the bad ones between them in their places; `at` is the number of the first."""
    batch, faults = found
    if not faults and not (bad and bad[0][0] < at + len(batch) + len(bad)):
        yield Piece(first=at, rows=batch)
        return
    rows: list[object] = []
    reasons: dict[int, str] = {}
    pending = iter(bad)
    taken = 0
    next_bad = next(pending, None)
    for row, values in enumerate(batch.to_pylist()):
        while next_bad is not None and next_bad[0] == at + len(rows):
            reasons[len(rows)] = next_bad[1]
            rows.append(next_bad[1])
            taken += 1
            next_bad = next(pending, None)
        if row in faults:
            reasons[len(rows)] = faults[row]
        rows.append(values)
    del bad[:taken]
    yield Piece(first=at, rows=rows, faults=reasons)


def _json(path: str, file: StoreFile, first: int, how: Decoding) -> Iterator[Piece]:
    """Yield the objects of a file that has one on each line."""
    del how
    number = 0
    values: list[bytes] = []
    lines: list[int] = []
    size = 0
    content = Salvaged(decompressed(path, file))
    for line, value in _lines(content):
        if not value.strip():
            continue
        if number >= first:
            values.append(value)
            lines.append(line)
            size += len(value)
        number += 1
        if values and (len(values) >= PIECE_ROWS or size >= PIECE_BYTES):
            yield _objects(number - len(values), values, lines)
            values, lines, size = [], [], 0
    if values:
        yield _objects(number - len(values), values, lines)
    content.check()


class Salvaged:
    """A text file of which all whole lines are read before the place at which its content is damaged or cut."""

    closed = False

    def __init__(self, content: Any) -> None:
        self._content = content
        self._error: Exception | None = None
        self._is_over = False
        # The beginning of a line. It is held back until the line goes on or the file ends, since it is dropped if the
        # content is damaged there.
        self._held = b""

    def read(self, size: int = PIECE_BYTES) -> bytes:
        """Return the next bytes; none at the end, and where the content is damaged."""
        parts, have = [self._held], len(self._held)
        self._held = b""
        while have < size and not self._is_over:
            try:
                data = self._content.read(min(STEP_BYTES, size - have))
            except ABOUT_CONTENT as error:
                self._error, data = error, b""
            self._is_over = not data
            parts.append(data)
            have += len(data)
        found = b"".join(parts)
        end = found.rfind(b"\n") + 1
        if self._error is not None:
            return found[:end]
        if self._is_over or not end:
            return found
        self._held = found[end:]
        return found[:end]

    def check(self) -> None:
        """Raise the error that ended the content, if one did."""
        if self._error is not None:
            raise self._error

    def readable(self) -> bool:
        """Return true."""
        return True

    def close(self) -> None:
        """Do nothing: the file is closed by its owner."""


def _objects(first: int, values: Sequence[bytes], lines: Sequence[int]) -> Piece:
    rows, faults = decode_json(values)
    for at, value in enumerate(values):
        if len(value) > MAX_LINE:
            rows[at], faults[at] = (
                value[:SHOWN].decode(errors="replace"),
                f"decode: the line is longer than {MAX_LINE:,} bytes",
            )
    return Piece(first=first, rows=rows, faults=faults, lines=lines)


def _lines(content: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1; of one that is too long, only its beginning."""
    line, rest = 1, b""
    is_cut = False
    while data := content.read(PIECE_BYTES):
        parts = data.split(b"\n")
        for at, part in enumerate(parts):
            if at:
                yield line, rest
                line, rest, is_cut = line + 1, b"", False
            if not is_cut:
                rest += part
                if len(rest) > MAX_LINE:
                    rest, is_cut = rest[: MAX_LINE + 1], True
    if rest:
        yield line, rest


def _avro(reader: Any, path: str, file: StoreFile, first: int, how: Decoding) -> Iterator[Piece]:
    """Yield the records of an Avro object container file, block by block."""
    del path, how
    at = 0
    blocks = _decoded(lambda: iter(reader(file)))
    while (block := _decoded(lambda: next(blocks, None))) is not None:
        end = at + block.num_records
        if end > first:
            rows: list[object] = _decoded(lambda block=block: list(block))  # type: ignore[misc]
            for start in range(max(0, first - at), len(rows), PIECE_ROWS):
                yield Piece(first=at + start, rows=rows[start : start + PIECE_ROWS])
        at = end


def _decoded(act: Callable[[], Any]) -> Any:
    """Return a result of fastavro, which has no base class for the errors that it raises for damaged files."""
    try:
        return act()
    except (UnavailableError, VanishedError):
        raise
    except Exception as error:
        raise InvalidInputError(f"the Avro file is damaged: {type(error).__name__} {error}") from error


def _avro_library() -> Any:
    try:
        from fastavro import block_reader  # noqa: PLC0415 (an extra)
    except ImportError:
        raise UnavailableError("Avro files need fastavro on the server: pip install caraway[avro]") from None
    return block_reader
