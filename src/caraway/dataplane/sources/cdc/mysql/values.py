"""Values of MySQL and MariaDB in the rows of the binary log and of tables, which are the same in both.

They are those that the reader of tables (`caraway.dataplane.sources.tables.mysql`) has: numbers, `Decimal`, `datetime`
without a zone (UTC), `date`, bytes, parsed JSON, and texts for all else. The library that reads the log
(mysql-replication) decodes the values, some of which have another form than in the answer to a query. These get the
same form here. It says nothing of a zero date but that it is one, so that this becomes `ZERO_DATE`.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from decimal import Decimal
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any
from uuid import UUID

import orjson
from pymysqlreplication.column import Column
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE

# A function that turns a value as a library has read it into the value that the row gets.
Conversion = Callable[[Any], Any]

BINARY = "binary"
# This text stands for a date with zeros, such as 0000-00-00, which mysql-replication doesn't return. The text is no
# valid date, so the row becomes a dead letter.
ZERO_DATE = "zero date"
# Python's codecs for the character sets of MySQL that Python knows by another name. MySQL's latin1 is cp1252, but the
# bytes that cp1252 doesn't define are control characters. So it is decoded as Python's latin_1, and `_conversion` then
# replaces characters by `_CP1252`.
_CODECS = {
    "big5": "big5hkscs",
    "eucjpms": "euc_jp",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "latin_1",
    "macce": "mac_latin2",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_CP1252 = {
    byte: text
    for byte in range(0x80, 0xA0)
    if (text := bytes([byte]).decode("cp1252", errors="ignore")) and ord(text) != byte
}
# The types of times in tables that were created before MySQL 5.6 or MariaDB 10.1.
_OLD = frozenset({FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATETIME, FIELD_TYPE.TIME})
_CHARACTERS = frozenset({FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB})
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (MySQL's times have no zone, and sessions are in UTC)
_NOTHING, _SECOND, _WRAP = timedelta(), timedelta(seconds=1), timedelta(seconds=1 << 32)
_INSTEAD = {
    NONE_SOURCE.EMPTY_SET: "",
    NONE_SOURCE.OUT_OF_DATE_RANGE: ZERO_DATE,
    NONE_SOURCE.OUT_OF_DATETIME2_RANGE: ZERO_DATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The facts about columns that the log doesn't have, by column.

    Attributes:
        bases: The types as information_schema names them, such as "uuid", or "json" for JSON that is kept as text.
        names: The names of those enums and sets whose character set isn't Unicode.
        texts: The columns whose JSON stays text, since the dataset wants text.
        omitted: Generated columns, which aren't read.
        charsets: The character set of each collation.
    """

    bases: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    omitted: frozenset[str] = frozenset()
    charsets: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The way in which the rows of a table are made of those of the library; `key` are the columns of its key."""

    conversions: Sequence[tuple[str, Conversion]]
    omitted: frozenset[str]
    key: tuple[str, ...]

    def row(self, values: dict[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
        """Return the row of the library's values, which are changed; `sources` says why those that are None are.

        Raises:
            ValueError: The key has a zero date, by which the row can't be told from others.
        """
        for name, convert in self.conversions:
            if (value := values[name]) is not None:
                values[name] = convert(value)
        for name, source in sources.items():
            values[name] = _INSTEAD.get(source)
        for name in self.omitted:
            del values[name]
        if any(values[name] == ZERO_DATE for name in self.key):
            raise ValueError("its primary key has a zero date; correct the row in the table")
        return values


def codec(charset: str) -> str | None:
    """Return the codec of Python for a character set; None if Python has none."""
    name = _CODECS.get(charset, charset)
    try:
        codecs.lookup(name)
    except LookupError:
        return None
    return name


def reading(
    columns: Sequence[Column], collations: Sequence[int] | None, kinds: Kinds, key: tuple[str, ...], *, is_mariadb: bool
) -> Reading:
    """Return how the rows of a table are read, and tell the library how their texts are encoded.

    The library doesn't know all collations, nor the names of enums and sets in other character sets than Unicode.

    Args:
        columns: The columns as the library describes them, which are changed.
        collations: The numbers of the collations of those that have characters, in their order.
        kinds: The further facts.
        key: The columns of the table's key.
        is_mariadb: True if geometries have collations, too.

    Raises:
        ValueError: Values of a column can't be read; the text says which one, and what to do.
    """
    conversions = []
    left = iter(collations or ())
    for column in columns:
        charset = BINARY
        if column.type in _CHARACTERS or (is_mariadb and column.type == FIELD_TYPE.GEOMETRY):
            charset = kinds.charsets.get(next(left, 0), BINARY)
            column.character_set_name = BINARY if charset == BINARY else codec(charset)
            if column.character_set_name is None:
                raise ValueError(
                    f"column {column.name} has the character set {charset}, which can't be read from the log"
                )
        if column.type in _OLD:
            raise ValueError(
                f"column {column.name} has a type that can't be read from the log; `ALTER TABLE ... MODIFY` it, which "
                "brings it into the present form of its type"
            )
        if (names := kinds.names.get(column.name)) is not None:
            column.enum_values, column.set_values = ["", *names], names
        if (convert := _conversion(column, charset, kinds)) is not None:
            conversions.append((column.name, convert))
    here = {column.name for column in columns}
    return Reading(conversions, kinds.omitted & here, tuple(name for name in key if name in here))


def loader(column: str, base: str, kinds: Kinds) -> Conversion | None:
    """Return the function that makes the value of a row of what the driver has read; None if they are the same."""
    match base:
        case "json":
            return _json_text if column in kinds.texts else _json
        case "bit":
            return lambda value: int.from_bytes(value) if isinstance(value, bytes) else value
        case "time":
            return str
    return None


def _conversion(column: Column, charset: str, kinds: Kinds) -> Conversion | None:
    base = kinds.bases.get(column.name, "")
    match column.type:
        case FIELD_TYPE.YEAR:
            return lambda value: 0 if value == 1900 else value
        case FIELD_TYPE.FLOAT:
            # A FLOAT gets the six digits that a query shows, so that a row of the log equals the same row of the table.
            return lambda value: float(f"{value:.6g}")
        case FIELD_TYPE.BIT:
            return lambda value: int(value, 2)
        case FIELD_TYPE.TIMESTAMP2:
            return _timestamp
        case FIELD_TYPE.TIME2:
            return _time
        case FIELD_TYPE.SET:
            return lambda value: ",".join(name for name in column.set_values if name in value)
        case FIELD_TYPE.STRING if charset == BINARY:
            make = _BINARIES.get(base, bytes)
            # The log leaves out zeros at the end of a BINARY value, so they are added again. If all bytes are zeros,
            # the library returns an empty text.
            return lambda value: make((value or b"").ljust(column.max_length, b"\0"))
        case FIELD_TYPE.BLOB if base == "json":
            return loader(column.name, base, kinds)
        case FIELD_TYPE.VARCHAR | FIELD_TYPE.BLOB if charset == BINARY:
            return lambda value: value or b""
        case FIELD_TYPE.JSON if column.name in kinds.texts:
            return lambda value: orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()
        case FIELD_TYPE.JSON:
            return _plain
        case FIELD_TYPE.VARCHAR | FIELD_TYPE.STRING | FIELD_TYPE.BLOB if charset == "latin1":
            return lambda value: value.translate(_CP1252)
    return None


def _timestamp(value: datetime) -> datetime | str:
    """Return a timestamp, of which the library takes a zero for the epoch, and the seconds for a number with a sign."""
    if value < _EPOCH:
        return value + _WRAP
    return ZERO_DATE if value < _EPOCH + _SECOND else value


def _time(value: timedelta) -> str:
    """Return a time. The library adds the fraction of a negative one to the next lower second."""
    whole, rest = divmod(-value, _SECOND)
    return str(-(whole * _SECOND + _SECOND - rest) if rest and value < _NOTHING else value)


def _json(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # orjson can't read this JSON. Its text doesn't fit the field, so the row becomes a dead letter.
        return text


def _json_text(text: str) -> str | None:
    """Return JSON as one text, whichever server has written it, and whether it came from a table or the log.

    The null of JSON is null, since the log's library doesn't tell them apart.
    """
    try:
        found = orjson.loads(text)
        return None if found is None else orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text


def _plain(value: object) -> object:
    """Return a value of MySQL's JSON as if it had been parsed from a text."""
    match value:
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return float(value)
        case datetime() | time():
            return value.isoformat(timespec="microseconds").replace("T", " ")
    return value


def _uuid(data: bytes) -> str:
    """Return a UUID of MariaDB, which stores those of the versions 1 to 5 with their parts in another order."""
    if data[6] & 0x80 and 0 < data[8] < 0x60:
        data = data[12:16] + data[10:12] + data[8:10] + data[6:8] + data[0:6]
    return str(UUID(bytes=data))


_BINARIES: dict[str, Conversion] = {
    "uuid": _uuid,
    "inet6": lambda data: inet_ntop(AF_INET6, data),
    "inet4": lambda data: inet_ntop(AF_INET, data),
}
