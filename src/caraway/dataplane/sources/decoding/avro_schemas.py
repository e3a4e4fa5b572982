"""Compilation of Avro schemas: what fastavro is to read, what its values become, and how much memory they may take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from caraway.compute.rows.logical_types import decimal, instant, time_of_day
from caraway.errors import InvalidInputError
from caraway.process.json_text import MAX_DEPTH

Convert = Callable[[Any], Any]

# Bytes of memory of Python's objects, as upper bounds: an entry of a dict or list, an empty dict or list, and a number
# or an empty text or bytes.
ENTRY, DICT, LIST, SCALAR = 16, 200, 96, 64
# A character has one to four bytes in UTF-8. In memory, it takes up to four bytes if any character of the text is
# beyond Latin-1.
WIDE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A schema or a part of one.

    Attributes:
        schema: The schema for fastavro, which differs from the registered one in its logical types.
        convert: Converts the value that fastavro returns; None if the value stays.
        kind: The Python type of fastavro's value, by which the member of a union is recognised; None if any.
        fields: The names of a record's fields.
        least: The fewest bytes of a value.
        fixed: The bytes of memory of a value, beyond those in proportion to its length.
        ratio: The bytes of memory for each byte.
        depth: How many lists, maps and records are inside each other, this one included.
    """

    schema: Any
    convert: Convert | None = None
    kind: type | None = None
    fields: frozenset[str] = frozenset()
    least: int
    fixed: int = SCALAR
    ratio: float = 0.0
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled schema; `is_recursive` says whether a type contains itself."""

    part: Part
    is_recursive: bool


def compile_schema(parsed: Any, named: Mapping[str, Any]) -> Compiled:
    """Compile a schema that fastavro has parsed, with the named types that it uses.

    Raises:
        InvalidInputError: Its values can't be read within bounds. The message is a clause for "a schema that ...".
    """
    compiler = _Compiler(named)
    part = compiler.part(parsed)
    if part.depth > MAX_DEPTH:
        raise InvalidInputError("nests too deep")
    return Compiled(part=part, is_recursive=compiler.is_recursive)


_PRIMITIVES: Mapping[str, tuple[type | None, int, int, float]] = {
    # For each of them: its class in Python, the fewest bytes of a value, the memory of a value, and the memory for each
    # of its bytes.
    "null": (type(None), 0, 0, 0),
    "boolean": (bool, 1, 0, 0),
    "int": (int, 1, SCALAR, 0),
    "long": (int, 1, SCALAR, 0),
    "float": (float, 4, SCALAR, 0),
    "double": (float, 8, SCALAR, 0),
    "bytes": (bytes, 1, SCALAR, 1),
    "string": (str, 1, SCALAR, WIDE),
}
# The logical types that fastavro converts itself.
_NATIVE = frozenset(
    {
        ("int", "date"),
        ("long", "timestamp-millis"),
        ("long", "timestamp-micros"),
        ("long", "local-timestamp-millis"),
        ("long", "local-timestamp-micros"),
    }
)
_CONVERTED: Mapping[tuple[str, str], Convert] = {
    ("long", "timestamp-nanos"): lambda value: instant(value, 1_000_000_000),
    ("long", "local-timestamp-nanos"): lambda value: instant(value, 1_000_000_000),
    ("int", "time-millis"): lambda value: time_of_day(value, 1_000),
    ("long", "time-micros"): lambda value: time_of_day(value, 1_000_000),
    ("long", "time-nanos"): lambda value: time_of_day(value, 1_000_000_000),
    ("int", "time-nanos"): lambda value: time_of_day(value, 1_000_000_000),
}
# Debezium's types, which Connect's converter for Avro writes as plain numbers, with their names as a property.
_DEBEZIUM = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.NanoTime": "time-nanos",
}
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"


class _Compiler:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        # The named types so far. A type that is being compiled has None here.
        self._parts: dict[str, Part | None] = {}
        self.is_recursive = False

    def part(self, schema: Any) -> Part:
        if isinstance(schema, str):
            return self._reference(schema)
        if isinstance(schema, list):
            return self._union([self.part(member) for member in schema])
        match schema["type"]:
            case "record" | "error":
                return self._record(schema)
            case "enum":
                self._define(schema)
                plain = {name: schema[name] for name in ("type", "name", "symbols")}
                return self._defined(schema, Part(schema=plain, kind=str, least=1, fixed=0))
            case "fixed":
                return self._fixed(schema)
            case "array":
                items = self.part(schema["items"])
                return self._repeated({"type": "array", "items": items.schema}, list, items, items.least)
            case "map":
                values = self.part(schema["values"])
                made = self._repeated({"type": "map", "values": values.schema}, dict, values, values.least + 1)
                return replace(made, ratio=made.ratio + SCALAR + WIDE)
            case str() as name if name in _PRIMITIVES:
                return _primitive(name, schema)
            case inner:
                return self.part(inner)

    def _reference(self, name: str) -> Part:
        if name in _PRIMITIVES:
            return _primitive(name, {})
        if name not in self._parts:
            return self.part(self._named[name])
        part = self._parts[name]
        if part is not None:
            return replace(part, schema=name)
        # The type contains itself. Its values end only with an empty list or a null, which takes a byte. For such a
        # record, the length is bounded instead of the memory.
        self.is_recursive = True
        return Part(schema=name, convert=lambda value: self._converted(name, value), kind=dict, least=1)

    def _converted(self, name: str, value: Any) -> Any:
        part = self._parts[name]
        return value if part is None or part.convert is None else part.convert(value)

    def _define(self, schema: Mapping[str, Any]) -> None:
        self._parts[schema["name"]] = None

    def _defined(self, schema: Mapping[str, Any], part: Part) -> Part:
        self._parts[schema["name"]] = part
        return part

    def _record(self, schema: Mapping[str, Any]) -> Part:
        self._define(schema)
        fields = [(field["name"], self.part(field["type"])) for field in schema["fields"]]
        converts = [(name, part.convert) for name, part in fields if part.convert is not None]
        convert: Convert | None = _members(converts) if converts else None
        if _VARIABLE_DECIMAL in {schema["name"], schema.get("connect.name")}:
            convert = lambda value: decimal(value["value"], value["scale"])  # noqa: E731 (one of several)
        return self._defined(
            schema,
            Part(
                schema={
                    "type": "record",
                    "name": schema["name"],
                    "fields": [{"name": name, "type": part.schema} for name, part in fields],
                },
                convert=convert,
                kind=dict,
                fields=frozenset(name for name, _ in fields),
                least=sum(part.least for _, part in fields),
                fixed=DICT + sum(part.fixed + ENTRY for _, part in fields),
                ratio=max((part.ratio for _, part in fields), default=0.0),
                depth=1 + max((part.depth for _, part in fields), default=0),
            ),
        )

    def _fixed(self, schema: Mapping[str, Any]) -> Part:
        self._define(schema)
        size = schema["size"]
        convert: Convert | None = None
        match schema.get("logicalType"):
            case "decimal":
                scale = int(schema.get("scale", 0))
                convert = lambda value: decimal(value, scale)  # noqa: E731 (one of several)
            case "uuid" if size == 16:
                convert = lambda value: str(UUID(bytes=value))  # noqa: E731 (one of several)
        plain = {"type": "fixed", "name": schema["name"], "size": size}
        return self._defined(
            schema, Part(schema=plain, convert=convert, kind=bytes, least=size, fixed=SCALAR, ratio=1.0)
        )

    def _repeated(self, schema: Any, kind: type, element: Part, least: int) -> Part:
        """Return an array or map of elements that take at least so many bytes."""
        if not least:
            # The record has only the number of such elements, and the reader creates each of them, so a few bytes could
            # fill the memory.
            raise InvalidInputError("has a list whose elements take no bytes")
        convert = element.convert
        every: Convert | None = None
        if convert is not None:
            every = _values_by(convert) if kind is dict else _elements_by(convert)
        return Part(
            schema=schema,
            convert=every,
            kind=kind,
            least=1,
            fixed=DICT if kind is dict else LIST,
            ratio=(element.fixed + ENTRY) / least + element.ratio,
            depth=1 + element.depth,
        )

    def _union(self, members: Sequence[Part]) -> Part:
        converted = [part for part in members if part.convert is not None]
        present = [part for part in members if part.kind is not type(None)]
        convert: Convert | None = None
        if converted:
            convert = _nullable(converted[0].convert) if len(present) == 1 else _chosen(present)
        return Part(
            schema=[part.schema for part in members],
            convert=convert,
            least=1 + min((part.least for part in members), default=0),
            fixed=max((part.fixed for part in members), default=0),
            ratio=max((part.ratio for part in members), default=0.0),
            depth=max((part.depth for part in members), default=0),
        )


def _primitive(name: str, schema: Mapping[str, Any]) -> Part:
    kind, least, fixed, ratio = _PRIMITIVES[name]
    logical = _DEBEZIUM.get(str(schema.get("connect.name")), schema.get("logicalType"))
    written: Any = name
    convert: Convert | None = None
    if (name, logical) in _NATIVE:
        written = {"type": name, "logicalType": logical}
        # fastavro returns a datetime or a date here, which needs no conversion, so `_chosen` needn't recognise the type
        # in a union.
        kind = None
    elif (name, logical) == ("bytes", "decimal"):
        scale = int(schema.get("scale", 0))
        convert = lambda value: decimal(value, scale)  # noqa: E731 (one of several)
    else:
        convert = _CONVERTED.get((name, str(logical)))
    return Part(schema=written, convert=convert, kind=kind, least=least, fixed=fixed, ratio=ratio)


def _members(converts: Sequence[tuple[str, Convert]]) -> Convert:
    def convert(row: Any) -> Any:
        for name, of in converts:
            row[name] = of(row[name])
        return row

    return convert


def _elements_by(convert: Convert) -> Convert:
    return lambda values: [convert(value) for value in values]


def _values_by(convert: Convert) -> Convert:
    return lambda values: {key: convert(value) for key, value in values.items()}


def _nullable(convert: Convert | None) -> Convert:
    assert convert is not None  # noqa: S101 (only members with a conversion are passed)
    return lambda value: None if value is None else convert(value)


def _chosen(members: Sequence[Part]) -> Convert:
    """Return the conversion of a union, which recognises the member by the type of its value and, of records, names."""

    def convert(value: Any) -> Any:
        kind = type(value)
        for part in members:
            if part.kind is kind and (not part.fields or part.fields == value.keys()):
                return value if part.convert is None else part.convert(value)
        return value

    return convert
