"""Webhook endpoints, compiled: they turn slices of a request into records for the topics of their datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import repeat

from caraway.dtypes.values import ROWS
from caraway.errors import InvalidInputError, UnknownEntityError, shortened
from caraway.ingest.table import Table, json_type
from caraway.plan.model import Column, GraphPlan, IngestPlan
from caraway.rows.column_casts import MISSING, ColumnCast
from caraway.topics.codec import MAX_RECORD_BYTES, PUT, RecordCodec
from caraway.topics.keys import MAX_KEY_BYTES, too_long

# Characters of a message about a row, which goes to the client and into the dead letter: enough for a reason, too few
# for a large value as a whole.
MAX_MESSAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """Why a dataset didn't take a row; `field` is empty if the row as a whole is at fault."""

    row: int
    dataset: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A slice of a request, encoded for one dataset: (row number, key, value) of valid rows, errors of invalid ones."""

    records: list[tuple[int, bytes | None, bytes]]
    errors: list[RowError]


class Target:
    """A dataset that an endpoint feeds."""

    __slots__ = (
        "_casts",
        "_codec",
        "_key_positions",
        "_row_positions",
        "_time_position",
        "dataset",
        "fields",
        "keys",
        "topic",
    )

    def __init__(self, plan: IngestPlan) -> None:
        self.dataset = plan.topic.dataset
        self.topic = plan.topic.name
        self.fields = tuple(column.name for column in plan.fields)
        schema = plan.topic.schema
        self.keys = schema.keys
        self._casts = tuple(ColumnCast(column.dtype, ROWS) for column in plan.fields)
        self._codec = RecordCodec(schema)
        self._key_positions = tuple(self.fields.index(column.name) for column in schema.keys)
        self._row_positions = tuple(self.fields.index(column.name) for column in schema.columns)
        self._time_position = self.fields.index(schema.timestamp)

    def encode(self, table: Table, start: int, stop: int, ingested_us: int) -> Encoded:
        """Return rows `start` to `stop`, cast and encoded."""
        errors: list[RowError] = []
        strays = [row for row in range(start, stop) if row in table.strays] if table.strays else []
        for row in strays:
            message = f"is {json_type(table.row(row))}, an object is expected"
            errors.append(RowError(row=row, dataset=self.dataset, field="", message=message))
        bad = set(strays)
        columns = []
        for name, cast in zip(self.fields, self._casts, strict=True):
            column = cast(table.column(name, start, stop))
            columns.append(column.values)
            for position, message in column.errors.items():
                if start + position not in table.strays:
                    shown = shortened(message, MAX_MESSAGE)
                    errors.append(RowError(row=start + position, dataset=self.dataset, field=name, message=shown))
                    bad.add(start + position)
        records = self._records(columns, start, bad, ingested_us, errors)
        errors.sort(key=lambda error: error.row)
        return Encoded(records, errors)

    def keys_of(self, row: object) -> dict[Column, object]:
        """Return the values of those key columns of a row that can be cast to their types."""
        if not isinstance(row, dict):
            return {}
        values: dict[Column, object] = {}
        for column, position in zip(self.keys, self._key_positions, strict=True):
            cast = self._casts[position]([row.get(column.name, MISSING)])
            if not cast.errors:
                values[column] = cast.values[0]
        return values

    def _records(
        self, columns: Sequence[list[object]], start: int, bad: set[int], ingested_us: int, errors: list[RowError]
    ) -> list[tuple[int, bytes | None, bytes]]:
        encode_key, encode_value = self._codec.encode_key, self._codec.encode_value
        times = columns[self._time_position]
        rows = zip(*(columns[position] for position in self._row_positions), strict=True)
        keys = len(self._key_positions)
        records: list[tuple[int, bytes | None, bytes]] = []
        # A dataset may have no column but its timestamp; its rows are empty.
        for number, (time_us, row) in enumerate(
            zip(times, rows if self._row_positions else repeat(()), strict=False), start
        ):
            if number in bad:
                continue
            try:
                # The key columns come first in a row.
                key = encode_key(row[:keys]) if keys else None
                if key is not None and len(key) > MAX_KEY_BYTES:
                    errors.append(self._too_long(number, key, row))
                    continue
                value = encode_value(op=PUT, time_us=time_us, ingested_us=ingested_us, row=row)  # type: ignore[arg-type]
            except InvalidInputError as error:
                message = shortened(str(error), MAX_MESSAGE)
                errors.append(RowError(row=number, dataset=self.dataset, field="", message=message))
                continue
            if len(value) > MAX_RECORD_BYTES:
                message = f"takes {len(value):,} bytes, at most {MAX_RECORD_BYTES:,} are possible"
                errors.append(RowError(row=number, dataset=self.dataset, field="", message=message))
                continue
            records.append((number, key, value))
        return records

    def _too_long(self, number: int, key: bytes, row: Sequence[object]) -> RowError:
        field, message = too_long(key, self.keys, row)
        return RowError(row=number, dataset=self.dataset, field=field, message=message)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a webhook and the datasets that it feeds."""

    webhook: str
    name: str
    targets: tuple[Target, ...]

    def unknown_fields(self, table: Table) -> list[str]:
        """Return the fields of a request that no dataset of the endpoint has."""
        return sorted(table.names().difference(*(target.fields for target in self.targets)))


class Endpoints:
    """All endpoints of a graph."""

    def __init__(self, plan: GraphPlan) -> None:
        """Compile the ingests of `plan`."""
        targets: dict[tuple[str, str], list[Target]] = {}
        for ingest in plan.ingests:
            targets.setdefault((ingest.connector.name, ingest.connector.endpoint), []).append(Target(ingest))
        self._endpoints = {key: Endpoint(*key, tuple(feeds)) for key, feeds in targets.items()}

    def find(self, webhook: str, endpoint: str) -> Endpoint:
        """Return an endpoint.

        Raises:
            UnknownEntityError: There is no such endpoint; the text lists those that exist.
        """
        found = self._endpoints.get((webhook, endpoint))
        if found is not None:
            return found
        webhooks = sorted({name for name, _ in self._endpoints})
        if not webhooks:
            raise UnknownEntityError(
                f"there is no webhook {shortened(webhook)!r}: no dataset has a webhook source yet. "
                "Commit one with @source(webhook.endpoint(...))"
            )
        if webhook not in webhooks:
            raise UnknownEntityError(
                f"there is no webhook {shortened(webhook)!r}{_meant(webhook, webhooks)}; "
                f"webhooks: {', '.join(webhooks)}"
            )
        names = sorted(name for of, name in self._endpoints if of == webhook)
        raise UnknownEntityError(
            f"webhook {webhook!r} has no endpoint {shortened(endpoint)!r}{_meant(endpoint, names)}; "
            f"endpoints: {', '.join(names)}"
        )


def _meant(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
