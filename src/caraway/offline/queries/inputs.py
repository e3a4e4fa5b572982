"""The rows of offline queries: of the request itself, or of files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dtypes.instants import MAX_US, MIN_US
from caraway.errors import InvalidInputError
from caraway.offline.queries.model import JSON_INPUT, OfflineRequest, Place, StoredRows, folder_of

_US = pa.timestamp("us", "UTC")
_TEXT = pa.string()
# Arrow's units of time that are longer than a microsecond, in microseconds.
_UNITS_US = {"s": 1_000_000, "ms": 1_000}
FORMATS = ("parquet", "csv", "json", "delta")


@dataclass(frozen=True, slots=True)
class InputPart:
    """Some rows.

    Attributes:
        inputs: The columns of the inputs, by full name.
        timestamps: The column of times, if its values are still to be read: datetimes, texts or numbers.
        times: The times in microseconds, if the column has instants; None for a null.
        others: All other columns.
    """

    inputs: Mapping[str, Sequence[object]]
    others: pa.Table
    timestamps: Sequence[object] = ()
    times: Sequence[int | None] | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.timestamps if self.times is None else self.times)


class InputRows(Protocol):
    """The rows of an offline query, in an order that is always the same."""

    def count(self) -> int:
        """Return the number of rows. Raises `InvalidInputError` if the input can't be read."""
        ...

    def parts(self, size: int, skip: int) -> Iterator[InputPart]:
        """Yield the rows behind the first `skip` ones, `size` at a time."""
        ...


def open_rows(query_id: str, request: OfflineRequest, objects: ObjectFolder, files: "Files") -> InputRows:
    """Return the rows of a query.

    Raises:
        InvalidInputError: The input can't be read, or lacks a column.
        UnavailableError: The object store doesn't answer.
    """
    match request.rows:
        case StoredRows(name=name):
            content = objects.read(f"{folder_of(query_id)}/{name}")
            return _JsonRows(content, request) if name == JSON_INPUT else _ArrowRows(_stream(content), request)
        case Place() as place:
            return _FileRows(place, request, files)


@dataclass(frozen=True, slots=True)
class Files:
    """The access to files of others.

    Attributes:
        local: True if files of this machine may be read and written.
        access: The access key and its secret, if the request has any.
    """

    local: bool
    access: tuple[str, str] | None = None

    def at(self, place: Place) -> tuple[Any, str]:
        """Return the file system and the path of a place.

        Raises `InvalidInputError` if the address means nothing, or a file of this machine that may not be used.
        """
        try:
            system, path = fs.FileSystem.from_uri(self._signed_in(place.url))
        except (pa.ArrowException, OSError, ValueError) as error:
            # The text of the error may have the access keys of the address. They are left out, and `from None` keeps
            # the original error out of logs.
            raise InvalidInputError(f"{place.url} is no address of files: {self._redacted(str(error))}") from None
        if isinstance(system, fs.LocalFileSystem) and not self.local:
            raise InvalidInputError(
                f"{place.url} is on the server's own machine; its files are used only if the setting "
                "offline.local_files is true"
            )
        if isinstance(system, fs.S3FileSystem) and place.role_arn is not None:
            system = fs.S3FileSystem(role_arn=place.role_arn, region=system.region)
        return system, path

    def _signed_in(self, url: str) -> str:
        """Return the address with the access key, if there is one, in the form in which Arrow takes it."""
        if self.access is None:
            return url
        parts = urlsplit(url)
        key, secret = (quote(text, safe="") for text in self.access)
        return urlunsplit(parts._replace(netloc=f"{key}:{secret}@{parts.netloc}"))

    def _redacted(self, text: str) -> str:
        """Return a text without the access key and its secret, in whichever spelling."""
        for part in self.access or ():
            for spelling in (quote(part, safe=""), part):
                text = text.replace(spelling, "***") if spelling else text
        return text


