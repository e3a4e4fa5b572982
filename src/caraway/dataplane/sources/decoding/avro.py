"""The decoder of Avro, by the library fastavro.

fastavro trusts what it reads. A record of 30 kB that nests a type in itself ends the whole process, because it is read
by recursion in C. A list of a billion elements that take no bytes fills the memory, and a decimal of 100 kB takes
seconds. `caraway.dataplane.sources.decoding.avro_schemas` finds out which of these a schema allows, and what fastavro
is to read in its place.
"""

from io import BytesIO
from typing import Any

import orjson
from fastavro import parse_schema, schemaless_reader
from fastavro._read_py import schemaless_reader as python_reader

from caraway.dataplane.sources.decoding.avro_schemas import Compiled, compile_schema
from caraway.dataplane.sources.decoding.framing import ReadsRow, RegistryDecoder
from caraway.dataplane.sources.decoding.registry import RegisteredSchema, Registry
from caraway.errors import InvalidInputError, shortened
from caraway.process.json_text import MAX_DEPTH

# The most bytes of memory that the values of a record may take. The schema and the record's length give an upper bound
# for them. With most schemas, any record up to Kafka's default size of 1 MB stays within this limit.
MAX_MEMORY = 256 * 1024 * 1024
# The most bytes of a record whose schema has a type that contains itself. Such a record is read by fastavro's slower
# reader in Python, whose recursion has a limit.
MAX_RECURSIVE_BYTES = 64 * 1024


class AvroDecoder(RegistryDecoder):
    """Decodes records in Avro with the schema by which they were written."""

    def __init__(self, registry: Registry) -> None:
        """Read schemas from `registry`."""
        super().__init__(registry, avro_reader)


def avro_reader(schema: RegisteredSchema) -> ReadsRow:
    """Return the function that reads rows of a schema.

    Raises:
        InvalidInputError: The schema can't be read, or no row of it. The message is a predicate of a record.
    """
    what = f"has the schema {schema.id}, which"
    if schema.kind != "AVRO":
        raise InvalidInputError(f"{what} is in {shortened(schema.kind)}, and the source's format is Avro")
    try:
        named: dict[str, Any] = {}
        for _, text in schema.imports:
            parse_schema(orjson.loads(text), named)
        compiled = compile_schema(parse_schema(orjson.loads(schema.text), named), named)
        parsed = parse_schema(compiled.part.schema)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what} {error}") from None
    except RecursionError:
        raise InvalidInputError(f"{what} nests too deep") from None
    except Exception as error:  # noqa: BLE001 (a wrong schema makes fastavro raise anything)
        raise InvalidInputError(f"{what} can't be read: {_said(error)}") from None
    if compiled.part.kind is not dict or not compiled.part.fields:
        raise InvalidInputError(f"{what} is no record with fields")
    if compiled.part.fixed > MAX_MEMORY:
        raise InvalidInputError(f"{what} nests so many types that each row would take too much memory")
    return _reader(schema.id, parsed, compiled)


def _reader(schema_id: int, parsed: Any, compiled: Compiled) -> ReadsRow:
    convert, is_recursive = compiled.part.convert, compiled.is_recursive
    read = python_reader if is_recursive else schemaless_reader
    longest = MAX_RECURSIVE_BYTES
    if not is_recursive:
        longest = int((MAX_MEMORY - compiled.part.fixed) / max(compiled.part.ratio, 1.0))

    def read_row(value: bytes, start: int) -> Any:
        if len(value) > longest:
            raise InvalidInputError(
                f"has {len(value):,} bytes; with its schema {schema_id}, one of more than {longest:,} could take too "
                "much memory"
            )
        stream = BytesIO(value)
        stream.seek(start)
        try:
            row: Any = read(stream, parsed)
            if convert is not None:
                row = convert(row)
        except RecursionError:
            raise InvalidInputError(f"nests its schema {schema_id} too deep") from None
        except Exception as error:  # noqa: BLE001 (damaged bytes make fastavro raise anything)
            raise InvalidInputError(f"doesn't fit its schema {schema_id}: {_said(error)}") from None
        if left := len(value) - stream.tell():
            raise InvalidInputError(f"doesn't fit its schema {schema_id}: {left:,} bytes are left behind the row")
        if is_recursive and not _is_shallow(row):
            raise InvalidInputError(f"has values more than {MAX_DEPTH} levels deep")
        return row

    return read_row


def _is_shallow(row: object) -> bool:
    """Return whether a row nests at most MAX_DEPTH levels deep."""
    level = [row]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += [item for item in value.values() if isinstance(item, dict | list)]
            elif isinstance(value, list):
                inner += [item for item in value if isinstance(item, dict | list)]
        if not inner:
            return True
        level = inner
    return False


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return shortened(f"{type(error).__name__} {text}" if text else type(error).__name__)
