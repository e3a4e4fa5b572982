"""The decoder of Protobuf."""

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from caraway.dataplane.sources.decoding.framing import ReadsRow, RegistryDecoder
from caraway.dataplane.sources.decoding.protobuf_schemas import compile_file, message_at
from caraway.dataplane.sources.decoding.protobuf_values import MessageReader
from caraway.dataplane.sources.decoding.registry import RegisteredSchema, Registry
from caraway.errors import InvalidInputError, shortened

# The most bytes of a varint of 32 bits, and the most levels by which the type of a record may be nested in other types.
VARINT_BYTES, MAX_INDEXES = 5, 64
# The most bytes of a record. The number of its values has a limit of its own (`MessageReader`), since they may take
# much more memory.
MAX_BYTES = 64 * 1024 * 1024


class ProtobufDecoder(RegistryDecoder):
    """Decodes records in Protobuf with the schema by which they were written."""

    def __init__(self, registry: Registry) -> None:
        """Read schemas from `registry`."""
        super().__init__(registry, protobuf_reader)


def protobuf_reader(schema: RegisteredSchema) -> ReadsRow:
    """Return the function that reads rows of a schema, of whichever of its message types.

    Raises:
        InvalidInputError: The schema can't be compiled. The message is a predicate of a record.
        UnavailableError: The compiler can't be run.
    """
    what = f"has the schema {schema.id}, which"
    if schema.kind != "PROTOBUF":
        raise InvalidInputError(f"{what} is in {shortened(schema.kind)}, and the source's format is Protobuf")
    try:
        file = compile_file(schema)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what} {error}") from None
    readers: dict[tuple[int, ...], MessageReader] = {}

    def read_row(value: bytes, start: int) -> dict[str, object]:
        if len(value) > MAX_BYTES:
            raise InvalidInputError(f"has {len(value):,} bytes; one may have at most {MAX_BYTES:,}")
        indexes, start = _indexes(value, start)
        reader = readers.get(indexes)
        if reader is None:
            try:
                found = message_at(file, indexes)
            except InvalidInputError as error:
                raise InvalidInputError(f"{what} {error}") from None
            reader = readers[indexes] = MessageReader(found, GetMessageClass(found))
        try:
            return reader.read(value[start:])
        except DecodeError:
            raise InvalidInputError(f"doesn't fit its schema {schema.id}") from None

    return read_row


def _indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the path of the message's type in its file, and where the message begins."""
    count, start = _zigzag(value, start)
    if count == 0:
        # The usual path, of the first type in the file, is written as a single zero.
        return (0,), start
    if not 0 < count <= MAX_INDEXES:
        raise InvalidInputError(f"has a message type of {count} indexes behind the schema's id")
    indexes = []
    for _ in range(count):
        index, start = _zigzag(value, start)
        indexes.append(index)
    return tuple(indexes), start


def _zigzag(value: bytes, start: int) -> tuple[int, int]:
    """Return a signed number of variable length, and where it ends."""
    number = 0
    for place, byte in enumerate(value[start : start + VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), start + place + 1
    raise InvalidInputError("ends within the indexes of its message type, or they are too large")
