"""A table of a database whose changes are captured as Debezium does: the rows that it ends with are the oracle.

Debezium sends an update of the primary key as a delete of the old key, a tombstone and an insert of the new one. It
sends the records of one key in their order, to one partition, and may send the last ones of all again after a restart.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from caraway.dtypes.types import DATETIME, INT, STRING, DecimalType, optional
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec

DATASET = DatasetSpec(
    name="Accounts",
    version=1,
    history_us=0,
    fields=(
        FieldSpec(name="id", dtype=INT, key=True),
        FieldSpec(name="name", dtype=optional(STRING)),
        FieldSpec(name="level", dtype=INT),
        FieldSpec(name="balance", dtype=DecimalType(2)),
        FieldSpec(name="updated_at", dtype=DATETIME, timestamp=True),
    ),
    index=None,
)
SOURCE = SourceSpec(
    connector=WebhookConnector(name="db", endpoint="accounts", retention_us=0), cdc=Cdc.DEBEZIUM, disorder_us=0
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
PARTITIONS = 3
# The schema beside the payload, and the same in Avro.
COLUMNS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "name", "type": "string", "optional": True},
    {"field": "level", "type": "int32", "optional": False},
    {
        "field": "balance",
        "type": "bytes",
        "optional": False,
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    },
    {"field": "updated_at", "type": "int64", "optional": False, "name": "io.debezium.time.MicroTimestamp"},
]
SCHEMA = {
    "type": "struct",
    "fields": [
        *({"field": side, "type": "struct", "fields": COLUMNS, "optional": True} for side in ("before", "after")),
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64"},
    ],
}
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "level", "type": "int"},
        {
            "name": "balance",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 10,
                "scale": 2,
                "connect.version": 1,
                "connect.name": "org.apache.kafka.connect.data.Decimal",
            },
        },
        {
            "name": "updated_at",
            "type": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"},
        },
    ],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.public.accounts",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": [{"name": "ts_ms", "type": "long"}, {"name": "ts_us", "type": ["null", "long"]}],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


@dataclass(frozen=True)
class Captured:
    """A record of the topic: its key, and its envelope in Python's values; None is a tombstone."""

    key: int
    envelope: Mapping[str, Any] | None

    @property
    def partition(self) -> int:
        return self.key % PARTITIONS


@dataclass
class Table:
    """The rows, and all records about them so far; `full` says whether the log has old rows in full."""

    full: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[Captured] = field(default_factory=list)
    clock: datetime = BEGIN

    def put(self, key: int, name: str | None, level: int, balance: Decimal) -> None:
        self._tick()
        old = self.rows.get(key)
        row = {"id": key, "name": name, "level": level, "balance": balance, "updated_at": self.clock}
        self.rows[key] = row
        self._note(key, "c" if old is None else "u", old if self.full else None, row)

    def move(self, key: int, to: int) -> None:
        if key in self.rows and to not in self.rows:
            old = self.rows[key]
            self.remove(key)
            self._tick()
            self.rows[to] = {**old, "id": to, "updated_at": self.clock}
            self._note(to, "c", None, self.rows[to])

    def remove(self, key: int) -> None:
        if key in self.rows:
            self._tick()
            old = self.rows.pop(key)
            # Columns that can't be null have the empty value of their type in their place.
            empty = {
                "id": key,
                "name": None,
                "level": 0,
                "balance": Decimal("0.00"),
                "updated_at": EPOCH,
            }
            self._note(key, "d", old if self.full else empty, None)
            self.log.append(Captured(key, None))

    def snapshot(self) -> None:
        """Send all rows once more, as an incremental snapshot does."""
        for key, row in self.rows.items():
            self._note(key, "r", None, row)

    def _tick(self) -> None:
        self.clock += timedelta(microseconds=700)

    def _note(self, key: int, op: str, before: Any, after: Any) -> None:
        us = (self.clock - EPOCH) // timedelta(microseconds=1)
        source = {"ts_ms": us // 1000, "ts_us": us}
        self.log.append(
            Captured(key, {"op": op, "before": before, "after": after, "source": source, "ts_ms": us // 1000 + 5})
        )


def in_json(row: Mapping[str, Any] | None) -> Any:
    """Return a row as Connect's converter writes it in JSON: instants as numbers, decimals as bytes."""
    if row is None:
        return None
    unscaled = int(row["balance"].scaleb(2))
    at = (row["updated_at"] - EPOCH) // timedelta(microseconds=1)
    encoded = base64.b64encode(unscaled.to_bytes(8, "big", signed=True)).decode()
    return {**row, "balance": encoded, "updated_at": at}


def with_schema(envelope: Mapping[str, Any] | None) -> Any:
    if envelope is None:
        return None
    sides = {side: in_json(envelope[side]) for side in ("before", "after")}
    return {"schema": SCHEMA, "payload": {**envelope, **sides}}


def in_avro(envelope: Mapping[str, Any]) -> Any:
    """Return an envelope for a writer that knows Avro's own logical types only."""
    made = {side: None if envelope[side] is None else dict(envelope[side]) for side in ("before", "after")}
    for side in made.values():
        if side is not None:
            side["updated_at"] = in_json(side)["updated_at"]
    return {**envelope, **made}


_BALANCES = st.decimals(-99_999, 99_999, places=2)
_KEYS = st.integers(0, 4)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _KEYS, st.none() | st.text("ab", max_size=3), st.integers(0, 2), _BALANCES),
        st.tuples(st.just("move"), _KEYS, _KEYS),
        st.tuples(st.just("remove"), _KEYS),
        st.tuples(st.just("snapshot")),
    ),
    max_size=15,
)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Table, list[Captured]]:
    """Return a table after some changes, and its records in an order in which a reader may get them."""
    table = Table(full=draw(st.booleans()))
    for name, *args in draw(_STEPS):
        getattr(table, str(name))(*args)
    # After a restart, Debezium sends the last records again.
    sent = [*table.log, *table.log[draw(st.integers(0, len(table.log))) :]]
    # A reader gets the records of each partition in their order, and those of several in any.
    waiting = [[record for record in sent if record.partition == partition] for partition in range(PARTITIONS)]
    received = []
    while left := [records for records in waiting if records]:
        received.append(draw(st.sampled_from(left)).pop(0))
    return table, received
