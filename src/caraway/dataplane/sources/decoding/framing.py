"""The form in which records name their schemas: a zero byte and the schema's id, before the encoded row.

It is that of Confluent's serializers, which those of other registries can write too.
"""

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct

from typing_extensions import override

from caraway.dataplane.sources.decoding.decoder import Decoder
from caraway.dataplane.sources.decoding.registry import RegisteredSchema, Registry
from caraway.errors import InvalidInputError

HEADER = Struct(">bI")
# At most this many compiled schemas are cached for a source. A topic has a few, and a few more for each change of its
# rows.
MAX_SCHEMAS = 1_000

# A function that returns the row in a record; the encoded row begins at the given position. If there is no row, it
# raises InvalidInputError, whose message is a predicate of the record.
ReadsRow = Callable[[bytes, int], dict[str, object]]


class RegistryDecoder(Decoder):
    """Decodes records that begin with the id of their schema."""

    def __init__(self, registry: Registry, compile_schema: Callable[[RegisteredSchema], ReadsRow]) -> None:
        """Read schemas from `registry`; `compile_schema` makes the function that reads the rows of one.

        `compile_schema` raises InvalidInputError, with a predicate, if no row of the schema can be read.
        """
        self._registry = registry
        self._compile = compile_schema
        self._known: OrderedDict[int, ReadsRow] = OrderedDict()

    @override
    def decode(self, values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
        """Return rows and faults; see `Decoder.decode`."""
        rows: list[object] = []
        faults: dict[int, str] = {}
        # An id that the registry lacks now may be registered soon, so its error is remembered only during this call.
        unknown: dict[int, str] = {}
        for position, value in enumerate(values):
            try:
                rows.append(self._row(value, unknown))
            except InvalidInputError as error:
                faults[position] = f"decode: the record {error}"
                rows.append(b64encode(value).decode())
        return rows, faults

    @override
    def close(self) -> None:
        """End the connections to the registry."""
        self._registry.close()

    def _row(self, value: bytes, unknown: dict[int, str]) -> dict[str, object]:
        if len(value) < HEADER.size:
            raise InvalidInputError(f"has {len(value)} bytes; a zero byte and the id of a schema are expected first")
        magic, schema_id = HEADER.unpack_from(value)
        if magic:
            raise InvalidInputError(
                f"begins with the byte {value[0]:#04x}; a zero byte and the id of a schema are expected first, as the "
                "serializers of schema registries write them"
            )
        if schema_id in unknown:
            raise InvalidInputError(unknown[schema_id])
        read = self._known.get(schema_id)
        if read is None:
            try:
                read = self._known[schema_id] = self._reader(self._registry.read(schema_id))
            except InvalidInputError as error:
                unknown[schema_id] = str(error)
                raise
            if len(self._known) > MAX_SCHEMAS:
                self._known.popitem(last=False)
        return read(value, HEADER.size)

    def _reader(self, schema: RegisteredSchema) -> ReadsRow:
        """Return the function that reads the rows of a schema; if none can be read, it raises the reason each time."""
        try:
            return self._compile(schema)
        except InvalidInputError as error:
            reason = str(error)

            def refuse(_value: bytes, _start: int) -> dict[str, object]:
                raise InvalidInputError(reason)

            return refuse
