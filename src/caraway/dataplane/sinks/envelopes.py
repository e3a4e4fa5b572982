"""Changes as JSON envelopes of Debezium."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import orjson

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dtypes.values import Convert, to_json
from caraway.graph.plan.model import SinkPlan

# The platform's name in the output of sinks: its own, or the name of the API with which it is compatible.
Product = Literal["caraway", "fennel"]


class Envelopes:
    """Makes envelopes of a dataset's changes."""

    def __init__(
        self, plan: SinkPlan, branch: str, product: Product = "caraway", *, clock: Callable[[], float] = time.time
    ) -> None:
        """Prepare.

        Args:
            plan: The sink.
            branch: The branch that envelopes name.
            product: The name under which envelopes have the position of a change.
            clock: Returns the time in seconds since the epoch.
        """
        schema = plan.topic.schema
        self._columns: list[tuple[str, Convert]] = [(c.name, to_json(c.dtype)) for c in schema.columns]
        self._keys = len(schema.keys)
        self._timestamp = schema.timestamp
        self._time = next(to_json(f.dtype) for f in plan.dataset.fields if f.timestamp)
        self._head = {"dataset": plan.dataset.name, "version": plan.dataset.version, "branch": branch}
        self._product = product
        self._clock = clock

    def envelope(self, change: Change) -> dict[str, Any]:
        """Return the envelope of a change."""
        position = {**self._head, "partition": change.partition, "offset": change.offset}
        return {
            "payload": {
                "op": change.op.value,
                "before": self._row(change.before),
                "after": self._row(change.after),
                "ts_ms": int(self._clock() * 1000),
                "source": {"ts_ms": change.time_us // 1000, self._product: position},
            }
        }

    def value(self, change: Change) -> bytes:
        """Return the envelope of a change as JSON."""
        return orjson.dumps(self.envelope(change))

    def key(self, change: Change) -> bytes | None:
        """Return the key fields of a changed row as a JSON object; None if the dataset has no keys."""
        if not self._keys:
            return None
        pairs = zip(self._columns[: self._keys], change.row.values, strict=False)
        return orjson.dumps({name: _shown(value, convert) for (name, convert), value in pairs})

    def _row(self, row: Row | None) -> Mapping[str, object] | None:
        if row is None:
            return None
        values = zip(self._columns, row.values, strict=True)
        shown = {name: _shown(value, convert) for (name, convert), value in values}
        return {**shown, self._timestamp: self._time(row.time_us)}


def _shown(value: object, convert: Convert) -> object:
    return None if value is None else convert(value)
