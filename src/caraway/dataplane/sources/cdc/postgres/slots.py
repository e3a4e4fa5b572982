"""Making a replication slot, which waits until all transactions that run now have ended."""

from psycopg import pq

from caraway.dataplane.sources.cdc.postgres import catalog
from caraway.dataplane.sources.cdc.postgres.connection import Server, query, wait_for
from caraway.errors import UnavailableError

_MAKE = b"SELECT (lsn - '0/0'::pg_lsn)::text FROM pg_create_logical_replication_slot($1, 'pgoutput')"


class SlotMaker:
    """Makes one slot. It doesn't block the worker, which must renew its lease meanwhile."""

    def __init__(self, server: Server, slot: str) -> None:
        """Begin to make a slot, unless there is one of this name: from an earlier try, or since the user made it."""
        self._where = server.where
        self._slot = slot
        self._connection = server.connect()
        self._found: int | None = None
        try:
            found = catalog.slot_of(self._connection, self._where, slot)
            if found is not None:
                self._found = found.confirmed
                return
            query(self._connection, self._where, "SELECT set_config('statement_timeout', '0', false)")
            self._connection.pgconn.send_query_params(_MAKE, [slot.encode()])
        except BaseException:
            self._connection.close()
            raise

    def poll(self, timeout_s: float) -> int | None:
        """Return the LSN from which on the slot has changes, or None if it isn't made yet.

        Raises:
            UnavailableError: The slot can't be made.
        """
        if self._found is not None:
            return self._found
        connection = self._connection.pgconn
        connection.flush()
        wait_for(connection, timeout_s)
        connection.consume_input()
        if connection.is_busy():
            return None
        result = connection.get_result()
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            message = " ".join((result or connection).get_error_message().split())
            raise UnavailableError(f"{self._where}: the replication slot {self._slot} can't be made: {message}")
        return int(result.get_value(0, 0) or b"0")

    def close(self) -> None:
        """End the connection, and the try to make the slot if it goes on."""
        self._connection.close()
