"""Rows for a request: from a file or the standard input, as JSON, JSON lines, CSV or Parquet, in batches."""

import csv
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from caraway.errors import InvalidInputError, shortened

Row = dict[str, Any]

# The options for the one row of a command, and for many rows. All commands use the same words for them.
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", "-w", metavar="NAME=VALUE", help="A value of the only row; one for each input or key."),
]
InputOption = Annotated[
    str | None, typer.Option("--input", "-i", metavar="ROWS", help="A file, - for the standard input, or JSON itself.")
]

STANDARD_INPUT = "-"
# The most characters of a JSON document, which is read into memory as a whole. Larger inputs must be JSON lines or
# Parquet, which are read in parts.
MAX_JSON_BYTES = 256 * 1024 * 1024
# The values of constants that Python writes as JSON. The library that writes the JSON of requests would make nulls of
# infinite numbers, and refuses integers beyond 64 bits, which a decimal may have. Both are sent as text, as the client
# sends them.
NOT_FINITE = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
# The most characters of one line of JSON lines. The server accepts requests of at most 32 MiB, and each character takes
# a byte or more, so a longer line can't be a row that it accepts.
MAX_LINE = 32 * 1024 * 1024


class Format(StrEnum):
    """The format of rows."""

    JSON = "json"
    LINES = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES: Mapping[str, Format] = {
    ".json": Format.JSON,
    ".jsonl": Format.LINES,
    ".ndjson": Format.LINES,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}


def read_rows(source: str, form: Format | None) -> Iterator[Row]:
    """Yield the rows of a source.

    Args:
        source: A file, `-` for the standard input, or JSON itself (it begins with `[` or `{`).
        form: The format; None: by the name of the file, and JSON lines for the standard input.

    Raises:
        InvalidInputError: The source can't be read, or has another format; the text names the line.
    """
    if source.lstrip()[:1] in {"[", "{"}:
        name = f"the argument, {shortened(source)}"
        quoting = "; in a shell, an argument with JSON stands in single quotes, and JSON itself has double ones"
        yield from _objects(_parsed(source, f"{name},", quoting), name)
        return
    form = form or _format_of(source)
    name = "the standard input" if source == STANDARD_INPUT else source
    try:
        if form is Format.PARQUET:
            yield from _parquet(source)
            return
        with _opened(source) as lines:
            match form:
                case Format.JSON:
                    yield from _objects(_parsed(_limited(lines, name), name), name)
                case Format.LINES:
                    yield from _json_lines(lines, name)
                case Format.CSV:
                    yield from _csv(lines, name)
    except OSError as error:
        raise InvalidInputError(f"{name} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{name} isn't text in UTF-8: {error.reason} at byte {error.start}") from error


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Yield rows in lists of at most `size`."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch


def of_options(parts: Iterable[str]) -> Row:
    """Return the row that options `--with name=value` describe."""
    row: Row = {}
    for part in parts:
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise InvalidInputError(f"--with {part}: name=value is expected")
        if name in row:
            raise InvalidInputError(f"--with {name}=...: this name is given twice")
        row[name] = value
    return row


def _format_of(source: str) -> Format:
    if source == STANDARD_INPUT:
        return Format.LINES
    form = _SUFFIXES.get(Path(source).suffix.lower())
    if form is None:
        known = ", ".join(_SUFFIXES)
        raise InvalidInputError(f"{source}: the format isn't known by the name ({known}); say it with --format")
    return form


@contextmanager
def _opened(source: str) -> Iterator[TextIO]:
    if source == STANDARD_INPUT:
        yield sys.stdin
        return
    with Path(source).open(encoding="utf-8-sig", newline="") as opened:
        yield opened


def _limited(lines: TextIO, name: str) -> str:
    text = lines.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise InvalidInputError(f"{name} is larger than {MAX_JSON_BYTES:,} bytes; give it as JSON lines or Parquet")
    return text


def _parsed(text: str, name: str, remedy: str = "") -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} isn't JSON: {error}{remedy}") from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, in a form that a request can have. Raises `ValueError` if it isn't JSON."""
    return json.loads(text, parse_int=_integer, parse_constant=NOT_FINITE.get)


def _integer(digits: str) -> int | str:
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else digits


def _objects(found: Any, name: str) -> Iterator[Row]:
    """Yield the rows of a JSON value: a list of objects, one object, or an object of equally long lists (columns)."""
    if isinstance(found, dict):
        if found and all(isinstance(values, list) for values in found.values()):
            lengths = {len(values) for values in found.values()}
            if len(lengths) > 1:
                raise InvalidInputError(f"{name}: the columns have different lengths: {sorted(lengths)}")
            yield from (dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True))
            return
        found = [found]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InvalidInputError(f'{name}: a list of objects is expected, such as [{{"user": 1}}]')
    yield from found


def _json_lines(lines: TextIO, name: str) -> Iterator[Row]:
    number = 0
    while line := lines.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise InvalidInputError(f"{name}, line {number} is longer than {MAX_LINE:,} characters")
        if not line.strip():
            continue
        row = _parsed(line, f"{name}, line {number}")
        if not isinstance(row, dict):
            raise InvalidInputError(f"{name}, line {number}: an object is expected, one for each line")
        yield row


def _csv(lines: TextIO, name: str) -> Iterator[Row]:
    reader = csv.DictReader(lines, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise InvalidInputError(
                    f"{name}, line {reader.line_num}: a value for each column of line 1 is expected"
                )
            # An empty cell of CSV is a missing value.
            yield {column: None if value == "" else value for column, value in row.items()}
    except csv.Error as error:
        raise InvalidInputError(f"{name}, line {reader.line_num} isn't CSV: {error}") from error


def _parquet(source: str) -> Iterator[Row]:
    if source == STANDARD_INPUT:
        raise InvalidInputError("Parquet can't be read from the standard input; give a file")
    # pyarrow takes longer to import than other formats take to be read, so it is imported for Parquet only.
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    # Instants, decimals and bytes are encoded as the client encodes those of a table.
    json_value = importlib.import_module("caraway.client.frames").json_value
    try:
        with parquet.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=10_000):
                yield from (json_value(row) for row in batch.to_pylist())
    except arrow.ArrowException as error:
        raise InvalidInputError(f"{source} isn't Parquet: {error}") from error