class _JsonRows:
    """The columns of a JSON object."""

    def __init__(self, content: bytes, request: OfflineRequest) -> None:
        self._columns: dict[str, list[object]] = orjson.loads(content)
        self._request = request
        _require(self._columns, [*request.inputs, request.timestamp_column])

    def count(self) -> int:
        return len(self._columns[self._request.timestamp_column])

    def parts(self, size: int, skip: int) -> Iterator[InputPart]:
        names, timestamp = self._request.inputs, self._request.timestamp_column
        others = {
            name: _json_array(values) for name, values in self._columns.items() if name not in {*names, timestamp}
        }
        for first in range(skip, self.count(), size):
            rows = slice(first, first + size)
            yield InputPart(
                {name: self._columns[name][rows] for name in names},
                pa.table({name: values[rows] for name, values in others.items()}),
                timestamps=self._columns[timestamp][rows],
            )


def _json_array(values: Sequence[object]) -> pa.Array:
    """Return a column of JSON values that the query doesn't need; values of mixed types become JSON texts."""
    try:
        made = pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return _texts(values)
    return made if _is_storable(made.type) else _texts(values)


def _texts(values: Sequence[object]) -> pa.Array:
    """Return values as JSON texts."""
    return pa.array([None if value is None else orjson.dumps(value, default=str).decode() for value in values], _TEXT)


def _is_storable(dtype: pa.DataType) -> bool:
    """Return whether Parquet has a type for a column; it has none for objects without members, for example."""
    try:
        pq.write_table(pa.schema([("", dtype)]).empty_table(), pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


class _ArrowRows:
    """Rows of a table in memory."""

    def __init__(self, table: pa.Table, request: OfflineRequest) -> None:
        self._table = table
        self._request = request
        _require(table.column_names, [*request.inputs, request.timestamp_column])

    def count(self) -> int:
        return int(self._table.num_rows)

    def parts(self, size: int, skip: int) -> Iterator[InputPart]:
        for first in range(skip, self.count(), size):
            yield _part(self._table.slice(first, size), self._request, {})


class _FileRows:
    """Rows of files, in the order of their names."""

    def __init__(self, place: Place, request: OfflineRequest, files: Files) -> None:
        self._place = place
        self._request = request
        # The column of each input, by the input's name, since two inputs may be read from one column.
        self._columns = {name: place.columns.get(name, name) for name in request.inputs}
        with self._translated():
            self._dataset = self._opened(files)
        _require(self._dataset.schema.names, [*self._columns.values(), request.timestamp_column])

    def _opened(self, files: Files) -> Any:
        place = self._place
        system, path = files.at(place)
        if place.format == "delta":
            return self._delta(files, path)
        if place.format not in FORMATS:
            raise InvalidInputError(f"format {place.format} isn't read; it is one of {', '.join(FORMATS)}")
        form: Any = place.format
        if place.format == "csv":
            names = None if place.headers is None else list(place.headers)
            form = ds.CsvFileFormat(
                parse_options=pa_csv.ParseOptions(delimiter=place.delimiter),
                read_options=pa_csv.ReadOptions(column_names=names),
            )
        info = system.get_file_info(path)
        found = [info]
        if info.type is fs.FileType.Directory:
            found = [file for file in system.get_file_info(fs.FileSelector(path, recursive=True)) if _is_data(file)]
        names = sorted(file.path for file in found if file.type is fs.FileType.File)
        if not names:
            raise InvalidInputError(f"there is no file at {place.url}")
        return ds.dataset(names, filesystem=system, format=form)

    def _delta(self, files: Files, path: str) -> Any:
        if self._place.role_arn is not None:
            # The library of Delta tables would disregard the role, and read as the server itself.
            raise InvalidInputError(f"{self._place.url}: a table of Delta isn't read with role_arn; give access keys")
        options = {}
        if files.access is not None:
            options = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), files.access, strict=True))
        url = path if self._place.url.startswith("file:") else self._place.url
        return DeltaTable(url, storage_options=options).to_pyarrow_dataset()

    def count(self) -> int:
        with self._translated():
            return int(self._dataset.count_rows())

    def parts(self, size: int, skip: int) -> Iterator[InputPart]:
        waiting: list[pa.Table] = []
        rows = 0
        with self._translated():
            for batch in self._dataset.to_batches(batch_size=size):
                piece = pa.Table.from_batches([batch])
                left_out = min(skip, piece.num_rows)
                skip -= left_out
                waiting.append(piece.slice(left_out))
                rows += piece.num_rows - left_out
                while rows >= size:
                    table = pa.concat_tables(waiting)
                    yield _part(table.slice(0, size), self._request, self._columns)
                    waiting, rows = [table.slice(size)], rows - size
            if rows:
                yield _part(pa.concat_tables(waiting), self._request, self._columns)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, DeltaError) as error:
            raise InvalidInputError(f"the rows at {self._place.url} can't be read: {error}") from error


