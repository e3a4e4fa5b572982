"""Tables and views of BigQuery, read in the order of a cursor.

BigQuery charges for the bytes of the columns that a statement reads, in all partitions and blocks that may have rows of
it. So the columns are named, and the greatest value of the cursor is looked for from the last known one on.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import Any

import orjson

from caraway.dataplane.addresses.names import name_parts
from caraway.dataplane.sources.reader import SourceContext
from caraway.dataplane.sources.tables.cursor import CursorReader
from caraway.dataplane.sources.tables.cursors import CursorKind
from caraway.dataplane.sources.tables.database import MAX_NULLS, Bounds, Page, Row, TableColumn, TableShape
from caraway.dataplane.sources.tables.scan import Result, Scan, limits
from caraway.dataplane.warehouses.bigquery import ANSWER_S, RETRY, STATEMENT_S, connect, errors, quote
from caraway.dtypes.instants import EPOCH, US
from caraway.errors import UnavailableError
from caraway.graph.connectors import TableConnector
from caraway.graph.systems import BigQuerySystem

try:
    from google.api_core.exceptions import NotFound
    from google.cloud.bigquery import (
        Client,
        DatasetReference,
        QueryJobConfig,
        ScalarQueryParameter,
        SchemaField,
        TableReference,
    )
    from google.cloud.bigquery.table import RowIterator
except ImportError as error:
    raise UnavailableError(
        "BigQuery is reached by google-cloud-bigquery, which isn't installed: pip install caraway[bigquery]"
    ) from error

# BigQuery's descriptions of tables name some types as its older dialect does. Here are their current names.
_TODAY = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}
_KINDS = {
    "INT64": CursorKind.NUMBER,
    "NUMERIC": CursorKind.NUMBER,
    "BIGNUMERIC": CursorKind.NUMBER,
    "TIMESTAMP": CursorKind.TIME,
    "DATETIME": CursorKind.TIME,
    "DATE": CursorKind.DATE,
    "STRING": CursorKind.TEXT,
}
# The types whose values are handed over as the library makes them.
_PLAIN = _KINDS.keys() | {"FLOAT64", "BOOL", "BYTES", "GEOGRAPHY"}
# BigQuery returns the values of these types, and all arrays, as JSON, so that they are parsed only if a row is new.
_JSON = {"STRUCT", "JSON"}
# The types whose values the statement casts to texts.
_TEXTS = {"INTERVAL", "RANGE"}
# The rows of an answer; BigQuery gives fewer if they have more than some 10 MB.
ANSWER_ROWS = 10_000


class BigQueryReader(CursorReader):
    """Reads a table of BigQuery (`SourceReader`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare to read."""
        super().__init__(lambda: BigQueryTable(connector, context), connector, context)


class BigQueryTable:
    """A table or view of BigQuery (`Database`)."""

    def __init__(self, connector: TableConnector, context: SourceContext) -> None:
        """Prepare; it connects at the first use.

        Raises:
            UnavailableError: The table's name isn't written as one.
        """
        system = connector.system
        assert isinstance(system, BigQuerySystem)  # noqa: S101 (the planner refuses others)
        self._system = system
        self._context = context
        self._at = f"BigQuery {system.name}, dataset {system.project_id}.{system.dataset_id}"
        self.where = f"{self._at}, table {connector.table}"
        parts = name_parts(connector.table, self._at)
        if len(parts) > 3:
            raise UnavailableError(f"{self.where}: write the table as table, dataset.table or project.dataset.table")
        project, dataset, table = [system.project_id, system.dataset_id][: 3 - len(parts)] + parts
        self._reference = TableReference(DatasetReference(project, dataset), table)
        self._table = quote(project, dataset, table)
        self._client: Client | None = None
        self._columns: Mapping[str, TableColumn] = {}
        self._select: Mapping[str, str] = {}
        self._greatest: Any = None
        self._scan = Scan(self._run)

    def shape(self) -> TableShape:
        """Return the table's columns; see `Database.shape`."""
        with errors(self.where, self.close):
            client = self._connected()
            try:
                found = client.get_table(self._reference, retry=RETRY, timeout=ANSWER_S)
            except NotFound:
                raise self._missing(client) from None
        self._columns = {field.name: _column(field) for field in found.schema}
        self._select = {name: _expression(column) for name, column in self._columns.items()}
        # A view has no number of rows.
        return TableShape(columns=self._columns, folds_case=True, rows=found.num_rows or None)

    def bounds(self, cursor: TableColumn) -> Bounds:
        """Return the greatest value of the cursor; see `Database.bounds`."""
        name, seen = quote(cursor.name), self._greatest
        values = f"COUNT(*), COUNT({name}), MAX({name}), CURRENT_TIMESTAMP()"
        with errors(self.where, self.close):
            found = None
            if seen is not None:
                condition = f"{name} >= @p0 OR {name} IS NULL"
                found = self._one(f"SELECT {values} FROM {self._table} WHERE {condition}", [(seen, cursor)])  # noqa: S608 (names are quoted)
            if found is None or not found[1]:
                # At the first call, or if the greatest rows were deleted, the whole table is queried.
                found = self._one(f"SELECT {values} FROM {self._table}", [])  # noqa: S608 (names are quoted)
        rows, known, greatest, now = found
        self._greatest = greatest
        at = now.astimezone(UTC)
        return Bounds(greatest=greatest, now_us=(at - EPOCH) // US, nulls=min(rows - known, MAX_NULLS))

    def rows(self, page: Page) -> Iterator[Sequence[Row]]:
        """Yield the rows of a page; see `Database.rows`."""
        with errors(self.where, self.close):
            yield from self._scan.rows(page)

    def close(self) -> None:
        """End the connection."""
        self._scan.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        if self._client is None:
            system = self._system
            endpoint = self._context.endpoints.get(system.name)
            self._client = connect(system, self._context.resolve, endpoint, where=self.where)
        return self._client

    def _missing(self, client: Client) -> UnavailableError:
        of = self._reference
        try:
            there = client.list_tables(
                DatasetReference(of.project, of.dataset_id), max_results=20, retry=RETRY, timeout=ANSWER_S
            )
            tables = ", ".join(table.table_id for table in there) or "none"
        except NotFound:
            return UnavailableError(
                f"{self.where}: there is no dataset {of.project}.{of.dataset_id}; check the names of project and "
                "dataset"
            )
        return UnavailableError(
            f"{self._at}: there is no table {of.table_id} in {of.project}.{of.dataset_id}; tables: {tables}"
        )

    def _one(self, statement: str, values: Sequence[tuple[Any, TableColumn]]) -> Row:
        (row,) = self._query(statement, values)
        return tuple(row)

    def _run(self, page: Page) -> Result:
        """Run the statement of a page."""
        column = self._columns[page.columns[0]]
        name = quote(column.name)
        conditions: list[str] = []
        values: list[tuple[Any, TableColumn]] = []
        for operator, value in limits(page, column.kind):
            conditions.append(f"{name} {operator} @p{len(values)}")
            values.append((value, column))
        names = ", ".join(self._select[each] for each in page.columns)
        statement = f"SELECT {names} FROM {self._table} WHERE {' AND '.join(conditions)}"  # noqa: S608 (names are quoted)
        if page.limit is not None:
            statement += f" ORDER BY {name} LIMIT {page.limit:d}"
        result = self._query(statement, values)
        return Result(result.total_rows or 0, ([tuple(row) for row in part] for part in result.pages))

    def _query(self, statement: str, values: Sequence[tuple[Any, TableColumn]]) -> RowIterator:
        config = QueryJobConfig(
            query_parameters=[
                ScalarQueryParameter(f"p{number}", column.type, value) for number, (value, column) in enumerate(values)
            ],
            use_query_cache=False,
            labels={"application": "caraway"},
            job_timeout_ms=STATEMENT_S * 1000,
        )
        return self._connected().query_and_wait(
            statement,
            job_config=config,
            api_timeout=ANSWER_S,
            wait_timeout=STATEMENT_S,
            retry=RETRY,
            job_retry=None,  # type: ignore[arg-type]  # the worker begins again, with what the cursor has by then
            page_size=ANSWER_ROWS,
        )


def _column(field: SchemaField) -> TableColumn:
    kind = _TODAY.get(field.field_type, field.field_type)
    if field.mode == "REPEATED":
        return TableColumn(name=field.name, type=f"ARRAY<{kind}>", nullable=False, convert=_parsed)
    convert = None if kind in _PLAIN else _text
    if kind in _JSON:
        convert = _parsed
    return TableColumn(
        name=field.name, type=kind, kind=_KINDS.get(kind), nullable=field.mode != "REQUIRED", convert=convert
    )


def _expression(column: TableColumn) -> str:
    name = quote(column.name)
    if column.convert is _parsed:
        return f"TO_JSON_STRING({name})"
    return f"CAST({name} AS STRING)" if column.type in _TEXTS else name


def _parsed(value: Any) -> object:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        raise ValueError("isn't JSON that can be read") from None


def _text(value: object) -> object:
    if isinstance(value, time | datetime):
        return value.isoformat()
    return str(value)
