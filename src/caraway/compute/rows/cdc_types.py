"""Logical types of Kafka Connect and Debezium: the meanings of plain numbers and texts in an envelope."""

import base64
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from caraway.compute.rows.logical_types import day, decimal, instant, time_of_day
from caraway.errors import InvalidInputError, quoted

Schema = Mapping[str, Any]


def in_logical_types(row: Mapping[str, object] | None, schema: Schema | None, side: str) -> Mapping[str, object] | None:
    """Convert a row of an envelope to Python values by the schema beside the payload; without one nothing changes.

    Raises `InvalidInputError` if a value isn't of its logical type.
    """
    if row is None or schema is None:
        return row
    described = next((field for field in schema.get("fields") or () if field.get("field") == side), None)
    return row if described is None else _struct(row, described)


def _struct(row: Mapping[str, object], schema: Schema) -> dict[str, object]:
    made = dict(row)
    for field in schema.get("fields") or ():
        name = field.get("field")
        if name in made:
            made[name] = _value(made[name], field)
    return made


def _value(value: Any, schema: Schema | None) -> Any:
    if value is None or schema is None:
        return value
    kind = schema.get("type")
    if kind in _PLAIN and "name" not in schema:
        return value
    convert = _LOGICAL.get(schema.get("name", ""))
    try:
        if convert is not None:
            return convert(value, schema)
        match kind:
            case "struct":
                return _struct(value, schema)
            case "array":
                return [_value(item, schema.get("items")) for item in value]
            case "map":
                return {key: _value(item, schema.get("values")) for key, item in value.items()}
            case "bytes":
                return base64.b64decode(value, validate=True)
            case _:
                return value
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        spelled = schema.get("name") or kind
        raise InvalidInputError(f"field {schema.get('field')}: {quoted(value)} is no {spelled}: {error}") from None


def _instant(per_second: int) -> Callable[[Any, Schema], datetime]:
    return lambda value, _schema: instant(int(value), per_second)


def _time(per_second: int) -> Callable[[Any, Schema], str]:
    return lambda value, _schema: time_of_day(int(value), per_second)


def _day(value: Any, _schema: Schema) -> date:
    return day(int(value))


def _decimal(value: Any, schema: Schema) -> Decimal:
    return _scaled(value, int(schema["parameters"]["scale"]))


def _variable_decimal(value: Any, _schema: Schema) -> Decimal:
    return _scaled(value["value"], int(value["scale"]))


def _scaled(encoded: str, scale: int) -> Decimal:
    return decimal(base64.b64decode(encoded, validate=True), scale)


# The types of Kafka Connect whose values need no conversion from JSON, unless the schema also names a logical type.
_PLAIN = frozenset({"int8", "int16", "int32", "int64", "float", "double", "boolean", "string"})
_LOGICAL: Mapping[str, Callable[[Any, Schema], Any]] = {
    "io.debezium.time.Date": _day,
    "io.debezium.time.Timestamp": _instant(1_000),
    "io.debezium.time.MicroTimestamp": _instant(1_000_000),
    "io.debezium.time.NanoTimestamp": _instant(1_000_000_000),
    "io.debezium.time.Time": _time(1_000),
    "io.debezium.time.MicroTime": _time(1_000_000),
    "io.debezium.time.NanoTime": _time(1_000_000_000),
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "org.apache.kafka.connect.data.Date": _day,
    "org.apache.kafka.connect.data.Time": _time(1_000),
    "org.apache.kafka.connect.data.Timestamp": _instant(1_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
}
