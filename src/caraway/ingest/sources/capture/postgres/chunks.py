"""Chunks of a Postgres table, in the order of its key, and single rows by their keys."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from psycopg import pq

from caraway.errors import UnavailableError
from caraway.ingest.sources.capture.log import Chunk, Key
from caraway.ingest.sources.capture.postgres.catalog import Connection, Table, quoted
from caraway.ingest.sources.capture.postgres.pgoutput import Loader
from caraway.ingest.sources.capture.postgres.values import Values

# The rows that libpq hands over together. So a chunk of wide rows takes little memory before it is cut off.
PIECE_ROWS = 200
# The first libpq that hands over rows in pieces; an older one hands over one at a time.
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
            ((snapshot,),) = self._texts("SELECT pg_current_snapshot()", ())
            if not is_seen((snapshot or b"").decode()):
                return None
            where = ""
            if after is not None:
                values = ", ".join(f"${n}::{dtype}" for n, dtype in enumerate(self._key_types, 1))
                where = f" WHERE ({self._keys}) > ({values})"
            statement = f"{self._select}{where} ORDER BY {self._keys} LIMIT {rows}"
            return self._chunk(self._texts(statement, after or ()), rows, size)
        finally:
            self._run("COMMIT")

    def rows_of(self, keys: Sequence[Key]) -> dict[Key, dict[str, object]]:
        """Return the rows of some keys that are there."""
        if not keys:
            return {}
        arrays = ", ".join(f"${n}::text[]::{dtype}[]" for n, dtype in enumerate(self._key_types, 1))
        statement = f"{self._select} WHERE ({self._keys}) IN (SELECT * FROM unnest({arrays}))"  # noqa: S608
        columns = [_array(column) for column in zip(*keys, strict=True)]
        found = self._chunk(self._texts(statement, columns), len(keys) + 1, 1 << 62)
        return {key: dict(row) for key, row in zip(found.keys, found.rows, strict=True)}

    def _chunk(self, pieces: Iterator[tuple[bytes | None, ...]], rows: int, size: int) -> Chunk:
        chunk = Chunk()
        names, loaders, key_columns = self._names, self._loaders, self._key
        for texts in pieces:
            if chunk.size >= size:
                # The rest is received and let go of; the next chunk begins with it.
                continue
            row = {
                name: text if text is None else (text.decode() if load is None else load(text))
                for name, load, text in zip(names, loaders, texts, strict=True)
            }
            chunk.rows.append(row)
            chunk.keys.append(tuple(None if (text := texts[n]) is None else text.decode() for n in key_columns))
            content = b"\0".join(b"\1" if text is None else text for text in texts)
            chunk.contents.append(content)
            chunk.size += len(content)
        chunk.last = len(chunk.rows) < rows and chunk.size < size
        return chunk

    def _texts(self, statement: str, values: Iterable[str | None]) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the rows of a query as texts."""
        connection = self._pgconn
        connection.send_query_params(statement.encode(), [None if v is None else v.encode() for v in values])
        if pq.version() >= PIECES_SINCE:
            connection.set_chunked_rows_mode(PIECE_ROWS)
        else:
            connection.set_single_row_mode()
        error = ""
        while (result := connection.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                error = " ".join(result.get_error_message().split())
                continue
            get, columns = result.get_value, range(result.nfields)
            for row in range(result.ntuples):
                yield tuple([get(row, column) for column in columns])
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