def _is_data(file: Any) -> bool:
    """Return whether a file has rows; files whose names begin so are marks of other programs."""
    return not file.base_name.startswith((".", "_"))


def _stream(content: bytes) -> pa.Table:
    try:
        table = pa.ipc.open_stream(content).read_all()
        # Without this check, lengths and offsets that don't fit their buffers would show other memory of this process
        # in the results.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"the rows are no Arrow IPC stream: {error}") from error
    return table


def _part(table: pa.Table, request: OfflineRequest, columns: Mapping[str, str]) -> InputPart:
    """Return rows of a table; `columns` has the column of each feature that it isn't named by."""
    named = {name: columns.get(name, name) for name in request.inputs}
    values = {column: _values(table[column]) for column in dict.fromkeys(named.values())}
    inputs = {name: values[column] for name, column in named.items()}
    used = {*values, request.timestamp_column}
    others = table.select([name for name in table.column_names if name not in used])
    for position, name in enumerate(others.column_names):
        if not _is_storable(others[name].type):
            others = others.set_column(position, name, _texts(_values(others[name])))
    instants = table[request.timestamp_column]
    if pa.types.is_timestamp(instants.type):
        times = _times(instants)
        if times is not None:
            return InputPart(inputs, others, times=times)
    return InputPart(inputs, others, timestamps=_values(instants))


def _times(instants: pa.ChunkedArray) -> list[int | None] | None:
    """Return instants in microseconds; None if one of them is beyond the years 1 to 9999.

    An instant without a zone is in UTC, as everywhere.
    """
    unit_us = _UNITS_US.get(instants.type.unit)
    if unit_us is None:
        times = instants.cast(_US, safe=False).cast(pa.int64())
        unit_us = 1
    else:
        # For a time that is far away, Arrow's cast to microseconds would silently return another time. So the bounds
        # are checked before the multiplication below.
        times = instants.cast(pa.int64())
    first, last = pc.min_max(times).values()
    if first.is_valid and (first.as_py() * unit_us < MIN_US or last.as_py() * unit_us > MAX_US):
        return None
    found: list[int | None] = pc.multiply(times, unit_us).to_pylist()
    return found


class _Unreadable:
    """A value of a file or stream that Python has no value for. No type takes it, so its row fails."""

    def __init__(self, told: str) -> None:
        self._told = told

    def __repr__(self) -> str:
        return self._told


def _values(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetimes have microseconds only, so nanoseconds are cut off.
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    try:
        values: list[object] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, LookupError, TypeError):
        # PyArrow raises these for instants and days outside of the years 1 to 9999, and for unknown time zones.
        return [_value(value) for value in column]
    return values


def _value(scalar: pa.Scalar) -> object:
    try:
        value: object = scalar.as_py()
    except (pa.ArrowException, ValueError, OverflowError, LookupError, TypeError) as error:
        return _Unreadable(f"a {scalar.type} that can't be read: {error}")
    return value


def _require(known: Sequence[str] | Mapping[str, object], wanted: Sequence[str]) -> None:
    if len(set(known)) < len(known):
        twice = sorted({name for name in known if [*known].count(name) > 1})
        raise InvalidInputError(f"the input has several columns of one name: {', '.join(twice)[:1000]}")
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InvalidInputError(
            f"the input has no column {', '.join(missing)}; its columns: {', '.join(known) or 'none'}"
        )
