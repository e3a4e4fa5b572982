"""Values of MySQL and MariaDB in the rows of the binary log and of tables, which are the same in both.

They are those that the reader of tables (`caraway.ingest.sources.tables.mysql`) has: numbers, `Decimal`, `datetime`
without a zone (UTC), `date`, bytes, parsed JSON, and texts for all else. The library that reads the log
(mysql-replication) describes the columns, but its values aren't used: zero dates and empty sets become nulls there,
negative times lose their fractions, and a text that can't be decoded ends the stream.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any
from uuid import UUID

import orjson
from pymysqlreplication.column import Column
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.json_binary import parse_json

# Reads the value at a place of a row, and returns it with the place behind it.
Reader = Callable[[bytes, int], tuple[Any, int]]

BINARY = "binary"
# The codecs of Python for MySQL's character sets. `latin1` has a special case below.
CODECS = {
    "ascii": "ascii",
    "big5": "big5hkscs",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
UNICODE = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
# MySQL's latin1 is cp1252, with the bytes that mean nothing there as control characters.
_CP1252 = {
    byte: text
    for byte in range(0x80, 0xA0)
    if (text := bytes([byte]).decode("cp1252", errors="ignore")) and ord(text) != byte
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (MySQL's times have no zone, and sessions are in UTC)


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
class ReadColumn:
    """A column of a table in the log; `name` is None if its values are read and let go of."""

    name: str | None
    read: Reader


def readers(columns: Sequence[Column], collations: Sequence[int | None], kinds: Kinds) -> list[ReadColumn]:
    """Return how the columns of a table are read from the log.

    Args:
        columns: The columns as mysql-replication describes them.
        collations: The number of each one's collation, for those that have one.
        kinds: The further facts.

    Raises:
        ValueError: Values of a column can't be read; the text says which one, and what to do.
    """
    found = []
    for column, collation in zip(columns, collations, strict=True):
        charset = BINARY if collation is None else kinds.charsets.get(collation, "utf8mb4")
        name = None if column.name in kinds.omitted else column.name
        found.append(ReadColumn(name, _reader(column, charset, kinds)))
    return found


def row(data: bytes, at: int, columns: Sequence[ReadColumn]) -> tuple[dict[str, Any], int]:
    """Return the row image at a place of an event, and the place behind it."""
    size = (len(columns) + 7) // 8
    nulls = int.from_bytes(data[at : at + size], "little")
    at += size
    found: dict[str, Any] = {}
    for column in columns:
        if nulls & 1:
            value = None
        else:
            value, at = column.read(data, at)
        nulls >>= 1
        if column.name is not None:
            found[column.name] = value
    return found, at


def loader(column: str, base: str, kinds: Kinds) -> Callable[[Any], Any] | None:
    """Return the function that makes the value of a row of what the driver has read; None if they are the same."""
    match base:
        case "json":
            return _json_text if column in kinds.texts else _json
        case "bit":
            return _bits
        case "time":
            return str
    return None


def _reader(column: Column, charset: str, kinds: Kinds) -> Reader:  # noqa: C901, PLR0911, PLR0912 (a table of types)
    kind, name = column.type, column.name
    base = kinds.bases.get(name, "")
    match kind:
        case FIELD_TYPE.TINY | FIELD_TYPE.SHORT | FIELD_TYPE.INT24 | FIELD_TYPE.LONG | FIELD_TYPE.LONGLONG:
            return _integer(_SIZES[kind], is_signed=not column.unsigned)
        case FIELD_TYPE.YEAR:
            return lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)
        case FIELD_TYPE.FLOAT:
            return _float
        case FIELD_TYPE.DOUBLE:
            return lambda data, at: (struct.unpack_from("<d", data, at)[0], at + 8)
        case FIELD_TYPE.NEWDECIMAL:
            return _decimal(column.precision, column.decimals)
        case FIELD_TYPE.DATE | FIELD_TYPE.NEWDATE:
            return _date
        case FIELD_TYPE.DATETIME2:
            return _datetime(column.fsp)
        case FIELD_TYPE.TIMESTAMP2:
            return _timestamp(column.fsp)
        case FIELD_TYPE.TIME2:
            return _time(column.fsp)
        case FIELD_TYPE.BIT:
            return _fixed(column.bytes, _bits)
        case FIELD_TYPE.ENUM:
            choices = ["", *kinds.names.get(name, (column.enum_values or [""])[1:])]
            return _fixed(column.size, lambda data: choices[int.from_bytes(data, "little")])
        case FIELD_TYPE.SET:
            members = list(kinds.names.get(name, column.set_values or []))
            return _fixed(column.size, lambda data: _set(int.from_bytes(data, "little"), members))
        case FIELD_TYPE.VARCHAR | FIELD_TYPE.VAR_STRING | FIELD_TYPE.STRING:
            size = 2 if column.max_length > 255 else 1
            if kind == FIELD_TYPE.STRING and charset == BINARY:
                # The log leaves zeros at the end out.
                if base in _BINARIES:
                    return _sized(size, _BINARIES[base])
                return _sized(size, lambda data: data.ljust(column.max_length, b"\0"))
            return _sized(size, _decoder(charset, name))
        case FIELD_TYPE.BLOB:
            decode = _decoder(charset, name)
            if base != "json":
                return _sized(column.length_size, decode)
            load = _json_text if name in kinds.texts else _json
            return _sized(column.length_size, lambda data: load(decode(data)))
        case FIELD_TYPE.GEOMETRY:
            return _sized(column.length_size, bytes)
        case FIELD_TYPE.JSON:
            is_text = name in kinds.texts
            return _sized(column.length_size, lambda data: _binary_json(data, is_text=is_text))
    old = f"; `ALTER TABLE ... MODIFY` column {name}, which brings it into the present form of its type"
    raise ValueError(f"column {name} has a type that can't be read from the log{old if kind in _OLD else ''}")


_SIZES = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
# Times of tables that were made before MySQL 5.6 or MariaDB 10.1.
_OLD = frozenset({FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATETIME, FIELD_TYPE.TIME})


def _integer(size: int, *, is_signed: bool) -> Reader:
    if size == 4:
        unpack = struct.Struct("<i" if is_signed else "<I").unpack_from
        return lambda data, at: (unpack(data, at)[0], at + 4)

    def read(data: bytes, at: int) -> tuple[int, int]:
        end = at + size
        return int.from_bytes(data[at:end], "little", signed=is_signed), end

    return read


def _float(data: bytes, at: int) -> tuple[float, int]:
    """Return a value of four bytes with the six digits that a query shows of it."""
    return float(f"{struct.unpack_from('<f', data, at)[0]:.6g}"), at + 4


def _fixed(size: int, load: Callable[[bytes], Any]) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        return load(data[at:end]), end

    return read


def _sized(size: int, load: Callable[[bytes], Any]) -> Reader:
    """Return a reader of bytes behind their own number, which has `size` bytes."""
    if size == 1:

        def read_short(data: bytes, at: int) -> tuple[Any, int]:
            end = at + 1 + data[at]
            return load(data[at + 1 : end]), end

        return read_short

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        return load(data[start:end]), end

    return read


def _decoder(charset: str, column: str) -> Callable[[bytes], Any]:
    if charset == BINARY:
        return bytes
    if charset == "latin1":
        return lambda data: data.decode("latin-1").translate(_CP1252)
    codec = CODECS.get(charset)
    if codec is None:
        raise ValueError(f"column {column} has the character set {charset}, which can't be read from the log")
    if codec == "utf_8":
        return lambda data: data.decode(errors="replace")
    return lambda data: data.decode(codec, errors="replace")


# The bytes that a part of a decimal's digits takes, by their number.
_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal(precision: int, scale: int) -> Reader:
    """Return a reader of decimals: groups of nine digits in four bytes each, with a shorter one at both ends."""
    whole, whole_rest = divmod(precision - scale, 9)
    part, part_rest = divmod(scale, 9)
    groups = [(_DIGITS[whole_rest], whole_rest), *[(4, 9)] * whole]
    fractions = [*[(4, 9)] * part, (_DIGITS[part_rest], part_rest)]
    size = sum(length for length, _ in (*groups, *fractions))

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        end = at + size
        found = bytearray(data[at:end])
        is_negative = not found[0] & 0x80
        found[0] ^= 0x80
        if is_negative:
            found = bytearray(byte ^ 0xFF for byte in found)
        texts = []
        place = 0
        for length, digits in (*groups, *fractions):
            texts.append(f"{int.from_bytes(found[place : place + length]):0{digits}d}" if digits else "")
            place += length
        text = f"{''.join(texts[: len(groups)]) or '0'}.{''.join(texts[len(groups) :])}"
        return Decimal(f"-{text}" if is_negative else text), end

    return read


def _date(data: bytes, at: int) -> tuple[date | str, int]:
    value = int.from_bytes(data[at : at + 3], "little")
    year, month, day = value >> 9, (value >> 5) & 15, value & 31
    try:
        return date(year, month, day), at + 3
    except ValueError:
        return f"{year:04d}-{month:02d}-{day:02d}", at + 3


def _fraction(fsp: int) -> tuple[int, int]:
    """Return how many bytes a fraction of a second has, and the microseconds of its unit."""
    size = (fsp + 1) // 2
    return size, 10 ** (6 - 2 * size)


def _datetime(fsp: int) -> Reader:
    size, unit = _fraction(fsp)

    def read(data: bytes, at: int) -> tuple[datetime | str, int]:
        end = at + 5 + size
        value = int.from_bytes(data[at : at + 5]) - 0x80_0000_0000
        us = int.from_bytes(data[at + 5 : end]) * unit
        months, day = divmod(value >> 17, 32)
        year, month = divmod(months, 13)
        hour, minute, second = (value >> 12) & 31, (value >> 6) & 63, value & 63
        try:
            return datetime(year, month, day, hour, minute, second, us), end  # noqa: DTZ001 (it has no zone)
        except ValueError:
            text = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
            return text + _fraction_text(us, fsp), end

    return read


def _fraction_text(us: int, fsp: int) -> str:
    return f".{us:06d}"[: fsp + 1] if fsp else ""


def _timestamp(fsp: int) -> Reader:
    size, unit = _fraction(fsp)
    zero = "0000-00-00 00:00:00" + _fraction_text(0, fsp)

    def read(data: bytes, at: int) -> tuple[datetime | str, int]:
        end = at + 4 + size
        seconds = int.from_bytes(data[at : at + 4])
        us = int.from_bytes(data[at + 4 : end]) * unit
        return _EPOCH + timedelta(seconds=seconds, microseconds=us) if seconds else zero, end

    return read


def _time(fsp: int) -> Reader:
    size, unit = _fraction(fsp)
    bits = 8 * size

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + size
        # The fraction is part of the number, whose sign is that of the time.
        value = int.from_bytes(data[at:end]) - (0x80_0000 << bits)
        seconds, fraction = divmod(abs(value), 1 << bits)
        found = timedelta(
            hours=seconds >> 12, minutes=(seconds >> 6) & 63, seconds=seconds & 63, microseconds=fraction * unit
        )
        return str(-found if value < 0 else found), end

    return read


def _bits(data: Any) -> object:
    return int.from_bytes(data) if isinstance(data, bytes) else data


def _set(value: int, members: Sequence[str]) -> str:
    return ",".join(member for number, member in enumerate(members) if value >> number & 1)


def _json(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # As a text it doesn't fit the field, and becomes a dead letter.
        return text


def _json_text(text: str) -> str:
    """Return JSON as one text, whichever server has written it, and whether it came from a table or the log."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text


def _binary_json(data: bytes, *, is_text: bool) -> object:
    """Return JSON in the binary form of MySQL. An update to nothing is logged without any bytes, and means null."""
    found = _plain(parse_json(data[0], data[1:])) if data else None
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode() if is_text else found


def _plain(value: object) -> object:
    """Return a value of JSON as if it had been parsed from a text."""
    match value:
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return float(value)
        case datetime() | date() | timedelta():
            return str(value)
    return value


def _uuid(data: bytes) -> str:
    """Return a UUID of MariaDB, which stores those of the versions 1 to 5 with their parts in another order."""
    found = data.ljust(16, b"\0")
    if found[6] & 0x80 and 0 < found[8] < 0x60:
        found = found[12:16] + found[10:12] + found[8:10] + found[6:8] + found[0:6]
    return str(UUID(bytes=found))


_BINARIES: dict[str, Callable[[bytes], Any]] = {
    "uuid": _uuid,
    "inet6": lambda data: inet_ntop(AF_INET6, data.ljust(16, b"\0")),
    "inet4": lambda data: inet_ntop(AF_INET, data.ljust(4, b"\0")),
}
