"""Chunks of a Postgres table, in the order of its key, and single rows by their keys."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from psycopg import pq
from psycopg.pq.abc import PGresult

from caraway.dataplane.sources.cdc.log import Chunk, Key
from caraway.dataplane.sources.cdc.postgres.catalog import Table, quoted
from caraway.dataplane.sources.cdc.postgres.connection import Connection, next_result
from caraway.dataplane.sources.cdc.postgres.pgoutput import Loader
from caraway.dataplane.sources.cdc.postgres.values import Values, loaded
from caraway.errors import UnavailableError

# The number of rows that libpq returns together. It is small, so that a chunk of wide rows takes little memory before
# it is cut off.
PIECE_ROWS = 200
# The first version of libpq that returns rows in pieces; an older one returns them one at a time.
PIECES_SINCE = 170_000


class TableReader:
    """Reads rows of a table."""

    def __init__(self, connection: Connection, where: str, table: Table, values: Values) -> None:
        """Read on a connection that is in autocommit."""
        self._connection = connection
        self._pgconn = connection.pgconn
        self._where = f"{where}, table {table.spelled}"
        types = {name: spelled for name, _, spelled in table.columns}
        self._names = [name for name, _, _ in table.columns]
        self._loaders: list[Loader | None] = [values.loader(name, oid) for name, oid, _ in table.columns]
        self._key = [self._names.index(name) for name in table.key]
        self._key_types = [types[name] for name in table.key]
        columns = ", ".join(map(quoted, self._names))
        self._keys = ", ".join(map(quoted, table.key))
        self._select = f"SELECT {columns} FROM {table.spelled}"  # noqa: S608 (names are quoted)

    def chunk(
        self, after: Sequence[str | None] | None, *, rows: int, size: int, is_seen: Callable[[str], bool]
    ) -> Chunk | None:
        """Return rows behind a key as one snapshot has them; None if `is_seen` doesn't accept the snapshot."""
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            snapshots = [result.get_value(0, 0) or b"" for result in self._results("SELECT pg_current_snapshot()", ())]
            if not is_seen(snapshots[0].decode()):
                return None
            where = ""
            if after is not None:
                values = ", ".join(f"${n}::{dtype}" for n, dtype in enumerate(self._key_types, 1))
                where = f" WHERE ({self._keys}) > ({values})"
            statement = f"{self._select}{where} ORDER BY {self._keys} LIMIT {rows}"
            return self._chunk(self._results(statement, after or ()), rows, size)
        finally:
            self._run("COMMIT")

    def rows_of(self, keys: Sequence[Key]) -> dict[Key, dict[str, object]]:
        """Return the rows of some keys that are there."""
        if not keys:
            return {}
        arrays = ", ".join(f"${n}::text[]::{dtype}[]" for n, dtype in enumerate(self._key_types, 1))
        statement = f"{self._select} WHERE ({self._keys}) IN (SELECT * FROM unnest({arrays}))"  # noqa: S608
        columns = [_array(column) for column in zip(*keys, strict=True)]
        found = self._chunk(self._results(statement, columns), len(keys) + 1, 1 << 62)
        return {found.key(number): dict(row) for number, row in enumerate(found.rows())}

    def _chunk(self, results: Iterator[PGresult], rows: int, size: int) -> Chunk:
        chunk = Chunk()
        for result in results:
            # Rows behind the last one that fits are received and discarded. The next chunk begins with them.
            if chunk.size < size:
                self._add(result, chunk, size)
        chunk.last = len(chunk) < rows and chunk.size < size
        return chunk

    def _add(self, result: PGresult, chunk: Chunk, size: int) -> None:
        """Add the rows of a result to a chunk, up to the one with which it has so many bytes."""
        get, rows = result.get_value, range(result.ntuples)
        texts = [[get(row, column) for row in rows] for column in range(result.nfields)]
        columns = {
            name: loaded(column, load) for name, load, column in zip(self._names, self._loaders, texts, strict=True)
        }
        keys: list[list[str | None]] = [loaded(texts[number], None) for number in self._key]
        shown = [[b"\1" if text is None else text for text in column] if None in column else column for column in texts]
        chunk.add(columns, keys, list(map(b"\0".join, zip(*shown, strict=True))), size)

    def _results(self, statement: str, values: Iterable[str | None]) -> Iterator[PGresult]:
        """Yield the results of a query, which have some of its rows each, as texts."""
        connection = self._pgconn
        connection.send_query_params(statement.encode(), [None if v is None else v.encode() for v in values])
        if pq.version() >= PIECES_SINCE:
            connection.set_chunked_rows_mode(PIECE_ROWS)
        else:
            connection.set_single_row_mode()
        error = ""
        while (result := next_result(connection)) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                error = " ".join(result.get_error_message().split())
                continue
            if result.ntuples:
                yield result
        if error:
            raise UnavailableError(f"{self._where}: {error}")

    def _run(self, command: str) -> None:
        result = self._pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COMMAND_OK and command != "COMMIT":
            raise UnavailableError(f"{self._where}: {' '.join(result.get_error_message().split())}")


def _array(texts: Iterable[str | None]) -> str:
    """Return an array of texts as Postgres reads it."""
    escaped = ((text or "").replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"
