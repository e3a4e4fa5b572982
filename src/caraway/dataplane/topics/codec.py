"""Keys and values of the records on a topic as MessagePack (docs/inside/records.md).

Values are in *stored form*: datetime as int microseconds, date as int days, decimal as text, struct as a sequence of
its fields.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from caraway.dataplane.topics.blocks import is_block
from caraway.dtypes.types import DataType, FloatType, ListType, MapType, StructType, stored_type
from caraway.errors import InvalidInputError
from caraway.graph.plan.model import Column, RecordSchema

FORMAT = 1
# The most bytes of the value of a record. By default librdkafka refuses a message of more than 1,000,000 bytes,
# including key and headers. The difference leaves room for these two.
MAX_RECORD_BYTES = 900_000

PUT = 1
DELETE = -1
RETRACT = 0

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Normaliser = Callable[[object], object]


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """The value of a record on a topic.

    `time` and `ingested` are microseconds since the epoch. `id` is None if the position on the topic is the identity,
    `rev` None for the least revision. `row` holds the columns of the schema in stored form, without the timestamp.
    """

    format: int
    schema: int
    op: int
    time: Int64
    ingested: int
    id: bytes | None
    rev: bytes | None
    row: list[object] | None


# The encoder sorts the entries of maps, so that equal values have equal bytes, and Kafka keys can be compared by their
# bytes. Encoder and decoder are thread safe.
_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode
_DECODE_RECORD = msgspec.msgpack.Decoder(Record).decode
_DECODE_KEY = msgspec.msgpack.Decoder(list[object]).decode


@lru_cache(maxsize=1_000)
def _put_decoders(fingerprint: int, columns: int) -> tuple[Callable[[bytes], Record], Callable[[bytes], list[Record]]]:
    """Return the decoders of a record, and of a block, that accept nothing but puts of a schema.

    The decoded objects have the attributes of `Record`. msgspec checks the values while it decodes them, which takes a
    fraction of the time that checks in Python would take.
    """
    row = Annotated[list[object], msgspec.Meta(min_length=columns, max_length=columns)]
    fields: list[tuple[str, Any]] = [
        ("format", Literal[FORMAT]),
        ("schema", Literal[fingerprint]),
        ("op", Literal[PUT]),
        ("time", Int64),
        ("ingested", int),
        ("id", bytes | None),
        ("rev", bytes | None),
        ("row", row),
    ]
    put = msgspec.defstruct("Put", fields, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True)
    one, block = msgspec.msgpack.Decoder(put), msgspec.msgpack.Decoder(list[put])  # type: ignore[valid-type]
    return one.decode, block.decode  # type: ignore[return-value]


class RecordCodec:
    """Encodes and decodes the records of one schema.

    Encoding assumes that values have their declared types, with one exception: an int in a float column is written as
    float64, since keys are compared by their bytes, and the sum of a float column is a float.
    """

    __slots__ = (
        "_decode_block",
        "_decode_put",
        "_fingerprint",
        "_key_columns",
        "_key_fixes",
        "_row_columns",
        "_row_fixes",
        "schema",
    )

    def __init__(self, schema: RecordSchema) -> None:
        self.schema = schema
        self._fingerprint = schema.fingerprint
        self._key_columns = len(schema.keys)
        self._row_columns = len(schema.columns)
        self._key_fixes = _fixes(schema.keys, _as_key_float)
        self._row_fixes = _fixes(schema.columns, _as_float)
        self._decode_put, self._decode_block = _put_decoders(self._fingerprint, self._row_columns)

    @classmethod
    def of_keys(cls, columns: Iterable[Column]) -> "RecordCodec":
        """Return a codec for keys alone."""
        keys = tuple(columns)
        return cls(RecordSchema(keys=keys, columns=keys, timestamp="", fingerprint=0))

    def encode_key(self, values: Sequence[object]) -> bytes | None:
        """Return the Kafka key for the values of the key columns; None for a keyless schema.

        Equal values get equal bytes: -0.0 is written as 0.0, and all NaNs as one.

        Raises:
            InvalidInputError: Not as many values as key columns, or a value that has no MessagePack form.
        """
        if len(values) != self._key_columns:
            raise InvalidInputError(f"a key of {self._key_columns} columns can't be made of {len(values)} values")
        if not self._key_columns:
            return None
        return _encode(_fixed(values, self._key_fixes))

    def encode_keys(self, rows: Sequence[Sequence[object]]) -> list[bytes]:
        """Return the Kafka keys of rows that begin with the key columns, of which there is one at least.

        Raises:
            InvalidInputError: A value has no MessagePack form.
        """
        columns, fixes, encode = self._key_columns, self._key_fixes, _ENCODE
        keys = [row[:columns] for row in rows]
        try:
            return [encode(_fixed(key, fixes)) for key in keys] if fixes else list(map(encode, keys))
        except (TypeError, ValueError, OverflowError) as error:
            raise _no_form(error) from error

    def in_form(self, columns: Sequence[list[object]]) -> list[list[object]]:
        """Return the columns of rows as they are encoded, so that `encode_puts` can take their rows as decoded."""
        fixed = list(columns)
        for position, fix in self._row_fixes:
            column = fixed[position]
            # In a column of floats only ints have to be converted, and most columns have none. Looking for `int` in the
            # set of the values' types takes less time than a call for each value.
            if fix is not _as_float or int in set(map(type, column)):
                fixed[position] = [None if value is None else fix(value) for value in column]
        return fixed

    def encode_value(
        self,
        *,
        op: int,
        time_us: int,
        ingested_us: int,
        row: Sequence[object] | None,
        record_id: bytes | None = None,
        rev: bytes | None = None,
    ) -> bytes:
        """Return the Kafka value of a record whose `row` holds the schema's columns in order.

        Raises:
            InvalidInputError: Not as many values as columns, or a value that has no MessagePack form.
        """
        if row is not None:
            if len(row) != self._row_columns:
                raise InvalidInputError(f"a row of {self._row_columns} columns can't be made of {len(row)} values")
            row = _fixed(row, self._row_fixes)
        return _encode((FORMAT, self._fingerprint, op, time_us, ingested_us, record_id, rev, row))

    def decode_key(self, data: bytes) -> list[object]:
        """Return the values of the key columns. Raises `InvalidInputError` if the bytes are no key of this schema."""
        try:
            values = _DECODE_KEY(data)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"the bytes are no key: {error}") from error
        if len(values) != self._key_columns:
            raise InvalidInputError(f"the key has {len(values)} columns, the schema {self._key_columns}")
        return values

    def decode_puts(self, values: Sequence[bytes]) -> list[Record]:
        """Return the records in some values, all of which must be puts.

        Raises `InvalidInputError` if one isn't; `decode_value` says what is wrong with it.
        """
        try:
            return [self._decode_put(value) for value in values]
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"the bytes are no put of this schema: {error}") from error

    def decode_message(self, value: bytes) -> list[Record]:
        """Return the records of a message, a block or a single record; otherwise like `decode_puts`."""
        try:
            return self._decode_block(value) if is_block(value) else [self._decode_put(value)]
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"the bytes are no puts of this schema: {error}") from error

    def encode_puts(
        self,
        rows: Sequence[Sequence[object]],
        times: Iterable[int],
        ingested: Iterable[int],
        ids: Iterable[bytes | None],
        *,
        decoded: bool = False,
    ) -> list[bytes]:
        """Return the values of records that are puts without revision; see `encode_value`.

        If `decoded` is set, the values of the rows come from records whose columns have the same types, or from
        `in_form`.

        Raises:
            InvalidInputError: A value has no MessagePack form.
        """
        fingerprint, encode = self._fingerprint, _ENCODE
        if self._row_fixes and not decoded:
            rows = [_fixed(row, self._row_fixes) for row in rows]
        try:
            return [
                encode((FORMAT, fingerprint, PUT, time_us, ingested_us, record_id, None, row))
                for row, time_us, ingested_us, record_id in zip(rows, times, ingested, ids, strict=False)
            ]
        except (TypeError, ValueError, OverflowError) as error:
            raise _no_form(error) from error

    def decode_value(self, data: bytes) -> Record:
        """Return the record in `data`.

        Raises `InvalidInputError` if the bytes are no record, of another format or of another schema.
        """
        try:
            record = _DECODE_RECORD(data)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"the bytes are no record: {error}") from error
        if record.schema != self._fingerprint or record.format != FORMAT:
            raise InvalidInputError(
                f"the record has format {record.format} and schema {record.schema:#010x}, "
                f"known are format {FORMAT} and schema {self._fingerprint:#010x}"
            )
        row = record.row
        if row is None:
            if record.op != RETRACT:
                raise InvalidInputError("the record has no row, which only a retraction may lack")
        elif len(row) != self._row_columns:
            raise InvalidInputError(f"the record's row has {len(row)} columns, the schema {self._row_columns}")
        return record


def _encode(value: object) -> bytes:
    try:
        return _ENCODE(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_form(error) from error


def _no_form(error: Exception) -> InvalidInputError:
    return InvalidInputError(f"a value has no stored form: {error}")


def _fixed(values: Sequence[object], fixes: tuple[tuple[int, Normaliser], ...]) -> Sequence[object]:
    if not fixes:
        return values
    fixed = list(values)
    for position, fix in fixes:
        value = fixed[position]
        if value is not None:
            fixed[position] = fix(value)
    return fixed


def _fixes(columns: tuple[Column, ...], number: Normaliser) -> tuple[tuple[int, Normaliser], ...]:
    """Return the columns with floats in them, each with the function that fixes a value; `number` fixes a float."""
    fixes = ((position, _normaliser(column.dtype, number)) for position, column in enumerate(columns))
    return tuple((position, fix) for position, fix in fixes if fix is not None)


def _normaliser(dtype: DataType, number: Normaliser) -> Normaliser | None:
    """Return a function that applies `number` to the floats in a value that isn't None; None if it can have none."""
    match stored_type(dtype):
        case FloatType():
            return number
        case ListType(of):
            item = _normaliser(of, number)
            return None if item is None else _each(item)
        case MapType(of):
            item = _normaliser(of, number)
            return None if item is None else _each_value(item)
        case StructType(_, fields):
            items = tuple(_normaliser(of, number) for _, of in fields)
            return _each_field(items) if any(items) else None
        case _:
            return None


def _as_float(value: object) -> object:
    return float(value) if type(value) is int else value


def _as_key_float(value: object) -> object:
    """Return a float with one bit pattern for equal values: 0.0 for -0.0, and one of the many NaNs."""
    if type(value) not in (int, float):
        return value
    number = float(value) + 0.0  # type: ignore[arg-type]  # an int or a float
    return number if number == number else math.nan  # noqa: PLR0124 (NaN only)


def _each(item: Normaliser) -> Normaliser:
    def fix(value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return value
        return [None if v is None else item(v) for v in value]

    return fix


def _each_value(item: Normaliser) -> Normaliser:
    def fix(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {k: None if v is None else item(v) for k, v in value.items()}

    return fix


def _each_field(items: tuple[Normaliser | None, ...]) -> Normaliser:
    def fix(value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return value
        return [v if v is None or item is None else item(v) for v, item in zip(value, items, strict=True)]

    return fix
