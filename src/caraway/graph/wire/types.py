"""Data types and constants to protobuf and back."""

from typing import Any, cast

from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StringType,
    StructType,
)
from caraway.errors import InvalidInputError
from caraway.graph.pb.caraway.v1 import types_pb2 as pb

UNIT = pb.Unit()

_SIMPLE: dict[str, DataType] = {
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "string": STRING,
    "bytes": BYTES,
    "datetime": DATETIME,
    "date": DATE,
}


def encode_type(dtype: DataType) -> pb.DataType:  # noqa: C901, PLR0911 (a branch a member)
    """Encode a data type as its message."""
    match dtype:
        case IntType():
            return pb.DataType(int=UNIT)
        case FloatType():
            return pb.DataType(float=UNIT)
        case BoolType():
            return pb.DataType(bool=UNIT)
        case StringType():
            return pb.DataType(string=UNIT)
        case BytesType():
            return pb.DataType(bytes=UNIT)
        case DatetimeType():
            return pb.DataType(datetime=UNIT)
        case DateType():
            return pb.DataType(date=UNIT)
        case DecimalType(scale):
            return pb.DataType(decimal_scale=scale)
        case EmbeddingType(dim):
            return pb.DataType(embedding_dim=dim)
        case ListType(of):
            return pb.DataType(list_of=encode_type(of))
        case MapType(of):
            return pb.DataType(map_of=encode_type(of))
        case StructType(name, fields):
            members = [pb.DataType.Field(name=field, dtype=encode_type(inner)) for field, inner in fields]
            return pb.DataType(struct=pb.DataType.Struct(name=name, fields=members))
        case OptionalType(of):
            return pb.DataType(optional_of=encode_type(of))
        case BetweenType():
            return pb.DataType(
                between=pb.DataType.Between(
                    of=encode_type(dtype.of),
                    minimum=encode_value(dtype.minimum),
                    maximum=encode_value(dtype.maximum),
                    strict_min=dtype.strict_min,
                    strict_max=dtype.strict_max,
                )
            )
        case OneOfType(of, options):
            return pb.DataType(
                one_of=pb.DataType.OneOf(of=encode_type(of), options=[encode_value(option) for option in options])
            )
        case RegexType(pattern):
            return pb.DataType(regex=pattern)


def decode_type(message: pb.DataType) -> DataType:
    """Decode a data type from its message.

    Raises:
        InvalidInputError: The message is of a kind that this version doesn't know.
    """
    kind = message.WhichOneof("kind")
    match kind:
        case "int" | "float" | "bool" | "string" | "bytes" | "datetime" | "date":
            return _SIMPLE[kind]
        case "decimal_scale":
            return DecimalType(message.decimal_scale)
        case "embedding_dim":
            return EmbeddingType(message.embedding_dim)
        case "list_of":
            return ListType(decode_type(message.list_of))
        case "map_of":
            return MapType(decode_type(message.map_of))
        case "struct":
            fields = tuple((field.name, decode_type(field.dtype)) for field in message.struct.fields)
            return StructType(message.struct.name, fields)
        case "optional_of":
            return OptionalType(decode_type(message.optional_of))
        case "between":
            return BetweenType(
                cast("IntType | FloatType", decode_type(message.between.of)),
                decode_value(message.between.minimum),
                decode_value(message.between.maximum),
                message.between.strict_min,
                message.between.strict_max,
            )
        case "one_of":
            options = tuple(decode_value(option) for option in message.one_of.options)
            return OneOfType(cast("IntType | StringType", decode_type(message.one_of.of)), options)
        case "regex":
            return RegexType(message.regex)
        case _:
            raise InvalidInputError("a data type of a kind that this version of Caraway doesn't know")


def encode_value(value: Any) -> pb.Value:  # noqa: ANN401 (any stored value; one return a kind)
    """Encode a constant in stored form as its message.

    Raises:
        InvalidInputError: The value is not of the stored form.
    """
    match value:
        case None:
            return pb.Value(null=UNIT)
        case bool():
            return pb.Value(bool=value)
        case int():
            return pb.Value(int=value)
        case float():
            return pb.Value(float=value)
        case str():
            return pb.Value(string=value)
        case bytes():
            return pb.Value(bytes=value)
        case list() | tuple():
            return pb.Value(list=pb.Value.List(items=[encode_value(item) for item in value]))
        case dict():
            entries = [pb.Value.Entry(key=key, value=encode_value(value[key])) for key in sorted(value)]
            return pb.Value(map=pb.Value.Map(entries=entries))
        case _:
            raise InvalidInputError(f"a constant of type {type(value).__name__} can't be sent: {value!r}")


def decode_value(message: pb.Value) -> Any:  # noqa: ANN401 (any stored value; one return a kind)
    """Decode a constant from its message.

    Raises:
        InvalidInputError: The message is of a kind that this version doesn't know.
    """
    kind = message.WhichOneof("kind")
    match kind:
        case "null":
            return None
        case "bool":
            return message.bool
        case "int":
            return message.int
        case "float":
            return message.float
        case "string":
            return message.string
        case "bytes":
            return message.bytes
        case "list":
            return [decode_value(item) for item in message.list.items]
        case "map":
            return {entry.key: decode_value(entry.value) for entry in message.map.entries}
        case _:
            raise InvalidInputError("a constant of a kind that this version of Caraway doesn't know")
