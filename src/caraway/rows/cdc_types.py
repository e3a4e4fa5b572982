"""Logical types of Kafka Connect and Debezium: the meanings of plain numbers and texts in an envelope."""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from caraway.errors import InvalidInputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY = date(1970, 1, 1)

Schema = Mapping[str, Any]


def in_logical_types(row: Mapping[str, object] | None, schema: Schema | None, side: str) -> Mapping[str, object] | None:
    """Convert a row of an envelope to Python values by the schema beside the payload; without one nothing changes.

    Raises `InvalidInputError` if a value isn't of its logical type.
    """
    if row is None or schema is None:
        return row
    described = _field(schema, side)
    return row if described is None else {name: _value(value, _field(described, name)) for name, value in row.items()}


def _field(schema: Schema, name: str) -> Schema | None:
    fields = schema.get("fields") or ()
    return next((field for field in fields if field.get("field") == name), None)


def _value(value: Any, schema: Schema | None) -> Any:
    if value is None or schema is None:
        return value
    convert = _LOGICAL.get(schema.get("name", ""))
    try:
        if convert is not None:
            return convert(value, schema)
        match schema.get("type"):
            case "struct":
                return {name: _value(item, _field(schema, name)) for name, item in value.items()}
            case "array":
                return [_value(item, schema.get("items")) for item in value]
            case "map":
                return {key: _value(item, schema.get("values")) for key, item in value.items()}
            case "bytes":
                return base64.b64decode(value, validate=True)
            case _:
                return value
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        spelled = schema.get("name") or schema.get("type")
        raise InvalidInputError(f"field {schema.get('field')}: {value!r} is no {spelled}: {error}") from None


def _instant(per_second: int) -> Callable[[Any, Schema], datetime]:
    def convert(value: Any, _schema: Schema) -> datetime:
        return EPOCH + timedelta(microseconds=int(value) * 1_000_000 // per_second)

    return convert


def _day(value: Any, _schema: Schema) -> date:
    return FIRST_DAY + timedelta(days=int(value))


def _decimal(value: Any, schema: Schema) -> Decimal:
    return _scaled(value, int(schema["parameters"]["scale"]))


def _variable_decimal(value: Any, _schema: Schema) -> Decimal:
    return _scaled(value["value"], int(value["scale"]))


def _scaled(encoded: str, scale: int) -> Decimal:
    unscaled = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale)


_LOGICAL: Mapping[str, Callable[[Any, Schema], Any]] = {
    "io.debezium.time.Date": _day,
    "io.debezium.time.Timestamp": _instant(1_000),
    "io.debezium.time.MicroTimestamp": _instant(1_000_000),
    "io.debezium.time.NanoTimestamp": _instant(1_000_000_000),
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "org.apache.kafka.connect.data.Date": _day,
    "org.apache.kafka.connect.data.Timestamp": _instant(1_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
}
