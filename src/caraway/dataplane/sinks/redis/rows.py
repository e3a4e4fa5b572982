"""The keys of a sink in Redis, and the values that they have.

A row's key is the sink's prefix, a colon and the key of the row. If the dataset has one key that isn't optional, that
is its text; else the texts of all keys with colons between them, in which `%` and `:` are written as `%25` and `%3A`,
and a null as a single `%`. So no two rows have one key.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from caraway.dataplane.sinks.changes import Row
from caraway.dtypes.types import DATETIME, DataType, OptionalType, StringType, base_type
from caraway.dtypes.values import to_json
from caraway.graph.connectors import RedisConnector
from caraway.graph.plan.model import SinkPlan

Text = Callable[[Any], bytes]

# The key with the position of a sink is this text and the sink's prefix. The prefix of a sink can't begin with this
# text.
POSITION = "caraway:"


class RedisRows:
    """The form of a dataset's rows in Redis."""

    def __init__(self, plan: SinkPlan) -> None:
        """Prepare for the rows of a sink's dataset."""
        connector = plan.sink.connector
        assert isinstance(connector, RedisConnector)  # noqa: S101 (the planner chooses the writer)
        schema, renames = plan.topic.schema, dict(plan.sink.renames)
        fields = [(column.name, column.dtype) for column in schema.columns] + [(schema.timestamp, DATETIME)]
        self.prefix = f"{plan.target}:"
        self.position = f"{POSITION}{plan.target}"
        self._is_json = connector.format == "json"
        self._shown = [(renames.get(name, name), to_json(dtype)) for name, dtype in fields]
        self._texts = [(renames.get(name, name).encode(), _text(dtype)) for name, dtype in fields]
        # The key columns come first in a row.
        self._keys = [_text(key.dtype) for key in schema.keys]
        self._is_plain = len(schema.keys) == 1 and not isinstance(schema.keys[0].dtype, OptionalType)

    def key(self, row: Row) -> bytes:
        """Return the key of a row."""
        texts = [None if value is None else text(value) for text, value in zip(self._keys, row.values, strict=False)]
        head = self.prefix.encode()
        if self._is_plain and texts[0] is not None:
            return head + texts[0]
        return head + b":".join(b"%" if text is None else _escaped(text) for text in texts)

    def value(self, row: Row) -> bytes | Mapping[bytes, bytes]:
        """Return the value of a row's key: a JSON object, or the fields of a hash, which lacks nulls.

        Raises:
            OverflowError, ValueError: A value can't be written, such as an instant that the calendar doesn't have.
        """
        stored = (*row.values, row.time_us)
        if self._is_json:
            shown = zip(self._shown, stored, strict=True)
            return orjson.dumps({name: None if value is None else show(value) for (name, show), value in shown})
        texts = zip(self._texts, stored, strict=True)
        return {name: text(value) for (name, text), value in texts if value is not None}


def _text(dtype: DataType) -> Text:
    """Return the function from a stored value (docs/inside/records.md) to the text of its JSON, without quotes."""
    show, is_text = to_json(dtype), isinstance(base_type(dtype), StringType)

    def text(value: object) -> bytes:
        shown = value if is_text else show(value)
        return shown.encode() if isinstance(shown, str) else orjson.dumps(shown)

    return text


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%25").replace(b":", b"%3A")


def size_of(value: bytes | Mapping[bytes, bytes]) -> int:
    """Return the bytes of the longest text of a value."""
    return len(value) if isinstance(value, bytes) else max(map(len, value.values()), default=0)
