"""Conversion of Protobuf's messages to rows."""

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from caraway.compute.rows.logical_types import decimal, instant
from caraway.errors import InvalidInputError
from caraway.process.json_text import MAX_VALUES

Convert = Callable[[Any], Any]

_TIMESTAMP = "google.protobuf.Timestamp"
_DECIMAL = "confluent.type.Decimal"
_STRUCT, _VALUE, _LIST = "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class MessageReader:
    """Reads the messages of one type.

    A message has a value for each field of its type, also for those that aren't in its bytes, so it may take far more
    memory than its bytes. Therefore its values are counted while they are made.
    """

    def __init__(self, descriptor: Descriptor, message_class: type[Message]) -> None:
        """Compile the conversion of messages of `message_class`, which has the type `descriptor`."""
        self._class = message_class
        self._left = 0
        self._types: dict[str, Convert] = {}
        self._row = self._message(descriptor)

    def read(self, encoded: bytes) -> dict[str, object]:
        """Return the row in a message.

        Raises:
            DecodeError: The bytes are no message of the type.
            InvalidInputError: The message has too many values, or one that Python can't hold.
        """
        message = self._class.FromString(encoded)
        self._left = MAX_VALUES
        row = self._row(message)
        if not isinstance(row, dict):
            raise InvalidInputError(f"is a single {type(row).__name__}, an object is expected")
        return row

    def _take(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise InvalidInputError(f"has more than {MAX_VALUES:,} values")

    def _message(self, descriptor: Descriptor) -> Convert:
        """Return the conversion of a type of messages; a type may contain itself."""
        name = descriptor.full_name
        if name in _SPECIAL:
            return _SPECIAL[name]
        if name in _WRAPPERS:
            return lambda message: message.value
        if name in {_STRUCT, _VALUE, _LIST}:
            return {_STRUCT: self._struct, _VALUE: self._value, _LIST: self._list}[name]
        if name not in self._types:
            # The conversion of this type is stored before those of its fields are made, since a field may have this
            # type itself.
            fields: dict[int, tuple[str, Convert | None]] = {}
            self._types[name] = self._fields(descriptor, fields)
            fields.update({field.number: (field.name, self._field(field)) for field in descriptor.fields})
        return self._types[name]

    def _fields(self, descriptor: Descriptor, fields: Mapping[int, tuple[str, Convert | None]]) -> Convert:
        absent = {field.name: _absent(field) for field in descriptor.fields}
        lists = [field.name for field in descriptor.fields if _is_repeated(field) and not _is_map(field)]
        maps = [field.name for field in descriptor.fields if _is_map(field)]
        size = len(absent) + 1

        def convert(message: Message) -> dict[str, object]:
            self._take(size)
            row = absent.copy()
            for field, value in message.ListFields():
                # An extension of the message isn't among the fields of the type, so it is left out.
                name, of = fields.get(field.number, ("", None))
                if name:
                    row[name] = value if of is None else of(value)
            for name in lists:
                if row[name] is None:
                    row[name] = []
            for name in maps:
                if row[name] is None:
                    row[name] = {}
            return row

        return convert

    def _field(self, field: FieldDescriptor) -> Convert | None:
        if not _is_repeated(field):
            return self._single(field)
        if _is_map(field):
            assert field.message_type is not None  # noqa: S101 (that of the map's entries)
            entry = field.message_type.fields_by_name
            return self._map(self._single(entry["value"]), is_text=_is_text(entry["key"]))
        return self._repeated(self._single(field))

    def _single(self, field: FieldDescriptor) -> Convert | None:
        if field.message_type is not None:
            return self._message(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            # A number that a later version of the schema names stays a number.
            return lambda number: names.get(number, number)
        return None

    def _repeated(self, element: Convert | None) -> Convert:
        def convert(values: Any) -> list[object]:
            self._take(len(values))
            return list(values) if element is None else [element(value) for value in values]

        return convert

    def _map(self, element: Convert | None, *, is_text: bool) -> Convert:
        def convert(values: Any) -> dict[str, object]:
            self._take(2 * len(values))
            pairs = values.items() if is_text else ((_key(key), value) for key, value in values.items())
            return {key: value if element is None else element(value) for key, value in pairs}

        return convert

    def _struct(self, message: Any) -> dict[str, object]:
        self._take(2 * len(message.fields) + 1)
        return {key: self._value(value) for key, value in message.fields.items()}

    def _list(self, message: Any) -> list[object]:
        self._take(len(message.values) + 1)
        return [self._value(value) for value in message.values]

    def _value(self, message: Any) -> object:
        match message.WhichOneof("kind"):
            case "struct_value":
                return self._struct(message.struct_value)
            case "list_value":
                return self._list(message.list_value)
            case None | "null_value":
                return None
            case kind:
                return getattr(message, kind)


def _absent(field: FieldDescriptor) -> object:
    """Return the value of a field that isn't in a message; None for lists and maps, of which each row has its own."""
    if _is_repeated(field) or field.has_presence:
        return None
    if field.enum_type is not None:
        return field.enum_type.values_by_number[0].name
    return field.default_value


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    return _is_repeated(field) and field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_text(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING


def _key(key: object) -> str:
    """Return a key that is no text as Protobuf's JSON writes it."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _instant(message: Any) -> Any:
    try:
        return instant(message.seconds * 1_000_000 + message.nanos // 1_000, 1_000_000)
    except OverflowError:
        raise InvalidInputError(f"has the time {message.seconds} s, which isn't in the years 1 to 9999") from None


def _decimal(message: Any) -> Any:
    try:
        return decimal(message.value, message.scale)
    except ValueError as error:
        raise InvalidInputError(f"has {error}") from None


# The types of messages that become one value.
_SPECIAL: Mapping[str, Convert] = {_TIMESTAMP: _instant, _DECIMAL: _decimal}
