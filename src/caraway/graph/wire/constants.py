"""Encoding of constants in stored form (docs/inside/records.md) to protobuf, and decoding."""

from caraway.errors import InvalidInputError
from caraway.graph.wire.codec import Argument, Content, Value


def encode_constant(value: Value) -> Argument:
    """Encode a constant as the arguments of its message.

    Raises `InvalidInputError` if the value is not of the stored form.
    """
    match value:
        case None:
            return {"null": {}}
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case float():
            return {"float": value}
        case str():
            return {"string": value}
        case bytes():
            return {"bytes": value}
        case list() | tuple():
            return {"list": {"items": [encode_constant(item) for item in value]}}
        case dict():
            entries = [{"key": key, "value": encode_constant(value[key])} for key in sorted(value)]
            return {"map": {"entries": entries}}
        case _:
            raise InvalidInputError(f"a constant of type {type(value).__name__} can't be sent: {value!r}")


def decode_constant(message: Content) -> Value:
    """Decode a constant from its message.

    Raises `InvalidInputError` if the message is of a kind that this version doesn't know.
    """
    kind = message.WhichOneof("kind")
    match kind:
        case "null":
            return None
        case "bool" | "int" | "float" | "string" | "bytes":
            return getattr(message, kind)
        case "list":
            return [decode_constant(item) for item in message.list.items]
        case "map":
            return {entry.key: decode_constant(entry.value) for entry in message.map.entries}
        case _:
            raise InvalidInputError("a constant of a kind that this version of Caraway doesn't know")
