"""Offline queries in Postgres."""

import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from caraway.errors import UnknownEntityError
from caraway.offline.queries.model import OfflineQuery, OfflineRequest, Part, QueryStatus
from caraway.state.database import Store
from caraway.state.tables import leases, offline_queries

NOW = sa.func.clock_timestamp()
# At most this many queries are listed.
MAX_LISTED = 100
# The prefix of the names of the leases of running queries.
LEASES = "offline/"
# The beginning of the ids of requests of loads, and their account. They belong to no branch, so no list of a branch's
# queries has them.
LOADS = "load-"


# Decoders are made while the module is imported, since making one isn't safe with several threads.
_REQUEST = msgspec.json.Decoder(OfflineRequest).decode
_PARTS = msgspec.json.Decoder(tuple[Part, ...]).decode


def process_name(pid: int) -> str:
    """Return the name of a process of this machine as the owner of a lease."""
    return f"{socket.gethostname()}:{pid}"


_TABLE = offline_queries
_OVER = [status.value for status in QueryStatus if status.is_over]


class OfflineQueries(Store):
    """Writes and reads offline queries. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def add(
        self, query_id: str, request: OfflineRequest, *, branch: str, commit: str, account: str, workflow: str
    ) -> None:
        """Record a new query, which waits from now on."""
        values = {
            "id": query_id,
            "branch": branch,
            "commit_id": commit,
            "account": account,
            "workflow": workflow,
            "request": msgspec.to_builtins(request),
            "status": QueryStatus.WAITING.value,
        }
        self._write(sa.insert(_TABLE).values(values), "record an offline query")

    def get(self, query_id: str) -> OfflineQuery:
        """Return a query. Raises `UnknownEntityError` if there is none with this id."""
        found = self._read(sa.select(_TABLE).where(_TABLE.c.id == query_id))
        if not found:
            raise UnknownEntityError(f"there is no offline query {query_id[:100]!r}")
        return found[0]

    def of_branch(self, branch: str) -> list[OfflineQuery]:
        """Return the newest queries of a branch, the newest first."""
        newest = sa.select(_TABLE).where(_TABLE.c.branch == branch).order_by(_TABLE.c.asked_at.desc())
        return self._read(newest.limit(MAX_LISTED))

    def loads(self) -> list[OfflineQuery]:
        """Return the requests of loads."""
        return self._read(sa.select(_TABLE).where(_TABLE.c.id.startswith(LOADS, autoescape=True)))

    def waiting(self) -> list[OfflineQuery]:
        """Return the queries that no process works on, though they aren't over, in the order of their turns.

        Accounts take turns, each with its oldest query, so that no account waits for all that another one has asked.
        A query that runs is its account's turn. Among equals the account comes first whose last query ended first.
        """
        turn = sa.func.row_number().over(partition_by=_TABLE.c.account, order_by=_TABLE.c.asked_at).label("turn")
        left = sa.select(_TABLE.c.id, turn).where(_TABLE.c.status.not_in(_OVER)).subquery()
        ended = sa.func.max(_TABLE.c.ended_at).label("ended")
        last = sa.select(_TABLE.c.account, ended).group_by(_TABLE.c.account).subquery()
        held = sa.select(leases.c.name).where(leases.c.name == LEASES + _TABLE.c.id, leases.c.expires_at > NOW)
        free = sa.select(_TABLE).join(left, left.c.id == _TABLE.c.id).where(~held.exists())
        by_account = free.join(last, last.c.account == _TABLE.c.account)
        ordered = by_account.order_by(left.c.turn, last.c.ended.nulls_first(), _TABLE.c.asked_at)
        return self._read(ordered.limit(MAX_LISTED))

    def unfinished(self, account: str) -> int:
        """Return the number of queries of an account that aren't over."""
        count = sa.select(sa.func.count()).where(_TABLE.c.account == account, _TABLE.c.status.not_in(_OVER))
        return self._in_transaction(
            lambda connection: int(connection.execute(count).scalar_one()), "count the offline queries of an account"
        )

    def begin(self, query_id: str, cuts: Mapping[str, Mapping[int, int]], rows: int) -> None:
        """Note that a query runs, up to which offsets it reads, and how many rows it has; the first cuts stay."""
        written = {topic: {str(p): end for p, end in ends.items()} for topic, ends in cuts.items()}
        values = {
            "status": QueryStatus.RUNNING.value,
            "cuts": sa.func.coalesce(_TABLE.c.cuts, sa.cast(written, _TABLE.c.cuts.type)),
            "rows": rows,
        }
        self._write(self._unfinished(query_id).values(values), "begin an offline query")

    def attempt(self, query_id: str, more: int = 1) -> None:
        """Count an attempt; with `more=-1`, take it back."""
        counted = sa.func.greatest(_TABLE.c.attempts + more, 0)
        self._write(self._unfinished(query_id).values(attempts=counted), "begin an offline query")

    def advance(self, query_id: str, parts: Sequence[Part]) -> None:
        """Note all parts that are written."""
        values = {"parts": msgspec.to_builtins(list(parts)), "attempts": 0, "error": None}
        self._write(self._unfinished(query_id).values(values), "note the progress of an offline query")

    def note(self, query_id: str, error: str) -> None:
        """Note why an attempt ended."""
        self._write(self._unfinished(query_id).values(error=_text(error)), "note the failure of an offline query")

    def end(self, query_id: str, status: QueryStatus, error: str | None = None) -> None:
        """Note that a query is over; credentials in its request are dropped."""
        values = {
            "status": status.value,
            "error": None if error is None else _text(error),
            "ended_at": NOW,
            "request": _TABLE.c.request.op("#-")(sa.text("'{rows,credentials}'")).op("#-")(
                sa.text("'{output,credentials}'")
            ),
        }
        self._write(self._unfinished(query_id).values(values), "end an offline query")

    def cancel(self, query_id: str) -> None:
        """Request the end of a query, unless it is over."""
        self._write(self._unfinished(query_id).values(cancelled=True), "cancel an offline query")

    def release(self, query_id: str, process: str) -> None:
        """End the lease of a process that is known to have died, so that the query needn't wait until it expires."""
        held = sa.update(leases).where(leases.c.name == LEASES + query_id, leases.c.holder == process)
        self._write(held.values(expires_at=NOW - sa.text("interval '1 second'")), "free an offline query")

    def old(self, age: timedelta) -> list[str]:
        """Return the ids of queries that ended more than `age` ago."""
        query = sa.select(_TABLE.c.id).where(_TABLE.c.ended_at < NOW - age).limit(MAX_LISTED)
        return self._in_transaction(
            lambda connection: list(connection.execute(query).scalars()), "read old offline queries"
        )

    def forget(self, query_id: str) -> None:
        """Remove the record of a query."""
        self._write(sa.delete(_TABLE).where(_TABLE.c.id == query_id), "forget an offline query")

    def _unfinished(self, query_id: str) -> sa.Update:
        return sa.update(_TABLE).where(_TABLE.c.id == query_id, _TABLE.c.status.not_in(_OVER))

    def _write(self, statement: Any, what: str) -> None:
        self._in_transaction(lambda connection: connection.execute(statement), what)

    def _read(self, query: sa.Select[Any]) -> list[OfflineQuery]:
        rows = self._in_transaction(
            lambda connection: list(connection.execute(query).mappings()), "read offline queries"
        )
        return [_query(row) for row in rows]


def _text(error: str) -> str:
    """Return a text as Postgres can store it: an error may have names and values of files."""
    return error.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _query(row: sa.RowMapping) -> OfflineQuery:
    cuts = row["cuts"]
    return OfflineQuery(
        id=row["id"],
        branch=row["branch"],
        commit=row["commit_id"],
        account=row["account"],
        workflow=row["workflow"],
        request=_REQUEST(msgspec.json.encode(row["request"])),
        cuts=None
        if cuts is None
        else {topic: {int(p): end for p, end in ends.items()} for topic, ends in cuts.items()},
        status=QueryStatus(row["status"]),
        cancelled=row["cancelled"],
        rows=row["rows"],
        parts=_PARTS(msgspec.json.encode(row["parts"])),
        attempts=row["attempts"],
        error=row["error"],
        asked_at=row["asked_at"],
        ended_at=row["ended_at"],
    )
