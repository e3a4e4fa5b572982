"""Transactions of XA, whose changes are in the log where they were prepared, and count when they are committed.

Two things follow for the load of a table. A transaction that was prepared before the log is read has changes that
nobody knows, so no chunk is read until it is over. (One that was prepared later and isn't in the log has changed
nothing. A busy server always has one of these, so that no load may wait for them.) And MariaDB logs the commit of a
prepared transaction before it commits it in the engine, also in the eyes of a consistent snapshot. So a chunk is only
read when the server doesn't list the transactions as prepared any more whose changes were handed over: it forgets them
behind the engine's commit.
"""

import time
from collections.abc import Mapping
from typing import Any

from caraway.ingest.sources.capture.log import Coordinate
from caraway.ingest.sources.capture.mysql.catalog import log_status
from caraway.ingest.sources.capture.mysql.connection import Queries
from caraway.ingest.sources.capture.mysql.stream import file_number

# The error of MySQL for a user who may not list the transactions (XA_RECOVER_ADMIN).
_REFUSED = 1401
# The server lists a transaction as prepared a moment after it has logged it. A list that is made so many seconds after
# the log began to be read has all that were prepared before.
LISTED_S = 1.0


def spelled_xid(gtrid: bytes, bqual: bytes, format_id: int) -> str:
    """Return the name of a transaction as in the statements by which the log says that it is committed."""
    return f"X'{gtrid.hex()}',X'{bqual.hex()}',{format_id}"


def listed(queries: Queries) -> frozenset[str] | None:
    """Return the transactions that the server has as prepared; None if this user may not know."""
    rows = queries.all_or_none("XA RECOVER" if queries.is_mariadb else "XA RECOVER CONVERT XID", refused=_REFUSED)
    if rows is None:
        return None
    found = set()
    for format_id, size, _, data in rows:
        text = data if isinstance(data, bytes) else str(data).encode()
        name = text if queries.is_mariadb else bytes.fromhex(text.decode().removeprefix("0x"))
        found.add(spelled_xid(name[:size], name[size:], format_id))
    return frozenset(found)


class Prepared:
    """The transactions that were prepared, as far as the log was read."""

    def __init__(self) -> None:
        """Begin with none, before a load."""
        self._places: dict[str, Coordinate | None] = {}
        # Those of them that have ended, with the place behind. They are forgotten when that is saved.
        self._ended: dict[str, Coordinate] = {}
        # The place behind which each commit belongs to a transaction whose changes are known.
        self._known_from: Coordinate | None = None
        # A list of the server, and an end of the log that is behind it.
        self._asked: tuple[frozenset[str], Coordinate] | None = None
        # The time from which a list has each transaction that was prepared before the log was read; and those that all
        # lists since then have, None before the first one.
        self._complete_at: float | None = None
        self._older: frozenset[str] | None = None

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Prepared":
        """Return what was saved by `state`."""
        found = cls()
        found._places = {xid: place and tuple(place) for xid, place in state.get("prepared", {}).items()}
        # A state that doesn't tell is one of a load that had begun.
        known_from = state.get("known_from", (0, 0))
        found._known_from = None if known_from is None else tuple(known_from)
        return found

    def state(self) -> dict[str, Any]:
        """Return what must be remembered."""
        found: dict[str, Any] = {"known_from": self._known_from}
        if self._places:
            found["prepared"] = dict(self._places)
        return found

    def prepare(self, xid: str, place: Coordinate | None) -> None:
        """Note a transaction that begins at a place; None if it doesn't change the table."""
        self._places[xid] = place
        self._ended.pop(xid, None)

    def end(self, xid: str, end: Coordinate) -> None:
        """Note that a transaction is committed or rolled back before a place."""
        self._ended[xid] = end

    def is_known(self, xid: str, end: Coordinate) -> bool:
        """Return whether the changes are known of a transaction that is committed before a place."""
        return xid in self._places or self._known_from is None or end <= self._known_from

    def place(self, xid: str) -> Coordinate | None:
        """Return where a transaction begins; None if it doesn't change the table, or if the load has its changes."""
        return self._places.get(xid)

    def forget(self, at: Coordinate) -> None:
        """Forget what is needed only before a place."""
        for xid in [xid for xid, end in self._ended.items() if end <= at]:
            del self._ended[xid]
            self._places.pop(xid, None)

    @property
    def is_begun(self) -> bool:
        """True if chunks may be read."""
        return self._known_from is not None

    def begin(self, queries: Queries, read: Coordinate) -> frozenset[str]:
        """Begin with chunks if no transaction is left that was prepared before the log was read; return those.

        If the user may not know them, the commit of such a transaction will be an error. `read` is the place up to
        which the log was read.
        """
        if self._complete_at is None:
            self._complete_at = time.monotonic() + LISTED_S
        if self._asked is None:
            is_complete = time.monotonic() >= self._complete_at
            now = listed(queries)
            if now is None:
                self._known_from = read
                return frozenset()
            file, end, _, _ = log_status(queries)
            if is_complete:
                now = self._older = now if self._older is None else now & self._older
            self._asked = now, (file_number(file), end)
        now, until = self._asked
        if read < until:
            return frozenset()
        self._asked = None
        if older := now - self._places.keys():
            return older
        self._known_from = until
        return frozenset()
